//! Clients that read an endless answer: HTTP streaming and server-sent events.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, VARY};
use hyper::{Method, Request, StatusCode};
use touchline_config::HttpStreamSettings;
use touchline_protocol::message::Encoding;
use touchline_protocol::wire::{Coding, Framing};
use touchline_protocol::{Wire, deflate};

use super::body::RequestBody;
use super::respond::{self, HttpResponse, RefusalResponse};
use super::{cors, upgrade};
use crate::net::admission::{Admission, Denial};
use crate::net::agent::Agent;
use crate::net::forwarded::RequestFields;
use crate::net::remote::Remote;
use crate::net::transport::Transport;
use crate::node::Node;

/// The media type of requests and answers in Protobuf.
pub(crate) const PROTOBUF: &str = "application/octet-stream";

/// An admitted client: its session owns the rest of the connection.
pub(crate) struct Admitted {
    pub(crate) transport: Transport,
    pub(crate) wire: Wire,
    /// The header fields of the answer.
    pub(crate) headers: HeaderMap,
    /// The commands that the client has sent with its request.
    pub(crate) commands: Bytes,
    pub(crate) agent: Agent,
    pub(crate) admission: Admission,
    /// The header fields of the request that the node keeps.
    pub(crate) fields: RequestFields,
}

/// The transport with an endless answer at this path, and its settings; None = there is no such transport.
pub(crate) fn transport_of(node: &Node, path: &str) -> Option<(Transport, HttpStreamSettings)> {
    let settings = &node.generation().settings;
    let transports = [
        (Transport::HttpStream, &settings.http_stream),
        (Transport::Sse, &settings.sse),
        (Transport::UniHttpStream, &settings.uni_http_stream),
        (Transport::UniSse, &settings.uni_sse),
    ];
    transports
        .into_iter()
        .find(|(_, settings)| settings.enabled && settings.handler_prefix == path)
        .map(|(transport, settings)| (transport, settings.clone()))
}

/// Why the body of a request is refused, with the key that limits it.
fn too_large(transport: Transport) -> &'static str {
    match transport {
        Transport::Sse => "the body is larger than sse.max_request_body_size, or incomplete",
        Transport::UniHttpStream => "the body is larger than uni_http_stream.max_request_body_size, or incomplete",
        Transport::UniSse => "the body is larger than uni_sse.max_request_body_size, or incomplete",
        _ => "the body is larger than http_stream.max_request_body_size, or incomplete",
    }
}

