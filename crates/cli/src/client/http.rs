//! One request on one connection, with hyper's client. The binary already contains it and its TLS for ACME, while
//! `ureq` would add a crate.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::tls::{explain, server_name};
use super::url::{ServerUrl, cannot_connect};

/// Maximum size of the head of an answer, bytes.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// Maximum size of the body of an answer, bytes.
const BODY_LEN_MAX: usize = 64 * 1024 * 1024;

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct HttpReply {
    /// The HTTP status code.
    pub(crate) status: u16,
    /// The whole body.
    pub(crate) body: Vec<u8>,
}

/// The limits of one request.
#[derive(Clone, Copy)]
struct RequestLimits {
    /// Maximum time of the whole request: name lookup, connection, TLS handshake, and the whole answer.
    patience: Duration,
    /// Maximum size of the body of the answer, bytes.
    body_len_max: usize,
}

/// Posts JSON, with the key if it is not empty, and with TLS if a configuration is given. `patience` is the maximum
/// time from the name lookup to the end of the answer.
///
/// # Errors
/// When no server answers, its certificate is not trusted, or the answer is not HTTP, too large or too late.
pub(crate) fn post(
    url: &ServerUrl,
    tls: Option<&Arc<ClientConfig>>,
    key: &str,
    body: Vec<u8>,
    patience: Duration,
) -> Result<HttpReply> {
    post_within(url, tls, key, body, RequestLimits { patience, body_len_max: BODY_LEN_MAX })
}

/// Sends a GET request, with TLS if a configuration is given. `patience` is the maximum time of the whole request.
///
/// # Errors
/// As [`post`].
pub(crate) fn get(url: &ServerUrl, tls: Option<&Arc<ClientConfig>>, patience: Duration) -> Result<HttpReply> {
    let request = Request::get(url.path.as_str()).header(HOST, url.authority()).header(CONNECTION, "close");
    let request = request.body(Full::new(Bytes::new())).context("the request is not valid")?;
    ask(url, tls, request, RequestLimits { patience, body_len_max: BODY_LEN_MAX })
}

fn post_within(
    url: &ServerUrl,
    tls: Option<&Arc<ClientConfig>>,
    key: &str,
    body: Vec<u8>,
    limits: RequestLimits,
) -> Result<HttpReply> {
    let mut request = Request::post(url.path.as_str())
        .header(HOST, url.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close");
    if !key.is_empty() {
        let mut value = HeaderValue::from_str(key).context("the key is not valid in a header")?;
        value.set_sensitive(true);
        request = request.header("X-API-Key", value);
    }
    let request = request.body(Full::new(Bytes::from(body))).context("the request is not valid")?;
    ask(url, tls, request, limits)
}

/// Sends a request on a new connection and reads the whole answer.
fn ask(
    url: &ServerUrl,
    tls: Option<&Arc<ClientConfig>>,
    request: Request<Full<Bytes>>,
    limits: RequestLimits,
) -> Result<HttpReply> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let end = Instant::now() + limits.patience;
        let stream = connect(url, end).await?;
        let answer = match tls {
            None => exchange(stream, request, end, limits).await,
            Some(config) => {
                let connector = TlsConnector::from(Arc::clone(config));
                let handshake = timeout_at(end, connector.connect(server_name(url)?, stream)).await;
                let late = || anyhow!("{} did not complete the TLS handshake in time", url.authority());
                let stream = handshake.map_err(|_| late())?.map_err(|error| explain(error, url))?;
                exchange(stream, request, end, limits).await
            }
        };
        answer.with_context(|| format!("failed to read the answer of {}", url.authority()))
    });
    // Do not wait for a thread that still looks up the server's name.
    runtime.shutdown_background();
    answer
}

/// Connects to the first address that answers.
async fn connect(url: &ServerUrl, end: Instant) -> Result<TcpStream> {
    let found = timeout_at(end, lookup_host((url.host.as_str(), url.port))).await;
    let found = found.map_err(|_| anyhow!("failed to find {} in time", url.host))?;
    let addresses: Vec<_> = found.with_context(|| format!("failed to find {}", url.host))?.collect();
    let connected = timeout_at(end, TcpStream::connect(&addresses[..])).await;
    let connected = connected.map_err(|_| anyhow!("{}: no answer in time", cannot_connect(url)))?;
    let stream = connected.with_context(|| cannot_connect(url))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request on an open connection and reads the whole answer.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>, end: Instant, limits: RequestLimits) -> Result<HttpReply>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut sender = open(TokioIo::new(stream)).await?;
    let response = timeout_at(end, sender.send_request(request)).await.context("it did not arrive in time")?;
    let (head, mut body) = response.map_err(told)?.into_parts();
    let mut bytes = Vec::new();
    while let Some(frame) = timeout_at(end, body.frame()).await.context("the rest did not arrive in time")? {
        let Ok(data) = frame.map_err(told)?.into_data() else { continue };
        if bytes.len() + data.len() > limits.body_len_max {
            bail!("it has more than {} bytes", limits.body_len_max);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(HttpReply { status: head.status.as_u16(), body: bytes })
}

/// Starts HTTP on a connection. A task of the runtime drives the connection.
async fn open<S: Read + Write + Unpin + Send + 'static>(stream: S) -> Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::Builder::new().max_buf_size(HEAD_LEN_MAX).handshake(stream).await?;
    // Its error also reaches the request.
    tokio::spawn(connection);
    Ok(sender)
}

