//! What the server API says to a caller with a key: what is wrong, where, and what to do.

use serde_json::{Value, json};
use touchline_testkit::{until, until_eq};

use super::support::TestServer;

#[test]
fn a_refusal_names_what_is_wrong_and_the_key_or_the_name_that_was_meant() {
    let server = TestServer::with(super::registry::devices);
    for (operation, request, message) in [
        (
            "publish",
            json!({"channel": "histry:live", "data": 1}),
            r#"unknown channel: no namespace of channel.namespaces is named "histry"; did you mean history?"#,
        ),
        (
            "publish",
            json!({"channel": "nope:live", "data": 1}),
            r#"unknown channel: no namespace of channel.namespaces is named "nope""#,
        ),
        (
            "publish",
            json!({"chanel": "news", "data": 1}),
            r#"bad request: "chanel" is not a field of publish: write channel"#,
        ),
        ("publish", json!({"channel": "news"}), "bad request: data is missing"),
        ("presence", json!({"channel": ""}), "bad request: channel is empty"),
        (
            "presence",
            json!({"channel": "history:a"}),
            "not available: presence is off: set channel.namespaces[history].presence = true",
        ),
        (
            "history",
            json!({"channel": "a"}),
            "not available: history is off: set channel.without_namespace.history_size and \
             channel.without_namespace.history_ttl",
        ),
        ("stats_top", json!({}), "not available: statistics are off: set store.stats.enabled = true"),
        (
            "channel_set",
            json!({"channel": "a"}),
            "not available: the directory of channels is off: set store.directory = true",
        ),
        (
            "lookup",
            json!({"scope": "device", "name": "a"}),
            r#"no such scope: no scope of registry.scopes is named "device"; did you mean devices?"#,
        ),
        ("call", json!({"name": "a", "data": 1}), "bad request: scope is missing"),
        ("lookup", json!({"scope": "devices"}), "bad request: name is missing"),
        ("publish", json!({"channel": "a", "b64data": "?"}), "bad request: b64data is not base64 of a payload"),
        ("broadcast", json!({"channels": [], "data": 1}), "bad request: channels is an empty list"),
        (
            "publish",
            json!({"channel": "x".repeat(256), "data": 1}),
            "bad request: the name of the channel is longer than channel.max_length (255 bytes)",
        ),
        (
            "rpc",
            json!({"method": "x"}),
            "method not found: the server has no methods of an application, so rpc always has this error",
        ),
    ] {
        let refused = server.api(operation, request.clone());
        assert_eq!(refused["error"]["message"], message, "{operation} {request}: {refused}");
    }
}

#[test]
fn a_broadcast_and_an_unknown_path_name_what_is_wrong() {
    let server = TestServer::start();
    let answer = server.api("broadcast", json!({"channels": ["a", "nope:1", "x\n"], "data": 1}));
    let messages = [1, 2].map(|place| answer["result"]["responses"][place]["error"]["message"].clone());
    let named = r#"unknown channel: no namespace of channel.namespaces is named "nope""#;
    let ill = "bad request: the name of the channel has control characters, or does not fit channel_regex";
    assert_eq!(messages, [named, ill], "{answer}");
    let key = format!("X-API-Key: {}\r\n", super::support::KEY);
    let (status, text) = server.http("POST", "/api/pubish", &key, "{}");
    let refused: Value = serde_json::from_str(&text).expect("it is JSON");
    let message = r#"method not found: no operation is named "pubish"; did you mean publish?"#;
    assert_eq!((status, &refused["error"]["message"]), (404, &json!(message)));
}

#[test]
fn a_field_that_an_operation_does_not_have_is_reported_where_causes_are() {
    for is_reported in [true, false] {
        let server = TestServer::with(|settings| settings.client.tell_refusal_cause = is_reported);
        let publish = |body: &str| {
            let head = format!("POST /api/publish HTTP/1.1\r\nHost: t\r\nX-API-Key: {}\r\n", super::support::KEY);
            let request = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            server.raw(request.as_bytes()).to_ascii_lowercase()
        };
        let misspelt = publish(r#"{"channel": "news", "data": 1, "idempotencykey": "k"}"#);
        assert!(misspelt.contains(r#"{"result":{}}"#), "{misspelt}");
        let warning =
            "x-touchline-warning: \"idempotencykey\" is not a field of publish; did you mean idempotency_key?";
        assert_eq!(misspelt.contains(warning), is_reported, "{misspelt}");
        assert!(!publish(r#"{"channel": "news", "data": 1}"#).contains("x-touchline-warning"));
    }
}

const NO_VERSION: &str = "server API: Accept allows neither application/json nor a version of the server API";
const OTHER_SCHEME: &str = "server API: Authorization has another scheme than apikey, or a token while http_api.jwks \
                            is off";
const STREAM_TOO_LARGE: &str = "the body is larger than http_stream.max_request_body_size, or incomplete";
const NO_NAMESPACE: &str = "server API: the namespace of the channel is not in channel.namespaces";

#[test]
fn each_refusal_of_a_request_has_a_line() {
    let server = TestServer::with(|settings| {
        super::registry::devices(settings);
        settings.websocket.message_size_limit = 1_000;
        (settings.http_api.body_size_limit, settings.http_stream.enabled) = (2_000, true);
    });
    let counted = |cause: &str| {
        let refusals = server.api("refusals", json!({}))["result"]["refusals"].as_array().cloned().unwrap_or_default();
        refusals.iter().find(|row| row["words"] == cause).map_or(0, |row| row["count"].as_u64().unwrap_or_default())
    };
    assert_eq!(server.http("GET", "/connection/sse", "", "").0, 404);
    until_eq(1, || counted("the path is off: sse.enabled"));
    let mut client = server.connected();
    client.send(&"x".repeat(2_000));
    until("the line is there", || counted("a message is larger than websocket.message_size_limit") == 1);
    assert_eq!(server.http("GET", "/", "", "").0, 200, "the address of the server says what it is");
    let key = format!("X-API-Key: {}\r\n", super::support::KEY);
    let (accept, basic) = (format!("{key}Accept: application/xml\r\n"), "Authorization: Basic x\r\n");
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let (long, broadcast) = ("x".repeat(70_000), r#"{"channels":["nope:1","nope:2"],"data":1}"#);
    for (method, path, headers, body, status, cause) in [
        ("GET", "/ws", websocket, "", 404, "the path of the WebSocket is not websocket.handler_prefix"),
        ("GET", "/", websocket, "", 404, "the path of the WebSocket is not websocket.handler_prefix"),
        (
            "PUT",
            "/api/publish",
            &key,
            "{}",
            405,
            "server API: the HTTP method is not POST (GET or HEAD for a document)",
        ),
        ("POST", "/api/info", &accept, "{}", 406, NO_VERSION),
        ("POST", "/api/info", basic, "{}", 401, OTHER_SCHEME),
        ("POST", "/api/info", &key, &long, 413, "server API: the body cannot be read as this request"),
        ("POST", "/connection/http_stream", "", &long, 413, STREAM_TOO_LARGE),
        ("POST", "/api/broadcast", &key, broadcast, 200, NO_NAMESPACE),
        ("POST", "/api/count", &key, r#"{"scope":"x"}"#, 200, "server API: the scope is not in registry.scopes"),
    ] {
        let before = counted(cause);
        assert_eq!(server.http(method, path, headers, body).0, status, "{method} {path}");
        until("the line is there", || counted(cause) == before + 1);
    }
}
