//! `subscribe`, `unsubscribe`, `disconnect`, `refresh`: what is done to the connections of a user.
//!
//! `user` always selects (empty = the anonymous user); `client` narrows within that user.

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::claims::Overrides;
use touchline_engine::session::ServerSubscription;
use touchline_protocol::{Disconnect, Error};

use super::{Json, done, nullable, payload, plain};
use crate::inbox::UserAction;
use crate::node::Node;

/// Longest reason of a disconnect: a close frame holds no more.
const REASON_MAX: usize = 123;

/// Subscribes the user's connections to a channel.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SubscribeRequest<'a> {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    channel: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    b64info: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    b64data: String,
    recover_since: Option<Since>,
    #[serde(deserialize_with = "nullable")]
    expire_at: i64,
    #[serde(rename = "override", deserialize_with = "nullable")]
    overrides: Overrides,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Since {
    offset: u64,
    epoch: String,
}

/// Errors: 102, 106, 107.
pub(super) async fn subscribe(node: &Node, request: SubscribeRequest<'_>) -> Result<Json, Error> {
    plain([&request.user, &request.client])?;
    node.session.namespaces.resolve(&request.channel)?;
    let subscription = ServerSubscription {
        info: payload(request.info, &request.b64info)?,
        data: payload(request.data, &request.b64data)?,
        overrides: request.overrides,
        recover: request.recover_since.map(|since| (since.offset, since.epoch.into())),
        expire_at_s: u32::try_from(request.expire_at).map_err(|_| Error::BAD_REQUEST)?,
    };
    let action = UserAction::Subscribe { channel: request.channel, subscription };
    node.order(&request.user, &request.client, action).await.map(|()| done())
}

/// Ends the user's subscriptions to a channel; without a channel, all of them.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct UnsubscribeRequest {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    channel: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
}

/// Errors: 107 for a user or client with control characters.
pub(super) async fn unsubscribe(node: &Node, request: UnsubscribeRequest) -> Result<Json, Error> {
    plain([&request.user, &request.client])?;
    let action = UserAction::Unsubscribe { channel: request.channel };
    node.order(&request.user, &request.client, action).await.map(|()| done())
}

/// Ends the user's connections.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct DisconnectRequest {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
    #[serde(deserialize_with = "nullable")]
    whitelist: Vec<String>,
    disconnect: Option<Why>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Why {
    code: u16,
    reason: String,
}

/// Errors: 107 for a user or client with control characters, a code outside 3000–4999 or a reason over 123 bytes.
pub(super) async fn disconnect(node: &Node, request: DisconnectRequest) -> Result<Json, Error> {
    plain([&request.user, &request.client])?;
    let why = match request.disconnect {
        None => Disconnect::FORCE_NO_RECONNECT,
        Some(why) if !(3000..5000).contains(&why.code) || why.reason.len() > REASON_MAX => return Err(Error::BAD_REQUEST),
        Some(why) => Disconnect { code: why.code, reason: why.reason.into() },
    };
    let action = UserAction::Disconnect { why, except: request.whitelist };
    node.order(&request.user, &request.client, action).await.map(|()| done())
}

/// Prolongs the user's connections, or ends them as expired.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct RefreshRequest {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
    #[serde(deserialize_with = "nullable")]
    expired: bool,
    #[serde(deserialize_with = "nullable")]
    expire_at: i64,
}

/// Errors: 107 for a negative time, or a user or client with control characters.
pub(super) async fn refresh(node: &Node, request: RefreshRequest) -> Result<Json, Error> {
    plain([&request.user, &request.client])?;
    let at = u64::try_from(request.expire_at).map_err(|_| Error::BAD_REQUEST)?;
    let action = UserAction::Refresh { is_expired: request.expired, expire_at_s: (at > 0).then_some(at) };
    node.order(&request.user, &request.client, action).await.map(|()| done())
}
