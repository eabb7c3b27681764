//! Answers requests below `/api`: finds the caller, the version, and the operation or document, and shapes each
//! refusal.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use hyper::header::{ACCEPT, ALLOW, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use touchline_protocol::Error;

use super::callers::{CallerRefusal, OTHER_SCHEME, by_token, log_refused_operation};
use super::documents::Document;
use super::operation::{Operation as _, OperationError, RequestNode};
use super::operations::publish::BroadcastOperation;
use super::reply::{ApiReply, ErrorMode};
use super::request_id::{X_REQUEST_ID, request_id};
use super::serve::serve;
use super::table::{BATCH, place_of, unknown_field};
use super::version::{ApiForm, UNNAMED, VERSIONS, negotiate};
use crate::auth::ApiCaller;
use crate::runtime::generation::Generation;
use crate::runtime::operation_metrics::NO_OPERATION;
use crate::traces::{Span, TracedPart, within};
use crate::transport::http::Origin;
use crate::transport::http::body::RequestBody;
use crate::transport::http::respond::{self, HttpResponse};

static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
static X_TOUCHLINE_WARNING: HeaderName = HeaderName::from_static("x-touchline-warning");
static X_CENTRIFUGO_ERROR_MODE: HeaderName = HeaderName::from_static("x-centrifugo-error-mode");

/// The header fields that matter, the first of each name. One pass over the few fields of a request costs less than a
/// search for each.
#[derive(Default)]
struct SentFields<'r> {
    key: Option<&'r HeaderValue>,
    authorization: Option<&'r HeaderValue>,
    error_mode: Option<&'r HeaderValue>,
    request_id: Option<&'r HeaderValue>,
    accept: Option<&'r HeaderValue>,
}

