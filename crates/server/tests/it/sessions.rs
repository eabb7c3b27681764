//! The client protocol, command by command.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use touchline_server::http::{Request, Response};
use touchline_server::{Bytes, Clock, Server};
use touchline_testkit::websocket::{Heard, WebSocket};

use crate::support::{TestServer, settings, token};

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

fn error_of(reply: &Value) -> u64 {
    reply["error"]["code"].as_u64().unwrap_or(0)
}

#[test]
fn connect_and_subscribe_may_share_a_frame() {
    let server = TestServer::start();
    let mut client = server.websocket();
    client.send("{\"id\":1,\"connect\":{\"name\":\"js\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"history:a\"}}");
    let connect = client.message();
    assert_eq!(connect["connect"]["ping"], settings().client.ping_interval.as_secs());
    assert_eq!(connect["connect"]["pong"], true);
    assert_eq!(connect["connect"]["client"].as_str().map(str::len), Some(36));
    let subscribe = client.message();
    assert_eq!(subscribe["id"], 2);
    assert_eq!(subscribe["subscribe"]["recoverable"], true);
    assert_eq!(subscribe["subscribe"]["positioned"], true);
    assert_eq!(subscribe["subscribe"]["epoch"].as_str().map(str::len), Some(8));
}

#[test]
fn publications_arrive_with_offset_tags_and_time() {
    let server = TestServer::start();
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
    server.api("publish", json!({"channel": "history:a", "data": {"text": "multi\nline"}, "tags": {"kind": "goal"}}));
    let publication = client.publication();
    assert_eq!(publication["data"], json!({"text": "multi\nline"}));
    assert_eq!(publication["offset"], 1);
    assert_eq!(publication["tags"], json!({"kind": "goal"}));
    assert!(publication["time"].as_u64().is_some_and(|ms| ms / 1_000 <= now_s() + 1 && ms / 1_000 + 60 > now_s()));
}

#[test]
fn errors_have_their_numbers() {
    let server = TestServer::with(|settings| settings.client.channel_limit = 3);
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "news"}}));
    let long = "x".repeat(300);
    let cases = [
        (json!({"subscribe": {"channel": "news"}}), 105),
        (json!({"subscribe": {"channel": "unknown:a"}}), 102),
        (json!({"subscribe": {"channel": long}}), 107),
        (json!({"subscribe": {"channel": "bad\u{7}name"}}), 107),
        (json!({"subscribe": {"channel": "closed:a"}}), 103),
        (json!({"subscribe": {"channel": "$news"}}), 103),
        (json!({"subscribe": {"channel": "news2", "tf": {"key": "a"}}}), 107),
        (json!({"subscribe": {"channel": "closed:a", "token": "nonsense"}}), 103),
        (json!({"publish": {"channel": "news", "data": 1}}), 103),
        (json!({"publish": {"channel": "history:a"}}), 107),
        (json!({"presence": {"channel": "news"}}), 108),
        (json!({"presence": {"channel": "room:a"}}), 103),
        (json!({"presence_stats": {"channel": "news"}}), 108),
        (json!({"history": {"channel": "news"}}), 108),
        (json!({"history": {"channel": "history:a"}}), 103),
        (json!({"rpc": {"method": "x"}}), 108),
        (json!({"subscribe": {"channel": "history:a"}}), 0),
        (json!({"history": {"channel": "history:a", "reverse": true, "since": {"offset": 0}, "limit": 1}}), 107),
        (json!({"history": {"channel": "history:a", "since": {"offset": 0, "epoch": "other"}}}), 112),
        (json!({"subscribe": {"channel": "news3"}}), 0),
        (json!({"subscribe": {"channel": "news4"}}), 106),
        (json!({"unsubscribe": {"channel": "never"}}), 0),
    ];
    for (index, (mut command, expected)) in cases.into_iter().enumerate() {
        command["id"] = json!(index + 10);
        let reply = client.ask(command.clone());
        assert_eq!(error_of(&reply), expected, "{command} → {reply}");
    }
}

