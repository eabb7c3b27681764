//! The events that the cluster reports to its node.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::fact::FactsEvent;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, NamespaceName, Offset};

use crate::errors::StreamError;
use crate::types::{ClusterRoom, StoredPublication, StreamHistory};

/// An event that the cluster reports to the node.
pub enum ClusterEvent {
    /// Whether this node is part of the cluster now.
    Linked(bool),
    /// This node takes part from now on. It contains the other nodes in sight.
    Joined(Vec<Arc<str>>),
    /// The nodes in sight whose configuration differs from this one's, by name; by id, if a node states no name.
    NodesWithOtherConfiguration(Vec<Arc<str>>),
    /// The room of the other nodes in sight, reported whenever it changes.
    Room(ClusterRoom),
    /// Channels with history cannot be served because JetStream cannot be used. The node tries again.
    StreamsUnavailable(StreamError),
    /// This node stands aside, because it shares no version with a node that started earlier. The text explains it to
    /// people.
    VersionConflict(String),
    /// A node is suspected to be dead, or no longer suspected.
    Suspected {
        /// The id of the node.
        node: Arc<str>,
        /// True if the node may be dead.
        is_suspected: bool,
    },
    /// A node is dead.
    NodeDead {
        /// The id of the node.
        node: Arc<str>,
        /// True if the node announced that it leaves. Otherwise it may still run, out of sight.
        has_left: bool,
    },
    /// A message from another node's replica of a scope.
    ScopeMessage {
        /// The scope of the registry.
        scope: Arc<str>,
        /// The bytes of the message.
        message: Bytes,
    },
    /// A message from another node's directory.
    DirectoryMessage {
        /// The id of the sending node.
        from: Arc<str>,
        /// The bytes of the message.
        message: Bytes,
    },
    /// A message to every node. If the sender gathers replies, it has a callback for the reply.
    Broadcast {
        /// The bytes of the message.
        message: Bytes,
        /// Sends the reply. `None` = the sender does not expect one.
        reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>>,
    },
    /// A publication that is not stored.
    Ephemeral {
        /// The channel of the publication.
        channel: ChannelName,
        /// The payload of the publication.
        payload: Bytes,
    },
    /// A publication of a channel with history.
    Appended {
        /// The channel of the publication.
        channel: ChannelName,
        /// The publication with its offset.
        stored: StoredPublication,
        /// The channel's offset before this publication.
        previous: Offset,
        /// The epoch of the stream that stored it, without a run.
        epoch: Epoch,
    },
    /// A namespace's stream contains more than at the last event of this kind. Publications may have been missed;
    /// [`crate::Cluster::check`] detects that.
    Advanced {
        /// The namespace of the stream.
        namespace: NamespaceName,
    },
    /// The node is subscribed to the channel from now on.
    Subscribed {
        /// The channel of the subscription.
        channel: ChannelName,
    },
    /// A change in what is known about the shared facts. It is sent only if [`crate::JoinOptions::has_facts`] is set,
    /// except for changes that this node made.
    Facts(FactsEvent),
    /// The nodes in sight that keep shared facts in another place, reported whenever they change. Their facts are not
    /// known here.
    NodesWithOtherFacts(Vec<Arc<str>>),
    /// The result of [`crate::Cluster::load`] or of [`crate::Cluster::check`].
    Loaded {
        /// The channel that was loaded.
        channel: ChannelName,
        /// The load that this event answers.
        load: LoadId,
        /// The channel's history. `None` = it cannot be read now.
        history: Option<StreamHistory>,
    },
}

/// The function that receives every event of the cluster.
pub(crate) type ClusterEventSink = Arc<dyn Fn(ClusterEvent) + Send + Sync>;
