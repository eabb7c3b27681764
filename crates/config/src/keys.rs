//! Every key that we act on: its kind, its default, what it means. `docs/configuration.md` is made from this table.
//!
//! Names and defaults are Centrifugo 6's where the concept is; the others are marked as ours.

use ValueKind::{Boolean, Choice, Duration, Integer, Optional, Pattern, Pem, Secret, Text, Texts};

/// What a key's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// True or false.
    Boolean,
    /// A whole number within bounds.
    Integer(u64, u64),
    /// The same, or empty: none.
    Optional(u64, u64),
    /// A time such as `25s`.
    Duration,
    /// Any text.
    Text,
    /// Text that is never shown.
    Secret,
    /// A public key in PEM.
    Pem,
    /// A regular expression.
    Pattern,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
}

impl ValueKind {
    /// Its name in the reference and in errors.
    pub fn name(self) -> String {
        match self {
            Boolean => "true or false".into(),
            Integer(least, u64::MAX) => format!("a number from {least}"),
            Integer(least, most) => format!("a number from {least} to {most}"),
            Optional(least, most) => format!("a number from {least} to {most}, or empty"),
            Duration => "a duration such as \"25s\", \"1h30m\" or \"500ms\"".into(),
            Text => "text".into(),
            Secret => "text (a secret)".into(),
            Pem => "a public key in PEM".into(),
            Pattern => "a regular expression".into(),
            Choice(words) => {
                format!("one of {}", words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", "))
            }
            Texts => "a list of texts".into(),
        }
    }
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its dotted path; for channel options, the name alone.
    pub path: &'static str,
    /// What its value must be.
    pub kind: ValueKind,
    /// What holds if it is not written, as it would be written.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Centrifugo has no such key.
    pub is_ours: bool,
}

const fn key(path: &'static str, kind: ValueKind, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, meaning, is_ours: false }
}

const fn ours(path: &'static str, kind: ValueKind, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, meaning, is_ours: true }
}

/// Any count of things.
const COUNT: ValueKind = Integer(0, u32::MAX as u64);
/// Bytes of memory: more than 4 GiB too.
const MEMORY: ValueKind = Integer(0, 1 << 50);
/// A count of which there must be some.
const SOME: ValueKind = Integer(1, u32::MAX as u64);
/// The words of `log.level`.
const LEVELS: ValueKind = Choice(&["none", "error", "warn", "info", "debug", "trace"]);

