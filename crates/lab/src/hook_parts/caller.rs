//! The bare loop: it only calls the backend with the HTTP client that the server uses for hooks.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::part::say;
use crate::socket::trusting_config;

/// As the client of the server has them (`crates/server/src/outbound/client.rs`).
const IDLE_CONNECTIONS: usize = 255;
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

type LabClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A task of the loop. Each task is answered by a [`CallerDone`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallerTask {
    pub(crate) url: String,
    /// The body of every request.
    pub(crate) body: String,
    /// Number of requests.
    pub(crate) calls: u64,
    /// Requests at a time.
    pub(crate) concurrency: usize,
}

/// Every request of a task has its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallerDone {
    pub(crate) seconds: f64,
}

/// Runs tasks until standard input ends.
pub(crate) fn run() -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = client();
    for line in std::io::stdin().lock().lines() {
        let task: CallerTask = serde_json::from_str(&line?)?;
        let began = Instant::now();
        runtime.block_on(call(&client, &task))?;
        say(&CallerDone { seconds: began.elapsed().as_secs_f64() })?;
    }
    Ok(())
}

fn client() -> LabClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(trusting_config()).https_or_http();
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(builder.enable_all_versions().wrap_connector(connector))
}

/// Sends the requests of a task, and waits for all answers.
async fn call(client: &LabClient, task: &CallerTask) -> Result<()> {
    let uri: Uri = task.url.parse().context("not an address")?;
    let body = Bytes::from(task.body.clone());
    let left = Arc::new(AtomicU64::new(task.calls));
    let mut loops = JoinSet::new();
    for _ in 0..task.concurrency {
        let (client, uri, body, left) = (client.clone(), uri.clone(), body.clone(), Arc::clone(&left));
        loops.spawn(async move {
            while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                call_once(&client, &uri, &body).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}

async fn call_once(client: &LabClient, uri: &Uri, body: &Bytes) -> Result<()> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let (head, mut body) = client.request(request).await?.into_parts();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    if head.status != StatusCode::OK || whole.is_empty() {
        bail!("the backend answered {} with {} bytes", head.status, whole.len());
    }
    Ok(())
}
