//! Bad input harms only its sender: it gets a numbered error or a closed socket, memory and time are bounded, and a
//! neighbour notices nothing.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;
use touchline_server::Settings;
use touchline_testkit::http::to_the_end;
use touchline_testkit::websocket::{Heard, WebSocket, frame, handshake};
use touchline_testkit::{until, until_eq};

use crate::support::{KEY, TestServer};

/// A neighbour that must be served as if nothing happened, and a server that must stay unaffected.
struct Neighbour {
    client: WebSocket,
    asked: u64,
}

impl Neighbour {
    fn of(server: &TestServer) -> Self {
        let mut client = server.connected();
        client.ask(json!({"id": 2, "subscribe": {"channel": "neighbour"}}));
        Neighbour { client, asked: 10 }
    }

    fn is_served(&mut self, server: &TestServer) {
        self.asked += 1;
        let reply = self.client.ask(json!({"id": self.asked, "unsubscribe": {"channel": "never"}}));
        assert!(reply["unsubscribe"].is_object(), "{reply}");
        server.publish("neighbour", json!(self.asked));
        assert_eq!(self.client.publication()["data"], json!(self.asked));
        until_eq(0, || server.metric("touchline_panics_total"));
    }
}

fn masked_off(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x81, payload.len() as u8];
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn broken_frames_end_their_connection_with_the_code_of_the_rfc() {
    let server = TestServer::start();
    let mut neighbour = Neighbour::of(&server);
    let huge = [&[0x81, 0x80 | 127][..], &(1u64 << 40).to_be_bytes(), &[0; 4]].concat();
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("an unmasked frame", masked_off(b"{}"), 1002),
        ("a reserved bit", frame(0xc1, b"{}"), 1002),
        ("a reserved opcode", frame(0x83, b"{}"), 1002),
        ("a fragmented ping", frame(0x09, b"x"), 1002),
        ("a long ping", frame(0x89, &[0; 126]), 1002),
        ("a continuation of nothing", frame(0x80, b"x"), 1002),
        ("a message inside a message", [frame(0x01, b"x"), frame(0x81, b"y")].concat(), 1002),
        ("no UTF-8", frame(0x81, b"\xff\xfe"), 1007),
        ("too large a message, said in its head", huge, 1009),
        (
            "too large a message in fragments",
            [frame(0x01, &[b' '; 60_000]), frame(0x80, &[b' '; 60_000])].concat(),
            1009,
        ),
        ("a close code that nobody may send", frame(0x88, &1005u16.to_be_bytes()), 1002),
    ];
    for (what, bytes, expected) in cases {
        let mut client = server.connected();
        client.socket.write_all(&bytes).expect("the server reads");
        assert!(matches!(client.close(), Heard::Close(code, _) if code == expected), "{what}");
        neighbour.is_served(&server);
    }
}

