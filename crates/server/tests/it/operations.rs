//! The server API: the shapes of answers, keys, errors.

use serde_json::{Value, json};
use touchline_server::operations;
use touchline_testkit::websocket::Heard;
use touchline_testkit::{until, until_eq};

use crate::support::{KEY, TestServer, token, without_details};

#[test]
fn every_way_to_show_the_key_works_and_no_other() {
    let server = TestServer::start();
    let body = "{\"channel\":\"a\",\"data\":1}";
    let cases = [
        (format!("X-API-Key: {KEY}\r\n"), "/api/publish", 200),
        (format!("Authorization: apikey {KEY}\r\n"), "/api/publish", 200),
        (String::new(), "/api/publish?api_key=api-key", 200),
        (String::new(), "/api/publish", 401),
        ("X-API-Key: \r\n".into(), "/api/publish", 401),
        ("X-API-Key: api-kez\r\n".into(), "/api/publish", 401),
        (format!("Authorization: Bearer {KEY}\r\n"), "/api/publish", 401),
    ];
    for (headers, path, expected) in cases {
        assert_eq!(server.http("POST", path, &headers, body).0, expected, "{headers}{path}");
    }
}

#[test]
fn replies_have_the_official_shapes() {
    let server = TestServer::start();
    let bad = |field: &str| json!({"error": {"code": 107, "message": "bad request", "field": field}});
    let cases = [
        ("publish", json!({"channel": "news", "data": {}}), json!({"result": {}})),
        ("publish", json!({"channel": "news"}), bad("data")),
        ("publish", json!({"channel": "", "data": 1}), bad("channel")),
        (
            "publish",
            json!({"channel": "nope:a", "data": 1}),
            json!({"error": {"code": 102, "message": "unknown channel"}}),
        ),
        ("publish", json!({"channel": "news", "b64data": "eyJhIjoxfQ=="}), json!({"result": {}})),
        ("publish", json!({"channel": "news", "b64data": "bm8ganNvbg=="}), bad("b64data")),
        ("presence", json!({"channel": "room:a"}), json!({"result": {"presence": {}}})),
        ("presence", json!({"channel": "news"}), json!({"error": {"code": 108, "message": "not available"}})),
        ("presence_stats", json!({"channel": "room:a"}), json!({"result": {"num_clients": 0, "num_users": 0}})),
        ("history", json!({"channel": "news"}), json!({"error": {"code": 108, "message": "not available"}})),
        ("history_remove", json!({"channel": "history:a"}), json!({"result": {}})),
        ("channels", json!({}), json!({"result": {"channels": {}}})),
        ("subscribe", json!({"user": "nobody", "channel": "news"}), json!({"result": {}})),
        ("unsubscribe", json!({"user": "nobody", "channel": "news"}), json!({"result": {}})),
        ("disconnect", json!({"user": "nobody"}), json!({"result": {}})),
        ("disconnect", json!({"user": "nobody", "disconnect": {"code": 99}}), bad("disconnect")),
        ("refresh", json!({"user": "nobody"}), json!({"result": {}})),
        ("rpc", json!({"method": "x"}), json!({"error": {"code": 104, "message": "method not found"}})),
        ("", json!({"method": "publish", "params": {"channel": "news", "data": 1}}), json!({"result": {}})),
        (
            "broadcast",
            json!({"channels": ["news", "nope:a"], "data": 1}),
            json!({"result": {"responses": [{"result": {}}, {"error": {"code": 102, "message": "unknown channel"}}]}}),
        ),
        (
            "batch",
            json!({"commands": [
                {"publish": {"channel": "news", "data": 1}}, {"presence": {"channel": "news"}}, {"channels": {}},
            ]}),
            json!({"replies": [
                {"publish": {}},
                {"error": {"code": 108, "message": "not available"}},
                {"channels": {"channels": {}}},
            ]}),
        ),
    ];
    for (operation, body, expected) in cases {
        assert_eq!(without_details(server.api(operation, body.clone())), expected, "{operation} {body}");
    }
}

#[test]
fn errors_become_statuses_when_asked() {
    let server = TestServer::start();
    let headers = format!("X-API-Key: {KEY}\r\nX-Centrifugo-Error-Mode: transport\r\n");
    for (path, body, expected) in [
        ("/api/publish", "{\"channel\":\"nope:a\",\"data\":1}", 404),
        ("/api/publish", "{}", 400),
        ("/api/nothing", "{}", 404),
        ("/api/publish", "{\"channel\":\"a\",\"data\":1}", 200),
        ("/api/publish", "not json", 400),
        ("/api/publish", "{\"channel\":7,\"data\":1}", 400),
    ] {
        assert_eq!(server.http("POST", path, &headers, body).0, expected, "{path} {body}");
    }
}

