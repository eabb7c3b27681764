//! What can be asked of a node's directory, and what it wants done.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::ChannelName;
use touchline_protocol::{ClientInfo, Error};
use touchline_registry::{OwnerId, Stamp};

use super::answered::DirectoryReply;
use super::scope::ScopeId;
use super::watch::WatchPosition;

/// A question or an order, checked already: the asker may do this.
#[derive(Debug, Clone)]
pub enum DirectoryRequest {
    /// Gives a name to the client.
    Register {
        /// Where.
        scope: ScopeId,
        /// The name.
        name: Box<str>,
        /// JSON, or empty.
        meta: Bytes,
        /// From whoever has it, where the scope keeps the newest.
        take_over: bool,
    },
    /// Gives the names and groups of a token to the client: all of them, or none.
    Take(Box<[Registration]>),
    /// Takes a name from the client.
    Unregister {
        /// Where.
        scope: ScopeId,
        /// The name.
        name: Box<str>,
    },
    /// Replaces a name's metadata.
    UpdateMeta {
        /// Where.
        scope: ScopeId,
        /// The name.
        name: Box<str>,
        /// JSON, or empty.
        meta: Bytes,
        /// Only if this is still its stamp and revision.
        expected: Option<(Stamp, u32)>,
    },
    /// Makes the client a member.
    Join {
        /// Where.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
        /// JSON, or empty.
        meta: Bytes,
    },
    /// Ends its membership.
    Leave {
        /// Where.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
    },
    /// Who has a name.
    Lookup {
        /// Where.
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
        /// Where.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
    },
    /// The same, a page; no prefix is looked at.
    MemberPage {
        /// The group.
        group: Box<str>,
        /// Which page.
        listing: Listing,
    },
    /// Whether a client is a member of a group, and its metadata.
    Member {
        /// Where.
        scope: ScopeId,
        /// The group.
        group: Box<str>,
        /// The client; none = who asks.
        client: Option<OwnerId>,
    },
    /// What has changed since a position.
    Changes {
        /// Where.
        scope: ScopeId,
        /// None = only where the log is.
        position: Option<WatchPosition>,
    },
    /// Names, groups and memberships, and how they spread over the nodes.
    Count {
        /// Where.
        scope: ScopeId,
    },
    /// Sends to a name or to all members of a group.
    Send {
        /// Whom.
        target: Target,
        /// JSON.
        data: Bytes,
        /// How long it is kept for a name until its owner has acknowledged it; 0 = not at all.
        store_for_ms: u64,
    },
    /// Letters have arrived.
    Acknowledge {
        /// Which.
        ids: Vec<u64>,
    },
    /// The same, and waits for the answers.
    Call {
        /// Whom.
        target: Target,
        /// JSON.
        data: Bytes,
        /// How long.
        timeout_ms: u64,
    },
    /// The client's answer to a call.
    Reply {
        /// The call.
        call: u64,
        /// JSON: the answer, or the client's own error.
        outcome: Result<Bytes, Bytes>,
    },
    /// The client is in a channel now: for presence, join and leave.
    Enter {
        /// The channel.
        channel: ChannelName,
        /// Who it is.
        info: Arc<ClientInfo>,
        /// It is shown in presence.
        is_shown: bool,
        /// Others are told.
        is_announced: bool,
    },
    /// It is not any more.
    Exit {
        /// The channel.
        channel: ChannelName,
    },
    /// Who is in a channel.
    Presence {
        /// The channel.
        channel: Box<str>,
        /// Members in one answer.
        limit: usize,
    },
    /// How many are in a channel.
    PresenceStats {
        /// The channel.
        channel: Box<str>,
    },
    /// The client is gone, with all that it holds.
    Close,
}

/// A name or a group of a token.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Where.
    pub scope: ScopeId,
    /// The name, taken over where the scope keeps the newest; or the group.
    pub key: Box<str>,
    /// JSON, or empty.
    pub meta: Bytes,
    /// It is a group.
    pub is_group: bool,
}

/// A page of a listing.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Where.
    pub scope: ScopeId,
    /// What they begin with.
    pub prefix: Box<str>,
    /// Where the page starts.
    pub cursor: u32,
    /// At most so many.
    pub limit: usize,
}

/// Whom a message is for.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where.
    pub scope: ScopeId,
    /// The name, or the group.
    pub key: Box<str>,
    /// It is a group.
    pub is_group: bool,
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Requester {
    /// The client; the one that is acted for, if the server API asks.
    pub owner: OwnerId,
    /// Its user; empty = anonymous.
    pub user: Box<str>,
    /// The server API asks for nobody in particular.
    pub is_backend: bool,
}

/// What the directory wants done.
#[derive(Debug)]
pub enum DirectoryEffect<A> {
    /// Answers an asker.
    Answer(A, Result<DirectoryReply, Error>),
    /// Gives a message, JSON, to a client of this node.
    Push(OwnerId, Vec<u8>),
    /// Gives one message to many clients of this node: they share it.
    PushMany(Vec<OwnerId>, Arc<EncodedPush>),
    /// Gives a call to a client of this node: its number, and the message, JSON, which calls of a group share.
    /// [`super::numbered`] puts them together.
    Call(OwnerId, u64, Bytes),
    /// Disconnects a client of this node that lost a name.
    Disconnect(OwnerId),
    /// Tells a channel's subscribers who want to know that somebody came or went.
    Announce(Arc<str>, Arc<EncodedPush>),
    /// Publishes changes of a scope, or how far they go, into its channel: JSON.
    PublishChanges(Arc<str>, Vec<u8>),
    /// A message to other nodes' parts of a scope.
    Link {
        /// The scope's name.
        scope: Arc<str>,
        /// One node, or all.
        to: Option<Arc<str>>,
        /// The message.
        message: Arc<[u8]>,
    },
    /// A message to another node's directory.
    Node(Arc<str>, Vec<u8>),
    /// Finds out which connections live: [`super::Directory::probed`] must follow, once the dead ones are closed.
    Probe,
    /// Another node has other options for a scope: all nodes follow the strictest policy and the smallest limits.
    OptionsDiffer {
        /// The scope's name.
        scope: Arc<str>,
        /// The other node.
        node: Arc<str>,
    },
    /// Keeps a letter, and tells the asker its id.
    StoreMessage {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
        /// JSON.
        message: Vec<u8>,
        /// It is thrown away then, Unix milliseconds.
        expires_ms: u64,
        /// Letters that may wait for the name.
        most: usize,
        /// Whoever waits for that.
        asker: Option<A>,
    },
    /// Asks the store for letters: [`super::Directory::deliver`] takes them.
    LoadMessages {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
        /// Behind this one.
        behind: u64,
        /// At most so many.
        limit: usize,
    },
    /// Throws letters away: [`super::Directory::discarded`] wants to know that it is done.
    DiscardMessages {
        /// Which; all were given to who acknowledges them.
        ids: Vec<u64>,
        /// Whoever waits for that.
        asker: Option<A>,
    },
}

/// A client id in its usual form.
pub fn client_text(owner: OwnerId) -> String {
    std::str::from_utf8(&client_bytes(owner)).unwrap_or_default().to_owned()
}

/// The same, for who writes many of them.
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

/// Reads a client id; `None` if it is none.
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
