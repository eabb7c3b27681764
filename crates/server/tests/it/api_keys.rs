//! Keys of the server API: what each key may do, rotation, and tokens as an alternative to keys.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ApiKeySettings, NamedApiKey, Settings, operations};
use touchline_testkit::{until, until_eq};

use super::backend::Answer;
use super::issuer::{KeyEndpoint, Signer};
use super::support::{KEY, TestServer};

fn key(settings: &mut Settings, name: &str, key: &str, operations: &[&str], channels: &[&str]) {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let options = ApiKeySettings { key: key.into(), operations: texts(operations), channels: texts(channels) };
    settings.http_api.keys.push(NamedApiKey { name: name.into(), options });
}

fn server() -> TestServer {
    TestServer::with(|settings| {
        key(settings, "news", "key-of-news", &["@publish", "history"], &["news", "history:*"]);
        key(settings, "news_new", "key-of-news-2", &["@publish", "history"], &["news", "history:*"]);
        key(settings, "reader", "key-of-reader", &["@read"], &["*"]);
        key(settings, "rooms", "key-of-rooms", &["*"], &["room:*"]);
    })
}

/// Calls an operation. Returns the status and the body.
fn call(server: &TestServer, header: &str, path: &str, body: &str) -> (u16, Value) {
    let (status, text) = server.http("POST", path, &format!("{header}\r\n"), body);
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[test]
fn a_key_may_use_its_operations_in_its_channels_and_nothing_else() {
    let server = server();
    let call = |key: &str, operation: &str, body: Value| {
        let (status, body) =
            call(&server, &format!("X-API-Key: {key}"), &format!("/api/{operation}"), &body.to_string());
        (status, body["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let publish = |channel: &str| json!({"channel": channel, "data": 1});
    let denied = |text: &str| {
        let remedy = match text.ends_with("channel") {
            true => "add a pattern to channels of the key",
            false => "add it to operations of the key",
        };
        (403, format!("permission denied: the key may not use {text}: {remedy}"))
    };
    let good = (200, String::new());
    for (key, operation, body, expected) in [
        ("key-of-news", "publish", publish("news"), good.clone()),
        ("key-of-news-2", "publish", publish("news"), good.clone()),
        ("key-of-news", "publish", publish("history:a"), good.clone()),
        ("key-of-news", "publish", publish("room:a"), denied("publish in this channel")),
        ("key-of-news", "publish", publish("xnews"), denied("publish in this channel")),
        ("key-of-news", "publish", json!({}), denied("publish in this channel")),
        ("key-of-news", "broadcast", json!({"channels": ["news", "history:a"], "data": 1}), good.clone()),
        (
            "key-of-news",
            "broadcast",
            json!({"channels": ["news", "room:a"], "data": 1}),
            denied("broadcast in this channel"),
        ),
        ("key-of-news", "history", json!({"channel": "history:a"}), good.clone()),
        ("key-of-news", "presence", json!({"channel": "history:a"}), denied("presence")),
        ("key-of-news", "info", json!({}), denied("info")),
        ("key-of-news", "disconnect", json!({"user": "ann"}), denied("disconnect")),
        ("key-of-reader", "info", json!({}), good.clone()),
        ("key-of-reader", "history", json!({"channel": "history:a"}), good.clone()),
        ("key-of-reader", "publish", publish("news"), denied("publish")),
        ("key-of-rooms", "presence", json!({"channel": "room:a"}), good.clone()),
        ("key-of-rooms", "unsubscribe", json!({"user": "ann", "channel": "room:a"}), good.clone()),
        ("key-of-rooms", "unsubscribe", json!({"user": "ann"}), denied("unsubscribe in this channel")),
        ("key-of-rooms", "disconnect", json!({"user": "ann"}), denied("disconnect")),
        ("key-of-rooms", "channels", json!({"pattern": "room:*"}), denied("channels")),
        (KEY, "disconnect", json!({"user": "ann"}), good.clone()),
    ] {
        assert_eq!(call(key, operation, body.clone()), expected, "{key} {operation} {body}");
    }
    assert_eq!(call("key-of-nobody", "publish", publish("news")).0, 401);
    assert_eq!(call("", "publish", publish("news")).0, 401);
}

#[test]
fn every_operation_that_takes_a_channel_is_limited_by_it() {
    let names: Vec<&str> = operations().map(|operation| operation.name).collect();
    let server = TestServer::with(|settings| key(settings, "rooms", "key-of-rooms", &names, &["room:*"]));
    let mut checked = 0;
    for operation in operations() {
        let fields = (operation.request_fields)();
        let mut body: Value = serde_json::from_str(operation.example).expect("JSON");
        // The tokens of a user become invalid everywhere, so a key that is limited to channels is refused, whatever its
        // channels are.
        if operation.name == "invalidate_user_tokens" || !fields.iter().any(|field| field.starts_with("channel")) {
            continue;
        }
        if fields.contains(&"channel") {
            body["channel"] = json!("closed:a");
        } else {
            body["channels"] = json!(["room:a", "closed:a"]);
        }
        let (status, answer) =
            call(&server, "X-API-Key: key-of-rooms", &format!("/api/{}", operation.name), &body.to_string());
        assert_eq!((status, &answer["error"]["code"]), (403, &json!(103)), "{}: {answer}", operation.name);
        checked += 1;
    }
    assert!(checked >= 12, "{checked}");
}

const OTHER_SCHEME: &str = "the scheme of Authorization is not apikey: send the key as `Authorization: apikey KEY`";

#[test]
fn who_is_not_served_is_told_what_was_wrong_with_what_was_sent() {
    let endpoint = KeyEndpoint::with(vec![Signer::edwards("a").jwk()]);
    let server = TestServer::with(|settings| {
        let jwks = &mut settings.http_api.jwks;
        (jwks.enabled, jwks.endpoint, jwks.audience) = (true, endpoint.url(), "api".into());
    });
    let publish = json!({"channel": "news", "data": 1}).to_string();
    let call = |header: &str, query: &str| call(&server, header, &format!("/api/publish{query}"), &publish);
    for (header, told) in [
        ("X-API-Key: wrong", "the key that was sent is not in http_api.key or http_api.keys"),
        ("Authorization: apikey wrong", "the key that was sent is not in http_api.key or http_api.keys"),
        ("Authorization: Bearer wrong", "the token that was sent is not valid for http_api.jwks"),
        ("Authorization: Basic wrong", OTHER_SCHEME),
        ("Authorization: wrong", OTHER_SCHEME),
        ("Accept: */*", "send the key of http_api.key as X-API-Key"),
    ] {
        let (status, body) = call(header, "");
        assert_eq!((status, &body["error"]["message"]), (401, &json!(format!("unauthorized: {told}"))), "{header}");
        assert_eq!(call(header, &format!("?api_key={KEY}")).0, 200, "{header}: a good key beside it counts");
    }
    let server = TestServer::start();
    let header = format!("Authorization: Bearer {KEY}\r\n");
    let (status, body) = server.http("POST", "/api/publish", &header, &publish);
    assert!(status == 401 && body.contains(OTHER_SCHEME), "without http_api.jwks a token is no caller: {body}");
}

#[test]
fn each_command_of_a_batch_is_checked_and_the_errors_have_their_status() {
    let server = server();
    let header = "X-API-Key: key-of-news";
    let commands = json!({"commands": [
        {"publish": {"channel": "news", "data": 1}},
        {"publish": {"channel": "room:a", "data": 1}},
        {"presence": {"channel": "news"}},
        {"publish": {"channel": "history:b", "data": 1}},
    ]});
    let (status, body) = call(&server, header, "/api/batch", &commands.to_string());
    let codes: Vec<u64> = body["replies"]
        .as_array()
        .expect("replies")
        .iter()
        .map(|reply| reply["error"]["code"].as_u64().unwrap_or_default())
        .collect();
    assert_eq!((status, codes), (200, vec![0, 103, 103, 0]));
    let lines = "{\"method\":\"publish\",\"params\":{\"channel\":\"news\",\"data\":1}}\n{\"method\":\"info\"}";
    let (status, text) = server.http("POST", "/api", &format!("{header}\r\n"), lines);
    let replies: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((status, &replies[0]["result"], &replies[1]["error"]["code"]), (200, &json!({}), &json!(103)));
    assert_eq!(call(&server, header, "/api", "{\"method\":\"info\"}").0, 403, "one alone has its status");
    for mode in ["", "\r\nX-Centrifugo-Error-Mode: transport"] {
        let (status, body) = call(&server, &format!("{header}{mode}"), "/api/info", "{}");
        let error = if mode.is_empty() { &body["error"] } else { &body };
        assert_eq!((status, &error["code"]), (403, &json!(103)), "{body}");
    }
    // A refused request has changed nothing.
    let history = server.api("history", json!({"channel": "history:b", "limit": -1}));
    assert_eq!(history["result"]["publications"].as_array().map(Vec::len), Some(1), "{history}");
}

#[test]
fn requests_are_counted_by_the_name_of_the_key() {
    let server = server();
    let publish = json!({"channel": "news", "data": 1}).to_string();
    for key in ["key-of-news", "key-of-news-2", "key-of-news-2", "key-of-reader", "key-of-nobody"] {
        call(&server, &format!("X-API-Key: {key}"), "/api/publish", &publish);
    }
    for key in ["Authorization: apikey key-of-rooms", "authorization: APIKEY key-of-rooms"] {
        call(&server, key, "/api/publish", &publish);
    }
    call(&server, "Accept: */*", "/api/publish?api_key=key-of-rooms", &publish);
    let info = server.api("info", json!({}));
    assert_eq!(info["result"]["nodes"][0]["metrics"]["items"]["api_requests"], 8, "{info}");
    for (name, expected) in [("default", 1), ("news", 1), ("news_new", 2), ("reader", 1), ("rooms", 3)] {
        let metric = format!("touchline_api_requests_total{{key=\"{name}\"}}");
        until_eq(expected, || server.metric(&metric));
    }
    // read once: all requests are counted.
    let (_, text) = server.http("GET", "/metrics", "", "");
    let names = text.lines().filter(|line| line.starts_with("touchline_api_requests_total")).count();
    assert_eq!(names, 5, "only names of the configuration");
}

#[test]
fn a_token_of_an_issuer_is_as_good_as_a_key() {
    let signer = Signer::rsa("a");
    let endpoint = KeyEndpoint::with(Vec::new());
    endpoint.answer(|| Answer::Status(500, String::new()));
    let server = TestServer::timed(|settings| {
        let jwks = &mut settings.http_api.jwks;
        (jwks.enabled, jwks.endpoint) = (true, endpoint.url());
        (jwks.audience, jwks.issuer, jwks.scope) = ("api".into(), "https://id".into(), "live publish".into());
    });
    let good = json!({"iss": "https://id", "aud": ["api"], "scope": "publish other live"});
    let call = |token: &str| {
        call(&server, &format!("Authorization: Bearer {token}"), "/api/publish", "{\"channel\":\"news\",\"data\":1}").0
    };
    assert_eq!(call(&signer.token(&good)), 503, "nobody can tell yet");
    assert_eq!(server.publish("news", json!(1)), json!({"result": {}}), "a key is good all the same");
    endpoint.keys(vec![signer.jwk()]);
    until("the keys have come", || {
        server.clock().advance(Duration::from_secs(10));
        call(&signer.token(&good)) == 200
    });
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        signer.token(&claims)
    };
    for (name, token, expected) in [
        ("a list of scopes", with("scope", json!(["live", "publish"])), 200),
        ("a scope is missing", with("scope", json!("live")), 401),
        ("no scope", with("scope", json!(null)), 401),
        ("another audience", with("aud", json!("web")), 401),
        ("another issuer", with("iss", json!("https://other")), 401),
        ("expired", with("exp", json!(1_000)), 401),
        ("another key, which the endpoint may have by now", Signer::rsa("a").token(&good), 503),
        ("no token", "x".to_owned(), 401),
        ("nothing", String::new(), 401),
        ("the key of the API", KEY.to_owned(), 401),
    ] {
        assert_eq!(call(&token), expected, "{name}");
    }
    until("touchline_api_requests_total >= 2", || server.metric("touchline_api_requests_total{key=\"jwks\"}") >= 2);
}
