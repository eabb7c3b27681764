//! Nodes joined by NATS: links between registries, messages between nodes, channels across them.
//!
//! [`join`] returns a [`Cluster`], the handle that sends, and [`Joining::start`] calls one function with every event.
//! The connection has a thread of its own: no call here blocks, except [`Cluster::leave`]. The subjects and their
//! messages are in `docs/cluster.md`.

mod connection;
mod gather;
mod history;
mod incarnation;
mod link_log;
mod loader;
mod marks;
mod members;
mod options;
mod pieces;
mod reading;
mod settings;
#[cfg(test)]
mod simulated;
mod storing;
mod stream;
mod subject;
mod subscriptions;
mod versions;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use async_nats::{ConnectOptions, ServerAddr};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use loader::StreamLoad;
pub use settings::{JoinOptions, Storage, StreamSettings};
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, NamespaceName, Offset, RunId, StreamPosition};

/// Why a node can't join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The settings for NATS can't be used.
    #[error("cluster.{key}: {reason}")]
    Settings {
        /// The key of the section `cluster`.
        key: &'static str,
        /// What is wrong with it, never with the value.
        reason: String,
    },
    /// The system refused a thread or a runtime.
    #[error("the system refused a thread")]
    System(#[from] std::io::Error),
}

/// A publication of a channel with history, as the cluster keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPublication {
    /// Its sequence in the stream of its namespace.
    pub offset: Offset,
    /// What was published.
    pub payload: Bytes,
}

/// The history of a channel.
#[derive(Debug, Clone)]
pub struct StreamHistory {
    /// The epoch, in the run of the stream if another run than its first one has begun.
    pub epoch: Epoch,
    /// What is kept, oldest first, from the asked offset on.
    pub kept: Vec<StoredPublication>,
    /// The channel's last offset; the stream's, if the channel is empty.
    pub top: Offset,
    /// Nothing behind this offset is missing in `kept`.
    pub floor: Offset,
    /// What may be missing up to the floor has gone by its age, at the end of `history_ttl`: nothing is kept, and
    /// nothing but age takes the last publication of a channel away.
    pub is_aged: bool,
}

/// What the cluster reports to the node.
pub enum ClusterEvent {
    /// Whether this node is part of the cluster now.
    Linked(bool),
    /// This node takes part from now on, in the sight of these other nodes.
    Joined(Vec<Arc<str>>),
    /// Channels with history can't be served: why JetStream can't be used, for people. It is tried again.
    StreamsUnavailable(String),
    /// This node stands aside, because it shares no version with another one that was there before; why, for people.
    VersionConflict(String),
    /// A node may be dead, or is not.
    Suspected {
        /// Which node.
        node: Arc<str>,
        /// Whether it may be dead.
        is_suspected: bool,
    },
    /// A node is dead.
    NodeDead {
        /// Which node.
        node: Arc<str>,
    },
    /// A message of another node's replica of a scope.
    ScopeMessage {
        /// The scope.
        scope: Arc<str>,
        /// The message.
        message: Bytes,
    },
    /// A message of another node's directory.
    DirectoryMessage {
        /// Which node.
        from: Arc<str>,
        /// The message.
        message: Bytes,
    },
    /// A message for every node; with a callback for the reply, if the sender gathers replies.
    Broadcast {
        /// The message.
        message: Bytes,
        /// Sends the reply; none = the sender expects no reply.
        reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>>,
    },
    /// A publication that is not stored.
    Ephemeral {
        /// The channel.
        channel: ChannelName,
        /// The payload.
        payload: Bytes,
    },
    /// A publication of a channel with history.
    Appended {
        /// The channel.
        channel: ChannelName,
        /// The publication.
        stored: StoredPublication,
        /// The channel's offset before it.
        previous: Offset,
        /// The epoch of the stream that has stored it, without a run.
        epoch: Epoch,
    },
    /// More is stored in a namespace than at the last such event. Publications may have been missed: [`Cluster::check`]
    /// detects that.
    Advanced {
        /// The namespace.
        namespace: NamespaceName,
    },
    /// The node is subscribed to the channel from now on.
    Subscribed {
        /// The channel.
        channel: ChannelName,
    },
    /// The result of [`Cluster::load`] or of [`Cluster::check`].
    Loaded {
        /// The channel.
        channel: ChannelName,
        /// The load that this answers.
        load: LoadId,
        /// The channel's history; none = it cannot be read now.
        history: Option<StreamHistory>,
    },
}

