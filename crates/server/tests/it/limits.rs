//! Rates of commands: each layer, what replaces a rate, commands that wait, and that none of it grows without bound.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{
    BucketBlock, ChannelOptions, CommandLimitSettings, Namespace, OnLimit, RateBucket, RateBuckets, RateOverride,
    Settings, SharedCommandLimitSettings,
};
use touchline_testkit::http::{head_of, up_to};
use touchline_testkit::websocket::{Heard, WebSocket, handshake};
use touchline_testkit::{until, until_eq};

use crate::backend::{Answer, Backend};
use crate::support::{TestServer, open, token};

/// This many in an hour, so that none comes back within a test.
pub(crate) fn rate(rate: u32) -> RateBuckets {
    every(Duration::from_secs(3_600), rate)
}

pub(crate) fn every(interval: Duration, rate: u32) -> RateBuckets {
    RateBuckets(vec![RateBucket { interval, rate }])
}

pub(crate) fn block(rate: u32) -> BucketBlock {
    BucketBlock { enabled: true, buckets: self::rate(rate) }
}

pub(crate) fn each(rate: u32) -> CommandLimitSettings {
    CommandLimitSettings { enabled: true, default: block(rate), ..CommandLimitSettings::default() }
}

fn shared(rate: u32) -> SharedCommandLimitSettings {
    SharedCommandLimitSettings { commands: each(rate), ..SharedCommandLimitSettings::default() }
}

/// A server with a namespace `seen`, whose counts every client may ask for.
pub(crate) fn start(change: impl FnOnce(&mut Settings)) -> TestServer {
    TestServer::with(|settings| {
        let options = ChannelOptions {
            presence: true,
            allow_presence_for_client: true,
            allow_presence_for_anonymous: true,
            ..open()
        };
        settings.channel.namespaces.push(Namespace { name: "seen".into(), options });
        change(settings);
    })
}

/// Connects a user. Returns the shard of the connection, too.
pub(crate) fn connected(server: &TestServer, user: &str) -> (WebSocket, String) {
    let mut socket = server.websocket();
    let reply = socket.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}}));
    let client = reply["connect"]["client"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    // The last six bytes of a client id are its shard and its slot.
    (socket, client[client.len() - 12..client.len() - 8].to_owned())
}

/// The code of the error of a reply; 0 = there is none.
pub(crate) fn code(reply: &Value) -> u64 {
    reply["error"]["code"].as_u64().unwrap_or(0)
}

/// Sends the same command repeatedly. Returns the codes of the replies.
pub(crate) fn codes(socket: &mut WebSocket, command: &Value, times: u64) -> Vec<u64> {
    let asked = (0..times).map(|n| {
        let mut command = command.clone();
        command["id"] = json!(1_000 + n);
        code(&socket.ask(command))
    });
    asked.collect()
}

pub(crate) fn stats(channel: &str) -> Value {
    json!({"presence_stats": {"channel": channel}})
}

/// The value of a metric with labels.
pub(crate) fn counted(server: &TestServer, name: &str, labels: &str) -> u64 {
    server.metric(&format!("touchline_{name}{{{labels}}}"))
}

fn over(server: &TestServer, layer: &str, command: &str, outcome: &str) -> u64 {
    let labels = format!("layer=\"{layer}\",command=\"{command}\",outcome=\"{outcome}\"");
    counted(server, "rate_limited_commands_total", &labels)
}

