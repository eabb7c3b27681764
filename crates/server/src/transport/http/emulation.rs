//! Commands of clients that read an endless answer. Each command arrives in a request of its own, at any node and
//! shard.

use bytes::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode};
use touchline_protocol::emulation::EmulationCommand;
use touchline_protocol::protobuf::Malformed;

use super::body::RequestBody;
use super::cors;
use super::respond::{self, HttpResponse};
use super::stream::PROTOBUF;
use crate::backend::nats::{self, Emulated};
use crate::net::remote::Remote;
use crate::node::Node;

/// Answers a request of `/emulation`: it forwards the commands to their session.
pub(crate) async fn answer(node: &Node, peer: Remote, request: Request<RequestBody>) -> HttpResponse {
    cors::answer_post(node, peer, request, |request| forward(node, peer, request)).await
}

async fn forward(node: &Node, peer: Remote, request: Request<RequestBody>) -> HttpResponse {
    let is_protobuf =
        request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()));
    let (head, body) = request.into_parts();
    let (body, _budget) = match body.read(node.generation().settings.emulation.max_request_body_size()).await {
        Ok(read) => read,
        Err(status) => {
            let cause = "the body is larger than emulation.max_request_body_size, or incomplete";
            node.log_refused_request(peer, &head.headers, status, cause, "");
            return respond::text(status, format!("{cause}\n"));
        }
    };
    let read = if is_protobuf { EmulationCommand::from_protobuf(&body) } else { EmulationCommand::from_json(&body) };
    let forwarded =
        read.map(|request| nats::emulate(node, &request.session, &request.node, Bytes::copy_from_slice(&request.data)));
    match forwarded {
        Ok(Emulated::Done) => {
            let mut answer = HttpResponse::default();
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer
        }
        Ok(Emulated::TooLarge) => respond::text(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the client is connected to another node, and this is more than nodes can send each other\n",
        ),
        Ok(Emulated::NoNode) => respond::text(StatusCode::NOT_FOUND, "no such node\n"),
        Err(Malformed) => respond::text(StatusCode::BAD_REQUEST, "expected session, node and data\n"),
    }
}
