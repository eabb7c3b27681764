//! Settings that are valid alone, and invalid together or on this machine.

use super::*;

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
            "Warning channel.namespaces[chat]: force_recovery has no effect without history_size and history_ttl",
        ),
        (
            namespace("history_size = 5"),
            "Warning channel.namespaces[chat]: history is off, because it needs both history_size and history_ttl",
        ),
        (
            namespace("history_size = 5\nhistory_ttl = \"2h\"\nhistory_meta_ttl = \"1h\""),
            "Error channel.namespaces[chat].history_ttl: must not be longer than history_meta_ttl",
        ),
        (
            namespace("slow_consumer = \"drop_oldest\"\nforce_recovery = true\nhistory_size = 5\nhistory_ttl = \"2h\""),
            "Error channel.namespaces[chat].slow_consumer: drop_oldest leaves gaps, \
             which force_recovery does not allow; disable one of them, or use two namespaces",
        ),
        (
            namespace("slow_consumer = \"drop_oldest\"\nreactions = [\"boo\"]"),
            "Error channel.namespaces[chat].slow_consumer: drop_oldest leaves gaps, which reactions does not allow; \
             disable one of them, or use two namespaces",
        ),
        (
            namespace("slow_consumer = \"drop_oldest\"\nmax_age = 400"),
            "Warning channel.namespaces[chat].max_age: longer than a minute; a number without a unit counts seconds",
        ),
        (
            namespace("max_age = \"1s\""),
            "Warning channel.namespaces[chat].max_age: has no effect without slow_consumer = \"drop_oldest\"",
        ),
        (namespace("[[channel.namespaces]]\nname = \"chat\""), "Error channel.namespaces[chat].name: used twice"),
        (
            "client.token.rsa_public_key = \"-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\""
                .to_owned(),
            "Error client.token.rsa_public_key: expected a public key in PEM (\"-----BEGIN PUBLIC KEY-----\" …), \
             found something else",
        ),
        (
            "client.allowed_origins = [\"example.com\"]".to_owned(),
            "Warning client.allowed_origins: \"example.com\" matches nothing; an origin is scheme://host[:port]",
        ),
        ("http_api.key = \"short\"".to_owned(), "Warning http_api.key: shorter than 16 bytes, so it can be guessed"),
        (
            "http_server.tls = {enabled = true, cert_pem = \"c.pem\", key_pem = \"k.pem\", client_ca_pem = \"ca.pem\"}"
                .to_owned(),
            "Warning http_server.tls.client_ca_pem: clients without a certificate are accepted too; \
             client_auth = \"require\" refuses them, as Centrifugo does",
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
            "http_api does not belong in this table: write it above the first [section]",
        ),
        ("c.toml", "port = 1", "c.toml:1:1: port: unknown key; did you mean http_server.port?"),
    ] {
        let found = texts(&File::new(name, text).read(&[]));
        assert!(found.len() == 1 && found[0].contains(expected), "{text}: {found:?}");
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
        (format!("{autocert}\n[http_server.tls]\n{files}"), Some("a port has only one certificate")),
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
