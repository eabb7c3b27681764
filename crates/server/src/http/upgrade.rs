//! The WebSocket handshake (RFC 6455 section 4.2).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Request, StatusCode, Version};

use super::respond::{self, Answer};
use crate::node::Node;
use crate::origin;

/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const SUBPROTOCOL: &str = "centrifuge-json";

/// Switches protocols, or says why not.
pub(super) fn answer(node: &Node, request: &Request<Incoming>) -> Answer {
    if *request.method() != Method::GET {
        return respond::method_not_allowed("GET");
    }
    let headers = request.headers();
    let is_upgrade = has_token(headers, &CONNECTION, "upgrade") && has_token(headers, &UPGRADE, "websocket");
    if !is_upgrade || request.version() != Version::HTTP_11 {
        return respond::text(StatusCode::BAD_REQUEST, "this is a WebSocket endpoint\n");
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let mut response = respond::text(StatusCode::UPGRADE_REQUIRED, "unsupported WebSocket version\n");
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return response;
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|key| is_nonce(key.as_bytes())) else {
        return respond::text(StatusCode::BAD_REQUEST, "bad Sec-WebSocket-Key\n");
    };
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if headers.contains_key(ORIGIN) && !origin::is_allowed(text(&ORIGIN).or(Some("")), text(&HOST), &node.settings.client.allowed_origins) {
        return respond::text(StatusCode::FORBIDDEN, "this origin is not in client.allowed_origins\n");
    }
    let limit = node.settings.client.connection_limit as u64;
    if *node.draining.borrow() || limit > 0 && node.connections() >= limit {
        let mut response = respond::text(StatusCode::SERVICE_UNAVAILABLE, "no room for more connections\n");
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    switch(key.as_bytes(), has_token(headers, &SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL))
}

fn switch(key: &[u8], with_subprotocol: bool) -> Answer {
    let mut response = Answer::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept_key(key)) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if with_subprotocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    response
}

/// What proves that the server has understood the handshake.
fn accept_key(key: &[u8]) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

/// 16 bytes in base64.
fn is_nonce(key: &[u8]) -> bool {
    key.len() == 24 && STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// Whether a comma-separated header has a token, whatever its case.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(is_nonce(b"dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(!is_nonce(b"dGhlIHNhbXBsZSBub25jZQ"));
    }
}
