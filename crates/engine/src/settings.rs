//! The `client` part of the configuration: what connections may do, and their limits.

use std::time::Duration;

use serde::Deserialize;

use crate::duration;

/// Limits and rules of client connections. Names and defaults are those of Centrifugo 6.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientSettings {
    /// Origins a browser may come from: `*`, or `scheme://host[:port]` with `*` as a wildcard. Requests without an
    /// Origin pass.
    pub allowed_origins: Vec<String>,
    /// How connection tokens are verified.
    pub token: TokenSettings,
    /// How subscription tokens are verified, if not as connection tokens are.
    pub subscription_token: SubscriptionTokenSettings,
    /// A client without a token is the anonymous user.
    pub allow_anonymous_connect_without_token: bool,
    /// Anonymous and insecure clients are accepted from this machine only; `serve --dev` sets it.
    pub anonymous_on_loopback_only: bool,
    /// A token without a user is refused.
    pub disallow_anonymous_connection_tokens: bool,
    /// No token is needed and every channel of every namespace is open. For development.
    pub insecure: bool,
    /// A client that is refused gets the cause, in the text of the error or the disconnect; `serve --dev` sets it.
    pub tell_refusal_cause: bool,
    /// Channels a connection may have at once.
    pub channel_limit: usize,
    /// Connections a user may have at once on this node; 0 = any number.
    pub user_connection_limit: usize,
    /// Connections that this node accepts; 0 = as many as it can.
    pub connection_limit: usize,
    /// Connections that clients of one address may have at once on this node, of IPv6 those of one /64; 0 = any
    /// number.
    pub connection_limit_by_address: usize,
    /// New client connections that this node accepts in a second; 0 = any number.
    pub connection_rate_limit: usize,
    /// Connections of this node whose client has not connected yet: silent ones, requests, TLS handshakes, sessions
    /// before their connect command. Beyond it the oldest are closed. 0 = any number.
    pub unauthenticated_connection_limit: usize,
    /// Commands that a connection may send in a second; one that sends more is read more slowly. 0 = any number.
    pub command_rate_limit: usize,
    /// Bytes that a connection may send in a second, in the same way.
    pub byte_rate_limit: usize,
    /// Bytes of publications and messages that may wait for one slow connection before it is ended with 3008: full
    /// lengths, and the queue's own.
    pub queue_max_size: usize,
    /// Publications and messages that may wait for it, whatever their size.
    pub queue_max_entries: usize,
    /// Commands of one connection that may be under way; with so many, its next ones are not read. Calls have a limit
    /// of their own.
    pub commands_in_flight_max: usize,
    /// How long a client may leave its replies unread in its socket before a missing pong ends the connection.
    #[serde(with = "duration")]
    pub answer_timeout: Duration,
    /// Bytes of publications in one reply: a page of history is cut to this size, a larger recovery counts as not
    /// recovered.
    pub answer_max_size: usize,
    /// Time between two pings to a connection.
    #[serde(with = "duration")]
    pub ping_interval: Duration,
    /// Time a client has to reply to a ping. Shorter than `ping_interval`.
    #[serde(with = "duration")]
    pub pong_timeout: Duration,
    /// Time a client has to send its connect command.
    #[serde(with = "duration")]
    pub stale_close_delay: Duration,
    /// Time past the token's expiry until the connection is ended.
    #[serde(with = "duration")]
    pub expired_close_delay: Duration,
    /// Time past a subscription's expiry until it is ended.
    #[serde(with = "duration")]
    pub expired_sub_close_delay: Duration,
    /// The greatest number of publications in the reply to one history command.
    pub history_max_publication_limit: usize,
    /// The greatest number of publications of one recovery; a client that missed more must reload.
    pub recovery_max_publication_limit: usize,
    /// Clients in one reply to `presence`; of larger channels the reply has a sample, with the exact number.
    pub presence_max_clients: usize,
    /// Subscribe every user to a channel of its own.
    pub subscribe_to_user_personal_channel: PersonalChannel,
    /// The connect reply carries the server's time.
    pub connect_include_server_time: bool,
    /// In a cluster: how often a node checks whether its caches of channels with history are complete. At least a
    /// second.
    #[serde(with = "duration")]
    pub channel_position_check_delay: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        ClientSettings {
            allowed_origins: Vec::new(),
            token: TokenSettings::default(),
            subscription_token: SubscriptionTokenSettings::default(),
            allow_anonymous_connect_without_token: false,
            anonymous_on_loopback_only: false,
            tell_refusal_cause: false,
            disallow_anonymous_connection_tokens: false,
            insecure: false,
            channel_limit: 128,
            user_connection_limit: 0,
            connection_limit: 0,
            connection_limit_by_address: 0,
            connection_rate_limit: 0,
            unauthenticated_connection_limit: 20_000,
            command_rate_limit: 10_000,
            byte_rate_limit: 0,
            queue_max_size: 1_048_576,
            queue_max_entries: 16_384,
            commands_in_flight_max: 64,
            answer_timeout: Duration::from_secs(60),
            answer_max_size: 16 * 1_048_576,
            ping_interval: Duration::from_secs(25),
            pong_timeout: Duration::from_secs(8),
            stale_close_delay: Duration::from_secs(10),
            expired_close_delay: Duration::from_secs(25),
            expired_sub_close_delay: Duration::from_secs(25),
            history_max_publication_limit: 300,
            recovery_max_publication_limit: 300,
            presence_max_clients: 10_000,
            subscribe_to_user_personal_channel: PersonalChannel::default(),
            connect_include_server_time: false,
            channel_position_check_delay: Duration::from_secs(40),
        }
    }
}

