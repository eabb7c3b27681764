//! The registry in the server API: `register`, `unregister`, `update_meta`, `join`, `leave` for a client id; `lookup`,
//! `names`, `count`, `members`, `groups`; `send`, `call` and `multi_call` to names and groups.

use std::time::Duration;

use serde::Deserialize;
use touchline_engine::Response;
use touchline_engine::directory::{self, DirectoryRequest, RegistryMethod, Requester, client_from_text};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::Json;
use crate::node::Node;

/// Whether an operation acts on behalf of a client.
pub(super) fn is_for_client(method: &str) -> bool {
    RegistryMethod::from_name(method).is_some_and(RegistryMethod::acts_for_client)
}

#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct ForClient {
    client: String,
}

/// How long a call may wait for its answer, milliseconds: shorter than the HTTP request's own timeout, so that the
/// caller gets the result in time.
fn longest_call_ms(request_timeout: Duration) -> u64 {
    (request_timeout - (request_timeout / 2).min(Duration::from_secs(1))).as_millis() as u64
}

/// Errors: 107 for bad parameters, 4001–4008, 106 at a limit; 4009 while the entries of other nodes have not arrived,
/// when one of them may be the answer.
pub(super) async fn run(node: &Node, method: RegistryMethod, params: &[u8]) -> Result<Json, Error> {
    let is_unsettled = node.is_unsettled();
    if is_unsettled && method.reads_all_nodes() {
        return Err(Error::CLUSTER_UNREACHABLE);
    }
    let answer = run_directory(node, method, params).await;
    if is_unsettled && answer.as_ref().is_err_and(|error| error.code == Error::NOT_REGISTERED.code) {
        return Err(Error::CLUSTER_UNREACHABLE);
    }
    answer
}

async fn run_directory(node: &Node, method: RegistryMethod, params: &[u8]) -> Result<Json, Error> {
    let text = std::str::from_utf8(params).map_err(|_| Error::BAD_REQUEST)?;
    let text = if text.trim_ascii().is_empty() { "{}" } else { text };
    let mut request = directory::read(method, text, &node.session.scopes)?;
    if let DirectoryRequest::Call { timeout_ms, .. } = &mut request {
        *timeout_ms = (*timeout_ms).min(longest_call_ms(node.settings.http_server.request_timeout));
    }
    if let Some(answer) = node.session.scopes.answer(&request) {
        return answer;
    }
    let response = if method.acts_for_client() {
        let ForClient { client } = serde_json::from_str(text).map_err(|_| Error::BAD_REQUEST)?;
        let owner = client_from_text(&client).ok_or(Error::BAD_REQUEST)?;
        node.request_for_client(owner, request).await
    } else {
        let requester = Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true };
        node.request_directory(requester, request).await
    };
    match response {
        Response::Directory(reply) => Ok(reply.json().into()),
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}
