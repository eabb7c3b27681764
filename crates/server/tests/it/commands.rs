//! Commands to connections: which connections they reach, at what rate, and what the answers contain.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};
use touchline_server::Settings;
use touchline_testkit::http::{to_the_end, up_to};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::websocket::WebSocket;
use touchline_testkit::{until, until_eq};

use super::bans::{code, connected, is_served};
use super::link::Link;
use super::support::{KEY, TestServer, token};

/// A node with a fixed name, so that answers can be compared.
fn one_node() -> TestServer {
    TestServer::with(|settings| {
        settings.node.name = "one".into();
        settings.http_stream.enabled = true;
    })
}

fn in_cluster(settings: &mut Settings, name: &str, link: &Link) {
    settings.node.name = name.to_owned();
    settings.http_stream.enabled = true;
    settings.cluster.engine = "nats".to_owned();
    settings.cluster.nats_url = vec![format!("nats://{}", link.address)];
}

fn cluster(nats: &NatsServer) -> (Link, [TestServer; 2]) {
    let link = Link::to(nats.port);
    let nodes = ["one", "two"].map(|name| TestServer::with(|settings| in_cluster(settings, name, &link)));
    for node in &nodes {
        until("both nodes see each other", || {
            node.api("info", json!({}))["result"]["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
        });
    }
    (link, nodes)
}

/// A client of a user, with its client id.
fn client(server: &TestServer, user: &str) -> (WebSocket, String) {
    let mut websocket = server.websocket();
    let connect = if user.is_empty() { json!({}) } else { json!({"token": token(json!({"sub": user}))}) };
    let reply = websocket.ask(json!({"id": 1, "connect": connect}));
    (websocket, reply["connect"]["client"].as_str().expect("an id").to_owned())
}

/// A client of HTTP streaming, with the session from its connect reply.
fn streaming(server: &TestServer, user: &str) -> (TcpStream, String) {
    let mut socket = server.socket();
    let connect = json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}}).to_string();
    let length = connect.len();
    let request = format!("POST /connection/http_stream HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n");
    socket.write_all(format!("{request}{connect}").as_bytes()).expect("the server listens");
    up_to("\"session\":\"", &mut socket);
    let session = up_to("\"", &mut socket);
    (socket, session.trim_end_matches('"').to_owned())
}

/// An answer of the server API in which the names of nodes replace their ids.
fn named(server: &TestServer, operation: &str, body: Value) -> Value {
    let mut answer = server.api(operation, body).to_string();
    let information = server.api("info", json!({}));
    for node in information["result"]["nodes"].as_array().expect("nodes") {
        let text = |name: &str| node[name].as_str().expect("a text");
        answer = answer.replace(text("uid"), text("name"));
    }
    serde_json::from_str(&answer).expect("it is JSON still")
}

fn reached(count: u64) -> Value {
    json!({"result": {"connections": count, "nodes": {"one": count}}})
}

fn message(client: &mut WebSocket) -> Value {
    loop {
        let message = client.message();
        if !message["push"]["message"].is_null() {
            return message["push"]["message"]["data"].clone();
        }
    }
}

#[test]
fn a_connection_is_found_without_its_user() {
    let server = one_node();
    let (mut ann, ann_id) = client(&server, "ann");
    let (mut bob, bob_session) = streaming(&server, "bob");
    let (mut nobody, nobody_id) = client(&server, "");
    // Together with a user, `client` and `session` narrow the selection, as they always did.
    let narrowed = [json!({"user": "", "client": ann_id}), json!({"user": "bob", "client": ann_id})];
    for body in narrowed {
        assert_eq!(server.api("disconnect", body), json!({"result": {}}));
    }
    is_served(&mut ann);
    let subscribe = json!({"client": ann_id, "user": null, "channel": "news"});
    assert_eq!(named(&server, "subscribe", subscribe), reached(1));
    assert_eq!(ann.message()["push"]["channel"], "news");
    assert_eq!(named(&server, "unsubscribe", json!({"client": ann_id, "channel": "news"})), reached(1));
    assert_eq!(ann.message()["push"]["unsubscribe"]["code"], 2000);
    assert_eq!(named(&server, "refresh", json!({"session": bob_session, "expired": true})), reached(1));
    assert!(to_the_end(&mut bob).contains("\"code\":3005"));
    let mixed = json!({"client": ann_id, "session": bob_session});
    assert_eq!(named(&server, "disconnect", mixed), reached(0), "they are of two connections");
    assert_eq!(named(&server, "disconnect", json!({"client": ann_id})), reached(1));
    assert_eq!(code(&mut ann), 3503);
    assert_eq!(named(&server, "disconnect", json!({"client": ann_id})), reached(0), "it has gone");
    assert_eq!(named(&server, "disconnect", json!({"client": "no id"})), reached(0));
    is_served(&mut nobody);
    // An id in capitals is the same id, in every field.
    let shouted = nobody_id.to_uppercase();
    let spared = json!({"users": [""], "whitelist": ["no id", shouted]});
    assert_eq!(named(&server, "disconnect", spared), reached(0));
    assert_eq!(named(&server, "refresh", json!({"client": shouted, "expire_at": 4_000_000_000u64})), reached(1));
    is_served(&mut nobody);
    assert_eq!(server.api("disconnect", json!({"user": "", "client": shouted})), json!({"result": {}}));
    assert_eq!(code(&mut nobody), 3503);
}

