//! Configurations of Centrifugo: which keys are used, left out or refused.

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
fn the_same_configuration_in_yaml_means_the_same() {
    let variables = [("TOUCHLINE_CLUSTER_ENGINE", "nats")];
    let json = File::new("c.json", include_str!("../testdata/centrifugo6.json")).read(&variables);
    let yaml = File::new("c.yaml", include_str!("../testdata/centrifugo6.yaml")).read(&variables);
    let renamed: Vec<String> = unplaced(&yaml).iter().map(|text| text.replace("c.yaml", "c.json")).collect();
    assert_eq!(renamed, unplaced(&json));
    assert!(texts(&yaml).iter().all(|text| text.starts_with("Warning c.yaml:")), "each has its line");
    assert_eq!(format!("{:?}", settings(yaml)), format!("{:?}", settings(json)));
}

#[test]
fn what_would_let_in_more_than_was_configured_is_refused() {
    let stream = "channel.without_namespace.subscribe_stream_proxy_enabled = true";
    let found = texts(&toml(stream));
    assert!(found[0].starts_with("Error") && found[0].contains("the backend would not be asked"), "{found:?}");
    let blocked = texts(&toml("user_block.persistence_engine = \"redis\""));
    assert!(
        blocked[0].starts_with("Error") && blocked[0].contains("users that it excludes could connect"),
        "{blocked:?}"
    );
}

#[test]
fn a_hook_that_is_on_can_be_asked_or_the_start_is_refused() {
    let proxy = |name: &str| format!("proxies = [{{name = \"{name}\", endpoint = \"http://b\"}}]\n");
    for (text, fault) in [
        ("client.proxy.connect.enabled = true", "client.proxy.connect.endpoint: missing"),
        ("client.proxy.connect = {enabled = true, endpoint = \"grpc://b\"}", "expected grpc:// with a host and a port"),
        (
            "client.proxy.connect = {enabled = true, endpoint = \"grpc://:1\"}",
            "expected grpc:// with a host and a port",
        ),
        ("client.proxy.connect = {enabled = true, endpoint = \"b:99999\"}", "expected grpc:// with a host and a port"),
        (
            "client.proxy.connect = {enabled = true, endpoint = \"grpc://b:1\", grpc = {credentials_key = \"grpc-a\"}}",
            "client.proxy.connect.grpc.credentials_key: \"grpc-a\" is not",
        ),
        (
            "client.proxy.connect = {enabled = true, endpoint = \"grpc://b:1\", \
             grpc.static_metadata = {\"a b\" = \"\"}}",
            "client.proxy.connect.grpc.static_metadata: \"a b\" is not",
        ),
        (
            "registry.scopes = [{name = \"a\", conflict_policy = \"hook\"}]\n\
             registry.proxy.conflict.endpoint = \"grpc://b:1\"",
            "registry.proxy.conflict.endpoint: this hook supports http",
        ),
        ("client.proxy.connect = {enabled = true, endpoint = \"ftp://b:1\"}", "expected http://"),
        (
            "client.proxy.refresh = {enabled = true, endpoint = \"http://b\", timeout = 0}",
            "timeout: must be above zero",
        ),
        ("channel.without_namespace.subscribe_proxy_name = \"other\"", "has the name \"other\""),
        ("channel.without_namespace.publish_proxy_enabled = true", "channel.proxy.publish.endpoint: missing"),
        ("rpc.namespaces = [{name = \"bid\", proxy_enabled = true}]", "rpc.proxy.endpoint: missing"),
        ("rpc.namespaces = [{name = \"bid\"}, {name = \"bid\"}]", "used twice"),
        (&proxy("default"), "default is the name"),
        (&proxy("a"), "expected two or more"),
        ("client.proxy.connect = {enabled = true, endpoint = \"http://b\", http_headers = [\"a b\"]}", "header field"),
        (
            "rpc.proxy.http.static_headers = {Authorization = \"${CENTRIFUGO_VAR_NONE}\"}",
            "needs the variable CENTRIFUGO_VAR_NONE",
        ),
        (
            "rpc.proxy.http.status_to_code_transforms = [{status_code = 404}]",
            "exactly one of to_error and to_disconnect",
        ),
    ] {
        let found = texts(&toml(text));
        assert!(found.iter().any(|found| found.starts_with("Error") && found.contains(fault)), "{text}: {found:?}");
    }
    let good = "[client.proxy.connect]\nenabled = true\nendpoint = \"http://b/connect\"\n\
                [client.proxy.connect.http.static_headers]\nX-Key = \"k-${CENTRIFUGO_VAR_KEY}\"\n\
                [[proxies]]\nname = \"auction\"\nendpoint = \"https://b\"\nhttp.tls.insecure_skip_verify = true\n\
                [[channel.namespaces]]\nname = \"bids\"\npublish_proxy_enabled = true\n\
                publish_proxy_name = \"auction\"\n";
    let settings = settings(File::new("c.toml", good).read(&[("CENTRIFUGO_VAR_KEY", "secret")]));
    let headers = &settings.client.proxy.connect.proxy.http.static_headers.0;
    assert_eq!(headers.get("X-Key").map(String::as_str), Some("k-secret"));
    assert!(settings.proxies[0].proxy.http.tls.insecure_skip_verify);
    for (variable, json) in [
        ("CLIENT_PROXY", r#"{"connect":{"enabled":true,"endpoint":"http://b"}}"#),
        ("CLIENT_PROXY_CONNECT", r#"{"enabled":"true","endpoint":"http://b"}"#),
    ] {
        let reading = File::new("c.toml", "").read(&[(&format!("CENTRIFUGO_{variable}"), json)]);
        assert!(self::settings(reading).client.proxy.connect.enabled, "{variable}");
    }
    let broken = File::new("c.toml", "").read(&[("CENTRIFUGO_CLIENT_PROXY", "yes")]);
    assert!(broken.configuration.is_none());
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
        assert!(!is_apart || found.len() == 1, "the error is the only finding about the place: {found:?}");
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
        ("client.rate_limit.client_command.disconnect_on_accounted_limit = true", 1),
        ("client.rate_limit.client_command.map_publish = {enabled = true}", 0),
        ("client.rate_limit.redis_user_command = {enabled = false, publish = {enabled = true}}", 0),
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
