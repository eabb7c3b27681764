//! What the cluster reports to its node.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::fact::FactsEvent;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, NamespaceName, Offset};

use crate::errors::StreamError;
use crate::types::{StoredPublication, StreamHistory};

/// What the cluster reports to the node.
pub enum ClusterEvent {
    /// Whether this node is part of the cluster now.
    Linked(bool),
    /// This node takes part from now on, in the sight of these other nodes.
    Joined(Vec<Arc<str>>),
    /// The nodes in sight that have another configuration than this one.
    NodesWithOtherConfiguration(Vec<Arc<str>>),
    /// Channels with history can't be served, because JetStream can't be used. It is tried again.
    StreamsUnavailable(StreamError),
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
    /// More is stored in a namespace than at the last such event. Publications may have been missed:
    /// [`crate::Cluster::check`] detects that.
    Advanced {
        /// The namespace.
        namespace: NamespaceName,
    },
    /// The node is subscribed to the channel from now on.
    Subscribed {
        /// The channel.
        channel: ChannelName,
    },
    /// What is known of the shared facts. It comes only if [`crate::JoinOptions::has_facts`] is set, except for changes
    /// that this node has made.
    Facts(FactsEvent),
    /// The nodes in sight that keep shared facts in another place than this one, whenever they change: what is a fact
    /// there is none here.
    NodesWithOtherFacts(Vec<Arc<str>>),
    /// The result of [`crate::Cluster::load`] or of [`crate::Cluster::check`].
    Loaded {
        /// The channel.
        channel: ChannelName,
        /// The load that this answers.
        load: LoadId,
        /// The channel's history; none = it cannot be read now.
        history: Option<StreamHistory>,
    },
}

/// Takes every event of the cluster.
pub(crate) type ClusterEventSink = Arc<dyn Fn(ClusterEvent) + Send + Sync>;
