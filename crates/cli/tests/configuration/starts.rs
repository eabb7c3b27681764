//! A check refuses each configuration that a start refuses, and prints no key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use touchline_config::keys::{KEYS, ValueKind};
use touchline_config::{Flags, Sources};
use touchline_server::Server;

use super::{File, read, read_to_serve, texts, toml};

const SECRETS: &str = "http_api.key = \"a-key-of-twenty-bytes\"\n\
                       client.token.hmac_secret_key = \"a secret of this test, long enough for it\"\n";

/// The body of a private key in PEM, and the seed of NATS credentials.
const BODY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgtouchlinetest";
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

fn key() -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----\n")
}

/// Whether a text contains any twelve consecutive bytes of a secret.
fn shows(text: &str, secret: &str) -> bool {
    secret.as_bytes().windows(12).filter_map(|part| std::str::from_utf8(part).ok()).any(|part| text.contains(part))
}

#[test]
fn no_key_shows_a_private_key_that_is_written_into_it() {
    let packed = STANDARD.encode(key());
    // The beginning of the base64 text shows only that the value is PEM, so the test looks for the rest.
    let tail = &packed[packed.len() / 3..];
    // Each of these keys switches on a part that uses other keys.
    let on = [
        "http_server.tls.enabled",
        "http_server.internal_tls.enabled",
        "http_server.tls_autocert.enabled",
        "http_server.tls_autocert.http",
        "tcp.enabled",
        "tcp.tls.enabled",
        "store.directory",
        "store.stats.enabled",
        "client.subscription_token.enabled",
        "client.subscribe_to_user_personal_channel.enabled",
    ];
    let mut flags: Vec<(String, String)> = on.iter().map(|path| ((*path).to_owned(), "true".to_owned())).collect();
    for (path, value) in [
        ("cluster.engine", "nats"),
        ("http_server.internal_port", "0"),
        ("http_server.tls_autocert.host_whitelist", "live.example"),
        ("http_server.tls_autocert.eab_kid", "kid"),
        ("cluster.nats_tls_cert", "c.pem"),
    ] {
        flags.push((path.to_owned(), value.to_owned()));
    }
    let credentials = format!("-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------");
    let paths = [
        "_pem",
        "nats_credentials",
        "nats_tls_ca",
        "nats_tls_cert",
        "nats_tls_key",
        "store.primary.tls_ca",
        "store.stats.tls_ca",
    ];
    let mut errors = 0;
    for known in KEYS.iter() {
        let mut tried = vec![
            (key(), BODY),
            (packed.clone(), tail),
            (credentials.clone(), SEED),
            (key().replace('\n', "\\n"), BODY),
        ];
        // A key's body without its PEM header, at a key that takes a secret or a file, is not shown either.
        if matches!(known.kind, ValueKind::Secret | ValueKind::Pem) || paths.iter().any(|end| known.path.ends_with(end))
        {
            tried.extend([(BODY.to_owned(), BODY), (SEED.to_owned(), SEED), (format!("{BODY}\n{BODY}"), BODY)]);
        }
        // An operator may write a secret where the path of its file belongs.
        let of_file = tried.iter().map(|(value, secret)| (format!("{}_file", known.path), value.clone(), *secret));
        let of_file: Vec<_> = of_file.filter(|_| matches!(known.kind, ValueKind::Secret | ValueKind::Pem)).collect();
        let tried = tried.into_iter().map(|(value, secret)| (known.path.clone(), value, secret));
        for (path, value, secret) in tried.chain(of_file) {
            let mut keys = flags.clone();
            keys.push((path, value));
            let flags = Flags { keys, ..Flags::default() };
            let reading = read_to_serve(&Sources { flags, ..Sources::default() });
            let told: String = reading.findings.iter().map(|finding| format!("{finding}\n")).collect();
            assert!(!shows(&told, secret), "{}: {told}", known.path);
            errors += told.lines().count();
        }
    }
    assert!(errors > KEYS.len(), "the checks have found errors");
}

