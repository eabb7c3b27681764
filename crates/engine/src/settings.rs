//! The `client` part of the configuration: what connections may do, and their limits. Names and defaults are those of
//! Centrifugo 6 where it has them.

use std::time::Duration;

use crate::hook::ClientProxySettings;
use crate::limit::RateLimitSettings;
use crate::setting::{SOME, ValueKind};
use crate::token_settings::{SubscriptionTokenSettings, TokenSettings};

settings! {
    /// Limits and rules of client connections. Names and defaults are those of Centrifugo 6.
    pub struct ClientSettings {
        /// Origins that browsers may come from: `*`, or `scheme://host[:port]` with `*` as a wildcard. A page of the
        /// server's own host always may.
        key allowed_origins: Vec<String> = &[];
        /// How connection tokens are verified.
        section token: TokenSettings = TokenSettings::default();
        /// How subscription tokens are verified, if not as connection tokens are.
        section subscription_token: SubscriptionTokenSettings = SubscriptionTokenSettings::default();
        /// A client without a token is let in as the anonymous user, whose id is empty.
        key allow_anonymous_connect_without_token: bool = false;
        /// Anonymous and insecure clients are taken from this machine only. `--dev` sets it.
        own anonymous_on_loopback_only: bool = false;
        /// The header field in which a proxy of `http_server.trusted_proxies` names the user of a client that it has
        /// authenticated: such a client needs no token. From others the field says nothing. Empty: no proxy does.
        key user_id_http_header: String = "";
        /// A token without a user is refused.
        key disallow_anonymous_connection_tokens: bool = false;
        /// No token is needed and every channel is open. For development.
        key insecure: bool = false;
        /// A client that is refused is told what is missing or wrong, in the text of the error or the disconnect. The
        /// log has it in any case. `--dev` sets it.
        own tell_refusal_cause: bool = false;
        /// Channels that one connection may have at once.
        key channel_limit: usize = 128;
        /// Connections that one user may have on this node; one more is ended with 3504 instead of being connected. 0
        /// is any number.
        key user_connection_limit: usize = 0;
        /// Connections that this node takes, and a few more when several come at once; 0 is any number.
        key connection_limit: usize = 0;
        /// Connections that clients of one address may have at once on this node, of IPv6 those of one /64; more are
        /// refused with HTTP status 429. 0 is any number.
        own connection_limit_by_address: usize = 0;
        /// New client connections that this node takes in a second; more are refused with HTTP status 503. 0 is any
        /// number.
        key connection_rate_limit: usize = 0;
        /// Connections of this node whose client has not connected yet: silent ones, requests that are read, TLS
        /// handshakes, sessions before their connect command. Beyond it the oldest of them are closed. 0 is any number.
        own unauthenticated_connection_limit: usize = 20_000;
        /// Commands that a connection may send in a second; one that sends more is read more slowly. What 0.2 s allow
        /// may come at once, and 1,000 at least. 0 is any number.
        own command_rate_limit: usize = 10_000;
        /// Bytes that a connection may send in a second; one that sends more is read more slowly. 0 is any number.
        own byte_rate_limit: usize = 0;
        /// Bytes of publications and messages that may wait for one slow connection until it is ended with 3008.
        /// Answers to its own commands do not count: they are made only when there is room.
        key queue_max_size: usize = 1_048_576, SOME;
        /// Publications and messages that may wait for one slow connection until it is ended with 3008.
        own queue_max_entries: usize = 16_384, SOME;
        /// Commands of one connection that may be under way; then its next ones are not read until one is answered.
        /// Calls of the registry have a limit of their own.
        own commands_in_flight_max: usize = 64, ValueKind::Integer(1, 65_535);
        /// Commands of one connection that may wait for a backend (hooks); then its next ones are not read until one is
        /// answered.
        own hook_calls_in_flight_max: usize = 16, ValueKind::Integer(1, 65_535);
        /// Time for which a client may leave answers that it has asked for unread; after it a missing pong ends the
        /// connection, as it does at once where no answers wait.
        own answer_timeout: Duration = Duration::from_secs(60);
        /// Bytes of publications in one answer: a page of history ends before it is larger, a recovery that is larger
        /// is told as not recovered.
        own answer_max_size: usize = 16_777_216, SOME;
        /// Time between two pings to a connection.
        key ping_interval: Duration = Duration::from_secs(25);
        /// Time a client has to answer a ping; shorter than the interval.
        key pong_timeout: Duration = Duration::from_secs(8);
        /// In a cluster: how often a node looks whether its channels with history have all that NATS keeps; at least a
        /// second.
        key channel_position_check_delay: Duration = Duration::from_secs(40);
        /// Time a client has to send its connect command.
        key stale_close_delay: Duration = Duration::from_secs(10);
        /// Time past a token's expiry until the connection is ended.
        key expired_close_delay: Duration = Duration::from_secs(25);
        /// Time past a subscription's expiry until it is ended.
        key expired_sub_close_delay: Duration = Duration::from_secs(25);
        /// Publications that one history call of a client gives.
        key history_max_publication_limit: usize = 300;
        /// Clients in one answer to `presence`; of larger channels a sample is shown, with the exact number.
        own presence_max_clients: usize = 10_000, SOME;
        /// Publications that one recovery gives; a client that missed more must reload.
        key recovery_max_publication_limit: usize = 300;
        /// Subscribe every user to a channel of its own.
        section subscribe_to_user_personal_channel: PersonalChannel = PersonalChannel::default();
        /// Hooks about connections.
        section proxy: ClientProxySettings = ClientProxySettings::default();
        /// The connect reply carries the server's time.
        key connect_include_server_time: bool = false;
        /// Rates of single commands, of errors and of failed connects, by connection, user and address.
        section rate_limit: RateLimitSettings = RateLimitSettings::default();
    }
}

settings! {
    /// A server-side subscription of every authenticated user to a channel of its own.
    pub struct PersonalChannel {
        /// Every user is subscribed to a channel of its own: `#<user>`, or `<namespace>:#<user>`.
        key enabled: bool = false;
        /// Namespace of the users' personal channels; empty: they are in none.
        key personal_channel_namespace: String = "";
    }
}
