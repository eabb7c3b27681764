//! The router: which handler serves a request.

use std::sync::atomic::Ordering::Relaxed;

use super::console;
use super::endpoint;
#[cfg(feature = "grpc")]
use super::grpc;
use super::metrics_text::text_format;
use super::program;
use super::readiness::{health, turns};
use super::request_id::{X_REQUEST_ID, request_id};
use super::scrape::Scrape;
use super::trace_stream;
use crate::net::headers::Headers as _;
use crate::net::host::{self, HostRefusal};
#[cfg(feature = "grpc")]
use crate::net::port::PortRole;
use crate::node::Node;
use crate::transport::handshake;
use crate::transport::http::body::{BodyBudget, RequestBody};
use crate::transport::http::respond::{self, HttpResponse, JSON};
use crate::transport::http::{Origin, Routed, Router, emulation, reactions, stream, upgrade};
use bytes::Bytes;
use hyper::header::{ACCEPT, HeaderMap, HeaderValue, UPGRADE};
use hyper::{Method, Request, StatusCode, Version};
use touchline_config::Settings;

/// Metrics are not written while the requests and streams of HTTP use more than one part in this many of a shard's
/// memory for single connections.
const SCRAPES_SHARE: usize = 4;

/// The router of the node's ports.
pub(crate) struct NodeRouter;

impl Router for NodeRouter {
    fn answer(origin: &Origin, request: Request<RequestBody>) -> impl Future<Output = Routed> {
        answer(origin, request)
    }
}

/// Answers one request. The futures of rare cases are boxed. Otherwise the future of every request of the server API,
/// which is copied, would be as large as the largest of them.
async fn answer(origin: &Origin, request: Request<RequestBody>) -> Routed {
    let (node, peer) = (&origin.node, origin.remote);
    #[cfg(feature = "grpc")]
    if origin.side == PortRole::Grpc {
        return Box::pin(grpc::answer(origin, request)).await;
    }
    let target = request.uri().authority().map(|authority| authority.as_str());
    let is_needed = request.version() == Version::HTTP_11;
    if let Err(refusal) =
        host::check(request.headers(), target, is_needed, &node.generation().settings.http_server.allowed_hosts)
    {
        return Routed::Answer(refuse_host(origin, &request, refusal));
    }
    let path = request.uri().path();
    if origin.is_late && probe_of(origin, path).is_none() {
        return Routed::Answer(with_request_id(origin, &request, respond::draining()).0);
    }
    // Most requests are calls of the server API, which need no look at the settings.
    if !path.starts_with("/api/") && console::is_of_console(origin, path) {
        return Box::pin(console::answer(origin, request)).await;
    }
    if !origin.side.serves_clients() {
        if is_api(origin, path) && trace_stream::is_wanted(&request) {
            return Box::pin(trace_stream::answer(origin, request)).await;
        }
        return Routed::Answer(Box::pin(inner(origin, request)).await);
    }
    if let Some(transport) = handshake::transport_of(node, path) {
        return match upgrade::answer(node, peer, &request, transport) {
            Ok((answer, negotiated)) => Routed::Upgrade(answer, negotiated),
            Err(refusal) => Routed::Answer(*refusal),
        };
    }
    if let Some((transport, settings)) = stream::transport_of(node, path) {
        return match Box::pin(stream::admit(node, peer, transport, &settings, request)).await {
            Ok(admitted) => Routed::Stream(Box::new(admitted)),
            Err(refusal) => Routed::Answer(*refusal),
        };
    }
    if is_api(origin, path) {
        if trace_stream::is_wanted(&request) {
            return Box::pin(trace_stream::answer(origin, request)).await;
        }
        return Routed::Answer(endpoint::answer(origin, request).await);
    }
    Routed::Answer(Box::pin(plain(origin, request)).await)
}

/// Makes the answer to a request for a host that this node does not serve.
fn refuse_host(origin: &Origin, request: &Request<RequestBody>, refusal: HostRefusal) -> HttpResponse {
    let (answer, id) = with_request_id(origin, request, respond::refuse_host(refusal));
    if refusal == HostRefusal::NotAllowed {
        let (status, id) = (StatusCode::MISDIRECTED_REQUEST, id.to_str().unwrap_or_default());
        origin.node.log_refused_request(origin.remote, request.headers(), status, host::NOT_ALLOWED, id);
    }
    answer
}

