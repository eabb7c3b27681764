//! The effects that a node's directory asks its host to carry out.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::ChannelName;
use touchline_registry::{Entry, OwnerId};

use super::incident::{EntryIncident, LostClient};
use super::reply::DirectoryReply;

/// An effect that the host of the directory carries out.
#[derive(Debug)]
pub enum DirectoryEffect<A> {
    /// Sends a reply to a requester.
    Reply(A, Result<DirectoryReply, Error>),
    /// Sends a message, JSON, to a client of this node.
    Push(OwnerId, Vec<u8>),
    /// Sends one message to many clients of this node, which share it.
    PushMany(Vec<OwnerId>, Arc<EncodedPush>),
    /// Sends a call to a client of this node: the call's number, and the message, JSON, which calls of a group share.
    /// [`super::numbered`] puts them together.
    Call(OwnerId, u64, Bytes),
    /// Disconnects a client of this node that lost a name.
    Disconnect(OwnerId),
    /// Asks the backend which of two clients keeps a name: [`super::Directory::resolve`] must follow.
    ResolveConflict {
        /// The name's scope.
        scope: Arc<str>,
        /// The claim of a client of this node.
        mine: Entry,
        /// The later claim, of another node's client.
        other: Entry,
    },
    /// Tells backends of a change of a name or a group ([`super::Directory::telling`]).
    Tell(Box<EntryIncident>),
    /// Tells backends of a client whose node is gone.
    TellLost(LostClient),
    /// Sends a join or leave push to a channel's subscribers that want such events.
    Announce(ChannelName, Arc<EncodedPush>),
    /// Publishes changes of a scope, or only the offset of the last change, into the scope's channel: JSON.
    PublishChanges(ChannelName, Vec<u8>),
    /// Sends a message to other nodes' parts of a scope.
    SendToScope {
        /// The scope's name.
        scope: Arc<str>,
        /// The receiving node; `None` = all.
        to: Option<Arc<str>>,
        /// The message.
        message: Arc<[u8]>,
    },
    /// Sends a message to another node's directory.
    Node(Arc<str>, Vec<u8>),
    /// Checks which connections are alive. [`super::Directory::probed`] must follow once the dead ones are closed.
    Probe,
    /// Another node has other options for a scope: all nodes follow the strictest policy and the smallest limits.
    OptionsDiffer {
        /// The scope's name.
        scope: Arc<str>,
        /// The other node.
        node: Arc<str>,
    },
    /// Has the store keep an inbox message. The reply to the requester has its id.
    StoreMessage {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
        /// JSON.
        message: Vec<u8>,
        /// When the store discards the message, Unix milliseconds.
        expires_ms: u64,
        /// The greatest number of messages that the store keeps for the name.
        most: usize,
        /// The requester that waits for the result; `None` = none.
        asker: Option<A>,
    },
    /// Loads inbox messages from the store: [`super::Directory::deliver_messages`] gets them.
    LoadMessages {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
        /// Only messages with higher ids than this one.
        behind: u64,
        /// The greatest number of results.
        limit: usize,
    },
    /// Discards inbox messages: [`super::Directory::discarded`] must follow once it is done.
    DiscardMessages {
        /// Ids of the messages; all were delivered to the client that acknowledges them.
        ids: Vec<u64>,
        /// The requester that waits for the result; `None` = none.
        asker: Option<A>,
    },
}
