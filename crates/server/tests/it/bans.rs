//! Bans on one node: which clients are refused, which connections end, and what the server API returns.

use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Namespace};
use touchline_testkit::http::to_the_end;
use touchline_testkit::websocket::{Heard, WebSocket};
use touchline_testkit::{until, until_eq};

use super::backend::{Answer, Backend};
use super::support::{KEY, TestServer, token};

/// Connects a client with these claims. Returns its connection, or the number of its refusal.
pub(crate) fn connect(server: &TestServer, claims: Value) -> Result<WebSocket, u64> {
    let mut websocket = server.websocket();
    websocket.send_json(json!({"id": 1, "connect": {"token": token(claims)}}));
    match websocket.next_message() {
        Ok(reply) if reply["connect"].is_object() => Ok(websocket),
        Ok(reply) => Err(reply["error"]["code"].as_u64().unwrap_or_default()),
        Err(Heard::Close(code, _)) => Err(code.into()),
        Err(other) => panic!("an answer to the connect, not {other:?}"),
    }
}

pub(crate) fn refusal(server: &TestServer, claims: Value) -> u64 {
    connect(server, claims).err().unwrap_or_default()
}

pub(crate) fn connected(server: &TestServer, claims: Value) -> WebSocket {
    connect(server, claims.clone()).unwrap_or_else(|code| panic!("{claims} is refused with {code}"))
}

/// Calls an operation that must succeed.
pub(crate) fn done(server: &TestServer, operation: &str, body: Value) {
    assert_eq!(server.api(operation, body.clone()), json!({"result": {}}), "{operation} {body}");
}

pub(crate) fn code(client: &mut WebSocket) -> u16 {
    match client.close() {
        Heard::Close(code, _) => code,
        other => panic!("a close frame, not {other:?}"),
    }
}

/// Asserts that a client is still served.
pub(crate) fn is_served(client: &mut WebSocket) {
    let reply = client.ask(json!({"id": 99, "rpc": {"method": "none"}}));
    assert_eq!(reply["id"], 99);
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_secs()
}

/// A directory that is removed when this is dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("touchline-it-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        Scratch(directory)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_blocked_user_is_disconnected_and_refused_until_it_is_unblocked() {
    let server = TestServer::start();
    let (mut phone, mut laptop) =
        (connected(&server, json!({"sub": "ann"})), connected(&server, json!({"sub": "ann"})));
    let mut bob = connected(&server, json!({"sub": "bob"}));
    done(&server, "block_user", json!({"user": "ann"}));
    assert_eq!((code(&mut phone), code(&mut laptop)), (3503, 3503));
    assert_eq!(refusal(&server, json!({"sub": "ann", "jti": "new", "iat": now_s()})), 3503);
    is_served(&mut bob);
    done(&server, "block_user", json!({"user": "ann"}));
    done(&server, "unblock_user", json!({"user": "ann"}));
    done(&server, "unblock_user", json!({"user": "ann"}));
    connected(&server, json!({"sub": "ann"}));
    until_eq(1, || server.metric("touchline_ban_refusals_total{reason=\"blocked\"}"));
    until_eq(2, || server.metric("touchline_ban_disconnects_total{reason=\"blocked\"}"));
}

#[test]
fn a_revoked_token_ends_the_connections_that_came_with_it() {
    let server = TestServer::start();
    let claims = |jti: &str| json!({"sub": "ann", "jti": jti});
    let mut first = connected(&server, claims("t1"));
    let mut second = connected(&server, claims("t1"));
    let mut other = connected(&server, claims("t2"));
    let mut bare = connected(&server, json!({"sub": "ann"}));
    done(&server, "revoke_token", json!({"uid": "t1"}));
    assert_eq!((code(&mut first), code(&mut second)), (3500, 3500));
    assert_eq!((refusal(&server, claims("t1")), refusal(&server, claims("t2"))), (3500, 0));
    is_served(&mut other);
    is_served(&mut bare);
    // The last token that a client has shown is the one that counts.
    let refresh = json!({"id": 2, "refresh": {"token": token(claims("t3"))}});
    assert!(other.ask(refresh)["refresh"].is_object());
    done(&server, "revoke_token", json!({"uid": "t2"}));
    done(&server, "revoke_token", json!({"uid": "t4"}));
    is_served(&mut other);
    other.send_json(json!({"id": 3, "refresh": {"token": token(claims("t4"))}}));
    assert_eq!(code(&mut other), 3500);
}

