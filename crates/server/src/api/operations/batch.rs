//! Several operations in one request, run in order: `batch`, and the lines of `POST /api`. `batch` decodes all of them
//! before it runs the first.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;

use super::call::{Call, object};
use super::{Json, OperationReply, write_error, write_result, yield_sometimes};
use crate::node::Node;

/// Operations in one request.
const COMMANDS_MAX: usize = 10_000;

/// The operations by the number that older libraries send instead of a name.
const NUMBERED: [&str; 13] = [
    "publish",
    "broadcast",
    "unsubscribe",
    "disconnect",
    "presence",
    "presence_stats",
    "history",
    "history_remove",
    "channels",
    "info",
    "rpc",
    "subscribe",
    "refresh",
];

/// Commands, each an object with one operation's name and its parameters. `parallel` is accepted; the order of replies
/// is the same.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct BatchRequest<'a> {
    #[serde(borrow)]
    commands: Vec<BTreeMap<&'a str, &'a RawValue>>,
}

/// `POST /api/batch`: `{"replies": […]}` without a surrounding `result`, each reply `{"<operation>":{…}}` or
/// `{"error":{…}}`. A command that names no operation, or several, is answered with 107. More than [`COMMANDS_MAX`]
/// commands are refused with 107, and none is run.
///
/// # Errors
/// When the body, or the parameters of any command, have another shape: then nothing has been done.
pub(super) async fn batch(node: &Node, body: &[u8]) -> Result<OperationReply, serde_json::Error> {
    let request: BatchRequest<'_> = object(if body.trim_ascii().is_empty() { b"{}" } else { body })?;
    if request.commands.len() > COMMANDS_MAX {
        return Ok(OperationReply::of(&Err(Error::BAD_REQUEST)));
    }
    let mut calls = Vec::with_capacity(request.commands.len());
    for command in &request.commands {
        let named = command.iter().next().filter(|_| command.len() == 1);
        calls.push(named.map(|(method, params)| Call::read(method, params.get().as_bytes())).transpose()?);
    }
    let mut out = b"{\"replies\":[".to_vec();
    for (index, call) in calls.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let (method, outcome) = match call {
            Some(call) => (call.method, call.run(node).await),
            None => ("", Err(Error::BAD_REQUEST)),
        };
        let mut object = ObjectWriter::open(&mut out);
        match &outcome {
            Ok(result) => object.key(method).extend_from_slice(result),
            Err(error) => write_error(object.key("error"), error),
        }
        object.close();
        yield_sometimes(index).await;
    }
    out.extend_from_slice(b"]}");
    Ok(OperationReply { body: out, error: None, is_unknown: false })
}

/// One command of `POST /api`.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BatchLine<'a> {
    #[serde(default)]
    id: u32,
    #[serde(borrow)]
    method: &'a RawValue,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

impl BatchLine<'_> {
    /// The operation's name: it may be written in capitals, or as a number.
    fn operation(&self) -> String {
        let written = self.method.get();
        match written.parse::<usize>() {
            Ok(number) => NUMBERED.get(number).copied().unwrap_or_default().to_owned(),
            Err(_) => serde_json::from_str::<String>(written).unwrap_or_default().to_ascii_lowercase(),
        }
    }
}

/// `POST /api`: one command or several, each a JSON object, usually one a line; one line of reply for each. A command
/// with malformed parameters is answered with 107, the others are run.
///
/// # Errors
/// When something in the body is not a command: then nothing has been done.
pub(super) async fn lines(node: &Node, body: &[u8]) -> Result<OperationReply, serde_json::Error> {
    let values = serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>();
    let mut lines = Vec::new();
    for value in values {
        lines.push(object::<BatchLine<'_>>(value?.get().as_bytes())?);
        if lines.len() > COMMANDS_MAX {
            return Ok(OperationReply::of(&Err(Error::BAD_REQUEST)));
        }
    }
    if lines.is_empty() {
        return Err(serde_json::Error::custom("expected a command, found none"));
    }
    let mut reply = OperationReply { body: Vec::new(), error: None, is_unknown: false };
    let is_single = lines.len() == 1;
    for (index, line) in lines.iter().enumerate() {
        let method = line.operation();
        let outcome = match Call::read(&method, line.params.map_or("{}", RawValue::get).as_bytes()) {
            Ok(call) => call.run(node).await,
            Err(malformed) if is_single => return Err(malformed),
            Err(_) => Err(Error::BAD_REQUEST),
        };
        if index > 0 {
            reply.body.push(b'\n');
        }
        write_line(&mut reply.body, line.id, &outcome);
        if is_single {
            reply.error = outcome.err();
        }
        yield_sometimes(index).await;
    }
    Ok(reply)
}

fn write_line(out: &mut Vec<u8>, id: u32, outcome: &Result<Json, Error>) {
    if id == 0 {
        return write_result(out, outcome);
    }
    let mut object = ObjectWriter::open(out);
    object.number("id", id.into());
    match outcome {
        Ok(result) => object.key("result").extend_from_slice(result),
        Err(error) => write_error(object.key("error"), error),
    }
    object.close();
}
