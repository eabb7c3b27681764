//! Serves requests of the server API, and operations that other nodes request.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use touchline_protocol::encode::ObjectWriter;

use super::batch::{batch, lines};
use super::cluster::{BroadcastMessage, GATHERED};
use super::malformed::MalformedRequest;
use super::operation::RequestNode;
use super::reply::ApiReply;
use super::table::{BATCH, Call};
use super::version::{self, V1};
use crate::auth::ApiRights;
use crate::node::Node;

/// Serves `POST /api/<method>` for a caller with these rights, in a version of the server API. An empty method is the
/// old form, in which the body names the operation.
///
/// # Errors
/// When the body is not JSON of the operation's shape.
pub(crate) async fn serve(
    node: RequestNode<'_>,
    rights: &ApiRights,
    method: &str,
    body: &[u8],
    version: u16,
) -> Result<ApiReply, MalformedRequest> {
    match method {
        "" => Box::pin(lines(node, rights, body, version)).await,
        BATCH => Box::pin(batch(node, rights, body, version)).await,
        _ => {
            let call = Call::read(method, body, version)?;
            let is_unknown = call.is_unknown();
            let mut answer = Vec::with_capacity(64);
            let mut object = ObjectWriter::open(&mut answer);
            let refusal = call.run(node, rights, &mut object, "result").await;
            object.close();
            Ok(ApiReply::of_operation(answer, refusal, is_unknown))
        }
    }
}

/// Runs an operation that another node requests. `reply` sends the answer; None = the other node does not want one.
pub(crate) fn serve_node(node: &Arc<Node>, message: Bytes, reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>>) {
    let node = Arc::clone(node);
    tokio::task::spawn_local(async move {
        let Ok(broadcast) = serde_json::from_slice::<BroadcastMessage<'_>>(&message) else { return };
        let params = broadcast.params.map_or("{}", RawValue::get).as_bytes();
        let Some(version) = version::known(broadcast.version.unwrap_or(V1.number)) else { return };
        let method = broadcast.method.strip_suffix(GATHERED).unwrap_or(broadcast.method);
        let Ok(call) = Call::read(method, params, version.number) else { return };
        let mut out = Vec::new();
        let mut object = ObjectWriter::open(&mut out);
        let generation = node.generation();
        call.run_here(RequestNode::new(&node, &generation), &mut object, "result").await;
        object.text("node", &node.id);
        object.close();
        if let Some(reply) = reply {
            reply(out);
        }
    });
}
