//! Keys of Centrifugo 6 that this server does not support yet.
//!
//! Most are ignored with one warning each. A few make a server stricter. Without them the server would allow more than
//! the configuration says, so they are refused.

use crate::load::tree::{ConfigNode, ConfigValue};

/// What the server does with an unsupported key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The key is ignored with a warning. The text says what that changes; empty = the effect is obvious.
    LeftOut(&'static str),
    /// The key is an error, because ignoring it would be unsafe for this reason.
    Refused(&'static str),
    /// The key is ignored without a warning: the server behaves the same with every value.
    Ignored,
}

use Disposition::{Ignored, LeftOut, Refused};

/// A key, or a section with all keys below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnsupportedKey {
    /// The dotted path of the key. For channel options it is the name alone.
    pub(crate) path: &'static str,
    /// What the server does with it.
    pub(crate) disposition: Disposition,
}

const fn left_out(path: &'static str) -> UnsupportedKey {
    UnsupportedKey { path, disposition: LeftOut("") }
}

const fn with(path: &'static str, disposition: Disposition) -> UnsupportedKey {
    UnsupportedKey { path, disposition }
}

/// Keys by which several nodes would share channels. Without a cluster, [`crate::check::unsafe_omissions`] refuses
/// them.
const NOT_SHARED: Disposition =
    LeftOut("channels and presence are in the nodes' memory; nodes share them through NATS (`[cluster]`)");
const BLOCKED: Disposition = Refused(
    "without it, users that it excludes could connect: ban them with the server API (`block_user` and others), and \
     remove the section",
);
const NOT_ASKED: Disposition = LeftOut("commands that it would allow are refused unless an `allow_…` key allows them");
const UNSUBSCRIBES: Disposition = LeftOut("`client.command_rate_limit` slows down clients that unsubscribe too often");
const STREAM_HOOK: Disposition = Refused("the backend would not be asked");