#[test]
fn each_command_of_a_connection_has_its_own_rate() {
    let server = start(|settings| settings.client.rate_limit.client_command = each(1));
    let (mut socket, _) = connected(&server, "ann");
    let good = token(json!({"sub": "ann"}));
    for (name, request) in [
        ("subscribe", json!({"channel": "seen:a"})),
        ("publish", json!({"channel": "history:a", "data": 1})),
        ("history", json!({"channel": "history:a"})),
        ("presence", json!({"channel": "seen:a"})),
        ("presence_stats", json!({"channel": "seen:a"})),
        ("refresh", json!({"token": good})),
        ("sub_refresh", json!({"channel": "seen:a", "token": ""})),
        ("rpc", json!({"method": "x"})),
    ] {
        let found = codes(&mut socket, &json!({ name: request }), 3);
        assert!(found[0] != 111 && found[1..] == [111, 111], "{name}: {found:?}");
        until_eq(2, || over(&server, "client_command", name, "refused"));
    }
    let found = codes(&mut socket, &json!({"unsubscribe": {"channel": "seen:a"}}), 5);
    assert_eq!(found, [0; 5], "it is never refused");
    until_eq(4, || over(&server, "client_command", "unsubscribe", "allowed"));
    let reply = socket.ask(json!({"id": 9, "presence": {"channel": "seen:a"}}));
    assert_eq!(reply["error"], json!({"code": 111, "message": "too many requests", "temporary": true}));
    let (mut other, _) = connected(&server, "ann");
    assert_eq!(codes(&mut other, &stats("seen:a"), 2), [0, 111], "another connection has rates of its own");
}

#[test]
fn a_total_and_overrides_replace_and_add() {
    let server = start(|settings| {
        let limits = &mut settings.client.rate_limit.client_command;
        *limits = CommandLimitSettings { total: block(8), ..each(2) };
        let item = |name: &str, count| RateOverride { name: name.into(), enabled: true, buckets: rate(count) };
        limits.presence_stats.namespace_overrides.0 = vec![item("seen", 4)];
        limits.rpc.method_overrides.0 = vec![item("price", 1)];
    });
    let (mut socket, _) = connected(&server, "ann");
    assert_eq!(codes(&mut socket, &stats("seen:a"), 5), [0, 0, 0, 0, 111], "of the namespace");
    // There is no presence, so the code is 108. The command has still passed its rate.
    assert_eq!(codes(&mut socket, &stats("news"), 3), [108, 108, 111], "of the other channels");
    let rpc = |method: &str| json!({"rpc": {"method": method}});
    assert_eq!(codes(&mut socket, &rpc("price"), 2)[1], 111, "of the method");
    let found = codes(&mut socket, &rpc("other"), 3);
    assert!(found[0] != 111 && found[1] == 111, "eight have passed, and count for the total: {found:?}");
}

#[test]
fn connections_of_a_user_on_several_shards_share_a_rate() {
    let server = start(|settings| {
        settings.node.shards = 4;
        // It is random how many connects it takes until two shards have one.
        let commands = shared(3);
        settings.client.rate_limit.user_command = SharedCommandLimitSettings { connect: block(1_000), ..commands };
    });
    let mut by_shard = BTreeMap::new();
    until("two shards have one", || {
        let (socket, shard) = connected(&server, "ann");
        by_shard.entry(shard).or_insert(socket);
        by_shard.len() >= 2
    });
    let mut sockets = by_shard.into_values();
    let (mut one, mut two) = (sockets.next().expect("one"), sockets.next().expect("another"));
    assert_eq!(codes(&mut one, &stats("seen:a"), 2), [0, 0]);
    assert_eq!(codes(&mut two, &stats("seen:a"), 2), [0, 111]);
    assert_eq!(codes(&mut one, &stats("seen:a"), 1), [111]);
    let (mut bob, _) = connected(&server, "bob");
    assert_eq!(codes(&mut bob, &stats("seen:a"), 4), [0, 0, 0, 111], "another user");
    let mut nobody = server.connected();
    assert_eq!(codes(&mut nobody, &stats("seen:a"), 9), [0; 9], "no user");
    until_eq(3, || over(&server, "user_command", "presence_stats", "refused"));
}

