//! The connection behind a request.

use std::rc::Rc;
use std::sync::Arc;

use touchline_engine::ShardId;

use crate::net::port::PortRole;
use crate::net::remote::Remote;
use crate::node::Node;
use crate::runtime::connection_guard::ConnectionGuard;

/// The largest head of a request, and the size of hyper's read buffer, in bytes.
pub(crate) const HEAD_MAX: usize = 16 * 1024;

/// The connection of a request, and the node and shard that serve it.
pub(crate) struct Origin {
    pub(crate) node: Arc<Node>,
    pub(crate) shard: ShardId,
    pub(crate) remote: Remote,
    pub(crate) side: PortRole,
    /// The user id that the client's certificate names; None = there is no certificate, or the settings take no user
    /// from it.
    pub(crate) user: Option<String>,
    /// Whether the connection arrived after the drain had started: then only probes are answered.
    pub(crate) is_late: bool,
    pub(crate) pass: Rc<ConnectionGuard>,
}

/// An accepted connection that a task is about to serve.
pub(crate) struct HttpCaller {
    pub(crate) node: Arc<Node>,
    pub(crate) shard: ShardId,
    pub(crate) remote: Remote,
    pub(crate) side: PortRole,
    pub(crate) pass: ConnectionGuard,
}
