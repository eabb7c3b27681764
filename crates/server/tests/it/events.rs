//! Lifecycle events: what a backend receives, in which order, and what its answers cause.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{EventsSettings, NamedEvents, Server, Settings};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::websocket::WebSocket;
use touchline_testkit::{PATIENCE, until, until_eq, until_some};

use super::backend::{Answer, Backend};
use super::link::Link;
use super::registry::devices;
use super::support::{TestServer, settings, token};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OLD_SECRET: &str = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

/// Makes a backend receive events of these types.
pub(super) fn told(settings: &mut Settings, backend: &Backend, types: &[&str]) {
    let options = EventsSettings {
        endpoint: backend.url("/events"),
        types: types.iter().map(|kind| (*kind).to_owned()).collect(),
        secret: SECRET.into(),
        // Short: it only makes the test faster.
        batch_wait: Duration::from_millis(20),
        // Short: it only makes the test faster.
        delay: Duration::from_millis(200),
        ..EventsSettings::default()
    };
    settings.events.push(NamedEvents { name: "backend".into(), options });
}

pub(super) fn accepting() -> Backend {
    Backend::start(|_| Answer::Status(204, String::new()))
}

/// The events that a backend received, without those that say that there may be more.
pub(super) fn events(backend: &Backend) -> Vec<Value> {
    let batches = backend.questions().into_iter().map(|question| question.body);
    let all = batches.flat_map(|batch| batch.as_array().expect("a batch is a list").clone());
    all.filter(|event| event["type"] != "io.touchline.state.reset").collect()
}

/// Waits for this many events of a type.
pub(super) fn wait_for(backend: &Backend, kind: &str, count: usize) -> Vec<Value> {
    until_some(format_args!("{count} events of {kind} arrive"), || {
        let mut found = events(backend);
        found.retain(|event| event["type"].as_str() == Some(&format!("io.touchline.{kind}")));
        (found.len() >= count).then_some(found)
    })
}

pub(super) fn connected(server: &TestServer) -> (WebSocket, String) {
    let mut client = server.websocket();
    let reply = client.ask(json!({"id": 1, "connect": {"name": "js", "version": "2"}}));
    let id = reply["connect"]["client"].as_str().expect("it is accepted").to_owned();
    (client, id)
}

#[test]
fn a_backend_is_told_who_connects_and_leaves() {
    let backend = accepting();
    let server = TestServer::with(|settings| told(settings, &backend, &["connected", "disconnected"]));
    let (client, id) = connected(&server);
    let event = wait_for(&backend, "client.connected", 1).remove(0);
    assert_eq!(event["id"], format!("{id}:c:1"));
    assert_eq!(event["partitionkey"], format!("client:{id}"));
    let data = &event["data"];
    assert_eq!((data["client"].as_str(), data["transport"].as_str()), (Some(id.as_str()), Some("websocket")));
    assert_eq!((data["name"].as_str(), data["version"].as_str()), (Some("js"), Some("2")));
    assert_eq!((data["address"].as_str(), data["encoding"].as_str()), (Some("127.0.0.1"), Some("json")));
    assert_eq!(data["session"].as_str().map(str::len), Some(32));
    drop(client);
    let event = wait_for(&backend, "client.disconnected", 1).remove(0);
    let data = &event["data"];
    assert_eq!((data["code"].as_u64(), data["cause"].as_str()), (Some(1006), Some("client")));
    assert!(data["duration_ms"].is_u64() && data["user"].is_null(), "{data}");
}

fn wait_for_types(backend: &Backend, key: &str, expected: &[&str]) -> Vec<Value> {
    let of_key = || -> Vec<Value> {
        let all = events(backend).into_iter();
        all.filter(|event| event["partitionkey"] == *key && event["generation"].is_string()).collect()
    };
    until(format_args!("{expected:?} of {key}"), || of_key().len() >= expected.len());
    let found = of_key();
    let types: Vec<_> =
        found.iter().filter_map(|event| event["type"].as_str()?.strip_prefix("io.touchline.")).collect();
    assert_eq!(types, expected, "{key}");
    found
}

fn generation(event: &Value) -> u64 {
    event["generation"].as_str().and_then(|text| text.parse().ok()).expect("a number")
}

fn of_user(server: &TestServer, user: &str) -> WebSocket {
    let mut client = server.websocket();
    let reply = client.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}}));
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    client
}