/// Keys by their whole path.
#[rustfmt::skip] // a table: one row each
pub const KEYS: &[Key] = &[
    key("http_server.address", Text, "", "Address or host name to bind; empty is every address, of IPv6 and of IPv4. With `--dev`: `127.0.0.1`."),
    key("http_server.port", Integer(0, 65_535), "8000", "Port to bind; 0 is any free one."),
    key("http_server.internal_address", Text, "", "Address or host name of the internal port; empty is that of `address`. Where `address` is every address, `internal_port` must be another port than `port`."),
    key("http_server.internal_port", Optional(0, 65_535), "", "A port for the server API, metrics and probes, which are then not on `port`, where clients are; 0 is any free one. Empty: they share `port`, unless `internal_address` is another."),
    key("http_server.internal_tls.enabled", Boolean, "false", "The internal port has TLS of its own, by the keys of this section. Else it speaks that of `port`."),
    key("http_server.internal_tls.cert_pem", Text, "", "The certificate of the internal port, written as `http_server.tls.cert_pem`."),
    key("http_server.internal_tls.key_pem", Secret, "", "The key of the internal port's certificate, written as `http_server.tls.key_pem`."),
    key("http_server.internal_tls.client_ca_pem", Text, "", "Authorities that certificates of callers are trusted by; then each must have one. Empty: none are asked for."),
    key("http_server.tls_external", Boolean, "false", "The internal port does not speak the TLS of `port`."),
    ours("http_server.allowed_hosts", Texts, "", "Hosts that requests may be for, with a port or without; `*` stands for any run of characters; empty: any. Others get 421. IP addresses always may be: no name of elsewhere can be pointed at them. With `--dev`: `localhost`."),
    ours("http_server.backlog", SOME, "65535", "Connections that the kernel may hold until the node takes them."),
    ours("http_server.header_timeout", Duration, "10s", "Time a client has to send the head of a request."),
    ours("http_server.request_timeout", Duration, "30s", "Time a client has to send the body of a request, and the server to answer it: longer than the longest call of the API."),
    ours("http_server.idle_timeout", Duration, "75s", "Time that a connection may wait between two requests."),
    ours("http_server.trusted_proxies", Texts, "[]", "Addresses and networks (`10.0.0.0/8`) of proxies. From them, and from nobody else, the right-most address in `X-Forwarded-For` or `Forwarded` that is not one of theirs is the client's: for limits, logs and `anonymous_on_loopback_only`. If a request has both headers they must tell the same."),
    ours("http_server.proxy_protocol", Boolean, "false", "Every connection begins with a header of the PROXY protocol, version 1 or 2, of one of `trusted_proxies`; others are closed."),
    ours("http_server.tls_handshake_rate_limit", COUNT, "2000", "TLS handshakes that this node begins in a second, on all ports; more wait in the kernel. 0 is any number."),
    key("http_server.tls.enabled", Boolean, "false", "The port speaks TLS, and nothing else."),
    key("http_server.tls.cert_pem", Text, "", "The certificate and those above it: PEM, base64 of it, or the path of a file. Files of this section are read again when they change."),
    key("http_server.tls.key_pem", Secret, "", "The key of `cert_pem`: PEM, base64 of it, or the path of a file."),
    key("http_server.tls.client_ca_pem", Text, "", "Authorities that certificates of clients are trusted by: PEM, base64 of it, or the path of a file; empty: none are asked for."),
    ours("http_server.tls.client_auth", Choice(&["request", "require"]), "request", "Whether a client may have a certificate, or must."),
    ours("http_server.tls.client_user", Choice(&["none", "subject", "common_name"]), "none", "What of a client's certificate is its user: then it needs no token."),
    key("http_server.tls_autocert.enabled", Boolean, "false", "The port speaks TLS with certificates that are ordered from an ACME authority, and renewed when two thirds of their life are over. To enable this is to agree to the authority's terms."),
    key("http_server.tls_autocert.host_whitelist", Texts, "", "Names that certificates are ordered for, each its own."),
    key("http_server.tls_autocert.cache_dir", Text, "data/certificates", "Directory where the account, keys and certificates are kept; nodes may share it."),
    key("http_server.tls_autocert.email", Text, "", "Where the authority writes to when something is wrong; empty: it is told none."),
    key("http_server.tls_autocert.server_name", Text, "", "The name of clients that tell none; empty: the first of `host_whitelist`."),
    key("http_server.tls_autocert.http", Boolean, "false", "Names are proved by HTTP (`http-01`) instead of on this port by TLS (`tls-alpn-01`, for which it has to be reachable as port 443)."),
    key("http_server.tls_autocert.http_addr", Text, ":80", "Address where names are proved by HTTP; it has to be reachable as port 80. Other requests are sent to `https://`."),
    ours("http_server.tls_autocert.directory_url", Text, "https://acme-v02.api.letsencrypt.org/directory", "Address of the authority's directory."),
    ours("http_server.tls_autocert.ca_pem", Text, "", "The authority that the directory's server is trusted by, instead of the system's: PEM, base64 of it, or the path of a file; empty: the system's."),
    ours("http_server.tls_autocert.eab_kid", Text, "", "The account that the authority knows its customer by, if it wants one (external account binding)."),
    ours("http_server.tls_autocert.eab_hmac_key", Secret, "", "The secret of the account `eab_kid`, in URL-safe base64."),
    key("log.level", LEVELS, "info", "How much is logged, to stderr."),
    ours("log.format", Choice(&["text", "json"]), "text", "How logs are written."),
    key("http_api.key", Secret, "", "The secret that callers of the server API show, as `X-API-Key` or `Authorization: apikey …`. Empty: every call is refused."),
    key("http_api.external", Boolean, "false", "The server API is on the port of clients, also when there is an internal port."),
    key("http_api.insecure", Boolean, "false", "The server API asks for no key. For development."),
    key("http_api.disabled", Boolean, "false", "The server API is not served."),
    ours("http_api.body_size_limit", SOME, "10485760", "Largest body of a request to the server API, bytes."),
    key(
        "client.allowed_origins",
        Texts,
        "[]",
        "Origins that browsers may come from: `*`, or `scheme://host[:port]` with `*` as a wildcard. A page of the server's own host always may.",
    ),
    key("client.token.hmac_secret_key", Secret, "", "Secret of connection tokens signed with HS256, HS384 or HS512."),
    key("client.token.rsa_public_key", Pem, "", "Public key of tokens signed with RS256, RS384 or RS512."),
    key("client.token.ecdsa_public_key", Pem, "", "Public key of tokens signed with ES256, ES384 or ES512, by its curve."),
    key("client.token.audience", Text, "", "If set, the `aud` claim must contain it."),
    key("client.token.issuer", Text, "", "If set, the `iss` claim must equal it."),
    key("client.subscription_token.enabled", Boolean, "false", "Subscription tokens have keys of their own, those of this section."),
    key("client.subscription_token.hmac_secret_key", Secret, "", "Secret of subscription tokens, as `client.token.hmac_secret_key`."),
    key("client.subscription_token.rsa_public_key", Pem, "", "Public key (RSA) of subscription tokens, as `client.token.rsa_public_key`."),
    key("client.subscription_token.ecdsa_public_key", Pem, "", "Public key (ECDSA) of subscription tokens, as `client.token.ecdsa_public_key`."),
    key("client.subscription_token.audience", Text, "", "What the `aud` claim of subscription tokens must contain, as `client.token.audience`."),
    key("client.subscription_token.issuer", Text, "", "What the `iss` claim of subscription tokens must equal, as `client.token.issuer`."),
    key(
        "client.allow_anonymous_connect_without_token",
        Boolean,
        "false",
        "A client without a token is let in as the anonymous user, whose id is empty.",
    ),
    ours(
        "client.anonymous_on_loopback_only",
        Boolean,
        "false",
        "Anonymous and insecure clients are taken from this machine only. `--dev` sets it.",
    ),
    key("client.disallow_anonymous_connection_tokens", Boolean, "false", "A token without a user is refused."),
    key("client.insecure", Boolean, "false", "No token is needed and every channel is open. For development."),
    ours("client.tell_refusal_cause", Boolean, "false", "A client that is refused is told what is missing or wrong, in the text of the error or the disconnect. The log has it in any case. `--dev` sets it."),
    key("client.channel_limit", COUNT, "128", "Channels that one connection may have at once."),
    key("client.user_connection_limit", COUNT, "0", "Connections that one user may have on this node; one more is ended with 3504 instead of being connected. 0 is any number."),
    key("client.connection_limit", COUNT, "0", "Connections that this node takes, and a few more when several come at once; 0 is any number."),
    ours("client.connection_limit_by_address", COUNT, "0", "Connections that clients of one address may have at once on this node, of IPv6 those of one /64; more are refused with HTTP status 429. 0 is any number."),
    key("client.connection_rate_limit", COUNT, "0", "New client connections that this node takes in a second; more are refused with HTTP status 503. 0 is any number."),
    ours("client.unauthenticated_connection_limit", COUNT, "20000", "Connections of this node whose client has not connected yet: silent ones, requests that are read, TLS handshakes, sessions before their connect command. Beyond it the oldest of them are closed. 0 is any number."),
    ours("client.command_rate_limit", COUNT, "10000", "Commands that a connection may send in a second; one that sends more is read more slowly. What 0.2 s allow may come at once, and 1,000 at least. 0 is any number."),
    ours("client.byte_rate_limit", COUNT, "0", "Bytes that a connection may send in a second; one that sends more is read more slowly. 0 is any number."),
    key("client.queue_max_size", SOME, "1048576", "Bytes of publications and messages that may wait for one slow connection until it is ended with 3008. Answers to its own commands do not count: they are made only when there is room."),
    ours("client.queue_max_entries", SOME, "16384", "Publications and messages that may wait for one slow connection until it is ended with 3008."),
    ours("client.commands_in_flight_max", Integer(1, 65_535), "64", "Commands of one connection that may be under way; then its next ones are not read until one is answered. Calls of the registry have a limit of their own."),
    ours("client.answer_timeout", Duration, "60s", "Time for which a client may leave answers that it has asked for unread; after it a missing pong ends the connection, as it does at once where no answers wait."),
    ours("client.answer_max_size", SOME, "16777216", "Bytes of publications in one answer: a page of history ends before it is larger, a recovery that is larger is told as not recovered."),
    key("client.ping_interval", Duration, "25s", "Time between two pings to a connection."),
    key("client.pong_timeout", Duration, "8s", "Time a client has to answer a ping; shorter than the interval."),
    key(
        "client.channel_position_check_delay",
        Duration,
        "40s",
        "In a cluster: how often a node looks whether its channels with history have all that NATS keeps; at least a second.",
    ),
    key("client.stale_close_delay", Duration, "10s", "Time a client has to send its connect command."),
    key("client.expired_close_delay", Duration, "25s", "Time past a token's expiry until the connection is ended."),
    key("client.expired_sub_close_delay", Duration, "25s", "Time past a subscription's expiry until it is ended."),
    key("client.history_max_publication_limit", COUNT, "300", "Publications that one history call of a client gives."),
    ours("client.presence_max_clients", SOME, "10000", "Clients in one answer to `presence`; of larger channels a sample is shown, with the exact number."),
    key(
        "client.recovery_max_publication_limit",
        COUNT,
        "300",
        "Publications that one recovery gives; a client that missed more must reload.",
    ),
    key(
        "client.subscribe_to_user_personal_channel.enabled",
        Boolean,
        "false",
        "Every user is subscribed to a channel of its own: `#<user>`, or `<namespace>:#<user>`.",
    ),
    key("client.subscribe_to_user_personal_channel.personal_channel_namespace", Text, "", "Namespace of the users' personal channels; empty: they are in none."),
    key("client.connect_include_server_time", Boolean, "false", "The connect reply carries the server's time."),
    key(
        "channel.history_meta_ttl",
        Duration,
        "720h",
        "How long offset and epoch outlive a channel's last use, where its namespace doesn't say.",
    ),
    key("channel.max_length", SOME, "255", "Longest channel name, bytes."),
    key("channel.private_prefix", Text, "$", "Channels that begin with it need a subscription token. Empty: there are none."),
    key("channel.namespace_boundary", Text, ":", "Separates the namespace from the rest of a channel's name."),
    key("channel.user_boundary", Text, "#", "Separates a channel's name from the users it is limited to."),
    key("channel.user_separator", Text, ",", "Separates the users that a channel is limited to. Empty: a channel is limited to one user."),
    ours("channel.idempotency_key_max_length", COUNT, "255", "Longest `idempotency_key` and `version_epoch` of a publication, bytes; longer ones are refused with 107."),
    ours("channel.tags_filter_max_nodes", SOME, "64", "Nodes and values, together, of one subscriber's filter of tags; larger ones are refused with 107."),
    ours("channel.tags_filter_max_size", SOME, "4096", "Keys, comparisons and values of one subscriber's filter of tags, together, bytes; larger ones are refused with 107."),
    ours("channel.empty_channels_max", COUNT, "10000", "Channels with history to which nobody has published or is subscribed, and whose epoch this node remembers because they were looked at; the oldest is forgotten first."),
    key("websocket.disabled", Boolean, "false", "The WebSocket transport is not served."),
    key("websocket.handler_prefix", Text, "/connection/websocket", "Path of the WebSocket transport."),
    key("websocket.message_size_limit", SOME, "65536", "Largest message of a client, bytes; of a compressed one, what it becomes."),
    key("websocket.compression", Boolean, "false", "Agree upon permessage-deflate with clients that offer it. A publication is compressed once for all of them."),
    key("websocket.compression_min_size", COUNT, "256", "Messages shorter than this stay as they are, bytes."),
    key("http_stream.enabled", Boolean, "false", "Serve HTTP streaming."),
    key("http_stream.handler_prefix", Text, "", "Path of this transport; empty is `/connection/http_stream`."),
    key("http_stream.max_request_body_size", COUNT, "0", "Largest body of the request that opens a stream, bytes; 0 is 65536."),
    ours("http_stream.compression", Boolean, "false", "Compress for clients that accept gzip (`Accept-Encoding`). A publication is compressed once for all of them."),
    ours("http_stream.compression_min_size", COUNT, "256", "Messages shorter than this stay as they are, bytes."),
    ours("http_stream.ping_interval", Duration, "0s", "Time between two pings; 0 is `client.ping_interval`."),
    key("sse.enabled", Boolean, "false", "Serve server-sent events."),
    key("sse.handler_prefix", Text, "", "Path of this transport; empty is `/connection/sse`."),
    key("sse.max_request_body_size", COUNT, "0", "Largest body of a request that opens a stream by POST, bytes; 0 is 65536."),
    ours("sse.compression", Boolean, "false", "Compress for clients that accept gzip (`Accept-Encoding`). A publication is compressed once for all of them."),
    ours("sse.compression_min_size", COUNT, "256", "Messages shorter than this stay as they are, bytes."),
    ours("sse.ping_interval", Duration, "0s", "Time between two pings; 0 is `client.ping_interval`."),
    key("emulation.handler_prefix", Text, "", "Where clients of HTTP streaming and server-sent events send their commands; empty is `/emulation`."),
    key("emulation.max_request_body_size", COUNT, "0", "Largest body of a request with commands of HTTP streaming and server-sent events, bytes; 0 is 65536."),
    key("uni_websocket.enabled", Boolean, "false", "Serve WebSocket for clients that only listen."),
    key("uni_websocket.handler_prefix", Text, "", "Path of this transport; empty is `/connection/uni_websocket`."),
    ours("uni_websocket.ping_interval", Duration, "0s", "Time between two pings; 0 is `client.ping_interval`."),
    key("uni_http_stream.enabled", Boolean, "false", "Serve HTTP streaming for clients that only listen."),
    key("uni_http_stream.handler_prefix", Text, "", "Path of this transport; empty is `/connection/uni_http_stream`."),
    key("uni_http_stream.max_request_body_size", COUNT, "0", "Largest body of the request that opens a stream, bytes; 0 is 65536."),
    ours("uni_http_stream.compression", Boolean, "false", "Compress for clients that accept gzip (`Accept-Encoding`). A publication is compressed once for all of them."),
    ours("uni_http_stream.compression_min_size", COUNT, "256", "Messages shorter than this stay as they are, bytes."),
    ours("uni_http_stream.ping_interval", Duration, "0s", "Time between two pings; 0 is `client.ping_interval`."),
    key("uni_sse.enabled", Boolean, "false", "Serve server-sent events for clients that only listen."),
    key("uni_sse.handler_prefix", Text, "", "Path of this transport; empty is `/connection/uni_sse`."),
    key("uni_sse.max_request_body_size", COUNT, "0", "Largest body of a request that opens a stream by POST, bytes; 0 is 65536."),
    ours("uni_sse.compression", Boolean, "false", "Compress for clients that accept gzip (`Accept-Encoding`). A publication is compressed once for all of them."),
    ours("uni_sse.compression_min_size", COUNT, "256", "Messages shorter than this stay as they are, bytes."),
    ours("uni_sse.ping_interval", Duration, "0s", "Time between two pings; 0 is `client.ping_interval`."),
    ours("tcp.enabled", Boolean, "false", "Serve bare TCP: a JSON command a line in, a JSON reply a line out."),
    ours("tcp.address", Text, "", "Address or host name to bind; empty is every address, of IPv6 and of IPv4. With `--dev`: `127.0.0.1`."),
    ours("tcp.port", Integer(0, 65_535), "8001", "Port to bind; 0 is any free one."),
    ours("tcp.message_size_limit", SOME, "65536", "Longest line of a client, bytes."),
    ours("tcp.idle_timeout", Duration, "5m", "A client that sends nothing for so long, not even the answer to a ping, is told to go (4000) when its next ping is due, so up to one ping interval later; 0 lets it stay."),
    ours("tcp.ping_interval", Duration, "0s", "Time between two pings; 0 is `client.ping_interval`."),
    ours("tcp.proxy_protocol", Boolean, "false", "Every connection begins with a header of the PROXY protocol, of one of `http_server.trusted_proxies`; others are closed."),
    ours("tcp.tls.enabled", Boolean, "false", "The port speaks TLS, and nothing else."),
    ours("tcp.tls.cert_pem", Text, "", "The certificate and those above it: PEM, base64 of it, or the path of a file. Files of this section are read again when they change. Empty: those of `http_server.tls_autocert`."),
    ours("tcp.tls.key_pem", Secret, "", "The key of `cert_pem`: PEM, base64 of it, or the path of a file."),
    ours("tcp.tls.client_ca_pem", Text, "", "Authorities that certificates of clients are trusted by: PEM, base64 of it, or the path of a file; empty: none are asked for."),
    ours("tcp.tls.client_auth", Choice(&["request", "require"]), "request", "Whether a client may have a certificate, or must."),
    ours("tcp.tls.client_user", Choice(&["none", "subject", "common_name"]), "none", "What of a client's certificate is its user: then it needs no token."),
    key("shutdown.timeout", Duration, "30s", "Longest time that a stop takes."),
    ours("shutdown.spread", Duration, "5s", "Time over which clients are told to go, so that they don't all come back at once."),
    key("node.name", Text, "", "The node's name in `info`; empty is the host's name, `_` and the port."),
    ours("node.shards", Integer(0, 1024), "0", "Event loops, one thread each; 0 is as many as cores."),
    ours("node.buffer_max_size", MEMORY, "0", "Bytes that the node may hold for single connections: queues, answers, input that waits. From 80 % on, history and presence answer 111 and new connections get 503; beyond it the connections that hold most end with 3008. 0: a quarter of the memory that the process may use."),
    ours("node.channel_limit", COUNT, "2000000", "Channels with subscribers or a history that this node keeps at once, in equal parts by shard; a million of them with a short history each are about 0.9 GB. What would make one more is refused with 106. 0 is any number."),
    ours("node.publish_backlog_max", SOME, "65536", "Publications that may wait at one shard until publishers are refused with error 111."),
    ours("cluster.engine", Choice(&["nats", ""]), "", "How nodes find each other; empty: this node is alone."),
    ours("cluster.name", Text, "touchline", "Nodes of one cluster have one name; several clusters may share NATS servers."),
    ours("cluster.nats_url", Texts, "nats://127.0.0.1:4222", "Addresses of NATS servers; `tls://` for TLS."),
    ours("cluster.nats_no_randomize", Boolean, "false", "Try the addresses of `nats_url` in their order; else in a random one, so that nodes spread over the servers."),
    ours("cluster.nats_user", Text, "", "User for NATS."),
    ours("cluster.nats_password", Secret, "", "Password for NATS."),
    ours("cluster.nats_token", Secret, "", "Token for NATS, instead of `nats_user` and `nats_password`."),
    ours("cluster.nats_credentials", Secret, "", "NATS credentials, instead of user, password and token: the text of a credentials file, base64 of it, or the path of the file."),
    ours("cluster.nats_tls_ca", Text, "", "Path of a PEM file: authorities that NATS servers are trusted by, instead of the system's. It is read at every connect, as `nats_tls_cert` and `nats_tls_key` are."),
    ours("cluster.nats_tls_cert", Text, "", "Path of this node's certificate (PEM), where NATS asks for one."),
    ours("cluster.nats_tls_key", Secret, "", "Path of the key (PEM) of `nats_tls_cert`."),
    ours("cluster.stream_replicas", Integer(1, 5), "1", "Copies of each stream of history; 3 survive a lost NATS server."),
    ours("cluster.stream_storage", Choice(&["file", "memory"]), "file", "Where JetStream keeps streams of history."),
    ours("cluster.stream_max_bytes", Integer(0, u64::MAX), "0", "Most bytes of each stream, the oldest publications go first; 0 is what NATS allows."),
    ours("cluster.heartbeat_interval", Duration, "1s", "Between two heartbeats of a node."),
    ours("cluster.node_timeout", Duration, "4s", "Silence after which a node counts as gone, with all names on it."),
    ours("cluster.suspect_grace", Duration, "1s", "How long nobody must have listened in a node's place before it counts as gone: its process has ended, or has lost its connection to NATS."),
    ours("cluster.clock_drift_max", Duration, "10s", "How far another node's clock may pull this one's stamps ahead; more is counted."),
    ours("store.primary.url", Secret, "sqlite:data/primary.db", "The database of what must not be lost: `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE` with TLS unless it is on this machine or says `?sslmode=disable`. It is opened when something needs it: a namespace with `durable`, a scope with `inbox_size`, or `store.directory`."),
    ours("store.primary.tls_ca", Text, "", "Authorities that PostgreSQL is trusted by, besides the system's: PEM, base64 of it, or the path of a file."),
    ours("store.primary.timeout", Duration, "10s", "How long PostgreSQL may take to answer; then what was asked for fails (4010), and the connection is made anew."),
    ours("store.primary.pool_size", Integer(1, 64), "4", "Reads from the primary database at a time."),
    ours("store.primary.read_queue", SOME, "65536", "Reads from the primary database that may wait for their turn; more are refused with error 111, or 4010 where they are for a channel's history."),
    ours("store.stats.enabled", Boolean, "false", "Statistics: connections, audiences, traffic, and events that clients report (`stats.track`). Losing them stops nothing."),
    ours("store.stats.url", Secret, "sqlite:data/stats.db", "The database of statistics, as `store.primary.url`; never the same file."),
    ours("store.stats.tls_ca", Text, "", "As `store.primary.tls_ca`."),
    ours("store.stats.timeout", Duration, "30s", "How long the PostgreSQL of the statistics may take to answer."),
    ours("store.stats.pool_size", Integer(1, 64), "2", "Questions about statistics that are answered at a time."),
    ours("store.stats.queue_size", SOME, "131072", "Rows of statistics that may wait to be written; more are dropped and counted."),
    ours("store.stats.retention", Duration, "720h", "How long statistics are kept; in PostgreSQL by whole days."),
    ours("store.stats.track_rate", COUNT, "10", "Events that one connection may report in a second; more are refused with error 111. 0 = none may be reported."),
    ours("store.stats.track_size", SOME, "1024", "Largest properties of an event that a client reports, bytes of JSON."),
    ours("store.directory", Boolean, "false", "A directory of channels, in the primary database (`store.primary`), which is opened for it: `channel_set`, `channel_get`, `channel_remove`, `channels_search`, `channels_similar`."),
    ours("store.migrate", Boolean, "true", "Schemas are brought up to date at the start; else `touchline migrate up` does."),
    ours("store.commit_delay", Duration, "0s", "How long a batch of durable publications waits for more before it is committed. At 0s, what comes during a commit is the next batch."),
    ours("store.commit_size", SOME, "1000", "Durable publications in one commit, at most."),
    ours("store.commit_queue", SOME, "65536", "Durable publications that may wait for a commit; more are refused with error 111."),
    key("health.enabled", Boolean, "false", "`GET /health`, `/livez` and `/readyz` are served. `--dev` sets it."),
    key("health.handler_prefix", Text, "/health", "Path of `GET /health`; `/livez` and `/readyz` stay where they are."),
    key("prometheus.enabled", Boolean, "false", "`GET /metrics` is served. `--dev` sets it."),
    key("prometheus.handler_prefix", Text, "/metrics", "Path of the metrics."),
];

