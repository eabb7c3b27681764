//! Commands of clients that listen to an endless answer: each comes by a request of its own, to any node and any shard.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use std::borrow::Cow;
use touchline_protocol::protobuf::{Malformed, fields};

use super::respond::{self, Answer};
use super::stream::PROTOBUF;
use super::{cors, route};
use crate::node::Node;

/// `EmulationRequest`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Emulated<'a> {
    #[serde(borrow)]
    session: Cow<'a, str>,
    #[serde(borrow)]
    node: Cow<'a, str>,
    /// Commands, as they would stand in a message.
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// Hands commands on to their session.
pub(super) async fn answer(node: &Node, request: Request<Incoming>) -> Answer {
    let origin = match cors::check(node, request.uri(), request.headers()) {
        Ok(origin) => origin,
        Err(answer) => return *answer,
    };
    if *request.method() == Method::OPTIONS {
        return cors::preflight(request.headers(), origin.as_ref());
    }
    let answer = if *request.method() == Method::POST { take(node, request).await } else { respond::method_not_allowed("POST, OPTIONS") };
    cors::admit(answer, origin.as_ref())
}

async fn take(node: &Node, request: Request<Incoming>) -> Answer {
    let is_protobuf = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()));
    let body = match route::read_body(request.into_body(), node.settings.emulation.max_request_body_size()).await {
        Ok(body) => body,
        Err(status) => return respond::text(status, "the body is larger than emulation.max_request_body_size, or broken off\n"),
    };
    let handed_on = if is_protobuf {
        read_protobuf(&body).map(|(session, to, data)| node.emulate(session, to, Bytes::copy_from_slice(data)))
    } else {
        let read = serde_json::from_slice::<Emulated<'_>>(&body).map_err(|_| Malformed);
        read.map(|emulated| node.emulate(&emulated.session, &emulated.node, Bytes::copy_from_slice(emulated.data.as_bytes())))
    };
    match handed_on {
        Ok(true) => {
            let mut answer = Answer::default();
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer
        }
        Ok(false) => respond::text(StatusCode::NOT_FOUND, "no such node\n"),
        Err(Malformed) => respond::text(StatusCode::BAD_REQUEST, "expected session, node and data\n"),
    }
}

/// Session, node and commands.
fn read_protobuf(message: &[u8]) -> Result<(&str, &str, &[u8]), Malformed> {
    let (mut session, mut node, mut data) = ("", "", &b""[..]);
    fields(message, |tag, value| {
        match tag {
            1 => node = value.text()?,
            2 => session = value.text()?,
            3 => data = value.bytes()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((session, node, data))
}