#[test]
fn users_of_an_address_share_its_rate_and_the_server_api_has_none() {
    let server = start(|settings| {
        settings.http_server.trusted_proxies = vec!["127.0.0.1".into()];
        settings.client.rate_limit.address_command = shared(3);
    });
    let from = |address: &str, user: &str| {
        let mut socket = server.socket();
        let head = handshake(&format!("X-Forwarded-For: {address}\r\n"));
        socket.write_all(head.as_bytes()).expect("the server listens");
        assert!(head_of(&mut socket).starts_with("HTTP/1.1 101"));
        let mut socket = WebSocket::from(socket);
        let reply = socket.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}}));
        assert!(reply["connect"].is_object(), "{reply}");
        socket
    };
    assert_eq!(codes(&mut from("203.0.113.1", "ann"), &stats("seen:a"), 2), [0, 0]);
    assert_eq!(codes(&mut from("203.0.113.1", "bob"), &stats("seen:a"), 2), [0, 111]);
    assert_eq!(codes(&mut from("203.0.113.2", "ann"), &stats("seen:a"), 1), [0]);
    assert_eq!(codes(&mut from("2001:db8:0:1::1", "ann"), &stats("seen:a"), 2), [0, 0]);
    assert_eq!(codes(&mut from("2001:db8:0:1::2", "ann"), &stats("seen:a"), 2), [0, 111], "a /64 is one");
    for _ in 0..20 {
        assert!(server.api("presence_stats", json!({"channel": "seen:a"}))["result"].is_object());
        assert!(server.publish("news", json!(1))["result"].is_object());
    }
}

#[test]
fn connects_have_rates_by_user_and_by_address() {
    let server = start(|settings| {
        settings.uni_websocket.enabled = true;
        settings.client.rate_limit.user_command = SharedCommandLimitSettings { connect: block(2), ..shared(100) };
        settings.client.rate_limit.address_command = SharedCommandLimitSettings { connect: block(5), ..shared(100) };
    });
    let connect = |user: &str| {
        let mut socket = server.websocket();
        code(&socket.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}})))
    };
    assert_eq!(["ann", "ann", "ann", "bob"].map(connect), [0, 0, 111, 0]);
    let forged = json!({"id": 1, "connect": {"token": "x"}});
    let mut open_already = server.websocket();
    let mut one_way = server.socket();
    let head = handshake("").replace("/connection/websocket", "/connection/uni_websocket");
    one_way.write_all(head.as_bytes()).expect("the server listens");
    assert!(head_of(&mut one_way).starts_with("HTTP/1.1 101"));
    let mut socket = server.websocket();
    socket.send_json(forged.clone());
    assert!(matches!(socket.close(), Heard::Close(3500, _)));
    assert_eq!(code(&open_already.ask(forged)), 111, "the token is not looked at");
    until_eq(1, || over(&server, "user_command", "connect", "refused"));
    until_eq(1, || over(&server, "address_command", "connect", "refused"));
    let mut one_way = WebSocket::from(one_way);
    one_way.send("{}");
    assert!(matches!(one_way.close(), Heard::Close(3013, _)), "a one-way transport has no reply");
    let mut socket = server.socket();
    socket.write_all(handshake("").as_bytes()).expect("the server listens");
    assert!(head_of(&mut socket).starts_with("HTTP/1.1 429"), "a new one is not accepted at all");
    until_eq(3, || over(&server, "address_command", "connect", "refused"));
}

#[test]
fn what_a_one_way_client_asks_for_is_charged_as_subscribes() {
    let server = start(|settings| {
        settings.uni_websocket.enabled = true;
        settings.client.rate_limit.user_command.commands.enabled = true;
        settings.client.rate_limit.user_command.commands.subscribe.enabled = true;
        settings.client.rate_limit.user_command.commands.subscribe.buckets = rate(3);
    });
    let mut socket = server.socket();
    let head = handshake("").replace("/connection/websocket", "/connection/uni_websocket");
    socket.write_all(head.as_bytes()).expect("the server listens");
    head_of(&mut socket);
    let mut socket = WebSocket::from(socket);
    let subs: serde_json::Map<String, Value> = (0..10).map(|n| (format!("seen:{n}"), json!({}))).collect();
    socket.send_json(json!({"token": token(json!({"sub": "ann"})), "subs": subs}));
    let connected = socket.message();
    assert_eq!(connected["connect"]["subs"].as_object().map(serde_json::Map::len), Some(3), "{connected}");
    until_eq(7, || over(&server, "user_command", "subscribe", "refused"));
}