#[test]
fn disconnects_have_their_codes() {
    let server = TestServer::start();
    let good = token(json!({"sub": "u"}));
    let other = token(json!({"sub": "someone else"}));
    let expired = token(json!({"sub": "u", "exp": now_s() - 1}));
    let connect = json!({"id": 1, "connect": {"token": good}}).to_string();
    let cases: Vec<(String, u16)> = vec![
        ("{\"id\":1,\"subscribe\":{\"channel\":\"a\"}}".into(), 3501),
        (format!("{connect}\n{connect}"), 3501),
        ("{\"connect\":{}}".into(), 3501),
        ("".into(), 3501),
        ("no json".into(), 3501),
        (format!("{connect}\n{{\"id\":2,\"new_command\":{{}}}}"), 3501),
        (format!("{connect}\n{{\"id\":2,\"ping\":{{}}}}"), 3501),
        (format!("{connect}\n{{\"id\":2,\"subscribe\":{{}}}}"), 3501),
        (format!("{connect}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"a\",\"delta\":\"other\"}}}}"), 3501),
        (format!("{connect}\n{{}}"), 3501),
        (format!("{connect}\n{{\"send\":{{\"data\":1}}}}"), 3508),
        (format!("{connect}\n{{\"id\":2,\"refresh\":{{}}}}"), 3501),
        (format!("{connect}\n{{\"id\":2,\"refresh\":{{\"token\":\"x\"}}}}"), 3500),
        (format!("{connect}\n{{\"id\":2,\"refresh\":{{\"token\":\"{other}\"}}}}"), 3500),
        (format!("{connect}\n{{\"id\":2,\"refresh\":{{\"token\":\"{expired}\"}}}}"), 3005),
        (json!({"id": 1, "connect": {"token": "forged"}}).to_string(), 3500),
    ];
    for (text, expected) in cases {
        let mut client = server.websocket();
        client.send(&text);
        assert!(matches!(client.close(), Heard::Close(code, _) if code == expected), "{text}");
    }
}

#[test]
fn an_expired_token_is_an_error_and_the_session_listens_no_more() {
    let server = TestServer::start();
    let mut client = server.websocket();
    let expired = token(json!({"sub": "u", "exp": now_s() - 1}));
    client.send(&format!(
        "{}\n{}",
        json!({"id": 1, "connect": {"token": expired}}),
        json!({"id": 2, "subscribe": {"channel": "a"}})
    ));
    assert_eq!(error_of(&client.message()), 109);
    assert_eq!(client.close(), Heard::Close(3000, "connection closed".into()));
}

#[test]
fn anonymous_clients_are_refused_unless_allowed() {
    let server = TestServer::with(|settings| settings.client.allow_anonymous_connect_without_token = false);
    let mut client = server.websocket();
    client.send("{\"id\":1,\"connect\":{}}");
    assert_eq!(client.close(), Heard::Close(3507, "permission denied".into()));
}

#[test]
fn a_client_that_does_not_answer_pings_is_ended() {
    let server = TestServer::with(|settings| {
        // Short: it only makes the test faster.
        settings.client.ping_interval = Duration::from_millis(1_000);
        // Shorter than the interval of pings.
        settings.client.pong_timeout = Duration::from_millis(900);
    });
    let mut deaf = server.connected();
    assert_eq!(deaf.hear(), Heard::Text("{}".into()));
    assert_eq!(deaf.hear(), Heard::Close(3012, "no pong".into()));
    let mut lively = server.connected();
    for _ in 0..3 {
        assert_eq!(lively.hear(), Heard::Text("{}".into()));
        lively.send("{}");
    }
    assert!(lively.ask(json!({"id": 9, "unsubscribe": {"channel": "x"}}))["unsubscribe"].is_object());
}