/// Unsupported keys and sections, by their whole path.
pub(crate) const UNSUPPORTED: &[UnsupportedKey] = &[
    // Editors read the schema of the file from this key.
    with("$schema", Ignored),
    left_out("http_server.tls.server_ca_pem"),
    with("http_server.tls.insecure_skip_verify", Ignored),
    with("http_server.tls.server_name", Ignored),
    left_out("http_server.internal_tls.server_ca_pem"),
    with("http_server.internal_tls.insecure_skip_verify", Ignored),
    with("http_server.internal_tls.server_name", Ignored),
    left_out("http_server.http3"),
    left_out("http_server.h2c_external"),
    with("log.file", LeftOut("logs go to stderr")),
    left_out("http_api.handler_prefix"),
    left_out("http_api.error_mode"),
    with("client.presence_update_interval", Ignored),
    with("client.concurrency", Ignored),
    with("client.batch_periodic_events", Ignored),
    with(
        "client.rate_limit.redis_user_command",
        Refused("there is no Redis here; `client.rate_limit.user_command` has the same keys and counts on each node"),
    ),
    with("client.rate_limit.client_command.disconnect_on_accounted_limit", UNSUBSCRIBES),
    with("client.rate_limit.user_command.disconnect_on_accounted_limit", UNSUBSCRIBES),
    with("client.rate_limit.client_command.map_publish", Ignored),
    with("client.rate_limit.client_command.map_remove", Ignored),
    with("client.rate_limit.client_command.track", Ignored),
    with("client.rate_limit.client_command.untrack", Ignored),
    with("client.rate_limit.user_command.map_publish", Ignored),
    with("client.rate_limit.user_command.map_remove", Ignored),
    with("client.rate_limit.user_command.track", Ignored),
    with("client.rate_limit.user_command.untrack", Ignored),
    left_out("client.singleflight"),
    left_out("client.connections_api"),
    left_out("client.write_delay"),
    with("client.reply_without_queue", Ignored),
    left_out("client.max_messages_in_frame"),
    with(
        "channel.patterns",
        LeftOut("a channel that matches only a pattern belongs to no configured namespace, so it is refused"),
    ),
    left_out("client.channel_position_max_time_lag"),
    left_out("client.insecure_skip_token_signature_verify"),
    left_out("client.subscribe_to_user_personal_channel.single_connection"),
    left_out("client.connect_code_to_unidirectional_disconnect"),
    with("http_api.jwks.tls.client_ca_pem", Ignored),
    with("client.proxy.connect.grpc.tls.client_ca_pem", Ignored),
    with("client.proxy.connect.http.tls.client_ca_pem", Ignored),
    with("client.proxy.refresh.grpc.tls.client_ca_pem", Ignored),
    with("client.proxy.refresh.http.tls.client_ca_pem", Ignored),
    with("channel.proxy.subscribe.grpc.tls.client_ca_pem", Ignored),
    with("channel.proxy.subscribe.http.tls.client_ca_pem", Ignored),
    with("channel.proxy.publish.grpc.tls.client_ca_pem", Ignored),
    with("channel.proxy.publish.http.tls.client_ca_pem", Ignored),
    with("channel.proxy.sub_refresh.grpc.tls.client_ca_pem", Ignored),
    with("channel.proxy.sub_refresh.http.tls.client_ca_pem", Ignored),
    with("registry.proxy.conflict.grpc.tls.client_ca_pem", Ignored),
    with("registry.proxy.conflict.http.tls.client_ca_pem", Ignored),
    with("rpc.proxy.grpc.tls.client_ca_pem", Ignored),
    with("rpc.proxy.http.tls.client_ca_pem", Ignored),
    with("channel.proxy.subscribe_stream", STREAM_HOOK),
    left_out("channel.proxy.map_publish"),
    left_out("channel.proxy.map_remove"),
    left_out("channel.proxy.shared_poll_refresh"),
    left_out("channel.proxy.state"),
    left_out("channel.proxy.cache_empty"),
    left_out("rpc.ping"),
    with("channel.publication_data_format", LeftOut("each namespace has its own, also `channel.without_namespace`")),
    with("websocket.compression_level", Ignored),
    with("websocket.read_buffer_size", Ignored),
    with("websocket.use_write_buffer_pool", Ignored),
    with("websocket.write_buffer_size", Ignored),
    with("websocket.write_timeout", Ignored),
    with("websocket.decompressed_message_size_limit", Ignored),
    with("websocket.compression_prepared_message_cache_size", Ignored),
    with("websocket.process_commands_off_read_loop", Ignored),
    with("node.info_metrics_aggregate_interval", Ignored),
    left_out("prometheus.instrument_http_handlers"),
    left_out("prometheus.recovered_publications_histogram"),
    left_out("prometheus.native_histograms"),
    with("engine", NOT_SHARED),
    with("broker", NOT_SHARED),
    with("brokers", NOT_SHARED),
    with("presence_manager", NOT_SHARED),
    with("presence_managers", NOT_SHARED),
    left_out("map_broker"),
    left_out("map_brokers"),
    with("controller", NOT_SHARED),
    left_out("shared_poll"),
    with("grpc_api.error_mode", LeftOut("the answer contains the errors of operations")),
    left_out("grpc_api.tls.server_ca_pem"),
    with("grpc_api.tls.insecure_skip_verify", Ignored),
    with("grpc_api.tls.server_name", Ignored),
    left_out("webtransport"),
    left_out("uni_sse.connect_code_to_http_response"),
    left_out("uni_http_stream.connect_code_to_http_response"),
    left_out("uni_websocket.compression"),
    with("uni_websocket.compression_min_size", Ignored),
    with("uni_websocket.compression_level", Ignored),
    with("uni_websocket.read_buffer_size", Ignored),
    with("uni_websocket.use_write_buffer_pool", Ignored),
    with("uni_websocket.write_buffer_size", Ignored),
    with("uni_websocket.message_size_limit", Ignored),
    with("uni_websocket.write_timeout", Ignored),
    with("uni_websocket.join_push_messages", Ignored),
    with("uni_websocket.decompressed_message_size_limit", Ignored),
    with("uni_websocket.disable_closing_handshake", LeftOut("connections end with a close frame")),
    with("uni_websocket.disable_disconnect_push", LeftOut("a disconnect is also sent as a push")),
    left_out("uni_grpc"),
    left_out("swagger"),
    with("debug", LeftOut("the server has no pprof pages")),
    with("dev", LeftOut("`touchline serve --dev` has another purpose")),
    left_out("init"),
    left_out("graphite"),
    with("usage_stats", Ignored),
    left_out("pid_file"),
    with("license", Ignored),
    left_out("push_notifications"),
    left_out("clickhouse_analytics"),
    left_out("user_status.redis"),
    with("user_block", BLOCKED),
    with("token_revoke", BLOCKED),
    with("user_tokens_invalidate", BLOCKED),
    left_out("database"),
    left_out("singleflight"),
    left_out("process_stats"),
    left_out("tracing"),
    left_out("sentry"),
    with("enable_unreleased_features", Ignored),
];

