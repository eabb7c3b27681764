//! Serves `POST /api/trace` with `Accept: application/x-ndjson`: sends the frames of a trace as they happen, one line
//! of JSON each.
//!
//! The answer has no length, so it takes over its connection, and works over HTTP/1.1 only. It calls the operation
//! `trace` repeatedly, each time with the rights that the caller has at that moment.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::header::{ACCEPT, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri, Version};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::MissedTickBehavior;
use touchline_protocol::Error;

use super::callers::log_refused_operation;
use super::endpoint;
use super::operation::{OperationError, RequestNode};
use super::reply::ErrorMode;
use super::request_id::{X_REQUEST_ID, request_id};
use super::serve::serve;
use super::version::NEWEST;
use crate::node::Node;
use crate::transport::http::body::RequestBody;
use crate::transport::http::respond::{self, JSON};
use crate::transport::http::{Duplex, Origin, Routed};

/// The media type of lines of JSON.
const LINES: &str = "application/x-ndjson";
/// The head of the answer, which precedes the lines.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nCache-Control: no-store\r\n\
                      X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
/// The time between two calls of `trace`.
const STEP: Duration = Duration::from_millis(250);
/// How long one write may take.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// Whether a request wants a trace as a stream.
pub(super) fn is_wanted(request: &Request<RequestBody>) -> bool {
    let accepts = |value: &HeaderValue| value.as_bytes().starts_with(LINES.as_bytes());
    *request.method() == Method::POST
        && request.uri().path() == "/api/trace"
        && request.headers().get(ACCEPT).is_some_and(accepts)
}

/// Answers a request for a stream.
pub(super) async fn answer(origin: &Origin, mut request: Request<RequestBody>) -> Routed {
    let node = &origin.node;
    request.headers_mut().remove(ACCEPT);
    if request.version() != Version::HTTP_11 {
        let why = "a trace that is streamed needs HTTP/1.1\n";
        return Routed::Answer(respond::text(StatusCode::HTTP_VERSION_NOT_SUPPORTED, why));
    }
    let generation = node.generation();
    let Some(caller) = endpoint::caller(&generation, request.headers(), request.uri(), now_s(node)) else {
        return Routed::Answer(endpoint::answer(origin, request).await);
    };
    origin.pass.settle();
    caller.requests.fetch_add(1, Relaxed);
    let id = request_id(request.headers().get(&X_REQUEST_ID));
    let (parts, body) = request.into_parts();
    let limit = node.generation().settings.http_api.body_size_limit;
    let Ok((body, budget)) = body.read(limit).await else {
        return Routed::Answer(respond::text(StatusCode::BAD_REQUEST, "the body is too large, or incomplete\n"));
    };
    let question = question(&body);
    drop((body, budget));
    let (node, missing) = (Arc::clone(node), Value::Null);
    let mut stream = TraceStream { node, headers: parts.headers, uri: parts.uri, question, missing };
    match stream.ask(&json!({})).await {
        Ok(_) => Routed::TakeOver(Box::new(move |connection| Box::pin(stream.serve(connection)))),
        Err(refused) => {
            if let Some(refusal) = &refused.refusal {
                let id = id.to_str().unwrap_or_default();
                log_refused_operation(&origin.node, origin.remote, caller, id, "trace", refusal);
            }
            let mut answer = respond::body(refused.status, JSON, refused.body);
            answer.headers_mut().insert(X_REQUEST_ID.clone(), id);
            Routed::Answer(answer)
        }
    }
}

/// A call of `trace` that was refused.
struct RefusedTrace {
    status: StatusCode,
    body: Vec<u8>,
    /// None = the request was malformed, or its caller is not served.
    refusal: Option<OperationError>,
}

/// Makes the parameters of `trace` from a body, with an id of its own. A body that is not an object is refused by the
/// call.
fn question(body: &[u8]) -> Value {
    let mut question = serde_json::from_slice::<Value>(body).unwrap_or_default();
    if let Value::Object(fields) = &mut question {
        fields.insert("id".to_owned(), json!(format!("stream-{:016x}", fastrand::u64(..))));
    }
    question
}

fn now_s(node: &Node) -> u64 {
    node.clock.now_ms() / 1_000
}

/// A trace that is streamed to its caller.
struct TraceStream {
    node: Arc<Node>,
    /// The header fields of the request, which name the caller.
    headers: HeaderMap,
    uri: Uri,
    question: Value,
    /// The missing nodes that the last line about them named.
    missing: Value,
}