#[test]
fn users_and_channels_are_told_once_and_in_order() {
    let backend = accepting();
    let types = ["occupied", "vacated", "user_online", "user_offline", "subscribed", "unsubscribed"];
    let server = TestServer::with(|settings| {
        settings.node.shards = 2;
        told(settings, &backend, &types);
        settings.events[0].options.namespaces = vec!["room".into()];
    });
    let (mut one, mut two) = (of_user(&server, "ann"), of_user(&server, "ann"));
    for client in [&mut one, &mut two] {
        for (id, channel) in [(2, "room:a"), (3, "elsewhere")] {
            let reply = client.ask(json!({"id": id, "subscribe": {"channel": channel}}));
            assert!(reply["subscribe"].is_object(), "{reply}");
        }
    }
    let online = wait_for_types(&backend, "user:ann", &["user.online"]).remove(0);
    assert_eq!(online["id"], format!("user:ann:{}", generation(&online)));
    assert_eq!(online["data"], json!({"user": "ann", "reason": "normal"}));
    assert_eq!(online["source"], "/touchline/touchline");
    wait_for_types(&backend, "channel:room:a", &["channel.occupied"]);
    // One of two clients leaves, which causes no event.
    drop(one);
    let reply = two.ask(json!({"id": 9, "unsubscribe": {"channel": "room:a"}}));
    assert!(reply["unsubscribe"].is_object(), "{reply}");
    let of_channel = wait_for_types(&backend, "channel:room:a", &["channel.occupied", "channel.vacated"]);
    assert_eq!(generation(&of_channel[1]), generation(&of_channel[0]) + 1);
    let data = &of_channel[1]["data"];
    assert_eq!((data["channel"].as_str(), data["namespace"].as_str()), (Some("room:a"), Some("room")));
    assert!(data["empty_since"].is_string(), "{data}");
    wait_for_types(&backend, "user:ann", &["user.online"]);
    drop(two);
    let of_user = wait_for_types(&backend, "user:ann", &["user.online", "user.offline"]);
    assert!(of_user[1]["data"]["last_seen"].is_string());
    // There is no event of a channel in another namespace.
    let begun = wait_for(&backend, "channel.subscribed", 2);
    assert!(begun.iter().all(|event| event["data"]["channel"] == "room:a"), "{begun:?}");
    let ended = wait_for(&backend, "channel.unsubscribed", 2);
    let codes: Vec<_> = ended.iter().map(|event| event["data"]["code"].as_u64()).collect();
    assert!(codes.contains(&None) && codes.contains(&Some(0)), "{codes:?}");
    assert!(events(&backend).iter().all(|event| event["subject"] != "elsewhere"));
}

#[test]
fn a_user_that_flaps_is_told_once() {
    let backend = accepting();
    let server = TestServer::with(|settings| {
        told(settings, &backend, &["user_online", "user_offline"]);
        // Longer than a user is offline in the test.
        settings.events[0].options.delay = Duration::from_secs(5);
    });
    for _ in 0..5 {
        drop(of_user(&server, "ann"));
    }
    let last = of_user(&server, "ann");
    wait_for_types(&backend, "user:ann", &["user.online"]);
    drop(last);
    let all = wait_for_types(&backend, "user:ann", &["user.online", "user.offline"]);
    assert_eq!(generation(&all[1]), generation(&all[0]) + 1);
}