#[test]
fn history_is_kept_read_and_removed() {
    let server = TestServer::start();
    let mut epoch = Value::Null;
    for n in 1..=5 {
        let reply = server.publish("history:a", json!(n));
        assert_eq!(reply["result"]["offset"], n);
        epoch = reply["result"]["epoch"].clone();
    }
    server.api("publish", json!({"channel": "history:a", "data": 9, "skip_history": true}));
    let read = |body: Value| {
        let reply = server.api("history", body);
        let publications = reply["result"]["publications"].as_array().cloned().unwrap_or_default();
        (publications.iter().map(|p| p["data"].clone()).collect::<Vec<_>>(), reply["result"]["offset"].clone())
    };
    assert_eq!(read(json!({"channel": "history:a", "limit": 2})), (vec![json!(1), json!(2)], json!(5)));
    assert_eq!(read(json!({"channel": "history:a"})), (vec![], json!(5)));
    assert_eq!(read(json!({"channel": "history:a", "limit": -1})).0.len(), 5);
    assert_eq!(read(json!({"channel": "history:a", "limit": 2, "reverse": true})).0, [json!(5), json!(4)]);
    let since = json!({"offset": 3, "epoch": epoch});
    assert_eq!(read(json!({"channel": "history:a", "limit": 9, "since": since})).0, [json!(4), json!(5)]);
    let stale = server.api("history", json!({"channel": "history:a", "since": {"offset": 3, "epoch": "otherepo"}}));
    assert_eq!(stale["error"]["code"], 112);
    server.api("history_remove", json!({"channel": "history:a"}));
    assert_eq!(read(json!({"channel": "history:a", "limit": 9})), (vec![], json!(5)));
    assert_eq!(server.publish("history:a", json!(6))["result"]["offset"], 6);
}

#[test]
fn a_keyed_publish_happens_once() {
    let server = TestServer::start();
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
    let publish =
        |key: &str| server.api("publish", json!({"channel": "history:a", "data": key, "idempotency_key": key}));
    let first = publish("k1");
    assert_eq!(publish("k1"), first);
    assert_ne!(publish("k2"), first);
    assert_eq!(
        (client.publication()["data"].clone(), client.publication()["data"].clone()),
        (json!("k1"), json!("k2"))
    );
}

#[test]
fn a_stale_version_is_dropped() {
    let server = TestServer::start();
    let publish = |version: u64, epoch: &str| {
        let body = json!({"channel": "history:a", "data": version, "version": version, "version_epoch": epoch});
        server.api("publish", body)["result"]["offset"].clone()
    };
    assert_eq!([publish(5, "a"), publish(5, "a"), publish(4, "a"), publish(6, "a"), publish(1, "b")], [1, 1, 1, 2, 3]);
}

#[test]
fn the_connections_of_a_user_are_subscribed_refreshed_and_ended() {
    let server = TestServer::start();
    let connect = |user: &str| {
        let mut client = server.websocket();
        let reply = client.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}}));
        (client, reply["connect"]["client"].as_str().unwrap_or_default().to_owned())
    };
    let (mut first, first_id) = connect("ann");
    let (mut second, _) = connect("ann");
    let (mut other, _) = connect("bob");
    server.publish("history:a", json!(0));
    let body = json!({
        "user": "ann",
        "client": first_id,
        "channel": "history:a",
        "data": {"d": 1},
        "recover_since": {"offset": 0, "epoch": ""},
    });
    server.api("subscribe", body);
    let push = first.message();
    assert_eq!((&push["push"]["channel"], &push["push"]["subscribe"]["data"]), (&json!("history:a"), &json!({"d": 1})));
    assert_eq!(first.publication()["data"], 0);
    assert_eq!(
        server.api("channels", json!({"pattern": "hist*"}))["result"]["channels"],
        json!({"history:a": {"num_clients": 1}})
    );
    server.api("refresh", json!({"user": "ann", "client": first_id, "expire_at": 4_000_000_000u64}));
    assert!(first.message()["push"]["refresh"]["ttl"].as_u64().is_some_and(|ttl| ttl > 1_000_000));
    server.api("unsubscribe", json!({"user": "ann", "channel": "history:a"}));
    assert_eq!(first.message()["push"]["unsubscribe"], json!({"code": 2000, "reason": "server unsubscribe"}));
    let info = server.api("info", json!({}));
    let node = &info["result"]["nodes"][0];
    assert_eq!((&node["num_clients"], &node["num_users"]), (&json!(3), &json!(2)));
    server.api(
        "disconnect",
        json!({"user": "ann", "whitelist": [first_id], "disconnect": {"code": 4000, "reason": "only one"}}),
    );
    assert_eq!(second.close(), Heard::Close(4000, "only one".into()));
    server.api("disconnect", json!({"user": "ann"}));
    assert_eq!(first.close(), Heard::Close(3503, "force disconnect".into()));
    assert!(other.ask(json!({"id": 5, "unsubscribe": {"channel": "x"}}))["unsubscribe"].is_object());
}

