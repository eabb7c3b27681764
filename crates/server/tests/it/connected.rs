//! Which clients are connected: `connections`, `get_user_status` and pages of `channels`, on one node and on several.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};
use touchline_server::{ApiKeySettings, NamedApiKey, ScopeOptions};
use touchline_testkit::websocket::WebSocket;
use touchline_testkit::{until, until_eq};

use super::bans::connected;
use super::support::{TestServer, token};

/// The result of a call, which must succeed.
pub(crate) fn result(server: &TestServer, operation: &str, body: Value) -> Value {
    let reply = server.api(operation, body.clone());
    assert!(reply["result"].is_object(), "{operation} {body}: {reply}");
    reply["result"].clone()
}

fn client_id(websocket: &mut WebSocket, connect: Value) -> String {
    let reply = websocket.ask(json!({"id": 1, "connect": connect}));
    reply["connect"]["client"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// Connects a client of a user. Returns it with its client id.
pub(crate) fn of_user(server: &TestServer, claims: Value, more: Value) -> (WebSocket, String) {
    let mut websocket = server.websocket();
    let mut connect = more;
    if claims.is_object() {
        connect["token"] = token(claims).into();
    }
    let id = client_id(&mut websocket, connect);
    (websocket, id)
}

pub(crate) fn subscribe(client: &mut WebSocket, channel: &str) {
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": channel}}));
    assert!(reply["subscribe"].is_object(), "{reply}");
}

/// The client ids in an answer.
pub(crate) fn ids(answer: &Value) -> BTreeSet<String> {
    answer["connections"].as_object().unwrap_or_else(|| panic!("{answer}")).keys().cloned().collect()
}

/// The client ids on all pages. A busy node ends a page early, so there may be more than one.
pub(crate) fn found(server: &TestServer, mut body: Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let answer = result(server, "connections", body.clone());
        assert!(answer["missing_nodes"].is_null(), "{answer}");
        found.extend(ids(&answer));
        if answer["cursor"].is_null() {
            return found;
        }
        body["cursor"] = answer["cursor"].clone();
    }
}

pub(crate) fn set<'a>(ids: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
    ids.into_iter().cloned().collect()
}

/// All pages of a list, as the client ids of each page.
pub(crate) fn pages(server: &TestServer, body: &Value, mut between: impl FnMut()) -> Vec<BTreeSet<String>> {
    let (mut all, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let mut body = body.clone();
        body["cursor"] = cursor;
        let answer = result(server, "connections", body);
        all.push(ids(&answer));
        cursor = answer["cursor"].clone();
        if cursor.is_null() {
            return all;
        }
        between();
    }
}