#[test]
fn names_and_groups_are_told_with_their_users() {
    let backend = accepting();
    let types = ["name_registered", "name_updated", "name_lost", "member_joined", "member_left"];
    let server = TestServer::with(|settings| {
        devices(settings);
        told(settings, &backend, &types);
    });
    let rpc = |client: &mut WebSocket, method: &str, data: Value| {
        let reply = client.ask(json!({"id": 7, "rpc": {"method": method, "data": data}}));
        assert!(reply["rpc"].is_object(), "{method}: {reply}");
    };
    let mut ann = of_user(&server, "ann");
    rpc(&mut ann, "registry.register", json!({"scope": "devices", "name": "bike", "meta": {"color": "red"}}));
    rpc(&mut ann, "registry.register", json!({"scope": "devices", "name": "bike", "meta": {"color": "blue"}}));
    rpc(&mut ann, "registry.join", json!({"scope": "devices", "group": "all"}));
    let event = wait_for(&backend, "name.registered", 1).remove(0);
    assert_eq!(event["partitionkey"], "name:devices/bike");
    let data = &event["data"];
    assert_eq!((data["user"].as_str(), data["meta"].clone()), (Some("ann"), json!({"color": "red"})));
    let event = wait_for(&backend, "name.updated", 1).remove(0);
    assert_eq!(event["data"]["meta"], json!({"color": "blue"}));
    let event = wait_for(&backend, "member.joined", 1).remove(0);
    assert_eq!((event["data"]["group"].as_str(), event["data"]["user"].as_str()), (Some("all"), Some("ann")));
    // Another client takes the name over. The event of the loser names the winner.
    let mut bob = of_user(&server, "bob");
    rpc(&mut bob, "registry.register", json!({"scope": "devices", "name": "bike", "policy": "newest"}));
    let lost = wait_for(&backend, "name.lost", 1).remove(0);
    assert_eq!(lost["data"]["reason"], "taken_over", "{lost}");
    let winner = wait_for(&backend, "name.registered", 2).remove(1);
    assert_eq!(lost["data"]["winner"], winner["data"]["client"]);
    drop(ann);
    let left = wait_for(&backend, "member.left", 1).remove(0);
    assert_eq!((left["data"]["reason"].as_str(), left["data"]["user"].as_str()), (Some("closed"), Some("ann")));
    let ids: Vec<_> = events(&backend).iter().map(|event| event["id"].to_string()).collect();
    assert_eq!(ids.len(), ids.iter().collect::<std::collections::BTreeSet<_>>().len(), "each id once: {ids:?}");
}

#[test]
fn batches_are_signed_over_their_bytes_and_repeated_unchanged() {
    let failures = std::sync::atomic::AtomicUsize::new(0);
    let backend = Backend::start(move |_| match failures.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Answer::Status(500, String::new()),
        1 => Answer::Raw(b"nonsense\r\n\r\n".to_vec()),
        _ => Answer::Status(200, "{}".to_owned()),
    });
    let server = TestServer::with(|settings| {
        told(settings, &backend, &["connected"]);
        let options = &mut settings.events[0].options;
        (options.lanes, options.secret_previous) = (1, OLD_SECRET.into());
        options.headers.0 = [("X-Tenant".to_owned(), "a".to_owned())].into();
    });
    let _client = connected(&server);
    until("it is accepted", || server.metric("touchline_events_sent_total{endpoint=\"backend\"}") >= 2);
    let questions = backend.questions();
    let first = &questions[0];
    let id = first.header("webhook-id");
    let tries: Vec<_> = questions.iter().filter(|question| question.header("webhook-id") == id).collect();
    assert_eq!(tries.len(), 3, "it is sent until it is accepted");
    assert!(tries.iter().all(|again| again.body == first.body), "the body is the same");
    assert_eq!(first.header("content-type"), ["application/cloudevents-batch+json; charset=utf-8"]);
    assert_eq!(first.header("x-tenant"), ["a"]);
    for again in &questions {
        let (id, time) = (again.header("webhook-id"), again.header("webhook-timestamp"));
        let signatures = again.header("webhook-signature");
        // The test verifies the signature itself, over the bytes as they were sent.
        let text = format!("{}.{}.{}", id[0], time[0], again.text);
        let expected = [SECRET, OLD_SECRET].map(|secret| format!("v1,{}", hmac(secret, &text)));
        assert_eq!(signatures, [expected.join(" ")]);
    }
    until("sent events are counted", || server.metric("touchline_events_sent_total{endpoint=\"backend\"}") > 0);
    until_eq(2, || server.metric("touchline_event_batches_retried_total{endpoint=\"backend\"}"));
}

fn hmac(secret: &str, text: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).expect("base64");
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &key);
    STANDARD.encode(aws_lc_rs::hmac::sign(&key, text.as_bytes()))
}

