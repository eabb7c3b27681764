//! The operation `trace`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_engine::directory::client_from_text;
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{channel_options, nullable, nullable_fields};
use crate::auth::NamedChannels;
use crate::runtime::frame_trace::{TRACE_SECONDS_MAX, TraceQuestion, TraceRefusal, TraceTarget, TracedFrame};

/// The longest id of a trace, in bytes.
const TRACE_ID_MAX: usize = 64;
/// The duration of a trace if the request gives none, in seconds.
const USUAL_SECONDS: u64 = 10;

/// A request to begin a trace, or to read what it has seen.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct TraceRequest {
    /// The name of the trace, 1 to 64 bytes, chosen by the caller. All callers that know the name share the trace. The
    /// first request begins the trace. Each later one, sent within 5 s, returns what the trace has seen since the last.
    #[serde(deserialize_with = "nullable")]
    id: String,
    /// Trace the frames of the connection with this client id.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Trace the frames of the connections of this user.
    #[serde(deserialize_with = "nullable")]
    user: String,
    /// Trace the publications into this channel.
    #[serde(deserialize_with = "nullable")]
    channel: String,
    /// The duration of the trace, 1 to 60 seconds; 0 = 10.
    #[serde(deserialize_with = "nullable")]
    seconds: u64,
    /// `true`: show payloads. For a client or a user, `admin.trace_payloads` must be on.
    #[serde(deserialize_with = "nullable")]
    payloads: bool,
    /// `true`: this request ends the trace and returns the frames since the last request.
    #[serde(deserialize_with = "nullable")]
    end: bool,
}

impl TraceRequest {
    /// Returns what is traced.
    fn target(&self, node: RequestNode<'_>) -> Result<TraceTarget, OperationError> {
        let bad = |detail: &str| OperationError::about(Error::BAD_REQUEST, "client", detail);
        match (self.client.as_str(), self.user.as_str(), self.channel.as_str()) {
            ("", "", "") => Err(bad("client, user or channel is required")),
            (client, "", "") => {
                client_from_text(client).map(TraceTarget::Client).ok_or_else(|| bad("it is not a client id"))
            }
            ("", user, "") => Ok(TraceTarget::User(user.into())),
            ("", "", channel) => {
                channel_options(node.generation(), "channel", channel)?;
                Ok(TraceTarget::Channel(channel.into()))
            }
            _ => Err(bad("only one of client, user and channel is allowed")),
        }
    }
}

/// What a trace has seen since the last request.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TraceReply {
    /// The frames, sorted by time.
    frames: Vec<TracedFrame>,
    /// The number of frames that were dropped because more than 1,000 frames or 256 KiB waited on a node.
    left_out: u64,
    /// `true`: the trace has ended. Only one answer says so; the next request with the same id begins another trace.
    ended: bool,
    /// The ids of nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

/// The operation `trace`.
pub(crate) struct TraceOperation;

impl Operation for TraceOperation {
    const NAME: &'static str = "trace";
    const SUMMARY: &'static str = "Traces a client, a user or a channel for a while: returns the frames since the \
                                   last request";
    const RESULT: &'static str = "`frames`, each with `at_ms`, `node`, `kind`, `size`, and if known `client`, \
                                  `user`, `direction` (`in` or `out`), `channel`, `offset`, `payload`, `binary`, \
                                  `error`; `left_out`, `ended`, `missing_nodes`";
    const EXAMPLE: &'static str = r#"{"id": "t1", "channel": "news", "seconds": 30, "payloads": true}"#;
    const REPLY_EXAMPLE: &'static str = r#"{
        "frames": [{
            "at_ms": 1700000000000, "node": "node-1", "kind": "publication", "channel": "news", "size": 13,
            "payload": "{\"text\":\"Go\"}"
        }],
        "left_out": 0, "ended": false
    }"#;
    const ERRORS: &'static [Error] = &[Error::UNKNOWN_CHANNEL, Error::LIMIT_EXCEEDED, Error::PERMISSION_DENIED];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = false;

    type Request<'a> = TraceRequest;
    type Reply = TraceReply;

    fn channels<'r>(request: &'r TraceRequest) -> NamedChannels<'r> {
        // Without a channel the trace is about all channels. A key that is limited to some channels may not begin it.
        NamedChannels::One(&request.channel)
    }

    async fn run(node: RequestNode<'_>, request: TraceRequest) -> Result<TraceReply, OperationError> {
        let target = request.target(node)?;
        let generation = node.generation();
        if request.id.is_empty() || request.id.len() > TRACE_ID_MAX {
            return Err(OperationError::about(Error::BAD_REQUEST, "id", "1 to 64 bytes are needed"));
        }
        let is_of_connections = !matches!(target, TraceTarget::Channel(_));
        if request.payloads && is_of_connections && !generation.settings.admin.trace_payloads {
            let detail = "admin.trace_payloads is off: ask without payloads";
            return Err(OperationError::about(Error::PERMISSION_DENIED, "payloads", detail));
        }
        let seconds = if request.seconds == 0 { USUAL_SECONDS } else { request.seconds };
        if seconds > TRACE_SECONDS_MAX {
            return Err(OperationError::about(Error::BAD_REQUEST, "seconds", "at most 60 seconds are allowed"));
        }
        let question =
            TraceQuestion { id: &request.id, target, seconds, has_payloads: request.payloads, is_last: request.end };
        let seen = node.frame_traces.ask(question, node.clock.now_ms()).map_err(|refusal| match refusal {
            TraceRefusal::TooMany => OperationError::about(Error::LIMIT_EXCEEDED, "id", "16 traces are under way"),
            TraceRefusal::OtherTarget => OperationError::about(
                Error::BAD_REQUEST,
                "id",
                "this trace has another target or another setting of payloads",
            ),
        })?;
        let mut frames = seen.frames;
        frames.iter_mut().for_each(|frame| frame.node.clone_from(&generation.settings.node.name));
        Ok(TraceReply { frames, left_out: seen.left_out, ended: seen.has_ended, missing_nodes: Vec::new() })
    }

    fn merge(reply: &mut TraceReply, others: &OtherNodes<'_>) {
        for (_, json) in &others.results {
            let Ok(other) = serde_json::from_str::<TraceReply>(json.get()) else { continue };
            reply.frames.extend(other.frames);
            reply.left_out += other.left_out;
        }
        reply.frames.sort_by_key(|frame| frame.at_ms);
        reply.missing_nodes = others.missing.clone();
    }
}
