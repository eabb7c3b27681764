//! What Centrifugo's server and client libraries rely on, beyond the shapes of single answers.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use touchline_testkit::PATIENCE;
use touchline_testkit::http::head_of;

use crate::support::{KEY, TestServer, token, without_details};

fn with_key() -> String {
    format!("X-API-Key: {KEY}\r\n")
}

fn transport() -> String {
    format!("{}X-Centrifugo-Error-Mode: transport\r\n", with_key())
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_batch_answers_without_an_envelope_and_does_all_or_nothing() {
    let server = TestServer::start();
    let (good, bad) =
        (json!({"publish": {"channel": "history:a", "data": 1}}), json!({"publish": {"channel": 1, "data": 1}}));
    let ask =
        |commands: Value| server.http("POST", "/api/batch", &with_key(), &json!({"commands": commands}).to_string());
    let (status, text) =
        ask(json!([good, {"nothing": {}}, {}, {"presence": {"channel": "news"}}, {"info": {}, "channels": {}}]));
    let replies = &read(&text)["replies"];
    assert_eq!((status, &replies[0]["publish"]["offset"]), (200, &json!(1)), "{text}");
    let codes: Vec<&Value> = (1..5).map(|index| &replies[index]["error"]["code"]).collect();
    assert_eq!(codes, [104, 107, 108, 107], "{text}");
    for commands in [json!([good, bad]), json!([good, {"publish": [1, 2]}]), json!([good, 7]), json!({"publish": {}})] {
        assert_eq!(ask(commands.clone()).0, 400, "{commands}");
    }
    let history = server.api("history", json!({"channel": "history:a", "limit": -1}));
    assert_eq!(
        history["result"]["publications"].as_array().map(Vec::len),
        Some(1),
        "a malformed command stops all: {history}"
    );
}

#[test]
fn one_request_takes_a_line_for_each_command() {
    let server = TestServer::start();
    let ask = |body: &str| server.http("POST", "/api", &with_key(), body);
    let body = r#"{"method":"publish","params":{"channel":"history:a","data":1}}
{"id":7,"method":"PRESENCE_STATS","params":{"channel":"room:a"}}
{"method":0,"params":{"channel":"history:a","data":2}}{"method":"nothing"}
{"id":8,"method":"publish","params":{"channel":3}}
{"method":9}"#;
    let (status, text) = ask(body);
    let replies: Vec<Value> = text.lines().map(read).collect();
    assert_eq!((status, replies.len()), (200, 6), "{text}");
    assert_eq!((&replies[0]["result"]["offset"], &replies[2]["result"]["offset"]), (&json!(1), &json!(2)));
    assert_eq!(replies[1], json!({"id": 7, "result": {"num_clients": 0, "num_users": 0}}));
    assert_eq!(
        (&replies[3]["error"]["code"], &replies[4]),
        (&json!(104), &json!({"id": 8, "error": {"code": 107, "message": "bad request"}}))
    );
    assert!(replies[5]["result"]["nodes"].is_array(), "{text}");
    for bad in
        ["", "{\"method\":\"publish\",\"params\":{\"channel\":\"history:a\",\"data\":3}}\nnonsense", "[\"publish\",{}]"]
    {
        assert_eq!(ask(bad).0, 400, "{bad}");
    }
    let history = server.api("history", json!({"channel": "history:a"}));
    assert_eq!(history["result"]["offset"], 2, "nothing of a broken body is done");
}

#[test]
fn a_list_is_no_request() {
    let server = TestServer::start();
    for (path, body) in [
        ("/api/publish", "[\"news\",{\"x\":1}]"),
        ("/api/info", " [1]"),
        ("/api/names", "[]"),
        ("/api/batch", "[[{\"info\":{}}]]"),
        ("/api", "[\"info\"]"),
    ] {
        let (status, text) = server.http("POST", path, &with_key(), body);
        assert_eq!((status, text.contains("expected an object, found a list")), (400, true), "{path}: {text}");
    }
    for (path, body) in [
        ("/api/disconnect", r#"{"user":"u","disconnect":[4321,"x"]}"#),
        ("/api/history", r#"{"channel":"history:a","since":[1,"x"]}"#),
        ("/api/subscribe", r#"{"user":"u","channel":"history:a","recover_since":[1,"x"]}"#),
        ("/api/subscribe", r#"{"user":"u","channel":"history:a","override":[]}"#),
        ("/api/subscribe", r#"{"user":"u","channel":"history:a","override":{"presence":[true]}}"#),
    ] {
        let (status, text) = server.http("POST", path, &with_key(), body);
        assert_eq!(status, 400, "{body}: {text}");
    }
}

#[test]
fn errors_stand_alone_when_the_status_tells_them() {
    let server = TestServer::start();
    let ask = |path: &str, headers: &str, body: Value| {
        let (status, text) = server.http("POST", path, headers, &body.to_string());
        (status, without_details(read(&text)))
    };
    let unknown = json!({"channel": "nope:a", "data": 1});
    let error = json!({"code": 102, "message": "unknown channel"});
    assert_eq!(ask("/api/publish", &transport(), unknown.clone()), (404, error.clone()));
    assert_eq!(ask("/api/publish", &with_key(), unknown), (200, json!({"error": error})));
    assert_eq!(ask("/api/publish", &transport(), json!({"channel": "news", "data": 1})), (200, json!({"result": {}})));
    assert_eq!(ask("/api/nothing", &with_key(), json!({})).0, 404, "as a path that nobody serves");
    assert_eq!(
        ask("/api/rpc", &with_key(), json!({"method": "x"})).0,
        200,
        "the operation exists, the method does not"
    );
}

#[test]
fn a_key_in_the_address_may_be_percent_encoded() {
    let server = TestServer::with(|settings| settings.http_api.key = "k+/&=é 1".into());
    let body = "{\"channel\":\"a\",\"data\":1}";
    let ask = |query: &str| server.http("POST", &format!("/api/publish?{query}"), "", body).0;
    assert_eq!(ask("a=1&api_key=k%2B%2F%26%3D%C3%A9%201"), 200);
    assert_eq!(ask("api_key=k"), 401);
}

#[test]
fn info_says_what_libraries_expect_of_a_node() {
    let server = TestServer::start();
    server.publish("news", json!(1));
    let info = server.api("info", json!({}));
    let node = &info["result"]["nodes"][0];
    let name = node["name"].as_str().unwrap_or_default();
    assert!(name.len() > 1 && name.ends_with(&format!("_{}", server.address.port())), "{info}");
    assert!(
        node["process"]["rss"].as_u64().is_some_and(|rss| rss > 1 << 20) && node["process"]["cpu"].is_number(),
        "{info}"
    );
    assert!(node["metrics"]["interval"].is_number(), "{info}");
    assert_eq!(node["metrics"]["items"]["publications"], 1, "{info}");
}

#[test]
fn patterns_of_channels_are_globs() {
    let server = TestServer::start();
    let mut client = server.connected();
    for (id, channel) in ["chat-a", "chat-b", "chat-cd", "plain-a"].into_iter().enumerate() {
        client.ask(json!({"id": id + 2, "subscribe": {"channel": channel}}));
    }
    for (pattern, expected) in [
        ("", vec!["chat-a", "chat-b", "chat-cd", "plain-a"]),
        ("chat-*", vec!["chat-a", "chat-b", "chat-cd"]),
        ("**-a", vec!["chat-a", "plain-a"]),
        ("chat-?", vec!["chat-a", "chat-b"]),
        ("chat-[b-z]*", vec!["chat-b", "chat-cd"]),
        ("{chat,plain}-a", vec!["chat-a", "plain-a"]),
        ("chat", vec![]),
    ] {
        let found = server.api("channels", json!({"pattern": pattern}));
        let mut names: Vec<String> = found["result"]["channels"]
            .as_object()
            .map(|channels| channels.keys().cloned().collect())
            .unwrap_or_default();
        names.sort();
        assert_eq!(names, expected, "{pattern}: {found}");
    }
    assert_eq!(server.api("channels", json!({"pattern": "["}))["error"]["code"], 107);
}

/// A client of an endless answer: its socket, and the answer to its connect.
fn streaming(server: &TestServer, path: &str, user: &str) -> (TcpStream, Value) {
    let mut socket = server.socket();
    let body = json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}}).to_string();
    let length = body.len();
    socket
        .write_all(format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
        .expect("it listens");
    let head = head_of(&mut socket);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let reply = line(&mut socket);
    let connect = read(&reply)["connect"].clone();
    assert!(connect["session"].is_string(), "{reply}");
    (socket, connect)
}

/// The next line of an endless answer that is not a ping.
fn line(socket: &mut TcpStream) -> String {
    loop {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while socket.read_exact(&mut byte).is_ok() && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        if line != b"{}" {
            return String::from_utf8(line).expect("it is UTF-8");
        }
    }
}

#[test]
fn a_session_selects_one_connection_of_a_user() {
    let server = TestServer::with(|settings| settings.http_stream.enabled = true);
    let way = "/connection/http_stream";
    let (mut first, first_connect) = streaming(&server, way, "42");
    let (mut second, second_connect) = streaming(&server, way, "42");
    let (session, other) = (first_connect["session"].clone(), second_connect["session"].clone());
    let with = |more: Value| {
        let mut body = json!({"user": "42", "session": session});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    server.api("subscribe", with(json!({"channel": "news"})));
    assert!(line(&mut first).contains("\"subscribe\""));
    assert_eq!(server.api("channels", json!({}))["result"]["channels"]["news"]["num_clients"], 1);
    server.api("refresh", with(json!({"expire_at": 4_000_000_000_u64})));
    assert!(line(&mut first).contains("\"refresh\""));
    // A session of another user, an unknown session, and a client that does not belong to the session select no
    // connection.
    for none in [json!({"user": "43"}), json!({"session": "nobody's"}), json!({"client": second_connect["client"]})] {
        assert_eq!(server.api("disconnect", with(none)), json!({"result": {}}));
    }
    server.api("unsubscribe", json!({"user": "42", "session": other, "channel": "news"}));
    server.publish("news", json!("still subscribed"));
    assert!(line(&mut first).contains("still subscribed"));
    server.api("unsubscribe", with(json!({"channel": "news"})));
    assert!(line(&mut first).contains("\"unsubscribe\""));
    server.api("disconnect", with(json!({})));
    assert!(line(&mut first).contains("3503"));
    assert_eq!(line(&mut first), "", "the connection ends");
    server.api("subscribe", json!({"user": "42", "channel": "news"}));
    assert!(line(&mut second).contains("\"subscribe\""), "the second one has heard of nothing before");
}

#[test]
fn a_refresh_changes_what_others_are_shown() {
    let server = TestServer::start();
    let mut watcher = server.connected();
    watcher.ask(json!({"id": 2, "subscribe": {"channel": "room:a", "join_leave": true}}));
    let mut client = server.websocket();
    client.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": "ann", "info": {"n": 1}}))}}));
    client.ask(json!({"id": 2, "subscribe": {"channel": "room:a"}}));
    let shown = || {
        let presence = server.api("presence", json!({"channel": "room:a"}));
        let clients = presence["result"]["presence"].as_object().cloned().unwrap_or_default();
        clients.values().find(|info| info["user"] == "ann").map(|info| info["conn_info"].clone())
    };
    touchline_testkit::until("the client is present", || shown() == Some(json!({"n": 1})));
    server.api("refresh", json!({"user": "ann", "info": {"n": 2}}));
    touchline_testkit::until("the new info is shown", || shown() == Some(json!({"n": 2})));
    client.ask(json!({"id": 3, "unsubscribe": {"channel": "room:a"}}));
    let mut told = Vec::new();
    while told.last().is_none_or(|(kind, _)| *kind != "leave") {
        let push = watcher.message()["push"].clone();
        let kind = if push["join"].is_object() { "join" } else { "leave" };
        let info = push[kind]["info"].clone();
        if info["user"] == "ann" {
            told.push((kind, info["conn_info"].clone()));
        }
    }
    assert_eq!(
        told,
        [("join", json!({"n": 1})), ("leave", json!({"n": 2}))],
        "an update is neither a join nor a leave"
    );
}

#[test]
fn an_event_stream_begins_with_its_first_event() {
    let server = TestServer::with(|settings| {
        settings.sse.enabled = true;
        settings.uni_sse.enabled = true;
    });
    for path in ["/connection/sse", "/connection/uni_sse"] {
        let mut socket = server.socket();
        socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
        let connect = if path.ends_with("/sse") { "%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D" } else { "%7B%7D" };
        socket
            .write_all(format!("GET {path}?cf_connect={connect} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes())
            .expect("it listens");
        assert!(head_of(&mut socket).contains("text/event-stream"));
        let first = line(&mut socket);
        assert!(first.starts_with("data: {"), "{path}: {first:?}");
    }
}

#[test]
fn what_is_for_maps_and_shared_polls_is_refused() {
    let server = TestServer::start();
    let mut client = server.connected();
    for (id, command) in [
        (2, json!({"subscribe": {"channel": "news", "type": 1}})),
        (3, json!({"subscribe": {"channel": "news", "type": 4}})),
        (4, json!({"publish": {"channel": "history:a", "data": 1, "key": "k", "type": 1}})),
        (5, json!({"publish": {"channel": "history:a", "data": 1, "key": "k"}})),
        (6, json!({"publish": {"channel": "history:a", "data": 1, "type": 1}})),
    ] {
        let mut command = command;
        command["id"] = json!(id);
        assert_eq!(client.ask(command.clone())["error"]["code"], 108, "{command}");
    }
    assert!(client.ask(json!({"id": 7, "subscribe": {"channel": "news", "type": 0}}))["subscribe"].is_object());
    assert_eq!(server.api("history", json!({"channel": "history:a"}))["result"]["offset"], 0, "nothing was published");
}