/// Takes the position of a publication that the cluster has stored; none = it could not be stored.
pub type OnStreamAppended = Box<dyn FnOnce(Option<StreamPosition>) + Send>;
/// Takes the replies of other nodes.
pub type OnGathered = Box<dyn FnOnce(Vec<Bytes>) + Send>;
/// Whether a reply is enough, so that the gathering does not wait for the other nodes.
pub type IsEnough = fn(&[u8]) -> bool;
/// The size limit of a NATS message by default, bytes.
const MESSAGE_SIZE_DEFAULT: usize = 1_024 * 1_024;

enum ClusterCommand {
    ScopeMessage {
        scope: Arc<str>,
        to: Option<Arc<str>>,
        message: Bytes,
    },
    DirectoryMessage {
        to: Arc<str>,
        message: Bytes,
    },
    Broadcast {
        message: Bytes,
    },
    Gather {
        message: Bytes,
        nodes: usize,
        is_enough: IsEnough,
        done: OnGathered,
    },
    PublishEphemeral {
        channel: ChannelName,
        payload: Bytes,
    },
    SetInterest {
        channel: ChannelName,
        is_wanted: bool,
    },
    Load(StreamLoad),
    CheckSoon,
    BeginRun {
        namespace: NamespaceName,
        lost: RunId,
    },
    Append {
        channel: ChannelName,
        namespace: NamespaceName,
        payload: Bytes,
        id: Box<str>,
        done: OnStreamAppended,
    },
    Purge {
        channel: ChannelName,
        namespace: NamespaceName,
        marker: fn(Offset) -> Vec<u8>,
        done: Box<dyn FnOnce(bool) + Send>,
    },
    Leave {
        done: std::sync::mpsc::Sender<()>,
    },
}

/// A handle that sends to the other nodes. No call blocks: a message that cannot be sent now is lost, or its callback
/// reports the failure.
#[derive(Clone)]
pub struct Cluster {
    outgoing: UnboundedSender<ClusterCommand>,
    /// The size limit of one message, bytes.
    message_max: Arc<AtomicUsize>,
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

    /// Checks whether a channel has publications after an offset; [`ClusterEvent::Loaded`] comes only if it has.
    pub fn check(&self, channel: ChannelName, namespace: NamespaceName, load: LoadId) {
        self.send(ClusterCommand::Load(StreamLoad { channel, namespace, id: load, is_check: true }));
    }

    /// Notes that messages may have been lost: the streams are inspected soon, and for a while more often.
    pub fn check_soon(&self) {
        self.send(ClusterCommand::CheckSoon);
    }

    /// Begins a new run of a namespace's stream if its current run is `lost`; 0 = the stream's first
    /// run. The caller knows of a publication that the stream lacks.
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
    pub fn purge(
        &self,
        channel: ChannelName,
        namespace: NamespaceName,
        marker: fn(Offset) -> Vec<u8>,
        done: Box<dyn FnOnce(bool) + Send>,
    ) {
        self.send(ClusterCommand::Purge { channel, namespace, marker, done });
    }

    /// Sends the waiting messages and leaves the cluster. Blocks for two seconds at most.
    pub fn leave(&self) {
        let (done, left) = std::sync::mpsc::channel();
        self.send(ClusterCommand::Leave { done });
        let _ = left.recv_timeout(std::time::Duration::from_secs(2));
    }
}

/// A node that is about to join.
pub struct Joining {
    settings: JoinOptions,
    options: (Vec<ServerAddr>, ConnectOptions),
    outgoing: UnboundedReceiver<ClusterCommand>,
    message_max: Arc<AtomicUsize>,
}

/// Checks whether a node could join with these settings, without connecting to NATS.
///
/// # Errors
/// [`JoinError::Settings`].
pub fn check(settings: &JoinOptions) -> Result<(), JoinError> {
    options::options(settings).map(drop)
}

/// Prepares to join: messages that the handle sends wait until [`Joining::start`].
///
/// # Errors
/// [`JoinError::Settings`].
pub fn join(settings: JoinOptions) -> Result<(Cluster, Joining), JoinError> {
    let options = options::options(&settings)?;
    let (sender, outgoing) = unbounded_channel();
    let message_max = Arc::new(AtomicUsize::new(MESSAGE_SIZE_DEFAULT));
    Ok((
        Cluster { outgoing: sender, message_max: Arc::clone(&message_max) },
        Joining { settings, options, outgoing, message_max },
    ))
}

impl Joining {
    /// Starts the thread. NATS need not be reachable yet: the client tries to connect until it is.
    ///
    /// # Errors
    /// [`JoinError::System`].
    pub fn start(self, incoming: impl Fn(ClusterEvent) + Send + Sync + 'static) -> Result<(), JoinError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let Joining { settings, options, outgoing, message_max } = self;
        std::thread::Builder::new().name("cluster".into()).spawn(move || {
            runtime.block_on(connection::run(settings, options, (outgoing, message_max), Arc::new(incoming)));
        })?;
        Ok(())
    }
}
