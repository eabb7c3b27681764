//! The directory (presence, names, groups, calls): requests and messages of one client do not block it for other
//! clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use touchline_testkit::PATIENCE;
use touchline_testkit::websocket::{WebSocket, text};

use crate::support::http::http;
use crate::support::server::{Server, merged, with_namespace};
use crate::support::watch::Watch;
use crate::support::websocket::{Attacker, Told, crowd, flood};
use crate::support::{FLOOD, MIB, alone, pause, size};

const SLACK: u64 = 24 * MIB;
/// The longest time for another client's request to the directory, or for `/metrics`, on a machine without other load.
const ANSWER: Duration = Duration::from_secs(1);

/// Sends small requests to the directory and reads the node's metrics, again and again. Returns the longest time of one
/// request.
fn asker(address: SocketAddr) -> (Arc<AtomicBool>, std::thread::JoinHandle<Duration>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    let mut client = WebSocket::connected(address);
    let mut http = http(address);
    let thread = std::thread::spawn(move || {
        let mut worst = Duration::ZERO;
        for id in 2.. {
            let began = Instant::now();
            let answered = client.try_ask(json!({"id": id, "presence_stats": {"channel": "room:empty"}})).is_ok();
            worst = worst.max(if answered { began.elapsed() } else { PATIENCE });
            let began = Instant::now();
            let answered = http.request("GET", "/metrics", "", "").is_ok();
            worst = worst.max(if answered { began.elapsed() } else { PATIENCE });
            if flag.load(Relaxed) {
                break;
            }
            pause(Duration::from_millis(20));
        }
        worst
    });
    (is_over, thread)
}

