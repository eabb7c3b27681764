//! The operation `forget_user`: removes what the cluster keeps of one user.
//!
//! Every node ends the user's connections and forgets what it holds in memory (`here.rs`). Then the asked node deletes
//! the user's data from the databases in steps (`steps.rs`). A cursor says how far the work is (`place.rs`).

mod here;
mod named_inbox;
mod place;
mod reply;
mod steps;

use schemars::JsonSchema;
use serde::Deserialize;
use touchline_protocol::Error;
use touchline_protocol::fact::{NAME_LEN_MAX, is_name};

use self::named_inbox::NamedInbox;
use self::place::ForgetPlace;
use self::reply::{ForgetUserReply, ForgetWork};
use super::inbox::check_scope;
use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{nullable, nullable_fields, plain};

/// The most names in one request.
const NAMES_MAX: usize = 100;

/// A request to forget a user.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["user"]), transform = nullable_fields)]
pub(crate) struct ForgetUserRequest {
    /// The user to forget.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    user: String,
    /// Further names of the registry whose waiting messages belong to the user; 100 at most. You need not list names
    /// that a pattern with `{user}` gives to the user.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = NAMES_MAX))]
    names: Vec<NamedInbox>,
    /// The `cursor` of the previous answer, with the same `user` and `names`; empty = from the beginning.
    #[serde(deserialize_with = "nullable")]
    cursor: String,
}

/// The operation `forget_user`.
pub(crate) struct ForgetUserOperation;

impl Operation for ForgetUserOperation {
    const NAME: &'static str = "forget_user";
    const SUMMARY: &'static str = "Ends the connections of a user with 3503, and removes waiting messages, reported \
                                   events and the time of the last connection; repeat it until `done`";
    const RESULT: &'static str = "`done`; `cursor` for the next request; `removed`: `connections`, \
                                  `names`, `groups`, `inbox_messages`, `last_seen`, `dead_letters`, `stats_events`; \
                                  `remains`: `bans`, `channels`, `inboxes`; `missing_nodes`, `is_partial`";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const REPLY_EXAMPLE: &'static str = r##"{
        "done": true,
        "removed": {
            "connections": 2, "names": 1, "groups": 0, "inbox_messages": 3, "last_seen": 1, "dead_letters": 0,
            "stats_events": 17
        },
        "remains": {"bans": ["user"], "channels": ["personal:#42"], "inboxes": [{"scope": "devices", "name": "bike-7"}]}
    }"##;
    const ERRORS: &'static [Error] = &[Error::NO_SUCH_SCOPE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = ForgetUserRequest;
    type Reply = ForgetUserReply;

    async fn run(node: RequestNode<'_>, request: ForgetUserRequest) -> Result<ForgetUserReply, OperationError> {
        let ForgetUserRequest { user, names, cursor } = request;
        if !is_name(&user) {
            return Err(OperationError::bad("user"));
        }
        if names.len() > NAMES_MAX || names.iter().any(|inbox| inbox.name.is_empty()) {
            return Err(OperationError::bad("names"));
        }
        plain("names", names.iter().map(|inbox| &inbox.name))?;
        plain("cursor", [&cursor])?;
        names.iter().try_for_each(|inbox| check_scope(node, &inbox.scope))?;
        let digest = place::digest_of(&user, &names);
        let (from, inboxes) = ForgetPlace::read(&cursor, digest).ok_or(OperationError::bad("cursor"))?;
        let mut reply = here::forget_here(node, &user).await?;
        reply.work =
            ForgetWork { here: node.id.as_str().into(), user: user.into(), names, from, digest, inboxes, ..reply.work };
        Ok(reply)
    }

    fn merge(reply: &mut ForgetUserReply, others: &OtherNodes<'_>) {
        reply.merge(others);
    }

    async fn conclude(node: RequestNode<'_>, reply: &mut ForgetUserReply) -> Result<(), OperationError> {
        steps::forget_everywhere(node, reply).await
    }
}
