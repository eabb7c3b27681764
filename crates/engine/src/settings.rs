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
        /// Origins of pages that browsers may connect from: `*`, or `scheme://host[:port]` with `*` as a wildcard. A
        /// page from the server's own host is always allowed.
        key allowed_origins: Vec<String> = &[];
        /// How connection tokens are verified.
        section token: TokenSettings = TokenSettings::default();
        /// How subscription tokens are verified, if differently from connection tokens.
        section subscription_token: SubscriptionTokenSettings = SubscriptionTokenSettings::default();
        /// A client without a token is accepted as the anonymous user, whose id is empty.
        key allow_anonymous_connect_without_token: bool = false;
        /// Anonymous and insecure clients are accepted only from this machine. `--dev` sets it.
        own anonymous_on_loopback_only: bool = false;
        /// The header field in which a proxy of `http_server.trusted_proxies` names the user of a client that it has
        /// authenticated. Such a client needs no token. The field is ignored if others send it. Empty: no proxy
        /// authenticates clients.
        key user_id_http_header: String = "";
        /// A token without a user is refused.
        key disallow_anonymous_connection_tokens: bool = false;
        /// No token is needed and every channel is open. For development only.
        key insecure: bool = false;
        /// A client that is refused gets the cause, in the text of the error or the disconnect. The log contains the
        /// cause in any case. A caller of the server API gets the header `X-Touchline-Warning` for a field that the
        /// operation does not have. `--dev` sets it.
        own tell_refusal_cause: bool = false;
        /// How many channels one connection may have at once.
        key channel_limit: usize = 128;
        /// How many connections one user may have on this node. A further connection is ended with 3504 instead of
        /// being connected. 0 = any number.
        key user_connection_limit: usize = 0;
        /// How many connections this node accepts. It may accept a few more if several clients connect at the same
        /// moment. 0 = any number.
        key connection_limit: usize = 0;
        /// How many connections clients from one address may have at once on this node; for IPv6 a /64 counts as one
        /// address. Further connections are refused with HTTP status 429. 0 = any number.
        own connection_limit_by_address: usize = 0;
        /// How many new client connections this node accepts in a second. Further ones are refused with HTTP status
        /// 503. 0 = any number.
        key connection_rate_limit: usize = 0;
        /// How many connections this node may have that have not sent a connect command yet. Silent connections,
        /// requests that are being read and TLS handshakes count too. If there are more, the oldest are closed. 0 = any
        /// number.
        own unauthenticated_connection_limit: usize = 20_000;
        /// How many commands a connection may send in a second. If it sends more, it is read more slowly. A connection
        /// may send the commands of 0.2 s at once, or 1,000 commands if that is more. 0 = any number.
        own command_rate_limit: usize = 10_000;
        /// How many bytes a connection may send in a second. If it sends more, it is read more slowly. 0 = any number.
        own byte_rate_limit: usize = 0;
        /// How many bytes of publications and messages may wait for one slow connection before it is ended with 3008.
        /// Answers to its own commands do not count, because they are written only when there is room.
        key queue_max_size: usize = 1_048_576, SOME;
        /// How many publications and messages may wait for one slow connection before it is ended with 3008.
        own queue_max_entries: usize = 16_384, SOME;
        /// How many commands of one connection may be under way. If there are so many, the node reads no further
        /// command of the connection until one of them is answered. Calls of the registry have a limit of their own.
        own commands_in_flight_max: usize = 64, ValueKind::Integer(1, 65_535);
        /// How many commands of one connection may wait for a backend (hooks). If there are so many, the node reads no
        /// further command of the connection until one of them is answered.
        own hook_calls_in_flight_max: usize = 16, ValueKind::Integer(1, 65_535);
        /// How long a client may leave answers to its commands unread. If no answers wait, a missing pong ends the
        /// connection at once. If answers wait, a missing pong ends the connection only after this time.
        own answer_timeout: Duration = Duration::from_secs(60);
        /// The greatest size of the publications in one answer, bytes. A page of history ends before it becomes larger.
        /// A larger recovery is reported as not recovered.
        own answer_max_size: usize = 16_777_216, SOME;
        /// The time between two pings to a connection.
        key ping_interval: Duration = Duration::from_secs(25);
        /// How long a client may take to answer a ping. Must be shorter than the interval.
        key pong_timeout: Duration = Duration::from_secs(8);
        /// In a cluster: how often a node checks whether its channels with history have everything that NATS keeps. At
        /// least one second.
        key channel_position_check_delay: Duration = Duration::from_secs(40);
        /// How long a client may take to send its connect command.
        key stale_close_delay: Duration = Duration::from_secs(10);
        /// How long after the expiry of its token a connection is ended.
        key expired_close_delay: Duration = Duration::from_secs(25);
        /// How long after its expiry a subscription is ended.
        key expired_sub_close_delay: Duration = Duration::from_secs(25);
        /// How many publications one history call of a client returns at most.
        key history_max_publication_limit: usize = 300;
        /// How many clients one answer to `presence` lists. For larger channels it lists a sample, with the exact
        /// number.
        own presence_max_clients: usize = 10_000, SOME;
        /// How many publications one recovery returns at most. A client that missed more must load the state again.
        key recovery_max_publication_limit: usize = 300;
        /// Subscribes every user to a channel of its own.
        section subscribe_to_user_personal_channel: PersonalChannel = PersonalChannel::default();
        /// Hooks for connections: when a client connects, and when a connection expires.
        section proxy: ClientProxySettings = ClientProxySettings::default();
        /// The connect reply contains the server's time.
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
        /// The namespace of the users' personal channels; empty = they have no namespace.
        key personal_channel_namespace: String = "";
    }
}
