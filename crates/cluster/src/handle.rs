//! The handle through which a node sends to the other nodes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use async_nats::Statistics;
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender};
use touchline_protocol::fact::FactChange;
use touchline_protocol::stream::{ChannelName, LoadId, NamespaceName, Offset, RunId};

use crate::command::{
    ChargedBytes, ClusterCommand, HistoryRemoval, IsEnough, OnFactChanged, OnGathered, OnPurged, OnStreamAppended,
    OnStreamsSet, StreamAppend,
};
use crate::errors::StreamError;
use crate::room::OutgoingRoom;
use crate::settings::StreamSettings;
use crate::telling::{OnMessagesTold, OutsideBatch, OutsideMessage};
use crate::types::StreamLoad;

/// A handle that sends to the other nodes. No call blocks. A message that cannot be sent now is lost, or its callback
/// reports the failure.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) outgoing: UnboundedSender<ClusterCommand>,
    pub(crate) room: Arc<OutgoingRoom>,
    /// The size limit of one message, bytes.
    pub(crate) message_max: Arc<AtomicUsize>,
    /// The counters of the NATS client. Empty until the client has been created.
    pub(crate) traffic: Arc<OnceLock<Arc<Statistics>>>,
}

/// The parts that the cluster's thread shares with the handle.
pub(crate) struct LinkParts {
    pub(crate) outgoing: UnboundedReceiver<ClusterCommand>,
    pub(crate) replies: ReplySender,
    pub(crate) message_max: Arc<AtomicUsize>,
    pub(crate) traffic: Arc<OnceLock<Arc<Statistics>>>,
}

/// Sends replies to other nodes through the writer. It does not keep the thread alive.
#[derive(Clone)]
pub(crate) struct ReplySender {
    pub(crate) replies: WeakUnboundedSender<ClusterCommand>,
    pub(crate) room: Arc<OutgoingRoom>,
}

impl ReplySender {
    pub(crate) fn send(&self, subject: &str, message: Bytes) {
        if let (Some(replies), Some(charge)) = (self.replies.upgrade(), self.room.take(message.len())) {
            let _ = replies.send(ClusterCommand::Reply { subject: subject.to_owned(), message: (message, charge) });
        }
    }
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
    /// The messages that wait to be written, bytes.
    pub queued_bytes: u64,
    /// The number of messages and publications that were refused or lost because too many waited.
    pub refused: u64,
}

impl Cluster {
    fn send(&self, outgoing: ClusterCommand) {
        let _ = self.outgoing.send(outgoing);
    }

    /// Charges a message and sends it. If the room is full, the message is lost and counted.
    fn send_charged(&self, message: Bytes, command: impl FnOnce(ChargedBytes) -> ClusterCommand) {
        if let Some(charge) = self.room.take(message.len()) {
            self.send(command((message, charge)));
        }
    }

    /// Whether another publication can be sent. Otherwise so many messages wait for NATS that the publication has to be
    /// refused; a caller that refuses it counts it with [`Cluster::count_refused`].
    pub fn has_room(&self) -> bool {
        self.room.is_free()
    }

    /// Whether another publication can be returned to the subscribers of this node while it is cut off.
    pub fn has_room_here(&self) -> bool {
        self.room.is_free_here()
    }

    /// Counts a publication that the caller has refused because there was no room.
    pub fn count_refused(&self) {
        self.room.count_refused();
    }

    /// The maximum size of one message to other nodes, bytes. It is the limit of the server that the node is, or was
    /// last, connected to. Before the first connection it is 1 MiB, and it may change with each reconnect. Larger
    /// messages are not sent.
    pub fn message_max(&self) -> usize {
        self.message_max.load(Relaxed)
    }

