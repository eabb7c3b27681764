//! The live connections of the console. A connection speaks the protocol of clients in JSON. Its subscriptions are
//! operations, which the node runs repeatedly while they last. These connections are not sessions, and neither channels
//! nor statistics count them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::{Method, Request, StatusCode, Version};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::MissedTickBehavior;
use touchline_protocol::websocket::{Assembly, FrameEvent, Opcode, Role, encode_close, encode_frame};
use touchline_protocol::{Disconnect, Error};

use super::running::run;
use crate::api::table::reads;
use crate::console::{ConsoleRole, ConsoleSigner};
use crate::node::Node;
use crate::runtime::frame_trace::TRACE_SECONDS_MAX;
use crate::runtime::process::VERSION;
use crate::transport::handshake::accept_key;
use crate::transport::http::body::RequestBody;
use crate::transport::http::respond;
use crate::transport::http::{Duplex, Origin, Routed};

/// The most live connections of a node.
const CONNECTIONS_MAX: usize = 32;
/// The most subscriptions of a live connection.
const SUBSCRIPTIONS_MAX: usize = 16;
/// The largest message of a live connection, in bytes.
const MESSAGE_SIZE_MAX: usize = 16 * 1_024;
/// The prefix of channels that stand for operations.
const LIVE: &str = "$console:live:";
/// The prefix of channels that stand for traces.
const TRACE: &str = "$console:trace:";
/// How often traces are read.
const STEP: Duration = Duration::from_millis(250);
/// How often operations are run again.
const OPERATION_STEP: Duration = Duration::from_secs(1);
/// A result that has not changed is sent again after this time.
const REPEAT: Duration = Duration::from_secs(10);
/// How often the node sends a ping, seconds.
const PING: u64 = 25;
/// How long a client may take to send its `connect`, in seconds.
const CONNECT_TIME_S: u64 = 5;
/// The longest answer that is published, in bytes.
const ANSWER_SIZE_MAX: usize = 256 * 1_024;
/// The most traces of a live connection. A node has few traces, and other connections may need one.
const CONNECTION_TRACES_MAX: usize = 2;
/// After a round of operations, the pause is this many times as long as the round.
const REST: u32 = 4;
/// A trace that was refused is tried again after this time.
const RETRY: Duration = Duration::from_secs(5);
/// Operations that may be read, but not repeatedly, because their answers are large.
const NOT_LIVE: &[&str] = &["history"];
/// The operation that traces. Viewers may run it here, without payloads.
const TRACE_OPERATION: &str = "trace";
/// How long a write may take.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// How long the last write may take.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The reason for the end of a connection that its client has closed.
const LEFT: Disconnect = Disconnect { code: 1_000, reason: Cow::Borrowed("") };

/// A permit for one live connection of a node.
struct Place(Arc<Node>);