/// Asserts that the check and the server both refuse a configuration, and that the check prints `expected`.
fn refuse(text: &str, expected: &str) {
    let file = File::new("c.toml", &format!("{SECRETS}{text}"));
    let reading = read_to_serve(&Sources { file: Some(file.0.clone()), ..Sources::default() });
    let found = texts(&reading);
    assert!(
        reading.configuration.is_none()
            && found.iter().any(|found| found.starts_with("Error") && found.contains(expected)),
        "{text}: {found:?}"
    );
    assert!(found.iter().all(|found| !found.contains("topsecret")), "{found:?}");
    // The server checks its settings itself: it may be embedded, or run for development.
    let settings = read(&Sources { file: Some(file.0.clone()), ..Sources::default() })
        .into_result()
        .expect("each key is good")
        .0
        .settings;
    assert!(Server::bind(settings).is_err(), "{text}");
}

#[test]
fn a_check_refuses_what_a_start_would() {
    let directory = std::env::temp_dir().join(format!("touchline-starts-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("data")).expect("the temporary directory is writable");
    let path = |name: &str| directory.join(name).display().to_string();
    for (name, text) in
        [("junk.db", "a file of something else"), ("junk.creds", "no credentials"), ("junk.pem", "no certificate")]
    {
        std::fs::write(path(name), text).expect("the test owns it");
    }
    let internal = "http_server.internal_port = 0\n[http_server.internal_tls]\nenabled = true";
    let nats = "[cluster]\nengine = \"nats\"";
    let database = "store.directory = true\nstore.primary.url";
    for (text, expected) in [
        (
            format!("{internal}\ncert_pem = \"/no/c.pem\"\nkey_pem = \"/no/k.pem\""),
            "http_server.internal_tls.cert_pem: /no/c.pem can't be read",
        ),
        (
            format!("{internal}\ncert_pem = {0:?}\nkey_pem = {0:?}\nclient_ca_pem = \"/no/ca.pem\"", path("junk.pem")),
            "http_server.internal_tls.client_ca_pem: /no/ca.pem can't be read",
        ),
        (
            "http_server.internal_address = \"nope.invalid\"".into(),
            "http_server.internal_address: \"nope.invalid\" is neither",
        ),
        ("tcp.enabled = true\ntcp.address = \"nope.invalid\"".into(), "tcp.address: \"nope.invalid\" is neither"),
        ("tcp.enabled = true\ntcp.port = 8000".into(), "of http_server.port: set tcp.port to another port"),
        (
            "http_server.internal_address = \"127.0.0.1\"".into(),
            "http_server.internal_port: 127.0.0.1:8000 can't be used together with",
        ),
        (
            "[http_server.tls_autocert]\nenabled = true\nhost_whitelist = [\"a.example\"]\n\
             eab_kid = \"k\"\neab_hmac_key = \"?\""
                .into(),
            "http_server.tls_autocert.eab_hmac_key: not URL-safe base64",
        ),
        (format!("{nats}\nnats_url = [\"http://x\"]"), "cluster.nats_url: invalid scheme"),
        (format!("{nats}\nnats_url = [\"nats://u:topsecret@:::\"]"), "cluster.nats_url: NATS server URL is invalid"),
        (format!("{nats}\nnats_url = []"), "cluster.nats_url: no address of NATS"),
        (
            format!("{nats}\nnats_credentials = {:?}", path("junk.creds")),
            "cluster.nats_credentials: cannot parse user JWT",
        ),
        (format!("{nats}\nnats_tls_cert = {:?}", path("junk.pem")), "junk.pem holds no certificate in PEM"),
        (format!("{nats}\nnats_tls_key = {:?}", key()), "cluster.nats_tls_key: expected the path of a file"),
        (format!("{database} = \"sqlite:{}\"", path("data")), "data can't be used: is a directory"),
        (
            format!("{database} = \"sqlite:{}\"", path("junk.db")),
            "junk.db can't be used: the file exists and is not an SQLite database",
        ),
        (
            format!(
                "{database} = \"sqlite:{}\"\nstore.stats.enabled = true\nstore.stats.url = \"sqlite:{}\"",
                path("data/a.db"),
                path("data/../data/./a.db")
            ),
            "store.stats.url: the same file as store.primary.url",
        ),
    ] {
        refuse(&text, expected);
    }
    assert!(!directory.join("data/a.db").exists(), "nothing is made");
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn a_check_refuses_keys_of_the_server_api_that_a_start_would() {
    for (text, expected) in [
        (
            "[[http_api.keys]]\nname = \"news\"\nkey = \"another-of-twenty-bytes\"\noperations = [\"publsh\"]",
            "http_api.keys[news].operations: \"publsh\" is neither an operation nor a group of them",
        ),
        (
            "[[http_api.keys]]\nname = \"news\"\nkey = \"another-of-twenty-bytes\"\nchannels = [\"[\"]",
            "http_api.keys[news].channels: \"[\" is not a pattern of channels",
        ),
        (
            "[http_api.jwks]\nenabled = true\naudience = \"api\"\nendpoint = \"http://id.example/keys\"",
            "http_api.jwks.endpoint: must be https://",
        ),
    ] {
        refuse(text, expected);
    }
}

#[test]
fn an_engine_that_is_named_by_text_is_refused_as_one_that_is_a_table() {
    for (text, is_good) in [
        ("engine = \"redis\"", false),
        ("broker = \"nats\"", false),
        ("controller = \"redis\"", false),
        ("engine = \"memory\"", true),
        ("engine.type = \"redis\"", false),
        ("engine.type = \"memory\"", true),
        ("broker = {enabled = false, type = \"redis\"}", true),
    ] {
        let reading = toml(text);
        assert_eq!(reading.configuration.is_some(), is_good, "{text}: {:?}", texts(&reading));
    }
    let variables = vec![("CENTRIFUGO_ENGINE".to_owned(), "redis".to_owned())];
    assert!(read(&Sources { variables, ..Sources::default() }).configuration.is_none());
}

#[test]
fn a_key_that_makes_stricter_is_left_out_only_where_it_is_empty_or_off() {
    for (text, is_good) in [
        ("channel.proxy.subscribe_stream.endpoint = \"memory\"", false),
        ("channel.proxy.subscribe_stream.endpoint = \"stream\"", false),
        ("channel.proxy.subscribe_stream.endpoint = \"0\"", false),
        ("channel.proxy.subscribe_stream.endpoint = \"\"", true),
        ("user_block = {enabled = true, type = \"memory\"}", false),
        ("user_block = {enabled = false, type = \"redis\"}", true),
        ("user_block.enabled = \"0\"", true),
        ("token_revoke = {}", true),
    ] {
        let reading = toml(text);
        assert_eq!(reading.configuration.is_some(), is_good, "{text}: {:?}", texts(&reading));
    }
}

#[test]
fn what_kubernetes_writes_is_told_from_a_key_that_is_mistyped() {
    let told = |name: &str, value: &str| {
        let reading = read(&Sources { variables: vec![(name.to_owned(), value.to_owned())], ..Sources::default() });
        texts(&reading)
    };
    for (name, value) in [
        ("TOUCHLINE_SERVICE_HOST", "10.0.0.1"),
        ("TOUCHLINE_SERVICE_PORT", "8000"),
        ("TOUCHLINE_SERVICE_PORT_HTTP", "8000"),
        ("TOUCHLINE_PORT", "tcp://10.0.0.1:8000"),
        ("TOUCHLINE_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
        ("TOUCHLINE_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("TOUCHLINE_API_SERVICE_HOST", "10.0.0.1"),
        ("CENTRIFUGO_API_PORT_8000_TCP_PROTO", "tcp"),
        ("TOUCHLINE_HTTP_SERVER_PORT", "tcp://10.0.0.1:8000"),
        ("TOUCHLINE_VAR_MINE", "x"),
    ] {
        assert_eq!(told(name, value), Vec::<String>::new(), "{name}");
    }
    for (name, meant) in [
        ("TOUCHLINE_INTERNAL_PORT", "TOUCHLINE_HTTP_SERVER_INTERNAL_PORT"),
        ("CENTRIFUGO_INTERNAL_PORT", "TOUCHLINE_HTTP_SERVER_INTERNAL_PORT"),
        ("TOUCHLINE_PORT", "TOUCHLINE_HTTP_SERVER_PORT"),
    ] {
        let found = told(name, "9000");
        assert!(found.len() == 1 && found[0].contains(&format!("did you mean {meant}?")), "{name}: {found:?}");
    }
}

#[test]
fn only_a_duration_below_zero_is_called_one() {
    assert_eq!(texts(&toml("shutdown.timeout = \"-1\"")).len(), 1);
    assert!(texts(&toml("shutdown.timeout = \"-5s\""))[0].starts_with("Warning"));
    assert!(texts(&toml("shutdown.timeout = \"-garbage\""))[0].contains("expected a duration"));
}

#[test]
fn scopes_and_namespaces_are_lists_by_environment_and_by_flag_too() {
    let scopes = r#"[{"name": "devices", "allow_lookup_for_client": true}, {"name": "rooms"}]"#;
    let variables = vec![("TOUCHLINE_REGISTRY_SCOPES".to_owned(), scopes.to_owned())];
    let by_environment = read(&Sources { variables, ..Sources::default() });
    let keys = vec![
        ("registry.scopes".to_owned(), scopes.to_owned()),
        ("channel.namespaces".to_owned(), r#"[{"name": "news"}]"#.to_owned()),
    ];
    let by_flag = read(&Sources { flags: Flags { keys, ..Flags::default() }, ..Sources::default() });
    for reading in [by_environment, by_flag] {
        let settings = reading.into_result().expect("the list is good").0.settings;
        let names: Vec<(&str, bool)> =
            settings.registry.scopes.iter().map(|s| (s.name.as_str(), s.allow_lookup_for_client)).collect();
        assert_eq!(names, [("devices", true), ("rooms", false)]);
    }
    let keys = vec![("channel.namespaces".to_owned(), "[{".to_owned())];
    let reading = read(&Sources { flags: Flags { keys, ..Flags::default() }, ..Sources::default() });
    assert_eq!(
        texts(&reading),
        ["Error --channel.namespaces: channel.namespaces: expected a list of tables, found text"]
    );
}

#[test]
fn what_is_hardly_meant_is_warned_of() {
    for (text, expected) in [
        ("[[registry.scopes]]\nname = \"a\"\n[[registry.scopes]]\nname = \"a\"", "registry.scopes[a].name: used twice"),
        ("[[registry.scopes]]\nname = \"\"", "registry.scopes[].name: empty"),
        ("[cluster]\nengine = \"nats\"\nheartbeat_interval = \"4s\"", "cluster.heartbeat_interval: not shorter than"),
        (
            "http_server.allowed_hosts = [\"https://a.example\"]",
            "http_server.allowed_hosts: \"https://a.example\" matches nothing",
        ),
        (
            "client.allowed_origins = \"http://a,http://b\"",
            "client.allowed_origins: \"http://a,http://b\" is one origin",
        ),
        (
            "sse = {enabled = true, handler_prefix = \"/x\"}\nhttp_stream = {enabled = true, handler_prefix = \"/x\"}",
            "sse.handler_prefix: http_stream",
        ),
        ("websocket.handler_prefix = \"/api\"", "websocket.handler_prefix: the server API"),
        ("health = {enabled = true, handler_prefix = \"/api/publish\"}", "health.handler_prefix: the server API"),
        (
            "health.enabled = true\nprometheus = {enabled = true, handler_prefix = \"/health\"}",
            "prometheus.handler_prefix: health is also served at",
        ),
    ] {
        let found = texts(&toml(text));
        assert!(
            found.len() == 1 && found[0].starts_with("Warning") && found[0].contains(expected),
            "{text}: {found:?}"
        );
    }
    let apart = "http_server.internal_port = 0\nhttp_server.address = \"127.0.0.1\"\n\
                 websocket.handler_prefix = \"/health\"\nhealth.enabled = true";
    assert_eq!(texts(&toml(apart)), Vec::<String>::new(), "ports have paths of their own");
}