#[test]
fn a_connection_is_found_by_whatever_names_it_and_told_with_what_is_known() {
    let server = TestServer::with(|settings| settings.node.shards = 3);
    let claims = json!({"sub": "ann", "iat": 1_700_000_000, "labels": {"plan": "pro"}});
    let (mut phone, phone_id) = of_user(&server, claims, json!({"name": "js", "version": "5.1"}));
    let (_laptop, laptop_id) = of_user(&server, json!({"sub": "ann"}), json!({}));
    let (_bob, bob_id) = of_user(&server, json!({"sub": "bob"}), json!({"name": "go"}));
    let (mut nobody, nobody_id) = of_user(&server, Value::Null, json!({}));
    let mut silent = server.websocket();
    subscribe(&mut phone, "news");
    subscribe(&mut phone, "other");
    subscribe(&mut nobody, "news");
    result(&server, "subscribe", json!({"user": "ann", "channel": "given", "client": phone_id}));
    let all = set([&phone_id, &laptop_id, &bob_id, &nobody_id]);
    for (body, expected) in [
        (json!({}), all.clone()),
        (json!({"user": null, "users": null, "client": null, "channel": null, "cursor": null, "limit": null}), all),
        (json!({"user": "ann"}), set([&phone_id, &laptop_id])),
        (json!({"user": ""}), set([&nobody_id])),
        (json!({"user": "eve"}), set([])),
        (json!({"users": ["bob", "", "bob", "eve"]}), set([&bob_id, &nobody_id])),
        (json!({"client": bob_id}), set([&bob_id])),
        (json!({"client": bob_id.to_uppercase()}), set([&bob_id])),
        (json!({"client": "5b23579a-9066-444b-bfc3-000100000000"}), set([])),
        (json!({"client": "5b23579a-9066-444b-bfc3-0fff7fffffff"}), set([])),
        (json!({"session": "bm90aGluZw"}), set([])),
        (json!({"channel": "news"}), set([&phone_id, &nobody_id])),
        (json!({"channel": "nothing"}), set([])),
    ] {
        assert_eq!(found(&server, body.clone()), expected, "{body}");
    }
    let answer = result(&server, "connections", json!({"client": phone_id}));
    let told = &answer["connections"][&phone_id];
    let state = json!({
        "channels": {"news": {}, "other": {}, "given": {"server_side": true}},
        "connection_token": {"issued_at": 1_700_000_000},
    });
    let expected = json!({
        "app_name": "js", "app_version": "5.1", "transport": "websocket", "protocol": "json", "user": "ann",
        "state": state, "connected_at_ms": told["connected_at_ms"], "ping_pong_latency_ms": -1,
        "labels": {"plan": "pro"}, "address": "127.0.0.1", "queued_bytes": 0, "node": told["node"],
    });
    assert_eq!(told, &expected);
    let now_ms = super::bans::now_s() * 1_000;
    assert!(told["connected_at_ms"].as_u64().is_some_and(|at| at.abs_diff(now_ms) < 120_000), "{told}");
    assert_eq!(told["node"], result(&server, "info", json!({}))["nodes"][0]["uid"]);
    // A list by channel does not show the other channels.
    let of_channel = result(&server, "connections", json!({"channel": "news"}));
    assert_eq!(of_channel["connections"][&phone_id]["state"]["channels"], json!({"news": {}}));
    assert_eq!(client_id(&mut silent, json!({})).len(), 36);
    drop(phone);
    until("clients that are gone are not listed", || found(&server, json!({"channel": "news"})) == set([&nobody_id]));
}

#[test]
fn names_and_groups_are_told_of_who_holds_them() {
    let server = TestServer::with(|settings| {
        super::registry::devices(settings);
        settings.registry.scopes.push(ScopeOptions {
            name: "second".into(),
            client_entries_limit: 1_000,
            ..ScopeOptions::default()
        });
    });
    let (mut ann, ann_id) = of_user(&server, json!({"sub": "ann"}), json!({}));
    let (bob, bob_id) = of_user(&server, json!({"sub": "bob"}), json!({}));
    subscribe(&mut ann, "news");
    let told = |body: Value, id: &str| result(&server, "connections", body)["connections"][id].clone();
    assert_eq!(told(json!({}), &ann_id)["names"], Value::Null, "the registry is empty");
    let act = |operation: &str, body: Value| result(&server, operation, body);
    for name in ["bike-1", "bike-2"] {
        act("register", json!({"scope": "devices", "name": name, "client": ann_id}));
    }
    act("join", json!({"scope": "devices", "group": "bikes", "client": ann_id}));
    act("register", json!({"scope": "second", "name": "ann", "client": ann_id}));
    act("join", json!({"scope": "second", "group": "bikes", "client": bob_id}));
    let (names, groups) = (
        json!([
            {"scope": "devices", "name": "bike-2"},
            {"scope": "devices", "name": "bike-1"},
            {"scope": "second", "name": "ann"},
        ]),
        json!([{"scope": "devices", "group": "bikes"}]),
    );
    for body in [json!({}), json!({"user": "ann"}), json!({"client": ann_id})] {
        let ann = told(body, &ann_id);
        assert_eq!((&ann["names"], &ann["groups"]), (&names, &groups), "{ann}");
        assert!(ann["entries_truncated"].is_null(), "{ann}");
    }
    let of_bob = told(json!({}), &bob_id);
    let expected = (&Value::Null, &json!([{"scope": "second", "group": "bikes"}]));
    assert_eq!((&of_bob["names"], &of_bob["groups"]), expected, "{of_bob}");
    let by_channel = told(json!({"channel": "news"}), &ann_id);
    assert_eq!((&by_channel["names"], &by_channel["groups"]), (&Value::Null, &Value::Null), "{by_channel}");
    // A name moves to another connection, and many more names are registered.
    act("register", json!({"scope": "devices", "name": "bike-1", "client": bob_id, "policy": "newest"}));
    for number in 0..70 {
        act("register", json!({"scope": "second", "name": format!("n{number}"), "client": bob_id}));
    }
    assert_eq!(told(json!({}), &ann_id)["names"], json!([{"scope": "devices", "name": "bike-2"}, names[2]]));
    let of_bob = told(json!({}), &bob_id);
    assert_eq!(of_bob["names"].as_array().map(Vec::len), Some(64), "{of_bob}");
    assert_eq!(of_bob["names"][0], json!({"scope": "devices", "name": "bike-1"}));
    assert_eq!(of_bob["entries_truncated"], 8);
    drop(bob);
    until("clients that are gone are not listed", || told(json!({}), &bob_id).is_null());
}

