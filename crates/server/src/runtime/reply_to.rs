//! Where the reply to a request goes: to a session, or to an operation.

use tokio::sync::oneshot;
use touchline_engine::session::Ticket;
use touchline_engine::{ConnectionId, Response, ShardId};

/// Where the reply to a request goes.
pub(crate) enum ReplyTo {
    /// To a session, with the ticket that it gave the request.
    Session(ConnectionId, Ticket),
    /// To an operation, and the shard on whose thread it waits; None = it does not wait on a shard's thread.
    Operation(Option<ShardId>, oneshot::Sender<Response>),
    /// The reply is dropped.
    Discard,
}