impl TraceStream {
    /// Returns what the trace has seen since the last call. `more`: additional fields of this call.
    ///
    /// # Errors
    /// The refusal of the operation.
    async fn ask(&mut self, more: &Value) -> Result<Value, RefusedTrace> {
        let node = Arc::clone(&self.node);
        let generation = node.generation();
        let Some(caller) = endpoint::caller(&generation, &self.headers, &self.uri, now_s(&node)) else {
            return Err(RefusedTrace { status: StatusCode::UNAUTHORIZED, body: Vec::new(), refusal: None });
        };
        let mut question = self.question.clone();
        if let (Value::Object(fields), Value::Object(more)) = (&mut question, more) {
            fields.extend(more.clone());
        }
        match serve(
            RequestNode::new(&node, &generation),
            &caller.rights,
            "trace",
            question.to_string().as_bytes(),
            NEWEST.number,
        )
        .await
        {
            Ok(reply) => {
                let (status, refusal) = (reply.status(ErrorMode::Inside), reply.refusal.clone());
                let body = reply.into_body(ErrorMode::Inside);
                match refusal {
                    None => Ok(serde_json::from_slice::<Value>(&body).unwrap_or_default()["result"].take()),
                    Some(refusal) => Err(RefusedTrace { status, body, refusal: Some(refusal) }),
                }
            }
            Err(malformed) => {
                let error = json!({"error": {"code": Error::BAD_REQUEST.code, "message": malformed.to_string()}});
                let body = error.to_string().into_bytes();
                Err(RefusedTrace { status: StatusCode::BAD_REQUEST, body, refusal: None })
            }
        }
    }

    /// Writes the frames until the trace ends, the caller disconnects, or the node stops.
    async fn serve(mut self, connection: Box<dyn Duplex>) {
        self.write(connection).await;
        // No later call follows.
        drop(self.ask(&json!({"end": true})).await);
    }

    /// Sends bytes within the time limit. False = the caller does not read, or the node stops.
    async fn send(&self, connection: &mut Box<dyn Duplex>, bytes: &[u8]) -> bool {
        tokio::select! {
            written = self.node.clock.time().timeout(WRITE_TIME, connection.write_all(bytes)) => {
                matches!(written, Ok(Ok(())))
            }
            () = self.node.drain.begun() => false,
        }
    }

    async fn write(&mut self, mut connection: Box<dyn Duplex>) {
        if !self.send(&mut connection, HEAD).await {
            return;
        }
        // real time: a heartbeat that reads the node's clock.
        let mut steps = tokio::time::interval(STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut input = [0; 64];
        loop {
            tokio::select! {
                _ = steps.tick() => {}
                () = self.node.drain.begun() => return,
                read = connection.read(&mut input) => match read {
                    Ok(1..) => continue,
                    _ => return,
                },
            }
            let Ok(seen) = self.ask(&json!({})).await else { return };
            let lines = lines(&seen, &mut self.missing);
            if !lines.is_empty() && !self.send(&mut connection, lines.as_bytes()).await {
                return;
            }
            if seen["ended"] == true {
                let _ = connection.shutdown().await;
                return;
            }
        }
    }
}

/// Returns the lines for the frames. `missing`: the missing nodes of the last line about them. A line names them again
/// when they change.
fn lines(seen: &Value, missing: &mut Value) -> String {
    let frames = seen["frames"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines: String = frames.iter().map(|frame| format!("{frame}\n")).collect();
    if seen["left_out"].as_u64().is_some_and(|left_out| left_out > 0) {
        lines.push_str(&format!("{}\n", json!({"left_out": seen["left_out"]})));
    }
    if seen["missing_nodes"] != *missing {
        *missing = seen["missing_nodes"].clone();
        lines.push_str(&format!("{}\n", json!({"missing_nodes": missing})));
    }
    if seen["ended"] == true {
        lines.push_str("{\"ended\":true}\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_a_line_for_each_frame() {
        let frames = json!([{"kind": "reply"}, {"kind": "ping"}]);
        let seen = json!({"frames": frames, "left_out": 2, "ended": true, "missing_nodes": ["b"]});
        let expected = concat!(
            "{\"kind\":\"reply\"}\n{\"kind\":\"ping\"}\n{\"left_out\":2}\n",
            "{\"missing_nodes\":[\"b\"]}\n{\"ended\":true}\n"
        );
        let mut missing = Value::Null;
        assert_eq!(lines(&seen, &mut missing), expected);
        let nothing = json!({"frames": [], "left_out": 0, "ended": false});
        assert_eq!(lines(&json!({"missing_nodes": ["b"]}), &mut missing), "");
        assert_eq!(lines(&nothing, &mut missing), "{\"missing_nodes\":null}\n");
        assert_eq!(lines(&nothing, &mut missing), "");
    }

    #[test]
    fn a_question_has_an_id_of_its_own() {
        let asked = question(br#"{"id":"mine","user":"ana"}"#);
        assert!(asked["user"] == "ana" && asked["id"].as_str().is_some_and(|id| id.starts_with("stream-")));
        assert_eq!(question(b"[]"), json!([]));
    }
}