impl<'r> SentFields<'r> {
    fn of(headers: &'r HeaderMap) -> Self {
        let mut sent = SentFields::default();
        for (name, value) in headers {
            let place = match name {
                _ if *name == X_API_KEY => &mut sent.key,
                _ if *name == AUTHORIZATION => &mut sent.authorization,
                _ if *name == ACCEPT => &mut sent.accept,
                _ if *name == X_REQUEST_ID => &mut sent.request_id,
                _ if *name == X_CENTRIFUGO_ERROR_MODE => &mut sent.error_mode,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        sent
    }

    fn mode(&self) -> ErrorMode {
        match self.error_mode.map(HeaderValue::as_bytes) {
            Some(b"transport") => ErrorMode::Transport,
            _ => ErrorMode::Inside,
        }
    }
}

/// The form in which one request wants its answer.
struct ApiQuestion {
    mode: ErrorMode,
    form: ApiForm,
    id: HeaderValue,
}

impl ApiQuestion {
    fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// Makes an answer with this body, in the caller's form.
    fn respond(&self, status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
        let mut response = respond::body(status, self.form.content_type, body);
        response.headers_mut().insert(X_REQUEST_ID.clone(), self.id.clone());
        response
    }

    /// Makes the answer of an operation.
    fn answer(&self, mut reply: ApiReply) -> HttpResponse {
        let warning = reply.warning.take();
        let mut response = self.respond(reply.status(self.mode), reply.into_body(self.mode));
        if let Some(warning) = warning.and_then(|text| HeaderValue::try_from(text).ok()) {
            response.headers_mut().insert(X_TOUCHLINE_WARNING.clone(), warning);
        }
        response
    }

    /// Makes the answer to a request that never reaches an operation.
    fn turn_away(&self, status: StatusCode, refusal: impl Into<OperationError>, detail: &str) -> HttpResponse {
        let refusal = OperationError { detail: Some(detail.into()), ..refusal.into() };
        let mut response = self.answer(ApiReply::turned_away(refusal));
        *response.status_mut() = status;
        response
    }
}

/// Answers a request of the server API.
pub(super) async fn answer(origin: &Origin, mut request: Request<RequestBody>) -> HttpResponse {
    let Origin { node, pass, .. } = origin;
    let generation = node.generation();
    if generation.settings.http_api.disabled {
        let (status, cause) = (StatusCode::NOT_FOUND, "the path is off: http_api.disabled");
        node.log_refused_request(origin.remote, request.headers(), status, cause, "");
        return respond::not_found();
    }
    let uri = std::mem::take(request.uri_mut());
    let sent = SentFields::of(request.headers());
    let mut asked = ApiQuestion { mode: sent.mode(), form: UNNAMED, id: request_id(sent.request_id) };
    let method = uri.path().strip_prefix("/api").unwrap_or_default().trim_start_matches('/');
    let document = Document::named(method);
    let allowed: &[Method] = if document.is_some() { &[Method::GET, Method::HEAD] } else { &[Method::POST] };
    if !allowed.contains(request.method()) {
        return method_not_allowed(origin, request.headers(), &asked, allowed);
    }
    let now_s = node.clock.now_ms() / 1_000;
    let caller = match authorize(&generation, &sent, &uri, now_s) {
        Ok(caller) => caller,
        Err(refusal) => return refuse_caller(origin, request.headers(), &asked, &refusal),
    };
    pass.settle();
    caller.requests.fetch_add(1, Relaxed);
    if sent.accept.is_some() {
        match negotiate(request.headers()) {
            Some(form) => asked.form = form,
            None => {
                return no_such_version(origin, request.headers(), &asked);
            }
        }
    }
    if let Some(document) = document {
        return asked.respond(StatusCode::OK, document.text(asked.form.version));
    }
    let mut span = Span::of_request(TracedPart::Api, || span_name(method), request.headers());
    span.note("touchline.caller", || caller.name.clone());
    span.note("touchline.request_id", || asked.id().to_owned());
    let (body, _budget) = match request.into_body().read(generation.settings.http_api.body_size_limit).await {
        Ok(read) => read,
        Err(status) => {
            span.fail(|| status.to_string());
            return refuse_body(origin, caller, &asked, method, status);
        }
    };
    let refused = Cell::default();
    let request_node = RequestNode::new(node, &generation).noting(&refused);
    let serving = serve(request_node, &caller.rights, method, &body, asked.form.version);
    let mut reply = within(&span, serving).await.unwrap_or_else(|malformed| {
        node.metrics_here().operations.count_error(place_of(method), Error::BAD_REQUEST.code);
        ApiReply::turned_away(malformed.into())
    });
    reply.note(BroadcastOperation::NAME, refused.take());
    if let Some(refusal) = &reply.refusal {
        span.note("touchline.error.code", || refusal.error.code.to_string());
        span.fail(|| refusal.error.to_string());
    } else if !reply.refused.is_empty() {
        span.fail(|| "operations of the batch, or channels of the broadcast, were refused".to_owned());
    }
    let of_path = reply.refusal.iter().filter(|_| reply.refused.is_empty()).map(|refusal| (method, refusal));
    let of_batch = reply.refused.iter().map(|(operation, refusal)| (operation.as_str(), refusal));
    for (operation, refusal) in of_path.chain(of_batch) {
        log_refused_operation(node, origin.remote, caller, asked.id(), operation, refusal);
    }
    let is_told = generation.settings.client.tell_refusal_cause;
    if reply.refusal.is_none() && (is_told || caller.is_first_in_second(place_of(method), now_s)) {
        reply.warning = warn_of_unknown_field(origin, caller, asked.id(), method, &body).filter(|_| is_told);
    }
    asked.answer(reply)
}

/// Logs a field of the request that the operation does not have, and so ignored. Returns the warning for the caller. It
/// reads the body again, so it is called for few requests: a program repeats its mistakes.
fn warn_of_unknown_field(
    origin: &Origin,
    caller: &ApiCaller,
    request_id: &str,
    method: &str,
    body: &[u8],
) -> Option<String> {
    let (operation, warning) = unknown_field(method, body)?;
    let now_ms = origin.node.clock.elapsed_us() / 1_000;
    if let Some(silent) = origin.node.refusals.admits_warning(operation, &caller.name, now_ms) {
        let key = &caller.name;
        tracing::warn!(operation, %key, request_id, silent, "server API: the operation ignored a field: {warning}");
    }
    Some(warning)
}

/// Returns the name of a request's span: its operation. A path without a known operation does not choose the name.
fn span_name(method: &str) -> String {
    let is_known = method.is_empty() || method == BATCH || place_of(method) != NO_OPERATION;
    format!("api {}", if is_known { if method.is_empty() { BATCH } else { method } } else { "unknown" })
}

/// Makes the answer to a request whose HTTP method the path does not support.
fn method_not_allowed(origin: &Origin, headers: &HeaderMap, asked: &ApiQuestion, allowed: &[Method]) -> HttpResponse {
    let names = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let (status, error) = (StatusCode::METHOD_NOT_ALLOWED, Error::METHOD_NOT_FOUND);
    let cause = "server API: the HTTP method is not POST (GET or HEAD for a document)";
    let detail = format!("the HTTP method must be {}", names.replace(", ", " or "));
    let mut response = reject(origin, headers, asked, (status, cause, error, &detail));
    if let Ok(names) = HeaderValue::try_from(names) {
        response.headers_mut().insert(ALLOW, names);
    }
    response
}

/// Makes the answer to a body that was not read, and logs the cause.
fn refuse_body(
    origin: &Origin,
    caller: &ApiCaller,
    asked: &ApiQuestion,
    method: &str,
    status: StatusCode,
) -> HttpResponse {
    let limit = origin.node.generation().settings.http_api.body_size_limit;
    let why = format!("the body is larger than http_api.body_size_limit ({limit} bytes), or incomplete");
    let refusal = OperationError { detail: Some(why.as_str().into()), ..Error::BAD_REQUEST.into() };
    origin.node.metrics_here().operations.count_error(place_of(method), refusal.error.code);
    log_refused_operation(&origin.node, origin.remote, caller, asked.id(), method, &refusal);
    asked.turn_away(status, refusal, &why)
}

/// Makes the answer to a caller whose `Accept` allows no version of the server API.
fn no_such_version(origin: &Origin, headers: &HeaderMap, asked: &ApiQuestion) -> HttpResponse {
    let names: Vec<&str> = VERSIONS.iter().map(|version| version.media_type).collect();
    let detail = format!("Accept must allow application/json or one of {}", names.join(", "));
    let cause = "server API: Accept allows neither application/json nor a version of the server API";
    reject(origin, headers, asked, (StatusCode::NOT_ACCEPTABLE, cause, Error::NO_SUCH_VERSION, &detail))
}

/// Answers a request that never reaches an operation: logs the cause, and counts the error.
fn reject(
    origin: &Origin,
    headers: &HeaderMap,
    asked: &ApiQuestion,
    (status, cause, error, detail): (StatusCode, &'static str, Error, &str),
) -> HttpResponse {
    origin.node.log_refused_request(origin.remote, headers, status, cause, asked.id());
    origin.node.metrics_here().operations.count_error(NO_OPERATION, error.code);
    asked.turn_away(status, error, detail)
}

/// Returns the caller of a request; None = the request is refused.
pub(super) fn caller<'g>(
    generation: &'g Generation,
    headers: &HeaderMap,
    uri: &Uri,
    now_s: u64,
) -> Option<&'g ApiCaller> {
    let is_served = !generation.settings.http_api.disabled;
    authorize(generation, &SentFields::of(headers), uri, now_s).ok().filter(|_| is_served)
}

/// Finds the caller of a request, by a key or a token of the server API.
///
/// # Errors
/// Why neither a key nor a token was accepted.
fn authorize<'g>(
    generation: &'g Generation,
    sent: &SentFields<'_>,
    uri: &Uri,
    now_s: u64,
) -> Result<&'g ApiCaller, CallerRefusal> {
    let access = &generation.access.api;
    if let Some(anybody) = access.anybody() {
        return Ok(anybody);
    }
    if let Some(caller) = sent.key.and_then(|shown| access.of_key(shown.as_bytes())) {
        return Ok(caller);
    }
    let in_authorization = sent.authorization.and_then(|value| value.as_bytes().split_at_checked(7));
    let mut is_shown = sent.key.is_some();
    let mut refused_token = None;
    if let Some((scheme, shown)) = in_authorization {
        if scheme.eq_ignore_ascii_case(b"apikey ") {
            is_shown = true;
            if let Some(caller) = access.of_key(shown) {
                return Ok(caller);
            }
        }
        if scheme.eq_ignore_ascii_case(b"bearer ")
            && let Some(found) = by_token(generation, shown, now_s)
        {
            match found {
                Ok(caller) => return Ok(caller),
                Err(refusal) => refused_token = Some(refusal),
            }
        }
    }
    let query = uri.query().unwrap_or_default();
    for (_, shown) in form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "api_key") {
        is_shown = true;
        if let Some(caller) = access.of_key(shown.as_bytes()) {
            return Ok(caller);
        }
    }
    if let Some(refusal) = refused_token {
        return Err(refusal);
    }
    Err(if is_shown {
        CallerRefusal::Unauthorized(
            "server API: the key that was sent is not in http_api.key or http_api.keys",
            "the key that was sent is not in http_api.key or http_api.keys",
        )
    } else if sent.authorization.is_some() {
        OTHER_SCHEME
    } else {
        CallerRefusal::Unauthorized(
            "server API: no key was sent (header X-API-Key)",
            "send the key of http_api.key as X-API-Key",
        )
    })
}

/// Answers a caller that is not served, and logs the cause.
fn refuse_caller(origin: &Origin, headers: &HeaderMap, asked: &ApiQuestion, refusal: &CallerRefusal) -> HttpResponse {
    let refused = match *refusal {
        CallerRefusal::Unauthorized(cause, detail) => (StatusCode::UNAUTHORIZED, cause, Error::UNAUTHORIZED, detail),
        CallerRefusal::Unavailable(cause) => {
            let detail = "the keys of http_api.jwks are not available now: try again";
            (StatusCode::SERVICE_UNAVAILABLE, cause, Error::INTERNAL, detail)
        }
    };
    reject(origin, headers, asked, refused)
}
