//! `batch`: several operations in one request, in order.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::Object;

use super::{Json, let_others, run, write_error};
use crate::node::Node;

/// Operations in one batch.
const COMMANDS_MAX: usize = 10_000;

/// Commands, each an object with one operation's name and its parameters. `parallel` is accepted; the order of replies is the same.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct BatchRequest<'a> {
    #[serde(borrow)]
    commands: Vec<BTreeMap<&'a str, &'a RawValue>>,
}

/// Errors: 107. Result: `replies`, each `{"<operation>":{…}}` or `{"error":{…}}`.
pub(super) async fn run_all(node: &Node, request: &BatchRequest<'_>) -> Result<Result<Json, Error>, serde_json::Error> {
    if request.commands.len() > COMMANDS_MAX {
        return Ok(Err(Error::BAD_REQUEST));
    }
    let mut out = b"{\"replies\":[".to_vec();
    for (index, command) in request.commands.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let outcome = match command.iter().next() {
            Some((method, params)) => (*method, run(node, method, params.get().as_bytes()).await?),
            None => ("", Err(Error::BAD_REQUEST)),
        };
        let mut object = Object::open(&mut out);
        match &outcome {
            (method, Ok(result)) => object.key(method).extend_from_slice(result),
            (_, Err(error)) => write_error(object.key("error"), error),
        }
        object.close();
        let_others(index).await;
    }
    out.extend_from_slice(b"]}");
    Ok(Ok(out))
}
