//! `block_user`, `unblock_user`, `revoke_token`, `invalidate_user_tokens`: who is not let in.

use schemars::JsonSchema;
use serde::Deserialize;
use touchline_engine::bans::Ban;
use touchline_protocol::Error;
use touchline_protocol::fact::{FactChange, NAME_LEN_MAX, is_name};

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError};
use crate::api::params::{nullable, nullable_fields};
use crate::backend::fact_changes;
use crate::node::Node;

/// The errors of what keeps the bans.
const ERRORS: &[Error] =
    &[Error::LIMIT_EXCEEDED, Error::TOO_MANY_REQUESTS, Error::CLUSTER_UNREACHABLE, Error::STORE_UNAVAILABLE];

/// The name of a user, or the id of a token.
///
/// # Errors
/// 107 if it is empty, too long, or has control characters. `field`: where it stands.
fn name(field: &'static str, name: String) -> Result<Box<str>, OperationError> {
    if is_name(&name) { Ok(name.into()) } else { Err(OperationError::bad(field)) }
}

/// A time, Unix seconds. One in milliseconds is beyond the range, and so refused.
///
/// # Errors
/// 107 if it is out of range.
fn seconds(field: &'static str, at: i64) -> Result<u32, OperationError> {
    u32::try_from(at).map_err(|_| OperationError::bad(field))
}

/// Adds a ban that ends at `expire_at`; 0 = it does not end.
async fn put(node: &Node, ban: Ban, expire_at: i64) -> Result<EmptyReply, OperationError> {
    let now_s = node.clock.now_ms() / 1_000;
    let expires_s = u64::from(seconds("expire_at", expire_at)?);
    if expires_s > 0 && expires_s <= now_s {
        return Err(OperationError::bad("expire_at"));
    }
    if !node.generation().session.bans.has_room(&ban, node.generation().settings.security.bans_max_entries, now_s) {
        return Err(Error::LIMIT_EXCEEDED.into());
    }
    fact_changes::change(node, FactChange::Put(ban.fact(expires_s))).await?;
    Ok(EmptyReply {})
}

/// Blocks a user.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["user"]), transform = nullable_fields)]
pub(crate) struct BlockUserRequest {
    /// The user.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    user: String,
    /// When the ban ends, Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
}

/// `block_user`.
pub(crate) struct BlockUserOperation;

impl Operation for BlockUserOperation {
    const NAME: &'static str = "block_user";
    const SUMMARY: &'static str =
        "Ends the connections of a user with 3503, and lets the user in no more, until `expire_at` if it is given";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const ERRORS: &'static [Error] = ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = BlockUserRequest;
    type Reply = EmptyReply;

    async fn run(node: &Node, request: BlockUserRequest) -> Result<EmptyReply, OperationError> {
        put(node, Ban::User(name("user", request.user)?), request.expire_at).await
    }
}

/// Lets a user in again.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["user"]), transform = nullable_fields)]
pub(crate) struct UnblockUserRequest {
    /// The user.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    user: String,
}

/// `unblock_user`.
pub(crate) struct UnblockUserOperation;

impl Operation for UnblockUserOperation {
    const NAME: &'static str = "unblock_user";
    const SUMMARY: &'static str = "Lets a blocked user in again; one who is not blocked is no error";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS, Error::CLUSTER_UNREACHABLE, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = UnblockUserRequest;
    type Reply = EmptyReply;

    async fn run(node: &Node, request: UnblockUserRequest) -> Result<EmptyReply, OperationError> {
        let ban = Ban::User(name("user", request.user)?);
        fact_changes::change(node, FactChange::Remove(ban.key())).await?;
        Ok(EmptyReply {})
    }
}

/// Revokes one token.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["uid"]), transform = nullable_fields)]
pub(crate) struct RevokeTokenRequest {
    /// The `jti` of the token.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    uid: String,
    /// When the ban ends, Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
}

/// `revoke_token`.
pub(crate) struct RevokeTokenOperation;

impl Operation for RevokeTokenOperation {
    const NAME: &'static str = "revoke_token";
    const SUMMARY: &'static str =
        "Ends the connections that came with a token with 3500, and takes the token no more; `uid` is its `jti`";
    const EXAMPLE: &'static str = r#"{"uid": "5e1f6a2c", "expire_at": 4102444800}"#;
    const ERRORS: &'static [Error] = ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = RevokeTokenRequest;
    type Reply = EmptyReply;

    async fn run(node: &Node, request: RevokeTokenRequest) -> Result<EmptyReply, OperationError> {
        put(node, Ban::Token(name("uid", request.uid)?), request.expire_at).await
    }
}

/// Invalidates the tokens of a user that were issued before a time.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["user"]), transform = nullable_fields)]
pub(crate) struct InvalidateUserTokensRequest {
    /// The user.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    user: String,
    /// Tokens issued before this are not taken, Unix seconds; 0 = now.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    issued_before: i64,
    /// When the ban ends, Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
    /// Not supported: a channel is refused with 108.
    #[serde(deserialize_with = "nullable")]
    channel: String,
}

/// `invalidate_user_tokens`.
pub(crate) struct InvalidateUserTokensOperation;

impl Operation for InvalidateUserTokensOperation {
    const NAME: &'static str = "invalidate_user_tokens";
    const SUMMARY: &'static str = "Ends the connections of a user whose tokens have an `iat` below `issued_before` \
                                   (now if absent), or none, with 3500, and takes such tokens no more; a `channel` is \
                                   refused with 108";
    const EXAMPLE: &'static str = r#"{"user": "42", "issued_before": 1767225600}"#;
    const ERRORS: &'static [Error] = &[
        Error::LIMIT_EXCEEDED,
        Error::NOT_AVAILABLE,
        Error::TOO_MANY_REQUESTS,
        Error::CLUSTER_UNREACHABLE,
        Error::STORE_UNAVAILABLE,
    ];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    /// Without a time, the second request is of a later one.
    const IS_IDEMPOTENT: bool = false;

    type Request<'a> = InvalidateUserTokensRequest;
    type Reply = EmptyReply;

    async fn run(node: &Node, request: InvalidateUserTokensRequest) -> Result<EmptyReply, OperationError> {
        let user = name("user", request.user)?;
        if !request.channel.is_empty() {
            // To pass it over would end more than was asked for.
            return Err(OperationError {
                error: Error::NOT_AVAILABLE,
                field: Some("channel"),
                denied: None,
                detail: None,
            });
        }
        let issued_before_s = match seconds("issued_before", request.issued_before)? {
            0 => u32::try_from(node.clock.now_ms() / 1_000).unwrap_or(u32::MAX),
            at_s => at_s,
        };
        put(node, Ban::TokensOfUser { user, issued_before_s }, request.expire_at).await
    }
}
