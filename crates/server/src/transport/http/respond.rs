//! Responses of HTTP that more than one endpoint uses.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use crate::net::host::HostRefusal;

pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// A response that refuses a request. It is boxed, because it is rare and large.
pub(crate) type RefusalResponse = Box<HttpResponse>;

pub(crate) const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

pub(crate) fn body(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn text(status: StatusCode, why: impl Into<Bytes>) -> HttpResponse {
    body(status, TEXT, why)
}

pub(crate) fn not_found() -> HttpResponse {
    text(StatusCode::NOT_FOUND, "not found\n")
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> HttpResponse {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The response to a client that connects while the node drains. The client should retry, at another node or after the
/// restart.
pub(crate) fn draining() -> HttpResponse {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The response to a request for a host that this node does not serve.
pub(crate) fn refuse_host(refusal: HostRefusal) -> HttpResponse {
    match refusal {
        HostRefusal::Malformed => text(StatusCode::BAD_REQUEST, "a request has one Host, and it names a host\n"),
        HostRefusal::NotAllowed => {
            let why = "this host is not in http_server.allowed_hosts: \
                       add the name that the page is opened by, or open it by an IP address\n";
            text(StatusCode::MISDIRECTED_REQUEST, why)
        }
    }
}