/// Explains what is wrong with an answer.
fn told(error: hyper::Error) -> Error {
    let text = if error.is_parse_too_large() {
        "the head of the answer is too long"
    } else if error.is_parse() {
        "the port does not use HTTP (is it https://?)"
    } else if error.is_incomplete_message() {
        "the answer is incomplete"
    } else if is_reset(&error) {
        "the connection was reset"
    } else {
        "the connection failed"
    };
    Error::new(error).context(text)
}

fn is_reset(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use touchline_testkit::until;

    const SMALL: RequestLimits = RequestLimits { patience: Duration::from_millis(300), body_len_max: 10 };

    /// The parsed answer of a server that sends these bytes and closes the connection at once or never.
    fn answer(bytes: &'static [u8], hangs_up: bool) -> Result<(u16, String)> {
        answer_after(bytes, hangs_up, |_| {})
    }

    /// The same for a server that runs `then` on the connection before it closes it.
    fn answer_after(
        bytes: &'static [u8],
        hangs_up: bool,
        then: impl FnOnce(&mut std::net::TcpStream) + Send + 'static,
    ) -> Result<(u16, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the client comes");
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).expect("a line") > 2 {
                line.clear();
            }
            stream.get_mut().write_all(bytes).expect("the client reads");
            then(stream.get_mut());
            if !hangs_up {
                let _ = wait.recv();
            }
        });
        let url = ServerUrl { is_tls: false, host: "127.0.0.1".into(), port, path: "/api".into() };
        let answer = post_within(&url, None, "key", Vec::new(), SMALL);
        drop(done);
        server.join().expect("the server ends");
        answer.map(|answer| (answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
    }

    #[test]
    fn answers_are_read_to_their_end() {
        let good = |status, text: &str| Some((status, text.to_owned()));
        for (bytes, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more", good(200, "{}")),
            ("HTTP/1.0 401 No\r\n\r\nto the end", good(401, "to the end")),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", good(200, "{}")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", None),
            ("HTTP/1.1 200 OK\r\nContent-", None),
            ("HTTP/1.1 200 OK\r\n\r\nmore than ten", None),
            ("SSH-2.0-OpenSSH\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(answer(bytes.as_bytes(), true).ok(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn an_answer_that_trickles_does_not_last_longer_than_the_patience() {
        // Each part comes long before the timeout. A server ends when the client has left.
        let trickle = |stream: &mut std::net::TcpStream| {
            until("the client leaves", || stream.write_all(b"HTTP/1.1 200").is_err());
        };
        let said = format!("{:#}", answer_after(b"", true, trickle).expect_err("it never ends"));
        assert!(said.contains("in time") || said.contains("does not use HTTP"), "{said}");
        let drip = |stream: &mut std::net::TcpStream| {
            until("the client leaves", || stream.write_all(b"0").is_err());
        };
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let said = format!("{:#}", answer_after(head, true, drip).expect_err("it never ends"));
        assert!(said.contains("the rest did not arrive in time"), "{said}");
    }

    #[test]
    fn what_is_wrong_with_an_answer_is_told() {
        let said = |bytes, hangs_up| format!("{:#}", answer(bytes, hangs_up).expect_err("it is no answer"));
        for (bytes, hangs_up, expected) in [
            (&b"HTTP/1.1 200 OK\r\n\r\nmore than ten"[..], false, "more than 10 bytes"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", false, "the rest did not arrive in time"),
            (b"HTTP/1.1 200", false, "did not arrive in time"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", true, "does not use HTTP"),
            (b"\x15\x03\x03\x00\x02\x02\x46", true, "is it https://?"),
        ] {
            let said = said(bytes, hangs_up);
            assert!(said.contains(expected) && said.contains("the answer of 127.0.0.1:"), "{said}");
        }
    }
}
