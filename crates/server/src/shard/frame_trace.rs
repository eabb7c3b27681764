//! What a shard shows in frame traces: messages of clients, output to clients, and publications into channels.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Deserializer, Value};
use touchline_engine::directory::client_text;
use touchline_engine::request::ChannelRequest;
use touchline_protocol::Wire;
use touchline_protocol::message::Encoding;
use touchline_protocol::stream::{ChannelName, StreamPosition};
use touchline_protocol::wire::Framing;

use super::connections::Connection;
use super::queue::OutputKind;
use super::state::Shard;
use crate::node::Node;
use crate::runtime::frame_trace::{PAYLOAD_SHOWN_MAX, TraceTarget, TracedFrame};

/// Fields of a command that contain secrets: tokens, and header fields that a client has sent for a proxy.
const SECRETS: [&str; 2] = ["token", "headers"];
/// Fields of a reply that contain secrets. With the session, a client sends commands by other requests.
const OWN_SECRETS: [&str; 2] = ["session", "token"];
/// Fields whose name is the method of a command.
const METHODS: [&str; 12] = [
    "connect",
    "subscribe",
    "unsubscribe",
    "publish",
    "presence",
    "presence_stats",
    "history",
    "ping",
    "send",
    "rpc",
    "refresh",
    "sub_refresh",
];
/// How many bytes of a name are shown.
const NAME_SHOWN_MAX: usize = 255;
/// Fields whose content belongs to the application.
const PAYLOADS: [&str; 2] = ["data", "b64data"];

/// A publication into a channel that is traced.
pub(super) struct TracedPublication {
    channel: ChannelName,
    data: Bytes,
}

impl TracedPublication {
    /// Shows the publication in the traces. `position`: None = it has none, or the log backend has not reported it yet.
    pub(super) fn show(self, node: &Node, position: Option<&StreamPosition>) {
        let now_ms = node.clock.now_ms();
        let TracedPublication { channel, data } = self;
        let follows = |target: &TraceTarget| matches!(target, TraceTarget::Channel(traced) if **traced == *channel);
        node.frame_traces.keep(now_ms, follows, |has_payload| {
            let (payload, binary) = shown(&data).filter(|_| has_payload).unzip();
            TracedFrame {
                at_ms: now_ms,
                kind: "publication".to_owned(),
                channel: channel.to_string(),
                offset: position.map_or(0, |position| position.offset.0),
                size: data.len() as u64,
                payload,
                binary: binary.unwrap_or_default(),
                ..TracedFrame::default()
            }
        });
    }
}

impl Shard {
    /// The publication that a request makes, if its channel is traced; None = the channel is not traced, or the request
    /// is another one.
    pub(super) fn traced_publication(
        &self,
        channel: &ChannelName,
        request: &ChannelRequest,
    ) -> Option<TracedPublication> {
        let ChannelRequest::Publish(publish) = request else { return None };
        let follows = |target: &TraceTarget| matches!(target, TraceTarget::Channel(traced) if **traced == **channel);
        let is_traced = self.node.frame_traces.follow(self.now_ms, follows);
        is_traced.then(|| TracedPublication { channel: channel.clone(), data: publish.content.data.clone() })
    }

    /// Shows a message of a client in the traces, if the client is traced.
    #[inline]
    pub(super) fn trace_message(&self, slot: u32, input: &[u8]) {
        if self.node.frame_traces.follow_clients() {
            self.show_message(slot, input);
        }
    }

    /// Shows the output that is about to be written to a client in the traces, if the client is traced.
    #[inline]
    pub(super) fn trace_output(&self, slot: u32) {
        if self.node.frame_traces.follow_clients() {
            self.show_output(slot);
        }
    }

    #[cold]
    fn show_message(&self, slot: u32, input: &[u8]) {
        let Some(connection) = self.connections.get(slot).filter(|connection| self.is_traced(connection)) else {
            return;
        };
        let message = TracedMessage::received(connection.wire, input);
        self.trace(connection, "in", || message.clone());
    }

