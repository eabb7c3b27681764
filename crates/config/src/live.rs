//! Which keys a running node takes anew, and which take a restart.

/// Sections and keys that a running node takes anew. What is not here takes a restart.
const LIVE: &[&str] = &[
    "channel",
    "client",
    "emulation",
    "grpc_api.key",
    "health",
    "hooks",
    "http_api",
    "http_server.allowed_hosts",
    "http_server.request_timeout",
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
    "uni_http_stream",
    "uni_sse",
    "uni_websocket",
    "websocket",
];

/// Keys within these sections that take a restart all the same: something that lasts was made by them.
const RESTART: &[&str] = &[
    // Names of channels would mean others than those who are subscribed to them.
    "channel.namespace_boundary",
    "channel.private_prefix",
    "channel.user_boundary",
    "channel.user_separator",
    "channel.empty_channels_max",
    "client.channel_position_check_delay",
    "client.unauthenticated_connection_limit",
    "client.user_connection_limit",
];

/// Options of a namespace that take a restart: publications are stored by them.
const RESTART_IN_NAMESPACE: &[&str] = &["binary_as_base64", "durable", "publication_data_format", "reactions_durable"];

/// Whether a changed key takes a restart. `path`: as [`crate::WrittenKey::path`] has it.
pub fn takes_restart(path: &str) -> bool {
    let lies_in = |section: &&str| {
        path.strip_prefix(*section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    if let Some(scope) = path.strip_prefix("registry.scopes[") {
        return !scope.split_once("].").is_some_and(|(_, option)| option.starts_with("allow_"));
    }
    let option = path
        .strip_prefix("channel.namespaces[")
        .and_then(|rest| rest.split_once("].").map(|(_, option)| option))
        .or_else(|| path.strip_prefix("channel.without_namespace."));
    !LIVE.iter().any(lies_in)
        || RESTART.iter().any(lies_in)
        || option.is_some_and(|option| RESTART_IN_NAMESPACE.contains(&option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KEYS;

    #[test]
    fn what_lasts_takes_a_restart_and_the_rest_does_not() {
        for (path, expected) in [
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
            ("cluster.nats_url", true),
            ("node.shards", true),
            ("http_server.port", true),
            ("log.level", false),
            ("log.format", true),
            ("http_api.keys[ci].key", false),
        ] {
            assert_eq!(takes_restart(path), expected, "{path}");
        }
    }

    #[test]
    fn every_entry_of_the_lists_is_a_key_or_a_section() {
        let is_known = |entry: &str| {
            KEYS.iter().any(|key| key.path == entry || key.path.starts_with(&format!("{entry}.")))
                || crate::keys::is_section(entry)
                || crate::keys::LISTS.iter().any(|(list, _)| *list == entry)
        };
        for entry in LIVE.iter().chain(RESTART) {
            assert!(is_known(entry), "{entry}");
        }
    }
}
