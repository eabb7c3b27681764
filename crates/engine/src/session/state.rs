//! The state of a session, and what can be derived from it alone.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::ClientInfo;
use touchline_registry::OwnerId;
use uuid::Builder;

use super::counted::RareState;
use super::effects::Outbound;
use super::flow::Flow;
use super::heartbeat::Heartbeat;
use super::subscriptions::Subscriptions;
use super::transport::TransportMode;
use crate::bans::TokenMark;
use crate::directory::client_text;
use crate::duration::millis;
use crate::hub::Hub;
use crate::settings::ClientSettings;

#[derive(Debug)]
pub(super) enum Phase {
    /// The client has not sent a connect command.
    AwaitingConnect,
    /// The backend is being asked to authenticate the client.
    Authenticating,
    /// The connect reply waits for server-side subscriptions.
    Connecting(Box<Connecting>),
    /// The connect reply was sent.
    Connected,
    /// The connect was refused; the client is expected to close the connection.
    Refused,
    /// The session has ended.
    Closed,
}

/// A connect under way.
#[derive(Debug, Default)]
pub(super) struct Connecting {
    pub(super) command: u32,
    /// The number of server-side subscriptions without a response, plus one while the token's names and groups have no
    /// response.
    pub(super) awaited: usize,
    /// Whether the names and groups of the client are not registered yet.
    pub(super) is_registering: bool,
    /// Requests to homes of channels that are sent once the names and groups of the token are registered.
    pub(super) deferred: Vec<Outbound>,
    /// The backend's data for the client, JSON.
    pub(super) data: Option<Bytes>,
    /// Whether the backend authenticated the client, so that the client is not to blame for a mistake.
    pub(super) is_of_hook: bool,
    /// Channels with their encoded `SubscribeResult`.
    pub(super) subs: Vec<(String, Vec<u8>)>,
    /// The bytes of `subs`.
    pub(super) subs_bytes: usize,
    /// Pushes of the new subscriptions. They are sent after the reply.
    pub(super) held: Vec<Bytes>,
    /// The bytes of `held`.
    pub(super) held_bytes: usize,
    /// Whether more pushes arrived than may be held back: the client has to connect again.
    pub(super) is_overrun: bool,
    /// The version of the bans that were checked when the client was accepted.
    pub(super) bans_version: u64,
}

/// The protocol state of one client.
#[derive(Debug)]
pub struct Session {
    pub(super) phase: Phase,
    pub(super) heartbeat: Heartbeat,
    pub(super) flow: Flow,
    pub(super) client: [u8; 16],
    pub(super) user: Box<str>,
    /// The token that the client showed last for its connection.
    pub(super) token: TokenMark,
    pub(super) conn_info: Option<Box<Bytes>>,
    pub(super) subscriptions: Subscriptions,
    pub(super) next_serial: u32,
    /// When the connection expires, Unix seconds; 0 = never.
    pub(super) expire_at_s: u32,
    pub(super) is_loopback: bool,
    pub(super) transport: TransportMode,
    /// The number of lines that were not valid commands, minus those that valid commands have cancelled out.
    pub(super) mistakes: u8,
    /// The number of commands since a mistake was last subtracted.
    pub(super) commands_since_mistake: u8,
    /// The number of pings that were sent while a pong was awaited. As many additional pongs may arrive.
    pub(super) pings_ahead: u8,
    /// When the client last sent something, Unix seconds.
    pub(super) last_input_s: u32,
    /// Whether the directory may have entries or calls of this client.
    pub(super) has_entries: bool,
    pub(super) rare: Option<Box<RareState>>,
}

impl Session {
    /// A session of a client that has sent nothing yet. `client` is random. `is_loopback`: the client runs on this
    /// machine.
    pub fn new(
        client: [u8; 16],
        transport: TransportMode,
        is_loopback: bool,
        now_ms: u64,
        client_settings: &ClientSettings,
    ) -> Self {
        Session {
            phase: Phase::AwaitingConnect,
            heartbeat: Heartbeat::due(now_ms.saturating_add(millis(client_settings.stale_close_delay))),
            flow: Flow::default(),
            client,
            user: Box::default(),
            token: TokenMark::NONE,
            conn_info: None,
            subscriptions: Subscriptions::default(),
            next_serial: 0,
            expire_at_s: 0,
            is_loopback,
            transport,
            mistakes: 0,
            commands_since_mistake: 0,
            pings_ahead: 0,
            last_input_s: (now_ms / 1_000) as u32,
            has_entries: false,
            rare: None,
        }
    }

    /// Sets the client's user before it connects, because the client was authenticated without a token.
    pub fn certify(&mut self, user: String) {
        self.user = user.into();
    }

    /// The client id: a version 4 UUID (RFC 9562) made from the session's random bytes.
    pub fn owner(&self) -> OwnerId {
        OwnerId(Builder::from_random_bytes(self.client).into_uuid().into_bytes())
    }

    /// What a token or a backend has said about the connection, and its labels: JSON objects. `None` = there is
    /// nothing, or no backend receives it.
    pub fn meta_and_labels(&self) -> (Option<Bytes>, Option<Bytes>) {
        let state = self.rare.as_ref().and_then(|rare| rare.hooks.as_ref());
        state.map_or((None, None), |state| (state.meta.clone(), state.labels.clone()))
    }

    /// The client id in its usual text form.
    pub fn client_id(&self) -> Box<str> {
        client_text(self.owner()).into()
    }

    /// The user of the client; empty = anonymous, or not connected yet.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether the connect reply was sent to the client.
    pub fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected)
    }

    /// Whether the client has been authenticated.
    pub fn is_known(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_) | Phase::Connected)
    }

    /// Whether the session still reads commands.
    pub fn is_listening(&self) -> bool {
        !matches!(self.phase, Phase::Refused | Phase::Closed)
    }

    /// Whether pushes must go through [`Session::hold`].
    pub fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_))
    }

    /// The number of subscriptions, including those under way.
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// The client's info, as other clients see it.
    pub(super) fn info(&self, chan_info: Option<Bytes>) -> Arc<ClientInfo> {
        let conn_info = self.conn_info.as_deref().cloned();
        Arc::new(ClientInfo { user: self.user.clone(), client: self.client_id(), conn_info, chan_info })
    }

    pub(super) fn find(&self, channel: &str, hub: &Hub) -> Option<usize> {
        self.subscriptions.find(hub.find(channel)?)
    }
}
