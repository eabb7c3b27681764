//! Configurations as people write them.

mod limits;
mod reference;
mod starts;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keys::{KEYS, Key, OPTIONS};
use super::*;

/// Tells the tests that compare a page of the documentation to write it instead.
const WRITE_DOCS: &str = "TOUCHLINE_WRITE_DOCS";

/// Compares a page of the documentation with what its tables say. It is written only where that is asked for.
fn is_up_to_date(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    if std::env::var_os(WRITE_DOCS).is_some() {
        return std::fs::write(&path, expected).expect("the page is writable");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let line = 1 + found.lines().zip(expected.lines()).take_while(|(found, expected)| found == expected).count();
    assert!(
        found == expected,
        "{page} is stale from line {line} on: run `{WRITE_DOCS}=1 cargo test --locked -p touchline up_to_date`, look at the page and commit it"
    );
}

/// A configuration file that lives as long as its test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let unique = format!("touchline-{}-{:?}-{name}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(unique);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        File(path)
    }

    fn read(&self, variables: &[(&str, &str)]) -> Reading {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read(&Sources { file: Some(self.0.clone()), variables, ..Sources::default() })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The findings of a reading, without the directory and the unique part of the file's name.
fn texts(reading: &Reading) -> Vec<String> {
    let shown = |finding: &Finding| {
        let text = finding.to_string();
        match (text.find("touchline-"), text.find("-c.")) {
            (Some(from), Some(to)) if from < to => format!("{:?} {}", finding.severity, &text[to + 1..]),
            _ => format!("{:?} {text}", finding.severity),
        }
    };
    reading.findings.iter().filter(|finding| finding.severity != Severity::Note).map(shown).collect()
}

/// The same without lines and columns.
fn unplaced(reading: &Reading) -> Vec<String> {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let without = |text: String| text.split(':').filter(|part| !is_number(part)).collect::<Vec<_>>().join(":");
    texts(reading).into_iter().map(without).collect()
}

fn toml(text: &str) -> Reading {
    File::new("c.toml", text).read(&[])
}

fn settings(reading: Reading) -> Settings {
    reading.into_result().expect("the configuration is good").0.settings
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = File::new(
        "c.toml",
        "[http_server]\nport = 1\naddress = \"127.0.0.1\"\n[client]\nchannel_limit = 1\nping_interval = 30",
    );
    let mut sources = Sources {
        file: Some(file.0.clone()),
        variables: vec![
            ("TOUCHLINE_HTTP_SERVER_PORT".into(), "2".into()),
            ("TOUCHLINE_CLIENT_CHANNEL_LIMIT".into(), "2".into()),
        ],
        ..Sources::default()
    };
    sources.flags.port = Some(3);
    let settings = settings(read(&sources));
    assert_eq!(settings.http_server.port, 3);
    assert_eq!(settings.client.channel_limit, 2);
    assert_eq!(settings.http_server.address, "127.0.0.1");
    assert_eq!(settings.client.ping_interval, Duration::from_secs(30));
    assert_eq!(settings.client.pong_timeout, Duration::from_secs(8));
}

#[test]
fn the_environment_says_all_that_a_file_can() {
    let file = File::new("c.json", r#"{"channel": {"namespaces": [{"name": "chat-room", "history_size": 1}]}}"#);
    let reading = file.read(&[
        ("CENTRIFUGO_HTTP_API_KEY", "a key from elsewhere"),
        ("CENTRIFUGO_CLIENT_CHANNEL_LIMIT", "5"),
        ("TOUCHLINE_CLIENT_CHANNEL_LIMIT", "6"),
        ("TOUCHLINE_CLIENT_ALLOWED_ORIGINS", "https://a.example https://b.example"),
        ("TOUCHLINE_CLIENT_INSECURE", "1"),
        ("TOUCHLINE_CLIENT_ANONYMOUS_ON_LOOPBACK_ONLY", "true"),
        ("TOUCHLINE_CHANNEL_WITHOUT_NAMESPACE_PRESENCE", "true"),
        ("TOUCHLINE_CHANNEL_NAMESPACES_CHAT_ROOM_HISTORY_TTL", "10m"),
        ("TOUCHLINE_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
        ("TOUCHLINE_SERVICE_HOST", "10.0.0.1"),
        ("TOUCHLINE_CONFIG", "x"),
        ("HOME", "/root"),
    ]);
    assert_eq!(texts(&reading), Vec::<String>::new());
    let settings = settings(reading);
    assert_eq!(settings.http_api.key, "a key from elsewhere");
    assert_eq!(settings.client.channel_limit, 6);
    assert_eq!(settings.client.allowed_origins, ["https://a.example", "https://b.example"]);
    assert!(settings.client.insecure && settings.channel.without_namespace.presence);
    let room = &settings.channel.namespaces[0];
    assert_eq!(
        (room.name.as_str(), room.options.history_size, room.options.history_ttl),
        ("chat-room", 1, Duration::from_secs(600))
    );
}

#[test]
fn namespaces_can_come_from_the_environment_alone() {
    for list in ["news chat", r#"[{"name": "news"}, {"name": "chat"}]"#] {
        let variables = vec![
            ("CENTRIFUGO_CHANNEL_NAMESPACES".into(), list.into()),
            ("CENTRIFUGO_CHANNEL_NAMESPACES_CHAT_PRESENCE".into(), "true".into()),
        ];
        let settings = settings(read(&Sources { variables, ..Sources::default() }));
        let found: Vec<_> = settings.channel.namespaces.iter().map(|n| (n.name.as_str(), n.options.presence)).collect();
        assert_eq!(found, [("news", false), ("chat", true)], "{list}");
    }
}

#[test]
fn a_variable_that_no_key_has_is_told() {
    let variables = vec![("TOUCHLINE_HTTP_API_KEYS".into(), "x".into())];
    let reading = read(&Sources { variables, ..Sources::default() });
    assert_eq!(
        texts(&reading),
        ["Warning TOUCHLINE_HTTP_API_KEYS: no key has this name; did you mean TOUCHLINE_HTTP_API_KEY?"]
    );
}

#[test]
fn an_unknown_key_names_the_nearest_known_one_and_its_line() {
    for (text, expected) in [
        (
            "[client]\nchanel_limit = 3",
            "Error c.toml:2:1: client.chanel_limit: unknown key; did you mean client.channel_limit?",
        ),
        ("[cleint]\nx = 3\ny = 4", "Error c.toml:1:2: cleint: unknown key; did you mean client?"),
        ("api_key = \"s\"", "Error c.toml:1:1: api_key: unknown key; did you mean http_api.key?"),
        ("redis_address = \"s\"", "Error c.toml:1:1: redis_address: unknown key; docs/configuration.md lists all keys"),
        (
            "[[channel.namespaces]]\nname = \"chat\"\nhistroy_size = 1",
            "Error c.toml:3:1: channel.namespaces[chat].histroy_size: unknown key; did you mean channel.namespaces[].history_size?",
        ),
        (
            "[channel.without_namespace]\n  presense = true",
            "Error c.toml:2:3: channel.without_namespace.presense: unknown key; did you mean channel.without_namespace.presence?",
        ),
    ] {
        assert_eq!(texts(&toml(text)), [expected], "{text}");
    }
}

#[test]
fn a_wrong_type_names_key_expected_and_found_but_no_secret() {
    for (text, expected) in [
        ("http_server.port = 70000", "http_server.port: expected a number from 0 to 65535, found 70000"),
        ("http_server.port = \"http\"", "http_server.port: expected a number from 0 to 65535, found \"http\""),
        ("http_server = 8000", "http_server: expected a table, found a number"),
        ("client.insecure = \"yes\"", "client.insecure: expected true or false, found \"yes\""),
        (
            "client.ping_interval = \"soon\"",
            "client.ping_interval: expected a duration such as \"25s\", \"1h30m\" or \"500ms\", found \"soon\"",
        ),
        ("client.allowed_origins = [1]", "client.allowed_origins: expected a list of texts, found a list"),
        ("http_api.key = 1234567890", "http_api.key: expected text (a secret), found a number"),
        (
            "client.token.hmac_secret_key = [\"tops3cret\"]",
            "client.token.hmac_secret_key: expected text (a secret), found a list",
        ),
        (
            "log.level = \"loud\"",
            "log.level: expected one of \"none\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", found \"loud\"",
        ),
        (
            "log.level = 2026-11-21",
            "log.level: expected one of \"none\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", found a date",
        ),
        ("channel.namespaces = \"news\"", "channel.namespaces: expected a list of tables, found text"),
        (
            "registry.scopes = [{name = \"$presence\"}]",
            "registry.scopes[$presence].name: names that begin with $ are the server's own",
        ),
        ("channel.namespaces = [{presence = true}]", "channel.namespaces[0].name: expected text, found none"),
        (
            "channel.without_namespace.channel_regex = \"(\"",
            "channel.without_namespace.channel_regex: expected a regular expression, found a faulty one (unclosed group)",
        ),
        (
            "channel.without_namespace.history_size = 1000000",
            "channel.without_namespace.history_size: expected a number from 0 to 100000, found 1000000",
        ),
    ] {
        let found = texts(&toml(text));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].ends_with(expected), "{text}: {found:?}");
        assert!(found[0].starts_with("Error c.toml:1:"), "{text}: {found:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    for (name, text, expected) in [
        ("c.yaml", "a: 1", "Error c.yaml: YAML is not read here: write it as TOML or JSON (one to one, the keys stay)"),
        ("c.conf", "", "Error c.conf: the name of a configuration must end in .toml or .json"),
        ("c.json", "{\n \"a\": }", "Error c.json:2:7: is not JSON: expected value"),
        ("c.json", "[]", "Error c.json: must be a JSON object"),
    ] {
        assert_eq!(texts(&File::new(name, text).read(&[])), [expected]);
    }
    let secret = toml("[http_api]\nkey = \"tops3cret\nport = 1");
    assert!(texts(&secret)[0].starts_with("Error c.toml:2:"), "{:?}", texts(&secret));
    assert!(!texts(&secret)[0].contains("tops3cret"), "{:?}", texts(&secret));
    let missing = read(&Sources { file: Some("/no/such/file.toml".into()), ..Sources::default() });
    assert!(texts(&missing)[0].contains("cannot be read"));
}

#[test]
fn a_real_configuration_of_centrifugo_starts_and_tells_what_is_left_out() {
    let file = File::new("c.json", include_str!("../testdata/centrifugo6.json"));
    let alone = texts(&file.read(&[]));
    assert!(
        alone[0].starts_with("Error")
            && alone[0].contains("engine: not supported, and without it each node would serve"),
        "{alone:?}"
    );
    let reading = file.read(&[("TOUCHLINE_CLUSTER_ENGINE", "nats")]);
    let expected: Vec<&str> = include_str!("../testdata/centrifugo6.expected.txt").lines().collect();
    assert_eq!(unplaced(&reading), expected, "\n{}", texts(&reading).join("\n"));
    assert!(texts(&reading).iter().all(|text| text.starts_with("Warning c.json:")), "each has its line");
    let settings = settings(reading);
    assert_eq!(settings.http_server.port, 8000);
    assert_eq!(settings.client.allowed_origins, ["https://app.example.com", "https://*.example.org"]);
    assert_eq!(settings.client.subscribe_to_user_personal_channel.personal_channel_namespace, "personal");
    assert_eq!(settings.shutdown.timeout, Duration::from_secs(45));
    let names: Vec<&str> = settings.channel.namespaces.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["news", "chat", "personal"]);
    assert_eq!(settings.channel.namespaces[0].options.history_ttl, Duration::from_secs(300));
    assert!(settings.channel.namespaces[1].options.channel_regex.is_some());
}

#[test]
fn what_would_let_in_more_than_was_configured_is_refused() {
    let token = "client.token.issuer_regex = \"^https://\"";
    assert_eq!(
        texts(&toml(token)),
        [
            "Error c.toml:1:14: not supported yet: client.token.issuer_regex; ignoring it would accept tokens that it rejects"
        ]
    );
    for proxy in ["client.proxy.connect.enabled = true", "client.proxy.connect.enabled = \"true\""] {
        let open = format!("{proxy}\nclient.allow_anonymous_connect_without_token = true");
        let found = texts(&toml(&open));
        assert!(
            found[0].starts_with("Error") && found[0].contains("would admit users that your backend refuses"),
            "{found:?}"
        );
        assert!(texts(&toml(proxy)).iter().all(|text| text.starts_with("Warning")), "tokens decide");
    }
    let open =
        File::new("c.toml", "client.insecure = true").read(&[("CENTRIFUGO_CLIENT_PROXY_CONNECT_ENABLED", "true")]);
    assert!(open.configuration.is_none(), "{:?}", texts(&open));
    for (variable, json) in [("PROXY", r#"{"connect":{"enabled":true}}"#), ("PROXY_CONNECT", r#"{"enabled":true}"#)] {
        let open =
            File::new("c.toml", "client.insecure = true").read(&[(&format!("CENTRIFUGO_CLIENT_{variable}"), json)]);
        assert!(open.configuration.is_none(), "{variable}: {:?}", texts(&open));
        let closed = File::new("c.toml", "").read(&[(&format!("CENTRIFUGO_CLIENT_{variable}"), json)]);
        assert!(closed.configuration.is_some(), "{variable}: tokens decide");
    }
    let blocked = texts(&toml("user_block.persistence_engine = \"redis\""));
    assert!(
        blocked[0].starts_with("Error") && blocked[0].contains("would admit users that it keeps out"),
        "{blocked:?}"
    );
    let proxied =
        "[[channel.namespaces]]\nname = \"chat\"\npublish_proxy_enabled = true\nallow_publish_for_subscriber = true";
    let found = texts(&toml(proxied));
    assert!(found[0].starts_with("Error") && found[0].contains("would hold without asking your backend"), "{found:?}");
}

#[test]
fn names_in_the_environment_choose_among_those_of_the_file() {
    let file = File::new(
        "c.toml",
        "[[channel.namespaces]]\nname = \"news\"\nhistory_size = 7\n[[channel.namespaces]]\nname = \"old\"",
    );
    let read = |value: &str| -> Vec<(String, usize)> {
        let settings = settings(file.read(&[("TOUCHLINE_CHANNEL_NAMESPACES", value)]));
        settings
            .channel
            .namespaces
            .into_iter()
            .map(|namespace| (namespace.name, namespace.options.history_size))
            .collect()
    };
    assert_eq!(read("chat news"), [("chat".to_owned(), 0), ("news".to_owned(), 7)]);
    assert_eq!(read(r#"[{"name": "news"}]"#), [("news".to_owned(), 0)], "a list says all");
}

#[test]
fn nodes_that_are_meant_to_be_one_do_not_serve_apart() {
    for (text, is_apart) in [
        ("engine.type = \"redis\"", true),
        ("engine = {type = \"nats\"}", true),
        ("engine.redis.address = \"redis:6379\"", false),
        ("engine.type = \"memory\"", false),
        ("broker = {enabled = true, type = \"nats\"}", true),
        ("broker = {enabled = true}", true),
        ("broker = {enabled = false, type = \"redis\"}", false),
        ("presence_manager = {enabled = true, type = \"redis\"}", true),
        ("controller = {enabled = true, type = \"redis\"}", true),
        ("brokers = [{name = \"a\", enabled = true, type = \"redis\"}]", true),
    ] {
        let found = texts(&toml(text));
        assert_eq!(found.iter().any(|text| text.starts_with("Error")), is_apart, "{text}: {found:?}");
        let together = texts(&toml(&format!("{text}\ncluster.engine = \"nats\"")));
        assert!(together.iter().all(|text| text.starts_with("Warning")), "{text}: {together:?}");
    }
    let variable = File::new("c.toml", "").read(&[("CENTRIFUGO_ENGINE_TYPE", "redis")]);
    assert!(variable.configuration.is_none());
}

#[test]
fn keys_of_other_versions_and_editions_do_not_stop_the_start() {
    for (text, warnings) in [
        ("uni_websocket.disable_closing_handshake = true", 1),
        ("uni_websocket.disable_disconnect_push = true", 1),
        ("uni_websocket.decompressed_message_size_limit = 1", 0),
        ("channel.without_namespace.auto_cache_recover = true", 1),
        (
            "channel.namespaces = [{name = \"ns\", auto_cache_recover = true, subscribe_cel = \"true\", batch_max_size = 5}]",
            3,
        ),
        ("push_notifications.enabled = true", 1),
        ("client.rate_limit.client_command.enabled = true", 1),
        ("debug.enabled = true", 1),
        ("debug.enabled = false", 0),
    ] {
        let reading = toml(text);
        let found = texts(&reading);
        assert_eq!(found.len(), warnings, "{text}: {found:?}");
        assert!(reading.configuration.is_some(), "{text}: {found:?}");
    }
    let file = File::new("c.toml", "channel.namespaces = [{name = \"ns\"}]");
    for (name, value, warning) in [
        ("CENTRIFUGO_CHANNEL_NAMESPACES_NS_NAME", "ns", None),
        ("CENTRIFUGO_CHANNEL_NAMESPACES_NS_MAP_MODE", "recoverable", Some("channel.namespaces[ns].map")),
        (
            "CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_SHARED_POLL_INTERVAL",
            "1s",
            Some("channel.without_namespace.shared_poll"),
        ),
        (
            "CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_MAP_CLIENTS_PRESENCE_CHANNEL_PREFIX",
            "p",
            Some("map_clients_presence_channel_prefix"),
        ),
    ] {
        let found = texts(&file.read(&[(name, value)]));
        let is_good = warning.map_or(found.is_empty(), |part| {
            found.len() == 1 && found[0].contains(&format!("not supported yet: {part}"))
                || found.len() == 1 && found[0].contains("not supported yet") && found[0].contains(part)
        });
        assert!(is_good, "{name}: {found:?}");
    }
}

#[test]
fn an_address_is_one_of_this_machine_or_a_host_name() {
    for good in ["", "localhost", "127.0.0.1", "::", "[::1]"] {
        assert_eq!(texts(&toml(&format!("http_server.address = \"{good}\""))), Vec::<String>::new(), "{good}");
    }
    let found = texts(&toml("http_server.address = \"no.such.host.invalid\""));
    let expected =
        "http_server.address: \"no.such.host.invalid\" is neither an IP address nor a host that is known here (";
    assert!(found.len() == 1 && found[0].starts_with("Error") && found[0].contains(expected), "{found:?}");
}

#[test]
fn a_public_key_that_no_token_is_verified_by_is_refused_at_the_check() {
    let p256 = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE34cZ6TzXLX5MgkZp91zngPwQyqa9QHX539roDMEDtTQ8kaa5Dayd+QoilIEk4vsr8NEOifHRPESGPIl3ppZw2Q==";
    let p521 = "MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBK5Y0t6qGWD8mzGA/euyc05siBSfCq2tAYSrNV9c0MwPAQbbbJHAYdP1R6uX4vy2rFOyYhYa51jMHgpTK3amO+zEBX8QE8FKlVOo+ik/Cnomskl4OJRO9HZR2UZItjcabBa5b0dddW0koW/iaBF9dTbhTBAAa8HaAhjvpIK4bHindkm4=";
    let secp256k1 = "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAE2wPM8dV8YfCX6pYT0+1lsfwQOCmG5jM0WYS0lxkOob8Bv8BRYVen5/w4BrkUWqcdDf0bi6eafueeHROSrZeu0Q==";
    for (key, is_good) in [(p256, true), (p521, true), (secp256k1, false)] {
        let pem = format!("-----BEGIN PUBLIC KEY-----\\n{key}\\n-----END PUBLIC KEY-----");
        let reading = toml(&format!("client.token.ecdsa_public_key = \"{pem}\""));
        assert_eq!(reading.configuration.is_some(), is_good, "{:?}", texts(&reading));
    }
}

#[test]
fn durations_above_a_year_are_questioned() {
    let found = texts(&toml("shutdown.timeout = 30000000000"));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("Warning c.toml:1:") && found[0].contains("347222 days, is that meant?"), "{found:?}");
    assert_eq!(texts(&toml("shutdown.timeout = 30\nchannel.history_meta_ttl = \"8760h\"")), Vec::<String>::new());
}

#[test]
fn the_settings_of_the_usual_chart_give_an_internal_port() {
    let file = File::new(
        "c.json",
        "{\"client\": {\"token\": {\"hmac_secret_key\": \"a secret that is long enough for all\"}}, \"admin\": {\"enabled\": true}}",
    );
    let mut sources = Sources { file: Some(file.0.clone()), ..Sources::default() };
    for (name, value) in
        [("CENTRIFUGO_ADMIN_PASSWORD", "p"), ("CENTRIFUGO_ADMIN_SECRET", "s"), ("CENTRIFUGO_ENGINE_REDIS_ADDRESS", "")]
    {
        sources.variables.push((name.to_owned(), value.to_owned()));
    }
    for (path, value) in [
        ("health.enabled", "true"),
        ("prometheus.enabled", "true"),
        ("http_server.port", "8000"),
        ("http_server.internal_port", "9000"),
        ("grpc_api.enabled", "true"),
        ("grpc_api.port", "10000"),
        ("uni_grpc.port", "11000"),
    ] {
        sources.flags.keys.push((path.to_owned(), value.to_owned()));
    }
    let reading = read_to_serve(&sources);
    let found = texts(&reading);
    let settings = reading.configuration.unwrap_or_else(|| panic!("{found:?}")).settings;
    assert_eq!(settings.http_server.internal(), Some(("", 9_000)));
    assert!(settings.health.enabled && settings.prometheus.enabled);
    assert!(found.iter().any(|text| text.starts_with("Warning http_api.key: missing")), "{found:?}");
    sources.flags.keys.push(("helth.enabled".to_owned(), "true".to_owned()));
    assert!(texts(&read(&sources)).iter().any(|text| text.starts_with("Error --helth.enabled: helth: unknown key")));
    for (text, expected) in [
        ("", None),
        ("http_server.internal_port = \"\"", None),
        ("http_server.internal_port = 8000", None),
        ("http_server.internal_address = \"127.0.0.1\"", Some(("127.0.0.1", 8_000))),
        ("http_server.address = \"10.0.0.1\"\nhttp_server.internal_port = \"9000\"", Some(("10.0.0.1", 9_000))),
    ] {
        assert_eq!(self::settings(toml(text)).http_server.internal(), expected, "{text}");
    }
}

#[test]
fn a_key_in_the_configuration_is_never_shown() {
    let file = File::new(
        "c.toml",
        "[http_server.tls]\nenabled = true\ncert_pem = \"c.pem\"\nkey_pem = \"\"\"-----BEGIN PRIVATE KEY-----\nMIIEtops3cret\n-----END PRIVATE KEY-----\"\"\"",
    );
    let reading = read_to_serve(&Sources { file: Some(file.0.clone()), ..Sources::default() });
    let found = texts(&reading);
    assert!(found.iter().all(|text| !text.contains("tops3cret")), "{found:?}");
    let settings =
        file.read(&[]).configuration.map(|configuration| format!("{:?}", configuration.settings)).unwrap_or_default();
    assert!(!settings.is_empty() && !settings.contains("tops3cret"));
}

#[test]
fn settings_that_do_not_go_together_are_told() {
    let namespace = |options: &str| format!("[[channel.namespaces]]\nname = \"chat\"\n{options}");
    for (text, expected) in [
        (
            "client.pong_timeout = \"25s\"".to_owned(),
            "Error client.pong_timeout: must be above zero and shorter than client.ping_interval",
        ),
        (
            "client.channel_position_check_delay = \"500ms\"".to_owned(),
            "Error client.channel_position_check_delay: must be at least 1s",
        ),
        ("tcp.ping_interval = \"5s\"".to_owned(), "Error tcp.ping_interval: must be longer than client.pong_timeout"),
        (
            namespace("force_recovery = true"),
            "Warning channel.namespaces[chat]: force_recovery does nothing without history_size and history_ttl",
        ),
        (
            namespace("history_size = 5"),
            "Warning channel.namespaces[chat]: history stays off, it needs both history_size and history_ttl",
        ),
        (
            namespace("history_size = 5\nhistory_ttl = \"2h\"\nhistory_meta_ttl = \"1h\""),
            "Error channel.namespaces[chat].history_ttl: must not be longer than history_meta_ttl",
        ),
        (namespace("[[channel.namespaces]]\nname = \"chat\""), "Error channel.namespaces[chat].name: used twice"),
        (
            "client.token.rsa_public_key = \"/etc/key.pem\"".to_owned(),
            "Error client.token.rsa_public_key: expected a public key in PEM (\"-----BEGIN PUBLIC KEY-----\" …), found something else",
        ),
        (
            "client.allowed_origins = [\"example.com\"]".to_owned(),
            "Warning client.allowed_origins: \"example.com\" matches nothing; an origin is scheme://host[:port]",
        ),
        ("http_api.key = \"short\"".to_owned(), "Warning http_api.key: shorter than 16 bytes, it can be guessed"),
        (
            "http_server.tls = {enabled = true, cert_pem = \"c.pem\", key_pem = \"k.pem\", client_ca_pem = \"ca.pem\"}"
                .to_owned(),
            "Warning http_server.tls.client_ca_pem: clients without a certificate are let in too; client_auth = \"require\" refuses them, as Centrifugo does",
        ),
    ] {
        let found = unplaced(&toml(&text));
        assert_eq!(
            found.iter().map(|found| found.replacen("c.toml: ", "", 1)).collect::<Vec<_>>(),
            [expected],
            "{text}"
        );
    }
}

#[test]
fn what_does_not_go_together_has_its_line() {
    for (name, text, expected) in [
        ("c.toml", "\nclient.pong_timeout = \"25s\"", "c.toml:2:8: client.pong_timeout: must be"),
        ("c.json", "{\"client\": {\n  \"pong_timeout\": \"25s\"}}", "c.json:2:3: client.pong_timeout: must be"),
        ("c.json", "{\"client\": {\n  \"chanel_limit\": 3}}", "c.json:2:3: client.chanel_limit: unknown key"),
        ("c.toml", "[http_server.tls]\nenabled = true", "c.toml:1:14: http_server.tls: needs cert_pem"),
        (
            "c.toml",
            "[[channel.namespaces]]\nname = \"a1\"\n[[channel.namespaces]]\nname = \"a1\"",
            "c.toml:4:1: channel.namespaces[a1].name: used twice",
        ),
        (
            "c.toml",
            "[[channel.namespaces]]\nname = \"a1\"\ndurable = true",
            "c.toml:3:1: channel.namespaces[a1].durable: needs history_size",
        ),
        (
            "c.toml",
            "[client]\nhttp_api.key = \"k\"",
            "http_api does not belong to the table around it: write it above the first [section]",
        ),
        ("c.toml", "port = 1", "c.toml:1:1: port: unknown key; did you mean http_server.port?"),
    ] {
        let found = texts(&File::new(name, text).read(&[]));
        assert!(found.len() == 1 && found[0].contains(expected), "{text}: {found:?}");
    }
}

#[test]
fn what_a_server_could_not_use_is_refused() {
    let file = |name: &str, text: &str| File::new(name, text);
    let (certificate, key) = (file("c.pem", "no certificate"), file("k.pem", "no key"));
    let secrets = "http_api.key = \"a-key-of-twenty-bytes\"\nclient.token.hmac_secret_key = \"a secret of this test, long enough for it\"\n";
    let durable = "[[channel.namespaces]]\nname = \"a1\"\ndurable = true\nhistory_size = 1\nhistory_ttl = \"1m\"";
    let tls = |certificate: &str, key: &str| {
        format!("[http_server.tls]\nenabled = true\ncert_pem = {certificate:?}\nkey_pem = {key:?}")
    };
    for (text, expected) in [
        (tls("/no/such.pem", "/no/such.key"), "c.toml:5:1: http_server.tls.cert_pem: /no/such.pem can't be read"),
        (tls(&certificate.0.to_string_lossy(), &key.0.to_string_lossy()), "-c.pem holds no certificate in PEM"),
        (
            format!("store.primary.url = \"mysql://db\"\n{durable}"),
            "c.toml:3:15: store.primary.url: expected sqlite:PATH or postgres://",
        ),
        (format!("store.primary.tls_ca = \"/no/ca.pem\"\n{durable}"), "store.primary.tls_ca: /no/ca.pem can't be read"),
        (
            "[cluster]\nengine = \"nats\"\nnats_tls_ca = \"/no/ca.pem\"".to_owned(),
            "cluster.nats_tls_ca: /no/ca.pem can't be read",
        ),
    ] {
        let file = File::new("c.toml", &format!("{secrets}{text}"));
        let found = texts(&read_to_serve(&Sources { file: Some(file.0.clone()), ..Sources::default() }));
        assert!(found.iter().any(|found| found.starts_with("Error") && found.contains(expected)), "{text}: {found:?}");
    }
}

#[test]
fn a_port_with_tls_has_one_certificate() {
    let files = "cert_pem = \"c.pem\"\nkey_pem = \"k.pem\"";
    let autocert = "[http_server.tls_autocert]\nenabled = true\nhost_whitelist = [\"live.example\"]";
    for (text, expected) in [
        (format!("[http_server.tls]\nenabled = true\n{files}"), None),
        ("[http_server.tls]\nenabled = true".into(), Some("http_server.tls: needs cert_pem and key_pem")),
        ("[tcp.tls]\nenabled = true\ncert_pem = \"c.pem\"".into(), Some("tcp.tls: needs cert_pem and key_pem")),
        (format!("{autocert}\n[tcp.tls]\nenabled = true"), None),
        (format!("{autocert}\n[tcp.tls]\nenabled = true\n{files}"), None),
        (format!("{autocert}\n[http_server.tls]\n{files}"), Some("a port has one certificate")),
        ("[http_server.tls_autocert]\nenabled = true".into(), Some("host_whitelist: missing")),
        (
            "[http_server.tls_autocert]\nhost_whitelist = [\"*.example\"]".into(),
            Some("\"*.example\" is not a host name"),
        ),
    ] {
        let file = File::new("c.toml", &text);
        let read = read(&Sources { file: Some(file.0.clone()), ..Sources::default() }).into_result();
        match expected {
            None => assert!(read.is_ok(), "{text}: {:?}", read.err().map(|error| error.to_string())),
            Some(part) => {
                let error = read.err().map(|error| error.to_string()).unwrap_or_default();
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
}

#[test]
fn nothing_is_served_without_secrets_unless_that_was_asked_for() {
    let serve = |text: &str| {
        let file = File::new("c.toml", text);
        read_to_serve(&Sources { file: Some(file.0.clone()), ..Sources::default() })
    };
    let error = serve("").into_result().expect_err("there are no secrets").to_string();
    for part in [
        "client.token.hmac_secret_key: missing",
        "`touchline genconfig --output touchline.toml`",
        "`touchline serve --dev`",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    for (text, expected) in [
        ("http_api.disabled = true\nclient.allow_anonymous_connect_without_token = true", true),
        ("http_api.insecure = true\nclient.insecure = true", true),
        ("http_api.key = \"k\"\nclient.token.hmac_secret_key = \"s\"", true),
        ("http_api.key = \"k\"", false),
        ("client.token.hmac_secret_key = \"s\"", true),
        ("http_api.key = \"k\"\nclient.subscription_token.hmac_secret_key = \"s\"", false),
    ] {
        assert_eq!(serve(text).configuration.is_some(), expected, "{text}");
    }
}

#[test]
fn development_fills_in_what_is_absent_and_nothing_else() {
    let secrets = DevelopmentSecrets {
        api_key: "a generated key of the api".into(),
        token_secret: "a generated secret for all tokens".into(),
        is_open: false,
    };
    let file =
        File::new("c.toml", "[http_api]\nkey = \"the one that was written\"\n[[channel.namespaces]]\nname = \"chat\"");
    let mut sources = Sources { file: Some(file.0.clone()), development: Some(secrets), ..Sources::default() };
    sources.flags.port = Some(9000);
    let settings = settings(read(&sources));
    assert_eq!((settings.http_server.address.as_str(), settings.http_server.port), ("127.0.0.1", 9000));
    assert_eq!(settings.http_api.key, "the one that was written");
    assert_eq!(settings.client.token.hmac_secret_key, "a generated secret for all tokens");
    assert!(settings.client.allow_anonymous_connect_without_token && settings.client.anonymous_on_loopback_only);
    assert!(!settings.client.insecure && !settings.http_api.insecure);
    assert_eq!(settings.client.allowed_origins, ["http://localhost:9000", "http://127.0.0.1:9000"]);
    let names: Vec<&str> = settings.channel.namespaces.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["chat", "match"]);
    let demo = &settings.channel.namespaces[1].options;
    assert!(demo.presence && demo.force_recovery && demo.allow_subscribe_for_anonymous && demo.has_history());
    assert!(!demo.allow_publish_for_client && !demo.allow_publish_for_subscriber);
}

/// A debugger's view of all settings: what the table calls defaults must be what the structs have.
#[test]
fn the_documented_defaults_are_the_real_ones() {
    let mut tree = low::ConfigNode::empty_table(low::Location::Defaults);
    let mut namespace = low::ConfigNode::empty_table(low::Location::Defaults);
    let written = |key: &Key| low::ConfigNode {
        location: low::Location::Defaults,
        value: low::Value::Text(key.default.to_owned()),
    };
    KEYS.iter().for_each(|key| tree.set(key.path, written(key)));
    OPTIONS
        .iter()
        .for_each(|option| tree.set(&format!("{}.{}", keys::WITHOUT_NAMESPACE, option.path), written(option)));
    namespace.set("name", low::ConfigNode { location: low::Location::Defaults, value: low::Value::Text("x".into()) });
    let mut findings = Vec::new();
    let mut found = high::interpret(&tree, &mut findings).expect("defaults are good").settings;
    // An endpoint's empty prefix stands for the path that the table shows.
    found.health.handler_prefix.clear();
    found.prometheus.handler_prefix.clear();
    assert_eq!(format!("{found:#?}"), format!("{:#?}", Settings::default()));
    assert_eq!(findings, []);
}
