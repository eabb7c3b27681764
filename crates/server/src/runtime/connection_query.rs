//! What the server API asks a shard about its connections: which ones, from which slot on, and what is answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use touchline_config::Networks;
use touchline_protocol::filter::Filter;
use touchline_registry::OwnerId;

use crate::net::transport::Transport;

/// Slots that a shard looks at in one turn for who asks for connections; also connections of users, and subscribers of
/// a channel, that it looks up in one turn.
pub(crate) const SLICE_MAX: usize = 512;
/// Subscriptions that a shard looks at in one turn for who asks for connections. A connection with more has a turn of
/// its own.
pub(crate) const SUBSCRIPTIONS_IN_TURN_MAX: usize = 16 * 1_024;
/// Users that a shard looks up in one turn.
pub(crate) const USERS_IN_TURN_MAX: usize = 128;

/// The connections that are asked for, before the filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionSelection {
    /// All.
    All,
    /// Those of these users; the empty one is the anonymous user.
    Users(BTreeSet<Box<str>>),
    /// The one of this client id.
    Client(OwnerId),
    /// Those that are subscribed to this channel.
    Channel(Box<str>),
}

/// What the connections must be beside.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFilter {
    /// The name of their program; None = any.
    pub(crate) program: Option<Box<str>>,
    /// The version of their program; None = any.
    pub(crate) version: Option<Box<str>>,
    pub(crate) transport: Option<Transport>,
    /// Where their clients are; None = anywhere.
    pub(crate) networks: Option<Networks>,
    /// What their labels say.
    pub(crate) labels: Option<Filter>,
}

/// Which connections are asked for.
#[derive(Debug)]
pub(crate) struct ConnectionQuery {
    pub(crate) selection: ConnectionSelection,
    pub(crate) filter: ConnectionFilter,
}

/// The slots that a shard looks at.
#[derive(Debug)]
pub(crate) enum SlotRange {
    /// From this slot on, at most [`SLICE_MAX`].
    From(u32),
    /// These, in their order, at most [`SLICE_MAX`].
    These(Vec<u32>),
}

/// A connection that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionRow {
    pub(crate) client: OwnerId,
    /// What is told of it, a JSON object.
    pub(crate) json: Vec<u8>,
}

/// What a shard has found in one turn.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlice {
    /// In the order of slots.
    pub(crate) rows: Vec<ConnectionRow>,
    /// The first slot that was not looked at; None = there is no other.
    pub(crate) next: Option<u32>,
}

/// Questions about connections. Each is answered in one turn.
pub(crate) enum ConnectionQuestion {
    /// The slots of the connections of some users, from a slot on, in order; None = they are too many to be looked up.
    OfUsers { users: Vec<Box<str>>, from: u32, reply: oneshot::Sender<Option<Vec<u32>>> },
    /// The slots of the subscribers of a channel, from a slot on, in order; None = they are too many to be looked up.
    OfChannel { channel: Box<str>, from: u32, reply: oneshot::Sender<Option<Vec<u32>>> },
    /// The connections in some slots that fit, at most `rows_max`.
    Slice { query: Arc<ConnectionQuery>, slots: SlotRange, rows_max: usize, reply: oneshot::Sender<ConnectionSlice> },
    /// Which of these users have a connection, in their order.
    AreOnline { users: Vec<Box<str>>, reply: oneshot::Sender<Vec<bool>> },
}
