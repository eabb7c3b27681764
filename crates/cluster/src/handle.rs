//! The handle that sends to the other nodes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use async_nats::Statistics;
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use touchline_protocol::fact::FactChange;
use touchline_protocol::stream::{ChannelName, LoadId, NamespaceName, Offset, RunId};

use crate::command::{ClusterCommand, IsEnough, OnFactChanged, OnGathered, OnPurged, OnStreamAppended, OnStreamsSet};
use crate::settings::StreamSettings;
use crate::telling::{OnMessagesTold, OutsideBatch, OutsideMessage};
use crate::types::StreamLoad;

/// A handle that sends to the other nodes. No call blocks: a message that cannot be sent now is lost, or its callback
/// reports the failure.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) outgoing: UnboundedSender<ClusterCommand>,
    /// The size limit of one message, bytes.
    pub(crate) message_max: Arc<AtomicUsize>,
    /// What the client of NATS counts; empty until it has been made.
    pub(crate) traffic: Arc<OnceLock<Arc<Statistics>>>,
}

/// What the thread of the link shares with the handle.
pub(crate) struct LinkParts {
    pub(crate) outgoing: UnboundedReceiver<ClusterCommand>,
    pub(crate) message_max: Arc<AtomicUsize>,
    pub(crate) traffic: Arc<OnceLock<Arc<Statistics>>>,
}

/// What has gone over the link to NATS since the node started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Messages received.
    pub received: u64,
    /// Bytes of their subjects, header fields and payloads.
    pub received_bytes: u64,
    /// Messages sent.
    pub sent: u64,
    /// Bytes of their subjects, header fields and payloads.
    pub sent_bytes: u64,
    /// Times that a connection was made: the first one, and each after one was lost.
    pub connects: u64,
}

impl Cluster {
    fn send(&self, outgoing: ClusterCommand) {
        let _ = self.outgoing.send(outgoing);
    }

    /// Bytes that one message to other nodes may have, by the server that the node is connected to, or was last: 1 MiB
    /// before the first one, and another number perhaps after each reconnect. Larger ones are not sent.
    pub fn message_max(&self) -> usize {
        self.message_max.load(Relaxed)
    }

    /// What has gone over the link since the node started.
    pub fn traffic(&self) -> LinkTraffic {
        let Some(counted) = self.traffic.get() else { return LinkTraffic::default() };
        LinkTraffic {
            received: counted.in_messages.load(Relaxed),
            received_bytes: counted.in_bytes.load(Relaxed),
            sent: counted.out_messages.load(Relaxed),
            sent_bytes: counted.out_bytes.load(Relaxed),
            connects: counted.connects.load(Relaxed),
        }
    }

    /// Sends a message to the replica of a scope on one node; none = on all other nodes.
    pub fn send_to_scope(&self, scope: &Arc<str>, to: Option<&Arc<str>>, message: Bytes) {
        self.send(ClusterCommand::ScopeMessage { scope: Arc::clone(scope), to: to.cloned(), message });
    }

    /// Sends a message to a node's directory.
    pub fn send_to_directory(&self, to: Arc<str>, message: Vec<u8>) {
        self.send(ClusterCommand::DirectoryMessage { to, message: message.into() });
    }

    /// Sends a message to all other nodes.
    pub fn broadcast(&self, message: Vec<u8>) {
        self.send(ClusterCommand::Broadcast { message: message.into() });
    }

    /// Sends a message to all other nodes and gathers their replies: at most `nodes` replies, those up to one that is
    /// enough, or those that come within a second. A reply may be larger than one message.
    pub fn gather(&self, message: Vec<u8>, nodes: usize, is_enough: IsEnough, done: OnGathered) {
        self.send(ClusterCommand::Gather { message: message.into(), nodes, is_enough, done });
    }

    /// Sends a publication that is not stored to all nodes that are subscribed to the channel, this one included.
    pub fn publish_ephemeral(&self, channel: ChannelName, payload: Vec<u8>) {
        self.send(ClusterCommand::PublishEphemeral { channel, payload: payload.into() });
    }

    /// Subscribes the node to a channel, or ends the subscription.
    pub fn set_interest(&self, channel: ChannelName, is_wanted: bool) {
        self.send(ClusterCommand::SetInterest { channel, is_wanted });
    }

    /// Reads the history of a channel after an offset. `behind` is the offset, and a number that the event repeats.
    pub fn load(&self, channel: ChannelName, namespace: NamespaceName, load: LoadId) {
        self.send(ClusterCommand::Load(StreamLoad { channel, namespace, id: load, is_check: false }));
    }

    /// Checks whether a channel has publications after an offset; [`crate::ClusterEvent::Loaded`] comes only if it has.
    pub fn check(&self, channel: ChannelName, namespace: NamespaceName, load: LoadId) {
        self.send(ClusterCommand::Load(StreamLoad { channel, namespace, id: load, is_check: true }));
    }

    /// Notes that messages may have been lost: the streams are inspected soon, and for a while more often.
    pub fn check_soon(&self) {
        self.send(ClusterCommand::CheckSoon);
    }

    /// Begins a new run of a namespace's stream if its current run is `lost`; 0 = its first run.
    /// The caller knows of a publication that the stream lacks.
    pub fn begin_run(&self, namespace: NamespaceName, lost: RunId) {
        self.send(ClusterCommand::BeginRun { namespace, lost });
    }

    /// Stores a publication of a channel with history; a repeated `id` stores it once, empty = no id.
    pub fn append(
        &self,
        channel: ChannelName,
        namespace: NamespaceName,
        payload: Vec<u8>,
        id: Box<str>,
        done: OnStreamAppended,
    ) {
        self.send(ClusterCommand::Append { channel, namespace, payload: payload.into(), id, done });
    }

    /// Removes the history of a channel and stores a marker in its place, which all subscribed nodes receive. `marker`
    /// makes the marker's payload from the last offset that is removed.
    pub fn purge(&self, channel: ChannelName, namespace: NamespaceName, marker: fn(Offset) -> Vec<u8>, done: OnPurged) {
        self.send(ClusterCommand::Purge { channel, namespace, marker, done });
    }

    /// Keeps the histories of these namespaces from now on: streams that are missing are made, and those that differ
    /// are changed. `done` is called when all are open, and dropped if others are set before.
    pub fn set_streams(&self, streams: Vec<StreamSettings>, done: OnStreamsSet) {
        self.send(ClusterCommand::SetStreams { streams, done });
    }

    /// This node has another configuration ([`crate::JoinOptions::configuration`]).
    pub fn set_configuration(&self, configuration: u32) {
        self.send(ClusterCommand::SetConfiguration(configuration));
    }

    /// Changes a shared fact; [`crate::ClusterEvent::Facts`] reports it before `done` takes the result.
    pub fn change_fact(&self, change: FactChange, done: OnFactChanged) {
        self.send(ClusterCommand::ChangeFact { change, done });
    }

    /// Sends messages to others than nodes, in their order, under a subject of the operator's. `done` takes whether
    /// they have arrived: in the stream that has the subject, or at the server if none has.
    pub fn tell(&self, subject: Box<str>, messages: Vec<OutsideMessage>, done: OnMessagesTold) {
        self.send(ClusterCommand::Tell(OutsideBatch { subject, messages, done }));
    }

    /// Sends the waiting messages and leaves the cluster. Blocks for two seconds at most.
    pub fn leave(&self) {
        let (done, left) = std::sync::mpsc::channel();
        self.send(ClusterCommand::Leave { done });
        let _ = left.recv_timeout(std::time::Duration::from_secs(2));
    }
}