#[test]
fn a_session_is_found_by_its_own_secret_which_no_answer_tells() {
    let server = TestServer::with(|settings| settings.http_stream.enabled = true);
    let head = "POST /connection/http_stream HTTP/1.1\r\nHost: test\r\nContent-Length: 21\r\n\r\n";
    let mut socket = server.socket();
    std::io::Write::write_all(&mut socket, format!("{head}{}", r#"{"id":1,"connect":{}}"#).as_bytes())
        .expect("the server listens");
    touchline_testkit::http::head_of(&mut socket);
    let reply = touchline_testkit::http::up_to("\n", &mut socket);
    let reply: Value = serde_json::from_str(&reply).expect("JSON");
    let (client, session) = (&reply["connect"]["client"], reply["connect"]["session"].as_str().expect("a session"));
    let answer = result(&server, "connections", json!({"session": session}));
    assert_eq!(
        answer["connections"].as_object().map(|all| all.keys().cloned().collect()),
        Some(vec![client.as_str().expect("an id").to_owned()])
    );
    assert!(!answer.to_string().contains(session), "{answer}");
    assert_eq!(answer["connections"][client.as_str().unwrap_or_default()]["transport"], "http_stream");
    assert_eq!(found(&server, json!({"session": session, "transport": "http_stream"})).len(), 1);
    assert_eq!(found(&server, json!({"session": session, "transport": "websocket"})).len(), 0);
}

#[test]
fn filters_narrow_every_selection() {
    let server = TestServer::with(|settings| {
        settings.http_server.trusted_proxies = vec!["127.0.0.0/8".into()];
        settings.node.shards = 2;
    });
    let behind = |address: &str, claims: Value, more: Value| {
        let mut websocket = server.socket();
        let handshake = touchline_testkit::websocket::handshake(&format!("X-Forwarded-For: {address}\r\n"));
        std::io::Write::write_all(&mut websocket, handshake.as_bytes()).expect("the server listens");
        touchline_testkit::http::head_of(&mut websocket);
        let (mut websocket, mut connect) = (WebSocket::from(websocket), more);
        connect["token"] = token(claims).into();
        let id = client_id(&mut websocket, connect);
        (websocket, id)
    };
    let pro = json!({"sub": "ann", "labels": {"plan": "pro", "age": "7"}});
    let (_a, a) = behind("192.0.2.7", pro, json!({"name": "js", "version": "1"}));
    let (_b, b) = behind("192.0.3.7", json!({"sub": "ann"}), json!({"name": "js", "version": "2"}));
    let (_c, c) = behind("2001:db8::5", json!({"sub": "bob", "labels": {"plan": "free"}}), json!({"name": "go"}));
    let plan = |cmp: &str, val: &str| json!({"key": "plan", "cmp": cmp, "val": val});
    for (filter, expected) in [
        (json!({"program": "js"}), set([&a, &b])),
        (json!({"version": "2"}), set([&b])),
        (json!({"program": "js", "version": "1"}), set([&a])),
        (json!({"program": "go", "version": "1"}), set([])),
        (json!({"transport": "websocket"}), set([&a, &b, &c])),
        (json!({"transport": "sse"}), set([])),
        (json!({"address": "192.0.2.7"}), set([&a])),
        (json!({"address": "192.0.2.0/23"}), set([&a, &b])),
        (json!({"address": "2001:db8::/32"}), set([&c])),
        (json!({"address": "::ffff:192.0.2.7"}), set([&a])),
        (json!({"address": "::ffff:192.0.2.0/119"}), set([&a, &b])),
        (json!({"address": "::ffff:0:0/96"}), set([&a, &b])),
        (json!({"address": "::/0"}), set([&c])),
        (json!({"address": "127.0.0.1"}), set([])),
        (json!({"label_filter": plan("eq", "pro")}), set([&a])),
        (json!({"label_filter": plan("ex", "")}), set([&a, &c])),
        (json!({"label_filter": {"op": "not", "nodes": [plan("ex", "")]}}), set([&b])),
        (json!({"label_filter": {"key": "age", "cmp": "gt", "val": "5"}, "program": "js"}), set([&a])),
        (json!({"label_filter": null, "program": null, "transport": null, "address": null}), set([&a, &b, &c])),
    ] {
        assert_eq!(found(&server, filter.clone()), expected, "{filter}");
        let mut of_ann = filter;
        of_ann["user"] = "ann".into();
        let expected: BTreeSet<String> = expected.intersection(&set([&a, &b])).cloned().collect();
        assert_eq!(found(&server, of_ann.clone()), expected, "{of_ann}");
    }
    let told = result(&server, "connections", json!({"client": c}))["connections"][&c].clone();
    assert_eq!((&told["address"], &told["labels"]), (&json!("2001:db8::5"), &json!({"plan": "free"})));
}

#[test]
fn bad_input_is_refused_with_its_field() {
    let server = TestServer::with(|settings| settings.channel.tags_filter_max_nodes = 3);
    let _client = server.connected();
    let _other = server.connected();
    let many: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    let cursor = result(&server, "connections", json!({"limit": 1}))["cursor"].clone();
    assert!(cursor.is_string());
    let deep = json!({"op": "and", "nodes": vec![json!({"key": "a", "cmp": "ex"}); 3]});
    for (operation, body, field) in [
        ("connections", json!({"user": "a", "users": ["a"]}), "users"),
        ("connections", json!({"user": "", "client": "5b23579a-9066-444b-bfc3-000100000000"}), "client"),
        ("connections", json!({"session": "a", "channel": "a"}), "channel"),
        ("connections", json!({"client": ""}), "client"),
        ("connections", json!({"session": ""}), "session"),
        ("connections", json!({"channel": ""}), "channel"),
        ("connections", json!({"user": "a", "channel": ""}), "channel"),
        ("connections", json!({"users": []}), "users"),
        ("connections", json!({"users": many}), "users"),
        ("connections", json!({"client": "x"}), "client"),
        ("connections", json!({"transport": "carrier"}), "transport"),
        ("connections", json!({"address": "192.0.2.7/33"}), "address"),
        ("connections", json!({"address": "here"}), "address"),
        ("connections", json!({"label_filter": {"cmp": "eq"}}), "label_filter"),
        ("connections", json!({"label_filter": {"key": "a", "cmp": "like"}}), "label_filter"),
        ("connections", json!({"label_filter": deep}), "label_filter"),
        ("connections", json!({"limit": 0}), "limit"),
        ("connections", json!({"limit": 1_001}), "limit"),
        ("connections", json!({"cursor": "x"}), "cursor"),
        ("connections", json!({"cursor": "e30"}), "cursor"),
        ("connections", json!({"cursor": cursor, "user": "ann"}), "cursor"),
        ("connections", json!({"cursor": "A".repeat(70_000)}), "cursor"),
        ("get_user_status", json!({}), "users"),
        ("get_user_status", json!({"users": []}), "users"),
        ("get_user_status", json!({"users": many}), "users"),
        ("channels", json!({"limit": 0}), "limit"),
        ("channels", json!({"limit": 1_001}), "limit"),
        ("channels", json!({"cursor": "a"}), "limit"),
    ] {
        let error = &server.api(operation, body.clone())["error"];
        assert_eq!((&error["code"], &error["field"]), (&json!(107), &json!(field)), "{operation} {body}: {error}");
    }
    for body in
        [json!({"user": 7}), json!({"users": "a"}), json!({"limit": -1}), json!({"label_filter": []}), json!([])]
    {
        let header = format!("X-API-Key: {}\r\n", super::support::KEY);
        let (status, answer) = server.http("POST", "/api/connections", &header, &body.to_string());
        assert_eq!(status, 400, "{body}: {answer}");
    }
    let next = result(&server, "connections", json!({"limit": 1, "cursor": cursor}));
    assert_eq!(next["connections"].as_object().map(|page| page.len()), Some(1), "its own list takes it");
}

#[test]
fn whoever_stays_is_told_once_while_others_come_and_go() {
    let server = TestServer::with(|settings| settings.node.shards = 3);
    let mut random = fastrand::Rng::with_seed(18);
    for seed in 0..6 {
        random.seed(seed);
        let mut staying = BTreeMap::new();
        let mut passing: Vec<(WebSocket, String)> = Vec::new();
        for n in 0..60 {
            let (mut client, id) = of_user(&server, json!({"sub": format!("u{}", n % 4)}), json!({}));
            if random.bool() {
                subscribe(&mut client, "news");
                staying.insert(id, client);
            } else {
                passing.push((client, id));
            }
        }
        let expected: BTreeSet<String> = staying.keys().cloned().collect();
        let limit = 1 + random.usize(..9);
        let users = json!({"limit": limit, "users": ["u0", "u1", "u2", "u3"]});
        for (body, is_exact) in
            [(json!({"limit": limit}), false), (users, false), (json!({"limit": limit, "channel": "news"}), true)]
        {
            let told = pages(&server, &body, || {
                if random.bool() && !passing.is_empty() {
                    passing.swap_remove(random.usize(..passing.len()));
                } else {
                    passing.push(of_user(&server, json!({"sub": "u1"}), json!({})));
                }
            });
            assert!(told.iter().all(|page| page.len() <= limit), "{body}");
            let mut times = BTreeMap::<&String, usize>::new();
            told.iter().flatten().for_each(|id| *times.entry(id).or_default() += 1);
            assert!(times.values().all(|times| *times == 1), "seed {seed}, {body}: told twice: {times:?}");
            let known: BTreeSet<String> = times.into_keys().cloned().collect();
            assert!(known.is_superset(&expected), "seed {seed}, {body}: somebody is left out");
            assert!(!is_exact || known == expected, "seed {seed}, {body}: a client outside the channel is listed");
        }
        drop((staying, passing));
        until("they are gone", || server.metric("touchline_connections") == 0);
    }
}

#[test]
fn a_user_and_a_channel_that_are_too_large_to_be_looked_up_are_told_whole() {
    let server = TestServer::with(|settings| settings.node.shards = 1);
    let mut clients: Vec<(WebSocket, String)> =
        (0..600).map(|_| of_user(&server, json!({"sub": "crowd"}), json!({}))).collect();
    clients.iter_mut().for_each(|(client, _)| subscribe(client, "crowd"));
    let (_lonely, _) = of_user(&server, json!({"sub": "lonely"}), json!({}));
    let expected = set(clients.iter().map(|(_, id)| id));
    for body in [json!({"user": "crowd"}), json!({"channel": "crowd"}), json!({"users": ["crowd", "nobody"]})] {
        for limit in [7, 250, 1_000] {
            let mut body = body.clone();
            body["limit"] = limit.into();
            let told = pages(&server, &body, || {});
            assert_eq!(told.iter().map(BTreeSet::len).sum::<usize>(), 600, "{body}");
            assert_eq!(told.into_iter().flatten().collect::<BTreeSet<_>>(), expected, "{body}");
        }
    }
}

#[test]
fn one_scan_at_a_time_and_lookups_beside_it() {
    let server = TestServer::with(|settings| settings.node.shards = 2);
    let _clients: Vec<_> = (0..40).map(|n| connected(&server, json!({"sub": format!("u{n}")}))).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let answer = server.api("connections", json!({"limit": 1_000}));
                    let code = answer["error"]["code"].as_u64();
                    assert!(code.is_none_or(|code| code == 111), "{answer}");
                    if code.is_some() {
                        is_over.store(true, Relaxed);
                    }
                    // A lookup of a user is answered meanwhile.
                    assert_eq!(found(&server, json!({"user": "u7"})).len(), 1);
                }
            });
        }
        until("two scans meet", || is_over.load(Relaxed));
    });
    until("a scan is free again", || server.api("connections", json!({}))["result"].is_object());
}

