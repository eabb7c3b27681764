//! `subscribe`, `unsubscribe`, `disconnect`, `refresh`: commands to the connections of a user.
//!
//! `user` always selects (empty = the anonymous user); `client` and `session` narrow within that user.

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::claims::Overrides;
use touchline_engine::directory::client_text;
use touchline_engine::request::ClientPosition;
use touchline_engine::session::ServerSubscription;
use touchline_protocol::data::{object, object_or_default};
use touchline_protocol::stream::Offset;
use touchline_protocol::websocket::CLOSE_REASON_MAX;
use touchline_protocol::{Disconnect, Error};

use super::{Json, done, nullable, payload, plain};
use crate::node::Node;
use crate::runtime::mailbox::UserAction;

/// The connections that an operation applies to.
struct Selection {
    user: String,
    client: String,
    session: String,
}

impl Selection {
    /// # Errors
    /// 107 for texts with control characters.
    fn of(user: String, client: String, session: String) -> Result<Self, Error> {
        plain([&user, &client, &session])?;
        Ok(Selection { user, client, session })
    }

    /// Sends a command to the selected connections of this node.
    ///
    /// # Errors
    /// The error of a connection that refuses the command.
    async fn command(self, node: &Node, action: UserAction) -> Result<Json, Error> {
        let Selection { user, mut client, session } = self;
        if !session.is_empty() {
            // The session of a connection is its signed client id, and only its own node can verify the signature.
            let Some(owner) = node.signer.open(&session).map(client_text) else { return Ok(done()) };
            if !client.is_empty() && client != owner {
                return Ok(done());
            }
            client = owner;
        }
        node.command_user(&user, &client, action).await.map(|()| done())
    }
}

/// Subscribes the user's connections to a channel.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct SubscribeRequest<'a> {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    channel: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
    #[serde(deserialize_with = "nullable")]
    session: String,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    b64info: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    b64data: String,
    #[serde(deserialize_with = "object")]
    recover_since: Option<RecoverSince>,
    #[serde(deserialize_with = "nullable")]
    expire_at: i64,
    #[serde(rename = "override", deserialize_with = "object_or_default")]
    overrides: Overrides,
}

#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct RecoverSince {
    offset: u64,
    epoch: String,
}

/// Errors: 102, 106, 107.
pub(super) async fn subscribe(node: &Node, request: SubscribeRequest<'_>) -> Result<Json, Error> {
    let selection = Selection::of(request.user, request.client, request.session)?;
    node.session.namespaces.resolve(&request.channel)?;
    let subscription = ServerSubscription {
        info: payload(request.info, &request.b64info)?,
        data: payload(request.data, &request.b64data)?,
        overrides: request.overrides,
        recover: request
            .recover_since
            .map(|since| ClientPosition { offset: Offset(since.offset), epoch: since.epoch.into() }),
        expire_at_s: u32::try_from(request.expire_at).map_err(|_| Error::BAD_REQUEST)?,
    };
    let action = UserAction::Subscribe { channel: request.channel, subscription };
    selection.command(node, action).await
}

/// Ends the user's subscriptions to a channel; without a channel, all of them.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct UnsubscribeRequest {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    channel: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
    #[serde(deserialize_with = "nullable")]
    session: String,
}

/// Errors: 107 for a user, client or session with control characters.
pub(super) async fn unsubscribe(node: &Node, request: UnsubscribeRequest) -> Result<Json, Error> {
    let selection = Selection::of(request.user, request.client, request.session)?;
    let action = UserAction::Unsubscribe { channel: request.channel };
    selection.command(node, action).await
}

/// Ends the user's connections.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct DisconnectRequest {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
    #[serde(deserialize_with = "nullable")]
    session: String,
    #[serde(deserialize_with = "nullable")]
    whitelist: Vec<String>,
    #[serde(deserialize_with = "object")]
    disconnect: Option<DisconnectReason>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct DisconnectReason {
    code: u16,
    reason: String,
}

/// Errors: 107 for a user, client or session with control characters, a code outside 3000–4999 or a reason over 123
/// bytes.
pub(super) async fn disconnect(node: &Node, request: DisconnectRequest) -> Result<Json, Error> {
    let selection = Selection::of(request.user, request.client, request.session)?;
    let why = match request.disconnect {
        None => Disconnect::FORCE_NO_RECONNECT,
        Some(why) if !(3000..5000).contains(&why.code) || why.reason.len() > CLOSE_REASON_MAX => {
            return Err(Error::BAD_REQUEST);
        }
        Some(why) => Disconnect { code: why.code, reason: why.reason.into() },
    };
    let action = UserAction::Disconnect { why, except: request.whitelist };
    selection.command(node, action).await
}

/// Prolongs the user's connections, or ends them as expired; `info` replaces what other clients see of them.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct RefreshRequest<'a> {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    client: String,
    #[serde(deserialize_with = "nullable")]
    session: String,
    #[serde(deserialize_with = "nullable")]
    expired: bool,
    #[serde(deserialize_with = "nullable")]
    expire_at: i64,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
}

/// Errors: 107 for a negative time, a user, client or session with control characters.
pub(super) async fn refresh(node: &Node, request: RefreshRequest<'_>) -> Result<Json, Error> {
    let selection = Selection::of(request.user, request.client, request.session)?;
    let at = u64::try_from(request.expire_at).map_err(|_| Error::BAD_REQUEST)?;
    let action = UserAction::Refresh {
        is_expired: request.expired,
        expire_at_s: (at > 0).then_some(at),
        info: payload(request.info, "")?,
    };
    selection.command(node, action).await
}