/// How JSON Web Tokens are verified. A token is valid if any configured key verifies it with that key's own algorithms.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenSettings {
    /// Secret for HS256, HS384, HS512. Empty = HMAC tokens are refused.
    pub hmac_secret_key: String,
    /// PEM for RS256, RS384, RS512.
    pub rsa_public_key: String,
    /// PEM for ES256, ES384.
    pub ecdsa_public_key: String,
    /// If set, `aud` must contain it.
    pub audience: String,
    /// If set, `iss` must equal it.
    pub issuer: String,
}

impl std::fmt::Debug for TokenSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |secret: &str| if secret.is_empty() { "unset" } else { "set" };
        f.debug_struct("TokenSettings")
            .field("hmac_secret_key", &shown(&self.hmac_secret_key))
            .field("rsa_public_key", &shown(&self.rsa_public_key))
            .field("ecdsa_public_key", &shown(&self.ecdsa_public_key))
            .field("audience", &self.audience)
            .field("issuer", &self.issuer)
            .finish()
    }
}

/// Keys of their own for subscription tokens.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionTokenSettings {
    /// Off: subscription tokens are verified as connection tokens are.
    pub enabled: bool,
    /// Secret for HS256, HS384, HS512.
    pub hmac_secret_key: String,
    /// PEM for RS256, RS384, RS512.
    pub rsa_public_key: String,
    /// PEM for ES256, ES384.
    pub ecdsa_public_key: String,
    /// If set, `aud` must contain it.
    pub audience: String,
    /// If set, `iss` must equal it.
    pub issuer: String,
}

impl SubscriptionTokenSettings {
    /// The same in the shape of connection tokens' settings.
    pub fn keys(&self) -> TokenSettings {
        TokenSettings {
            hmac_secret_key: self.hmac_secret_key.clone(),
            rsa_public_key: self.rsa_public_key.clone(),
            ecdsa_public_key: self.ecdsa_public_key.clone(),
            audience: self.audience.clone(),
            issuer: self.issuer.clone(),
        }
    }
}

impl std::fmt::Debug for SubscriptionTokenSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionTokenSettings").field("enabled", &self.enabled).field("keys", &self.keys()).finish()
    }
}

/// A server-side subscription of every authenticated user to a channel of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PersonalChannel {
    /// Switches it on.
    pub enabled: bool,
    /// Namespace of those channels; empty = they have no namespace.
    pub personal_channel_namespace: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscription_tokens_have_keys_of_their_own() {
        let settings = SubscriptionTokenSettings {
            enabled: true,
            hmac_secret_key: "secret".into(),
            rsa_public_key: "rsa".into(),
            ecdsa_public_key: "ecdsa".into(),
            audience: "all".into(),
            issuer: "one".into(),
        };
        let TokenSettings { hmac_secret_key, rsa_public_key, ecdsa_public_key, audience, issuer } = settings.keys();
        assert_eq!(
            [hmac_secret_key, rsa_public_key, ecdsa_public_key, audience, issuer],
            ["secret", "rsa", "ecdsa", "all", "one"]
        );
    }
}