#[test]
fn a_client_that_asks_who_is_there_without_end_stops_nobodys_directory() {
    let _alone = alone();
    let server = Server::start();
    let _crowd = crowd(server.address, 5_000, &text(r#"{"id":2,"subscribe":{"channel":"room:a"}}"#), r#""id":2"#);
    for (name, question) in [
        ("presence_stats of 5,000 without end", r#"{"id":3,"presence_stats":{"channel":"room:a"}}"#),
        ("presence of 5,000 without end", r#"{"id":3,"presence":{"channel":"room:a"}}"#),
    ] {
        let attacker = WebSocket::connected(server.address);
        let mut watch = Watch::begin(name, &server);
        let (is_over, asker) = asker(server.address);
        flood(std::slice::from_ref(&attacker.socket), &text(&question.repeat(1_000)), FLOOD, true);
        // The attacker disconnects, so no client needs the answers to its requests any more.
        drop(attacker);
        pause(Duration::from_millis(500));
        is_over.store(true, Relaxed);
        let worst = asker.join().expect("it ends");
        watch.told(format!("another's question took {worst:?} at worst"));
        let stretch = watch.end(16 * MIB + SLACK);
        assert!(worst < ANSWER.mul_f64(stretch), "{name}: another client waited {worst:?}");
    }
}

#[test]
fn a_message_to_a_group_of_500_is_there_once() {
    let _alone = alone();
    let server = Server::start();
    let join = r#"{"id":2,"rpc":{"method":"registry.join","data":{"scope":"devices","group":"all"}}}"#;
    let _crowd = crowd(server.address, 500, &text(join), r#""id":2"#);
    let mut attacker = WebSocket::connected(server.address);
    let data = "d".repeat(60_000);
    let send = |id: u32| {
        let request = format!(r#"{{"scope":"devices","group":"all","data":"{data}"}}"#);
        format!(r#"{{"id":{id},"rpc":{{"method":"registry.send","data":{request}}}}}"#)
    };
    let mut watch = Watch::begin("20 messages of 60 KB to a group of 500 that does not read", &server);
    (2..22).for_each(|id| attacker.send_bytes(&text(&send(id))));
    let last = attacker
        .reply(&json!(21))
        .map(|reply| if reply["error"].is_null() { json!("sent") } else { reply["error"]["code"].clone() });
    // This is long enough for a hundred measurements. Nine in ten of them decide.
    pause(Duration::from_secs(2));
    watch.told(format!("{last:?}"));
    // The memory of the messages, each once, and of the members' socket buffers.
    watch.end(20 * 64 * 1024 + 16 * MIB + SLACK);
}

#[test]
fn calls_that_nobody_answers_are_bounded_for_each_caller() {
    let _alone = alone();
    let server = Server::start();
    let mut silent = WebSocket::connected(server.address);
    silent
        .must(json!({"id": 2, "rpc": {"method": "registry.register", "data": {"scope": "devices", "name": "silent"}}}));
    let mut attacker = WebSocket::connected(server.address);
    let call = |id: u32| {
        let data = json!({"scope": "devices", "name": "silent", "data": 1, "timeout_ms": 60_000});
        json!({"id": id, "rpc": {"method": "registry.call", "data": data}})
    };
    let mut watch = Watch::begin("500 calls that nobody answers", &server);
    for id in 2..502 {
        attacker.send_json(call(id));
    }
    let _ = attacker.socket.set_read_timeout(Some(FLOOD));
    let refused = attacker.next_message();
    watch.told(format!("{:?}", refused.as_ref().map(|reply| reply["error"]["code"].clone())));
    let mut other = WebSocket::connected(server.address);
    let count = other
        .told(&json!({"id": 2, "rpc": {"method": "registry.lookup", "data": {"scope": "devices", "name": "silent"}}}));
    watch.end(4 * MIB + SLACK);
    assert_eq!(count, Told::Done);
    assert_eq!(
        refused.expect("the client stays")["error"]["code"],
        json!(4007),
        "a caller's waiting calls have a limit"
    );
}

#[test]
fn names_of_the_server_itself_are_out_of_reach() {
    let _alone = alone();
    let server = Server::start();
    let mut http = http(server.address);
    let mut member = WebSocket::connected(server.address);
    member.must(json!({"id": 2, "subscribe": {"channel": "room:a"}}));
    let mut watch = Watch::begin("operations on the scope of presence", &server);
    let scope = json!({
        "scope": "$presence",
        "group": "room:a",
        "name": "room:a",
        "prefix": "",
        "data": 1,
        "client": "00000000-0000-4000-8000-000000000000",
    });
    for operation in ["members", "groups", "names", "count", "send", "lookup", "register", "join", "call", "multi_call"]
    {
        let reply = http.api(operation, &scope);
        watch.told(&reply["error"]["code"]);
        assert!(reply["error"]["code"].is_u64(), "{operation}: {reply}");
    }
    watch.end(SLACK);
    let insecure = Server::with(&json!({"client": {"insecure": true}}));
    let mut attacker = WebSocket::connected(insecure.address);
    let told = attacker.told(
        &json!({"id": 2, "rpc": {"method": "registry.members", "data": {"scope": "$presence", "group": "room:a"}}}),
    );
    assert_eq!(told, Told::Error(4003), "in insecure mode too");
}

/// A command that subscribes with a large filter. Each filter is different.
fn filter(last: usize, word: &str, words: usize) -> Value {
    let mut vals = vec![word.to_owned(); words];
    vals.push(last.to_string());
    json!({"key": "k", "cmp": "in", "vals": vals})
}

#[test]
fn filters_have_a_limit_of_their_size() {
    let _alone = alone();
    let server = Server::start();
    let mut attacker = WebSocket::connected(server.address);
    let mut watch = Watch::begin("128 filters of 60 KB", &server);
    let mut told: Vec<Told> = (0..128)
        .map(|id| {
            let subscribe = json!({"channel": format!("filtered:{id}"), "tf": filter(id, "", 18_000)});
            attacker.told(&json!({"id": id + 2, "subscribe": subscribe}))
        })
        .collect();
    told.sort();
    told.dedup();
    watch.told(format!("{told:?}"));
    watch.end(4 * MIB + SLACK);
    assert!(matches!(told[..], [Told::Error(106 | 107)]), "too large a filter is refused: {told:?}");
}

#[test]
fn many_filters_that_are_nearly_the_same_cost_others_nothing() {
    let _alone = alone();
    let server = Server::start();
    let clients = size(100, 200);
    let mut attackers: Vec<WebSocket> = (0..clients).map(|_| WebSocket::connected(server.address)).collect();
    let mut watch = Watch::begin("filters that differ in their last word", &server);
    for (last, attacker) in attackers.iter_mut().enumerate() {
        attacker.send_json(
            json!({"id": 2, "subscribe": {"channel": "filtered:a", "tf": filter(last, &"x".repeat(50), 60)}}),
        );
    }
    let taken = attackers
        .iter_mut()
        .filter_map(|attacker| attacker.reply(&json!(2)).ok())
        .filter(|reply| reply["subscribe"].is_object());
    let taken = taken.count();
    let mut http = http(server.address);
    for _ in 0..1_000 {
        http.api("publish", &json!({"channel": "filtered:a", "data": 1, "tags": {"k": "none of them"}}));
    }
    watch.told(format!("{taken} of {clients} taken"));
    watch.end(8 * MIB + SLACK);
    assert_eq!(taken, clients, "a filter of this size is allowed");
}

#[test]
fn channels_that_were_only_looked_at_leave_next_to_nothing() {
    let _alone = alone();
    let server =
        Server::with(&merged(with_namespace(&json!({"name": "seen"})), &json!({"client": {"command_rate_limit": 0}})));
    let mut attacker = WebSocket::connected(server.address);
    let mut watch = Watch::begin("200,000 channels that are only asked about", &server);
    let rounds = size(200, 1_000);
    for round in 0..rounds {
        let message: String = (0..1_000)
            .map(|n| format!("{{\"id\":{},\"history\":{{\"channel\":\"big:{round}-{n}\"}}}}", n + 2))
            .collect();
        attacker.send_bytes(&text(&message));
        attacker.reply(&json!(1_001)).expect("the command is answered");
    }
    watch.told(format!("{} answered", rounds * 1_000));
    watch.end(SLACK);
}

#[test]
fn subscribing_to_ever_new_names_leaves_next_to_nothing() {
    let _alone = alone();
    let server = Server::with(&json!({"client": {"command_rate_limit": 0}}));
    let mut attacker = WebSocket::connected(server.address);
    let mut watch = Watch::begin("200,000 channels entered and left", &server);
    let rounds = size(2_000, 5_000);
    for round in 0..rounds {
        let names = || (0..100).map(|n| format!("big:{round}-{n}"));
        let enter = names()
            .enumerate()
            .map(|(n, name)| format!("{{\"id\":{},\"subscribe\":{{\"channel\":\"{name}\"}}}}", n + 2));
        let leave = names()
            .enumerate()
            .map(|(n, name)| format!("{{\"id\":{},\"unsubscribe\":{{\"channel\":\"{name}\"}}}}", n + 102));
        attacker.send_bytes(&text(&enter.collect::<String>()));
        let entered = (2..102)
            .map(|_| attacker.next_message())
            .filter(|reply| reply.as_ref().is_ok_and(|reply| reply["subscribe"].is_object()));
        let entered = entered.count();
        attacker.send_bytes(&text(&leave.collect::<String>()));
        let left = (102..202).map(|_| attacker.next_message()).filter(Result::is_ok).count();
        assert_eq!((entered, left), (100, 100), "the calls are accepted");
    }
    watch.told(format!("{} entered", rounds * 100));
    watch.end(SLACK);
}