    /// The traffic on the connection since the node started.
    pub fn traffic(&self) -> LinkTraffic {
        let (queued_bytes, refused) = (self.room.queued() as u64, self.room.refused());
        let waiting = LinkTraffic { queued_bytes, refused, ..LinkTraffic::default() };
        let Some(counted) = self.traffic.get() else { return waiting };
        LinkTraffic {
            received: counted.in_messages.load(Relaxed),
            received_bytes: counted.in_bytes.load(Relaxed),
            sent: counted.out_messages.load(Relaxed),
            sent_bytes: counted.out_bytes.load(Relaxed),
            connects: counted.connects.load(Relaxed),
            ..waiting
        }
    }

    /// Sends a message to the replica of a scope on one node. `None` = on all other nodes.
    pub fn send_to_scope(&self, scope: &Arc<str>, to: Option<&Arc<str>>, message: Bytes) {
        let (scope, to) = (Arc::clone(scope), to.cloned());
        self.send_charged(message, |message| ClusterCommand::ScopeMessage { scope, to, message });
    }

    /// Sends a message to a node's directory.
    pub fn send_to_directory(&self, to: Arc<str>, message: Vec<u8>) {
        self.send_charged(message.into(), |message| ClusterCommand::DirectoryMessage { to, message });
    }

    /// Sends a message to all other nodes.
    pub fn broadcast(&self, message: Vec<u8>) {
        self.send_charged(message.into(), |message| ClusterCommand::Broadcast { message });
    }

    /// Sends a message to all other nodes and gathers their replies. It ends after `nodes` replies, after a sufficient
    /// reply, or after one second. A reply may be larger than one message.
    pub fn gather(&self, message: Vec<u8>, nodes: usize, is_enough: IsEnough, done: OnGathered) {
        match self.room.take(message.len()) {
            Some(charge) => {
                self.send(ClusterCommand::Gather { message: (message.into(), charge), nodes, is_enough, done });
            }
            None => done(Vec::new()),
        }
    }

    /// Sends a publication that is not stored to all nodes that are subscribed to the channel, including this one. The
    /// caller has checked [`Cluster::has_room`]. If the connection is lost before it is written, it reaches this node
    /// alone.
    pub fn publish_ephemeral(&self, channel: ChannelName, payload: Vec<u8>) {
        let charge = self.room.charge(payload.len());
        self.send(ClusterCommand::PublishEphemeral { channel, payload: (payload.into(), charge) });
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
        let Some(charge) = self.room.take(payload.len()) else { return done(Err(StreamError::NoRoom)) };
        let payload = (payload.into(), charge);
        self.send(ClusterCommand::Append(StreamAppend { channel, namespace, payload, id, done }));
    }

    /// Removes the history of a channel, and stores a marker instead, which all subscribed nodes receive. `marker`
    /// makes the marker's payload from the last offset that is removed.
    pub fn purge(&self, channel: ChannelName, namespace: NamespaceName, marker: fn(Offset) -> Vec<u8>, done: OnPurged) {
        let charge = self.room.charge(channel.len());
        let removal = HistoryRemoval { channel, namespace, marker, charge };
        self.send(ClusterCommand::Purge { removal, done });
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
        // A ban ends the flood that fills the room, so it is never refused.
        let charge = self.room.charge(change.key().name.len());
        self.send(ClusterCommand::ChangeFact { change, charge, done });
    }

    /// Sends messages to receivers outside the cluster, in their order, under a subject of the operator. `done`
    /// receives whether they have arrived: in the stream that has the subject, or at the server if no stream has it.
    pub fn tell(&self, subject: Box<str>, messages: Vec<OutsideMessage>, done: OnMessagesTold) {
        let size = messages.iter().map(|message| message.payload.len()).sum();
        match self.room.take(size) {
            Some(charge) => self.send(ClusterCommand::Tell(OutsideBatch { subject, messages, charge, done })),
            None => done(false),
        }
    }

    /// Sends the waiting messages and leaves the cluster. Blocks for at most two seconds.
    pub fn leave(&self) {
        let (done, left) = std::sync::mpsc::channel();
        self.send(ClusterCommand::Leave { done });
        let _ = left.recv_timeout(std::time::Duration::from_secs(2));
    }
}
