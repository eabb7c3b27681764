//! Configurations as people write them.

mod limits;
mod reference;

use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::keys::{KEYS, Key, Kind, OPTIONS, SCOPE_OPTIONS};
use super::*;

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

fn toml(text: &str) -> Reading {
    File::new("c.toml", text).read(&[])
}

fn settings(reading: Reading) -> Settings {
    reading.into_result().expect("the configuration is good").0.settings
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = File::new("c.toml", "[http_server]\nport = 1\naddress = \"127.0.0.1\"\n[client]\nchannel_limit = 1\nping_interval = 30");
    let mut sources = Sources {
        file: Some(file.0.clone()),
        variables: vec![("TOUCHLINE_HTTP_SERVER_PORT".into(), "2".into()), ("TOUCHLINE_CLIENT_CHANNEL_LIMIT".into(), "2".into())],
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
    assert_eq!((room.name.as_str(), room.options.history_size, room.options.history_ttl), ("chat-room", 1, Duration::from_secs(600)));
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
    assert_eq!(texts(&reading), ["Warning TOUCHLINE_HTTP_API_KEYS: no key has this name; did you mean TOUCHLINE_HTTP_API_KEY?"]);
}

#[test]
fn an_unknown_key_names_the_nearest_known_one_and_its_line() {
    for (text, expected) in [
        ("[client]\nchanel_limit = 3", "Error c.toml:2:1: client.chanel_limit: unknown key; did you mean client.channel_limit?"),
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
        ("client.token.hmac_secret_key = [\"tops3cret\"]", "client.token.hmac_secret_key: expected text (a secret), found a list"),
        (
            "log.level = \"loud\"",
            "log.level: expected one of \"none\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", found \"loud\"",
        ),
        (
            "log.level = 2026-11-21",
            "log.level: expected one of \"none\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", found a date",
        ),
        ("channel.namespaces = \"news\"", "channel.namespaces: expected a list of tables, found text"),
        ("registry.scopes = [{name = \"$presence\"}]", "registry.scopes[$presence].name: names that begin with $ are the server's own"),
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
    let reading = File::new("c.json", include_str!("../testdata/centrifugo6.json")).read(&[]);
    let expected: Vec<&str> = include_str!("../testdata/centrifugo6.expected.txt").lines().collect();
    assert_eq!(texts(&reading), expected, "\n{}", texts(&reading).join("\n"));
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
        ["Error c.toml:1:14: not supported yet: client.token.issuer_regex; without it, tokens that it refuses would be good"]
    );
    for key in ["internal_port = \"9000\"", "internal_address = \"10.0.0.1\"", "internal_tls.enabled = true"] {
        let found = texts(&toml(&format!("http_api.insecure = true\nhttp_server.{key}")));
        assert!(found[0].starts_with("Error") && found[0].contains("without it the server API, health and metrics would be"), "{found:?}");
    }
    let proxied = "[[channel.namespaces]]\nname = \"chat\"\npublish_proxy_enabled = true\nallow_publish_for_subscriber = true";
    let found = texts(&toml(proxied));
    assert!(found[0].starts_with("Error") && found[0].contains("would hold without asking your backend"), "{found:?}");
}

#[test]
fn settings_that_do_not_go_together_are_told() {
    let namespace = |options: &str| format!("[[channel.namespaces]]\nname = \"chat\"\n{options}");
    for (text, expected) in [
        ("client.pong_timeout = \"25s\"".to_owned(), "Error client.pong_timeout: must be above zero and shorter than client.ping_interval"),
        ("client.channel_position_check_delay = \"500ms\"".to_owned(), "Error client.channel_position_check_delay: must be at least 1s"),
        ("tcp.ping_interval = \"5s\"".to_owned(), "Error tcp.ping_interval: must be longer than client.pong_timeout"),
        (
            namespace("force_recovery = true"),
            "Warning channel.namespaces[chat]: force_recovery does nothing without history_size and history_ttl",
        ),
        (namespace("history_size = 5"), "Warning channel.namespaces[chat]: history stays off, it needs both history_size and history_ttl"),
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
            "http_server.address = \"localhost\"".to_owned(),
            "Error http_server.address: expected an IP address, found \"localhost\" (invalid IP address syntax)",
        ),
        (
            "client.allowed_origins = [\"example.com\"]".to_owned(),
            "Warning client.allowed_origins: \"example.com\" matches nothing; an origin is scheme://host[:port]",
        ),
        ("http_api.key = \"short\"".to_owned(), "Warning http_api.key: shorter than 16 bytes, it can be guessed"),
    ] {
        assert_eq!(texts(&toml(&text)), [expected], "{text}");
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
        ("[http_server.tls_autocert]\nhost_whitelist = [\"*.example\"]".into(), Some("\"*.example\" is no host name")),
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
        "http_api.key: missing",
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
        ("client.token.hmac_secret_key = \"s\"", false),
        ("http_api.key = \"k\"\nclient.subscription_token.hmac_secret_key = \"s\"", false),
    ] {
        assert_eq!(serve(text).configuration.is_some(), expected, "{text}");
    }
}

