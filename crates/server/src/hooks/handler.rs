//! Hooks in Rust, for programs that embed the server.

use std::future::Future;
use std::pin::Pin;

use touchline_engine::hook::{HookCall, HookOutcome};

/// The future of an answer.
pub type HookFuture = Pin<Box<dyn Future<Output = HookOutcome> + Send>>;

/// The client that a question is about.
#[derive(Debug, Clone)]
pub struct HookClient {
    /// The client id, a UUID in its usual form.
    pub id: String,
    /// The transport: `websocket`, `sse`, `http_stream`, `uni_websocket`, `uni_sse`, `uni_http_stream`, `tcp`.
    pub transport: &'static str,
    /// The encoding of the client's messages: `json` or `protobuf`.
    pub protocol: &'static str,
}

/// Answers the hooks that are switched on and have no `endpoint`, with the same questions and answers as over HTTP.
///
/// It is called on the thread that asks backends, so it must not block: what takes time belongs into the future. A
/// future that is not ready within the hook's `timeout` is dropped, and counts as a failure.
pub trait HookHandler: Send + Sync + 'static {
    /// Answers a question.
    fn answer(&self, client: HookClient, call: HookCall) -> HookFuture;
}
