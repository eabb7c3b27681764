//! `serve --dev`: what a developer's machine needs, filled in where nothing was written.

use super::tree::{ConfigNode, ConfigValue, Location};

/// The namespace of the demo.
const MATCH: &str = "match";

/// Options of the demo's namespace: anybody may watch and nobody but the reporter, through the server API, may publish.
const MATCH_OPTIONS: &[&str] = &[
    "presence",
    "join_leave",
    "force_push_join_leave",
    "force_recovery",
    "force_positioning",
    "allow_subscribe_for_client",
    "allow_subscribe_for_anonymous",
    "allow_history_for_client",
    "allow_history_for_anonymous",
    "allow_presence_for_client",
    "allow_presence_for_anonymous",
];

/// Secrets for one run, and who is let in.
#[derive(Clone)]
pub struct DevelopmentSecrets {
    /// For the server API.
    pub api_key: String,
    /// For tokens.
    pub token_secret: String,
    /// Clients of other machines are let in.
    pub is_open: bool,
}

/// Fills in what is absent.
pub(crate) fn fill(secrets: &DevelopmentSecrets, tree: &mut ConfigNode) {
    let text = |text: &str| ConfigValue::Text(text.to_owned());
    let mut fill = |path: &str, value| {
        if tree.get(path).is_none() {
            tree.set(path, node(value));
        }
    };
    fill("http_server.address", text(if secrets.is_open { "0.0.0.0" } else { "127.0.0.1" }));
    fill("tcp.address", text("127.0.0.1"));
    // A page of another site, whose name an attacker lets resolve to this machine, must not count as a page of this
    // machine. One that is open to everybody has nothing to hide from them.
    let hosts: &[&str] = if secrets.is_open { &[] } else { &["localhost", "*.localhost"] };
    fill("http_server.allowed_hosts", ConfigValue::List(hosts.iter().map(|host| node(text(host))).collect()));
    for transport in ["http_stream", "sse", "uni_websocket", "uni_http_stream", "uni_sse"] {
        fill(&format!("{transport}.enabled"), ConfigValue::Boolean(true));
    }
    fill("http_api.key", text(&secrets.api_key));
    fill("client.token.hmac_secret_key", text(&secrets.token_secret));
    fill("client.allow_anonymous_connect_without_token", ConfigValue::Boolean(true));
    fill("client.anonymous_on_loopback_only", ConfigValue::Boolean(!secrets.is_open));
    fill("client.tell_refusal_cause", ConfigValue::Boolean(true));
    fill("channel.without_namespace.allow_subscribe_for_client", ConfigValue::Boolean(true));
    fill("channel.without_namespace.allow_subscribe_for_anonymous", ConfigValue::Boolean(true));
    fill("channel.namespaces", ConfigValue::List(Vec::new()));
    fill("health.enabled", ConfigValue::Boolean(true));
    fill("prometheus.enabled", ConfigValue::Boolean(true));
    if tree.get("client.allowed_origins").is_none() {
        let port = written_port(tree);
        let origins = ["localhost", "127.0.0.1"].map(|host| node(ConfigValue::Text(format!("http://{host}:{port}"))));
        tree.set("client.allowed_origins", node(ConfigValue::List(origins.into())));
    }
    if let Some(namespaces) = tree.list_mut("channel.namespaces")
        && !namespaces.iter().any(|namespace| namespace.text("name") == Some(MATCH))
    {
        namespaces.push(demo_namespace());
    }
}

fn demo_namespace() -> ConfigNode {
    let mut namespace = ConfigNode::empty_table(Location::Defaults);
    namespace.set("name", node(ConfigValue::Text(MATCH.to_owned())));
    namespace.set("history_size", node(ConfigValue::Integer(500)));
    namespace.set("history_ttl", node(ConfigValue::Text("24h".to_owned())));
    for option in MATCH_OPTIONS {
        namespace.set(option, node(ConfigValue::Boolean(true)));
    }
    namespace
}

fn written_port(tree: &ConfigNode) -> String {
    match tree.get("http_server.port").map(|node| &node.value) {
        Some(ConfigValue::Integer(port)) => port.to_string(),
        Some(ConfigValue::Text(port)) => port.clone(),
        _ => "8000".to_owned(),
    }
}

fn node(value: ConfigValue) -> ConfigNode {
    ConfigNode { location: Location::Defaults, value }
}
