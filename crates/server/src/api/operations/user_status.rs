//! The operation `get_user_status`: which users are online.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_protocol::Error;

use super::connected::USERS_MAX;
use crate::api::connection_page::are_online;
use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{nullable, nullable_fields};
use crate::backend::seen;

/// A request for the status of users.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["users"]), transform = nullable_fields)]
pub(crate) struct GetUserStatusRequest {
    /// The users whose status is read.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = USERS_MAX))]
    users: Vec<Box<str>>,
}

/// The status of each user.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GetUserStatusReply {
    /// The status of each user, in the order of the request.
    statuses: Vec<UserStatus>,
    /// The ids of nodes that did not answer in time. Users that are connected only to these nodes are shown as offline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
    /// `true`: users shown as offline may be online. Nodes are missing, or the asked node is cut off from the others.
    #[serde(skip_serializing_if = "is_false")]
    is_partial: bool,
    /// `true`: the primary database did not answer, so an absent `online` does not mean that no time is kept.
    #[serde(skip_serializing_if = "is_false")]
    last_seen_missing: bool,
}

/// Whether a field is left out of the JSON.
fn is_false(value: &bool) -> bool {
    !value
}

/// The status of one user.
#[derive(Serialize, Deserialize, JsonSchema)]
struct UserStatus {
    /// The user that the status is of.
    user: Box<str>,
    /// Unix seconds: the time of the answer for a user who is online. Otherwise the last time, if it is kept; absent =
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    online: Option<u64>,
    /// Whether the user has a connection to any node.
    is_online: bool,
}

/// The statuses that another node returns.
#[derive(Deserialize)]
struct StatusesOfNode {
    statuses: Vec<UserStatus>,
}

/// The operation `get_user_status`.
pub(crate) struct GetUserStatusOperation;

impl Operation for GetUserStatusOperation {
    const NAME: &'static str = "get_user_status";
    const SUMMARY: &'static str =
        "Returns which users are online on any node, and when the users who are offline were last online";
    const RESULT: &'static str = "`statuses`, in the order of `users`: each with `user`, `is_online`, `online` (Unix \
                                  seconds: now, or with `user_status.enabled` when it was last); `missing_nodes`, \
                                  `last_seen_missing`, `is_partial`";
    const EXAMPLE: &'static str = r#"{"users": ["42", "43"]}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"statuses": [
        {"user": "42", "online": 1795359600, "is_online": true}, {"user": "43", "is_online": false}]}"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = GetUserStatusRequest;
    type Reply = GetUserStatusReply;

    async fn run(node: RequestNode<'_>, request: GetUserStatusRequest) -> Result<GetUserStatusReply, OperationError> {
        let users = request.users;
        if users.is_empty() || users.len() > USERS_MAX {
            return Err(OperationError::bad("users"));
        }
        let online = are_online(&node, &users).await;
        let now_s = node.clock.now_ms() / 1_000;
        let (seen_s, last_seen_missing) = match &node.seen {
            None => (vec![None; users.len()], false),
            Some(seen) => {
                let last = seen::read(&node, seen, &users).await;
                (last.seen_s, last.is_cut_off)
            }
        };
        let status = |((user, is_online), seen_s): ((Box<str>, bool), Option<u64>)| UserStatus {
            user,
            online: if is_online { Some(now_s) } else { seen_s },
            is_online,
        };
        let statuses = users.into_iter().zip(online).zip(seen_s).map(status).collect();
        Ok(GetUserStatusReply { statuses, missing_nodes: Vec::new(), last_seen_missing, is_partial: false })
    }

    fn merge(reply: &mut GetUserStatusReply, others: &OtherNodes<'_>) {
        for (_, json) in &others.results {
            let Ok(part) = serde_json::from_str::<StatusesOfNode>(json.get()) else { continue };
            for (own, other) in reply.statuses.iter_mut().zip(part.statuses) {
                own.is_online |= other.is_online;
                own.online = own.online.max(other.online);
            }
        }
        reply.missing_nodes = others.missing.clone();
        reply.is_partial = others.are_partial();
    }
}
