//! The services that this layer offers to a shard: it serves connections that speak HTTP, and operations that other
//! nodes send.

use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;

use super::operation::RequestNode;
use super::reply::ErrorMode;
use super::router::NodeRouter;
use super::serve::{serve, serve_node};
use super::version::NEWEST;
use crate::auth::ApiRights;
use crate::net::port::Port;
use crate::node::Node;
use crate::shard::services::{EmbedderReplySink, OperationReplySink, ShardServices};
use crate::transport::http::{self, HttpCaller};

/// Serves with tasks on the thread that runs the shard.
pub(crate) struct ApiServices;

impl ShardServices for ApiServices {
    fn serve_http(&self, caller: HttpCaller, socket: TcpStream, prefix: Bytes) {
        tokio::task::spawn_local(http::serve::<NodeRouter>(caller, socket, prefix));
    }

    fn prepare(&self, caller: HttpCaller, socket: TcpStream, port: Port) {
        tokio::task::spawn_local(http::prepare::<NodeRouter>(caller, socket, port));
    }

    fn run_broadcast(&self, node: &Arc<Node>, message: Bytes, reply: OperationReplySink) {
        serve_node(node, message, reply);
    }

    fn run_operation(&self, node: &Arc<Node>, operation: Box<str>, params: Bytes, reply: EmbedderReplySink) {
        let node = Arc::clone(node);
        tokio::task::spawn_local(async move {
            let generation = node.generation();
            let node = RequestNode::new(&node, &generation);
            let answer = serve(node, &ApiRights::ALL, &operation, &params, NEWEST.number).await;
            reply(answer.ok().map(|answer| answer.into_body(ErrorMode::Inside)));
        });
    }
}
