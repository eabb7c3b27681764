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
    /// Sends a call to a client of this node: the call's number, and the message as JSON, which calls of a group share.
    /// [`super::numbered`] combines the two.
    Call(OwnerId, u64, Bytes),
    /// Disconnects a client of this node that lost a name.
    Disconnect(OwnerId),
    /// Asks the backend which of two clients keeps a name. [`super::Directory::resolve`] must be called with the
    /// answer.
    ResolveConflict {
        /// The scope of the contested name.
        scope: Arc<str>,
        /// The claim of a client of this node.
        mine: Entry,
        /// The later claim, of a client of another node.
        other: Entry,
    },
    /// Reports a change of a name or a group to backends ([`super::Directory::telling`]).
    Tell(Box<EntryIncident>),
    /// Reports to backends a client whose node is gone.
    TellLost(LostClient),
    /// Sends a join or leave push to a channel's subscribers that want such events.
    Announce(ChannelName, Arc<EncodedPush>),
    /// Publishes JSON into the scope's channel: changes of the scope, or only the offset of the last change.
    PublishChanges(ChannelName, Vec<u8>),
    /// Sends a message to other nodes' parts of a scope.
    SendToScope {
        /// The name of the scope.
        scope: Arc<str>,
        /// The receiving node; `None` = all.
        to: Option<Arc<str>>,
        /// The message to send.
        message: Arc<[u8]>,
    },
    /// Sends a message to another node's directory.
    Node(Arc<str>, Vec<u8>),
    /// Checks which connections are alive. [`super::Directory::probed`] must follow once the dead ones are closed.
    Probe,
    /// Another node has other options for a scope. All nodes follow the strictest policy and the smallest limits.
    OptionsDiffer {
        /// The name of the scope.
        scope: Arc<str>,
        /// The node with other options.
        node: Arc<str>,
    },
    /// Makes the store keep an inbox message. The reply to the requester contains its id.
    StoreMessage {
        /// The scope of the name.
        scope: Arc<str>,
        /// The name that the message is for.
        name: Box<str>,
        /// The stored message, JSON.
        message: Vec<u8>,
        /// When the store discards the message, Unix milliseconds.
        expires_ms: u64,
        /// The greatest number of messages that the store keeps for the name.
        most: usize,
        /// The requester that waits for the result; `None` = none waits.
        asker: Option<A>,
    },
    /// Loads inbox messages from the store. [`super::Directory::deliver_messages`] receives them.
    LoadMessages {
        /// The scope of the name.
        scope: Arc<str>,
        /// The name whose messages are loaded.
        name: Box<str>,
        /// Only messages with ids above this one are loaded.
        behind: u64,
        /// The greatest number of messages to load.
        limit: usize,
    },
    /// Discards inbox messages. [`super::Directory::discarded`] must be called once it is done.
    DiscardMessages {
        /// The ids of the messages. All of them were delivered to the client that acknowledges them.
        ids: Vec<u64>,
        /// The requester that waits for the result; `None` = none waits.
        asker: Option<A>,
    },
}
