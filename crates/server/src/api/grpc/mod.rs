//! The server API over gRPC: the same operations as over HTTP, on a port of its own.
//!
//! `methods` has the table of methods. `publishing` has the two methods that do not go through JSON. `unary` reads and
//! answers a call. `streams` serves health and reflection, which need no key.

mod call;
mod health;
mod json_calls;
mod methods;
mod publishing;
mod reflection;
mod streams;
mod unary;

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use hyper::{Request, StatusCode, Version};
use tonic::Status;
use touchline_protocol::Error;

use self::call::GrpcCall;
use self::unary::refuse;
use super::callers::{CallerRefusal, OTHER_SCHEME, by_token};
use super::operation::RequestNode;
use crate::auth::ApiCaller;
use crate::runtime::generation::Generation;
use crate::runtime::operation_metrics::NO_OPERATION;
use crate::traces::{Span, TracedPart, within};
use crate::transport::http::body::RequestBody;
use crate::transport::http::{Origin, Routed, respond};

/// A call ends this much earlier than `http_server.request_timeout`, whose own answer would not be a gRPC status.
const MARGIN: Duration = Duration::from_millis(10);

/// The longest path of a call that a span shows, in bytes.
const PATH_SHOWN_MAX: usize = 128;

/// The message for a caller without a key.
const NO_KEY: &str = "send a key as metadata: authorization: apikey KEY";

/// Answers one request on the port of gRPC.
pub(super) async fn answer(origin: &Origin, request: Request<RequestBody>) -> Routed {
    if request.version() != Version::HTTP_2 {
        return Routed::Answer(respond::text(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC needs HTTP/2\n"));
    }
    let content_type = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    if !content_type.starts_with(b"application/grpc") || content_type.starts_with(b"application/grpc-web") {
        return Routed::Answer(respond::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "this port speaks gRPC only\n"));
    }
    if origin.is_late {
        return refuse(Status::unavailable("the node drains: call another one"));
    }
    if let Some(service) = streams::service_of(&origin.node, request.uri().path()) {
        return Box::pin(streams::answer(origin, service, request)).await;
    }
    let limit = origin.node.generation().settings.http_server.request_timeout.saturating_sub(MARGIN);
    match origin.node.clock.time().timeout(limit, call(origin, request)).await {
        Ok(answer) => answer,
        Err(_) => refuse(Status::deadline_exceeded("the call took longer than http_server.request_timeout")),
    }
}

/// Answers a call of one of the two API services.
async fn call(origin: &Origin, request: Request<RequestBody>) -> Routed {
    let Origin { node, pass, .. } = origin;
    let generation = node.generation();
    let caller = match authorize(&generation, request.headers(), node.clock.now_ms() / 1_000) {
        Ok(caller) => caller,
        Err(refusal) => return refuse_caller(origin, request.headers(), refusal),
    };
    pass.settle();
    caller.requests.fetch_add(1, Relaxed);
    let mut span = Span::of_request(TracedPart::Api, || "grpc".to_owned(), request.headers());
    span.note("rpc.method", || {
        let path = request.uri().path();
        path[..path.floor_char_boundary(PATH_SHOWN_MAX)].to_owned()
    });
    span.note("touchline.caller", || caller.name.clone());
    let refused = Cell::new(0);
    let routed = within(
        &span,
        methods::answer(
            &GrpcCall { origin, node: RequestNode::new(node, &generation), caller, refused: &refused },
            request,
        ),
    )
    .await;
    if refused.get() > 0 {
        span.note("touchline.error.code", || refused.get().to_string());
        span.fail(|| "refused".to_owned());
    } else if let Some(status) = failed_status(&routed) {
        span.fail(|| status);
        node.metrics_here().operations.count_error(NO_OPERATION, Error::BAD_REQUEST.code);
    }
    routed
}

/// Returns the status of a call whose answer has no message; None = the answer has a message.
fn failed_status(routed: &Routed) -> Option<String> {
    let Routed::Grpc(answer, _) = routed else { return None };
    let status = answer.headers().get("grpc-status")?.to_str().ok()?;
    (status != "0").then(|| format!("status {status}"))
}

/// Finds the caller by the key or the token in `authorization`.
///
/// # Errors
/// Why neither a key nor a token was accepted.
fn authorize<'g>(generation: &'g Generation, headers: &HeaderMap, now_s: u64) -> Result<&'g ApiCaller, CallerRefusal> {
    let access = &generation.access.api;
    if let Some(anybody) = access.anybody() {
        return Ok(anybody);
    }
    let Some(authorization) = headers.get(AUTHORIZATION) else {
        return Err(CallerRefusal::Unauthorized("server API: no key was sent (metadata authorization)", NO_KEY));
    };
    if let Some((scheme, shown)) = authorization.as_bytes().split_at_checked(7) {
        if scheme.eq_ignore_ascii_case(b"apikey ")
            && let Some(caller) = access.of_grpc_key(shown)
        {
            return Ok(caller);
        }
        if scheme.eq_ignore_ascii_case(b"bearer ")
            && let Some(found) = by_token(generation, shown, now_s)
        {
            return found;
        }
    }
    if authorization.as_bytes().get(..7).is_none_or(|scheme| !scheme.eq_ignore_ascii_case(b"apikey ")) {
        return Err(OTHER_SCHEME);
    }
    let cause = "server API: the key that was sent is not in grpc_api.key, http_api.key or http_api.keys";
    Err(CallerRefusal::Unauthorized(cause, "the key that was sent is not in the configuration"))
}

/// Answers a caller that is not served, and logs the cause.
fn refuse_caller(origin: &Origin, headers: &HeaderMap, refusal: CallerRefusal) -> Routed {
    let (status, cause, answer) = match refusal {
        CallerRefusal::Unauthorized(cause, text) => (StatusCode::UNAUTHORIZED, cause, Status::unauthenticated(text)),
        CallerRefusal::Unavailable(cause) => {
            let answer = Status::unavailable("the keys of http_api.jwks are not available now: try again");
            (StatusCode::SERVICE_UNAVAILABLE, cause, answer)
        }
    };
    origin.node.log_refused_request(origin.remote, headers, status, cause, "");
    origin.node.metrics_here().operations.count_error(NO_OPERATION, Error::UNAUTHORIZED.code);
    refuse(answer)
}