#[test]
fn a_pong_that_the_node_was_too_busy_to_read_is_not_late() {
    /// More clients than the node reads in one turn.
    const CLIENTS: usize = 600;
    let mut settings = settings();
    settings.node.shards = 1;
    let (ping_interval, pong_timeout) = (settings.client.ping_interval, settings.client.pong_timeout);
    let (busy, is_busy) = std::sync::mpsc::sync_channel(0);
    let (free, is_free) = std::sync::mpsc::sync_channel(0);
    let is_free = std::sync::Mutex::new(is_free);
    // It blocks the thread of the shard until the test frees it.
    let block = move |_: Request<Bytes>| {
        busy.send(()).expect("the test waits");
        is_free.lock().expect("no thread panics with it").recv().expect("the test goes on");
        std::future::ready(Response::new(Bytes::new()))
    };
    let (clock, hand) = Clock::with_hand();
    let server = Server::builder(settings).clock(clock).route("/busy", block).build().expect("the path is good");
    let server = TestServer::of(server.start().expect("it starts")).with_hand(hand);
    let mut clients: Vec<WebSocket> = (0..CLIENTS).map(|_| server.connected()).collect();
    server.clock().stop();
    for round in 0..4 {
        server.clock().advance(ping_interval);
        for client in &mut clients {
            assert_eq!(client.hear(), Heard::Text("{}".into()), "no client is ended, round {round}");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(server.http("GET", "/busy", "", "").0, 200));
            is_busy.recv().expect("the shard is blocked");
            clients.iter_mut().for_each(|client| client.send("{}"));
            server.clock().advance(pong_timeout);
            free.send(()).expect("the shard is blocked");
        });
    }
}

#[test]
fn a_client_that_never_connects_is_stale() {
    let server = TestServer::with(|settings| settings.client.stale_close_delay = Duration::from_millis(300));
    let mut client = server.websocket();
    assert_eq!(client.close(), Heard::Close(3502, "stale".into()));
}

#[test]
fn connections_and_subscriptions_end_when_their_time_is_over() {
    let server = TestServer::with(|settings| {
        // Short: the test waits for the end.
        settings.client.expired_close_delay = Duration::from_millis(100);
        // Short: the test waits for the end.
        settings.client.expired_sub_close_delay = Duration::from_millis(100);
    });
    let mut client = server.websocket();
    let soon = token(json!({"sub": "u", "exp": now_s() + 5}));
    let reply = client.ask(json!({"id": 1, "connect": {"token": soon}}));
    assert_eq!(reply["connect"]["expires"], true);
    assert!(reply["connect"]["ttl"].as_u64().is_some_and(|ttl| (1..=5).contains(&ttl)));
    assert_eq!(client.close(), Heard::Close(3005, "connection expired".into()));

    let mut client = server.websocket();
    client.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": "u"}))}}));
    let soon = token(json!({"sub": "u", "channel": "closed:a", "exp": now_s() + 5}));
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": "closed:a", "token": soon}}));
    assert_eq!(reply["subscribe"]["expires"], true);
    let push = client.message();
    assert_eq!(push["push"]["unsubscribe"], json!({"code": 2501, "reason": "subscription expired"}));
}

#[test]
fn recovery_gives_what_was_missed_or_says_that_it_cannot() {
    let server = TestServer::start();
    let mut client = server.connected();
    let first = client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
    let epoch = first["subscribe"]["epoch"].as_str().unwrap_or_default().to_owned();
    for n in 1..=5 {
        server.publish("history:a", json!(n));
    }
    let recover = |epoch: &str, offset: u64, flag: u64| {
        let mut client = server.connected();
        let request = json!({"channel": "history:a", "recover": true, "epoch": epoch, "offset": offset, "flag": flag});
        client.ask(json!({"id": 2, "subscribe": request}))
    };
    let reply = recover(&epoch, 2, 0);
    let result = &reply["subscribe"];
    assert_eq!(
        (&result["recovered"], &result["was_recovering"], &result["offset"]),
        (&json!(true), &json!(true), &json!(2))
    );
    let offsets: Vec<u64> =
        result["publications"].as_array().into_iter().flatten().filter_map(|p| p["offset"].as_u64()).collect();
    assert_eq!(offsets, [3, 4, 5]);
    let up_to_date = recover(&epoch, 5, 0);
    assert_eq!((&up_to_date["subscribe"]["recovered"], &up_to_date["subscribe"]["offset"]), (&json!(true), &json!(5)));
    for reply in [recover("otherepo", 2, 0), recover(&epoch, 9, 0)] {
        let result = &reply["subscribe"];
        assert_eq!(
            (&result["recovered"], &result["was_recovering"], &result["offset"]),
            (&Value::Null, &json!(true), &json!(5))
        );
        assert!(result["publications"].is_null());
    }
    assert_eq!(error_of(&recover("otherepo", 2, 2)), 112);
}