    #[cold]
    fn show_output(&self, slot: u32) {
        let Some(connection) = self.connections.get(slot).filter(|connection| self.is_traced(connection)) else {
            return;
        };
        self.outbox.noted(&connection.due, |frame, kind| {
            for message in TracedMessage::sent(connection.wire, frame, kind) {
                self.trace(connection, "out", || message.clone());
            }
        });
    }

    /// Whether the client of a connection, or its user, is traced.
    fn is_traced(&self, connection: &Connection) -> bool {
        let (owner, user) = (connection.session.owner(), connection.session.user());
        self.node.frame_traces.follow(self.now_ms, |target| is_of(target, owner, user))
    }

    fn trace(&self, connection: &Connection, direction: &str, message: impl Fn() -> TracedMessage) {
        let (owner, user) = (connection.session.owner(), connection.session.user());
        self.node.frame_traces.keep(
            self.now_ms,
            |target| is_of(target, owner, user),
            |has_payload| {
                let TracedMessage { kind, channel, size, payload, binary, error } = message();
                TracedFrame {
                    at_ms: self.now_ms,
                    client: client_text(owner),
                    user: user.to_owned(),
                    direction: direction.to_owned(),
                    kind,
                    channel,
                    size,
                    payload: payload.filter(|_| has_payload),
                    binary: binary && has_payload,
                    error,
                    ..TracedFrame::default()
                }
            },
        );
    }
}

/// Whether a target is this client or this user.
fn is_of(target: &TraceTarget, owner: touchline_registry::OwnerId, user: &str) -> bool {
    match target {
        TraceTarget::Client(client) => *client == owner,
        TraceTarget::User(traced) => **traced == *user,
        TraceTarget::Channel(_) => false,
    }
}

/// The text of a payload, cut if it is long, and whether the text is base64.
fn shown(payload: &[u8]) -> Option<(String, bool)> {
    let part = &payload[..payload.len().min(PAYLOAD_SHOWN_MAX)];
    Some(match str::from_utf8(payload) {
        Ok(text) => (text[..text.floor_char_boundary(PAYLOAD_SHOWN_MAX)].to_owned(), false),
        Err(_) => (STANDARD.encode(part), true),
    })
}

/// What can be read from a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TracedMessage {
    kind: String,
    channel: String,
    size: u64,
    payload: Option<String>,
    binary: bool,
    /// The code of an error; 0 = the message is not an error.
    error: u32,
}

impl TracedMessage {
    /// Reads a message of a client. Nothing of a binary message is shown, because it may contain a token.
    fn received(wire: Wire, input: &[u8]) -> Self {
        let unread = TracedMessage { kind: "command".into(), size: input.len() as u64, ..TracedMessage::default() };
        if wire.encoding == Encoding::Protobuf {
            return unread;
        }
        let mut read = unread;
        let commands: Result<Vec<Value>, _> = Deserializer::from_slice(input).into_iter::<Value>().collect();
        // An unreadable message may contain a part of a token.
        let Ok(mut commands) = commands else { return read };
        if let Some(first) = commands.first() {
            read.note_command(first);
        }
        let texts: Vec<String> = match str::from_utf8(input) {
            Ok(text) if !may_hold(text, &SECRETS) => vec![text.trim_end().to_owned()],
            _ => {
                commands.iter_mut().for_each(|command| mask(command, &SECRETS));
                commands.iter().map(Value::to_string).collect()
            }
        };
        let (payload, _) = shown(texts.join("\n").as_bytes()).unzip();
        TracedMessage { payload, ..read }
    }

    fn note_command(&mut self, command: &Value) {
        let Some(fields) = command.as_object() else { return };
        if fields.is_empty() {
            self.kind = "pong".into();
        }
        let method = fields.iter().find(|(name, _)| METHODS.contains(&name.as_str()));
        if let Some((method, body)) = method {
            self.kind = method.clone();
            self.channel = cut(body["channel"].as_str().unwrap_or_default());
        }
    }

