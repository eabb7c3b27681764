//! Runs operations of the console for a role.

use hyper::StatusCode;
use serde_json::{Value, json};
use touchline_protocol::Error;

use super::hidden::hide;
use crate::api::operation::RequestNode;
use crate::api::reply::ErrorMode;
use crate::api::serve::serve;
use crate::api::version::NEWEST;
use crate::auth::ApiRights;
use crate::console::ConsoleRole;
use crate::node::Node;

/// Runs an operation for a role. Returns the status, the answer, and why it was refused.
pub(super) async fn run(
    node: &Node,
    role: ConsoleRole,
    operation: &str,
    body: &[u8],
) -> (StatusCode, Vec<u8>, Option<String>) {
    let generation = node.generation();
    let reply = match serve(RequestNode::new(node, &generation), &ApiRights::ALL, operation, body, NEWEST.number).await
    {
        Ok(reply) => reply,
        Err(malformed) => {
            let text = malformed.to_string();
            let body = error(Error::BAD_REQUEST, &text);
            return (StatusCode::BAD_REQUEST, body.to_string().into_bytes(), Some(text));
        }
    };
    let refused = reply.refusal.as_ref().map(|refusal| format!("error {}", refusal.error.code));
    let status = reply.status(ErrorMode::Inside);
    let body = reply.into_body(ErrorMode::Inside);
    if role == ConsoleRole::Operator {
        return (status, body, refused);
    }
    let mut shown: Value = serde_json::from_slice(&body).unwrap_or_default();
    hide(&mut shown);
    (status, shown.to_string().into_bytes(), refused)
}

/// Returns an error in the JSON form of the server API.
pub(super) fn error(code: Error, message: &str) -> Value {
    json!({"error": {"code": code.code, "message": message}})
}
