//! Configurations of Centrifugo: what of them is used, left out or refused.

use super::*;

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
        ["Error c.toml:1:14: not supported yet: client.token.issuer_regex; \
          ignoring it would accept tokens that it rejects"]
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
            "channel.namespaces = [{name = \"ns\", auto_cache_recover = true, subscribe_cel = \"true\", \
             batch_max_size = 5}]",
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
fn the_settings_of_the_usual_chart_give_an_internal_port() {
    let file = File::new(
        "c.json",
        "{\"client\": {\"token\": {\"hmac_secret_key\": \"a secret that is long enough for all\"}}, \
         \"admin\": {\"enabled\": true}}",
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
