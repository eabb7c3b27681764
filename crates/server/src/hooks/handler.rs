//! Hooks in Rust, for programs that embed the server.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;
use serde_json::{Value, json};
use touchline_engine::hook::HookCall;

/// The future of a handler's answer.
pub type HookFuture = Pin<Box<dyn Future<Output = HookAnswer> + Send>>;

/// The client that a question is about.
#[derive(Debug, Clone)]
pub struct HookClient {
    /// The client id, a UUID in its usual form.
    pub id: String,
    /// The transport: `websocket`, `sse`, `http_stream`, `uni_websocket`, `uni_sse`, `uni_http_stream` or `tcp`. Empty
    /// = the question is about a name of the registry.
    pub transport: &'static str,
    /// The encoding of the client's messages: `json` or `protobuf`.
    pub protocol: &'static str,
}

/// The answer of a handler. The server checks it like an answer over HTTP. `docs/guides/hooks.md` has the fields of
/// each hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookAnswer(Value);

impl HookAnswer {
    /// Returns the answer `{}`. It allows a subscribe and a publish. A connect gets no credentials, and an expiring
    /// connection ends.
    pub fn empty() -> Self {
        HookAnswer(json!({}))
    }

    /// Returns a result with these fields. A value that cannot be written as JSON counts as a missing answer.
    pub fn result(result: impl Serialize) -> Self {
        HookAnswer(serde_json::to_value(result).map_or(Value::Null, |result| json!({ "result": result })))
    }

    /// Returns an error for the client. `code`: 400–1999. `temporary`: the client may retry.
    pub fn error(code: u32, message: &str, temporary: bool) -> Self {
        HookAnswer(json!({ "error": { "code": code, "message": message, "temporary": temporary } }))
    }

    /// Ends the connection. `code`: 4000–4499 if the client is to reconnect, 4500–4999 if it is not.
    pub fn disconnect(code: u16, reason: &str) -> Self {
        HookAnswer(json!({ "disconnect": { "code": code, "reason": reason } }))
    }

    /// Returns the answer as it would arrive over HTTP.
    pub(super) fn json(&self) -> String {
        self.0.to_string()
    }
}

/// Answers the hooks that are on and have no `endpoint`. Questions and answers are the same as over HTTP.
///
/// The server calls the handler on the thread that asks backends, so it must not block. Slow work belongs in the
/// future. A future that is not ready within the hook's `timeout` is dropped, and counts as a failure. A future that
/// panics counts as a failure too.
pub trait HookHandler: Send + Sync + 'static {
    /// Answers a question about a client.
    fn answer(&self, client: HookClient, call: HookCall) -> HookFuture;
}
