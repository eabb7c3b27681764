//! Hooks in Rust, for programs that embed the server.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;
use serde_json::{Value, json};
use touchline_engine::hook::HookCall;

/// The future of an answer.
pub type HookFuture = Pin<Box<dyn Future<Output = HookAnswer> + Send>>;

/// The client that a question is about.
#[derive(Debug, Clone)]
pub struct HookClient {
    /// The client id, a UUID in its usual form.
    pub id: String,
    /// The transport: `websocket`, `sse`, `http_stream`, `uni_websocket`, `uni_sse`, `uni_http_stream`, `tcp`; empty =
    /// the question is about a name of the registry.
    pub transport: &'static str,
    /// The encoding of the client's messages: `json` or `protobuf`.
    pub protocol: &'static str,
}

/// An answer, which is checked as one that comes over HTTP: see `docs/guides/hooks.md` for the fields of each hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookAnswer(Value);

impl HookAnswer {
    /// `{}`: subscribe and publish are allowed, a connect has no credentials, a connection that expires ends.
    pub fn empty() -> Self {
        HookAnswer(json!({}))
    }

    /// A result with these fields. What cannot be written as JSON counts as no answer.
    pub fn result(result: impl Serialize) -> Self {
        HookAnswer(serde_json::to_value(result).map_or(Value::Null, |result| json!({ "result": result })))
    }

    /// An error for the client. `code`: 400–1999.
    pub fn error(code: u32, message: &str, temporary: bool) -> Self {
        HookAnswer(json!({ "error": { "code": code, "message": message, "temporary": temporary } }))
    }

    /// Ends the connection. `code`: 4000–4499 for clients that are to come back, 4500–4999 for good.
    pub fn disconnect(code: u16, reason: &str) -> Self {
        HookAnswer(json!({ "disconnect": { "code": code, "reason": reason } }))
    }

    /// The answer as it would come over HTTP.
    pub(super) fn json(&self) -> String {
        self.0.to_string()
    }
}

/// Answers the hooks that are switched on and have no `endpoint`, with the same questions and answers as over HTTP.
///
/// It is called on the thread that asks backends, so it must not block: what takes time belongs into the future. A
/// future that is not ready within the hook's `timeout` is dropped, and counts as a failure. One that panics counts as
/// a failure too.
pub trait HookHandler: Send + Sync + 'static {
    /// Answers a question.
    fn answer(&self, client: HookClient, call: HookCall) -> HookFuture;
}