/// Options of channels: under `channel.without_namespace`, and in each of `channel.namespaces`.
#[rustfmt::skip] // a table: one row each
pub const OPTIONS: &[Key] = &[
    key("presence", Boolean, "false", "Keep who is in the channel; answer `presence` and `presence_stats`."),
    key("join_leave", Boolean, "false", "Send join and leave events to the subscribers who asked for them."),
    key("force_push_join_leave", Boolean, "false", "Send join and leave events to every subscriber."),
    key("history_size", Integer(0, 100_000), "0", "Publications kept. History is on when this and `history_ttl` are both above zero."),
    key("history_ttl", Duration, "0s", "How long a publication is kept."),
    key("history_meta_ttl", Duration, "0s", "How long offset and epoch outlive the channel's last use; 0 is `channel.history_meta_ttl`."),
    ours("durable", Boolean, "false", "Publications are on disk before they are acknowledged, and there after a crash: `store.primary`. Needs `history_size` and `history_ttl`."),
    key("allowed_delta_types", Texts, "", "Delta formats that subscribers may ask for: `fossil`. They get publications as changes to the one before."),
    key("allow_tags_filter", Boolean, "false", "Subscribers may ask for publications with certain tags only."),
    key("force_positioning", Boolean, "false", "Every subscription is told its position, and a gap is never hidden."),
    key("allow_positioning", Boolean, "false", "A client may ask for the position of its subscription."),
    key("force_recovery", Boolean, "false", "Every subscription can be recovered after a lost connection."),
    key("allow_recovery", Boolean, "false", "A client may ask for a subscription that can be recovered."),
    key(
        "force_recovery_mode",
        Choice(&["stream", "cache", ""]),
        "stream",
        "`stream` gives all that was missed, `cache` the latest publication only.",
    ),
    key("allow_subscribe_for_client", Boolean, "false", "Clients with a user may subscribe without a subscription token."),
    key("allow_subscribe_for_anonymous", Boolean, "false", "Anonymous clients may subscribe too; this does nothing without `allow_subscribe_for_client`."),
    key("allow_publish_for_client", Boolean, "false", "Clients with a user may publish."),
    key("allow_publish_for_subscriber", Boolean, "false", "Subscribers may publish."),
    key("allow_publish_for_anonymous", Boolean, "false", "Anonymous clients may publish too; this does nothing without `allow_publish_for_client` or `allow_publish_for_subscriber`."),
    key("allow_history_for_client", Boolean, "false", "Clients with a user may read the history."),
    key("allow_history_for_subscriber", Boolean, "false", "Subscribers may read the history."),
    key("allow_history_for_anonymous", Boolean, "false", "Anonymous clients may read the history too; this does nothing without `allow_history_for_client` or `allow_history_for_subscriber`."),
    key("allow_presence_for_client", Boolean, "false", "Clients with a user may ask for presence."),
    key("allow_presence_for_subscriber", Boolean, "false", "Subscribers may ask for presence."),
    key("allow_presence_for_anonymous", Boolean, "false", "Anonymous clients may ask for presence too; this does nothing without `allow_presence_for_client` or `allow_presence_for_subscriber`."),
    key("allow_user_limited_channels", Boolean, "false", "Channels named `…#user1,user2` are open to exactly those users."),
    key("channel_regex", Pattern, "", "The part of the name behind the namespace must match; empty is any."),
];