#[test]
fn a_hostile_endpoint_costs_its_own_events_only() {
    let slow = Backend::start(|_| Answer::Late(Duration::from_secs(30), Box::new(Answer::Status(200, String::new()))));
    let huge = Backend::start(|_| {
        let head = format!("HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n", 10_000_000);
        Answer::Raw([head.into_bytes(), vec![b'x'; 10_000_000]].concat())
    });
    let elsewhere = accepting();
    let address = elsewhere.url("/");
    let redirect = Backend::start(move |_| {
        Answer::Raw(format!("HTTP/1.1 302 X\r\nLocation: {address}\r\nContent-Length: 0\r\n\r\n").into_bytes())
    });
    let endless = Backend::start(|_| Answer::Raw([b"HTTP/1.1 200 X\r\n".to_vec(), vec![b'h'; 2_000_000]].concat()));
    let good = accepting();
    let server = TestServer::with(|settings| {
        for (name, backend) in [("slow", &slow), ("huge", &huge), ("redirect", &redirect), ("endless", &endless)] {
            told(settings, backend, &["connected"]);
            let events = settings.events.last_mut().expect("it is there");
            events.name = name.into();
            // Short: the test waits for the timeout.
            (events.options.timeout, events.options.queue_max) = (Duration::from_secs(1), 20);
        }
        told(settings, &good, &["connected"]);
    });
    let _clients: Vec<_> = (0..100).map(|_| connected(&server)).collect();
    wait_for(&good, "client.connected", 100);
    let figure = |name: &str, of: &str| server.metric(&format!("touchline_{name}{{endpoint=\"{of}\"}}"));
    until("ten megabytes are an answer like another", || figure("events_sent_total", "huge") > 0);
    until("what fails is tried again", || {
        ["slow", "redirect", "endless"].iter().all(|name| figure("event_batches_retried_total", name) > 0)
    });
    until("the metrics show it", || {
        ["slow", "redirect", "endless"].iter().all(|name| figure("events_sent_total", name) == 0)
    });
    assert!(elsewhere.questions().is_empty(), "a redirect is not followed");
    let dropped = "touchline_events_dropped_total{endpoint=\"slow\",reason=\"queue_full\"}";
    until("its queue is bounded", || server.metric(dropped) > 0);
}

#[test]
fn what_was_dropped_is_said_before_the_rest() {
    let is_open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let opens = std::sync::Arc::clone(&is_open);
    let backend = Backend::start(move |_| {
        let is_open = opens.load(std::sync::atomic::Ordering::SeqCst);
        Answer::Status(if is_open { 200 } else { 503 }, String::new())
    });
    let server = TestServer::with(|settings| {
        told(settings, &backend, &["connected"]);
        let options = &mut settings.events[0].options;
        (options.lanes, options.queue_max, options.batch_max) = (1, 10, 4);
    });
    let _clients: Vec<_> = (0..50).map(|_| connected(&server)).collect();
    until("some are dropped", || {
        server.metric("touchline_events_dropped_total{endpoint=\"backend\",reason=\"queue_full\"}") > 0
    });
    is_open.store(true, std::sync::atomic::Ordering::SeqCst);
    let resets = || {
        let all = backend.questions();
        let firsts = all.iter().filter(|batch| batch.body[0]["data"]["why"] == "dropped");
        firsts.map(|batch| batch.body[0].clone()).collect::<Vec<_>>()
    };
    until("the loss is reported", || !resets().is_empty());
    let reset = resets().remove(0);
    assert_eq!(
        (reset["type"].as_str(), reset["partitionkey"].as_str()),
        (Some("io.touchline.state.reset"), Some("all"))
    );
    assert!(reset["data"]["since"].is_string());
}

#[test]
fn an_endpoint_that_is_gone_is_left_alone_until_an_operator_says_otherwise() {
    let is_gone = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let gone = std::sync::Arc::clone(&is_gone);
    let backend = Backend::start(move |_| {
        Answer::Status(if gone.load(std::sync::atomic::Ordering::SeqCst) { 410 } else { 200 }, String::new())
    });
    let server = TestServer::with(|settings| {
        told(settings, &backend, &["connected"]);
        settings.events[0].options.lanes = 1;
    });
    let _client = connected(&server);
    let ready = || server.http("GET", "/readyz", "", "");
    until("it is off", || ready().1.contains("\"events_not_sent\":[\"backend\"]"));
    assert_eq!(ready().0, 200, "the node can serve");
    until_eq(1, || server.metric("touchline_events_off{endpoint=\"backend\"}"));
    let asked = backend.questions().len();
    let _another = connected(&server);
    is_gone.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(server.api("events_resume", json!({"endpoint": "nobody"}))["error"]["code"], 107);
    assert_eq!(backend.questions().len(), asked);
    assert_eq!(server.api("events_resume", json!({"endpoint": "backend"})), json!({"result": {}}));
    wait_for(&backend, "client.connected", 2);
    until("it is on", || !ready().1.contains("events_not_sent"));
}

