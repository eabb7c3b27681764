//! The WebSocket handshake (RFC 6455 section 4.2) of a request that hyper or the shard itself has parsed.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{
    CONNECTION, HOST, ORIGIN, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};

use touchline_protocol::message::Encoding;
use touchline_protocol::wire::Framing;
use touchline_protocol::{Wire, deflate};

use crate::net::admission::{Admission, Denial};
use crate::net::headers::Headers;
use crate::net::host::{self, HostRefusal};
use crate::net::proxies::Ambiguous;
use crate::net::remote::Remote;
use crate::net::transport::Transport;
use crate::node::Node;

/// The GUID of the handshake (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The subprotocols that clients may offer.
const JSON: &str = "centrifuge-json";
const PROTOBUF: &str = "centrifuge-protobuf";
/// What a granted handshake has negotiated.
pub(crate) struct Granted {
    /// The value of `Sec-WebSocket-Accept`, which proves that the server has understood the handshake.
    pub(crate) accept_key: String,
    pub(crate) subprotocol: Option<&'static str>,
    /// The encoding and framing of the connection's messages.
    pub(crate) wire: Wire,
    pub(crate) admission: Admission,
}

impl Granted {
    /// Whether the client and the server have agreed upon compression.
    pub(crate) fn is_deflated(&self) -> bool {
        matches!(self.wire.framing, Framing::Deflated { .. })
    }
}

/// The transport of the WebSocket endpoint at this path; None = there is no such endpoint.
pub(crate) fn transport_of(node: &Node, path: &str) -> Option<Transport> {
    let (duplex, listening) = (&node.generation().settings.websocket, &node.generation().settings.uni_websocket);
    match path {
        _ if !duplex.disabled && path == duplex.handler_prefix => Some(Transport::WebSocket),
        _ if listening.enabled && path == listening.handler_prefix => Some(Transport::UniWebSocket),
        _ => None,
    }
}

/// Why a handshake is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeRefusal {
    /// The request does not ask for an upgrade to WebSocket.
    NoUpgrade,
    /// The version of the WebSocket protocol is not 13.
    Version,
    /// The key is not 16 bytes in base64.
    Key,
    /// The host of the request is not valid, or not allowed.
    Host(HostRefusal),
    /// The page's origin is not allowed.
    Origin,
    /// The node drains, or has as many connections as it may have.
    Full,
    /// The client's address has as many connections as it may have.
    Address,
    /// The client's address is refused for a while.
    Refused,
    /// The address of the client is ambiguous: two headers of proxies name different clients.
    Ambiguous,
}

impl From<Denial> for HandshakeRefusal {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Full => HandshakeRefusal::Full,
            Denial::Address => HandshakeRefusal::Address,
            Denial::Refused => HandshakeRefusal::Refused,
        }
    }
}

impl From<Ambiguous> for HandshakeRefusal {
    fn from(_: Ambiguous) -> Self {
        HandshakeRefusal::Ambiguous
    }
}

/// Examines the handshake of a `GET` request of HTTP/1.1 that arrived over the connection of `peer`.
pub(crate) fn examine(
    node: &Node,
    peer: Remote,
    transport: Transport,
    query: &str,
    headers: &impl Headers,
) -> Result<Granted, HandshakeRefusal> {
    host::check(headers, None, true, &node.generation().settings.http_server.allowed_hosts)
        .map_err(HandshakeRefusal::Host)?;
    if !headers.has_token(&CONNECTION, "upgrade") || !headers.has_token(&UPGRADE, "websocket") {
        return Err(HandshakeRefusal::NoUpgrade);
    }
    if headers.value(&SEC_WEBSOCKET_VERSION) != Some(b"13") {
        return Err(HandshakeRefusal::Version);
    }
    let key = headers.value(&SEC_WEBSOCKET_KEY).filter(|key| is_nonce(key)).ok_or(HandshakeRefusal::Key)?;
    let host = headers.value(&HOST).and_then(|host| std::str::from_utf8(host).ok());
    grant(node, peer, transport, query, host, headers).map(|granted| Granted { accept_key: accept_key(key), ..granted })
}

/// Examines a handshake over HTTP/2 (RFC 8441 section 5), where the server has nothing to prove.
pub(crate) fn examine_extended(
    node: &Node,
    peer: Remote,
    transport: Transport,
    query: &str,
    host: Option<&str>,
    headers: &impl Headers,
) -> Result<Granted, HandshakeRefusal> {
    if headers.value(&SEC_WEBSOCKET_VERSION) != Some(b"13") {
        return Err(HandshakeRefusal::Version);
    }
    grant(node, peer, transport, query, host, headers)
}

fn grant(
    node: &Node,
    peer: Remote,
    transport: Transport,
    query: &str,
    host: Option<&str>,
    headers: &impl Headers,
) -> Result<Granted, HandshakeRefusal> {
    if let Some(origin) = headers.value(&ORIGIN) {
        let origin = std::str::from_utf8(origin).unwrap_or_default();
        if !node.generation().origins.allow(Some(origin), host) {
            return Err(HandshakeRefusal::Origin);
        }
    }
    let admission = node.admit(node.generation().proxies.client(peer, headers)?)?;
    let offers =
        |subprotocol: &'static str| headers.has_token(&SEC_WEBSOCKET_PROTOCOL, subprotocol).then_some(subprotocol);
    let subprotocol = offers(PROTOBUF).or_else(|| offers(JSON));
    let is_asked = query.split('&').any(|pair| matches!(pair, "format=protobuf" | "cf_protocol=protobuf"));
    let body = match transport {
        Transport::UniWebSocket => Encoding::Push,
        _ if subprotocol == Some(PROTOBUF) || is_asked => Encoding::Protobuf,
        _ => Encoding::Json,
    };
    let endpoint = &node.generation().settings.websocket;
    let offers_deflate = || {
        headers.values(&SEC_WEBSOCKET_EXTENSIONS).any(|offer| std::str::from_utf8(offer).is_ok_and(deflate::is_offered))
    };
    let envelope = match transport {
        Transport::WebSocket if endpoint.compression && offers_deflate() => {
            Framing::Deflated { from: endpoint.compression_min_size as u32 }
        }
        _ => Framing::WebSocket,
    };
    Ok(Granted { accept_key: String::new(), subprotocol, wire: Wire { encoding: body, framing: envelope }, admission })
}

pub(crate) fn accept_key(key: &[u8]) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

/// Whether a key is 16 bytes in base64.
fn is_nonce(key: &[u8]) -> bool {
    let mut bytes = [0; 18];
    key.len() == 24 && STANDARD.decode_slice(key, &mut bytes) == Ok(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(is_nonce(b"dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(!is_nonce(b"dGhlIHNhbXBsZSBub25jZQ"));
        assert!(!is_nonce(b"dGhlIHNhbXBsZSBub25jZQ!="));
    }
}