    /// Reads the messages in a frame that is written to a client.
    fn sent(wire: Wire, frame: &[u8], kind: OutputKind) -> Vec<Self> {
        let kind = match kind {
            OutputKind::Push | OutputKind::Droppable => "push",
            OutputKind::Answer => "reply",
            OutputKind::Ping => "ping",
            OutputKind::Pong => "pong",
        };
        let whole = |size: usize| TracedMessage { kind: kind.into(), size: size as u64, ..TracedMessage::default() };
        if frame.is_empty() {
            return Vec::new();
        }
        match wire.framing {
            Framing::WebSocket | Framing::Deflated { .. } => {
                let read = websocket_frames(frame).into_iter().map(|(opcode, is_deflated, payload)| match opcode {
                    _ if is_deflated => whole(payload.len()),
                    8 => TracedMessage { kind: "close".into(), payload: close_words(payload), ..whole(payload.len()) },
                    1 => whole(payload.len()).read(payload),
                    9 | 10 => whole(payload.len()),
                    _ => {
                        // The reply to a connect contains a session.
                        let part = &payload[..payload.len().min(PAYLOAD_SHOWN_MAX)];
                        let payload_text = (kind != "reply").then(|| STANDARD.encode(part));
                        TracedMessage { binary: payload_text.is_some(), payload: payload_text, ..whole(payload.len()) }
                    }
                });
                read.collect()
            }
            _ if wire.encoding == Encoding::Protobuf => vec![whole(frame.len())],
            _ => match str::from_utf8(frame) {
                Ok(_) => vec![whole(frame.len()).read(frame)],
                // The output is compressed.
                Err(_) => vec![whole(frame.len())],
            },
        }
    }

    /// Reads a JSON text that is sent to a client: lines, or a server-sent event.
    fn read(mut self, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let (mut shown_lines, mut is_first) = (Vec::new(), true);
        for line in text.lines() {
            let json = line.strip_prefix("data: ").unwrap_or(line);
            let reply = serde_json::from_str::<Value>(json).ok();
            if let Some(reply) = reply.as_ref().filter(|_| std::mem::take(&mut is_first)) {
                self.note_reply(reply);
            }
            match reply {
                Some(mut reply) if may_hold(json, &OWN_SECRETS) => {
                    mask(&mut reply, &OWN_SECRETS);
                    shown_lines.push(reply.to_string());
                }
                _ => shown_lines.push(json.to_owned()),
            }
        }
        (self.payload, _) = shown(shown_lines.join("\n").trim_end().as_bytes()).unzip();
        self
    }

    fn note_reply(&mut self, reply: &Value) {
        let push = &reply["push"];
        if let Some((kind, _)) = push.as_object().and_then(|fields| fields.iter().find(|(name, _)| *name != "channel"))
        {
            self.kind = if kind == "pub" { "publication".to_owned() } else { cut(kind) };
        }
        self.channel = cut(push["channel"].as_str().unwrap_or_default());
        self.error = reply["error"]["code"].as_u64().and_then(|code| u32::try_from(code).ok()).unwrap_or_default();
    }
}

/// The part of a name that is shown.
fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_SHOWN_MAX)].to_owned()
}

/// Whether a JSON text may contain one of these fields. The names in it may be written with escapes.
fn may_hold(text: &str, fields: &[&str]) -> bool {
    text.contains("\\u") || fields.iter().any(|field| text.contains(field))
}

/// Splits output into WebSocket frames: opcode, whether the frame is compressed, and payload.
fn websocket_frames(mut bytes: &[u8]) -> Vec<(u8, bool, &[u8])> {
    let mut frames = Vec::new();
    while let [head, length, rest @ ..] = bytes {
        let (size, rest) = match (length & 0x7f, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (127, [a, b, c, d, e, f, g, h, rest @ ..]) => {
                (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as usize, rest)
            }
            (size, rest) => (usize::from(size), rest),
        };
        let (payload, rest) = rest.split_at(size.min(rest.len()));
        frames.push((head & 0x0f, head & 0x40 != 0, payload));
        bytes = rest;
    }
    frames
}

/// The code and the reason of a close frame, as text.
fn close_words(payload: &[u8]) -> Option<String> {
    let (code, reason) = payload.split_first_chunk::<2>()?;
    Some(format!("{} {}", u16::from_be_bytes(*code), String::from_utf8_lossy(reason)).trim_end().to_owned())
}