#[test]
fn of_very_many_channels_some_are_listed_and_the_rest_is_counted() {
    let server = TestServer::with(|settings| settings.client.channel_limit = 300);
    let (mut client, id) = of_user(&server, json!({"sub": "ann"}), json!({}));
    (0..150).for_each(|n| subscribe(&mut client, &format!("news-\"{n}")));
    let state = result(&server, "connections", json!({"client": id}))["connections"][&id]["state"].clone();
    assert_eq!(state["channels"].as_object().map(|channels| channels.len()), Some(128));
    assert_eq!(state["channels_truncated"], 22);
    let state = result(&server, "connections", json!({"channel": "news-\"140"}))["connections"][&id]["state"].clone();
    assert_eq!(state, json!({"channels": {"news-\"140": {}}}));
}

#[test]
fn connections_with_more_subscriptions_than_a_turn_looks_at_are_all_told() {
    let server = TestServer::with(|settings| {
        settings.client.channel_limit = 3_000;
        settings.node.shards = 1;
    });
    let mut clients: Vec<_> = (0..8).map(|_| of_user(&server, json!({"sub": "ann"}), json!({}))).collect();
    for (client, _) in &mut clients {
        for first in (10..2_510).step_by(100) {
            let commands = (first..first + 100).map(|id| json!({"id": id, "subscribe": {"channel": format!("c{id}")}}));
            client.send(&commands.map(|command| command.to_string()).collect::<Vec<_>>().join("\n"));
            while client.message()["id"] != first + 99 {}
        }
    }
    let everybody = set(clients.iter().map(|(_, id)| id));
    for body in [json!({}), json!({"channel": "c2509"}), json!({"user": "ann"})] {
        for limit in [3, 1_000] {
            let mut body = body.clone();
            body["limit"] = limit.into();
            let told = pages(&server, &body, || {});
            assert_eq!(told.iter().map(BTreeSet::len).sum::<usize>(), 8, "{body}");
            assert_eq!(told.into_iter().flatten().collect::<BTreeSet<_>>(), everybody, "{body}");
        }
    }
    let told = result(&server, "connections", json!({}));
    for told in told["connections"].as_object().expect("connections").values() {
        assert_eq!(told["state"]["channels_truncated"], 2_500 - 128);
    }
}

