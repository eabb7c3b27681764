//! The cost of a publication over gRPC, compared with a bare tonic service that decodes the same message and answers
//! with an empty one.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::arguments::{GrpcOptions, Options};
use crate::process::Meter;
use crate::report::{Figure, Results};
use crate::rival::Rival;
use crate::server_under_test::ServerUnderTest;

const SCENARIO: &str = "gRPC";
const METHOD: &str = "/centrifugal.centrifugo.api.CentrifugoApi/Publish";
const CHANNEL: &str = "lab:nobody";
/// Fields of the request: the channel, and the publication (wire type 2, a length and bytes).
const CHANNEL_TAG: u8 = 0x0a;
const DATA_TAG: u8 = 0x12;
/// Of the calls of a round so many are made before it, and do not count.
const WARM_UP: u64 = 10;

/// Publishes in turns on a server and on the bare service.
pub(super) fn grpc(grpc: &GrpcOptions, options: &Options, results: &mut Results) -> Result<()> {
    let (server, address) = ServerUnderTest::start_with_grpc(options)?;
    let mut bare = Rival::start(&[grpc.bare.display().to_string()])?;
    let bare_address = bare.address()?;
    let mut pairs = Vec::new();
    for _ in 0..grpc.rounds {
        let own = measured(address, server.pid, grpc)?;
        pairs.push((own, measured(bare_address, bare.pid(), grpc)?));
    }
    results.compare(Figure::new(SCENARIO, "CPU of a publication / a bare service", "×").bound(1.3, 1.2), "µs", &pairs);
    Ok(())
}

/// CPU of a server for one call, microseconds.
fn measured(address: SocketAddr, pid: u32, grpc: &GrpcOptions) -> Result<f64> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let calls = connect(address).await?;
        publish(&calls, grpc.calls / WARM_UP, grpc.concurrency).await?;
        let meter = Meter::start(pid)?;
        publish(&calls, grpc.calls, grpc.concurrency).await?;
        Ok(meter.stop()? / grpc.calls as f64)
    })
}

async fn connect(address: SocketAddr) -> Result<PublishCalls> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let builder = http2::Builder::new(LocalTasks).timer(TokioTimer::new()).handshake(TokioIo::new(stream));
    let (sender, connection) = builder.await?;
    tokio::task::spawn_local(connection);
    Ok(PublishCalls { sender, address, message: message() })
}

/// A connection over which calls are made.
#[derive(Clone)]
struct PublishCalls {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    message: Bytes,
}

impl PublishCalls {
    /// Makes one call.
    async fn call(&mut self) -> Result<()> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}{METHOD}", self.address))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header(AUTHORIZATION, "apikey lab")
            .body(Full::new(self.message.clone()))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.headers().get("grpc-status").cloned();
        let whole = answer.into_body().collect().await?;
        let status = status.or_else(|| whole.trailers()?.get("grpc-status").cloned());
        // An error of the operation is the first field of the message.
        let has_error = whole.to_bytes().get(5) == Some(&CHANNEL_TAG);
        if status.as_ref().is_none_or(|status| status.as_bytes() != b"0") || has_error {
            bail!("a call was refused: {status:?}");
        }
        Ok(())
    }
}

/// Makes so many calls, some at a time.
async fn publish(calls: &PublishCalls, count: u64, concurrency: usize) -> Result<()> {
    let left = Rc::new(Cell::new(count));
    let loops = (0..concurrency).map(|_| {
        let (mut calls, left) = (calls.clone(), Rc::clone(&left));
        tokio::task::spawn_local(async move {
            while let Some(rest) = left.get().checked_sub(1) {
                left.set(rest);
                calls.call().await?;
            }
            Ok::<(), anyhow::Error>(())
        })
    });
    for one in loops.collect::<Vec<_>>() {
        one.await??;
    }
    Ok(())
}

/// A publication of some hundred bytes, with the prefix of a message.
fn message() -> Bytes {
    let data = format!(r#"{{"n":1,"text":"{}"}}"#, "x".repeat(100));
    let mut message = Vec::new();
    for (tag, field) in [(CHANNEL_TAG, CHANNEL), (DATA_TAG, &data)] {
        // All lengths are below 128, so each is one byte.
        message.extend([tag, field.len() as u8]);
        message.extend_from_slice(field.as_bytes());
    }
    let mut framed = vec![0, 0, 0, 0, message.len() as u8];
    framed.append(&mut message);
    framed.into()
}

/// Runs the client's tasks on the thread of the scenario.
#[derive(Clone)]
struct LocalTasks;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalTasks {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
