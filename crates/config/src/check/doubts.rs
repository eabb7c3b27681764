//! Warns of settings that are allowed but probably do not mean what the operator intends.

use std::collections::HashSet;

use crate::finding::Finding;
use crate::keys::SCOPES;
use crate::settings::Settings;

/// Adds a warning for each such setting.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    let mut warn = |text: String| findings.push(Finding::warning(text, None));
    let mut names = HashSet::new();
    for scope in &settings.registry.scopes {
        let name = scope.name.as_str();
        if name.is_empty() {
            warn(format!("{SCOPES}[].name: empty, so clients have to use the scope \"\""));
        }
        if !names.insert(name) {
            warn(format!("{SCOPES}[{name}].name: used twice, so only one of the two scopes is ever used"));
        }
    }
    let cluster = &settings.cluster;
    if cluster.is_on() && cluster.heartbeat_interval >= cluster.node_timeout {
        warn(
            "cluster.heartbeat_interval: not shorter than cluster.node_timeout, \
             so nodes count as gone between two heartbeats"
                .to_owned(),
        );
    }
    if cluster.is_on() && settings.security.use_primary && !settings.store.primary.is_shared() {
        warn(
            "security.use_primary: nodes of a cluster do not share an SQLite file, so bans are kept in NATS; \
             remove it, or set store.primary.url to PostgreSQL"
                .to_owned(),
        );
    }
    for host in settings.http_server.allowed_hosts.iter().filter(|host| host.contains('/')) {
        warn(format!(
            "http_server.allowed_hosts: {host:?} matches nothing; a host is a name with or without a port, \
             as \"live.example:8000\""
        ));
    }
    for origin in settings.client.allowed_origins.iter().filter(|origin| origin.contains(',')) {
        warn(format!(
            "client.allowed_origins: {origin:?} is one origin and matches nothing; write several as a list, \
             or separated by spaces"
        ));
    }
}
