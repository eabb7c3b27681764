//! The operations `block_user`, `unblock_user`, `revoke_token` and `invalidate_user_tokens`: bans of users and tokens.

use schemars::JsonSchema;
use serde::Deserialize;
use touchline_engine::bans::Ban;
use touchline_protocol::Error;
use touchline_protocol::fact::{FactChange, NAME_LEN_MAX, is_name};

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{nullable, nullable_fields};
use crate::backend::fact_changes;

/// The errors of the backend that keeps the bans.
const ERRORS: &[Error] =
    &[Error::LIMIT_EXCEEDED, Error::TOO_MANY_REQUESTS, Error::CLUSTER_UNREACHABLE, Error::STORE_UNAVAILABLE];

/// Checks the name of a user or the id of a token.
///
/// # Errors
/// 107 if the name is empty, too long, or contains control characters. `field`: the field that holds the name.
fn name(field: &'static str, name: String) -> Result<Box<str>, OperationError> {
    if is_name(&name) { Ok(name.into()) } else { Err(OperationError::bad(field)) }
}

/// Checks a time in Unix seconds. A time in milliseconds is beyond the range, and therefore refused.
///
/// # Errors
/// 107 if the time is out of range.
fn seconds(field: &'static str, at: i64) -> Result<u32, OperationError> {
    u32::try_from(at).map_err(|_| OperationError::bad(field))
}

/// Adds a ban that ends at `expire_at`, in Unix seconds; 0 = the ban does not end.
async fn put(node: RequestNode<'_>, ban: Ban, expire_at: i64) -> Result<EmptyReply, OperationError> {
    let now_s = node.clock.now_ms() / 1_000;
    let expires_s = u64::from(seconds("expire_at", expire_at)?);
    if expires_s > 0 && expires_s <= now_s {
        return Err(OperationError::bad("expire_at"));
    }
    if !node.generation().session.bans.has_room(&ban, node.generation().settings.security.bans_max_entries, now_s) {
        return Err(Error::LIMIT_EXCEEDED.into());
    }
    fact_changes::change(&node, FactChange::Put(ban.fact(expires_s))).await?;
    Ok(EmptyReply {})
}

/// A request to block a user.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["user"]), transform = nullable_fields)]
pub(crate) struct BlockUserRequest {
    /// The user to block.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    user: String,
    /// The time when the ban ends, in Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
}

/// The operation `block_user`.
pub(crate) struct BlockUserOperation;

impl Operation for BlockUserOperation {
    const NAME: &'static str = "block_user";
    const SUMMARY: &'static str =
        "Ends the connections of a user with 3503, and refuses new ones until `expire_at`, or for ever without it";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const ERRORS: &'static [Error] = ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = BlockUserRequest;
    type Reply = EmptyReply;

    async fn run(node: RequestNode<'_>, request: BlockUserRequest) -> Result<EmptyReply, OperationError> {
        put(node, Ban::User(name("user", request.user)?), request.expire_at).await
    }
}

/// A request to unblock a user.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["user"]), transform = nullable_fields)]
pub(crate) struct UnblockUserRequest {
    /// The user to unblock.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    user: String,
}

/// The operation `unblock_user`.
pub(crate) struct UnblockUserOperation;

impl Operation for UnblockUserOperation {
    const NAME: &'static str = "unblock_user";
    const SUMMARY: &'static str = "Unblocks a user; unblocking a user who is not blocked is not an error";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS, Error::CLUSTER_UNREACHABLE, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = UnblockUserRequest;
    type Reply = EmptyReply;

    async fn run(node: RequestNode<'_>, request: UnblockUserRequest) -> Result<EmptyReply, OperationError> {
        let ban = Ban::User(name("user", request.user)?);
        fact_changes::change(&node, FactChange::Remove(ban.key())).await?;
        Ok(EmptyReply {})
    }
}

/// A request to revoke one token.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["uid"]), transform = nullable_fields)]
pub(crate) struct RevokeTokenRequest {
    /// The `jti` of the token to revoke.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    uid: String,
    /// The time when the ban ends, in Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
}

/// The operation `revoke_token`.
pub(crate) struct RevokeTokenOperation;

impl Operation for RevokeTokenOperation {
    const NAME: &'static str = "revoke_token";
    const SUMMARY: &'static str =
        "Ends the connections of a token with 3500, and refuses the token from then on; `uid` is its `jti`";
    const EXAMPLE: &'static str = r#"{"uid": "5e1f6a2c", "expire_at": 4102444800}"#;
    const ERRORS: &'static [Error] = ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = RevokeTokenRequest;
    type Reply = EmptyReply;

    async fn run(node: RequestNode<'_>, request: RevokeTokenRequest) -> Result<EmptyReply, OperationError> {
        put(node, Ban::Token(name("uid", request.uid)?), request.expire_at).await
    }
}

/// A request to invalidate the tokens of a user that were issued before a time.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["user"]), transform = nullable_fields)]
pub(crate) struct InvalidateUserTokensRequest {
    /// The user whose tokens become invalid.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = NAME_LEN_MAX))]
    user: String,
    /// Tokens issued before this time are refused, in Unix seconds; 0 = now.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    issued_before: i64,
    /// The time when the ban ends, in Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
    /// Not supported: a request with a channel is refused with 108.
    #[serde(deserialize_with = "nullable")]
    channel: String,
}

/// The operation `invalidate_user_tokens`.
pub(crate) struct InvalidateUserTokensOperation;

impl Operation for InvalidateUserTokensOperation {
    const NAME: &'static str = "invalidate_user_tokens";
    const SUMMARY: &'static str = "Refuses the tokens of a user without `iat`, or with one before `issued_before` \
                                   (absent: now), and ends their connections with 3500; with `channel`: error 108";
    const EXAMPLE: &'static str = r#"{"user": "42", "issued_before": 1767225600}"#;
    const ERRORS: &'static [Error] = &[
        Error::LIMIT_EXCEEDED,
        Error::NOT_AVAILABLE,
        Error::TOO_MANY_REQUESTS,
        Error::CLUSTER_UNREACHABLE,
        Error::STORE_UNAVAILABLE,
    ];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    /// Without a time, a second request sets a later time than the first.
    const IS_IDEMPOTENT: bool = false;

    type Request<'a> = InvalidateUserTokensRequest;
    type Reply = EmptyReply;

    async fn run(node: RequestNode<'_>, request: InvalidateUserTokensRequest) -> Result<EmptyReply, OperationError> {
        let user = name("user", request.user)?;
        if !request.channel.is_empty() {
            // Ignoring the channel would end more connections than the caller asked for.
            return Err(OperationError { field: Some("channel"), ..Error::NOT_AVAILABLE.into() });
        }
        let issued_before_s = match seconds("issued_before", request.issued_before)? {
            0 => u32::try_from(node.clock.now_ms() / 1_000).unwrap_or(u32::MAX),
            at_s => at_s,
        };
        put(node, Ban::TokensOfUser { user, issued_before_s }, request.expire_at).await
    }
}