#[test]
fn tokens_of_a_user_are_invalidated_by_the_time_of_their_issue() {
    let server = TestServer::start();
    let claims = |user: &str, iat: u64| json!({"sub": user, "iat": iat});
    let now = now_s();
    let (mut old, mut bare) = (connected(&server, claims("ann", now - 100)), connected(&server, json!({"sub": "ann"})));
    let (mut new, mut bob) = (connected(&server, claims("ann", now - 10)), connected(&server, json!({"sub": "bob"})));
    done(&server, "invalidate_user_tokens", json!({"user": "ann", "issued_before": now - 50}));
    assert_eq!((code(&mut old), code(&mut bare)), (3500, 3500));
    is_served(&mut new);
    is_served(&mut bob);
    assert_eq!(refusal(&server, claims("ann", now - 51)), 3500);
    assert_eq!(refusal(&server, claims("ann", now - 50)), 0);
    // The default is the present time.
    done(&server, "invalidate_user_tokens", json!({"user": "ann"}));
    assert_eq!(code(&mut new), 3500);
    assert_eq!(refusal(&server, claims("ann", now - 1)), 3500);
    assert_eq!(refusal(&server, claims("ann", now_s() + 1)), 0);
}

#[test]
fn a_ban_of_a_subscription_token_refuses_the_subscription() {
    let server = TestServer::start();
    let mut ann = connected(&server, json!({"sub": "ann", "iat": now_s()}));
    let subscribe_with = |id: u64, jti: &str| {
        let token = token(json!({"sub": "ann", "channel": "closed:a", "jti": jti}));
        json!({"id": id, "subscribe": {"channel": "closed:a", "token": token}})
    };
    done(&server, "revoke_token", json!({"uid": "s1"}));
    assert_eq!(ann.ask(subscribe_with(2, "s1"))["error"]["code"], 103);
    assert!(ann.ask(subscribe_with(3, "s2"))["subscribe"].is_object());
    let refresh =
        json!({"channel": "closed:a", "token": token(json!({"sub": "ann", "channel": "closed:a", "jti": "s1"}))});
    assert_eq!(ann.ask(json!({"id": 4, "sub_refresh": refresh}))["error"]["code"], 103);
    is_served(&mut ann);
}

#[test]
fn a_ban_ends_when_it_says() {
    let server = TestServer::start();
    let expire_at = now_s() + 2;
    done(&server, "block_user", json!({"user": "ann", "expire_at": expire_at}));
    done(&server, "revoke_token", json!({"uid": "t1", "expire_at": expire_at}));
    done(&server, "invalidate_user_tokens", json!({"user": "bob", "expire_at": expire_at}));
    let judged = || {
        let claims = [json!({"sub": "ann"}), json!({"sub": "eve", "jti": "t1"}), json!({"sub": "bob"})];
        claims.map(|claims| refusal(&server, claims))
    };
    assert_eq!(judged(), [3503, 3500, 3500]);
    until("the bans end", || judged() == [0, 0, 0]);
    assert!(now_s() >= expire_at);
    let bans = ["blocked_users", "revoked_tokens", "invalidated_users"];
    until("they leave the table", || {
        bans.iter().all(|kind| server.metric(&format!("touchline_bans{{kind=\"{kind}\"}}")) == 0)
    });
}

