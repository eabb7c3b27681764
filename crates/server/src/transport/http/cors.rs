//! Cross-origin requests of web pages: `client.allowed_origins`, and the headers that let a browser show the answer to
//! its page.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, VARY,
};
use hyper::{Method, Request, StatusCode, Uri};

use super::body::RequestBody;
use super::respond::{self, HttpResponse, RefusalResponse};
use crate::net::origin;
use crate::net::remote::Remote;
use crate::node::Node;

/// The header field in which a browser says whether the page is of the same origin or site.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The value of `Access-Control-Allow-Origin` that admits every page.
const ANY: &str = "*";

/// Returns the origin of an allowed page; `*` if it is allowed only because every page is. None = the request has no
/// `Origin` header.
///
/// # Errors
/// The response to a page that is not allowed.
pub(super) fn check(
    node: &Node,
    peer: Remote,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<HeaderValue>, RefusalResponse> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let host = text(HOST).or_else(|| uri.authority().map(|authority| authority.as_str()));
    let is_allowed = match text(ORIGIN) {
        Some(origin) => node.generation().origins.allow(Some(origin), host),
        None => node.generation().origins.allow_unnamed(text(SEC_FETCH_SITE)),
    };
    if !is_allowed {
        node.log_refused_request(peer, headers, StatusCode::FORBIDDEN, origin::NOT_ALLOWED, "");
        return Err(respond::text(StatusCode::FORBIDDEN, "this origin is not in client.allowed_origins\n").into());
    }
    let is_named = node.generation().origins.name(text(ORIGIN), host);
    Ok(headers.get(ORIGIN).cloned().map(|origin| if is_named { origin } else { HeaderValue::from_static(ANY) }))
}

/// Adds the headers that let the browser show an answer to the page. If `client.allowed_origins` does not name a page,
/// it gets no answer to a request with credentials (cookies, certificates). Otherwise any page could act as the user.
pub(super) fn admit(mut answer: HttpResponse, origin: Option<&HeaderValue>) -> HttpResponse {
    if let Some(origin) = origin {
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if origin != ANY {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
    answer
}

/// Answers a request for a path to which pages of other origins post, and the preflight request of the browser.
pub(super) async fn answer_post<F>(
    node: &Node,
    peer: Remote,
    request: Request<RequestBody>,
    post: impl FnOnce(Request<RequestBody>) -> F,
) -> HttpResponse
where
    F: Future<Output = HttpResponse>,
{
    let origin = match check(node, peer, request.uri(), request.headers()) {
        Ok(origin) => origin,
        Err(answer) => return *answer,
    };
    if *request.method() == Method::OPTIONS {
        return preflight(request.headers(), origin.as_ref());
    }
    let answer = if *request.method() == Method::POST {
        post(request).await
    } else {
        respond::method_not_allowed("POST, OPTIONS")
    };
    admit(answer, origin.as_ref())
}

/// Answers a browser's preflight request.
pub(super) fn preflight(headers: &HeaderMap, origin: Option<&HeaderValue>) -> HttpResponse {
    let mut answer = admit(HttpResponse::default(), origin);
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let wanted =
        headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(HeaderValue::from_static("Content-Type"));
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("300"));
    answer
}