#[test]
fn development_fills_in_what_is_absent_and_nothing_else() {
    let secrets =
        DevelopmentSecrets { api_key: "a generated key of the api".into(), token_secret: "a generated secret for all tokens".into() };
    let file = File::new("c.toml", "[http_api]\nkey = \"the one that was written\"\n[[channel.namespaces]]\nname = \"chat\"");
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
    let mut tree = low::Node::empty_table(low::Place::Defaults);
    let mut namespace = low::Node::empty_table(low::Place::Defaults);
    let written = |key: &Key| low::Node { place: low::Place::Defaults, value: low::Value::Text(key.default.to_owned()) };
    KEYS.iter().for_each(|key| tree.set(key.path, written(key)));
    OPTIONS.iter().for_each(|option| tree.set(&format!("{}.{}", keys::WITHOUT_NAMESPACE, option.path), written(option)));
    namespace.set("name", low::Node { place: low::Place::Defaults, value: low::Value::Text("x".into()) });
    let mut findings = Vec::new();
    let mut found = high::interpret(&tree, &mut findings).expect("defaults are good").settings;
    // An endpoint's empty prefix stands for the path that the table shows.
    found.health.handler_prefix.clear();
    found.prometheus.handler_prefix.clear();
    assert_eq!(format!("{found:#?}"), format!("{:#?}", Settings::default()));
    assert_eq!(findings, []);
}

/// What `deny_unknown_fields` says it would have taken, from serde's own words.
fn fields<T: DeserializeOwned>() -> Vec<String> {
    let error = serde_json::from_str::<T>(r#"{"?": 0}"#).err().expect("there is no such field").to_string();
    let (_, list) = error.split_once("expected ").expect("the fields are listed");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_field_of_the_settings_has_a_key() {
    use touchline_server::*;
    let documented = |section: &str| -> Vec<String> {
        let mut names: Vec<String> = KEYS
            .iter()
            .filter_map(|key| key.path.strip_prefix(section)?.strip_prefix('.'))
            .map(|rest| rest.split('.').next().unwrap_or(rest).to_owned())
            .collect();
        names.sort();
        names.dedup();
        names
    };
    let sections = [
        ("http_server", fields::<HttpServerSettings>()),
        ("http_api", fields::<HttpApiSettings>()),
        ("client", fields::<ClientSettings>()),
        ("client.token", fields::<TokenSettings>()),
        ("client.subscription_token", fields::<SubscriptionTokenSettings>()),
        ("client.subscribe_to_user_personal_channel", fields::<PersonalChannel>()),
        ("cluster", fields::<ClusterSettings>()),
        ("websocket", fields::<WebSocketSettings>()),
        ("http_stream", fields::<StreamSettings>()),
        ("sse", fields::<StreamSettings>()),
        ("emulation", fields::<EmulationSettings>()),
        ("uni_websocket", fields::<UniWebSocketSettings>()),
        ("uni_http_stream", fields::<StreamSettings>()),
        ("uni_sse", fields::<StreamSettings>()),
        ("tcp", fields::<TcpSettings>()),
        ("shutdown", fields::<ShutdownSettings>()),
        ("node", fields::<NodeSettings>()),
        ("health", fields::<EndpointSettings>()),
        ("prometheus", fields::<EndpointSettings>()),
    ];
    for (section, mut fields) in sections {
        fields.sort();
        assert_eq!(documented(section), fields, "{section}");
    }
    let (mut options, mut fields) = (OPTIONS.iter().map(|key| key.path.to_owned()).collect::<Vec<_>>(), fields::<ChannelOptions>());
    options.sort();
    fields.sort();
    assert_eq!(options, fields);
    let (mut options, mut fields) =
        (SCOPE_OPTIONS.iter().map(|key| key.path.to_owned()).collect::<Vec<_>>(), self::fields::<ScopeOptions>());
    options.push("name".into());
    options.sort();
    fields.sort();
    assert_eq!(options, fields);
}

#[test]
fn no_two_entries_speak_of_one_key() {
    let mut paths: Vec<&str> = KEYS.iter().map(|key| key.path).chain(theirs::THEIRS.iter().map(|theirs| theirs.path)).collect();
    paths.sort_unstable();
    assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
    for key in KEYS {
        assert!(theirs::find(theirs::THEIRS, key.path).is_none(), "{}", key.path);
        assert_eq!(
            matches!(key.kind, Kind::Secret),
            ["secret_key", "_password", "_token"].iter().any(|end| key.path.ends_with(end)) && !key.path.ends_with("without_token")
                || ["http_api.key", "http_server.tls_autocert.eab_hmac_key", "store.primary.url", "store.stats.url"].contains(&key.path),
            "{}",
            key.path
        );
    }
}