#[test]
fn a_command_is_for_many_users_and_each_connection_has_it_once() {
    let server = one_node();
    let mut there: Vec<_> = ["ann", "ann", "bob", ""].iter().map(|user| client(&server, user)).collect();
    let users = json!(["bob", "ann", "ann", "nobody"]);
    assert_eq!(named(&server, "subscribe", json!({"users": users, "channel": "news"})), reached(3));
    server.publish("news", json!(1));
    for (client, _) in &mut there[..3] {
        assert_eq!(client.publication()["data"], 1);
    }
    let spared = there[0].1.clone();
    assert_eq!(named(&server, "disconnect", json!({"users": users, "whitelist": [spared]})), reached(2));
    assert_eq!((code(&mut there[1].0), code(&mut there[2].0)), (3503, 3503));
    is_served(&mut there[0].0);
    is_served(&mut there[3].0);
    let narrowed = json!({"users": ["ann"], "client": there[3].1});
    assert_eq!(named(&server, "disconnect", narrowed), reached(0), "the connection is of another user");
    assert_eq!(named(&server, "disconnect", json!({"users": [""]})), reached(1), "the anonymous user");
    assert_eq!(code(&mut there[3].0), 3503);
}

/// There are more connections than commands reach in one turn. The command reaches them all, and the answer comes after
/// the last.
#[test]
fn the_answer_comes_when_all_have_the_command() {
    let server = one_node();
    let mut clients: Vec<WebSocket> = (0..700).map(|_| connected(&server, json!({"sub": "ann"}))).collect();
    assert_eq!(named(&server, "subscribe", json!({"users": ["ann", "bob"], "channel": "news"})), reached(700));
    let channels = server.api("channels", json!({"pattern": "news"}));
    assert_eq!(channels["result"]["channels"]["news"]["num_clients"], 700, "{channels}");
    assert_eq!(server.api("disconnect", json!({"user": "ann"})), json!({"result": {}}));
    for client in &mut clients {
        assert_eq!(code(client), 3503);
    }
}

#[test]
fn messages_go_to_connections() {
    let server = one_node();
    let (mut phone, phone_id) = client(&server, "ann");
    let (mut laptop, _) = client(&server, "ann");
    let (mut nobody, _) = client(&server, "");
    let sent = |count: u64| json!({"result": {"sent": count, "nodes": {"one": count}}});
    assert_eq!(named(&server, "send", json!({"user": "ann", "data": {"n": 1}})), sent(2));
    let expected = json!({"from": {}, "to": "ann", "data": {"n": 1}});
    assert_eq!((message(&mut phone), message(&mut laptop)), (expected.clone(), expected));
    assert_eq!(named(&server, "send", json!({"user": "", "data": 2})), sent(1));
    assert_eq!(message(&mut nobody)["data"], 2);
    assert_eq!(named(&server, "send", json!({"client": phone_id, "data": 3})), sent(1));
    assert_eq!(named(&server, "send", json!({"user": "ann", "client": phone_id, "data": 4})), sent(1));
    assert_eq!((message(&mut phone)["data"].clone(), message(&mut phone)["data"].clone()), (json!(3), json!(4)));
    assert_eq!(named(&server, "send", json!({"users": ["ann", ""], "data": 5, "rate": 1_000})), sent(3));
    for client in [&mut phone, &mut laptop, &mut nobody] {
        assert_eq!(message(client)["data"], 5);
    }
    assert_eq!(named(&server, "send", json!({"user": "eve", "data": 6})), sent(0), "nobody is there");
    // A name and a group are unchanged.
    let to_name = json!({"scope": "nowhere", "name": "ann", "data": 7});
    assert_eq!(server.api("send", to_name)["error"]["code"], 4003);
}

