//! What a session reports about its client to operators and backends that ask which clients are connected.

use bytes::Bytes;

use super::state::Session;
use crate::hub::LocalChannel;

impl Session {
    /// When the token was issued that the client showed last, Unix seconds; `None` = the client has shown none, or the
    /// token does not say.
    pub fn token_issued_s(&self) -> Option<u32> {
        Some(self.token.iat_s()).filter(|iat_s| self.token.is_shown() && *iat_s != 0)
    }

    /// How long the client took to answer the last ping, milliseconds; `None` = it has not answered a ping yet, or a
    /// pong is awaited.
    pub fn latency_ms(&self) -> Option<u32> {
        self.heartbeat.latency_ms()
    }

    /// The labels of the connection, a JSON object whose values are texts; `None` = it has none.
    pub fn labels(&self) -> Option<&Bytes> {
        self.hooks()?.labels.as_ref()
    }

    /// The `meta` of the connection from its token or backend, a JSON object. `None` = there is none, or it is not kept
    /// because no hook receives it.
    pub fn meta(&self) -> Option<&Bytes> {
        self.hooks()?.meta.as_ref()
    }

    /// The channels that the client is subscribed to, each with whether it is a server-side subscription.
    pub fn settled_subscriptions(&self) -> impl Iterator<Item = (LocalChannel, bool)> {
        let settled = self.subscriptions.iter().filter(|subscription| subscription.membership.is_some());
        settled.map(|subscription| (subscription.channel, subscription.is_server_side))
    }
}
