//! Requests that are refused before they reach anything shared: odd texts and tokens, too many connections of a user,
//! and times without end.

use std::sync::Barrier;

use serde_json::{Value, json};
use touchline_testkit::until;
use touchline_testkit::websocket::{Heard, WebSocket};

use crate::support::{TestServer, open, token};

fn code(reply: &Value) -> u64 {
    reply["error"]["code"].as_u64().unwrap_or(0)
}

#[test]
fn control_characters_are_refused_by_the_server_api() {
    let server = TestServer::start();
    for odd in ["a\0b", "a\nb", "a\u{7f}b", "a\u{85}b"] {
        let publish = |key: &str, value: &str| {
            let mut body = json!({"channel": "history:a", "data": 1, "channels": ["history:a"]});
            body[key] = json!(value);
            [server.api("publish", body.clone()), server.api("broadcast", body)]
        };
        for key in ["idempotency_key", "version_epoch"] {
            assert_eq!(publish(key, odd).each_ref().map(code), [107, 107], "{key} {odd:?}");
        }
        assert_eq!(code(&server.api("publish", json!({"channel": odd, "data": 1}))), 107, "{odd:?}");
        for operation in ["subscribe", "unsubscribe", "disconnect", "refresh"] {
            let reply = server.api(operation, json!({"user": odd, "channel": "history:a"}));
            assert_eq!(code(&reply), 107, "{operation} {odd:?}");
        }
    }
    assert_eq!(server.publish("history:a", json!(1))["result"]["offset"], 1, "nothing of it was kept");
}

#[test]
fn keys_of_publications_are_so_long_and_no_longer() {
    let server = TestServer::with(|settings| settings.channel.idempotency_key_max_length = 10);
    for key in ["idempotency_key", "version_epoch"] {
        let publish = |length: usize| {
            let mut body = json!({"channel": "history:a", "data": 1, "channels": ["history:a"]});
            body[key] = json!("k".repeat(length));
            [server.api("publish", body.clone()), server.api("broadcast", body)]
        };
        assert_eq!(publish(10).each_ref().map(code), [0, 0], "{key}");
        assert_eq!(publish(11).each_ref().map(code), [107, 107], "{key}");
    }
}

/// Connects with a token and returns the result. It does not look at presence, only whether the client is accepted.
fn connect(server: &TestServer, claims: Value) -> Result<(), Heard> {
    let mut client = server.websocket();
    client.send_json(json!({"id": 1, "connect": {"token": token(claims)}}));
    client.next_message().map(|reply| assert!(reply["connect"]["client"].is_string(), "{reply}"))
}

#[test]
fn a_token_that_is_for_a_channel_opens_no_connection() {
    for has_own_keys in [false, true] {
        let server = TestServer::with(|settings| {
            let own = &mut settings.client.subscription_token;
            (own.enabled, own.token.hmac_secret_key) = (has_own_keys, crate::support::SECRET.into());
        });
        let invalid = |outcome: Result<(), Heard>| matches!(outcome, Err(Heard::Close(3500, _)));
        assert!(connect(&server, json!({"sub": "ann"})).is_ok());
        assert!(
            connect(&server, json!({"sub": "ann", "channel": ""})).is_ok(),
            "a library may write what is absent so"
        );
        assert!(connect(&server, json!({"sub": "ann", "channel": null})).is_ok());
        for claims in [
            json!({"sub": "ann", "channel": "closed:a"}),
            json!({"sub": "ann", "channel": "closed:a", "channels": ["history:a"]}),
            json!({"sub": "ann", "channel": 7}),
            json!({"sub": "ann\u{0}"}),
            json!({"sub": "ann\nbob"}),
        ] {
            assert!(invalid(connect(&server, claims.clone())), "{claims}");
        }
        let mut client = server.websocket();
        client.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": "ann"}))}}));
        let good = token(json!({"sub": "ann", "channel": "closed:a"}));
        let reply = client.ask(json!({"id": 2, "subscribe": {"channel": "closed:a", "token": good}}));
        assert!(reply["subscribe"].is_object(), "it is good for its channel: {reply}");
        client.send_json(json!({"id": 3, "refresh": {"token": token(json!({"sub": "ann", "channel": "closed:a"}))}}));
        assert!(matches!(client.close(), Heard::Close(3500, _)), "and for no refresh");
    }
}