#[test]
fn a_message_that_nobody_has_acknowledged_is_told() {
    let backend = accepting();
    let directory = std::env::temp_dir().join(format!("touchline-events-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let server = TestServer::with(|settings| {
        devices(settings);
        settings.registry.scopes[0].inbox_size = 10;
        settings.store.primary.url = format!("sqlite:{}", directory.join("primary.db").display());
        told(settings, &backend, &["inbox_expired"]);
    });
    let request = json!({"scope": "devices", "name": "bike", "data": {"text": "hi"}, "store_for": 1});
    let reply = server.api("send", request);
    assert!(reply["result"].is_object(), "{reply}");
    let event = wait_for(&backend, "inbox.expired", 1).remove(0);
    let data = &event["data"];
    assert_eq!((data["scope"].as_str(), data["name"].as_str()), (Some("devices"), Some("bike")));
    assert_eq!(event["id"], format!("inbox:{}", data["id"]));
    assert!(!event.to_string().contains("hi\""), "the message is not told");
    drop(server);
    let _ = std::fs::remove_dir_all(&directory);
}

/// The nodes of a cluster, each over its own link.
fn nodes(nats: &NatsServer, backend: &Backend, names: &[&str]) -> Vec<(TestServer, Link)> {
    let start = |name: &&str| {
        let link = Link::to(nats.port);
        let server = TestServer::with(|settings| {
            settings.node.name = (*name).to_owned();
            settings.cluster.engine = "nats".to_owned();
            settings.cluster.nats_url = vec![format!("nats://{}", link.address)];
            // Short: it only makes the test faster.
            settings.cluster.heartbeat_interval = Duration::from_millis(200);
            settings.cluster.node_timeout = Duration::from_secs(5);
            devices(settings);
            told(
                settings,
                backend,
                &["user_online", "user_offline", "occupied", "vacated", "disconnected", "name_lost"],
            );
        });
        until("the node is ready", || server.http("GET", "/readyz", "", "").0 == 200);
        (server, link)
    };
    names.iter().map(start).collect()
}

fn reads_presence(client: &mut WebSocket, channel: &str) {
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": channel}}));
    assert!(reply["subscribe"].is_object(), "{reply}");
}

#[test]
fn nodes_tell_together_and_one_tells_for_another_that_is_lost() {
    let nats = NatsServer::start(JETSTREAM);
    let backend = accepting();
    let mut nodes = nodes(&nats, &backend, &["one", "two", "three"]);
    let mut on_one = of_user(&nodes[0].0, "ann");
    let mut on_two = of_user(&nodes[1].0, "ann");
    let mut lone = of_user(&nodes[1].0, "bob");
    for client in [&mut on_one, &mut on_two, &mut lone] {
        reads_presence(client, "room:a");
    }
    let reply = lone
        .ask(json!({"id": 7, "rpc": {"method": "registry.register", "data": {"scope": "devices", "name": "bike"}}}));
    assert!(reply["rpc"].is_object(), "{reply}");
    wait_for_types(&backend, "user:ann", &["user.online"]);
    wait_for_types(&backend, "user:bob", &["user.online"]);
    wait_for_types(&backend, "channel:room:a", &["channel.occupied"]);
    // The node is cut off, like a node that has died. Its clients stay connected to it, and the others do not see them.
    nodes[1].1.cut();
    let of_bob = wait_for_types(&backend, "user:bob", &["user.online", "user.offline"]);
    assert_eq!(of_bob[1]["data"]["reason"], "node_down");
    let gone = wait_for(&backend, "client.disconnected", 2);
    assert!(gone.iter().all(|event| event["data"]["reason"] == "node_lost" && event["data"]["cause"] == "node_down"));
    let users: std::collections::BTreeSet<_> = gone.iter().map(|event| event["data"]["user"].to_string()).collect();
    assert_eq!(users.len(), 2, "each client of the node once: {gone:?}");
    let lost = wait_for(&backend, "name.lost", 1).remove(0);
    assert_eq!((lost["data"]["name"].as_str(), lost["data"]["reason"].as_str()), (Some("bike"), Some("node_down")));
    wait_for_types(&backend, "user:ann", &["user.online"]);
    // When the node is back, what it holds is reported again, once.
    nodes[1].1.heal();
    let of_bob = wait_for_types(&backend, "user:bob", &["user.online", "user.offline", "user.online"]);
    let generations: Vec<_> = of_bob.iter().map(generation).collect();
    assert!(generations.windows(2).all(|pair| pair[1] == pair[0] + 1), "{generations:?}");
    drop((on_one, on_two, lone));
    wait_for_types(&backend, "user:ann", &["user.online", "user.offline"]);
    wait_for_types(&backend, "channel:room:a", &["channel.occupied", "channel.vacated"]);
    // A node that stops reports it: its user is gone after the delay, and nothing was lost.
    let of_three = of_user(&nodes[2].0, "eve");
    wait_for_types(&backend, "user:eve", &["user.online"]);
    drop(nodes.pop());
    drop(of_three);
    wait_for_types(&backend, "user:eve", &["user.online", "user.offline"]);
}