/// Replaces fields that contain secrets, except inside the application's own payloads.
fn mask(value: &mut Value, secrets: &[&str]) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if secrets.contains(&name.as_str()) {
                    *field = Value::from("…");
                } else if !PAYLOADS.contains(&name.as_str()) {
                    mask(field, secrets);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, secrets)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: Wire = Wire::JSON;

    #[test]
    fn a_command_is_shown_without_its_tokens() {
        let read =
            TracedMessage::received(JSON, br#"{"id":1,"connect":{"token":"s3cret","subs":{"a":{"token":"s3"}}}}"#);
        assert_eq!(read.kind, "connect");
        let shown = read.payload.expect("it is text");
        assert!(!shown.contains("s3") && shown.contains("\"token\":\"…\""), "{shown}");
        let read = TracedMessage::received(JSON, br#"{"id":2,"publish":{"channel":"a","data":{"token":1.50}}}"#);
        assert_eq!((read.kind.as_str(), read.channel.as_str()), ("publish", "a"));
        assert_eq!(read.payload.as_deref(), Some(r#"{"id":2,"publish":{"channel":"a","data":{"token":1.5}}}"#));
        let two = TracedMessage::received(JSON, b"{\"id\":1,\"connect\":{}}\n{\"token\":\"s3");
        assert_eq!((two.kind.as_str(), two.payload), ("command", None));
        for hidden in [
            "{\"id\":1,\n\"subscribe\":{\"token\":\n\"s3\"\n}}",
            r#"{"id":1,"subscribe":{"\u0074oken":"s3"}}"#,
            r#"{"id":1,"subscribe":{"token":"s3"},"subscribe":{"channel":"a"}}"#,
        ] {
            let read = TracedMessage::received(JSON, hidden.as_bytes());
            assert!(read.kind == "subscribe" && !read.payload.is_some_and(|shown| shown.contains("s3")), "{hidden}");
        }
        assert_eq!(TracedMessage::received(JSON, br#"{"id":1,"mine":{}}"#).kind, "command");
        let protobuf = Wire { encoding: Encoding::Protobuf, framing: Framing::WebSocket };
        assert_eq!(TracedMessage::received(protobuf, b"s3cret").payload, None);
        assert_eq!(TracedMessage::received(JSON, b"{}").kind, "pong");
    }

    #[test]
    fn what_is_written_is_read_frame_by_frame() {
        let mut frame = Vec::new();
        JSON.frame(br#"{"push":{"channel":"a","pub":{"data":{"n":1.50}}}}"#, &mut frame);
        JSON.frame(br#"{"id":7,"error":{"code":103,"message":"permission denied"}}"#, &mut frame);
        let read = TracedMessage::sent(JSON, &frame, OutputKind::Answer);
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].kind.as_str(), read[0].channel.as_str()), ("publication", "a"));
        assert!(read[0].payload.as_ref().is_some_and(|payload| payload.contains("1.50")));
        assert_eq!((read[1].kind.as_str(), read[1].error), ("reply", 103));
        let mut opened = Vec::new();
        JSON.frame(br#"{"id":1,"connect":{"client":"c","session":"s3"}}"#, &mut opened);
        let read = TracedMessage::sent(JSON, &opened, OutputKind::Answer);
        assert_eq!(read[0].payload.as_deref(), Some(r#"{"connect":{"client":"c","session":"…"},"id":1}"#));
        let mut long = Vec::new();
        JSON.frame("é".repeat(40_000).as_bytes(), &mut long);
        let [read] = &TracedMessage::sent(JSON, &long, OutputKind::Push)[..] else { panic!("one frame") };
        assert_eq!((read.size, read.payload.as_ref().map(String::len)), (80_000, Some(PAYLOAD_SHOWN_MAX)));
        assert_eq!(close_words(b"\x0b\xb9shutdown"), Some("3001 shutdown".to_owned()));
        assert!(TracedMessage::sent(JSON, b"", OutputKind::Push).is_empty());
        assert_eq!(websocket_frames(b"\x81\x7f\x00").len(), 1, "a cut frame is not a fault");
    }
}