impl Place {
    fn take(node: &Arc<Node>) -> Option<Place> {
        let is_free = |taken| (taken < CONNECTIONS_MAX).then_some(taken + 1);
        node.console.live.fetch_update(Relaxed, Relaxed, is_free).ok().map(|_| Place(Arc::clone(node)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.console.live.fetch_sub(1, Relaxed);
    }
}

/// Answers a request for a live connection.
pub(super) fn upgrade(origin: &Origin, request: &Request<RequestBody>) -> Routed {
    let Some(place) = Place::take(&origin.node) else {
        return Routed::Answer(respond::text(StatusCode::SERVICE_UNAVAILABLE, "too many live connections\n"));
    };
    let mut answer = respond::text(StatusCode::OK, "");
    if request.version() == Version::HTTP_2 {
        if *request.method() != Method::CONNECT {
            return Routed::Answer(respond::text(StatusCode::BAD_REQUEST, "the request is not a WebSocket upgrade\n"));
        }
    } else {
        let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY) else {
            return Routed::Answer(respond::text(StatusCode::BAD_REQUEST, "the request is not a WebSocket upgrade\n"));
        };
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let fields = answer.headers_mut();
        fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::try_from(accept_key(key.as_bytes())) {
            fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
    }
    let node = Arc::clone(&origin.node);
    Routed::HandOver(
        answer,
        Box::new(move |stream| {
            Box::pin(async move {
                let _place = place;
                LiveConnection::new(node, stream).serve().await;
            })
        }),
    )
}

/// A subscription of a live connection.
enum LiveSubscription {
    Operation(LiveOperation),
    Trace(LiveTrace),
}

/// A subscribed operation with its parameters, and what was sent last.
struct LiveOperation {
    operation: String,
    params: Vec<u8>,
    /// A hash of the answer that was sent last.
    last: u64,
    sent_at: Option<Instant>,
}

/// A subscribed trace.
struct LiveTrace {
    /// The parameters of the operation `trace`.
    question: Value,
    /// A trace of a channel is renewed until it is unsubscribed.
    is_endless: bool,
    has_ended: bool,
    /// The trace was refused, and is tried again at this time.
    retry_at: Option<Instant>,
}

/// A live connection of the console.
struct LiveConnection {
    node: Arc<Node>,
    stream: Box<dyn Duplex>,
    signer: Rc<ConsoleSigner>,
    /// The role of the token and its expiry in Unix seconds; None = the client has not sent a token.
    role: Option<(ConsoleRole, u64)>,
    subscriptions: BTreeMap<String, LiveSubscription>,
    has_spoken_s: u64,
    began_s: u64,
    /// Operations are not run before this time.
    rests_until: Instant,
    hasher: RandomState,
    /// Distinguishes the traces of this connection from those of others.
    number: u64,
    /// The number of traces so far, from which each gets an id of its own.
    traces: u64,
}

impl LiveConnection {
    fn new(node: Arc<Node>, stream: Box<dyn Duplex>) -> Self {
        let generation = node.generation();
        let admin = &generation.settings.admin;
        let signer = Rc::new(ConsoleSigner::new(&admin.secret, &admin.password, &admin.viewer_password));
        let (has_spoken_s, rests_until) = (node.clock.now_ms() / 1_000, node.clock.time().now());
        LiveConnection {
            node,
            stream,
            signer,
            role: None,
            subscriptions: BTreeMap::new(),
            has_spoken_s,
            began_s: has_spoken_s,
            rests_until,
            hasher: RandomState::new(),
            number: fastrand::u64(..),
            traces: 0,
        }
    }

    fn now(&self) -> Instant {
        self.node.clock.time().now()
    }

    fn now_s(&self) -> u64 {
        self.node.clock.now_ms() / 1_000
    }

    /// Serves the connection until either side ends it.
    async fn serve(mut self) {
        let mut assembly = Assembly::default();
        // real time: a heartbeat that reads the node's clock.
        let mut ticks = tokio::time::interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut piece = vec![0; MESSAGE_SIZE_MAX];
        let mut next_ping_s = self.now_s() + PING;
        loop {
            let end = tokio::select! {
                read = self.stream.read(&mut piece) => match read {
                    Ok(length @ 1..) => {
                        self.has_spoken_s = self.now_s();
                        self.receive(&mut assembly, &mut piece[..length]).await
                    }
                    _ => Err(LEFT),
                },
                _ = ticks.tick() => {
                    if self.now_s() >= next_ping_s {
                        next_ping_s = self.now_s() + PING;
                        self.send(Opcode::Text, b"{}").await
                    } else {
                        self.step().await
                    }
                }
                () = self.node.drain.begun() => Err(Disconnect::SHUTDOWN),
            };
            if let Err(why) = end {
                self.end_traces().await;
                let mut frame = Vec::new();
                encode_close(why.code, &why.reason, &mut frame);
                let _ = self.node.clock.time().timeout(CLOSE_TIME, self.stream.write_all(&frame)).await;
                return;
            }
        }
    }

    /// Ends the traces of the connection, because no later call will read them.
    async fn end_traces(&mut self) {
        for live in std::mem::take(&mut self.subscriptions).into_values() {
            self.end_trace(live).await;
        }
    }

    /// Ends the trace of a subscription, if it has one.
    async fn end_trace(&self, live: LiveSubscription) {
        if let (LiveSubscription::Trace(mut live), Some((role, _))) = (live, self.role) {
            live.question["end"] = json!(true);
            run(&self.node, role, TRACE_OPERATION, live.question.to_string().as_bytes()).await;
        }
    }

    /// Sends a frame: the only function that writes while the connection lasts. It has a time limit, and a drain ends
    /// it.
    async fn send(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), Disconnect> {
        let mut frame = Vec::with_capacity(payload.len() + 16);
        encode_frame(opcode, payload, &mut frame);
        tokio::select! {
            biased;
            written = self.node.clock.time().timeout(WRITE_TIME, self.stream.write_all(&frame)) => match written {
                Ok(Ok(())) => Ok(()),
                _ => Err(Disconnect::SLOW),
            },
            () = self.node.drain.begun() => Err(Disconnect::SHUTDOWN),
        }
    }

    async fn receive(&mut self, assembly: &mut Assembly, input: &mut [u8]) -> Result<(), Disconnect> {
        let mut at = 0;
        loop {
            let event = assembly.next(Role::Server, MESSAGE_SIZE_MAX, input, &mut at);
            let message = match event.map_err(|_| Disconnect::BAD_REQUEST)? {
                None => return Ok(()),
                Some(FrameEvent::Text(text)) => text.to_owned(),
                Some(FrameEvent::Ping(payload)) => {
                    self.send(Opcode::Pong, payload).await?;
                    continue;
                }
                Some(FrameEvent::Pong(_)) => continue,
                Some(FrameEvent::Close { code, .. }) => {
                    return Err(Disconnect { code: code.unwrap_or(LEFT.code), reason: LEFT.reason });
                }
                Some(FrameEvent::Binary(_)) => return Err(Disconnect::BAD_REQUEST),
            };
            for line in message.split('\n').filter(|line| !line.trim().is_empty()) {
                let command: Value = serde_json::from_str(line).map_err(|_| Disconnect::BAD_REQUEST)?;
                self.command(&command).await?;
            }
        }
    }

    async fn command(&mut self, command: &Value) -> Result<(), Disconnect> {
        let Some(id) = command["id"].as_u64().filter(|id| *id > 0) else {
            // The command is a pong.
            return Ok(());
        };
        let reply = if let Some(connect) = command.get("connect").or_else(|| command.get("refresh")) {
            self.authenticate(command.get("refresh").is_some(), connect)
        } else if self.role.is_none() {
            return Err(Disconnect::BAD_REQUEST);
        } else if let Some(subscribe) = command.get("subscribe") {
            self.subscribe(subscribe["channel"].as_str().unwrap_or_default())
        } else if let Some(unsubscribe) = command.get("unsubscribe") {
            let channel = unsubscribe["channel"].as_str().unwrap_or_default();
            if let Some(live) = self.subscriptions.remove(channel) {
                self.end_trace(live).await;
            }
            json!({"unsubscribe": {}})
        } else {
            error(Error::METHOD_NOT_FOUND)
        };
        let mut reply = reply;
        reply["id"] = json!(id);
        self.send(Opcode::Text, reply.to_string().as_bytes()).await
    }

    fn authenticate(&mut self, is_refresh: bool, request: &Value) -> Value {
        let token = request["token"].as_str().unwrap_or_default();
        let now_s = self.now_s();
        match self.signer.role_of(token, now_s) {
            None => error(Error::TOKEN_EXPIRED),
            Some((role, ends_s)) => {
                self.role = Some((role, ends_s));
                let ttl = ends_s - now_s;
                if is_refresh {
                    json!({"refresh": {"client": "console", "version": VERSION, "expires": true, "ttl": ttl}})
                } else {
                    let ping = PING;
                    json!({"connect": {
                        "client": "console", "version": VERSION, "expires": true, "ttl": ttl, "ping": ping,
                        "pong": true,
                    }})
                }
            }
        }
    }

    fn subscribe(&mut self, channel: &str) -> Value {
        let live = if let Some((operation, params)) = read_channel(channel) {
            if !reads(&operation) || NOT_LIVE.contains(&operation.as_str()) {
                return error(Error::PERMISSION_DENIED);
            }
            LiveSubscription::Operation(LiveOperation { operation, params, last: 0, sent_at: None })
        } else if let Some(target) = read_target(channel) {
            let is_trace = |live: &&LiveSubscription| matches!(live, LiveSubscription::Trace(_));
            if self.subscriptions.values().filter(is_trace).count() >= CONNECTION_TRACES_MAX {
                return error(Error::LIMIT_EXCEEDED);
            }
            LiveSubscription::Trace(self.trace(target))
        } else {
            return error(Error::UNKNOWN_CHANNEL);
        };
        if self.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return error(Error::LIMIT_EXCEEDED);
        }
        if self.subscriptions.contains_key(channel) {
            return error(Error::ALREADY_SUBSCRIBED);
        }
        self.subscriptions.insert(channel.to_owned(), live);
        json!({"subscribe": {}})
    }

    /// Makes a trace of a target, which has not begun.
    fn trace(&mut self, target: Value) -> LiveTrace {
        let is_endless = target.get("channel").is_some();
        let may_show = is_endless || self.node.generation().settings.admin.trace_payloads;
        let is_operator = self.role.is_some_and(|(role, _)| role == ConsoleRole::Operator);
        let mut question = target;
        question["id"] = json!(self.next_trace());
        question["seconds"] = json!(TRACE_SECONDS_MAX);
        question["payloads"] = json!(may_show && is_operator);
        LiveTrace { question, is_endless, has_ended: false, retry_at: None }
    }

    /// Returns the id of the next trace.
    fn next_trace(&mut self) -> String {
        self.traces += 1;
        format!("console-{:016x}-{}", self.number, self.traces)
    }

    /// Runs the operations, and sends the results that have changed.
    async fn step(&mut self) -> Result<(), Disconnect> {
        let now_s = self.now_s();
        if now_s > self.has_spoken_s + 3 * PING {
            return Err(Disconnect::NO_PONG);
        }
        let (role, ends_s) = match self.role {
            Some(known) => known,
            None if now_s < self.began_s + CONNECT_TIME_S => return Ok(()),
            None => return Err(Disconnect::STALE),
        };
        if now_s >= ends_s {
            return Err(Disconnect::EXPIRED);
        }
        let began = self.now();
        let are_operations_due = began >= self.rests_until;
        let mut subscriptions = std::mem::take(&mut self.subscriptions);
        let mut outcome = Ok(());
        for (channel, live) in &mut subscriptions {
            let push = match live {
                LiveSubscription::Operation(live) if are_operations_due => {
                    self.run_operation(role, channel, live).await
                }
                LiveSubscription::Operation(_) => None,
                LiveSubscription::Trace(live) => self.ask_trace(role, channel, live).await,
            };
            if let Some(push) = push {
                outcome = self.send(Opcode::Text, push.as_bytes()).await;
            }
            if outcome.is_err() {
                break;
            }
        }
        self.subscriptions = subscriptions;
        if are_operations_due {
            let ended = self.now();
            self.rests_until = (began + OPERATION_STEP).max(ended + (ended - began) * REST);
        }
        outcome
    }

    /// Runs an operation, and returns what is to be pushed.
    async fn run_operation(&self, role: ConsoleRole, channel: &str, live: &mut LiveOperation) -> Option<String> {
        let (_, mut answered, _) = run(&self.node, role, &live.operation, &live.params).await;
        if answered.len() > ANSWER_SIZE_MAX {
            answered = error(Error::LIMIT_EXCEEDED).to_string().into_bytes();
        }
        let is_old = live.sent_at.is_none_or(|sent_at| self.now() >= sent_at + REPEAT);
        let hash = self.hasher.hash_one(&answered);
        if hash == live.last && !is_old {
            return None;
        }
        (live.last, live.sent_at) = (hash, Some(self.now()));
        push(channel, self.node.clock.now_ms(), &answered)
    }

    /// Reads a trace, and returns what is to be pushed.
    async fn ask_trace(&mut self, role: ConsoleRole, channel: &str, live: &mut LiveTrace) -> Option<String> {
        if live.has_ended || live.retry_at.is_some_and(|retry_at| self.now() < retry_at) {
            return None;
        }
        let (_, answered, refused) = run(&self.node, role, TRACE_OPERATION, live.question.to_string().as_bytes()).await;
        let answered: BTreeMap<&str, &RawValue> = serde_json::from_slice(&answered).ok()?;
        if refused.is_some() {
            live.retry_at = Some(self.now() + RETRY);
            return publication(channel, self.node.clock.now_ms(), answered);
        }
        let result: BTreeMap<&str, &RawValue> = serde_json::from_str(answered.get("result")?.get()).ok()?;
        let is = |name: &str, value: &str| result.get(name).is_some_and(|field| field.get() == value);
        let has_ended = is("ended", "true");
        if has_ended && live.is_endless {
            live.question["id"] = json!(self.next_trace());
        }
        live.has_ended = has_ended && !live.is_endless;
        let is_empty = is("frames", "[]") && is("left_out", "0");
        let is_silent = is_empty && !live.has_ended;
        if is_silent { None } else { publication(channel, self.node.clock.now_ms(), result) }
    }
}

/// Returns what a channel for a trace selects: an object with `channel`, `client` or `user`.
fn read_target(channel: &str) -> Option<Value> {
    let target = URL_SAFE_NO_PAD.decode(channel.strip_prefix(TRACE)?).ok()?;
    let target: BTreeMap<String, String> = serde_json::from_slice(&target).ok()?;
    let is_known = target.keys().all(|name| ["channel", "client", "user"].contains(&name.as_str()));
    (is_known && target.len() == 1).then(|| json!(target))
}

/// Returns the operation that a channel stands for, and its parameters.
fn read_channel(channel: &str) -> Option<(String, Vec<u8>)> {
    let (operation, params) = channel.strip_prefix(LIVE)?.split_once(':')?;
    let params = URL_SAFE_NO_PAD.decode(params).ok()?;
    Some((operation.to_owned(), params))
}

/// Makes a publication from an answer.
fn push(channel: &str, at_ms: u64, answered: &[u8]) -> Option<String> {
    publication(channel, at_ms, serde_json::from_slice(answered).ok()?)
}

/// Makes a publication with these fields and its time.
fn publication<'p>(channel: &'p str, at_ms: u64, fields: BTreeMap<&'p str, &'p RawValue>) -> Option<String> {
    let mut fields = fields;
    let at_ms = RawValue::from_string(at_ms.to_string()).ok()?;
    fields.insert("at_ms", &at_ms);
    serde_json::to_string(&LivePush { push: ChannelPush { channel, publication: DataOf { data: fields } } }).ok()
}

