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
            r#"not available: it is switched on by channel.namespaces["history"].presence"#,
        ),
        (
            "history",
            json!({"channel": "a"}),
            "not available: it is switched on by channel.without_namespace.history_size and \
             channel.without_namespace.history_ttl",
        ),
        ("stats_top", json!({}), "not available: it is switched on by store.stats.enabled"),
        ("channel_set", json!({"channel": "a"}), "not available: it is switched on by store.directory"),
        (
            "lookup",
            json!({"scope": "device", "name": "a"}),
            r#"no such scope: no scope of registry.scopes is named "device"; did you mean devices?"#,
        ),
        ("call", json!({"name": "a", "data": 1}), "bad request: scope is missing"),
        ("lookup", json!({"scope": "devices"}), "bad request: name is missing"),
    ] {
        let refused = server.api(operation, request.clone());
        assert_eq!(refused["error"]["message"], message, "{operation} {request}: {refused}");
    }
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

#[test]
fn a_path_that_is_off_and_a_message_that_is_too_large_have_a_line() {
    let server = TestServer::with(|settings| settings.websocket.message_size_limit = 1_000);
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
}
