//! `subscribe`, `unsubscribe`, `disconnect`, `refresh`: commands to connections. Whom they are for: [`Targets`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use touchline_engine::claims::Overrides;
use touchline_engine::directory::client_from_text;
use touchline_engine::request::ClientPosition;
use touchline_engine::session::ServerSubscription;
use touchline_protocol::data::{object, object_or_default};
use touchline_protocol::stream::Offset;
use touchline_protocol::websocket::CLOSE_REASON_MAX;
use touchline_protocol::{Disconnect, Error};

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes};
use crate::api::params::{channel_options, nullable, nullable_fields, payload};
use crate::api::targets::{CommandReply, Targets, USERS_MAX};
use crate::auth::NamedChannels;
use crate::node::Node;
use crate::runtime::mailbox::ConnectionAction;
use crate::runtime::pacer::PACE_MAX;

/// The fields of the result.
const COMMAND_RESULT: &str = "with `users`, `rate`, or `client` or `session` without `user`: `connections`, `nodes` \
    with the connections of each, `missing_nodes`";

/// Whom a request is for.
macro_rules! targets {
    ($request:expr) => {
        Targets {
            user: $request.user.as_deref(),
            users: $request.users.as_deref(),
            client: &$request.client,
            session: &$request.session,
            rate: $request.rate,
        }
    };
}

/// Subscribes connections to a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct SubscribeRequest<'a> {
    /// The user; empty = the anonymous user. Absent beside `client` or `session`: whoever the user is.
    user: Option<String>,
    /// Several users, 1,000 at most, in place of `user`.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// The channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// Only this connection, by its client id; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only this connection, by its session; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections a second on each node; absent = at once. With it the answer comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
    /// What others are shown of the subscription (`chan_info`).
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    /// The same as base64 of JSON or of other bytes.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("contentEncoding" = "base64"))]
    b64info: String,
    /// What the client gets with the subscription.
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    /// The same as base64 of JSON or of other bytes.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("contentEncoding" = "base64"))]
    b64data: String,
    /// The position from which the client gets what it missed.
    #[serde(deserialize_with = "object")]
    recover_since: Option<RecoverSince>,
    /// When the subscription ends, Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
    /// Options of the subscription that differ from those of its namespace.
    #[serde(rename = "override", deserialize_with = "object_or_default")]
    #[schemars(with = "Option<Overrides>")]
    overrides: Overrides,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
struct RecoverSince {
    /// The offset of the last publication that is known; 0 = none.
    offset: u64,
    /// The epoch that the offset belongs to.
    epoch: String,
}

/// `subscribe`.
pub(crate) struct SubscribeOperation;

impl Operation for SubscribeOperation {
    const NAME: &'static str = "subscribe";
    const SUMMARY: &'static str = "Subscribes the connections of a user to a channel, or other connections";
    const EXAMPLE: &'static str = r#"{"user": "42", "channel": "news"}"#;
    const RESULT: &'static str = COMMAND_RESULT;
    const ERRORS: &'static [Error] =
        &[Error::UNKNOWN_CHANNEL, Error::LIMIT_EXCEEDED, Error::TOO_MANY_REQUESTS, Error::BINARY_CHANNEL];
    const SCOPE: OperationScope = OperationScope::Broadcast;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(11);

    // Boxed, because it is large: the requests of the other operations would be moved with as many bytes.
    type Request<'a> = Box<SubscribeRequest<'a>>;
    type Reply = CommandReply;

