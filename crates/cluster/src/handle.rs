//! The handle through which a node sends to the other nodes.

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

/// A handle that sends to the other nodes. No call blocks. A message that cannot be sent now is lost, or its callback
/// reports the failure.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) outgoing: UnboundedSender<ClusterCommand>,
    /// The size limit of one message, bytes.
    pub(crate) message_max: Arc<AtomicUsize>,
    /// The counters of the NATS client. Empty until the client has been created.
    pub(crate) traffic: Arc<OnceLock<Arc<Statistics>>>,
}

/// The parts that the cluster's thread shares with the handle.
pub(crate) struct LinkParts {
    pub(crate) outgoing: UnboundedReceiver<ClusterCommand>,
    pub(crate) message_max: Arc<AtomicUsize>,
    pub(crate) traffic: Arc<OnceLock<Arc<Statistics>>>,
}

/// The traffic on the connection to NATS since the node started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// The number of messages received.
    pub received: u64,
    /// The size of their subjects, headers and payloads, bytes.
    pub received_bytes: u64,
    /// The number of messages sent.
    pub sent: u64,
    /// The size of their subjects, headers and payloads, bytes.
    pub sent_bytes: u64,
    /// The number of connections that were made: the first one, and each after one was lost.
    pub connects: u64,
}

impl Cluster {
    fn send(&self, outgoing: ClusterCommand) {
        let _ = self.outgoing.send(outgoing);
    }

    /// The maximum size of one message to other nodes, bytes. It is the limit of the server that the node is, or was
    /// last, connected to. Before the first connection it is 1 MiB, and it may change with each reconnect. Larger
    /// messages are not sent.
    pub fn message_max(&self) -> usize {
        self.message_max.load(Relaxed)
    }

    /// The traffic on the connection since the node started.
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

    /// Sends a message to the replica of a scope on one node. `None` = on all other nodes.
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

    /// Sends a message to all other nodes and gathers their replies. It ends after `nodes` replies, after a sufficient
    /// reply, or after one second. A reply may be larger than one message.
    pub fn gather(&self, message: Vec<u8>, nodes: usize, is_enough: IsEnough, done: OnGathered) {
        self.send(ClusterCommand::Gather { message: message.into(), nodes, is_enough, done });
    }

    /// Sends a publication that is not stored to all nodes that are subscribed to the channel, including this one.
    pub fn publish_ephemeral(&self, channel: ChannelName, payload: Vec<u8>) {
        self.send(ClusterCommand::PublishEphemeral { channel, payload: payload.into() });
    }

    /// Subscribes the node to a channel, or ends the subscription.
    pub fn set_interest(&self, channel: ChannelName, is_wanted: bool) {
        self.send(ClusterCommand::SetInterest { channel, is_wanted });
    }

    /// Reads the history of a channel after an offset. `load` contains the offset, and a number that the event repeats.
    pub fn load(&self, channel: ChannelName, namespace: NamespaceName, load: LoadId) {
        self.send(ClusterCommand::Load(StreamLoad { channel, namespace, id: load, is_check: false }));
    }

    /// Checks whether a channel has publications after an offset. [`crate::ClusterEvent::Loaded`] is sent only if it
    /// has.
    pub fn check(&self, channel: ChannelName, namespace: NamespaceName, load: LoadId) {
        self.send(ClusterCommand::Load(StreamLoad { channel, namespace, id: load, is_check: true }));
    }

    /// Reports that messages may have been lost. The streams are then inspected soon, and more often for a while.
    pub fn check_soon(&self) {
        self.send(ClusterCommand::CheckSoon);
    }

    /// Begins a new run of a namespace's stream if its current run is `lost`. 0 = its first run. The caller knows of a
    /// publication that the stream lacks.
    pub fn begin_run(&self, namespace: NamespaceName, lost: RunId) {
        self.send(ClusterCommand::BeginRun { namespace, lost });
    }

    /// Stores a publication of a channel with history. A repeated `id` is stored only once. Empty = no id.
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

    /// Removes the history of a channel, and stores a marker instead, which all subscribed nodes receive. `marker`
    /// makes the marker's payload from the last offset that is removed.
    pub fn purge(&self, channel: ChannelName, namespace: NamespaceName, marker: fn(Offset) -> Vec<u8>, done: OnPurged) {
        self.send(ClusterCommand::Purge { channel, namespace, marker, done });
    }

    /// Sets the namespaces whose histories are kept. Missing streams are created, and streams that differ are changed.
    /// `done` is called when all are open, and dropped if others are set before that.
    pub fn set_streams(&self, streams: Vec<StreamSettings>, done: OnStreamsSet) {
        self.send(ClusterCommand::SetStreams { streams, done });
    }

    /// Sets the digest of this node's configuration ([`crate::JoinOptions::configuration`]).
    pub fn set_configuration(&self, configuration: u32) {
        self.send(ClusterCommand::SetConfiguration(configuration));
    }

    /// Sets how many clients per second this node can take when another one drains (0 = not stated), and whether it
    /// drains itself.
    pub fn set_room(&self, connect_rate: u32, draining: bool) {
        self.send(ClusterCommand::SetRoom { connect_rate, draining });
    }

    /// Changes a shared fact. [`crate::ClusterEvent::Facts`] reports the change before `done` receives the result.
    pub fn change_fact(&self, change: FactChange, done: OnFactChanged) {
        self.send(ClusterCommand::ChangeFact { change, done });
    }

    /// Sends messages to receivers outside the cluster, in their order, under a subject of the operator. `done`
    /// receives whether they have arrived: in the stream that has the subject, or at the server if no stream has it.
    pub fn tell(&self, subject: Box<str>, messages: Vec<OutsideMessage>, done: OnMessagesTold) {
        self.send(ClusterCommand::Tell(OutsideBatch { subject, messages, done }));
    }

    /// Sends the waiting messages and leaves the cluster. Blocks for at most two seconds.
    pub fn leave(&self) {
        let (done, left) = std::sync::mpsc::channel();
        self.send(ClusterCommand::Leave { done });
        let _ = left.recv_timeout(std::time::Duration::from_secs(2));
    }
}