#[test]
fn bad_requests_ban_nobody() {
    let server = TestServer::start();
    let past = now_s() - 1;
    let long = "x".repeat(1_025);
    let cases = [
        ("block_user", json!({}), 107),
        ("block_user", json!({"user": ""}), 107),
        ("block_user", json!({"user": "a\u{0}b"}), 107),
        ("block_user", json!({"user": long}), 107),
        ("block_user", json!({"user": "ann", "expire_at": past}), 107),
        ("block_user", json!({"user": "ann", "expire_at": -5}), 107),
        ("block_user", json!({"user": "ann", "expire_at": now_s() * 1_000}), 107),
        ("unblock_user", json!({"user": ""}), 107),
        ("revoke_token", json!({"uid": ""}), 107),
        ("revoke_token", json!({"uid": long}), 107),
        ("invalidate_user_tokens", json!({"user": ""}), 107),
        ("invalidate_user_tokens", json!({"user": "ann", "issued_before": -1}), 107),
        ("invalidate_user_tokens", json!({"user": "ann", "issued_before": now_s() * 1_000}), 107),
        ("invalidate_user_tokens", json!({"user": "ann", "channel": "news"}), 108),
    ];
    for (operation, body, expected) in cases {
        assert_eq!(server.api(operation, body.clone())["error"]["code"], expected, "{operation} {body}");
    }
    connected(&server, json!({"sub": "ann"}));
    for (operation, body) in [("block_user", "{\"user\":7}"), ("revoke_token", "[]"), ("unblock_user", "{")] {
        let status = server.http("POST", &format!("/api/{operation}"), &format!("X-API-Key: {KEY}\r\n"), body).0;
        assert_eq!(status, 400, "{operation} {body}");
    }
}

#[test]
fn bans_of_a_batch_hold_and_are_counted() {
    let server = TestServer::start();
    let commands = json!({"commands": [
        {"block_user": {"user": "ann"}},
        {"revoke_token": {"uid": "t1"}},
        {"invalidate_user_tokens": {"user": "bob"}},
        {"block_user": {"user": "eve"}},
        {"unblock_user": {"user": "eve"}},
    ]});
    let replies = server.api("batch", commands)["replies"].clone();
    assert!(replies.as_array().expect("a list").iter().all(|reply| reply["error"].is_null()), "{replies}");
    let refused = ["ann", "bob", "eve"].map(|user| refusal(&server, json!({"sub": user})));
    assert_eq!(refused, [3503, 3500, 0]);
    let count = |kind: &str| server.metric(&format!("touchline_bans{{kind=\"{kind}\"}}"));
    assert_eq!(["blocked_users", "revoked_tokens", "invalidated_users"].map(count), [1, 1, 1]);
    until_eq(1, || server.metric("touchline_bans_current"));
}

#[test]
fn a_node_that_has_all_the_bans_that_it_may_says_so() {
    let server = TestServer::with(|settings| settings.security.bans_max_entries = 2);
    done(&server, "block_user", json!({"user": "ann", "expire_at": now_s() + 2}));
    done(&server, "revoke_token", json!({"uid": "t1"}));
    assert_eq!(server.api("block_user", json!({"user": "bob"}))["error"]["code"], 106);
    done(&server, "revoke_token", json!({"uid": "t1"}));
    done(&server, "block_user", json!({"user": "ann", "expire_at": now_s() + 2}));
    until("what has ended makes room", || server.api("block_user", json!({"user": "bob"}))["error"].is_null());
}