    fn channels<'r>(request: &'r Box<SubscribeRequest<'_>>) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    fn is_gathered(request: &Box<SubscribeRequest<'_>>) -> bool {
        targets!(request).is_gathered()
    }

    fn merge(reply: &mut CommandReply, others: &OtherNodes<'_>) {
        reply.merge(others);
    }

    async fn run<'a>(node: &'a Node, request: Box<SubscribeRequest<'a>>) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        channel_options(&node.generation(), "channel", &request.channel)?;
        let subscription = ServerSubscription {
            info: payload(("info", "b64info"), request.info, &request.b64info)?,
            data: payload(("data", "b64data"), request.data, &request.b64data)?,
            overrides: request.overrides,
            recover: request
                .recover_since
                .map(|since| ClientPosition { offset: Offset(since.offset), epoch: since.epoch.into() }),
            expire_at_s: u32::try_from(request.expire_at).map_err(|_| OperationError::bad("expire_at"))?,
        };
        let action = ConnectionAction::Subscribe { channel: request.channel, subscription };
        targets.command(node, action).await
    }
}

/// Ends subscriptions of connections to a channel; without a channel, all of them.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct UnsubscribeRequest {
    /// The user; empty = the anonymous user. Absent beside `client` or `session`: whoever the user is.
    user: Option<String>,
    /// Several users, 1,000 at most, in place of `user`.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// The channel; empty = all.
    #[serde(deserialize_with = "nullable")]
    channel: String,
    /// Only this connection, by its client id; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only this connection, by its session; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections a second on each node; absent = at once. With it the answer comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
}

/// `unsubscribe`.
pub(crate) struct UnsubscribeOperation;

impl Operation for UnsubscribeOperation {
    const NAME: &'static str = "unsubscribe";
    const SUMMARY: &'static str = "Ends subscriptions of a user's connections to a channel; without a channel, to all";
    const EXAMPLE: &'static str = r#"{"user": "42", "channel": "news"}"#;
    const RESULT: &'static str = COMMAND_RESULT;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS];
    const SCOPE: OperationScope = OperationScope::Broadcast;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(2);

    type Request<'a> = UnsubscribeRequest;
    type Reply = CommandReply;

    fn channels<'r>(request: &'r UnsubscribeRequest) -> NamedChannels<'r> {
        // Without a channel it is about all of them, which a key that is limited to channels may not use.
        NamedChannels::One(&request.channel)
    }

    fn is_gathered(request: &UnsubscribeRequest) -> bool {
        targets!(request).is_gathered()
    }

    fn merge(reply: &mut CommandReply, others: &OtherNodes<'_>) {
        reply.merge(others);
    }

    async fn run(node: &Node, request: UnsubscribeRequest) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        let action = ConnectionAction::Unsubscribe { channel: request.channel };
        targets.command(node, action).await
    }
}

/// Ends connections.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct DisconnectRequest {
    /// The user; empty = the anonymous user. Absent beside `client` or `session`: whoever the user is.
    user: Option<String>,
    /// Several users, 1,000 at most, in place of `user`.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// Only this connection, by its client id; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only this connection, by its session; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections a second on each node; absent = at once. With it the answer comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
    /// Client ids of connections that are not ended.
    #[serde(deserialize_with = "nullable")]
    whitelist: Vec<String>,
    /// What the clients are told; absent = 3503.
    #[serde(deserialize_with = "object")]
    disconnect: Option<DisconnectReason>,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["code"]))]
struct DisconnectReason {
    /// The code: 3500–3999 and 4500–4999 are final, after any other the client comes back.
    #[schemars(range(min = 3000, max = 4999))]
    code: u16,
    /// The text, in bytes at most 123.
    #[schemars(length(max = CLOSE_REASON_MAX))]
    reason: String,
}

/// `disconnect`.
pub(crate) struct DisconnectOperation;

impl Operation for DisconnectOperation {
    const NAME: &'static str = "disconnect";
    const SUMMARY: &'static str =
        "Ends the connections of a user, with 3503 unless `disconnect` says another code and reason";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const RESULT: &'static str = COMMAND_RESULT;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS];
    const SCOPE: OperationScope = OperationScope::Broadcast;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(3);

    type Request<'a> = DisconnectRequest;
    type Reply = CommandReply;

    fn is_gathered(request: &DisconnectRequest) -> bool {
        targets!(request).is_gathered()
    }

