//! Several operations in one request, run in order: `batch`, and the lines of `POST /api`. `batch` decodes all
//! operations before it runs the first.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;

use super::batch_time::BatchTime;
use super::json::{ErrorJson, WriteJson};
use super::malformed::MalformedRequest;
use super::operation::{OperationError, RequestNode};
use super::params::{nullable, object};
use super::reply::ApiReply;
use super::steps::{STEPS_AT_A_TIME, run_steps};
use super::table::{Call, numbered, place_of};
use crate::auth::ApiRights;
use crate::node::Node;
use crate::runtime::operation_metrics::NO_OPERATION;

/// The most operations in one request.
pub(super) const COMMANDS_MAX: usize = 10_000;

/// The commands of a batch. Each is an object with the name of one operation and its parameters.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct BatchRequest<'a> {
    #[serde(borrow)]
    commands: Option<Vec<BTreeMap<&'a str, &'a RawValue>>>,
    /// Whether several commands run at a time. The replies have the order of the commands in any case.
    #[serde(deserialize_with = "nullable")]
    parallel: bool,
}

/// Serves `POST /api/batch`. The answer is `{"replies": […]}` without a surrounding `result`. Each reply is
/// `{"<operation>":{…}}` or `{"error":{…}}`. A command that names no operation, or several, is answered with 107. A
/// batch of more than [`COMMANDS_MAX`] commands is refused with 107, and none of them is run.
///
/// # Errors
/// When the body, or the parameters of any command, have the wrong shape. No command has run then.
pub(super) async fn batch(
    node: RequestNode<'_>,
    rights: &ApiRights,
    body: &[u8],
    version: u16,
) -> Result<ApiReply, MalformedRequest> {
    let request: BatchRequest<'_> = object(if body.trim_ascii().is_empty() { b"{}" } else { body })?;
    let commands = request.commands.unwrap_or_default();
    if commands.len() > COMMANDS_MAX {
        return Ok(too_many(&node));
    }
    let mut listed = Vec::with_capacity(commands.len());
    for command in &commands {
        let named = command.iter().next().filter(|_| command.len() == 1);
        listed.push(match named {
            Some((method, params)) => BatchCommand {
                id: None,
                method: Cow::Borrowed(*method),
                key: method,
                call: Some(Call::read(method, params.get().as_bytes(), version)?),
            },
            None => BatchCommand { id: None, method: Cow::Borrowed(""), key: "", call: None },
        });
    }
    let at_a_time = if request.parallel { STEPS_AT_A_TIME } else { 1 };
    let (objects, mut reply) = run_commands(node, rights, listed, at_a_time).await;
    reply.body = [b"{\"replies\":[", &*objects.join(&b','), b"]}"].concat();
    Ok(reply)
}

/// A command of a batch, read and not yet run.
struct BatchCommand<'a> {
    /// The id that its reply repeats; None = the reply has no id.
    id: Option<u32>,
    method: Cow<'a, str>,
    /// The name of the result in its reply.
    key: &'a str,
    /// None = the command names no operation, or its parameters are malformed.
    call: Option<Call<'a>>,
}

/// Runs commands, and returns the reply of each as a JSON object, in the order of the commands. A command that the time
/// of the request does not suffice for is answered with 111, or with 100 if it has begun.
async fn run_commands<'a>(
    node: RequestNode<'a>,
    rights: &ApiRights,
    commands: Vec<BatchCommand<'a>>,
    at_a_time: usize,
) -> (Vec<Vec<u8>>, ApiReply) {
    let time = BatchTime::default();
    let names: Vec<(Option<u32>, Cow<'a, str>)> =
        commands.iter().map(|command| (command.id, command.method.clone())).collect();
    let run = async |BatchCommand { id, method, key, call }: BatchCommand<'a>| {
        let mut body = Vec::new();
        let mut object = ObjectWriter::open(&mut body);
        if let Some(id) = id {
            object.number("id", id.into());
        }
        let _turn = time.turn(&method).await;
        let refusal = match (call, time.admit(&method)) {
            (Some(call), Ok(())) => time.measure(&node, &method, call.run(node, rights, &mut object, key)).await,
            (Some(_), Err(error)) => Some(refuse(&node, &method, &mut object, error.into())),
            (None, _) => {
                refuse(&node, &method, &mut object, Error::BAD_REQUEST.into());
                None
            }
        };
        object.close();
        (body, refusal)
    };
    let outcomes = run_steps(node, commands.into_iter().map(run), at_a_time).await;
    let (mut objects, mut reply) = (Vec::with_capacity(outcomes.len()), ApiReply::of_batch(Vec::new()));
    for (outcome, (id, method)) in outcomes.into_iter().zip(names) {
        let (body, refusal) = outcome.result().unwrap_or_else(|over| {
            let mut body = Vec::new();
            let mut object = ObjectWriter::open(&mut body);
            if let Some(id) = id {
                object.number("id", id.into());
            }
            let refusal = refuse(&node, &method, &mut object, over);
            object.close();
            (body, Some(refusal))
        });
        objects.push(body);
        reply.note(&method, refusal);
    }
    (objects, reply)
}

/// Refuses a request with more commands than [`COMMANDS_MAX`].
fn too_many(node: &Node) -> ApiReply {
    node.metrics_here().operations.count_error(NO_OPERATION, Error::BAD_REQUEST.code);
    ApiReply::of_refusal(OperationError::bad("commands"))
}

/// Refuses one command without running it.
fn refuse(node: &Node, method: &str, object: &mut ObjectWriter<'_>, refusal: OperationError) -> OperationError {
    node.metrics_here().operations.count_error(place_of(method), refusal.error.code);
    ErrorJson::from(refusal.clone()).write(object.key("error"));
    refusal
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
    node: RequestNode<'_>,
    rights: &ApiRights,
    body: &[u8],
    version: u16,
) -> Result<ApiReply, MalformedRequest> {
    let values = serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>();
    let mut lines = Vec::new();
    for value in values {
        lines.push(object::<BatchLine<'_>>(value?.get().as_bytes())?);
        if lines.len() > COMMANDS_MAX {
            return Ok(too_many(&node));
        }
    }
    if lines.is_empty() {
        return Err(serde_json::Error::custom("expected a command, found none").into());
    }
    let is_single = lines.len() == 1;
    let mut commands = Vec::with_capacity(lines.len());
    for line in &lines {
        let method = line.operation();
        let call = match Call::read(&method, line.params.map_or("{}", RawValue::get).as_bytes(), version) {
            Err(malformed) if is_single => return Err(malformed),
            call => call.ok(),
        };
        commands.push(BatchCommand { id: Some(line.id), method: Cow::Owned(method), key: "result", call });
    }
    let (objects, mut reply) = run_commands(node, rights, commands, 1).await;
    reply.body = objects.join(&b'\n');
    if is_single {
        reply.refusal = reply.refused.first().map(|(_, refusal)| refusal.clone());
    }
    Ok(reply)
}