#[test]
fn hostile_commands_are_refused_in_bounded_time() {
    let server = TestServer::start();
    let mut neighbour = Neighbour::of(&server);
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let many = "{\"id\":9,\"rpc\":{}}\n".repeat(3_000);
    let cases: Vec<(&str, String, Option<u16>)> = vec![
        ("deep nesting in an unknown field", format!("{{\"id\":5,\"new\":{}}}", deep(5_000)), Some(3501)),
        (
            "deep nesting in data",
            format!("{{\"id\":5,\"publish\":{{\"channel\":\"history:a\",\"data\":{}}}}}", deep(5_000)),
            None,
        ),
        ("a wrong type", "{\"id\":\"5\"}".into(), Some(3501)),
        ("an id beyond its range", "{\"id\":4294967296,\"rpc\":{}}".into(), Some(3501)),
        ("half an object", "{\"id\":5,\"rpc\":".into(), Some(3501)),
        ("a thousand commands in a frame", many, None),
        ("the same id twice", "{\"id\":5,\"rpc\":{}}\n{\"id\":5,\"rpc\":{}}".into(), None),
        ("a pong that nobody asked for", "{}".into(), Some(3501)),
        ("unknown fields", "{\"id\":5,\"rpc\":{\"method\":\"x\",\"more\":{\"a\":[1]}}}".into(), None),
    ];
    for (what, text, expected) in cases {
        let mut client = server.connected();
        let started = Instant::now();
        client.send(&text);
        match expected {
            Some(expected) => assert!(matches!(client.close(), Heard::Close(code, _) if code == expected), "{what}"),
            None => assert!(client.message()["error"]["code"].is_u64(), "{what}"),
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        neighbour.is_served(&server);
    }
}

#[test]
fn hostile_requests_get_a_status_or_a_closed_socket() {
    let server = TestServer::with(|settings| {
        settings.http_api.body_size_limit = 10_000;
        // Short: the test waits for the timeout.
        settings.http_server.header_timeout = Duration::from_millis(500);
        // Short: the test waits for the timeout.
        settings.http_server.idle_timeout = Duration::from_millis(500);
    });
    let mut neighbour = Neighbour::of(&server);
    let key = format!("X-API-Key: {KEY}\r\n");
    assert_eq!(server.http("POST", "/api/publish", &key, &"x".repeat(20_000)).0, 413);
    let deep = format!("{{\"channel\":\"a\",\"data\":{}{}}}", "[".repeat(1_000), "]".repeat(1_000));
    let (status, refused) = server.http("POST", "/api/publish", &key, &deep);
    assert!(
        status == 200 && refused.contains("\"code\":107") && refused.ends_with("\"field\":\"data\"}}"),
        "{refused}"
    );
    let both_lengths = format!(
        "POST /api/publish HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    );
    let two_lengths =
        format!("POST /api/publish HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 4\r\nContent-Length: 5\r\n\r\n{{}}");
    let cases = [
        ("garbage", "\u{1}\u{2}\u{3}\r\n\r\n".to_owned()),
        ("TLS on a plain port", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned()),
        ("a head without end", format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(100_000))),
        ("too many headers", format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(200))),
        ("both kinds of length", both_lengths),
        ("two lengths", two_lengths),
        ("a length that is none", format!("POST /api/publish HTTP/1.1\r\nHost: a\r\n{key}Content-Length: -1\r\n\r\n")),
    ];
    for (what, request) in cases {
        let reply = server.raw(request.as_bytes());
        // RFC 9112 section 6.1: a request with both lengths may be served by its chunks, if the connection ends after
        // it.
        let is_served_once = what == "both kinds of length" && reply.contains("connection: close");
        assert!(
            (is_served_once || !reply.contains("200 OK")) && reply.matches("HTTP/1.1").count() <= 1,
            "{what}: {reply}"
        );
        neighbour.is_served(&server);
    }
    for (what, head, expected) in [
        ("another version of the protocol", handshake("").replace("Version: 13", "Version: 8"), "426"),
        ("a key that is none", handshake("").replace("dGhlIHNhbXBsZSBub25jZQ==", "short"), "400"),
        ("no upgrade", "GET /connection/websocket HTTP/1.1\r\nHost: a\r\n\r\n".into(), "400"),
        ("a foreign origin", handshake("Origin: https://evil.example\r\n"), "403"),
        ("another method", handshake("").replace("GET", "POST"), "405"),
    ] {
        assert!(server.raw(head.as_bytes()).starts_with(&format!("HTTP/1.1 {expected}")), "{what}");
    }
}

#[test]
fn a_slow_handshake_is_given_up() {
    // Short: the test waits for the timeout.
    let server = TestServer::with(|settings| settings.http_server.header_timeout = Duration::from_millis(500));
    let mut neighbour = Neighbour::of(&server);
    let mut slow = server.socket();
    // A field that never ends: a byte comes every few milliseconds.
    slow.write_all(b"GET /connection/websocket HTTP/1.1\r\nX-Slow: ").expect("the server listens");
    until("the server ends the connection", || slow.write_all(b"x").is_err());
    neighbour.is_served(&server);
}

