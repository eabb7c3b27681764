//! Reactions of clients of one-way transports. Each reaction arrives in a request of its own, at any node and shard.

use bytes::Bytes;
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::RequestBody;
use super::cors;
use super::respond::{self, HttpResponse};
use crate::backend::nats::{self, Emulated};
use crate::net::remote::Remote;
use crate::node::Node;

/// The path of these requests.
pub(crate) const PATH: &str = "/reactions";
/// The largest body of such a request, in bytes.
const BODY_SIZE_MAX: usize = 4_096;

/// Which client sends the reaction. The client's session reads the reaction itself.
#[derive(Deserialize)]
struct ReactingClient<'a> {
    /// The session's name, as its connect push contains it.
    session: String,
    /// The node that has the session.
    node: String,
    /// The channel, parsed only to check that it is present.
    #[serde(borrow)]
    channel: &'a RawValue,
}

/// Answers a request of `/reactions`: it forwards the reaction to its session. The answer confirms that the reaction
/// was forwarded, not that it was counted.
pub(crate) async fn answer(node: &Node, peer: Remote, request: Request<RequestBody>) -> HttpResponse {
    cors::answer_post(node, peer, request, |request| forward(node, request)).await
}

async fn forward(node: &Node, request: Request<RequestBody>) -> HttpResponse {
    let (body, _budget) = match request.into_body().read(BODY_SIZE_MAX).await {
        Ok(read) => read,
        Err(status) => return respond::text(status, "the body is larger than 4096 bytes, or broken off\n"),
    };
    let Ok(client) = serde_json::from_slice::<ReactingClient<'_>>(&body) else {
        return respond::text(StatusCode::BAD_REQUEST, "expected session, node, channel and option\n");
    };
    if client.channel.get().len() <= 2 {
        return respond::text(StatusCode::BAD_REQUEST, "expected a channel\n");
    }
    match nats::react(node, &client.session, &client.node, Bytes::copy_from_slice(&body)) {
        Emulated::Done => {
            let mut answer = HttpResponse::default();
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer
        }
        Emulated::TooLarge => respond::text(StatusCode::PAYLOAD_TOO_LARGE, "more than nodes can send each other\n"),
        Emulated::NoNode => respond::text(StatusCode::NOT_FOUND, "no such node\n"),
    }
}
