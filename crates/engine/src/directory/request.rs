//! The requests to a node's directory.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::ClientInfo;
use touchline_protocol::stream::ChannelName;
use touchline_registry::{OwnerId, Stamp};

use super::scope::ScopeId;
use super::watch_position::WatchPosition;

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
    /// Names by prefix in their order, a page; the cursor of the listing is ignored.
    NamesAfter {
        /// The page begins behind this name; empty = it is the first one.
        after: Box<str>,
        /// Which names, and how many.
        listing: Listing,
    },
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

impl DirectoryRequest {
    /// Whether it touches many entries: [`super::Directory::begin`] and [`super::Directory::step`] carry it out in
    /// short steps.
    pub fn is_walk(&self) -> bool {
        match self {
            DirectoryRequest::Presence { .. }
            | DirectoryRequest::Members { .. }
            | DirectoryRequest::MemberPage { .. }
            | DirectoryRequest::Names(_)
            | DirectoryRequest::NamesAfter { .. }
            | DirectoryRequest::Groups(_) => true,
            DirectoryRequest::Send { target, store_for_ms: 0, .. } | DirectoryRequest::Call { target, .. } => {
                target.is_group
            }
            DirectoryRequest::Register { .. }
            | DirectoryRequest::RegisterAll(_)
            | DirectoryRequest::Unregister { .. }
            | DirectoryRequest::UpdateMeta { .. }
            | DirectoryRequest::Join { .. }
            | DirectoryRequest::Leave { .. }
            | DirectoryRequest::Lookup { .. }
            | DirectoryRequest::Member { .. }
            | DirectoryRequest::Changes { .. }
            | DirectoryRequest::Count { .. }
            | DirectoryRequest::Send { .. }
            | DirectoryRequest::Acknowledge { .. }
            | DirectoryRequest::Reply { .. }
            | DirectoryRequest::Enter { .. }
            | DirectoryRequest::Exit { .. }
            | DirectoryRequest::PresenceStats { .. }
            | DirectoryRequest::Close => false,
        }
    }
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
