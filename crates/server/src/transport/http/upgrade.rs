//! The WebSocket handshake through hyper, for a request that arrived in pieces, came after other requests, or is
//! refused.

use hyper::ext::Protocol;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Request, StatusCode, Version};
use touchline_protocol::deflate;

use super::body::RequestBody;
use super::respond::{self, HttpResponse, RefusalResponse};
use crate::net::agent::Agent;
use crate::net::negotiated::Negotiated;
use crate::net::origin;
use crate::net::remote::Remote;
use crate::net::transport::Transport;
use crate::node::Node;
use crate::transport::handshake::{self, Granted, HandshakeRefusal};

/// The response to a client whose address has as many connections as it may have.
pub(crate) const ADDRESS_FULL: &str = "too many connections from this address\n";
/// The response to a client whose address is refused for a while.
pub(crate) const ADDRESS_REFUSED: &str = "this address is refused for a while\n";
/// The response to a request whose headers name two different clients.
pub(crate) const AMBIGUOUS: &str = "X-Forwarded-For and Forwarded name different clients\n";

/// Answers the handshake of a WebSocket.
///
/// # Errors
/// The response that refuses the handshake.
pub(crate) fn answer(
    node: &Node,
    peer: Remote,
    request: &Request<RequestBody>,
    transport: Transport,
) -> Result<(HttpResponse, Negotiated), RefusalResponse> {
    if request.version() == Version::HTTP_2 {
        return extended(node, peer, request, transport);
    }
    if *request.method() != Method::GET {
        return Err(respond::method_not_allowed("GET").into());
    }
    if request.version() != Version::HTTP_11 {
        return Err(refuse(HandshakeRefusal::NoUpgrade));
    }
    let query = request.uri().query().unwrap_or_default();
    let granted = handshake::examine(node, peer, transport, query, request.headers())
        .map_err(|refusal| log_and_refuse(node, peer, request, refusal))?;
    let answer = switch(&granted);
    Ok((answer, negotiated(node, peer, transport, granted, request.headers())))
}

/// Answers a handshake over HTTP/2: an extended CONNECT (RFC 8441 section 5).
fn extended(
    node: &Node,
    peer: Remote,
    request: &Request<RequestBody>,
    transport: Transport,
) -> Result<(HttpResponse, Negotiated), RefusalResponse> {
    let is_websocket = request.extensions().get::<Protocol>().is_some_and(|protocol| protocol.as_str() == "websocket");
    if *request.method() != Method::CONNECT || !is_websocket {
        return Err(refuse(HandshakeRefusal::NoUpgrade));
    }
    let query = request.uri().query().unwrap_or_default();
    let host = request.uri().authority().map(|authority| authority.as_str());
    let granted = handshake::examine_extended(node, peer, transport, query, host, request.headers())
        .map_err(|refusal| log_and_refuse(node, peer, request, refusal))?;
    let mut response = HttpResponse::default();
    offer(&granted, response.headers_mut());
    Ok((response, negotiated(node, peer, transport, granted, request.headers())))
}

fn negotiated(node: &Node, peer: Remote, transport: Transport, granted: Granted, headers: &HeaderMap) -> Negotiated {
    Negotiated {
        transport,
        wire: granted.wire,
        agent: Agent::of(headers),
        admission: granted.admission,
        fields: node.generation().kept_fields.of(peer, &node.generation().proxies, headers),
    }
}

/// Makes the response to a refused handshake. It logs refusals whose cause an operator can correct.
fn log_and_refuse(
    node: &Node,
    peer: Remote,
    request: &Request<RequestBody>,
    refusal: HandshakeRefusal,
) -> RefusalResponse {
    if refusal == HandshakeRefusal::Origin {
        node.log_refused_request(peer, request.headers(), StatusCode::FORBIDDEN, origin::NOT_ALLOWED, "");
    }
    refuse(refusal)
}

fn refuse(refusal: HandshakeRefusal) -> RefusalResponse {
    let answer = match refusal {
        HandshakeRefusal::NoUpgrade => {
            respond::text(StatusCode::BAD_REQUEST, "this is a WebSocket endpoint: connect an SDK to ws:// or wss://\n")
        }
        HandshakeRefusal::Version => {
            let mut response = respond::text(StatusCode::UPGRADE_REQUIRED, "unsupported WebSocket version\n");
            response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            response
        }
        HandshakeRefusal::Key => respond::text(StatusCode::BAD_REQUEST, "bad Sec-WebSocket-Key\n"),
        HandshakeRefusal::Host(refusal) => respond::refuse_host(refusal),
        HandshakeRefusal::Origin => {
            respond::text(StatusCode::FORBIDDEN, "this origin is not in client.allowed_origins\n")
        }
        HandshakeRefusal::Full => {
            let mut response = respond::text(StatusCode::SERVICE_UNAVAILABLE, "no room for more connections\n");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        HandshakeRefusal::Address => respond::text(StatusCode::TOO_MANY_REQUESTS, ADDRESS_FULL),
        HandshakeRefusal::Refused => respond::text(StatusCode::TOO_MANY_REQUESTS, ADDRESS_REFUSED),
        HandshakeRefusal::Ambiguous => respond::text(StatusCode::BAD_REQUEST, AMBIGUOUS),
    };
    answer.into()
}

fn switch(granted: &Granted) -> HttpResponse {
    let mut response = HttpResponse::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&granted.accept_key) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    offer(granted, headers);
    response
}

/// Adds the header fields that both kinds of handshake have: subprotocol and compression.
fn offer(granted: &Granted, headers: &mut HeaderMap) {
    if let Some(subprotocol) = granted.subprotocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
    }
    if granted.is_deflated() {
        headers.insert(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(deflate::GRANTED));
    }
}