#[test]
fn an_unsubscribe_costs_others_nothing() {
    let server = start(|settings| {
        let limits = &mut settings.client.rate_limit.address_command.commands;
        *limits = CommandLimitSettings { total: block(9), ..CommandLimitSettings::default() };
        limits.enabled = true;
        limits.unsubscribe.enabled = true;
        limits.unsubscribe.buckets = rate(1);
    });
    let (mut flooder, _) = connected(&server, "mallory");
    let (mut neighbour, _) = connected(&server, "ann");
    // Two connects, and one subscribe with its unsubscribe.
    assert_eq!(codes(&mut flooder, &json!({"subscribe": {"channel": "seen:a"}}), 1), [0]);
    for channel in ["seen:nowhere", "seen:a", "seen:a", "seen:b"] {
        assert_eq!(codes(&mut flooder, &json!({"unsubscribe": {"channel": channel}}), 20), [0; 20]);
    }
    assert_eq!(codes(&mut neighbour, &stats("seen:a"), 6), [0, 0, 0, 0, 0, 111]);
}

#[test]
fn a_refused_command_never_reaches_the_backend() {
    let backend = Backend::start(|_| Answer::Json(json!({"result": {}})));
    let server = start(|settings| {
        settings.rpc.proxy.endpoint = backend.url("/rpc");
        settings.rpc.without_namespace.proxy_enabled = true;
        settings.client.rate_limit.client_command = each(2);
    });
    let (mut socket, _) = connected(&server, "ann");
    assert_eq!(codes(&mut socket, &json!({"rpc": {"method": "x"}}), 6), [0, 0, 111, 111, 111, 111]);
    assert_eq!(backend.questions().len(), 2);
}

#[test]
fn a_command_that_waits_behind_a_hook_is_charged_once() {
    let backend = Backend::start(|_| {
        Answer::Late(Duration::from_millis(200), Box::new(Answer::Json(json!({"result": {"allow": ["pub"]}}))))
    });
    let server = start(|settings| {
        settings.channel.proxy.subscribe.endpoint = backend.url("/subscribe");
        settings.channel.proxy.subscribe.timeout = Duration::from_secs(30);
        let options = ChannelOptions { subscribe_proxy_enabled: true, ..ChannelOptions::default() };
        settings.channel.namespaces.push(Namespace { name: "chat".into(), options });
        settings.client.rate_limit.client_command = each(2);
    });
    let (mut socket, _) = connected(&server, "ann");
    socket.send_json(json!({"id": 2, "subscribe": {"channel": "chat:1"}}));
    for id in 3..6 {
        socket.send_json(json!({"id": id, "publish": {"channel": "chat:1", "data": id}}));
    }
    let mut found = BTreeMap::new();
    while found.len() < 4 {
        let message = socket.message();
        if let Some(id) = message["id"].as_u64() {
            found.insert(id, code(&message));
        }
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(2, 0), (3, 0), (4, 0), (5, 111)]);
}

fn slow(settings: &mut Settings, wait: Duration) {
    let limits = &mut settings.client.rate_limit;
    limits.on_limit = OnLimit::Slow;
    limits.slow_wait_max = wait;
    limits.client_command.enabled = true;
    limits.client_command.presence_stats.enabled = true;
    // Short: the client is slowed and never refused.
    limits.client_command.presence_stats.buckets = every(Duration::from_millis(100), 5);
}

#[test]
fn a_slow_connection_gets_every_answer_in_order_and_a_long_wait_is_refused() {
    let server = start(|settings| {
        slow(settings, Duration::from_secs(3_600));
        settings.client.rate_limit.user_command.commands.enabled = true;
        settings.client.rate_limit.user_command.commands.history.enabled = true;
        settings.client.rate_limit.user_command.commands.history.buckets = rate(1);
    });
    let (mut socket, _) = connected(&server, "ann");
    // First all in one message, then each in its own message.
    let lines: Vec<String> =
        (2..32).map(|id| json!({"id": id, "presence_stats": {"channel": "seen:a"}}).to_string()).collect();
    socket.send(&lines.join("\n"));
    lines.iter().for_each(|line| socket.send(&line.replace("\"id\":", "\"id\":1")));
    let ids: Vec<u64> = (0..60)
        .map(|_| {
            let reply = socket.message();
            assert!(reply["presence_stats"].is_object(), "{reply}");
            reply["id"].as_u64().expect("a number")
        })
        .collect();
    assert!(ids[..30].iter().copied().eq(2..32), "{ids:?}");
    until("the metrics show it", || over(&server, "client_command", "presence_stats", "slowed") > 0);
    until_eq(0, || over(&server, "client_command", "presence_stats", "refused"));
    until("touchline_throttled_total > 0", || server.metric("touchline_throttled_total") > 0);
    let mut impatient = start(|settings| {
        slow(settings, Duration::from_secs(10));
        settings.client.rate_limit.client_command.presence_stats.buckets = rate(1);
    });
    let (mut socket, _) = connected(&impatient, "ann");
    assert_eq!(codes(&mut socket, &stats("seen:a"), 2), [0, 111], "the next token comes in an hour");
    impatient.stop();
}

