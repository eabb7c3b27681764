//! The functions of higher layers that a shard calls. The start passes the implementation to each shard.

use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;

use crate::net::port::Port;
use crate::node::Node;
use crate::transport::http::HttpCaller;

/// Called with the result of an operation; None = no caller waits for the result.
pub(crate) type OperationReplySink = Option<Box<dyn FnOnce(Vec<u8>) + Send>>;

/// Called with the answer to an operation; None = the operation does not have these fields.
pub(crate) type EmbedderReplySink = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// Work that starts on the thread that runs the shard. The shard does not wait for it.
pub(crate) trait ShardServices: Sync {
    /// Serves the HTTP requests of one connection. `prefix`: the bytes that were already read from it.
    fn serve_http(&self, caller: HttpCaller, socket: TcpStream, prefix: Bytes);

    /// Reads the PROXY header if the port expects one, does the TLS handshake if the port uses TLS, and then serves the
    /// connection as its port does.
    fn prepare(&self, caller: HttpCaller, socket: TcpStream, port: Port);

    /// Runs an operation that another node broadcasts to every node. `message`: see
    /// [`crate::runtime::mailbox::Message::Broadcast`].
    fn run_broadcast(&self, node: &Arc<Node>, message: Bytes, reply: OperationReplySink);

    /// Runs an operation for the embedding program, on all nodes that it concerns. See
    /// [`crate::runtime::mailbox::Message::Operate`].
    fn run_operation(&self, node: &Arc<Node>, operation: Box<str>, params: Bytes, reply: EmbedderReplySink);
}

/// The implementation, which exists as long as the process.
pub(crate) type Services = &'static dyn ShardServices;