#[test]
fn joins_come_behind_the_reply_and_leaves_when_a_socket_breaks() {
    let server = TestServer::start();
    let mut watcher = server.connected();
    watcher.ask(json!({"id": 2, "subscribe": {"channel": "room:a"}}));
    assert!(watcher.message()["push"]["join"].is_object());
    let mut guest = server.websocket();
    guest.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": "guest", "info": {"name": "G"}}))}}));
    guest.ask(json!({"id": 2, "subscribe": {"channel": "room:a"}}));
    let join = watcher.message();
    assert_eq!(join["push"]["join"]["info"]["user"], "guest");
    assert_eq!(join["push"]["join"]["info"]["conn_info"], json!({"name": "G"}));
    let stats = watcher.ask(json!({"id": 3, "presence_stats": {"channel": "room:a"}}));
    assert_eq!(stats["presence_stats"], json!({"num_clients": 2, "num_users": 2}));
    drop(guest);
    assert_eq!(watcher.message()["push"]["leave"]["info"]["user"], "guest");
}

#[test]
fn control_frames_are_answered_between_fragments() {
    use std::io::Write;
    use touchline_testkit::websocket::frame;
    let server = TestServer::start();
    let mut client = server.connected();
    let text = json!({"id": 7, "unsubscribe": {"channel": "x"}}).to_string();
    let (first, last) = text.as_bytes().split_at(9);
    let mut bytes = frame(0x01, first);
    bytes.extend(frame(0x89, b"are you there"));
    bytes.extend(frame(0x80, last));
    client.socket.write_all(&bytes).expect("the server reads");
    assert_eq!(client.hear(), Heard::Pong(b"are you there".to_vec()));
    assert_eq!(client.message()["id"], 7);
    client.socket.write_all(&frame(0x88, &1000u16.to_be_bytes())).expect("the server reads");
    assert_eq!(client.hear(), Heard::Close(1000, String::new()));
    assert_eq!(client.hear(), Heard::End);
}

#[test]
fn what_is_published_while_a_connect_waits_comes_behind_its_reply() {
    let server = TestServer::start();
    let subs: Vec<String> = (0..40).map(|n| format!("history:busy{n}")).collect();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let commands: Vec<Value> = subs.iter().map(|c| json!({"publish": {"channel": c, "data": 1}})).collect();
                server.api("batch", json!({"commands": commands}));
            }
        });
        for _ in 0..30 {
            let mut client = server.websocket();
            client.send_json(json!({"id": 1, "connect": {"token": token(json!({"sub": "u", "channels": subs}))}}));
            let first = client.message();
            assert_eq!(first["id"], 1, "the connect reply comes first: {first}");
            let mut position: std::collections::HashMap<String, u64> = first["connect"]["subs"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(channel, result)| (channel.clone(), result["offset"].as_u64().unwrap_or(0)))
                .collect();
            assert_eq!(position.len(), subs.len());
            for _ in 0..200 {
                let message = client.message();
                let channel = message["push"]["channel"].as_str().unwrap_or_default();
                let last = position.get_mut(channel).expect("a channel of the token");
                assert_eq!(message["push"]["pub"]["offset"], json!(*last + 1), "{channel}");
                *last += 1;
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