    fn merge(reply: &mut CommandReply, others: &OtherNodes<'_>) {
        reply.merge(others);
    }

    async fn run(node: &Node, request: DisconnectRequest) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        let why = match request.disconnect {
            None => Disconnect::FORCE_NO_RECONNECT,
            Some(why) if !(3000..5000).contains(&why.code) || why.reason.len() > CLOSE_REASON_MAX => {
                return Err(OperationError::bad("disconnect"));
            }
            Some(why) => Disconnect { code: why.code, reason: why.reason.into() },
        };
        // What is no client id is nobody's.
        let except = request.whitelist.iter().filter_map(|client| client_from_text(client)).collect();
        let action = ConnectionAction::Disconnect { why, except };
        targets.command(node, action).await
    }
}

/// A client of this node or of another one.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["client"]), transform = nullable_fields)]
pub(crate) struct ClientUserRequest {
    /// The client id.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("format" = "uuid"))]
    client: String,
}

/// The user of a client.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClientUserReply {
    /// The user; empty = the anonymous user.
    user: Box<str>,
}

/// `client_user`.
pub(crate) struct ClientUserOperation;

impl Operation for ClientUserOperation {
    const NAME: &'static str = "client_user";
    const SUMMARY: &'static str = "Tells the user of a connected client";
    const RESULT: &'static str = "`user`, empty for an anonymous client";
    const EXAMPLE: &'static str = r#"{"client": "9336a229-2400-4ebc-8c50-0a643d22e8a0"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const ERRORS: &'static [Error] = &[Error::NOT_REGISTERED, Error::CLUSTER_UNREACHABLE];
    const SCOPE: OperationScope = OperationScope::ClientNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = ClientUserRequest;
    type Reply = ClientUserReply;

    async fn run(node: &Node, request: ClientUserRequest) -> Result<ClientUserReply, OperationError> {
        let owner = client_from_text(&request.client).ok_or(OperationError::bad("client"))?;
        let user = node.user_of(owner).await.ok_or(Error::NOT_REGISTERED)?;
        Ok(ClientUserReply { user })
    }
}

/// Prolongs connections, or ends them as expired; `info` replaces what other clients see of them.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct RefreshRequest<'a> {
    /// The user; empty = the anonymous user. Absent beside `client` or `session`: whoever the user is.
    user: Option<String>,
    /// Several users, 1,000 at most, in place of `user`.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// Only this connection, by its client id; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only this connection, by its session; empty = none is named.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections a second on each node; absent = at once. With it the answer comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
    /// End the connections as expired.
    #[serde(deserialize_with = "nullable")]
    expired: bool,
    /// When the connections end, Unix seconds; 0 = they do not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0))]
    expire_at: i64,
    /// What others are shown of the connections from now on (`conn_info`).
    #[serde(borrow)]
    info: Option<&'a RawValue>,
}

/// `refresh`.
pub(crate) struct RefreshOperation;

impl Operation for RefreshOperation {
    const NAME: &'static str = "refresh";
    const SUMMARY: &'static str = "Prolongs the connections of a user, or ends them as expired";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const RESULT: &'static str = COMMAND_RESULT;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS];
    const SCOPE: OperationScope = OperationScope::Broadcast;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(12);

    type Request<'a> = RefreshRequest<'a>;
    type Reply = CommandReply;

    fn is_gathered(request: &RefreshRequest<'_>) -> bool {
        targets!(request).is_gathered()
    }

    fn merge(reply: &mut CommandReply, others: &OtherNodes<'_>) {
        reply.merge(others);
    }

    async fn run<'a>(node: &'a Node, request: RefreshRequest<'a>) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        let at = u64::try_from(request.expire_at).map_err(|_| OperationError::bad("expire_at"))?;
        let action = ConnectionAction::Refresh {
            is_expired: request.expired,
            expire_at_s: (at > 0).then_some(at),
            info: payload(("info", "info"), request.info, "")?,
        };
        targets.command(node, action).await
    }
}
