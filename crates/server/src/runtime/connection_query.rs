//! Questions of the server API to a shard about its connections: which connections, from which slot on, and the
//! answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use touchline_config::Networks;
use touchline_protocol::filter::Filter;
use touchline_registry::OwnerId;

use crate::net::transport::Transport;

/// How many slots a shard looks at in one turn for a question about connections. Also how many connections of users, or
/// subscribers of a channel, it looks up in one turn.
pub(crate) const SLICE_MAX: usize = 512;
/// How many subscriptions a shard looks at in one turn for a question about connections. A connection with more
/// subscriptions has its own turn.
pub(crate) const SUBSCRIPTIONS_IN_TURN_MAX: usize = 16 * 1_024;
/// How many users a shard looks up in one turn.
pub(crate) const USERS_IN_TURN_MAX: usize = 128;

/// Which connections are selected, before the filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionSelection {
    /// All connections of the shard.
    All,
    /// The connections of these users; the empty one is the anonymous user.
    Users(BTreeSet<Box<str>>),
    /// The connection with this client id.
    Client(OwnerId),
    /// The connections that are subscribed to this channel.
    Channel(Box<str>),
}

/// What the selected connections must match in addition.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFilter {
    /// The name of the client's program; None = any.
    pub(crate) program: Option<Box<str>>,
    /// The version of the client's program; None = any.
    pub(crate) version: Option<Box<str>>,
    pub(crate) transport: Option<Transport>,
    /// The networks of the client's address; None = any address.
    pub(crate) networks: Option<Networks>,
    /// A filter on the labels of the connection; None = any labels.
    pub(crate) labels: Option<Filter>,
}

/// Which connections a question is about: selection and filter.
#[derive(Debug)]
pub(crate) struct ConnectionQuery {
    pub(crate) selection: ConnectionSelection,
    pub(crate) filter: ConnectionFilter,
}

/// Which slots a shard looks at.
#[derive(Debug)]
pub(crate) enum SlotRange {
    /// The slots from this one on, at most [`SLICE_MAX`].
    From(u32),
    /// These slots, in their order, at most [`SLICE_MAX`].
    These(Vec<u32>),
}

/// A connection that matches the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionRow {
    pub(crate) client: OwnerId,
    /// What the answer says about the connection, a JSON object.
    pub(crate) json: Vec<u8>,
}

/// What a shard has found in one turn.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlice {
    /// The matching connections, in the order of slots.
    pub(crate) rows: Vec<ConnectionRow>,
    /// The first slot that was not looked at; None = all were looked at.
    pub(crate) next: Option<u32>,
}

/// Questions about connections. A shard answers each in one turn.
pub(crate) enum ConnectionQuestion {
    /// Asks for the slots of the connections of some users, from a slot on, in order; None = there are too many to look
    /// up.
    OfUsers { users: Vec<Box<str>>, from: u32, reply: oneshot::Sender<Option<Vec<u32>>> },
    /// Asks for the slots of the subscribers of a channel, from a slot on, in order; None = there are too many to look
    /// up.
    OfChannel { channel: Box<str>, from: u32, reply: oneshot::Sender<Option<Vec<u32>>> },
    /// Asks for the matching connections in some slots, at most `rows_max`.
    Slice { query: Arc<ConnectionQuery>, slots: SlotRange, rows_max: usize, reply: oneshot::Sender<ConnectionSlice> },
    /// Asks which of these users have a connection, in their order.
    AreOnline { users: Vec<Box<str>>, reply: oneshot::Sender<Vec<bool>> },
}