#[test]
fn filters_that_are_too_large_are_refused() {
    let server = TestServer::with(|settings| settings.channel.without_namespace.allow_tags_filter = true);
    let mut client = server.connected();
    let mut subscribe = |id: u64, vals: Vec<String>| {
        let filter = json!({"key": "k", "cmp": "in", "vals": vals});
        client.ask(json!({"id": id, "subscribe": {"channel": format!("c{id}"), "tf": filter}}))
    };
    assert_eq!(code(&subscribe(2, vec!["v".into(); 63])), 0);
    assert_eq!(code(&subscribe(3, vec!["v".into(); 64])), 107);
    assert_eq!(code(&subscribe(4, vec![String::new(); 10_000])), 107);
    assert_eq!(code(&subscribe(5, vec!["v".repeat(5_000)])), 107);
}

#[test]
fn what_expires_at_the_end_of_time_is_delivered() {
    let server = TestServer::start();
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
    for (n, expires_in) in
        [u64::MAX, u64::MAX / 2, u64::MAX / 1_000, 18_446_744_073_709, 1 << 54, 60].into_iter().enumerate()
    {
        let reply = server.api("publish", json!({"channel": "history:a", "data": n, "expires_in": expires_in}));
        assert_eq!(reply["result"]["offset"], n + 1, "{reply}");
        assert_eq!(client.publication()["data"], n, "expires_in {expires_in}");
    }
    let kept = server.api("history", json!({"channel": "history:a", "limit": 10}));
    assert_eq!(kept["result"]["publications"].as_array().map(Vec::len), Some(6));
}

/// Opens sockets at once, connects them as one user, and returns those that were accepted. The others got 3504, and
/// nothing before it.
fn crowd(server: &TestServer, size: usize) -> Vec<WebSocket> {
    let barrier = Barrier::new(size);
    let let_in = |server: &TestServer| {
        let mut client = server.websocket();
        barrier.wait();
        client.send_json(json!({"id": 1, "connect": {"token": token(json!({"sub": "ann"}))}}));
        match client.next_message() {
            Ok(reply) if reply["connect"]["client"].is_string() => Some(client),
            Ok(reply) => panic!("{reply}"),
            Err(Heard::Close(3504, _)) => None,
            Err(other) => panic!("{other:?}"),
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..size).map(|_| scope.spawn(|| let_in(server))).collect();
        all.into_iter().filter_map(|one| one.join().expect("nobody panics")).collect()
    })
}

#[test]
fn a_users_connections_are_counted_over_all_shards() {
    let server = TestServer::with(|settings| {
        settings.node.shards = 4;
        settings.client.user_connection_limit = 2;
    });
    for round in 0..3 {
        let inside = crowd(&server, 50);
        assert_eq!(inside.len(), 2, "round {round}");
        assert!(connect(&server, json!({"sub": "bob"})).is_ok(), "others have their own");
        drop(inside);
        until("they are gone", || server.metric("touchline_connections") == 0);
    }
}

#[test]
fn who_ends_before_the_connect_reply_is_not_counted_any_more() {
    let server = TestServer::with(|settings| {
        settings.client.user_connection_limit = 1;
        settings.channel.without_namespace = open();
    });
    // These are refused for another fault of the token, after they were counted.
    for _ in 0..5 {
        let claims = json!({"sub": "ann", "channels": ["unknown:a"]});
        assert!(connect(&server, claims).is_err());
    }
    assert_eq!(crowd(&server, 3).len(), 1);
}
