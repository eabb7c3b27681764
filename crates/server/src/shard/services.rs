//! What a shard asks of the floors above it. The start passes the implementation to each shard.

use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;

use crate::net::port::Port;
use crate::node::Node;
use crate::transport::http::HttpCaller;

/// Called with the result of an operation; None = nobody waits for it.
pub(crate) type OperationReplySink = Option<Box<dyn FnOnce(Vec<u8>) + Send>>;

/// Called with the answer to an operation; None = it does not have these fields.
pub(crate) type EmbedderReplySink = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// Work that begins on the thread that runs the shard, and that the shard does not wait for.
pub(crate) trait ShardServices: Sync {
    /// Serves the requests of one connection by HTTP. `prefix`: the bytes that have been read from it already.
    fn serve_http(&self, caller: HttpCaller, socket: TcpStream, prefix: Bytes);

    /// Reads the PROXY header where the port expects one, does the TLS handshake where the port speaks TLS, and then
    /// serves what the port serves.
    fn prepare(&self, caller: HttpCaller, socket: TcpStream, port: Port);

    /// Runs an operation that another node broadcasts to every node. `message`: see
    /// [`crate::runtime::mailbox::Message::Broadcast`].
    fn run_broadcast(&self, node: &Arc<Node>, message: Bytes, reply: OperationReplySink);

    /// Runs an operation for the program that embeds the server, on all nodes that it concerns. See
    /// [`crate::runtime::mailbox::Message::Operate`].
    fn run_operation(&self, node: &Arc<Node>, operation: Box<str>, params: Bytes, reply: EmbedderReplySink);
}

/// The implementation, which lives as long as the process.
pub(crate) type Services = &'static dyn ShardServices;