/// Options of a scope of the registry, in each of `registry.scopes`.
#[rustfmt::skip] // a table: one row each
pub const SCOPE_OPTIONS: &[Key] = &[
    ours("conflict_policy", Choice(&["newest", "oldest", "reject"]), "newest", "Who keeps a name that two connections own after a race or a split. Only with `newest` can a name be taken over."),
    ours("disconnect_losers", Boolean, "false", "Whoever loses a name is disconnected (3503), not only told."),
    ours("allow_register", Texts, "", "Names that clients may register: `{user}` is the client's user, `*` anything. A token's `register` claim allows more."),
    ours("allow_join", Texts, "", "Groups that clients may join: `{user}` is the client's user, `*` anything."),
    ours("allow_lookup_for_client", Boolean, "false", "Clients may look up and list names and groups."),
    ours("allow_send_for_client", Boolean, "false", "Clients may send to names and groups."),
    ours("allow_call_for_client", Boolean, "false", "Clients may call names and groups."),
    ours("allow_watch_for_client", Boolean, "false", "Changes are published to `$registry:<scope>`, and clients may subscribe to it."),
    ours("watch_log_size", SOME, "16777216", "Bytes of past changes that are kept for those who watch the scope and have fallen behind; beyond them they list again."),
    ours("allow_for_anonymous", Boolean, "false", "What clients may do in this scope, anonymous ones may do too."),
    ours("name_max_length", Integer(1, 65_535), "255", "Longest name or group, bytes."),
    ours("meta_max_size", SOME, "4096", "Largest metadata, bytes of JSON."),
    ours("client_entries_limit", SOME, "128", "Names and memberships of one connection."),
    ours("call_timeout_max", Duration, "60s", "Longest time that a call may wait for its answer."),
    ours("calls_limit", SOME, "10000", "Calls that may wait for answers at the same time, on each node."),
    ours("client_calls_limit", SOME, "128", "Calls of one connection that may wait for answers at the same time; a call of a group counts by its members. Beyond it: 4007."),
    ours("allow_store", Texts, "", "Names that clients may have messages kept for, patterns as in `allow_register`; empty = backends only. Clients also need `allow_send_for_client`."),
    ours("inbox_size", Integer(0, 1_000_000), "0", "Messages that may be kept for one name until its owner acknowledges them (`send` with `store_for`), in `store.primary`; 0 = none are kept."),
    ours("inbox_ttl_max", Duration, "168h", "Longest time that a message for a name is kept (`store_for`)."),
    ours("call_members_limit", SOME, "1000", "Members that one call of a group may reach. Beyond it: 4007."),
    ours("members_limit", SOME, "1000", "Members in one answer; of larger groups a sample is shown, with the exact count."),
];

