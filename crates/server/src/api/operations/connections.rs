//! The operations `subscribe`, `unsubscribe`, `disconnect` and `refresh`: commands to connections. [`Targets`] selects
//! the connections.

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
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{channel_options, nullable, nullable_fields, payload};
use crate::api::targets::{CommandReply, Targets, USERS_MAX};
use crate::auth::NamedChannels;
use crate::runtime::mailbox::ConnectionAction;
use crate::runtime::pacer::PACE_MAX;

/// Describes the fields of the result, in Markdown.
const COMMAND_RESULT: &str = "with `users`, `rate`, or `client` or `session` without `user`: `connections`, `nodes` \
    with the connections of each, `missing_nodes`";

/// Takes the fields that select connections from a request.
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

/// A request to subscribe connections to a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct SubscribeRequest<'a> {
    /// The user; empty = the anonymous user. Absent with `client` or `session` = any user.
    user: Option<String>,
    /// Several users instead of `user`, 1,000 at most.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// The channel to subscribe to.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// Only the connection with this client id; empty = not limited to a client.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only the connection with this session; empty = not limited to a session.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections per second on each node; absent = all at once. With a rate, the reply comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
    /// The information about the subscription that other clients see (`chan_info`).
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    /// `info` as base64: JSON or other bytes.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("contentEncoding" = "base64"))]
    b64info: String,
    /// Data that the client gets with the subscription.
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    /// `data` as base64: JSON or other bytes.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("contentEncoding" = "base64"))]
    b64data: String,
    /// The position from which the client receives the publications that it missed; absent = no recovery.
    #[serde(deserialize_with = "object")]
    recover_since: Option<RecoverSince>,
    /// The time when the subscription ends, in Unix seconds; 0 = it does not end.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0, max = u32::MAX))]
    expire_at: i64,
    /// Options of the subscription that replace those of its namespace.
    #[serde(rename = "override", deserialize_with = "object_or_default")]
    #[schemars(with = "Option<Overrides>")]
    overrides: Overrides,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
struct RecoverSince {
    /// The offset of the last publication that the client has; 0 = it has none.
    offset: u64,
    /// The epoch of the log that the offset belongs to.
    epoch: String,
}

/// The operation `subscribe`.
pub(crate) struct SubscribeOperation;

impl Operation for SubscribeOperation {
    const NAME: &'static str = "subscribe";
    const SUMMARY: &'static str = "Subscribes connections to a channel: those of users, of a client or of a session";
    const EXAMPLE: &'static str = r#"{"user": "42", "channel": "news"}"#;
    const RESULT: &'static str = COMMAND_RESULT;
    const ERRORS: &'static [Error] =
        &[Error::UNKNOWN_CHANNEL, Error::LIMIT_EXCEEDED, Error::TOO_MANY_REQUESTS, Error::BINARY_CHANNEL];
    const SCOPE: OperationScope = OperationScope::Broadcast;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(11);

    // Boxed because it is large: otherwise the requests of the other operations would be moved with as many bytes.
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

    async fn run<'a>(
        node: RequestNode<'a>,
        request: Box<SubscribeRequest<'a>>,
    ) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        channel_options(node.generation(), "channel", &request.channel)?;
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
        targets.command(&node, action).await
    }
}

/// A request to end subscriptions of connections: to one channel, or to all channels.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct UnsubscribeRequest {
    /// The user; empty = the anonymous user. Absent with `client` or `session` = any user.
    user: Option<String>,
    /// Several users instead of `user`, 1,000 at most.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// The channel to unsubscribe from; empty = all channels.
    #[serde(deserialize_with = "nullable")]
    channel: String,
    /// Only the connection with this client id; empty = not limited to a client.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only the connection with this session; empty = not limited to a session.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections per second on each node; absent = all at once. With a rate, the reply comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
}

/// The operation `unsubscribe`.
pub(crate) struct UnsubscribeOperation;

impl Operation for UnsubscribeOperation {
    const NAME: &'static str = "unsubscribe";
    const SUMMARY: &'static str =
        "Ends subscriptions of connections: to a channel, or to all channels if none is named";
    const EXAMPLE: &'static str = r#"{"user": "42", "channel": "news"}"#;
    const RESULT: &'static str = COMMAND_RESULT;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS];
    const SCOPE: OperationScope = OperationScope::Broadcast;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(2);

    type Request<'a> = UnsubscribeRequest;
    type Reply = CommandReply;

    fn channels<'r>(request: &'r UnsubscribeRequest) -> NamedChannels<'r> {
        // Without a channel the request is about all channels. A key that is limited to some channels may not send it.
        NamedChannels::One(&request.channel)
    }

    fn is_gathered(request: &UnsubscribeRequest) -> bool {
        targets!(request).is_gathered()
    }

    fn merge(reply: &mut CommandReply, others: &OtherNodes<'_>) {
        reply.merge(others);
    }

    async fn run(node: RequestNode<'_>, request: UnsubscribeRequest) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        let action = ConnectionAction::Unsubscribe { channel: request.channel };
        targets.command(&node, action).await
    }
}