/// Options of entries in lists that the server does not support yet.
pub(crate) const UNSUPPORTED_OPTIONS: &[UnsupportedKey] = &[
    with("grpc.tls.client_ca_pem", Ignored),
    with("http.tls.client_ca_pem", Ignored),
    with("tls.client_ca_pem", Ignored),
    with("postgresql.tls.client_ca_pem", Ignored),
    with("nats_jetstream.tls.client_ca_pem", Ignored),
    with("kafka", Ignored),
    with("redis_stream", Ignored),
    with("google_pub_sub", Ignored),
    with("aws_sqs", Ignored),
    with("azure_service_bus", Ignored),
    left_out("auto_cache_recover"),
    with("shared_position_sync", Ignored),
    with("keep_latest_publication", Ignored),
    with("allow_channel_compaction", Ignored),
    left_out("batch_max_size"),
    left_out("batch_max_delay"),
    left_out("batch_flush_latest"),
    left_out("cache_empty_proxy_enabled"),
    with("cache_empty_proxy_name", Ignored),
    left_out("state_proxy_enabled"),
    with("state_proxy_name", Ignored),
    with("subscribe_cel", NOT_ASKED),
    with("publish_cel", NOT_ASKED),
    with("history_cel", NOT_ASKED),
    with("presence_cel", NOT_ASKED),
    with("broker_name", NOT_SHARED),
    with("presence_manager_name", NOT_SHARED),
    with("delta_publish", Ignored),
    with("subscribe_stream_proxy_enabled", STREAM_HOOK),
    with("subscribe_stream_proxy_name", Ignored),
    with("subscribe_stream_proxy_bidirectional", STREAM_HOOK),
    left_out("subscription_type"),
    left_out("map"),
    left_out("shared_poll"),
    left_out("map_clients_presence_channel_prefix"),
    left_out("map_users_presence_channel_prefix"),
];

/// The entry that covers this path. `None` = the table has none.
pub(crate) fn find(table: &'static [UnsupportedKey], path: &str) -> Option<&'static UnsupportedKey> {
    table.iter().find(|unsupported_key| {
        path.strip_prefix(unsupported_key.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Whether ignoring a value changes nothing, because it is off, empty or this server's own behaviour. A default
/// configuration of Centrifugo consists of such values.
pub(crate) fn is_default_or_off(node: &ConfigNode) -> bool {
    match &node.value {
        ConfigValue::Boolean(value) => !value,
        ConfigValue::Integer(value) => *value == 0,
        ConfigValue::Float(value) => *value == 0.0,
        ConfigValue::Text(text) => {
            matches!(text.as_str(), "" | "0" | "0s" | "false" | "[]" | "{}" | "stream" | "memory")
        }
        ConfigValue::List(items) => items.is_empty(),
        ConfigValue::Table(table) => {
            let idle_if =
                |key: &str, idle: fn(&ConfigValue) -> bool| table.get(key).is_some_and(|node| idle(&node.value));
            idle_if("enabled", |value| matches!(value, ConfigValue::Boolean(false)))
                || idle_if("type", |value| matches!(value, ConfigValue::Text(text) if text == "memory"))
                || table.values().all(is_default_or_off)
        }
        ConfigValue::Date => false,
    }
}

/// Whether a value is empty or off. Only such a value may be ignored where a key makes the server stricter.
pub(crate) fn is_empty(node: &ConfigNode) -> bool {
    match &node.value {
        ConfigValue::Boolean(value) => !value,
        ConfigValue::Text(text) => matches!(text.as_str(), "" | "false"),
        ConfigValue::List(items) => items.is_empty(),
        ConfigValue::Table(table) => {
            table.get("enabled").is_some_and(|node| node.value.is_off()) || table.values().all(is_empty)
        }
        ConfigValue::Integer(_) | ConfigValue::Float(_) | ConfigValue::Date => false,
    }
}

/// The names of the keys in a section, for a warning. It never contains values.
pub(crate) fn names_within(node: &ConfigNode) -> String {
    match &node.value {
        ConfigValue::Table(table) => {
            let names: Vec<&str> = table.keys().map(String::as_str).take(6).collect();
            let more = if table.len() > names.len() { ", …" } else { "" };
            format!(" ({}{more})", names.join(", "))
        }
        ConfigValue::List(items) if items.len() == 1 => " (1 entry)".into(),
        ConfigValue::List(items) => format!(" ({} entries)", items.len()),
        _ => String::new(),
    }
}

/// Whether an unsupported key is below this path.
pub(crate) fn is_above(path: &str) -> bool {
    UNSUPPORTED
        .iter()
        .any(|unsupported_key| unsupported_key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}
