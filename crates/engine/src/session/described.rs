//! What a session tells of its client to who asks who is connected.

use bytes::Bytes;

use super::state::Session;
use crate::hub::LocalChannel;

impl Session {
    /// When the token was issued that the client has shown last, Unix seconds; `None` = it has shown none, or the token
    /// does not say it.
    pub fn token_issued_s(&self) -> Option<u32> {
        Some(self.token.iat_s()).filter(|iat_s| self.token.is_shown() && *iat_s != 0)
    }

    /// How long the client took to answer the last ping, milliseconds; `None` = it has answered none, or a pong is
    /// awaited.
    pub fn latency_ms(&self) -> Option<u32> {
        self.heartbeat.latency_ms()
    }

    /// The labels of the connection, a JSON object of texts; `None` = it has none.
    pub fn labels(&self) -> Option<&Bytes> {
        self.hooks()?.labels.as_ref()
    }

    /// What the token or the backend has said of the connection, a JSON object; `None` = nothing, or no hook is sent
    /// it, and then it is not kept.
    pub fn meta(&self) -> Option<&Bytes> {
        self.hooks()?.meta.as_ref()
    }

    /// The channels that the client is subscribed to, and whether the server has subscribed it.
    pub fn settled_subscriptions(&self) -> impl Iterator<Item = (LocalChannel, bool)> {
        let settled = self.subscriptions.iter().filter(|subscription| subscription.membership.is_some());
        settled.map(|subscription| (subscription.channel, subscription.is_server_side))
    }
}