#[test]
fn what_a_client_does_not_read_and_how_long_it_takes_to_answer_is_told() {
    let server = TestServer::with(|settings| {
        settings.client.ping_interval = std::time::Duration::from_secs(5);
        // Short: the test waits for the timeout.
        settings.client.pong_timeout = std::time::Duration::from_secs(4);
        settings.client.queue_max_size = 100_000_000;
    });
    let (mut client, id) = of_user(&server, json!({"sub": "ann"}), json!({}));
    let told = |name: &str| result(&server, "connections", json!({"client": id}))["connections"][&id][name].clone();
    subscribe(&mut client, "news");
    assert_eq!((told("ping_pong_latency_ms"), told("queued_bytes")), (json!(-1), json!(0)));
    assert_eq!(client.hear(), touchline_testkit::websocket::Heard::Text("{}".into()));
    client.send("{}");
    until("a ping is answered", || told("ping_pong_latency_ms").as_i64().is_some_and(|latency| latency >= 0));
    let data = json!("x".repeat(500_000));
    until("its socket is full", || {
        server.publish("news", data.clone());
        told("queued_bytes").as_u64().is_some_and(|queued| queued > 100_000)
    });
}

#[test]
fn a_key_that_is_limited_to_channels_asks_for_these_alone() {
    let server = TestServer::with(|settings| {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let options = ApiKeySettings {
            key: "key-of-news".into(),
            operations: texts(&["connections"]),
            channels: texts(&["news"]),
        };
        settings.http_api.keys.push(NamedApiKey { name: "news".into(), options });
    });
    let (mut client, _) = of_user(&server, json!({"sub": "ann"}), json!({}));
    subscribe(&mut client, "news");
    subscribe(&mut client, "secret");
    let ask = |body: Value| server.http("POST", "/api/connections", "X-API-Key: key-of-news\r\n", &body.to_string());
    let (status, answer) = ask(json!({"channel": "news"}));
    assert!(status == 200 && answer.contains("\"news\"") && !answer.contains("secret"), "{status} {answer}");
    for body in [json!({}), json!({"user": "ann"}), json!({"channel": "secret"}), json!({"channel": ""})] {
        assert_eq!(ask(body.clone()).0, 403, "{body}");
    }
}

