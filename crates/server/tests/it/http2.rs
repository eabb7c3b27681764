//! HTTP/2 from the view of a client that makes its frames itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use touchline_testkit::http::fill;
use touchline_testkit::websocket::frame as websocket_frame;
use touchline_testkit::{PATIENCE, until, until_eq};

use crate::drain::still_runs;
use crate::support::{KEY, TestServer};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

struct Client {
    socket: TcpStream,
    /// The last stream that the server serves, as it has said.
    last_stream: Option<u32>,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes header fields as literals that are not indexed (RFC 7541 section 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

impl Client {
    fn of(server: &TestServer) -> Self {
        let mut client = Client { socket: server.socket(), last_stream: None };
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // One stream may send 1 MiB, and all streams together too.
        client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0]));
        client.send(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 20).to_be_bytes()));
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    fn get(&mut self, stream: u32, path: &str) {
        let fields = block(&[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "test")]);
        self.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &fields));
    }

    /// The next frame; None = the connection has ended. Pings are answered.
    fn hear(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        fill(&mut self.socket, &mut head).then_some(())?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        fill(&mut self.socket, &mut payload).then_some(())?;
        if head[3] == GOAWAY {
            self.last_stream = Some(u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]));
        }
        if head[3] == PING && head[4] & ACK == 0 {
            self.send(&frame(PING, ACK, 0, &payload));
        }
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// Waits for the next frame of a kind.
    fn next(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.hear().expect("the connection continues");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads the answer to a valid `GET`.
    fn is_answered(&mut self, stream: u32) {
        let head = self.next(HEADERS);
        assert_eq!((head.stream, head.payload[0]), (stream, 0x88), "200, from the static table");
    }
}

#[test]
fn an_idle_connection_has_its_time_and_ends_with_a_word() {
    let server = TestServer::with(|settings| {
        // Short: the test waits for the timeout.
        settings.http_server.header_timeout = Duration::from_millis(300);
        settings.http_server.idle_timeout = Duration::from_secs(10);
    });
    let mut client = Client::of(&server);
    client.get(1, "/health");
    client.is_answered(1);
    // Control frames between requests do not begin a request.
    client.send(&frame(SETTINGS, ACK, 0, &[]));
    client.send(&frame(PING, 0, 0, &[7; 8]));
    // waits: the pause is longer than a head may take.
    std::thread::sleep(Duration::from_millis(600));
    client.get(3, "/health");
    client.is_answered(3);
    // They are not requests either: a client that only pings is idle.
    until("the end is announced", || {
        let _ = client.socket.write_all(&frame(PING, 0, 0, &[8; 8]));
        client.hear().expect("the end is announced").kind == GOAWAY
    });
    assert_eq!(client.last_stream, Some(u32::MAX >> 1), "requests that cross the word are served");
    client.get(5, "/health");
    client.is_answered(5);
    while client.hear().is_some() {}
    assert_eq!(client.last_stream, Some(5), "the client knows what was served");
}

#[test]
fn a_request_that_is_not_finished_ends_its_connection() {
    let server = TestServer::with(|settings| {
        // Short: the test waits for the timeout.
        settings.http_server.header_timeout = Duration::from_millis(300);
        settings.http_server.idle_timeout = Duration::from_secs(600);
    });
    let fields = block(&[(":method", "GET")]);
    let beginnings = [frame(HEADERS, END_STREAM, 1, &fields), frame(PING, 0, 0, &[0; 8])[..12].to_vec()];
    for beginning in beginnings {
        let mut client = Client::of(&server);
        client.send(&beginning);
        while client.hear().is_some() {}
    }
    // The beginning of a connection has a limit of time, too.
    let mut silent = server.socket();
    silent.write_all(b"PRI * HTTP/2.0\r\n").expect("the server reads");
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).expect("the connection ends");
}

