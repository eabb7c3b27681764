//! Nodes joined by NATS: links between registries, messages between nodes, channels across them.
//!
//! [`join`] gives a [`Cluster`] to send with, and [`Joining::start`] hands all that comes in to one function. It runs
//! on a thread of its own: nothing here ever makes a caller wait. The subjects and the bytes on them are in
//! `docs/cluster.md`.

mod connection;
mod gather;
mod history;
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
use touchline_protocol::stream::{ChannelName, LoadId, NamespaceName, Offset};

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
    /// Its place in the stream of its namespace.
    pub offset: Offset,
    /// What was published.
    pub payload: Bytes,
}

/// One life of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRun {
    /// Its epoch, 40 bits: made with the stream, and never changed.
    pub epoch: u64,
    /// Its run, 40 bits: another one since the stream was last found to be set back to an earlier state; 0 = it never
    /// was.
    pub run: u64,
}

/// The history of a channel.
#[derive(Debug, Clone)]
pub struct StreamHistory {
    /// The life of the stream.
    pub life: StreamRun,
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

/// What comes in.
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
    /// Another node's part of a scope.
    ScopeMessage {
        /// The scope.
        scope: Arc<str>,
        /// The message.
        message: Bytes,
    },
    /// Another node's directory.
    DirectoryMessage {
        /// Which node.
        from: Arc<str>,
        /// The message.
        message: Bytes,
    },
    /// Something for every node to do; with a way to answer, if the sender gathers answers.
    Broadcast {
        /// The order.
        message: Bytes,
        /// Answers it.
        reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>>,
    },
    /// Something of a channel that is not kept.
    Ephemeral {
        /// The channel.
        channel: ChannelName,
        /// The payload.
        payload: Bytes,
    },
    /// A publication of a channel with history.
    Stored {
        /// The channel.
        channel: ChannelName,
        /// The publication.
        stored: StoredPublication,
        /// The channel's offset before it.
        previous: Offset,
        /// The epoch of the stream that has stored it.
        epoch: u64,
    },
    /// More is stored in a namespace than when this was said last. Not all of it may have come in: [`Cluster::check`]
    /// finds out.
    Advanced {
        /// The namespace.
        namespace: NamespaceName,
    },
    /// From now on the channel is heard.
    Subscribed {
        /// The channel.
        channel: ChannelName,
    },
    /// An answer to [`Cluster::load`], where none = it can't be had now, or to [`Cluster::check`].
    Loaded {
        /// The channel.
        channel: ChannelName,
        /// The load that this answers.
        load: LoadId,
        /// Its history.
        history: Option<StreamHistory>,
    },
}

/// Where the cluster has appended a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamAppendedAt {
    /// Its offset.
    pub offset: Offset,
    /// The life of the stream.
    pub life: StreamRun,
}

/// Takes the offset of a publication that the cluster has, and the life of its stream; none = it could not be stored.
pub type OnStreamAppended = Box<dyn FnOnce(Option<StreamAppendedAt>) + Send>;
/// Takes the answers of other nodes.
pub type OnGathered = Box<dyn FnOnce(Vec<Bytes>) + Send>;
/// Whether an answer is all that was wanted, so that nobody waits for the other nodes.
pub type IsEnough = fn(&[u8]) -> bool;
/// What NATS carries in one message if nobody says otherwise, bytes.
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
        lost: u64,
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

/// The way to the other nodes. Nothing waits: what can't be sent now is lost, or its sender is told.
#[derive(Clone)]
pub struct Cluster {
    outgoing: UnboundedSender<ClusterCommand>,
    /// What one message may carry, bytes.
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

    /// To one node's part of a scope, or to all.
    pub fn send_to_scope(&self, scope: &Arc<str>, to: Option<&Arc<str>>, message: Bytes) {
        self.send(ClusterCommand::ScopeMessage { scope: Arc::clone(scope), to: to.cloned(), message });
    }

    /// To a node's directory.
    pub fn send_to_directory(&self, to: Arc<str>, message: Vec<u8>) {
        self.send(ClusterCommand::DirectoryMessage { to, message: message.into() });
    }

    /// To all other nodes.
    pub fn broadcast(&self, message: Vec<u8>) {
        self.send(ClusterCommand::Broadcast { message: message.into() });
    }

    /// To all other nodes, and collects what they say: at most `nodes` answers, those up to one that is enough, or what
    /// came within a second. An answer may be larger than one message.
    pub fn gather(&self, message: Vec<u8>, nodes: usize, is_enough: IsEnough, done: OnGathered) {
        self.send(ClusterCommand::Gather { message: message.into(), nodes, is_enough, done });
    }

    /// To all nodes that hear a channel, this one too.
    pub fn publish_ephemeral(&self, channel: ChannelName, payload: Vec<u8>) {
        self.send(ClusterCommand::PublishEphemeral { channel, payload: payload.into() });
    }

    /// Begins or ends hearing a channel.
    pub fn set_interest(&self, channel: ChannelName, is_wanted: bool) {
        self.send(ClusterCommand::SetInterest { channel, is_wanted });
    }

    /// Asks for what is kept of a channel behind an offset; with it a number that the answer carries.
    pub fn load(&self, channel: ChannelName, namespace: NamespaceName, load: LoadId) {
        self.send(ClusterCommand::Load(StreamLoad { channel, namespace, id: load, is_check: false }));
    }

    /// Asks whether more than up to an offset is kept of a channel; it is answered if there is.
    pub fn check(&self, channel: ChannelName, namespace: NamespaceName, load: LoadId) {
        self.send(ClusterCommand::Load(StreamLoad { channel, namespace, id: load, is_check: true }));
    }

    /// Says that something may have been lost on its way: what is kept is looked at soon, and for a while more often.
    pub fn check_soon(&self) {
        self.send(ClusterCommand::CheckSoon);
    }

    /// Begins a new run of a namespace's stream if its current run is `lost`, an id as in [`StreamRun::run`]. The caller
    /// knows of a publication that the stream lacks.
    pub fn begin_run(&self, namespace: NamespaceName, lost: u64) {
        self.send(ClusterCommand::BeginRun { namespace, lost });
    }

    /// Publishes into a channel with history; `id` makes it happen once, if it is not empty.
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

    /// Drops what is kept of a channel, and stores in its place what says so to all who hear the channel: `marker`
    /// makes that payload out of the last offset that is dropped.
    pub fn purge(
        &self,
        channel: ChannelName,
        namespace: NamespaceName,
        marker: fn(Offset) -> Vec<u8>,
        done: Box<dyn FnOnce(bool) + Send>,
    ) {
        self.send(ClusterCommand::Purge { channel, namespace, marker, done });
    }

    /// Sends what waits and leaves. Blocks for two seconds at most.
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

/// Whether a node could join with these settings. Nothing is looked for.
///
/// # Errors
/// [`JoinError::JoinOptions`].
pub fn check(settings: &JoinOptions) -> Result<(), JoinError> {
    options::options(settings).map(drop)
}

/// Prepares to join: what is sent by the handle waits until [`Joining::start`].
///
/// # Errors
/// [`JoinError::JoinOptions`].
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
    /// Starts the thread. NATS need not be there yet: it is looked for again and again.
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