#[test]
fn a_client_that_leaves_while_its_commands_wait_is_gone_at_once() {
    let server = start(|settings| {
        slow(settings, Duration::from_secs(3_600));
        settings.client.rate_limit.client_command.presence_stats.buckets = every(Duration::from_secs(600), 1);
    });
    for says_goodbye in [true, false] {
        let (mut socket, _) = connected(&server, "ann");
        assert_eq!(codes(&mut socket, &json!({"subscribe": {"channel": "seen:a"}}), 1), [0]);
        (0..20).for_each(|id| {
            let mut command = stats("seen:a");
            command["id"] = json!(100 + id);
            socket.send_json(command);
        });
        until("commands wait", || over(&server, "client_command", "presence_stats", "slowed") > 0);
        if says_goodbye {
            socket.send_close();
        } else {
            drop(socket);
        }
        until("it is gone", || {
            server.api("presence_stats", json!({"channel": "seen:a"}))["result"]["num_clients"] == 0
        });
    }
}

#[test]
fn the_server_ends_a_connection_whose_commands_wait_at_once() {
    let server = start(|settings| {
        slow(settings, Duration::from_secs(3_600));
        settings.client.rate_limit.client_command.presence_stats.buckets = every(Duration::from_secs(600), 1);
    });
    let (mut socket, _) = connected(&server, "ann");
    codes(&mut socket, &stats("seen:a"), 1);
    socket.send_json(json!({"id": 3, "presence_stats": {"channel": "seen:a"}}));
    until("a command waits", || over(&server, "client_command", "presence_stats", "slowed") > 0);
    server.api("disconnect", json!({"user": "ann"}));
    assert!(matches!(socket.close(), Heard::Close(3000.., _)));
    until("its connection is over", || server.metric("touchline_connections") == 0);
}

