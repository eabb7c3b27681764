//! A refusal reaches its client even if the body of the request comes later, or never.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use touchline_server::Settings;
use touchline_testkit::websocket::Heard;

use crate::support::{KEY, TestServer};

/// How often each case is tried: a fault that depends on the order of two packets does not appear each time.
const TRIES: usize = 30;

fn served(settings: &mut Settings) {
    settings.sse.enabled = true;
    settings.client.allowed_origins = vec!["https://app.test".into()];
}

/// Requests that are refused before their body is read, each with its status.
fn refused() -> Vec<(String, u16)> {
    vec![
        ("POST /api/publish HTTP/1.1\r\nHost: test\r\nX-API-Key: wrong\r\n".into(), 401),
        ("POST /emulation HTTP/1.1\r\nHost: test\r\nOrigin: https://evil.test\r\n".into(), 403),
        ("POST /nowhere HTTP/1.1\r\nHost: test\r\n".into(), 404),
        ("PUT /api/publish HTTP/1.1\r\nHost: test\r\n".into(), 405),
    ]
}

/// Reads the next answer completely, and returns its status.
fn status(socket: &mut TcpStream) -> Option<(u16, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(socket.read(&mut byte), Ok(1)) {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("heads are ASCII").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    socket.read_exact(&mut body).ok()?;
    Some((head.split(' ').nth(1)?.parse().ok()?, head))
}

/// The time between the head of a request and its body.
fn pause(gap: Duration) {
    // waits: the body comes in another packet than the head.
    std::thread::sleep(gap);
}

#[test]
fn a_refusal_is_heard_though_the_body_comes_later() {
    let server = TestServer::with(served);
    for gap in [Duration::ZERO, Duration::from_micros(500), Duration::from_millis(20)] {
        for (head, expected) in refused() {
            for size in [10, 40_000, 3_000_000] {
                let tries = if size > 100_000 { 3 } else { TRIES };
                for turn in 0..tries {
                    let mut socket = server.socket();
                    let body = vec![b'x'; size];
                    socket
                        .write_all(format!("{head}Content-Length: {size}\r\n\r\n").as_bytes())
                        .expect("the head is read");
                    // Most clients do it in this order: first the body, then the answer.
                    pause(gap);
                    socket
                        .write_all(&body)
                        .unwrap_or_else(|error| panic!("{head} {size} bytes, {gap:?}, try {turn}: {error}"));
                    let heard = status(&mut socket).map(|(status, _)| status);
                    assert_eq!(heard, Some(expected), "{head} {size} bytes, {gap:?}, try {turn}");
                }
            }
        }
    }
}

#[test]
fn a_client_whose_small_body_was_passed_over_goes_on() {
    let server = TestServer::with(served);
    for (head, expected) in refused() {
        let mut socket = server.socket();
        for _ in 0..3 {
            socket.write_all(format!("{head}Content-Length: 10000\r\n\r\n").as_bytes()).expect("the head is read");
            pause(Duration::from_millis(1));
            socket.write_all(&[b'x'; 10_000]).expect("the body is read");
            assert_eq!(status(&mut socket).map(|(status, _)| status), Some(expected), "{head}");
        }
        let body = "{}";
        let head = format!(
            "POST /api/info HTTP/1.1\r\nHost: test\r\nX-API-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(head.as_bytes()).expect("the connection continues");
        assert_eq!(status(&mut socket).map(|(status, _)| status), Some(200));
    }
}

#[test]
fn who_asks_before_it_sends_a_body_is_refused_without_it() {
    let server = TestServer::with(served);
    for (head, expected) in refused() {
        for _ in 0..TRIES {
            let mut socket = server.socket();
            socket
                .write_all(format!("{head}Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n").as_bytes())
                .expect("the head is read");
            let (heard, head) = status(&mut socket).expect("an answer comes");
            assert_eq!(heard, expected, "no 100 comes first");
            assert!(head.contains("connection: close"), "{head}");
            // A client that has begun to send meanwhile is not cut off either.
            socket.write_all(&[b'x'; 5_000]).expect("the body is passed over");
            socket.shutdown(std::net::Shutdown::Write).expect("the socket is open");
            assert_eq!(socket.read(&mut [0]).ok(), Some(0), "the connection ends cleanly");
        }
    }
}

#[test]
fn who_asks_and_is_welcome_is_told_to_go_on() {
    let server = TestServer::with(served);
    let mut socket = server.socket();
    let head = format!(
        "POST /api/info HTTP/1.1\r\nHost: test\r\nX-API-Key: {KEY}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("the head is read");
    assert_eq!(status(&mut socket).map(|(status, _)| status), Some(100));
    socket.write_all(b"{}").expect("the body is read");
    assert_eq!(status(&mut socket).map(|(status, _)| status), Some(200));
}

#[test]
fn a_body_without_end_is_passed_over_for_a_bounded_time() {
    let server = TestServer::with(served);
    let mut socket = server.socket();
    let head = "POST /nowhere HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).expect("the head is read");
    assert_eq!(status(&mut socket).map(|(status, _)| status), Some(404));
    let piece = [b"4000\r\n", &[b'x'; 0x4000][..], b"\r\n"].concat();
    let sent = (0..100_000).find(|_| socket.write_all(&piece).is_err());
    assert!(sent.is_some(), "1.6 GB are not read");
}

#[test]
fn a_client_is_told_the_cause_where_that_is_switched_on_and_nowhere_else() {
    let cases = [
        (
            json!({"subscribe": {"channel": "unknown:a"}}),
            102,
            "the namespace of the channel is not in channel.namespaces",
        ),
        (json!({"subscribe": {"channel": "closed:a"}}), 103, "the namespace lacks allow_subscribe_for_client"),
        (json!({"subscribe": {"channel": "$news"}}), 103, "the channel is private (channel.private_prefix)"),
        (json!({"subscribe": {"channel": "news#7"}}), 103, "the channel is limited to users (channel.user_boundary)"),
        (json!({"subscribe": {"channel": "closed:a", "token": "nonsense"}}), 103, "is not a JWT"),
        (json!({"subscribe": {"channel": "$registry:none"}}), 103, "the scope lacks allow_watch_for_client"),
        (json!({"publish": {"channel": "closed:a", "data": 1}}), 103, "the namespace lacks allow_publish_for_"),
        (json!({"history": {"channel": "closed:a"}}), 108, "history_size and history_ttl are not set"),
        (json!({"presence": {"channel": "closed:a"}}), 108, "presence is off in the namespace"),
        (json!({"rpc": {"method": "mine"}}), 108, "no RPC has this name"),
    ];
    for tells in [false, true] {
        let server = TestServer::with(|settings| settings.client.tell_refusal_cause = tells);
        let mut client = server.connected();
        for (index, (command, code, cause)) in cases.iter().enumerate() {
            let mut command = command.clone();
            command["id"] = json!(index + 2);
            let error = client.ask(command.clone())["error"].clone();
            let said = error["message"].as_str().unwrap_or_default();
            assert_eq!(error["code"], *code, "{command}: {error}");
            assert_eq!(said.contains(cause), tells, "{command}: {error}");
        }
        let mut client = server.websocket();
        client.send_json(json!({"id": 1, "connect": {"token": "nonsense"}}));
        let Heard::Close(code, reason) = client.close() else { panic!("it is closed") };
        assert_eq!((code, reason.contains("is not a JWT")), (3500, tells), "{reason}");
    }
}