/// Admits a client that asks for an endless answer.
///
/// # Errors
/// The response that refuses the client.
pub(crate) async fn admit(
    node: &Arc<Node>,
    peer: Remote,
    transport: Transport,
    settings: &HttpStreamSettings,
    request: Request<RequestBody>,
) -> Result<Admitted, RefusalResponse> {
    let origin = cors::check(node, peer, request.uri(), request.headers())?;
    let refuse = |answer| Err(cors::admit(answer, origin.as_ref()).into());
    let is_sse = matches!(transport, Transport::Sse | Transport::UniSse);
    let method = request.method().clone();
    if method == Method::OPTIONS {
        return Err(cors::preflight(request.headers(), origin.as_ref()).into());
    }
    if method != Method::POST && !(is_sse && method == Method::GET) {
        return refuse(respond::method_not_allowed(if is_sse { "GET, POST, OPTIONS" } else { "POST, OPTIONS" }));
    }
    let Ok(client) = node.generation().proxies.client(peer, request.headers()) else {
        return refuse(respond::text(StatusCode::BAD_REQUEST, upgrade::AMBIGUOUS));
    };
    let admission = match node.admit(client) {
        Ok(admission) => admission,
        Err(Denial::Address) => return refuse(respond::text(StatusCode::TOO_MANY_REQUESTS, upgrade::ADDRESS_FULL)),
        Err(Denial::Refused) => return refuse(respond::text(StatusCode::TOO_MANY_REQUESTS, upgrade::ADDRESS_REFUSED)),
        Err(Denial::Full) => {
            let mut answer = respond::text(StatusCode::SERVICE_UNAVAILABLE, "no room for more connections\n");
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return refuse(answer);
        }
    };
    let agent = Agent::of(request.headers());
    let fields = node.generation().kept_fields.of(peer, &node.generation().proxies, request.headers());
    let coding = coding_of(settings, request.headers());
    let wire = wire_of(transport, coding, request.headers());
    let commands = if method == Method::GET {
        let Some(commands) = connect_of(request.uri().query().unwrap_or_default()) else {
            return refuse(respond::text(StatusCode::BAD_REQUEST, "cf_connect is missing\n"));
        };
        commands
    } else {
        let (head, body) = request.into_parts();
        match body.read(settings.max_request_body_size()).await {
            Ok((body, _)) => body,
            Err(status) => {
                node.log_refused_request(peer, &head.headers, status, too_large(transport), "");
                return refuse(respond::text(status, format!("{}\n", too_large(transport))));
            }
        }
    };
    if commands.trim_ascii().is_empty() {
        return refuse(respond::text(StatusCode::BAD_REQUEST, "no connect command\n"));
    }
    let mut headers = cors::admit(HttpResponse::default(), origin.as_ref()).headers().clone();
    let content_type = match wire.framing {
        Framing::EventStream(_) => "text/event-stream; charset=utf-8",
        _ if wire.encoding == Encoding::Protobuf => PROTOBUF,
        _ => "application/json; charset=utf-8",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if settings.compression {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    if coding != Coding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for (name, value) in UNCACHED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(Admitted { transport, wire, headers, commands, agent, admission, fields })
}

/// Header fields that keep proxies and browsers from buffering an endless answer.
const UNCACHED: [(&str, &str); 4] = [
    ("cache-control", "private, no-cache, no-store, must-revalidate, max-age=0"),
    ("pragma", "no-cache"),
    ("expires", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ("x-accel-buffering", "no"),
];

fn coding_of(settings: &HttpStreamSettings, headers: &HeaderMap) -> Coding {
    let mut fields = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    match settings.compression && fields.any(accepts_gzip) {
        true => Coding::Gzip { from: settings.compression_min_size as u32 },
        false => Coding::Identity,
    }
}

/// Whether an `Accept-Encoding` field accepts gzip (RFC 9110 section 12.5.3). A mere `*` does not count, because
/// clients that send it hardly ever expect compressed streams.
fn accepts_gzip(field: &str) -> bool {
    field.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Some(1.0), |weight| weight.parse::<f32>().ok());
        ["gzip", "x-gzip"].iter().any(|known| name.trim().eq_ignore_ascii_case(known))
            && weight.is_some_and(|weight| weight > 0.0)
    })
}

fn wire_of(transport: Transport, coding: Coding, headers: &HeaderMap) -> Wire {
    let is_sse = matches!(transport, Transport::Sse | Transport::UniSse);
    let framing = if is_sse { Framing::EventStream(coding) } else { Framing::Stream(coding) };
    let is_protobuf = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()));
    let encoding = match transport {
        Transport::UniSse | Transport::UniHttpStream => Encoding::Push,
        Transport::HttpStream if is_protobuf => Encoding::Protobuf,
        _ => Encoding::Json,
    };
    Wire { encoding, framing }
}

/// The value of the query parameter `cf_connect`.
fn connect_of(query: &str) -> Option<Bytes> {
    let value = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "cf_connect")?.1;
    Some(match value {
        Cow::Borrowed(text) => Bytes::copy_from_slice(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    })
}

impl Admitted {
    /// The head of the answer over HTTP/1, where the connection ends with the answer.
    pub(crate) fn head(&self) -> Bytes {
        let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"connection: close\r\n\r\n");
        head.extend_from_slice(&self.prelude());
        head.into()
    }

    /// The bytes before the first event: the gzip header, or none. An empty line here would share a packet with the
    /// first event. Parsers that take a line end for the end of an event (`eventsource` before version 3) would skip
    /// both.
    pub(crate) fn prelude(&self) -> Vec<u8> {
        match self.wire.framing {
            Framing::EventStream(Coding::Gzip { .. }) | Framing::Stream(Coding::Gzip { .. }) => {
                deflate::GZIP_HEAD.to_vec()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for yes in ["gzip", "deflate, gzip;q=0.5, br", "GZIP", "x-gzip", "br ; q=1 , gzip ; q=0.001"] {
            assert!(accepts_gzip(yes), "{yes}");
        }
        for no in ["", "br", "identity", "*", "gzip;q=0", "gzip; q=0.000", "gzip;q=high", "gzipped"] {
            assert!(!accepts_gzip(no), "{no}");
        }
    }
}
