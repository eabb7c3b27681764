//! The requests to a node's directory, and the effects that it asks its host to carry out.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::ChannelName;
use touchline_protocol::{ClientInfo, Error};
use touchline_registry::{OwnerId, Stamp};

use super::reply::DirectoryReply;
use super::scope::ScopeId;
use super::watch::WatchPosition;

/// A request whose permissions are checked already: the requester may do this.
#[derive(Debug, Clone)]
pub enum DirectoryRequest {
    /// Registers a name for the client.
    Register {
        /// The scope.
        scope: ScopeId,
        /// The name.
        name: Box<str>,
        /// Metadata: JSON, or empty.
        meta: Bytes,
        /// Take the name from its owner, if the scope's policy is `newest`.
        take_over: bool,
    },
    /// Registers the names and joins the groups of a token for the client: all of them, or none.
    RegisterAll(Box<[Registration]>),
    /// Ends the client's registration of a name.
    Unregister {
        /// The scope.
        scope: ScopeId,
        /// The name.
        name: Box<str>,
    },
    /// Replaces a name's metadata.
    UpdateMeta {
        /// The scope.
        scope: ScopeId,
        /// The name.
        name: Box<str>,
        /// Metadata: JSON, or empty.
        meta: Bytes,
        /// Only if the name still has this stamp and revision; `None` = in any case.
        expected: Option<(Stamp, u32)>,
    },
    /// Makes the client a member.
    Join {
        /// The scope.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
        /// Metadata: JSON, or empty.
        meta: Bytes,
    },
    /// Ends the client's membership.
    Leave {
        /// The scope.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
    },
    /// The owner of a name.
    Lookup {
        /// The scope.
        scope: ScopeId,
        /// The name.
        name: Box<str>,
    },
    /// Names by prefix, a page.
    Names(Listing),
    /// Groups by prefix, a page.
    Groups(Listing),
    /// The members of a group.
    Members {
        /// The scope.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
    },
    /// The members of a group, a page; the prefix is ignored.
    MemberPage {
        /// The group.
        group: Box<str>,
        /// Which page.
        listing: Listing,
    },
    /// Whether a client is a member of a group, and its metadata.
    Member {
        /// The scope.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
        /// The client; `None` = the requester.
        client: Option<OwnerId>,
    },
    /// The changes of a scope since a position.
    Changes {
        /// The scope.
        scope: ScopeId,
        /// The position; `None` = only the present position is requested.
        position: Option<WatchPosition>,
    },
    /// Names, groups and memberships, and how they spread over the nodes.
    Count {
        /// The scope.
        scope: ScopeId,
    },
    /// Sends a message to a name or to all members of a group.
    Send {
        /// The name or the group.
        target: Target,
        /// JSON.
        data: Bytes,
        /// How long the store keeps the message for a name until its owner has acknowledged it, milliseconds; 0 = not
        /// at all.
        store_for_ms: u64,
    },
    /// Acknowledges inbox messages.
    Acknowledge {
        /// Ids of the messages.
        ids: Vec<u64>,
    },
    /// Calls a name or all members of a group, and waits for the replies.
    Call {
        /// The name or the group.
        target: Target,
        /// JSON.
        data: Bytes,
        /// How long the call waits, milliseconds.
        timeout_ms: u64,
    },
    /// The client's reply to a call.
    Reply {
        /// The number of the call.
        call: u64,
        /// JSON: the data, or the client's own error.
        outcome: Result<Bytes, Bytes>,
    },
    /// The client is in a channel now: for presence, join and leave.
    Enter {
        /// The channel.
        channel: ChannelName,
        /// What presence shows of the client.
        info: Arc<ClientInfo>,
        /// Presence shows the client.
        is_shown: bool,
        /// The subscribers get join and leave events about the client.
        is_announced: bool,
    },
    /// The client is not in the channel any more.
    Exit {
        /// The channel.
        channel: ChannelName,
    },
    /// The clients that are in a channel.
    Presence {
        /// The channel.
        channel: Box<str>,
        /// The greatest number of clients in one reply.
        limit: usize,
    },
    /// The number of clients and users that are in a channel.
    PresenceStats {
        /// The channel.
        channel: Box<str>,
    },
    /// The client is gone: removes its entries, and ends its calls.
    Close,
}

/// A name or a group of a token.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The scope.
    pub scope: ScopeId,
    /// The name, taken over where the scope keeps the newest; or the group.
    pub key: Box<str>,
    /// Metadata: JSON, or empty.
    pub meta: Bytes,
    /// The key is a group.
    pub is_group: bool,
}

/// A page of a listing.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The scope.
    pub scope: ScopeId,
    /// The prefix of the results; empty = all.
    pub prefix: Box<str>,
    /// Where the page starts; 0 = the first page.
    pub cursor: u32,
    /// The greatest number of results.
    pub limit: usize,
}

/// The receiver of a message or a call.
#[derive(Debug, Clone)]
pub struct Target {
    /// The scope.
    pub scope: ScopeId,
    /// The name, or the group.
    pub key: Box<str>,
    /// The key is a group.
    pub is_group: bool,
}

/// The origin of a request.
#[derive(Debug, Clone)]
pub struct Requester {
    /// The client; if the server API makes the request, the client that it acts for.
    pub owner: OwnerId,
    /// The client's user; empty = anonymous.
    pub user: Box<str>,
    /// The server API makes the request, and does not act for a client.
    pub is_backend: bool,
}

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

/// A client id in its usual form.
pub fn client_text(owner: OwnerId) -> String {
    std::str::from_utf8(&client_bytes(owner)).unwrap_or_default().to_owned()
}

/// The same as bytes, without an allocation.
pub(super) fn client_bytes(owner: OwnerId) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in owner.0.iter().enumerate() {
        at += usize::from(matches!(index, 4 | 6 | 8 | 10));
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
        at += 2;
    }
    text
}

/// Reads a client id; `None` if the text is not one.
pub fn client_from_text(text: &str) -> Option<OwnerId> {
    let digits = text.bytes().filter(|byte| *byte != b'-').collect::<Vec<u8>>();
    if text.len() != 36 || digits.len() != 32 {
        return None;
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(OwnerId(id))
}