#[derive(Serialize)]
struct LivePush<'p> {
    push: ChannelPush<'p>,
}

#[derive(Serialize)]
struct ChannelPush<'p> {
    channel: &'p str,
    #[serde(rename = "pub")]
    publication: DataOf<'p>,
}

#[derive(Serialize)]
struct DataOf<'p> {
    data: BTreeMap<&'p str, &'p RawValue>,
}

fn error(error: Error) -> Value {
    json!({"error": {"code": error.code, "message": error.message, "temporary": error.temporary}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_stands_for_an_operation_with_its_parameters() {
        let params = URL_SAFE_NO_PAD.encode(r#"{"channel":"a"}"#);
        let read = read_channel(&format!("$console:live:history:{params}"));
        assert_eq!(read, Some(("history".to_owned(), br#"{"channel":"a"}"#.to_vec())));
        for channel in ["history", "$console:live:history", "$console:live:history:?", "$console:tail:a"] {
            assert_eq!(read_channel(channel), None, "{channel}");
        }
    }

    #[test]
    fn an_answer_is_published_as_it_is() {
        let push = push("$console:live:a:e30", 7, br#"{"result":{"n":1.50}}"#).expect("an answer is JSON");
        let expected = r#"{"at_ms":7,"result":{"n":1.50}}"#;
        assert_eq!(push, format!(r#"{{"push":{{"channel":"$console:live:a:e30","pub":{{"data":{expected}}}}}}}"#));
    }
}
