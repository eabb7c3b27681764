//! The registry by the server API: `register`, `unregister`, `update_meta`, `join`, `leave` for a client id; `lookup`,
//! `names`, `count`, `members`, `groups`; `send`, `call` and `multi_call` to names and groups.

use std::time::Duration;

use serde::Deserialize;
use touchline_engine::Response;
use touchline_engine::directory::{self, DirectoryRequest, Requester, client_from_text};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::Json;
use crate::node::Node;

/// Whether an operation is done in the name of a client.
pub(super) fn is_for_client(method: &str) -> bool {
    matches!(method, "register" | "unregister" | "update_meta" | "join" | "leave")
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ForClient {
    client: String,
}

/// How long a call may wait for its answer, milliseconds, so that its own answer is in time for whoever has asked by
/// HTTP.
fn longest_call_ms(request_timeout: Duration) -> u64 {
    (request_timeout - (request_timeout / 2).min(Duration::from_secs(1))).as_millis() as u64
}

/// Errors: 107 for bad parameters, 4001–4008, 106 at a limit; 4009 while what other nodes have is not here yet, for
/// what may be there.
pub(super) async fn run(node: &Node, method: &str, params: &[u8]) -> Result<Json, Error> {
    let is_unsettled = node.is_unsettled();
    if is_unsettled && matches!(method, "names" | "groups" | "count" | "members" | "member") {
        return Err(Error::CLUSTER_UNREACHABLE);
    }
    let answer = carry_out(node, method, params).await;
    if is_unsettled && answer.as_ref().is_err_and(|error| error.code == Error::NOT_REGISTERED.code) {
        return Err(Error::CLUSTER_UNREACHABLE);
    }
    answer
}

async fn carry_out(node: &Node, method: &str, params: &[u8]) -> Result<Json, Error> {
    let text = std::str::from_utf8(params).map_err(|_| Error::BAD_REQUEST)?;
    let text = if text.trim_ascii().is_empty() { "{}" } else { text };
    let mut ask = directory::read(method, text, &node.session.scopes)?;
    if let DirectoryRequest::Call { timeout_ms, .. } = &mut ask {
        *timeout_ms = (*timeout_ms).min(longest_call_ms(node.settings.http_server.request_timeout));
    }
    if let Some(answer) = node.session.scopes.answer(&ask) {
        return answer;
    }
    let response = if is_for_client(method) {
        let ForClient { client } = serde_json::from_str(text).map_err(|_| Error::BAD_REQUEST)?;
        let owner = client_from_text(&client).ok_or(Error::BAD_REQUEST)?;
        node.ask_for_client(owner, ask).await
    } else {
        let who = Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true };
        node.ask_directory(who, ask).await
    };
    match response {
        Response::Answer(answered) => Ok(answered.json().into()),
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}