#[test]
fn health_and_metrics_answer() {
    let server = TestServer::start();
    assert_eq!(server.http("GET", "/health", "", "").0, 200);
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "news"}}));
    client.ask(json!({"id": 3, "rpc": {"method": "x"}}));
    server.publish("news", json!(1));
    client.publication();
    let expected = [
        "touchline_connections 1",
        "touchline_subscriptions 1",
        "touchline_publications_total{namespace=\"without\"} 1",
        "touchline_publication_bytes_total{namespace=\"without\"} 1",
        "touchline_deliveries_total{namespace=\"without\"} 1",
        "touchline_subscribes_total{namespace=\"without\",outcome=\"accepted\"} 1",
        "touchline_commands_total{method=\"rpc\"} 1",
        "touchline_connects_total{transport=\"websocket\"} 1",
        "touchline_messages_received_total{transport=\"websocket\"} 3",
        "touchline_errors_total{method=\"rpc\",code=\"108\"} 1",
        "touchline_api_seconds_count{method=\"publish\"} 1",
        "touchline_ready 1",
        "touchline_delivery_seconds_count 1",
    ];
    // The client may have the publication before the shard has noted the latency.
    until("every line of the metrics", || {
        let (_, text) = server.http("GET", "/metrics", "", "");
        expected.iter().all(|line| text.lines().any(|found| found == *line))
    });
    assert_eq!(server.http("GET", "/nothing", "", "").0, 404);
    assert_eq!(server.http("GET", "/api/publish", "", "").0, 405);
}

#[test]
fn a_malformed_request_is_told_without_names_of_the_program() {
    let server = TestServer::start();
    for operation in ["", "/publish", "/history", "/batch", "/subscribe", "/channels"] {
        let (status, text) = server.http("POST", &format!("/api{operation}"), &format!("X-API-Key: {KEY}\r\n"), "5");
        assert!(status == 400 && text.contains("expected an object"), "{operation}: {status} {text}");
    }
}

/// A reply without its numbers and texts, which differ from call to call. Errors stay unchanged.
fn shape(reply: &Value) -> Value {
    match reply {
        Value::Object(fields) if fields.contains_key("code") => reply.clone(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!(0),
        other => other.clone(),
    }
}

/// The example of each operation gets the same answer by its own path, in a batch, and as a line of the old form.
#[test]
fn every_operation_answers_the_same_by_each_way() {
    let server = TestServer::start();
    for operation in operations() {
        let (name, example) = (operation.name, operation.example);
        let params: Value = serde_json::from_str(example).expect("an example is JSON");
        let direct = shape(&server.api(name, params.clone()));
        assert!(direct["result"].is_object() || direct["error"]["code"].is_u64(), "{name}: {direct}");
        let line = shape(&server.api("", json!({"method": name, "params": params})));
        assert_eq!(line, direct, "{name} as a line");
        let number = direct["error"]["code"].as_u64();
        let is_declared = operation.errors.iter().any(|error| Some(u64::from(error.code)) == number);
        assert!(number.is_none() || is_declared, "{name} answers with {number:?}, which it does not declare");
        let batch = server.api("batch", json!({"commands": [{name: params}]}));
        let expected = match direct.get("result") {
            Some(result) => json!({ name: result }),
            None => direct,
        };
        assert_eq!(shape(&batch["replies"][0]), expected, "{name} in a batch");
    }
}

#[test]
fn a_refused_command_is_counted_once_whatever_way_it_came() {
    let server = TestServer::start();
    let params = json!({"channel": "nope:a", "data": 1});
    let counted = |server: &TestServer| server.metric("touchline_api_errors_total");
    server.api("publish", params.clone());
    until_eq(1, || counted(&server));
    server.api("", json!({"method": "publish", "params": params}));
    until_eq(2, || counted(&server));
    server.api("batch", json!({"commands": [{"publish": params}, {"publish": {"channel": "news", "data": 1}}]}));
    until_eq(3, || counted(&server));
    server.api("broadcast", json!({"channels": ["nope:a", "news", "nope:b"], "data": 1}));
    until_eq(5, || counted(&server));
}
