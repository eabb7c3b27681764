//! The registry with clients that ask for too much: they slow down only themselves, and no other client waits.

use serde_json::{Value, json};
use touchline_server::{ScopeOptions, Settings};
use touchline_testkit::websocket::{Heard, WebSocket};
use touchline_testkit::{until, until_eq};

use crate::support::{TestServer, token};

pub(crate) fn devices(settings: &mut Settings) {
    settings.registry.scopes.push(ScopeOptions {
        name: "devices".into(),
        allow_register: vec!["*".into()],
        allow_join: vec!["*".into()],
        allow_lookup_for_client: true,
        allow_send_for_client: true,
        allow_call_for_client: true,
        allow_for_anonymous: true,
        ..ScopeOptions::default()
    });
}

fn rpc(id: u32, method: &str, data: &Value) -> Value {
    json!({"id": id, "rpc": {"method": method, "data": data}})
}

fn ask(client: &mut WebSocket, id: u32, method: &str, data: &Value) -> Value {
    client.ask(rpc(id, method, data))
}

/// Clients that are members of a group.
fn group(server: &TestServer, name: &str, members: usize) -> Vec<WebSocket> {
    let mut clients: Vec<WebSocket> = (0..members).map(|_| server.connected()).collect();
    for client in &mut clients {
        let reply = ask(client, 2, "registry.join", &json!({"scope": "devices", "group": name}));
        assert!(reply["error"].is_null(), "{reply}");
    }
    clients
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4_096
}

#[test]
fn a_flood_of_questions_stops_nobody_else() {
    let server = TestServer::with(devices);
    let mut crowd: Vec<WebSocket> = (0..100).map(|_| server.connected()).collect();
    for client in &mut crowd {
        client.ask(json!({"id": 2, "subscribe": {"channel": "room:big"}}));
    }
    let mut flooder = server.connected();
    flooder.ask(json!({"id": 2, "subscribe": {"channel": "room:big"}}));
    let mut other = server.connected();
    other.ask(json!({"id": 2, "subscribe": {"channel": "room:quiet"}}));
    let command = |id: u32| match id % 30 {
        0 => json!({"id": id, "presence": {"channel": "room:big"}}).to_string(),
        _ => json!({"id": id, "presence_stats": {"channel": "room:big"}}).to_string(),
    };
    let flood: Vec<String> = (10..900).map(command).collect();
    flooder.send(&flood.join("\n"));
    for id in 10..30 {
        let stats = other.ask(json!({"id": id, "presence_stats": {"channel": "room:quiet"}}));
        assert_eq!(stats["presence_stats"], json!({"num_clients": 1, "num_users": 1}));
        until_eq(200, || server.http("GET", "/metrics", "", "").0);
        assert_eq!(server.http("GET", "/health", "", "").0, 200);
    }
    let stats = server.api("presence_stats", json!({"channel": "room:big"}));
    assert_eq!(stats["result"], json!({"num_clients": 101, "num_users": 1}));
    drop(flooder);
    until("the flooder is gone", || {
        server.api("presence_stats", json!({"channel": "room:big"}))["result"]["num_clients"] == 100
    });
    let shown = server.api("presence", json!({"channel": "room:big"}));
    assert_eq!(shown["result"]["presence"].as_object().map(|shown| shown.len()), Some(100));
}

#[test]
fn a_message_to_a_group_is_kept_once() {
    const MEMBERS: usize = 200;
    const MESSAGES: u32 = 14;
    let server = TestServer::with(devices);
    let mut members = group(&server, "all", MEMBERS);
    let mut sender = server.connected();
    let text = "x".repeat(60_000);
    let before = resident_bytes();
    for id in 0..MESSAGES {
        let data = json!({"scope": "devices", "group": "all", "data": {"number": id, "text": text}});
        let reply = ask(&mut sender, 10 + id, "registry.send", &data);
        assert_eq!(reply["rpc"]["data"], json!({"sent": MEMBERS}));
    }
    // When the last member has read it, every member has it in its socket.
    let mut last = members.pop().expect("a member");
    for number in 0..MESSAGES {
        assert_eq!(last.message()["push"]["message"]["data"]["data"]["number"], number);
    }
    let grown = resident_bytes().saturating_sub(before);
    let copies = MEMBERS * MESSAGES as usize * text.len();
    assert!(grown < copies / 2, "{grown} bytes more, {copies} if each member had a copy");
    for member in &mut members {
        for number in 0..MESSAGES {
            assert_eq!(member.message()["push"]["message"]["data"]["data"]["number"], number, "in order");
        }
    }
}

