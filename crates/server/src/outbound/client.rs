//! The HTTP client of the node, for requests to other servers.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::ServerName;
use touchline_config::ClientTlsSettings;

use super::resolver::Resolver;
use super::tls;
use crate::tls::TlsError;

/// How many idle connections to one server are kept.
const IDLE_CONNECTIONS: usize = 255;
/// How long idle connections are kept. It is less than the 5 s after which Node.js closes them, so that hardly any
/// request meets a connection that is being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long the answer may take when a connection is tried.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests. Clones share their connections. Only for threads that run tokio.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
}

/// A complete answer of a server.
#[derive(Debug)]
pub(crate) struct OutboundAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer. The text is for logs: it contains nothing of the request or the answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboundError {
    /// No connection could be made, or TLS does not trust the server.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection broke before the answer was complete, or the answer is not HTTP.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The answer is larger than this many bytes, which are allowed.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

impl OutboundError {
    /// Whether the server has answered, but with an unusable answer.
    pub(crate) fn is_of_answer(&self) -> bool {
        matches!(self, OutboundError::TooLarge(_))
    }
}

impl HttpClient {
    /// Makes a client that trusts servers according to `settings`; without such settings, it trusts the authorities of
    /// the system. `section`: the section of `settings`, for errors. `silence`: how long an HTTP/2 connection with
    /// requests under way may be silent before it is pinged. Without an answer in the same time, it takes no more
    /// requests.
    ///
    /// # Errors
    /// When a certificate, a key or an authority of the settings cannot be used.
    pub(crate) fn new(section: &str, settings: &ClientTlsSettings, silence: Duration) -> Result<Self, TlsError> {
        let connector = trusting(section, settings)?.enable_all_versions().wrap_connector(plain_connector());
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(silence)
            .http2_keep_alive_timeout(silence)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(HttpClient { client })
    }

    /// Sends a request and returns its answer, whose body is not read yet. See [`HttpClient::send`].
    ///
    /// # Errors
    /// [`OutboundError`] says why there is no answer.
    pub(crate) async fn begin(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, OutboundError> {
        self.client.request(request).await.map_err(|error| {
            let text = causes(&error);
            if error.is_connect() { OutboundError::Connect(text) } else { OutboundError::Broken(text) }
        })
    }

    /// Asks a server for its options, which changes nothing (RFC 9110, 9.2.1). Returns the status of its answer.
    ///
    /// # Errors
    /// Why the server cannot be reached.
    pub(crate) async fn try_connection(&self, uri: &Uri) -> Result<String, String> {
        let request = Request::options(uri.clone()).body(Full::default()).map_err(|error| error.to_string())?;
        // real time: a trial before a node runs.
        match tokio::time::timeout(TRIAL_TIMEOUT, self.begin(request)).await {
            Ok(answer) => answer.map(|answer| format!("answers (OPTIONS: {})", answer.status().as_u16())),
            Err(_) => return Err(format!("no answer within {} s", TRIAL_TIMEOUT.as_secs())),
        }
        .map_err(|error| error.to_string())
    }

    /// Sends a request and reads its answer, of at most `answer_max` bytes. A request is sent again only if a kept
    /// connection was closed before the server had taken any byte of it.
    ///
    /// # Errors
    /// [`OutboundError`] says why there is no answer.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        answer_max: usize,
    ) -> Result<OutboundAnswer, OutboundError> {
        let response = self.begin(request).await?;
        let (head, mut body) = response.into_parts();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| OutboundError::Broken(causes(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > answer_max {
                return Err(OutboundError::TooLarge(answer_max));
            }
            whole.extend_from_slice(&data);
        }
        Ok(OutboundAnswer { status: head.status, headers: head.headers, body: whole.freeze() })
    }
}

/// Reads a body that is not needed, up to `most` bytes, so that its connection can be used again. If the body is
/// longer, its connection is closed.
pub(crate) async fn discard(mut body: Incoming, most: usize) {
    let mut read = 0;
    while read <= most
        && let Some(Ok(frame)) = body.frame().await
    {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Makes the connector without TLS.
pub(super) fn plain_connector() -> HttpConnector<Resolver> {
    let mut connector = HttpConnector::new_with_resolver(Resolver::of_system());
    connector.set_nodelay(true);
    connector.enforce_http(false);
    connector
}

/// Makes a connector that uses TLS if the address says so, and trusts servers according to `settings`.
///
/// # Errors
/// When a certificate, a key or an authority of the settings cannot be used.
pub(super) fn trusting(
    section: &str,
    settings: &ClientTlsSettings,
) -> Result<HttpsConnectorBuilder<WantsProtocols1>, TlsError> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls::config(section, settings)?).https_or_http();
    if !settings.enabled || settings.server_name.is_empty() {
        return Ok(builder);
    }
    let name = ServerName::try_from(settings.server_name.clone()).map_err(|_| TlsError::Content {
        key: format!("{section}.server_name"),
        path: None,
        what: "name of a server",
    })?;
    Ok(builder.with_server_name_resolver(FixedServerNameResolver::new(name)))
}

/// The causes of an error in one line, the last first, because that is the one an operator can correct.
pub(super) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let wrapped = last.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match wrapped.and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            "the server does not speak TLS: is its address http://?".into()
        }
        _ => last.to_string(),
    }
}