#[test]
fn channels_come_in_pages_too() {
    let server = TestServer::with(|settings| settings.node.shards = 3);
    let mut client = server.connected();
    (0..25).for_each(|n| subscribe(&mut client, &format!("c{n:02}")));
    let all = result(&server, "channels", json!({}));
    assert_eq!((all["channels"].as_object().map(|all| all.len()), &all["cursor"]), (Some(25), &Value::Null));
    let (mut names, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = result(&server, "channels", json!({"pattern": "c*", "limit": 10, "cursor": cursor}));
        names.extend(page["channels"].as_object().expect("channels").keys().cloned());
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
        assert_eq!(names.len() % 10, 0);
    }
    assert_eq!(names, (0..25).map(|n| format!("c{n:02}")).collect::<Vec<_>>());
}

/// The status of a user, as the server API returns it.
fn status(server: &TestServer, user: &str) -> Value {
    result(server, "get_user_status", json!({"users": [user]}))["statuses"][0].clone()
}

/// Waits until a user is offline. Returns when the user was last online.
fn last_seen(server: &TestServer, user: &str) -> Option<u64> {
    until("the user is offline", || status(server, user)["is_online"] == false);
    status(server, user)["online"].as_u64()
}

#[test]
fn a_node_remembers_when_a_user_was_online_if_it_is_told_to() {
    for is_enabled in [false, true] {
        let server = TestServer::with(|settings| settings.user_status.enabled = is_enabled);
        let before_s = super::bans::now_s();
        let long = "x".repeat(256);
        for user in ["ann", &long] {
            drop(of_user(&server, json!({"sub": user}), json!({})));
        }
        let seen = last_seen(&server, "ann");
        assert_eq!(seen.is_some_and(|at| at + 1 >= before_s && at <= super::bans::now_s() + 1), is_enabled, "{seen:?}");
        assert_eq!(last_seen(&server, &long), None, "too long to be kept");
        assert_eq!(status(&server, "never"), json!({"user": "never", "is_online": false}));
    }
}