/// The list of scopes.
pub const SCOPES: &str = "registry.scopes";
/// The list of namespaces.
pub const NAMESPACES: &str = "channel.namespaces";
/// The options of channels without a namespace.
pub const WITHOUT_NAMESPACE: &str = "channel.without_namespace";

/// The key with this path in a table.
pub fn find(keys: &'static [Key], path: &str) -> Option<&'static Key> {
    keys.iter().find(|key| key.path == path)
}

/// Whether some key of a table lies beneath this path.
pub(crate) fn is_section(path: &str) -> bool {
    let lies_beneath = |key: &str| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    KEYS.iter().any(|key| lies_beneath(key.path)) || lies_beneath(SCOPES) || path == WITHOUT_NAMESPACE
}

/// Every path that can be written, for suggestions.
pub(crate) fn paths() -> Vec<String> {
    let options = OPTIONS
        .iter()
        .flat_map(|option| [format!("{WITHOUT_NAMESPACE}.{}", option.path), format!("{NAMESPACES}[].{}", option.path)]);
    let sections = KEYS.iter().filter_map(|key| key.path.rsplit_once('.')).map(|(section, _)| section.to_owned());
    let mut all: Vec<String> = KEYS.iter().map(|key| key.path.to_owned()).chain(options).chain(sections).collect();
    all.extend(SCOPE_OPTIONS.iter().map(|option| format!("{SCOPES}[].{}", option.path)));
    all.extend([NAMESPACES.to_owned(), WITHOUT_NAMESPACE.to_owned(), SCOPES.to_owned()]);
    all
}
