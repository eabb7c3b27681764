//! The destination of the reply to a request: a session or an operation.

use tokio::sync::oneshot;
use touchline_engine::session::Ticket;
use touchline_engine::{ConnectionId, Response, ShardId};

/// The destination of the reply to a request.
pub(crate) enum ReplyTo {
    /// A session, with the ticket that it gave the request.
    Session(ConnectionId, Ticket),
    /// An operation, and the shard on whose thread it waits; None = it does not wait on a shard's thread.
    Operation(Option<ShardId>, oneshot::Sender<Response>),
    /// No destination: the reply is dropped.
    Discard,
}
