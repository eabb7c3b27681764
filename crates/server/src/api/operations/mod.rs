//! The operations of the server API. Each is defined once, in a file of its own; `POST /api/<operation>`, `batch` and
//! the old `POST /api` all reach it. Shapes and errors are Centrifugo's, so its server libraries work.

mod batch;
mod call;
mod channel_directory;
mod channels;
mod connections;
mod gather;
mod history;
mod info;
mod presence;
mod publish;
mod registry;
mod stats;

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::data::is_plain_text;
use touchline_protocol::encode::ObjectWriter;

use self::call::Call;
use crate::node::Node;

/// Publishes, or operations of a batch, between two pauses.
const IN_A_ROW: usize = 16;

/// The JSON of a result.
type Json = Vec<u8>;

/// How an error is reported to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorMode {
    /// In the body, with status 200.
    Inside,
    /// By the HTTP status too.
    Transport,
}

/// A reply of the server API.
pub(crate) struct OperationReply {
    body: Vec<u8>,
    /// The error of the one requested operation. None = it succeeded, or the request was a batch.
    pub(crate) error: Option<Error>,
    /// The path names no operation.
    is_unknown: bool,
}

impl OperationReply {
    fn of(outcome: &Result<Json, Error>) -> Self {
        let mut body = Vec::new();
        write_result(&mut body, outcome);
        OperationReply { body, error: outcome.as_ref().err().copied(), is_unknown: false }
    }

    /// The body. When the HTTP status reports errors, the body of an error is the bare error object.
    pub(crate) fn into_body(self, mode: ErrorMode) -> Vec<u8> {
        match (self.error, mode) {
            (Some(error), ErrorMode::Transport) => {
                let mut body = Vec::new();
                write_error(&mut body, &error);
                body
            }
            _ => self.body,
        }
    }

    /// The HTTP status of the reply.
    pub(crate) fn status(&self, mode: ErrorMode) -> StatusCode {
        match (&self.error, mode) {
            _ if self.is_unknown => StatusCode::NOT_FOUND,
            (Some(Error::TOO_MANY_REQUESTS | Error::TOO_MANY_CALLS), _) => StatusCode::SERVICE_UNAVAILABLE,
            (None, _) | (_, ErrorMode::Inside) => StatusCode::OK,
            (Some(error), ErrorMode::Transport) => match error.code {
                102 | 104 | 4002 | 4003 | 4012 => StatusCode::NOT_FOUND,
                107 | 108 => StatusCode::BAD_REQUEST,
                112 => StatusCode::RANGE_NOT_SATISFIABLE,
                113 | 4001 | 4004 | 4011 => StatusCode::CONFLICT,
                4005 => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }
}

/// Serves `POST /api/<method>`. An empty method is the old form, whose body names the operation.
///
/// # Errors
/// When the body is not JSON of the operation's shape.
pub(crate) async fn serve(node: &Node, method: &str, body: &[u8]) -> Result<OperationReply, serde_json::Error> {
    match method {
        "" => batch::lines(node, body).await,
        "batch" => batch::batch(node, body).await,
        _ => {
            let call = Call::read(method, body)?;
            let is_unknown = call.is_unknown();
            Ok(OperationReply { is_unknown, ..OperationReply::of(&call.run(node).await) })
        }
    }
}

/// An operation that one node requests from others.
#[derive(Deserialize)]
struct BroadcastMessage<'a> {
    method: &'a str,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Bytes around the parameters of an operation in a message between nodes.
const BROADCAST_OVERHEAD: usize = 64;

/// Encodes an operation as a message to other nodes.
pub(crate) fn broadcast_message(method: &str, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + 40);
    let mut object = ObjectWriter::open(&mut out);
    object.text("method", method);
    let params = params.trim_ascii();
    object.raw("params", (!params.is_empty()).then_some(params));
    object.close();
    out
}

/// Runs an operation that another node requests, and replies if that node wants a reply.
pub(crate) fn run_broadcast(node: &Arc<Node>, message: Bytes, reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>>) {
    let node = Arc::clone(node);
    tokio::task::spawn_local(async move {
        let Ok(broadcast) = serde_json::from_slice::<BroadcastMessage<'_>>(&message) else { return };
        let Ok(call) = Call::read(broadcast.method, broadcast.params.map_or("{}", RawValue::get).as_bytes()) else {
            return;
        };
        let outcome = call.run_here(&node).await;
        if let Some(reply) = reply {
            let mut out = Vec::new();
            write_result(&mut out, &outcome);
            reply(out);
        }
    });
}

/// Called after each of many steps in a row: yields to the thread's other tasks every [`IN_A_ROW`] steps, because a
/// step may finish without waiting.
async fn yield_sometimes(index: usize) {
    if index % IN_A_ROW == IN_A_ROW - 1 {
        tokio::task::yield_now().await;
    }
}

/// `{"result":…}` or `{"error":…}`.
fn write_result(out: &mut Vec<u8>, outcome: &Result<Json, Error>) {
    let mut object = ObjectWriter::open(out);
    match outcome {
        Ok(result) => object.key("result").extend_from_slice(result),
        Err(error) => write_error(object.key("error"), error),
    }
    object.close();
}

fn write_error(out: &mut Vec<u8>, error: &Error) {
    let mut object = ObjectWriter::open(out);
    object.number("code", error.code.into()).text("message", error.message);
    object.close();
}

/// Refuses texts with control characters: a database can't store NUL, and these texts may end in one.
///
/// # Errors
/// 107 when there is one.
fn plain<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<(), Error> {
    let are_plain = texts.into_iter().all(|text| is_plain_text(text.as_ref()));
    if are_plain { Ok(()) } else { Err(Error::BAD_REQUEST) }
}

/// An empty result.
fn done() -> Json {
    b"{}".to_vec()
}

/// Reads a field for which `null` means that it is absent.
fn nullable<'de, D: serde::Deserializer<'de>, T: Default + DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// JSON given as a value, or as base64 of its text.
///
/// # Errors
/// 107 when it is neither, or nests too deep.
fn payload(value: Option<&RawValue>, base64: &str) -> Result<Option<bytes::Bytes>, Error> {
    if let Some(value) = value {
        return touchline_protocol::data::checked_payload(value).map(Some);
    }
    if base64.is_empty() {
        return Ok(None);
    }
    let decoded = touchline_engine::base64_text::decode_base64(base64).ok_or(Error::BAD_REQUEST)?;
    let value: &RawValue = serde_json::from_slice(&decoded).map_err(|_| Error::BAD_REQUEST)?;
    touchline_protocol::data::checked_payload(value).map(Some)
}