#[test]
fn control_frames_above_the_rate_are_not_read() {
    let server = TestServer::with(|settings| settings.client.command_rate_limit = 1_000);
    let throttled = || server.metric("touchline_throttled_total");
    for (what, control) in [
        ("pings", frame(PING, 0, 0, &[0; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("priorities", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("unknown frames", frame(0xfa, 0, 0, &[])),
    ] {
        // read once: the value before the flood.
        let before = throttled();
        let mut client = Client::of(&server);
        let flood = control.repeat(2_500);
        let mut reader = client.socket.try_clone().expect("sockets can be shared");
        let reading = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let _ = client.socket.write_all(&flood);
        until(what, || throttled() > before);
        let _ = client.socket.shutdown(std::net::Shutdown::Both);
        let _ = reading.join();
    }
    // The first server may still count frames of the floods.
    let server = TestServer::with(|settings| settings.client.command_rate_limit = 1_000);
    let mut client = Client::of(&server);
    for stream in (1..200).step_by(2) {
        client.get(stream, "/health");
        client.is_answered(stream);
    }
    until_eq(0, || server.metric("touchline_throttled_total"));
}

#[test]
fn what_http_holds_is_counted_until_it_is_given_back() {
    let server = TestServer::start();
    let held = || server.metric("touchline_http_buffered_bytes");
    // Each HTTP/1 connection counts the buffer of a head, including the connection of this question.
    let head_size = 16 * 1_024;
    until_eq(head_size, held);
    let mut poster = server.socket();
    let head = format!("POST /api/info HTTP/1.1\r\nHost: test\r\nX-API-Key: {KEY}\r\nContent-Length: 60000\r\n\r\n");
    poster.write_all(head.as_bytes()).expect("the head is read");
    poster.write_all(&[b' '; 50_000]).expect("the body is read");
    until("what has come of a body is counted", || held() == 2 * head_size + 50_000);
    poster.write_all(&[b' '; 10_000]).expect("the body is read");
    let mut answer = [0; 12];
    poster.read_exact(&mut answer).expect("an answer comes");
    drop(poster);
    until("the body is given back", || held() == head_size);
    let mut client = Client::of(&server);
    client.get(1, "/health");
    client.is_answered(1);
    // read once: an idle connection holds the same bytes all the time.
    let idle = held() - head_size;
    assert!(idle > 0 && idle < 200_000, "{idle}");
    client.send(&frame(SETTINGS, ACK, 0, &[]));
    let mut listener = Client::of(&server);
    open_websocket(&mut listener, 1);
    until("a stream is counted", || held() > 2 * idle + head_size);
    drop(listener);
    until("the stream is given back", || held() == idle + head_size);
    drop(client);
    until("the connection is given back", || held() == head_size);
}

fn open_websocket(client: &mut Client, stream: u32) {
    let fields = block(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/connection/websocket"),
        (":authority", "test"),
        ("sec-websocket-version", "13"),
    ]);
    client.send(&frame(HEADERS, END_HEADERS, stream, &fields));
    client.is_answered(stream);
}

#[test]
fn large_messages_pass_through_a_stream_piece_by_piece() {
    let server = TestServer::with(|settings| {
        settings.channel.without_namespace.allow_publish_for_client = true;
        settings.channel.without_namespace.allow_publish_for_anonymous = true;
    });
    let mut client = Client::of(&server);
    open_websocket(&mut client, 1);
    let text = "x".repeat(30_000);
    let commands = [
        json!({"id": 1, "connect": {}}),
        json!({"id": 2, "subscribe": {"channel": "big"}}),
        json!({"id": 3, "publish": {"channel": "big", "data": text}}),
    ];
    let mut received = Vec::new();
    let hear_until = |client: &mut Client, received: &mut Vec<u8>, what: &str| {
        while !String::from_utf8_lossy(received).contains(what) {
            received.extend_from_slice(&client.next(DATA).payload);
        }
    };
    for command in commands {
        let bytes = websocket_frame(0x81, command.to_string().as_bytes());
        bytes.chunks(10_000).for_each(|piece| client.send(&frame(DATA, 0, 1, piece)));
        hear_until(&mut client, &mut received, &format!("\"id\":{}", command["id"]));
    }
    hear_until(&mut client, &mut received, &text);
    received.clear();
    // More than the buffers between the shard and the client hold.
    for _ in 0..10 {
        server.publish("big", json!("y".repeat(60_000)));
    }
    let count = |received: &[u8]| received.iter().filter(|byte| **byte == b'y').count();
    while count(&received) < 600_000 {
        received.extend_from_slice(&client.next(DATA).payload);
    }
}

#[test]
fn a_request_that_was_taken_is_answered_though_the_node_stops() {
    let mut server = TestServer::with(|settings| {
        // Short: it only makes the test faster.
        settings.shutdown.spread = Duration::from_millis(50);
        settings.shutdown.timeout = PATIENCE;
    });
    let mut client = Client::of(&server);
    let body = json!({"channel": "history:late", "data": 1}).to_string();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/api/publish"),
        (":authority", "test"),
        ("x-api-key", KEY),
        ("content-type", "application/json"),
    ];
    client.send(&frame(HEADERS, END_HEADERS, 1, &block(&fields)));
    // Frames are read in order. The ping after the head is answered, so the head was read.
    client.send(&frame(PING, 0, 0, &[9; 8]));
    while client.next(PING).flags & ACK == 0 {}
    let stopping = std::thread::spawn(move || server.stop());
    client.next(GOAWAY);
    still_runs(&stopping);
    client.send(&frame(DATA, END_STREAM, 1, body.as_bytes()));
    client.is_answered(1);
    let answer: serde_json::Value = serde_json::from_slice(&client.next(DATA).payload).expect("answers are JSON");
    assert_eq!(answer["result"]["offset"], 1);
    drop(client);
    stopping.join().expect("the node stops once it is answered");
}

#[test]
fn a_trusted_proxy_names_the_user_of_a_stream() {
    for (trusted, expected) in [("127.0.0.1", true), ("10.0.0.0/8", false)] {
        let server = TestServer::with(|settings| {
            settings.http_stream.enabled = true;
            settings.http_server.trusted_proxies = vec![trusted.into()];
            settings.client.user_id_http_header = "X-User".into();
            settings.client.subscribe_to_user_personal_channel.enabled = true;
        });
        let mut client = Client::of(&server);
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/connection/http_stream"),
            (":authority", "test"),
            ("x-user", "42"),
        ];
        client.send(&frame(HEADERS, END_HEADERS, 1, &block(&fields)));
        client.send(&frame(DATA, END_STREAM, 1, br#"{"id":1,"connect":{}}"#));
        let answer = client.next(DATA).payload;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains(r#""client":"#), "{answer}");
        assert_eq!(answer.contains(r##""#42""##), expected, "{trusted}: {answer}");
    }
}