#[test]
fn clients_of_hooks_are_judged_by_their_user_and_answers_that_hold_are_forgotten() {
    let backend = Backend::start(|question| match question.path.as_str() {
        "/connect" => Answer::Json(json!({"result": {"user": question.body["data"]["as"]}})),
        _ => Answer::Json(json!({"result": {"cache_for": 3_600}})),
    });
    let server = TestServer::with(|settings| {
        settings.client.proxy.connect.enabled = true;
        settings.client.proxy.connect.proxy.endpoint = backend.url("/connect");
        settings.channel.proxy.subscribe.endpoint = backend.url("/subscribe");
        let options = ChannelOptions { subscribe_proxy_enabled: true, ..ChannelOptions::default() };
        settings.channel.namespaces.push(Namespace { name: "chat".into(), options });
    });
    let open = |user: &str| {
        let mut client = server.websocket();
        client.send_json(json!({"id": 1, "connect": {"data": {"as": user}}}));
        client
    };
    let subscribe = |client: &mut WebSocket| {
        assert!(client.ask(json!({"id": 2, "subscribe": {"channel": "chat:a"}}))["subscribe"].is_object());
        backend.questions().iter().filter(|question| question.path == "/subscribe").count()
    };
    let mut ann = open("ann");
    assert!(ann.message()["connect"].is_object());
    until_eq(1, || subscribe(&mut ann));
    // Tokens do not concern this client, because it has shown none.
    done(&server, "invalidate_user_tokens", json!({"user": "ann"}));
    is_served(&mut ann);
    done(&server, "block_user", json!({"user": "ann"}));
    assert_eq!(code(&mut ann), 3503);
    assert_eq!(code(&mut open("ann")), 3503);
    done(&server, "unblock_user", json!({"user": "ann"}));
    let mut ann = open("ann");
    assert!(ann.message()["connect"].is_object());
    until_eq(2, || subscribe(&mut ann));
}

#[test]
fn a_client_that_only_listens_is_told_too() {
    let server = TestServer::with(|settings| settings.uni_sse.enabled = true);
    done(&server, "block_user", json!({"user": "ann"}));
    let body = json!({"token": token(json!({"sub": "ann"}))}).to_string();
    let mut socket = server.socket();
    let head = format!(
        "POST /connection/uni_sse HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut socket, head.as_bytes()).expect("the server listens");
    let told = to_the_end(&mut socket);
    assert!(told.contains("3503"), "{told}");
}

#[test]
fn sqlite_keeps_bans_over_a_restart() {
    let scratch = Scratch::new("bans-sqlite");
    let url = format!("sqlite:{}", scratch.0.join("primary.db").display());
    let start = || {
        TestServer::with(|settings| {
            settings.store.primary.url = url.clone();
            settings.security.use_primary = true;
        })
    };
    let mut server = start();
    let mut ann = connected(&server, json!({"sub": "ann"}));
    done(&server, "block_user", json!({"user": "ann"}));
    assert_eq!(code(&mut ann), 3503);
    done(&server, "revoke_token", json!({"uid": "t1"}));
    done(&server, "invalidate_user_tokens", json!({"user": "bob", "issued_before": 1_000}));
    done(&server, "block_user", json!({"user": "eve"}));
    done(&server, "unblock_user", json!({"user": "eve"}));
    server.stop();
    let server = start();
    let claims = [
        json!({"sub": "ann"}),
        json!({"sub": "x", "jti": "t1"}),
        json!({"sub": "bob", "iat": 999}),
        json!({"sub": "eve"}),
    ];
    assert_eq!(claims.map(|claims| refusal(&server, claims)), [3503, 3500, 3500, 0]);
    assert_eq!(refusal(&server, json!({"sub": "bob", "iat": 1_000})), 0);
}

/// Many revocations in a row share their sweeps; the right connection still ends.
#[test]
fn many_revocations_in_a_row_find_their_connections() {
    let server = TestServer::start();
    let mut clients: Vec<WebSocket> =
        (0..50).map(|number| connected(&server, json!({"sub": "ann", "jti": format!("t{number}")}))).collect();
    for hundred in 0..20 {
        let commands: Vec<Value> = (0..100)
            .map(|number| json!({"revoke_token": {"uid": format!("t{}", hundred * 100 + number + 25)}}))
            .collect();
        server.api("batch", json!({"commands": commands}));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        if number < 25 { is_served(client) } else { assert_eq!(code(client), 3500, "t{number}") }
    }
    until_eq(2_000, || server.metric("touchline_bans{kind=\"revoked_tokens\"}"));
}