/// A request to end connections.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct DisconnectRequest {
    /// The user; empty = the anonymous user. Absent with `client` or `session` = any user.
    user: Option<String>,
    /// Several users instead of `user`, 1,000 at most.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// Only the connection with this client id; empty = not limited to a client.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only the connection with this session; empty = not limited to a session.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections per second on each node; absent = all at once. With a rate, the reply comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
    /// Client ids of connections that stay open.
    #[serde(deserialize_with = "nullable")]
    whitelist: Vec<String>,
    /// The code and reason that the clients receive; absent = 3503.
    #[serde(deserialize_with = "object")]
    disconnect: Option<DisconnectReason>,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["code"]))]
struct DisconnectReason {
    /// The disconnect code. A client does not reconnect after 3500–3999 and 4500–4999; after other codes it does.
    #[schemars(range(min = 3000, max = 4999))]
    code: u16,
    /// The reason as text, at most 123 bytes.
    #[schemars(length(max = CLOSE_REASON_MAX))]
    reason: String,
}

/// The operation `disconnect`.
pub(crate) struct DisconnectOperation;

impl Operation for DisconnectOperation {
    const NAME: &'static str = "disconnect";
    const SUMMARY: &'static str = "Ends connections, with code 3503 unless `disconnect` gives another code and reason";
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

    async fn run(node: RequestNode<'_>, request: DisconnectRequest) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        let why = match request.disconnect {
            None => Disconnect::FORCE_NO_RECONNECT,
            Some(why) if !(3000..5000).contains(&why.code) || why.reason.len() > CLOSE_REASON_MAX => {
                return Err(OperationError::bad("disconnect"));
            }
            Some(why) => Disconnect { code: why.code, reason: why.reason.into() },
        };
        // A text that is not a client id names no connection.
        let except = request.whitelist.iter().filter_map(|client| client_from_text(client)).collect();
        let action = ConnectionAction::Disconnect { why, except };
        targets.command(&node, action).await
    }
}

/// A request for the user of a client on any node.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["client"]), transform = nullable_fields)]
pub(crate) struct ClientUserRequest {
    /// The client id of the connection.
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

/// The operation `client_user`.
pub(crate) struct ClientUserOperation;

impl Operation for ClientUserOperation {
    const NAME: &'static str = "client_user";
    const SUMMARY: &'static str = "Returns the user of a connected client";
    const RESULT: &'static str = "`user`, empty for an anonymous client";
    const EXAMPLE: &'static str = r#"{"client": "9336a229-2400-4ebc-8c50-0a643d22e8a0"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const ERRORS: &'static [Error] = &[Error::NOT_REGISTERED, Error::CLUSTER_UNREACHABLE];
    const SCOPE: OperationScope = OperationScope::ClientNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = ClientUserRequest;
    type Reply = ClientUserReply;

    async fn run(node: RequestNode<'_>, request: ClientUserRequest) -> Result<ClientUserReply, OperationError> {
        let owner = client_from_text(&request.client).ok_or(OperationError::bad("client"))?;
        let user = node.user_of(owner).await.ok_or(Error::NOT_REGISTERED)?;
        Ok(ClientUserReply { user })
    }
}

/// A request to extend connections or to end them as expired. `info` replaces the information that other clients see.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct RefreshRequest<'a> {
    /// The user; empty = the anonymous user. Absent with `client` or `session` = any user.
    user: Option<String>,
    /// Several users instead of `user`, 1,000 at most.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// Only the connection with this client id; empty = not limited to a client.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only the connection with this session; empty = not limited to a session.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections per second on each node; absent = all at once. With a rate, the reply comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
    /// `true`: end the connections as if they had expired.
    #[serde(deserialize_with = "nullable")]
    expired: bool,
    /// The time when the connections expire, in Unix seconds; 0 = they do not expire.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(min = 0))]
    expire_at: i64,
    /// The new information about the connections that other clients see (`conn_info`), in presence too.
    #[serde(borrow)]
    info: Option<&'a RawValue>,
}

/// The operation `refresh`.
pub(crate) struct RefreshOperation;

impl Operation for RefreshOperation {
    const NAME: &'static str = "refresh";
    const SUMMARY: &'static str = "Sets a new expiry time for connections, or ends connections as if they had expired";
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

    async fn run<'a>(node: RequestNode<'a>, request: RefreshRequest<'a>) -> Result<CommandReply, OperationError> {
        let targets = targets!(request).check()?;
        let at = u64::try_from(request.expire_at).map_err(|_| OperationError::bad("expire_at"))?;
        let action = ConnectionAction::Refresh {
            is_expired: request.expired,
            expire_at_s: (at > 0).then_some(at),
            info: payload(("info", "info"), request.info, "")?,
        };
        targets.command(&node, action).await
    }
}
