//! Answers to challenges over HTTP (`http-01`, RFC 8555 section 8.3). Other requests are redirected to `https://`.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;

use super::resolver::CertResolver;

/// How many connections are served at a time; more wait in the kernel.
const CONNECTIONS: usize = 128;
/// How long one connection may last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The path prefix of challenge requests.
const PATH: &str = "/.well-known/acme-challenge/";

/// Reads a socket address. A text that begins with the colon means every interface.
pub(super) fn address(text: &str) -> Result<SocketAddr, std::net::AddrParseError> {
    if text.starts_with(':') { format!("0.0.0.0{text}").parse() } else { text.parse() }
}

/// Serves challenges; never returns. `listener` must be non-blocking.
pub(super) async fn serve(listener: TcpListener, resolver: Arc<CertResolver>) -> Infallible {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let listener = tokio::net::TcpListener::from_std(listener);
    let Ok(listener) = listener.inspect_err(|error| tracing::error!(%error, "http-01 challenges can't be served"))
    else {
        return std::future::pending().await;
    };
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let Ok((socket, _)) = listener.accept().await else {
            // Most likely the process has no file descriptors left.
            // real time: a limit of the port for challenges, which has no node.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let resolver = Arc::clone(&resolver);
        tokio::spawn(async move {
            let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&request, &resolver))));
            let connection = http1::Builder::new()
                .header_read_timeout(None)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), service);
            // real time: a limit of the port for challenges, which has no node.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, resolver: &CertResolver) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    if let Some(answer) = request.uri().path().strip_prefix(PATH).and_then(|token| resolver.http_answer(token)) {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        *response.body_mut() = Full::from(answer);
    } else if request.uri().path().starts_with(PATH) {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if let Some(location) = https_location(request) {
        *response.status_mut() = StatusCode::FOUND;
        response.headers_mut().insert(LOCATION, location);
    } else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        *response.body_mut() = Full::from("use https://\n");
    }
    response
}

/// The `https://` address of the same resource. None = the method is not safe to repeat, or `Host` is missing.
fn https_location(request: &Request<Incoming>) -> Option<HeaderValue> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let host = without_port(request.headers().get(HOST)?.to_str().ok()?);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    HeaderValue::try_from(format!("https://{host}{path}")).ok()
}

/// The host without its port. The colons inside an IPv6 address do not separate a port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_without_its_port() {
        for (host, expected) in
            [("a.example", "a.example"), ("a.example:80", "a.example"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]")]
        {
            assert_eq!(without_port(host), expected);
        }
    }

    #[test]
    fn an_address_may_be_a_port_alone() {
        assert_eq!(address(":80"), Ok(SocketAddr::from(([0, 0, 0, 0], 80))));
        assert_eq!(address("127.0.0.1:81"), Ok(SocketAddr::from(([127, 0, 0, 1], 81))));
        assert_eq!(address("[::1]:80").map(|address| address.is_ipv6()), Ok(true));
        assert!(address("example.org:80").is_err());
    }
}
