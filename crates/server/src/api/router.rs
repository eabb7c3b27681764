//! The router: which handler serves a request.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName};
use hyper::{Method, Request, StatusCode, Version};

use super::callers::{CallerRefusal, by_token, log_refused_operation};
#[cfg(feature = "grpc")]
use super::grpc;
use super::metrics_text::text_format;
use super::operations::publish::is_publish;
use super::readiness::health;
use super::reply::ErrorMode;
use super::scrape::Scrape;
use super::serve::serve;
use crate::auth::ApiCaller;
use crate::net::host::{self, HostRefusal};
#[cfg(feature = "grpc")]
use crate::net::port::PortRole;
use crate::node::Node;
use crate::runtime::mailbox::Inspection;
use crate::transport::handshake;
use crate::transport::http::body::RequestBody;
use crate::transport::http::respond::{self, HttpResponse, JSON};
use crate::transport::http::{Origin, Routed, Router, emulation, stream, upgrade};

/// How long a shard may take to answer a liveness probe.
const TURN_TIME: Duration = Duration::from_secs(5);

static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
static X_CENTRIFUGO_ERROR_MODE: HeaderName = HeaderName::from_static("x-centrifugo-error-mode");

/// The router of a node's ports.
pub(crate) struct NodeRouter;

impl Router for NodeRouter {
    fn answer(origin: &Origin, request: Request<RequestBody>) -> impl Future<Output = Routed> {
        answer(origin, request)
    }
}

/// Answers one request. The futures of rare cases are boxed: without that, the future of every request of the server
/// API, which is copied, would be as large as the largest of them.
async fn answer(origin: &Origin, request: Request<RequestBody>) -> Routed {
    let (node, peer) = (&origin.node, origin.remote);
    #[cfg(feature = "grpc")]
    if origin.side == PortRole::Grpc {
        return grpc::answer(origin, request).await;
    }
    let target = request.uri().authority().map(|authority| authority.as_str());
    let is_needed = request.version() == Version::HTTP_11;
    if let Err(refusal) = host::check(request.headers(), target, is_needed, &node.settings.http_server.allowed_hosts) {
        if refusal == HostRefusal::NotAllowed {
            node.log_refused_request(peer, request.headers(), StatusCode::MISDIRECTED_REQUEST, host::NOT_ALLOWED);
        }
        return Routed::Answer(respond::refuse_host(refusal));
    }
    let path = request.uri().path();
    if origin.is_late && probe_of(origin, path).is_none() {
        return Routed::Answer(respond::draining());
    }
    if !origin.side.serves_clients() {
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
        return Routed::Answer(api(origin, request).await);
    }
    Routed::Answer(Box::pin(plain(origin, request)).await)
}

/// Answers a request that is for no transport of clients, on a port that serves clients.
async fn plain(origin: &Origin, request: Request<RequestBody>) -> HttpResponse {
    let node = &origin.node;
    let settings = &node.settings;
    let path = request.uri().path();
    if (settings.http_stream.enabled || settings.sse.enabled) && path == settings.emulation.handler_prefix {
        return emulation::answer(node, origin.remote, request).await;
    }
    let is_read = is_read(&request);
    match settings.pages.iter().find(|page| page.path == path) {
        Some(_) if !is_read => respond::method_not_allowed("GET, HEAD"),
        Some(page) => respond::page(page.content_type, page.body.clone()),
        None => inner(origin, request).await,
    }
}

/// Answers a request that is for the server API, or for metrics and probes, where the port serves them.
async fn inner(origin: &Origin, request: Request<RequestBody>) -> HttpResponse {
    let (node, path) = (&origin.node, request.uri().path());
    if is_api(origin, path) {
        return api(origin, request).await;
    }
    match probe_of(origin, path) {
        None => respond::text(StatusCode::NOT_FOUND, "not found\n"),
        Some(_) if !is_read(&request) => respond::method_not_allowed("GET, HEAD"),
        Some(ProbeReply::Live) => live(node).await,
        Some(ProbeReply::Ready) => health(node),
        Some(ProbeReply::Metrics) => metrics(node, request.headers()),
    }
}

/// The probe that a path names. None = the path names none, or this port does not serve it.
fn probe_of(origin: &Origin, path: &str) -> Option<ProbeReply> {
    let settings = &origin.node.settings;
    let is_health = path == settings.health.handler_prefix;
    match path {
        _ if !origin.side.serves_operators() => None,
        "/livez" if settings.health.enabled => Some(ProbeReply::Live),
        _ if settings.health.enabled && (is_health || path == "/readyz") => Some(ProbeReply::Ready),
        _ if settings.prometheus.enabled && path == settings.prometheus.handler_prefix => Some(ProbeReply::Metrics),
        _ => None,
    }
}

/// Whether a path is the server API's, and this port serves it.
fn is_api(origin: &Origin, path: &str) -> bool {
    let rest = path.strip_prefix("/api");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && origin.side.serves_api(origin.node.settings.http_api.external)
}

/// An endpoint for operators.
enum ProbeReply {
    /// `/livez`: whether every event loop responds.
    Live,
    /// `/health` and `/readyz`: whether the node can serve.
    Ready,
    /// `/metrics`.
    Metrics,
}