/// Adds the id of its request to an answer that the server API did not make, if the request is for the server API.
/// Returns the id too; empty = the request is for another path.
fn with_request_id(
    origin: &Origin,
    request: &Request<RequestBody>,
    mut answer: HttpResponse,
) -> (HttpResponse, HeaderValue) {
    if !is_api(origin, request.uri().path()) {
        return (answer, HeaderValue::from_static(""));
    }
    let id = request_id(request.headers().get(&X_REQUEST_ID));
    answer.headers_mut().insert(X_REQUEST_ID.clone(), id.clone());
    (answer, id)
}

/// Answers a request that is not for a transport of clients, on a port that serves clients.
async fn plain(origin: &Origin, request: Request<RequestBody>) -> HttpResponse {
    let node = &origin.node;
    let settings = &node.generation().settings;
    let path = request.uri().path();
    if (settings.http_stream.enabled || settings.sse.enabled) && path == settings.emulation.handler_prefix {
        return emulation::answer(node, origin.remote, request).await;
    }
    if path == reactions::PATH {
        return reactions::answer(node, origin.remote, request).await;
    }
    if node.web.has(path) {
        return program::answer(origin, request).await;
    }
    inner(origin, request).await
}

/// Answers a request for the server API, or for metrics and probes, if the port serves them.
async fn inner(origin: &Origin, request: Request<RequestBody>) -> HttpResponse {
    let (node, path) = (&origin.node, request.uri().path());
    if is_api(origin, path) {
        return endpoint::answer(origin, request).await;
    }
    let is_websocket = request.headers().has_token(&UPGRADE, "websocket");
    match probe_of(origin, path) {
        None if path == "/" && origin.side.serves_clients() && !is_websocket => {
            let endpoint = &node.generation().settings.websocket.handler_prefix;
            respond::text(StatusCode::OK, format!("Touchline runs here. Clients connect to {endpoint}.\n"))
        }
        None => {
            let cause = switched_off(&node.generation().settings, path.trim_end_matches('/'));
            let cause = cause.or_else(|| is_elsewhere(origin, path)).or(is_websocket.then_some(NO_WEBSOCKET));
            if let Some(cause) = cause {
                node.log_refused_request(origin.remote, request.headers(), StatusCode::NOT_FOUND, cause, "");
            }
            respond::not_found()
        }
        Some(_) if !is_read(&request) => respond::method_not_allowed("GET, HEAD"),
        Some(ProbeReply::Live) => live(node).await,
        Some(ProbeReply::Ready) => health(node),
        Some(ProbeReply::Metrics) => metrics(node, request.headers()),
    }
}

/// Returns the probe that a path names; None = the path names none, or this port does not serve it.
fn probe_of(origin: &Origin, path: &str) -> Option<ProbeReply> {
    let settings = &origin.node.generation().settings;
    let is_health = path == settings.health.handler_prefix;
    match path {
        _ if !origin.side.serves_operators() => None,
        "/livez" if settings.health.enabled => Some(ProbeReply::Live),
        _ if settings.health.enabled && (is_health || path == "/readyz") => Some(ProbeReply::Ready),
        _ if settings.prometheus.enabled && path == settings.prometheus.handler_prefix => Some(ProbeReply::Metrics),
        _ => None,
    }
}