#[test]
fn a_slow_body_is_given_up_and_a_kept_connection_may_rest() {
    let server = TestServer::with(|settings| {
        // Shorter than the pause between two requests.
        settings.http_server.header_timeout = Duration::from_millis(300);
        // Short: the test waits for the timeout.
        settings.http_server.request_timeout = Duration::from_millis(600);
        settings.http_server.idle_timeout = Duration::from_secs(10);
    });
    let request = |body: &str| {
        format!("POST /api/info HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: 2\r\n\r\n{body}")
    };
    let mut slow = server.socket();
    slow.write_all(request("{").as_bytes()).expect("it is open");
    assert_eq!(to_the_end(&mut slow), "", "no answer, but an end");

    let mut kept = server.socket();
    let mut some = [0; 4_096];
    for pause in [0, 700, 700] {
        // waits: the pause is longer than a head may take.
        std::thread::sleep(Duration::from_millis(pause));
        kept.write_all(request("{}").as_bytes()).expect("longer than a head may take, but not longer than a rest");
        let length = kept.read(&mut some).expect("it answers");
        assert!(some[..length].starts_with(b"HTTP/1.1 200"));
    }
    assert_eq!(kept.read(&mut some).expect("closed in order"), 0, "nothing rests for ever");
}

fn small_queue(settings: &mut Settings) {
    settings.client.queue_max_size = 100_000;
    settings.websocket.message_size_limit = 200_000;
}

#[test]
fn a_client_that_never_reads_is_ended_as_slow_and_its_neighbour_is_not() {
    let server = TestServer::with(small_queue);
    let mut neighbour = Neighbour::of(&server);
    let mut slow = server.connected();
    slow.ask(json!({"id": 2, "subscribe": {"channel": "flood"}}));
    let data = "x".repeat(50_000);
    until("the slow client is ended", || {
        server.publish("flood", json!(data));
        server.metric("touchline_disconnects_total{code=\"3008\"}") == 1
    });
    until("touchline_queued_bytes <= 150_000", || server.metric("touchline_queued_bytes") <= 150_000);
    neighbour.is_served(&server);
    assert_eq!(slow.close(), Heard::Close(3008, "slow".into()));
    until("nothing is queued", || server.metric("touchline_queued_bytes") == 0);
}

#[test]
fn half_closed_and_broken_sockets_leave_nothing_behind() {
    let server = TestServer::start();
    let mut neighbour = Neighbour::of(&server);
    for _ in 0..20 {
        let mut client = server.connected();
        client.ask(json!({"id": 2, "subscribe": {"channel": "room:gone"}}));
        client.socket.shutdown(std::net::Shutdown::Write).expect("a socket closes");
        let mut client = server.websocket();
        client.socket.write_all(&frame(0x81, b"{\"id\":1,\"conn")[..9]).expect("the server reads");
    }
    until("all are gone", || server.metric("touchline_connections") == 1);
    assert_eq!(server.api("presence_stats", json!({"channel": "room:gone"}))["result"]["num_clients"], 0);
    until_eq(1, || server.metric("touchline_subscriptions"));
    neighbour.is_served(&server);
}

#[test]
fn limits_of_connections_hold() {
    let server = TestServer::with(|settings| settings.client.connection_limit = 3);
    let kept: Vec<WebSocket> = (0..3).map(|_| server.connected()).collect();
    let refusal = server.raw(handshake("").as_bytes());
    assert!(refusal.starts_with("HTTP/1.1 503") && refusal.to_ascii_lowercase().contains("retry-after"), "{refusal}");
    drop(kept);
    until("there is room again", || server.metric("touchline_connections") == 0);
    server.connected();
}

#[test]
fn commands_sent_ahead_are_bounded() {
    let server = TestServer::start();
    let mut client = server.websocket();
    let text = format!("{{\"id\":1,\"connect\":{{}}}}\n{}", "{\"id\":2,\"rpc\":{}}\n".repeat(5));
    client.send(&text);
    assert!(client.message()["connect"].is_object());
    for _ in 0..5 {
        assert_eq!(client.message()["error"]["code"], 108);
    }
}