#[test]
fn when_a_user_was_online_survives_a_restart_in_sqlite_and_expires() {
    let directory = std::env::temp_dir().join(format!("touchline-seen-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let url = format!("sqlite:{}", directory.join("primary.db").display());
    let start = |expires: std::time::Duration| {
        TestServer::with(|settings| {
            settings.user_status.enabled = true;
            settings.user_status.use_primary = true;
            settings.user_status.expire_interval = expires;
            settings.store.primary.url = url.clone();
        })
    };
    let month = std::time::Duration::from_secs(30 * 86_400);
    let server = start(month);
    let (ann, _) = of_user(&server, json!({"sub": "ann"}), json!({}));
    drop(of_user(&server, json!({"sub": "bob"}), json!({})));
    let bob = last_seen(&server, "bob");
    assert!(bob.is_some());
    until_eq(0, || server.metric("touchline_user_status_dropped_total"));
    drop(server);
    drop(ann);
    let server = start(month);
    assert_eq!(last_seen(&server, "bob"), bob);
    assert!(last_seen(&server, "ann").is_some(), "the stop wrote the users that it disconnected");
    for user in ["a\0b", "", "eve"] {
        assert_eq!(status(&server, user), json!({"user": user, "is_online": false}));
    }
    drop(server);
    until("the time has expired", || last_seen(&start(std::time::Duration::from_secs(1)), "bob").is_none());
    let _ = std::fs::remove_dir_all(&directory);
}