#[test]
fn events_are_messages_of_nats_too() {
    let nats = NatsServer::start(JETSTREAM);
    let server = TestServer::with(|settings| {
        settings.cluster.engine = "nats".to_owned();
        settings.cluster.nats_url = vec![nats.url()];
        let options = EventsSettings {
            endpoint: "nats:events.live".into(),
            types: vec!["connected".into()],
            ..EventsSettings::default()
        };
        settings.events.push(NamedEvents { name: "nats".into(), options });
    });
    until("the node is ready", || server.http("GET", "/readyz", "", "").0 == 200);
    let mut listener = std::net::TcpStream::connect(("127.0.0.1", nats.port)).expect("it listens");
    listener.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
    use std::io::{Read as _, Write as _};
    let hello = b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB events.live 1\r\nPING\r\n";
    listener.write_all(hello).expect("it reads");
    let mut heard = String::new();
    let mut hear = |until: &str| {
        let mut some = [0; 4_096];
        while !heard.contains(until) {
            let length = listener.read(&mut some).expect("something comes");
            heard.push_str(&String::from_utf8_lossy(&some[..length]));
        }
        heard.clone()
    };
    hear("PONG");
    let (_client, id) = connected(&server);
    let message = hear(&format!("\"id\":\"{id}:c:1\""));
    assert!(message.contains("Content-Type: application/cloudevents+json"), "{message}");
    assert!(message.contains("Nats-Msg-Id: "), "{message}");
    until("it has arrived", || server.metric("touchline_events_sent_total{endpoint=\"nats\"}") >= 1);
}

type Change = fn(&mut EventsSettings);

#[test]
fn what_is_wrong_stops_the_start_with_its_key_and_shows_no_secret() {
    let fault = |change: Change| {
        let mut settings = settings();
        let mut options = EventsSettings {
            endpoint: "http://b/x".into(),
            types: vec!["connected".into()],
            ..EventsSettings::default()
        };
        change(&mut options);
        settings.events.push(NamedEvents { name: "backend".into(), options });
        let refused = Server::bind(settings).err().map(|fault| fault.to_string());
        refused.unwrap_or_default()
    };
    assert_eq!(fault(|_| {}), "");
    let cases: [(&str, Change); 15] = [
        ("endpoint", |options| options.endpoint = "ftp://b".into()),
        ("endpoint", |options| options.endpoint = "http://b:99999/".into()),
        ("endpoint", |options| options.endpoint = "https://ann:dG9wczNjcmV0@b/".into()),
        ("endpoint", |options| options.endpoint = "http://b/x#top".into()),
        ("endpoint", |options| options.endpoint = "https://".into()),
        ("endpoint", |options| options.endpoint = "nats:events.*".into()),
        ("endpoint", |options| options.endpoint = "nats:events".into()),
        ("types", |options| options.types.clear()),
        ("types", |options| options.types = vec!["conected".into()]),
        ("types", |options| options.types = vec!["connected".into(), "connected".into()]),
        ("namespaces", |options| options.namespaces = vec!["none".into()]),
        ("secret", |options| options.secret = "whsec_dG9wczNjcmV0".into()),
        ("secret_previous", |options| options.secret_previous = SECRET.into()),
        ("headers", |options| options.headers.0 = [("Host".to_owned(), "x".to_owned())].into()),
        ("timeout", |options| options.timeout = Duration::ZERO),
    ];
    for (key, change) in cases {
        let text = fault(change);
        assert!(text.starts_with(&format!("events[backend].{key}: ")), "{key}: {text}");
        assert!(!text.contains("dG9wczNjcmV0") && !text.contains(&SECRET[6..]), "{text}");
    }
}
