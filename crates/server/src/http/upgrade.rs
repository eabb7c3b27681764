//! The WebSocket handshake behind hyper: one that came in pieces, behind other requests, or that has to be refused.

use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::{Method, Request, StatusCode, Version};
use touchline_protocol::deflate;

use super::respond::{self, Answer};
use crate::agent::Agent;
use crate::handshake::{self, Entrance, Granted, Refusal};
use crate::node::Node;
use crate::transport::Transport;

/// Switches protocols.
///
/// # Errors
/// The answer that says why not.
pub(super) fn answer(node: &Node, request: &Request<Incoming>, transport: Transport) -> Result<(Answer, Entrance), Answer> {
    if *request.method() != Method::GET {
        return Err(respond::method_not_allowed("GET"));
    }
    if request.version() != Version::HTTP_11 {
        return Err(refuse(Refusal::NoUpgrade));
    }
    let query = request.uri().query().unwrap_or_default();
    let granted = handshake::examine(node, transport, query, request.headers()).map_err(refuse)?;
    let entrance = Entrance { transport, wire: granted.wire, agent: Agent::of(request.headers()) };
    Ok((switch(&granted), entrance))
}

fn refuse(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::NoUpgrade => respond::text(StatusCode::BAD_REQUEST, "this is a WebSocket endpoint\n"),
        Refusal::Version => {
            let mut response = respond::text(StatusCode::UPGRADE_REQUIRED, "unsupported WebSocket version\n");
            response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            response
        }
        Refusal::Key => respond::text(StatusCode::BAD_REQUEST, "bad Sec-WebSocket-Key\n"),
        Refusal::Origin => respond::text(StatusCode::FORBIDDEN, "this origin is not in client.allowed_origins\n"),
        Refusal::Full => {
            let mut response = respond::text(StatusCode::SERVICE_UNAVAILABLE, "no room for more connections\n");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

fn switch(granted: &Granted) -> Answer {
    let mut response = Answer::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&granted.accept_key) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(subprotocol) = granted.subprotocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
    }
    if granted.is_deflated() {
        headers.insert(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(deflate::GRANTED));
    }
    response
}
