//! Configurations as operators write them.

mod centrifugo;
mod consumers;
mod limits;
mod pages;
mod rate_limits;
mod reference;
mod schema;
mod secret_files;
mod table;
mod together;
mod tokens;

use std::path::PathBuf;
use std::time::Duration;

use crate::*;

/// Reads a configuration without the probes of a server.
fn read(sources: &Sources) -> ConfigOutcome {
    crate::read(sources, &Probes::NONE)
}

fn read_to_serve(sources: &Sources) -> ConfigOutcome {
    crate::read_to_serve(sources, &Probes::NONE)
}

/// A configuration file that is removed when its test ends.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let unique = format!("touchline-{}-{:?}-{name}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(unique);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        File(path)
    }

    fn read(&self, variables: &[(&str, &str)]) -> ConfigOutcome {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read(&Sources { file: Some(self.0.clone()), variables, ..Sources::default() })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The findings of a reading. The directory and the unique part of the file's name are removed.
fn texts(reading: &ConfigOutcome) -> Vec<String> {
    let shown = |finding: &Finding| {
        let text = finding.to_string();
        match (text.find("touchline-"), text.find("-c.")) {
            (Some(from), Some(to)) if from < to => format!("{:?} {}", finding.severity, &text[to + 1..]),
            _ => format!("{:?} {text}", finding.severity),
        }
    };
    reading.findings.iter().filter(|finding| finding.severity != Severity::Note).map(shown).collect()
}

/// The findings without lines and columns.
fn unplaced(reading: &ConfigOutcome) -> Vec<String> {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let without = |text: String| text.split(':').filter(|part| !is_number(part)).collect::<Vec<_>>().join(":");
    texts(reading).into_iter().map(without).collect()
}

fn toml(text: &str) -> ConfigOutcome {
    File::new("c.toml", text).read(&[])
}

fn settings(reading: ConfigOutcome) -> Settings {
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
    let variables = vec![("TOUCHLINE_HTTP_API_KEI".into(), "x".into())];
    let reading = read(&Sources { variables, ..Sources::default() });
    assert_eq!(
        texts(&reading),
        ["Warning TOUCHLINE_HTTP_API_KEI: no key has this name; did you mean TOUCHLINE_HTTP_API_KEY?"]
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
        ("namespaces = 1", "Error c.toml:1:1: namespaces: unknown key; did you mean channel.namespaces?"),
        (
            "redis_address = \"s\"",
            "Error c.toml:1:1: redis_address: unknown key; docs/reference/configuration.md lists all keys",
        ),
        (
            "[[channel.namespaces]]\nname = \"chat\"\nhistroy_size = 1",
            "Error c.toml:3:1: channel.namespaces[chat].histroy_size: unknown key; \
             did you mean channel.namespaces[].history_size?",
        ),
        (
            "[channel.without_namespace]\n  presense = true",
            "Error c.toml:2:3: channel.without_namespace.presense: unknown key; \
             did you mean channel.without_namespace.presence?",
        ),
    ] {
        assert_eq!(texts(&toml(text)), [expected], "{text}");
    }
}

#[test]
fn what_a_file_has_twice_is_named_with_the_line_of_the_first() {
    for (text, expected) in [
        (
            "[http_server]\nport = 1\n[log]\n[http_server]",
            "Error c.toml:4:2: [http_server] is in line 1 already: write these keys there",
        ),
        (
            "[log]\nlevel = \"info\"\n[http_api]\nkey = \"a\"\nkey = \"b\"",
            "Error c.toml:5:1: key is in line 4 already: write it once",
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
            "[channel.namespaces]\nname = \"news\"",
            "channel.namespaces: expected a list of tables, found a table: in TOML write [[channel.namespaces]]",
        ),
        (
            "registry.scopes = [{name = \"$presence\"}]",
            "registry.scopes[$presence].name: names that begin with $ are reserved for the server",
        ),
        ("channel.namespaces = [{presence = true}]", "channel.namespaces[0].name: expected text, found none"),
        (
            "channel.without_namespace.channel_regex = \"(\"",
            "channel.without_namespace.channel_regex: expected a regular expression, \
             found a faulty one (unclosed group)",
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
        ("c.yaml", "- a", "Error c.yaml: must be a YAML mapping"),
        ("c.yml", "a: [", "Error c.yml:2:1: is not YAML: while parsing a node, did not find expected node content"),
        ("c.conf", "", "Error c.conf: the name of a configuration must end in .toml, .yaml, .yml or .json"),
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
    assert_eq!(read(r#"[{"name": "news"}]"#), [("news".to_owned(), 0)], "a list contains the options");
}

#[test]
fn an_address_is_one_of_this_machine_or_a_host_name() {
    for good in ["", "localhost", "127.0.0.1", "::", "[::1]"] {
        assert_eq!(texts(&toml(&format!("http_server.address = \"{good}\""))), Vec::<String>::new(), "{good}");
    }
    let found = texts(&toml("http_server.address = \"no.such.host.invalid\""));
    let expected = "http_server.address: \"no.such.host.invalid\" is neither an IP address nor a known host name (";
    assert!(found.len() == 1 && found[0].starts_with("Error") && found[0].contains(expected), "{found:?}");
}

#[test]
fn durations_above_a_year_are_questioned() {
    let found = texts(&toml("shutdown.timeout = 30000000000"));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("Warning c.toml:1:") && found[0].contains("347222 days, is that intended?"),
        "{found:?}"
    );
    assert_eq!(texts(&toml("shutdown.timeout = 30\nchannel.history_meta_ttl = \"8760h\"")), Vec::<String>::new());
}

#[test]
fn a_server_for_tests_has_a_free_port_no_demo_and_what_was_written() {
    let secrets = DevelopmentSecrets {
        api_key: "a generated key of the api".into(),
        token_secret: "a generated secret for all tokens".into(),
        is_open: false,
        purpose: DevelopmentPurpose::Tests,
    };
    let read_with = |text: &str| {
        let file = File::new("c.toml", text);
        let development = Some(secrets.clone());
        read(&Sources { file: Some(file.0.clone()), development, ..Sources::default() })
    };
    let (configuration, findings) = read_with("").into_result().expect("it can be used");
    assert!(findings.iter().all(|finding| finding.severity == Severity::Note), "{findings:?}");
    let settings = configuration.settings;
    assert_eq!((settings.http_server.address.as_str(), settings.http_server.port), ("127.0.0.1", 0));
    assert_eq!((configuration.log.level.as_str(), settings.channel.namespaces.len()), ("warn", 0));
    assert_eq!(settings.client.allowed_origins, ["http://localhost:*", "http://127.0.0.1:*"]);
    let options = &settings.channel.without_namespace;
    assert!(options.has_history() && options.presence && options.allow_subscribe_for_client);
    assert!(!options.allow_publish_for_client && !settings.needs_primary() && !settings.client.insecure);

    let written = "http_server.port = 9000\nchannel.without_namespace.history_size = 7\nlog.level = \"error\"\n\
                   [[channel.namespaces]]\nname = \"chat\"";
    let (configuration, _) = read_with(written).into_result().expect("it can be used");
    let channel = &configuration.settings.channel;
    assert_eq!((configuration.settings.http_server.port, configuration.log.level.as_str()), (9000, "error"));
    assert_eq!((channel.without_namespace.history_size, channel.namespaces.len()), (7, 1));
}

#[test]
fn development_fills_in_what_is_absent_and_nothing_else() {
    let secrets = DevelopmentSecrets {
        api_key: "a generated key of the api".into(),
        token_secret: "a generated secret for all tokens".into(),
        is_open: false,
        purpose: DevelopmentPurpose::Demo,
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
    assert!(settings.channel.accepts_unknown_namespaces, "a developer tries channels before writing a namespace");
    let demo = &settings.channel.namespaces[1].options;
    assert!(demo.presence && demo.force_recovery && demo.allow_subscribe_for_anonymous && demo.has_history());
    assert!(!demo.allow_publish_for_client && !demo.allow_publish_for_subscriber);
    assert_eq!(demo.reactions, ["applause", "boo"]);
}