/// Why a path of the server is not served: the key that switches it on. None = the path is not one of the server, or
/// this port does not serve it.
fn switched_off(settings: &Settings, path: &str) -> Option<&'static str> {
    let Settings { websocket, uni_websocket, http_stream, sse, uni_http_stream, uni_sse, .. } = settings;
    let Settings { health, prometheus, admin, emulation, .. } = settings;
    let is_health = ["/livez", "/readyz", health.handler_prefix.as_str()].contains(&path);
    let paths = [
        (!websocket.disabled, path == websocket.handler_prefix, "the path is off: websocket.disabled is true"),
        (uni_websocket.enabled, path == uni_websocket.handler_prefix, "the path is off: uni_websocket.enabled"),
        (http_stream.enabled, path == http_stream.handler_prefix, "the path is off: http_stream.enabled"),
        (sse.enabled, path == sse.handler_prefix, "the path is off: sse.enabled"),
        (
            http_stream.enabled || sse.enabled,
            path == emulation.handler_prefix,
            "the path is off: http_stream.enabled, sse.enabled",
        ),
        (uni_http_stream.enabled, path == uni_http_stream.handler_prefix, "the path is off: uni_http_stream.enabled"),
        (uni_sse.enabled, path == uni_sse.handler_prefix, "the path is off: uni_sse.enabled"),
        (health.enabled, is_health, "the path is off: health.enabled"),
        (prometheus.enabled, path == prometheus.handler_prefix, "the path is off: prometheus.enabled"),
        (admin.enabled, path == admin.handler_prefix, "the path is off: admin.enabled"),
    ];
    paths.into_iter().find(|(is_on, is_path, _)| *is_path && !is_on).map(|(_, _, cause)| cause)
}

const NO_WEBSOCKET: &str = "the path of the WebSocket is not websocket.handler_prefix";

/// Which port serves a path that this port does not serve. None = the path is not one of the server.
fn is_elsewhere(origin: &Origin, path: &str) -> Option<&'static str> {
    let is_admin = path == origin.node.generation().settings.admin.handler_prefix;
    (is_admin || is_own_path(&origin.node, path)).then_some(match origin.side.serves_clients() {
        true => "the path is on http_server.internal_port",
        false => "the path is on http_server.port, for clients",
    })
}

/// Whether the server itself answers a path on the port for clients.
pub(crate) fn is_own_path(node: &Node, path: &str) -> bool {
    let settings = &node.generation().settings;
    let probes = ["/livez", "/readyz", &settings.health.handler_prefix, &settings.prometheus.handler_prefix];
    let rest = path.strip_prefix("/api");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || handshake::transport_of(node, path).is_some()
        || stream::transport_of(node, path).is_some()
        || probes.contains(&path)
        || [settings.emulation.handler_prefix.as_str(), reactions::PATH].contains(&path)
}

/// Whether a path belongs to the server API, and this port serves it.
fn is_api(origin: &Origin, path: &str) -> bool {
    let rest = path.strip_prefix("/api");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && origin.side.serves_api(origin.node.generation().settings.http_api.external)
}

/// An endpoint for operators.
enum ProbeReply {
    /// The path `/livez`: whether every event loop responds.
    Live,
    /// The paths `/health` and `/readyz`: whether the node can serve.
    Ready,
    /// The path `/metrics`.
    Metrics,
}

fn is_read(request: &Request<RequestBody>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// An answer with metrics, which is counted until the system has its last byte.
struct UnreadText {
    text: String,
    _budget: BodyBudget,
}

impl AsRef<[u8]> for UnreadText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Answers the liveness probe: whether every shard's event loop responds.
async fn live(node: &Node) -> HttpResponse {
    if turns(node).await {
        respond::body(StatusCode::OK, JSON, "{}")
    } else {
        respond::text(StatusCode::SERVICE_UNAVAILABLE, "an event loop does not respond\n")
    }
}

/// Returns the node's metrics: as OpenMetrics for clients that accept it, otherwise in the text format 0.0.4 of
/// Prometheus.
///
/// Unread answers are counted and so limited, because every client that reaches the port may ask.
fn metrics(node: &Node, headers: &HeaderMap) -> HttpResponse {
    let counter = node.shard_here().http_counter();
    if counter.load(Relaxed) > node.buffer_slice / SCRAPES_SHARE {
        return respond::text(StatusCode::SERVICE_UNAVAILABLE, "too many answers wait to be read\n");
    }
    let Ok(text) = Scrape::of(node).open_metrics() else {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be written\n");
    };
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (content_type, text) = if accepted.any(|accepted| accepted.contains("application/openmetrics-text")) {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", text_format(&text))
    };
    respond::body(
        StatusCode::OK,
        content_type,
        Bytes::from_owner(UnreadText { _budget: BodyBudget::new(counter, text.len()), text }),
    )
}