#[test]
fn a_rate_lets_the_answer_come_first_and_the_work_be_done() {
    let server = one_node();
    let mut clients: Vec<WebSocket> = (0..40).map(|_| connected(&server, json!({"sub": "ann"}))).collect();
    let disconnect = json!({"user": "ann", "rate": 100, "disconnect": {"code": 3012, "reason": "move"}});
    assert_eq!(named(&server, "disconnect", disconnect), reached(40));
    // read once: the number falls while the test runs.
    let left = server.metric("touchline_connections");
    assert!(left > 0, "a fifth of a second's worth goes at once, and the rest waits");
    let mut late = connected(&server, json!({"sub": "ann"}));
    drop(clients.pop());
    for client in &mut clients {
        assert_eq!(code(client), 3012);
    }
    is_served(&mut late);
    assert_eq!(named(&server, "disconnect", json!({"users": ["ann"]})), reached(1));
    assert_eq!(code(&mut late), 3503);
}

#[test]
fn so_many_requests_with_a_rate_are_under_way() {
    let server = one_node();
    let _clients: Vec<WebSocket> = (0..20).map(|_| connected(&server, json!({"sub": "ann"}))).collect();
    let slow = |user: &str| named(&server, "refresh", json!({"user": user, "rate": 1, "expire_at": 4_000_000_000u64}));
    for _ in 0..16 {
        assert_eq!(slow("ann"), reached(20));
    }
    assert_eq!(slow("ann")["error"]["code"], 111);
    until_eq(16, || server.metric("touchline_commands_paced"));
    let unpaced = json!({"users": ["ann"], "expire_at": 4_000_000_000u64});
    assert_eq!(named(&server, "refresh", unpaced), reached(20), "only a rate is limited");
    drop(_clients);
    // A command without any connection ends at once, and so does one whose connections are gone.
    until("the requests are over", || slow("nobody")["error"].is_null());
}

#[test]
fn a_node_that_drains_ends_what_has_a_rate() {
    let mut server = one_node();
    let mut clients: Vec<WebSocket> = (0..30).map(|_| connected(&server, json!({"sub": "ann"}))).collect();
    assert_eq!(named(&server, "disconnect", json!({"user": "ann", "rate": 1})), reached(30));
    let codes = std::thread::spawn(move || clients.iter_mut().map(code).collect::<Vec<u16>>());
    server.stop();
    let codes = codes.join().expect("they are closed");
    assert!(codes.iter().filter(|code| **code == 3001).count() >= 28, "{codes:?}");
}

