//! Defaults of `serve --dev` and `serve --ephemeral`: the values for a developer's machine and for the tests of
//! programs. They are set only where the configuration has no value.

use super::tree::{ConfigNode, ConfigValue, Location};

/// The name of the demo's namespace.
const MATCH: &str = "match";

/// Options of the demo's namespace. Anybody may watch; only the reporter may publish, through the server API.
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

/// The reactions of the demo. Its pages have a button for each.
const MATCH_REACTIONS: &[&str] = &["applause", "boo"];

/// Options of channels without a namespace on a server for tests. Clients may do everything there except publish.
const TEST_OPTIONS: &[&str] = &[
    "presence",
    "force_recovery",
    "allow_history_for_client",
    "allow_history_for_anonymous",
    "allow_presence_for_client",
    "allow_presence_for_anonymous",
];

/// The purpose of a development server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevelopmentPurpose {
    /// A developer tries the server and the demo (`serve --dev`).
    Demo,
    /// The tests of a program start the server (`serve --ephemeral`).
    Tests,
}

/// The secrets, the access and the purpose of one run of a development server.
#[derive(Clone)]
pub struct DevelopmentSecrets {
    /// The key of the server API.
    pub api_key: String,
    /// The HMAC secret of tokens.
    pub token_secret: String,
    /// Whether clients of other machines are accepted.
    pub is_open: bool,
    /// The purpose of the server.
    pub purpose: DevelopmentPurpose,
}

/// Sets the development values of keys that the configuration does not set.
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
    // An attacker can let the name of another site resolve to this machine. Its pages must not count as pages of this
    // machine. A server that is open to everybody needs no such protection.
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
        // The port is not known before the server listens, and tests serve their pages from other servers.
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

/// Sets the values that tests of a program need: a port that the kernel chooses, channels with a history, a quick stop,
/// and a log of warnings only.
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

/// Whether the port for clients is on the loopback address, which is the default.
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
