//! The requests to a node's directory.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::ClientInfo;
use touchline_protocol::stream::ChannelName;
use touchline_registry::{OwnerId, Stamp};

use super::scope::ScopeId;
use super::watch_position::WatchPosition;

/// A request whose permissions were already checked: the requester may do this.
#[derive(Debug, Clone)]
pub enum DirectoryRequest {
    /// Registers a name for the client.
    Register {
        /// The scope of the name.
        scope: ScopeId,
        /// The name to register.
        name: Box<str>,
        /// The metadata as JSON; empty = none.
        meta: Bytes,
        /// Whether to take the name from its owner, if the scope's policy is `newest`.
        take_over: bool,
    },
    /// Registers the names and joins the groups of a token for the client: all of them, or none.
    RegisterAll(Box<[Registration]>),
    /// Ends the client's registration of a name.
    Unregister {
        /// The scope of the name.
        scope: ScopeId,
        /// The name to unregister.
        name: Box<str>,
    },
    /// Replaces a name's metadata.
    UpdateMeta {
        /// The scope of the name.
        scope: ScopeId,
        /// The name whose metadata is replaced.
        name: Box<str>,
        /// The new metadata as JSON; empty = none.
        meta: Bytes,
        /// Only replace it if the name still has this stamp and revision; `None` = in any case.
        expected: Option<(Stamp, u32)>,
    },
    /// Makes the client a member of a group.
    Join {
        /// The scope of the group.
        scope: ScopeId,
        /// The group to join.
        group: Box<str>,
        /// The metadata as JSON; empty = none.
        meta: Bytes,
    },
    /// Ends the client's membership of a group.
    Leave {
        /// The scope of the group.
        scope: ScopeId,
        /// The group to leave.
        group: Box<str>,
    },
    /// Looks up the owner of a name.
    Lookup {
        /// The scope of the name.
        scope: ScopeId,
        /// The name to look up.
        name: Box<str>,
    },
    /// Lists a page of names by prefix.
    Names(Listing),
    /// Lists a page of names by prefix, in order. The cursor of the listing is ignored.
    NamesAfter {
        /// The page begins after this name; empty = the first page.
        after: Box<str>,
        /// Which names to list, and how many.
        listing: Listing,
    },
    /// Lists a page of groups by prefix.
    Groups(Listing),
    /// Lists the members of a group.
    Members {
        /// The scope of the group.
        scope: ScopeId,
        /// The group whose members are listed.
        group: Box<str>,
    },
    /// Lists a page of the members of a group. The prefix of the listing is ignored.
    MemberPage {
        /// The group whose members are listed.
        group: Box<str>,
        /// Which page to list.
        listing: Listing,
    },
    /// Reads whether a client is a member of a group, and its metadata.
    Member {
        /// The scope of the group.
        scope: ScopeId,
        /// The group of the member.
        group: Box<str>,
        /// The client to look for; `None` = the requester.
        client: Option<OwnerId>,
    },
    /// Reads the changes of a scope since a position.
    Changes {
        /// The scope whose changes are read.
        scope: ScopeId,
        /// The position of the last known change; `None` = only the present position is requested.
        position: Option<WatchPosition>,
    },
    /// Counts names, groups and memberships, and how they are distributed over the nodes.
    Count {
        /// The scope to count.
        scope: ScopeId,
    },
    /// Sends a message to a name or to all members of a group.
    Send {
        /// The receiving name or group.
        target: Target,
        /// The data of the message, JSON.
        data: Bytes,
        /// How long the store keeps the message for a name until its owner acknowledges it, milliseconds; 0 = it is not
        /// kept.
        store_for_ms: u64,
    },
    /// Acknowledges inbox messages.
    Acknowledge {
        /// The ids of the messages.
        ids: Vec<u64>,
    },
    /// Calls a name or all members of a group, and waits for the replies.
    Call {
        /// The name or the group to call.
        target: Target,
        /// The data of the call, JSON.
        data: Bytes,
        /// How long the call waits, milliseconds.
        timeout_ms: u64,
    },
    /// The client's reply to a call.
    Reply {
        /// The number of the call.
        call: u64,
        /// The data, or the client's own error; both are JSON.
        outcome: Result<Bytes, Bytes>,
    },
    /// The client is now in a channel: for presence, join and leave.
    Enter {
        /// The channel that the client is in.
        channel: ChannelName,
        /// What presence shows of the client.
        info: Arc<ClientInfo>,
        /// Whether presence shows the client.
        is_shown: bool,
        /// Whether subscribers get join and leave events for the client.
        is_announced: bool,
    },
    /// The client is no longer in the channel.
    Exit {
        /// The channel that the client has left.
        channel: ChannelName,
    },
    /// Lists the clients that are in a channel.
    Presence {
        /// The channel whose clients are listed.
        channel: Box<str>,
        /// The greatest number of clients in one reply.
        limit: usize,
    },
    /// Counts the clients and users that are in a channel.
    PresenceStats {
        /// The channel whose clients are counted.
        channel: Box<str>,
    },
    /// The client is gone: removes its entries and ends its calls.
    Close,
}

impl DirectoryRequest {
    /// Whether the request touches many entries. Such a request is executed in short steps by
    /// [`super::Directory::begin`] and [`super::Directory::step`].
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

/// A name or a group that a token registers.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The scope of the name or group.
    pub scope: ScopeId,
    /// The name, which is taken over if the scope keeps the newest; or the group.
    pub key: Box<str>,
    /// The metadata as JSON; empty = none.
    pub meta: Bytes,
    /// Whether the key is a group.
    pub is_group: bool,
}

/// One page of a listing.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The scope of the listing.
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
    /// The scope of the name or group.
    pub scope: ScopeId,
    /// The name or the group.
    pub key: Box<str>,
    /// Whether the key is a group.
    pub is_group: bool,
}

/// The client or backend that makes a request.
#[derive(Debug, Clone)]
pub struct Requester {
    /// The client. If the server API makes the request, the client that it acts for.
    pub owner: OwnerId,
    /// The client's user; empty = anonymous.
    pub user: Box<str>,
    /// Whether the server API makes the request without acting for a client.
    pub is_backend: bool,
}