/// Every field of every command, in forms that are not valid.
#[test]
fn what_a_command_cannot_be_for_is_refused_with_its_field() {
    let server = one_node();
    let mut bystander = server.connected();
    let many: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    let cases = [
        ("users", json!([])),
        ("users", json!(many)),
        ("users", json!("ann")),
        ("users", json!([1])),
        ("users", json!([null])),
        ("users", json!(["a\u{0}"])),
        ("user", json!(["ann"])),
        ("user", json!("a\u{7}")),
        ("client", json!(7)),
        ("client", json!("\u{1}")),
        ("session", json!({})),
        ("session", json!("\u{1}")),
        ("rate", json!(0)),
        ("rate", json!(-1)),
        ("rate", json!(1.5)),
        ("rate", json!("1")),
        ("rate", json!(100_001)),
        ("rate", json!(1e30)),
    ];
    for operation in ["subscribe", "unsubscribe", "disconnect", "refresh", "send"] {
        for (field, value) in &cases {
            let mut body = json!({"channel": "news", "data": 1, "client": "x"});
            body[*field] = value.clone();
            let (_, text) = server.http(
                "POST",
                &format!("/api/{operation}"),
                &format!("X-API-Key: {}\r\n", KEY),
                &body.to_string(),
            );
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            let error = &answer["error"];
            assert_eq!((&error["code"], &error["field"]), (&json!(107), &json!(field)), "{operation} {body}: {text}");
        }
        let both = json!({"channel": "news", "data": 1, "user": "", "users": ["ann"]});
        assert_eq!(server.api(operation, both)["error"]["field"], "users", "{operation}");
        let nulls = json!({"channel": "news", "data": 1, "user": "nobody", "users": null, "client": null,
            "session": null, "rate": null});
        assert!(server.api(operation, nulls)["error"].is_null(), "{operation}");
        for nobody in
            [json!({}), json!({"user": null}), json!({"client": ""}), json!({"session": ""}), json!({"usr": "ann"})]
        {
            let mut body = json!({"channel": "news", "data": 1});
            body.as_object_mut().expect("an object").extend(nobody.as_object().expect("an object").clone());
            assert_eq!(server.api(operation, body)["error"]["field"], "user", "{operation} {nobody}");
        }
    }
    for (field, value) in [("scope", json!("a")), ("name", json!("a")), ("group", json!("a")), ("store_for", json!(1))]
    {
        let mut body = json!({"user": "ann", "data": 1});
        body[field] = value;
        assert_eq!(server.api("send", body)["error"]["field"], field);
    }
    assert_eq!(server.api("send", json!({"user": "ann"}))["error"]["field"], "data");
    for body in [
        json!({"data": 1, "rate": 5}),
        json!({"data": 1, "rate": 5, "user": null, "client": "", "session": ""}),
        json!({"data": 1, "rate": 5, "scope": "devices", "name": "bike-7"}),
    ] {
        let error = server.api("send", body.clone())["error"].clone();
        assert_eq!((&error["code"], &error["field"]), (&json!(107), &json!("rate")), "{body}: {error}");
    }
    is_served(&mut bystander);
    until_eq(0, || server.metric("touchline_panics_total"));
}

#[test]
fn nodes_add_up_what_they_have_reached_and_name_who_is_silent() {
    let nats = NatsServer::start(JETSTREAM);
    let (_link, [one, two]) = cluster(&nats);
    let (mut here, _) = client(&one, "ann");
    let (mut there, there_id) = client(&two, "ann");
    let (mut eve, eve_session) = streaming(&two, "eve");
    let of = |one: u64, two: u64| json!({"result": {"connections": one + two, "nodes": {"one": one, "two": two}}});
    assert_eq!(named(&one, "subscribe", json!({"users": ["ann", "bob"], "channel": "news"})), of(1, 1));
    let sent = json!({"result": {"sent": 2, "nodes": {"one": 1, "two": 1}}});
    assert_eq!(named(&one, "send", json!({"user": "ann", "data": 1})), sent);
    assert_eq!((message(&mut here)["data"].clone(), message(&mut there)["data"].clone()), (json!(1), json!(1)));
    assert_eq!(named(&one, "disconnect", json!({"session": eve_session})), of(0, 1));
    assert!(to_the_end(&mut eve).contains("\"code\":3503"));
    assert_eq!(named(&one, "disconnect", json!({"client": there_id})), of(0, 1));
    assert_eq!(code(&mut there), 3503);
    let (mut again, _) = client(&two, "ann");
    assert_eq!(named(&one, "disconnect", json!({"users": ["ann"], "rate": 50})), of(1, 1));
    assert_eq!((code(&mut here), code(&mut again)), (3503, 3503));
    // A command for one user without new fields works as before.
    let (mut old, _) = client(&two, "ann");
    assert_eq!(one.api("disconnect", json!({"user": "ann"})), json!({"result": {}}));
    assert_eq!(code(&mut old), 3503);
    let nodes = one.api("info", json!({}))["result"]["nodes"].clone();
    let two_id = nodes.as_array().and_then(|all| all.iter().find(|node| node["name"] == "two")).expect("a node");
    nats.stand_still(true);
    let alone = one.api("disconnect", json!({"users": ["ann"]}));
    nats.stand_still(false);
    assert_eq!(alone["result"]["missing_nodes"], json!([two_id["uid"]]), "{alone}");
}