#[test]
fn a_command_waits_no_longer_than_it_may_behind_others_too() {
    let server = start(|settings| {
        slow(settings, Duration::from_secs(3));
        // Short: the test waits for the next token.
        settings.client.rate_limit.client_command.presence_stats.buckets = every(Duration::from_secs(2), 1);
    });
    let (mut socket, _) = connected(&server, "ann");
    let lines = |from: u32| -> String {
        let lines =
            (from..from + 10).map(|id| format!("{{\"id\":{id},\"presence_stats\":{{\"channel\":\"seen:a\"}}}}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    socket.send(&lines(100));
    socket.send(&lines(200));
    let found: Vec<u64> = (0..20).map(|_| code(&socket.message())).collect();
    // One is allowed at once, and one has waited. Those behind it have waited too, and two more seconds are too long.
    assert!(found.iter().filter(|code| **code == 0).count() >= 2, "{found:?}");
    assert!(found.contains(&111), "{found:?}");
}

#[test]
fn a_connect_is_let_in_where_a_command_would_wait() {
    let server = start(|settings| {
        slow(settings, Duration::from_secs(3_600));
        let limits = &mut settings.client.rate_limit.address_command.commands;
        limits.enabled = true;
        // Short: the client is slowed and never refused.
        limits.total = BucketBlock { enabled: true, buckets: every(Duration::from_secs(1), 1) };
    });
    let (mut socket, _) = connected(&server, "busy");
    (0..50).for_each(|id| {
        let mut command = stats("seen:a");
        command["id"] = json!(100 + id);
        socket.send_json(command);
    });
    (0..20).for_each(|_| drop(connected(&server, "ann")));
}

#[test]
fn lines_and_emulated_commands_are_slowed_too() {
    let server = start(|settings| {
        slow(settings, Duration::from_secs(3_600));
        settings.tcp.enabled = true;
        settings.tcp.address = "127.0.0.1".into();
        settings.tcp.port = 0;
        settings.http_stream.enabled = true;
    });
    let commands = |from: u32| -> String {
        (from..from + 20).map(|id| format!("{{\"id\":{id},\"presence_stats\":{{\"channel\":\"seen:a\"}}}}\n")).collect()
    };
    let answers = |text: &str| text.lines().filter(|line| line.contains("\"presence_stats\"")).count();
    let mut socket = server.line_socket();
    socket.write_all(format!("{{\"id\":1,\"connect\":{{}}}}\n{}", commands(2)).as_bytes()).expect("it listens");
    socket.shutdown(std::net::Shutdown::Write).expect("it is open");
    let text = touchline_testkit::http::to_the_end(&mut socket);
    assert_eq!(answers(&text), 20, "{text}");
    let mut stream = server.socket();
    let body = r#"{"id":1,"connect":{}}"#;
    let request =
        format!("POST /connection/http_stream HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it listens");
    head_of(&mut stream);
    let line = up_to("\n", &mut stream);
    let reply: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    for from in [100, 200] {
        let (session, node) = (&reply["connect"]["session"], &reply["connect"]["node"]);
        let data = json!({"session": session, "node": node, "data": commands(from)});
        assert_eq!(server.http("POST", "/emulation", "", &data.to_string()).0, 204);
    }
    let mut text = String::new();
    while answers(&text) < 40 {
        let line = up_to("\n", &mut stream);
        assert!(line.ends_with('\n'), "it ended: {line}");
        text.push_str(&line);
    }
    assert!(!text.contains("\"error\""), "{text}");
}

#[test]
fn rates_on_trial_refuse_nothing_and_are_counted() {
    let server = start(|settings| {
        let limits = &mut settings.client.rate_limit;
        limits.client_command = CommandLimitSettings { dry_run: true, ..each(1) };
        limits.user_command.commands = CommandLimitSettings { dry_run: true, ..each(2) };
    });
    let (mut socket, _) = connected(&server, "ann");
    assert_eq!(codes(&mut socket, &stats("seen:a"), 9), [0; 9]);
    until_eq(8, || over(&server, "client_command", "presence_stats", "allowed"));
    until_eq(0, || over(&server, "user_command", "presence_stats", "allowed"));
}

#[test]
fn ten_times_as_many_users_and_addresses_take_no_more_room() {
    const ENTRIES: usize = 50;
    let server = start(|settings| {
        settings.http_server.trusted_proxies = vec!["127.0.0.1".into()];
        settings.node.shards = 2;
        let limits = &mut settings.client.rate_limit;
        (limits.users_max_entries, limits.addresses_max_entries) = (ENTRIES, ENTRIES);
        limits.user_command = SharedCommandLimitSettings { connect: block(1), ..shared(1) };
        limits.address_command = SharedCommandLimitSettings { connect: block(1), ..shared(1) };
    });
    let connect = |number: usize| {
        let mut socket = server.socket();
        let address = format!("10.7.{}.{}", number / 200, number % 200);
        socket.write_all(handshake(&format!("X-Forwarded-For: {address}\r\n")).as_bytes()).expect("it listens");
        if !head_of(&mut socket).starts_with("HTTP/1.1 101") {
            return 429;
        }
        let user = token(json!({"sub": format!("user-{number}")}));
        code(&WebSocket::from(socket).ask(json!({"id": 1, "connect": {"token": user}})))
    };
    for number in 0..10 * ENTRIES {
        assert_eq!(connect(number), 0);
    }
    until_eq(ENTRIES as u64, || counted(&server, "rate_limit_entries", "of=\"user\""));
    until_eq(ENTRIES as u64, || counted(&server, "rate_limit_entries", "of=\"address\""));
    assert_eq!((connect(10 * ENTRIES - 1), connect(0)), (429, 0), "the newest are remembered");
}