#[test]
fn what_one_client_does_is_seen_in_order() {
    let server = TestServer::with(devices);
    let mut members = group(&server, "all", 3);
    let mut sender = server.connected();
    let mut commands = Vec::new();
    let of_group = |number: u32| json!({"scope": "devices", "group": "all", "data": number});
    commands.push(rpc(2, "registry.join", &json!({"scope": "devices", "group": "all"})));
    commands.push(rpc(3, "registry.send", &of_group(1)));
    commands.push(rpc(4, "registry.register", &json!({"scope": "devices", "name": "me"})));
    commands.push(rpc(5, "registry.send", &json!({"scope": "devices", "name": "me", "data": 2})));
    commands.push(rpc(6, "registry.send", &of_group(3)));
    commands.push(rpc(7, "registry.leave", &json!({"scope": "devices", "group": "all"})));
    commands.push(rpc(8, "registry.send", &of_group(4)));
    sender.send(&commands.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
    let (mut heard, mut replies) = (Vec::new(), 0);
    while heard.len() < 3 || replies < commands.len() {
        let message = sender.message();
        match message["push"]["message"]["data"]["data"].as_u64() {
            Some(number) => heard.push(number),
            None => replies += 1,
        }
    }
    assert_eq!(heard, [1, 2, 3], "a member from its join to its leave");
    for member in &mut members {
        let heard: Vec<Value> = (0..3).map(|_| member.message()["push"]["message"]["data"]["data"].clone()).collect();
        assert_eq!(heard, [1, 3, 4]);
    }
}

#[test]
fn a_message_to_a_group_comes_behind_the_connect_reply() {
    let server = TestServer::with(devices);
    let claims = json!({"sub": "ann", "groups": [{"scope": "devices", "name": "all"}]});
    for _ in 0..20 {
        let mut client = server.websocket();
        client.send_json(json!({"id": 1, "connect": {"token": token(claims.clone())}}));
        server.api("send", json!({"scope": "devices", "group": "all", "data": 1}));
        assert!(client.message()["connect"].is_object(), "the reply comes first");
    }
}

#[test]
fn a_callers_calls_are_bounded_and_end_with_it() {
    let server = TestServer::with(|settings| {
        devices(settings);
        settings.registry.scopes[0].client_calls_limit = 5;
    });
    let mut callees = group(&server, "all", 3);
    let mut caller = server.connected();
    let call = json!({"scope": "devices", "group": "all", "data": 1, "timeout_ms": 60_000});
    caller.send_json(rpc(2, "registry.multi_call", &call));
    for callee in &mut callees {
        assert!(callee.message()["push"]["message"]["data"]["call"].is_u64());
    }
    assert_eq!(ask(&mut caller, 3, "registry.multi_call", &call)["error"]["code"], 4007);
    until("the calls are counted", || server.metric("touchline_calls_waiting") == 3);
    drop(caller);
    until("the calls are forgotten", || server.metric("touchline_calls_waiting") == 0);
}

/// Every method that names a scope.
const SCOPED: [&str; 15] = [
    "register",
    "unregister",
    "update_meta",
    "lookup",
    "names",
    "count",
    "join",
    "leave",
    "members",
    "member",
    "groups",
    "changes",
    "send",
    "call",
    "multi_call",
];

#[test]
fn the_servers_own_scopes_are_out_of_reach() {
    let server = TestServer::with(|settings| {
        devices(settings);
        settings.client.insecure = true;
    });
    let (mut client, reply) = connect(&server, json!({"sub": "ann"}));
    let client_id = reply["connect"]["client"].clone();
    client.ask(json!({"id": 2, "subscribe": {"channel": "room:a"}}));
    for (id, method) in (3..).zip(SCOPED) {
        for scope in ["$presence", "$registry", "$"] {
            // A message to a group is not a message to a client.
            let named = if method == "send" { Value::Null } else { client_id.clone() };
            let mut params = json!({"scope": scope, "data": 1, "meta": 1, "limit": 1, "client": named});
            let is_named = ["register", "unregister", "update_meta", "lookup"].contains(&method);
            params[if is_named { "name" } else { "group" }] = json!("room:a");
            assert_eq!(
                ask(&mut client, id, &format!("registry.{method}"), &params)["error"]["code"],
                4003,
                "{method} {scope}"
            );
            assert_eq!(server.api(method, params)["error"]["code"], 4003, "{method} {scope}");
        }
    }
    let stats = server.api("presence_stats", json!({"channel": "room:a"}));
    assert_eq!(stats["result"]["num_clients"], 1, "it has not hidden");
    for claims in [
        json!({"sub": "a", "groups": [{"scope": "$presence", "name": "room:a"}]}),
        json!({"sub": "a", "names": [{"scope": "$presence", "name": "room:a"}]}),
        json!({"sub": "a", "names": [{"scope": "devices", "name": "nul\u{0}"}]}),
    ] {
        let mut client = server.websocket();
        client.send_json(json!({"id": 1, "connect": {"token": token(claims)}}));
        assert!(matches!(client.close(), Heard::Close(3501, _)));
    }
    for odd in ["nul\u{0}", "line\n", "\u{85}"] {
        let params = json!({"scope": "devices", "name": odd, "data": 1});
        assert_eq!(ask(&mut client, 40, "registry.send", &params)["error"]["code"], 107);
        assert_eq!(server.api("send", params)["error"]["code"], 107);
    }
    let mut settings = crate::support::settings();
    settings.registry.scopes.push(ScopeOptions { name: "$presence".into(), ..ScopeOptions::default() });
    assert!(touchline_server::Server::bind(settings).is_err());
}

/// Connects a client with a token of these claims. Returns it with the answer to its connect.
fn connect(server: &TestServer, claims: Value) -> (WebSocket, Value) {
    let mut client = server.websocket();
    client.send_json(json!({"id": 1, "connect": {"token": token(claims)}}));
    let reply = client.message();
    (client, reply)
}

#[test]
fn a_token_gets_all_of_its_names_and_groups_or_none() {
    let server = TestServer::with(|settings| {
        devices(settings);
        let exclusive = ScopeOptions {
            name: "rooms".into(),
            conflict_policy: touchline_server::ConflictPolicy::Reject,
            ..ScopeOptions::default()
        };
        settings.registry.scopes.push(exclusive);
    });
    let name = |scope: &str, name: &str| json!({"scope": scope, "name": name});
    let (mut ann, _) = connect(&server, json!({"sub": "ann", "names": [name("devices", "phone")]}));
    let (bob, _) = connect(&server, json!({"sub": "bob", "names": [name("rooms", "stage")]}));
    let claims = json!({
        "sub": "cat",
        "names": [name("devices", "phone"), name("rooms", "stage")],
        "groups": [{"scope": "devices", "group": "all"}],
        "channels": ["room:cats"],
    });
    for _ in 0..5 {
        let (_, reply) = connect(&server, claims.clone());
        assert_eq!(reply["error"]["code"], 4001, "{reply}");
        assert_eq!(server.api("members", json!({"scope": "devices", "group": "all"}))["result"]["count"], 0);
        assert_eq!(server.api("presence_stats", json!({"channel": "room:cats"}))["result"]["num_clients"], 0);
    }
    let about = |id: u32, name: &str| rpc(id, "registry.lookup", &json!({"scope": "devices", "name": name}));
    let phone = ann.ask(about(2, "phone"));
    assert!(phone["rpc"]["data"]["client"].is_string(), "the first that the owner hears is this answer: {phone}");
    // The refused connections are still open, and their end must not take names from other clients either.
    drop(bob);
    until("the name is free", || server.api("lookup", name("rooms", "stage"))["error"]["code"] == 4002);
    let (cat, reply) = connect(&server, claims);
    assert!(reply["connect"]["subs"]["room:cats"].is_object(), "{reply}");
    assert_eq!(ann.message()["push"]["message"]["data"]["lost"]["name"], "phone");
    assert_eq!(server.api("members", json!({"scope": "devices", "group": "all"}))["result"]["count"], 1);
    assert_eq!(server.api("presence_stats", json!({"channel": "room:cats"}))["result"]["num_clients"], 1);
    drop(cat);
    until("all is given back", || {
        server.api("presence_stats", json!({"channel": "room:cats"}))["result"]["num_clients"] == 0
            && server.api("lookup", name("devices", "phone"))["error"]["code"] == 4002
    });
}

#[test]
fn a_token_with_a_channel_that_cannot_be_takes_no_name() {
    let server = TestServer::with(devices);
    let (mut ann, _) = connect(&server, json!({"sub": "ann", "names": [{"scope": "devices", "name": "phone"}]}));
    let claims = json!({"sub": "cat", "names": [{"scope": "devices", "name": "phone"}], "channels": ["nowhere:a"]});
    let mut cat = server.websocket();
    cat.send_json(json!({"id": 1, "connect": {"token": token(claims)}}));
    assert!(matches!(cat.close(), Heard::Close(3501, _)));
    let phone = ann.ask(rpc(2, "registry.lookup", &json!({"scope": "devices", "name": "phone"})));
    assert!(phone["rpc"]["data"]["client"].is_string(), "{phone}");
}

#[test]
fn null_is_a_message_and_an_answer() {
    let server = TestServer::with(devices);
    let (mut callee, mut caller) = (server.connected(), server.connected());
    ask(&mut callee, 2, "registry.register", &json!({"scope": "devices", "name": "a"}));
    for (id, answer) in (3..).zip([json!({"data": null}), json!({})]) {
        caller.send_json(rpc(id, "registry.call", &json!({"scope": "devices", "name": "a", "data": null})));
        let call = callee.message()["push"]["message"]["data"].clone();
        assert_eq!(call.get("data"), Some(&Value::Null));
        let mut reply = answer.clone();
        reply["call"] = call["call"].clone();
        assert!(ask(&mut callee, id, "reply", &reply)["error"].is_null());
        assert_eq!(caller.message()["rpc"]["data"], json!({"data": null}), "{answer}");
    }
}

#[test]
fn a_backends_call_is_answered_before_its_request_is_cut() {
    let server = TestServer::with(|settings| {
        devices(settings);
        // Short: the test waits for the timeout.
        settings.http_server.request_timeout = std::time::Duration::from_millis(1_500);
    });
    let mut mute = server.connected();
    ask(&mut mute, 2, "registry.register", &json!({"scope": "devices", "name": "mute"}));
    for method in ["call", "multi_call"] {
        let answer = server.api(method, json!({"scope": "devices", "name": "mute", "data": 1, "timeout_ms": 60_000}));
        assert_eq!(answer["error"]["code"], 4005, "{method}");
    }
}
