//! Which changed keys a running node applies, and which require a restart.

use touchline_engine::stable_hash::stable_hash;

use crate::load::WrittenKey;
use crate::settings::Settings;

/// Sections and keys that a running node applies at a reload. All others require a restart.
const LIVE: &[&str] = &[
    "channel",
    "client",
    "consumers",
    "emulation",
    "events",
    "grpc_api.key",
    "grpc_api.tls",
    "health",
    "hooks",
    "http_api",
    "http_server.allowed_hosts",
    "http_server.internal_tls",
    "http_server.request_timeout",
    "http_server.tls",
    "http_server.tls_handshake_rate_limit",
    "http_server.trusted_proxies",
    "http_stream",
    "log.level",
    "node.publish_backlog_max",
    "prometheus",
    "proxies",
    "registry.proxy",
    "rpc",
    "security.bans_max_entries",
    "shutdown",
    "sse",
    "tcp.idle_timeout",
    "tcp.message_size_limit",
    "tcp.ping_interval",
    "tcp.tls",
    "uni_http_stream",
    "uni_sse",
    "uni_websocket",
    "websocket",
];

/// Keys within these sections that require a restart all the same, because long-lived state depends on them.
const RESTART: &[&str] = &[
    // Otherwise a channel name would mean another channel than the one that clients are subscribed to.
    "channel.namespace_boundary",
    "channel.private_prefix",
    "channel.user_boundary",
    "channel.user_separator",
    "channel.empty_channels_max",
    "client.channel_position_check_delay",
    // The registry uses the values of the start for its waits for pongs and for a backend.
    "client.pong_timeout",
    "client.unauthenticated_connection_limit",
    "client.user_connection_limit",
    "registry.proxy.conflict.timeout",
    // Whether a port speaks TLS.
    "grpc_api.tls.enabled",
    "http_server.internal_tls.enabled",
    "http_server.tls.enabled",
    "tcp.tls.enabled",
];

/// Options of a namespace that require a restart, because stored publications depend on them.
const RESTART_IN_NAMESPACE: &[&str] = &["binary_as_base64", "durable", "publication_data_format", "reactions_durable"];

/// Options of an endpoint of events that require a restart, because its queue or the kind of endpoint depends on them.
const RESTART_IN_EVENTS: &[&str] = &["durable", "lanes"];
/// More such options for a `durable` endpoint, because all nodes share its events.
const RESTART_IN_DURABLE_EVENTS: &[&str] = &["batch_wait", "delay", "namespaces", "types"];

/// Sections and keys that may differ from node to node.
const OF_NODE: &[&str] = &[
    "cluster.nats_credentials",
    "cluster.nats_tls_ca",
    "cluster.nats_tls_cert",
    "cluster.nats_tls_key",
    "cluster.nats_url",
    "grpc_api.address",
    "grpc_api.port",
    "grpc_api.tls",
    "http_server.address",
    "http_server.internal_address",
    "http_server.internal_port",
    "http_server.internal_tls",
    "http_server.port",
    "http_server.tls",
    "log",
    "node",
    "store.primary.url",
    "store.stats.url",
    "tcp.address",
    "tcp.port",
    "tcp.tls",
];

/// Whether `path` is the given section, key or list, or is inside it.
pub fn lies_in(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// A digest of the written keys that should be the same on all nodes of a cluster. It is never 0. It has 32 bits only,
/// so that it reveals nothing about secrets.
pub fn digest(written: &[WrittenKey]) -> u32 {
    let shared = written.iter().filter(|key| !OF_NODE.iter().any(|section| lies_in(&key.path, section)));
    let mut shared: Vec<_> = shared.map(|key| (&key.path, key.value())).collect();
    shared.sort_unstable();
    (stable_hash(&shared) as u32).max(1)
}

/// Whether a changed key requires a restart. `path` has the form of [`crate::WrittenKey::path`], and `before` are the
/// settings of the running node.
pub fn takes_restart(path: &str, before: &Settings) -> bool {
    if let Some((name, option)) = path.strip_prefix("events[").and_then(|rest| rest.split_once("].")) {
        let is_durable = before.events.iter().any(|events| events.name == name && events.options.durable);
        let is_there = before.events.iter().any(|events| events.name == name);
        return option == "durable"
            || is_there && RESTART_IN_EVENTS.contains(&option)
            || is_durable && (option == "name" || RESTART_IN_DURABLE_EVENTS.contains(&option));
    }
    if let Some(scope) = path.strip_prefix("registry.scopes[") {
        return !scope.split_once("].").is_some_and(|(_, option)| option.starts_with("allow_"));
    }
    let option = path
        .strip_prefix("channel.namespaces[")
        .and_then(|rest| rest.split_once("].").map(|(_, option)| option))
        .or_else(|| path.strip_prefix("channel.without_namespace."));
    !LIVE.iter().any(|section| lies_in(path, section))
        || RESTART.iter().any(|section| lies_in(path, section))
        || option.is_some_and(|option| RESTART_IN_NAMESPACE.contains(&option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KEYS;
    use crate::settings::{EventsSettings, NamedEvents};

    #[test]
    fn what_lasts_takes_a_restart_and_the_rest_does_not() {
        let mut settings = Settings::default();
        for (name, durable) in [("crm", false), ("audit", true)] {
            let options = EventsSettings { durable, ..EventsSettings::default() };
            settings.events.push(NamedEvents { name: name.to_owned(), options });
        }
        for (path, expected) in [
            ("events[crm].types", false),
            ("events[crm].endpoint", false),
            ("events[crm].lanes", true),
            ("events[new].lanes", false),
            ("events[new].durable", true),
            ("events[audit].endpoint", false),
            ("events[audit].types", true),
            ("consumers[outbox].enabled", false),
            ("http_server.tls.cert_pem", false),
            ("http_server.tls.enabled", true),
            ("http_server.tls_autocert.enabled", true),
            ("client.token.hmac_secret_key", false),
            ("client.allowed_origins", false),
            ("clients", true),
            ("channel.namespaces[chat].history_size", false),
            ("channel.namespaces[chat].durable", true),
            ("channel.without_namespace.publication_data_format", true),
            ("channel.namespaces[a.durable].presence", false),
            ("registry.scopes[devices].allow_register_for_client", false),
            ("registry.scopes[devices].name", true),
            ("registry.scopes[devices].conflict_policy", true),
            ("proxies[chat].endpoint", false),
            ("store.primary.url", true),
            ("store.primary.max_size", true),
            ("cluster.nats_url", true),
            ("node.shards", true),
            ("http_server.port", true),
            ("log.level", false),
            ("log.format", true),
            ("http_api.keys[ci].key", false),
        ] {
            assert_eq!(takes_restart(path, &settings), expected, "{path}");
        }
    }

    #[test]
    fn every_entry_of_the_lists_is_a_key_or_a_section() {
        let is_known = |entry: &str| {
            KEYS.iter().any(|key| key.path == entry || key.path.starts_with(&format!("{entry}.")))
                || crate::keys::is_section(entry)
                || crate::keys::LISTS.iter().any(|(list, _)| *list == entry)
        };
        for entry in LIVE.iter().chain(RESTART).chain(OF_NODE) {
            assert!(is_known(entry), "{entry}");
        }
    }
}