fn is_read(request: &Request<RequestBody>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// The answer to the liveness probe: whether every shard's event loop responds.
async fn live(node: &Node) -> HttpResponse {
    match tokio::time::timeout(TURN_TIME, node.inspect(|reply| Inspection::Turn { reply })).await {
        Ok(turned) if turned.len() == node.shards.len() => respond::body(StatusCode::OK, JSON, "{}"),
        _ => respond::text(StatusCode::SERVICE_UNAVAILABLE, "an event loop does not turn\n"),
    }
}

/// The node's metrics: as OpenMetrics for clients that accept it, else in the text format 0.0.4 of Prometheus.
fn metrics(node: &Node, headers: &HeaderMap) -> HttpResponse {
    let Ok(text) = Scrape::of(node).open_metrics() else {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be written\n");
    };
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.any(|accepted| accepted.contains("application/openmetrics-text")) {
        return respond::body(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text);
    }
    respond::body(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text_format(&text))
}

/// Answers a request of the server API.
async fn api(origin: &Origin, request: Request<RequestBody>) -> HttpResponse {
    let Origin { node, shard, pass, .. } = origin;
    let started_us = node.clock.elapsed_us();
    let metrics = &node.shards[usize::from(*shard)].metrics;
    if node.settings.http_api.disabled {
        return respond::text(StatusCode::NOT_FOUND, "not found\n");
    }
    if *request.method() != Method::POST {
        return respond::method_not_allowed("POST");
    }
    let caller = match authorize(node, &request) {
        Ok(caller) => caller,
        Err(refusal) => return refuse_caller(origin, request.headers(), refusal),
    };
    pass.settle();
    caller.requests.fetch_add(1, Relaxed);
    let mode = match request.headers().get(&X_CENTRIFUGO_ERROR_MODE).map(|mode| mode.as_bytes()) {
        Some(b"transport") => ErrorMode::Transport,
        _ => ErrorMode::Inside,
    };
    let method = request.uri().path().strip_prefix("/api").unwrap_or_default().trim_start_matches('/').to_owned();
    let (body, _budget) = match request.into_body().read(node.settings.http_api.body_size_limit).await {
        Ok(read) => read,
        Err(status) => {
            return respond::text(status, "the body is larger than http_api.body_size_limit, or broken off\n");
        }
    };
    match serve(node, &caller.rights, &method, &body).await {
        Ok(reply) => {
            if is_publish(&method) {
                metrics.publish_latency.observe_us(node.clock.elapsed_us().saturating_sub(started_us));
            }
            if let Some(refusal) = &reply.refusal {
                log_refused_operation(node, origin.remote, caller, &method, refusal);
            }
            respond::body(reply.status(mode), JSON, reply.into_body(mode))
        }
        Err(malformed) => {
            respond::body(StatusCode::BAD_REQUEST, respond::TEXT, format!("malformed request: {malformed}\n"))
        }
    }
}

/// Finds who sends a request, by a key or a token of the server API in it.
///
/// # Errors
/// Why neither is accepted.
fn authorize<'n>(node: &'n Node, request: &Request<RequestBody>) -> Result<&'n ApiCaller, CallerRefusal> {
    let access = &node.access.api;
    if let Some(anybody) = access.anybody() {
        return Ok(anybody);
    }
    let headers = request.headers();
    if let Some(caller) = headers.get(&X_API_KEY).and_then(|shown| access.of_key(shown.as_bytes())) {
        return Ok(caller);
    }
    let in_authorization = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
    let mut is_shown = headers.contains_key(&X_API_KEY);
    if let Some((scheme, shown)) = in_authorization {
        is_shown = true;
        if scheme.eq_ignore_ascii_case(b"apikey ")
            && let Some(caller) = access.of_key(shown)
        {
            return Ok(caller);
        }
        if scheme.eq_ignore_ascii_case(b"bearer ")
            && let Some(found) = by_token(node, shown)
        {
            return found;
        }
    }
    let query = request.uri().query().unwrap_or_default();
    for (_, shown) in form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "api_key") {
        is_shown = true;
        if let Some(caller) = access.of_key(shown.as_bytes()) {
            return Ok(caller);
        }
    }
    Err(CallerRefusal::Unauthorized(if is_shown {
        "server API: the key that was sent is none of http_api.key and http_api.keys"
    } else {
        "server API: no key was sent (header X-API-Key)"
    }))
}

/// Answers a caller who is not served, and logs why.
fn refuse_caller(origin: &Origin, headers: &HeaderMap, refusal: CallerRefusal) -> HttpResponse {
    let (status, cause, text) = match refusal {
        CallerRefusal::Unauthorized(cause) => {
            (StatusCode::UNAUTHORIZED, cause, "unauthorized: send the key of http_api.key as X-API-Key\n")
        }
        CallerRefusal::Unavailable(cause) => {
            (StatusCode::SERVICE_UNAVAILABLE, cause, "the keys of http_api.jwks cannot be had now: try again\n")
        }
    };
    origin.node.log_refused_request(origin.remote, headers, status, cause);
    respond::text(status, text)
}
