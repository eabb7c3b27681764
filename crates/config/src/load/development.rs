//! `serve --dev` and `serve --ephemeral`: what a developer's machine and the tests of programs need, filled in where
//! nothing was written.

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

/// What those who watch the demo may react with; its pages have a button for each.
const MATCH_REACTIONS: &[&str] = &["applause", "boo"];

/// Options of channels without namespace of a server for tests: clients may do all that is asked of one, but publish.
const TEST_OPTIONS: &[&str] = &[
    "presence",
    "force_recovery",
    "allow_history_for_client",
    "allow_history_for_anonymous",
    "allow_presence_for_client",
    "allow_presence_for_anonymous",
];

/// What a server for development is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevelopmentPurpose {
    /// Its developer tries it and the demo (`serve --dev`).
    Demo,
    /// Tests of a program start it (`serve --ephemeral`).
    Tests,
}

/// Secrets for one run, who is let in, and what for.
#[derive(Clone)]
pub struct DevelopmentSecrets {
    /// For the server API.
    pub api_key: String,
    /// For tokens.
    pub token_secret: String,
    /// Clients of other machines are let in.
    pub is_open: bool,
    /// What the server is for.
    pub purpose: DevelopmentPurpose,
}

/// Fills in what is absent.
pub(crate) fn fill(secrets: &DevelopmentSecrets, tree: &mut ConfigNode) {
    let text = |text: &str| ConfigValue::Text(text.to_owned());
    let listens_here = !secrets.is_open && is_loopback(tree);
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
    if secrets.purpose == DevelopmentPurpose::Demo && listens_here {
        fill("admin.enabled", ConfigValue::Boolean(true));
        fill("admin.insecure", ConfigValue::Boolean(true));
        fill("admin.secret", text(&secrets.token_secret));
    }
    if secrets.purpose == DevelopmentPurpose::Tests {
        for_tests(&mut fill);
    }
    if tree.get("client.allowed_origins").is_none() {
        // The port is not known before the server listens, and pages of tests come from servers of their own.
        let port = if secrets.purpose == DevelopmentPurpose::Tests { "*".to_owned() } else { written_port(tree) };
        let origins = ["localhost", "127.0.0.1"].map(|host| node(ConfigValue::Text(format!("http://{host}:{port}"))));
        tree.set("client.allowed_origins", node(ConfigValue::List(origins.into())));
    }
    if secrets.purpose == DevelopmentPurpose::Demo
        && let Some(namespaces) = tree.list_mut("channel.namespaces")
        && !namespaces.iter().any(|namespace| namespace.text("name") == Some(MATCH))
    {
        namespaces.push(demo_namespace());
    }
}

/// Fills in what tests of a program need: a port of the kernel's choice, channels that keep a history, a quick end, and
/// no word that is no warning.
fn for_tests(fill: &mut impl FnMut(&str, ConfigValue)) {
    let text = |text: &str| ConfigValue::Text(text.to_owned());
    fill("http_server.port", ConfigValue::Integer(0));
    fill("log.level", text("warn"));
    fill("shutdown.spread", text("0s"));
    fill("shutdown.timeout", text("1s"));
    fill("channel.without_namespace.history_size", ConfigValue::Integer(100));
    fill("channel.without_namespace.history_ttl", text("1h"));
    for option in TEST_OPTIONS {
        fill(&format!("channel.without_namespace.{option}"), ConfigValue::Boolean(true));
    }
}

fn demo_namespace() -> ConfigNode {
    let mut namespace = ConfigNode::empty_table(Location::Defaults);
    namespace.set("name", node(ConfigValue::Text(MATCH.to_owned())));
    namespace.set("history_size", node(ConfigValue::Integer(500)));
    namespace.set("history_ttl", node(ConfigValue::Text("24h".to_owned())));
    let reactions = MATCH_REACTIONS.iter().map(|option| node(ConfigValue::Text((*option).to_owned())));
    namespace.set("reactions", node(ConfigValue::List(reactions.collect())));
    for option in MATCH_OPTIONS {
        namespace.set(option, node(ConfigValue::Boolean(true)));
    }
    namespace
}

/// Whether the port for clients is on the loopback address, as it is if nothing is written.
fn is_loopback(tree: &ConfigNode) -> bool {
    match tree.get("http_server.address").map(|node| &node.value) {
        Some(ConfigValue::Text(address)) => crate::settings::resolve(address).is_ok_and(|ip| ip.is_loopback()),
        written => written.is_none(),
    }
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
