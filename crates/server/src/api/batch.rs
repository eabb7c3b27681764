//! Several operations in one request, run in order: `batch`, and the lines of `POST /api`. `batch` decodes all
//! operations before it runs the first.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;

use super::batch_time::BatchTime;
use super::json::{ErrorJson, WriteJson};
use super::malformed::MalformedRequest;
use super::operation::{OperationError, yield_sometimes};
use super::params::object;
use super::reply::ApiReply;
use super::table::{Call, numbered, place_of};
use crate::auth::ApiRights;
use crate::node::Node;
use crate::runtime::operation_metrics::NO_OPERATION;

/// The most operations in one request.
pub(super) const COMMANDS_MAX: usize = 10_000;

/// The commands of a batch. Each is an object with the name of one operation and its parameters. `parallel` is accepted
/// and has no effect on the order of the replies.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct BatchRequest<'a> {
    #[serde(borrow)]
    commands: Option<Vec<BTreeMap<&'a str, &'a RawValue>>>,
}

/// Serves `POST /api/batch`. The answer is `{"replies": […]}` without a surrounding `result`. Each reply is
/// `{"<operation>":{…}}` or `{"error":{…}}`. A command that names no operation, or several, is answered with 107. A
/// batch of more than [`COMMANDS_MAX`] commands is refused with 107, and none of them is run.
///
/// # Errors
/// When the body, or the parameters of any command, have the wrong shape. No command has run then.
pub(super) async fn batch(
    node: &Node,
    rights: &ApiRights,
    body: &[u8],
    version: u16,
) -> Result<ApiReply, MalformedRequest> {
    let request: BatchRequest<'_> = object(if body.trim_ascii().is_empty() { b"{}" } else { body })?;
    let commands = request.commands.unwrap_or_default();
    if commands.len() > COMMANDS_MAX {
        return Ok(too_many(node));
    }
    let mut calls = Vec::with_capacity(commands.len());
    for command in &commands {
        let named = command.iter().next().filter(|_| command.len() == 1);
        calls.push(match named {
            Some((method, params)) => Some((*method, Call::read(method, params.get().as_bytes(), version)?)),
            None => None,
        });
    }
    // Written by hand: each reply is awaited before the next one begins, and all operations write into the same buffer.
    let (mut reply, mut time) = (ApiReply::of_batch(b"{\"replies\":[".to_vec()), BatchTime::default());
    for (index, call) in calls.into_iter().enumerate() {
        if index > 0 {
            reply.body.push(b',');
        }
        let mut object = ObjectWriter::open(&mut reply.body);
        let Some((method, call)) = call else {
            refuse(node, "", &mut object, Error::BAD_REQUEST);
            object.close();
            continue;
        };
        let refusal = match time.admit(method) {
            Ok(()) => time.measure(node, method, call.run(node, rights, &mut object, method)).await,
            Err(error) => Some(refuse(node, method, &mut object, error)),
        };
        object.close();
        reply.note(method, refusal);
        yield_sometimes(index).await;
    }
    reply.body.extend_from_slice(b"]}");
    Ok(reply)
}

/// Refuses a request with more commands than [`COMMANDS_MAX`].
fn too_many(node: &Node) -> ApiReply {
    node.metrics_here().operations.count_error(NO_OPERATION, Error::BAD_REQUEST.code);
    ApiReply::of_refusal(OperationError::bad("commands"))
}

/// Refuses one command without running it.
fn refuse(node: &Node, method: &str, object: &mut ObjectWriter<'_>, error: Error) -> OperationError {
    node.metrics_here().operations.count_error(place_of(method), error.code);
    ErrorJson::from(error).write(object.key("error"));
    error.into()
}

/// One command in the body of `POST /api`.
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
    /// Returns the name of the operation. The caller may write it in capitals, or as a number.
    fn operation(&self) -> String {
        let written = self.method.get();
        match written.parse::<usize>() {
            Ok(number) => numbered(number).unwrap_or_default().to_owned(),
            Err(_) => serde_json::from_str::<String>(written).unwrap_or_default().to_ascii_lowercase(),
        }
    }
}

/// Serves `POST /api`: one command or several, each a JSON object, usually one a line. The answer has one line for
/// each. A command with malformed parameters is answered with 107, and the others are run.
///
/// # Errors
/// When a part of the body is not a command. No command has run then.
pub(super) async fn lines(
    node: &Node,
    rights: &ApiRights,
    body: &[u8],
    version: u16,
) -> Result<ApiReply, MalformedRequest> {
    let values = serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>();
    let mut lines = Vec::new();
    for value in values {
        lines.push(object::<BatchLine<'_>>(value?.get().as_bytes())?);
        if lines.len() > COMMANDS_MAX {
            return Ok(too_many(node));
        }
    }
    if lines.is_empty() {
        return Err(serde_json::Error::custom("expected a command, found none").into());
    }
    let (mut reply, mut time) = (ApiReply::of_batch(Vec::new()), BatchTime::default());
    let is_single = lines.len() == 1;
    for (index, line) in lines.iter().enumerate() {
        let method = line.operation();
        let call = match Call::read(&method, line.params.map_or("{}", RawValue::get).as_bytes(), version) {
            Err(malformed) if is_single => return Err(malformed),
            call => call,
        };
        if index > 0 {
            reply.body.push(b'\n');
        }
        let mut object = ObjectWriter::open(&mut reply.body);
        object.number("id", line.id.into());
        let refusal = match (call, time.admit(&method)) {
            (Ok(call), Ok(())) => time.measure(node, &method, call.run(node, rights, &mut object, "result")).await,
            (Ok(_), Err(error)) => Some(refuse(node, &method, &mut object, error)),
            (Err(_), _) => {
                refuse(node, &method, &mut object, Error::BAD_REQUEST);
                None
            }
        };
        object.close();
        reply.note(&method, refusal.clone());
        if is_single {
            reply.refusal = refusal;
        }
        yield_sometimes(index).await;
    }
    Ok(reply)
}
