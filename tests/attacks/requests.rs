//! HTTP/1.1 and the port of lines: requests with two meanings, heads and bodies that arrive late or never, and requests
//! from pages of other origins.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use touchline_testkit::PATIENCE;
use touchline_testkit::http::{socket, status};
use touchline_testkit::websocket::{WebSocket, frame, handshake};

use crate::support::http::{http, raw, rest};
use crate::support::lines::Lines;
use crate::support::server::{KEY, Server};
use crate::support::watch::Watch;
use crate::support::websocket::{Attacker, Told};
use crate::support::{FLOOD, MIB, alone, pause, size};

const SLACK: u64 = 24 * MIB;
const SHORTLY: Duration = Duration::from_secs(1);

#[test]
fn a_refusal_is_written_although_the_body_comes_later() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("refusals whose body comes behind the head", &server);
    let cases = [
        ("POST /api/publish", "X-API-Key: wrong\r\n", 401),
        ("POST /api/publish", "", 401),
        ("POST /nowhere", "", 404),
        ("POST /health", "", 405),
        ("POST /metrics", "", 405),
        ("POST /connection/http_stream", "Origin: http://evil.test\r\n", 403),
    ];
    let mut wrong = Vec::new();
    for round in 0..size(5, 30) {
        for (request, headers, expected) in cases {
            let mut socket = socket(server.address);
            let head = format!(
                "{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}Content-Length: 20000\r\n\r\n"
            );
            let _ = socket.write_all(head.as_bytes());
            // The attacker sends the bytes at once, or half a millisecond later.
            pause(Duration::from_micros(500) * (round % 2) as u32);
            let _ = socket.write_all(&[b'x'; 20_000]);
            let answer = status(&rest(&mut socket, PATIENCE));
            if answer != expected {
                wrong.push(format!("{request} {answer} instead of {expected}"));
            }
        }
    }
    watch.told(format!("{} of {} without their status", wrong.len(), cases.len() * size(5, 30)));
    watch.end(SLACK);
    assert!(wrong.is_empty(), "{} {:?}", wrong.len(), wrong.first());
}

#[test]
fn a_request_without_a_host_or_with_two_is_refused() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("no Host, two Hosts", &server);
    let upgrade = handshake("");
    let cases = [
        upgrade.replace("Host: 127.0.0.1\r\n", ""),
        upgrade.replace("Host: 127.0.0.1\r\n", "Host: 127.0.0.1\r\nHost: evil.test\r\n"),
        "GET /health HTTP/1.1\r\n\r\n".to_owned(),
        "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(),
    ];
    let told: Vec<u16> = cases.iter().map(|case| status(&raw(server.address, case.as_bytes(), SHORTLY))).collect();
    watch.told(format!("{told:?}"));
    watch.end(SLACK);
    assert_eq!(told, [400; 4]);
}

#[test]
fn nothing_is_smuggled_behind_a_request_with_two_lengths() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("smuggled requests", &server);
    let smuggled = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = |headers: &str, body: &str| {
        format!("POST /api/info HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\n{headers}\r\n{body}{smuggled}")
    };
    let cases = [
        post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"),
        post("Content-Length: -1\r\n", "{}"),
        post("Content-Length: +2\r\n", "{}"),
        post("Content-Length: 2 2\r\n", "{}"),
        post("Transfer-Encoding: chunked, identity\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n"),
        post(" Content-Length: 2\r\n", "{}"),
    ];
    // With one length header, the server answers both requests.
    let two = raw(server.address, post("Content-Length: 2\r\n", "{}").as_bytes(), SHORTLY);
    assert_eq!(two.matches("HTTP/1.1 200 ").count(), 2, "{two}");
    for case in &cases {
        let answer = raw(server.address, case.as_bytes(), SHORTLY);
        // The server sends at most one answer and ends the connection. It never answers the second request.
        assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{case:?}: {answer}");
    }
    watch.told("one answer at most");
    watch.end(SLACK);
}

#[test]
fn heads_that_come_a_byte_at_a_time_end_after_their_time() {
    let _alone = alone();
    let server = Server::with(&json!({"http_server": {"header_timeout": "1s"}}));
    let crowd = size(1_000, 5_000);
    let mut watch = Watch::begin("heads a byte at a time", &server);
    let mut sockets: Vec<TcpStream> = (0..crowd).map(|_| socket(server.address)).collect();
    let began = Instant::now();
    while began.elapsed() < FLOOD {
        for socket in &mut sockets {
            let _ = socket.write_all(b"x");
        }
        pause(Duration::from_millis(200));
    }
    let gone = sockets.iter().filter(|socket| has_ended(socket)).count();
    watch.told(format!("{gone} of {crowd} ended"));
    watch.end(crowd as u64 * 16 * 1024 + SLACK);
    assert_eq!(gone, crowd);
}

/// Whether the server has ended the connection. Bytes that still arrive are read.
fn has_ended(mut socket: &TcpStream) -> bool {
    let _ = socket.set_read_timeout(Some(SHORTLY));
    let mut some = [0; 4096];
    loop {
        match socket.read(&mut some) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_crowd_that_only_connects_costs_little_and_is_dismissed() {
    let _alone = alone();
    let server = Server::with(&json!({"http_server": {"header_timeout": "1s"}}));
    let crowd = size(4_000, 10_000);
    let mut watch = Watch::begin("sockets that say nothing", &server);
    let sockets: Vec<TcpStream> = (0..crowd).map(|_| socket(server.address)).collect();
    pause(FLOOD);
    let gone = sockets.iter().filter(|socket| has_ended(socket)).count();
    watch.told(format!("{gone} of {crowd} ended"));
    watch.end(crowd as u64 * 8 * 1024 + SLACK);
    assert_eq!(gone, crowd);
}

#[test]
fn the_port_of_lines_ends_at_the_first_line_of_http() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("a web page's POST to the port of lines", &server);
    let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"publish\":{\"channel\":\"big:a\",\"data\":\"of a page\"}}\n";
    for method in ["POST", "GET", "PUT", "OPTIONS", "HEAD"] {
        let mut page = Lines::open(server.lines);
        page.send(&format!(
            "{method} / HTTP/1.1\r\nHost: lan.test\r\nContent-Length: {}\r\n\r\n{commands}",
            commands.len()
        ));
        let heard = page.rest(SHORTLY);
        watch.told(format!("{method}: {} lines", heard.len()));
        assert!(!heard.iter().any(|line| line.contains("\"connect\"")), "{method}: {heard:?}");
    }
    let history = http(server.address).api("history", &json!({"channel": "big:a", "limit": -1}));
    watch.end(SLACK);
    assert_eq!(history["result"]["publications"].as_array().map_or(0, Vec::len), 0, "{history}");
}

#[test]
fn mistakes_in_lines_come_to_an_end_although_good_lines_are_between() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("nine mistakes, a good line, nine mistakes", &server);
    let mut attacker = Lines::open(server.lines);
    attacker.send("{\"id\":1,\"connect\":{}}\n");
    attacker.hear();
    let round = "what?\n".repeat(9) + "{\"id\":2,\"rpc\":{\"method\":\"none\"}}\n";
    let began = Instant::now();
    let mut heard = 0;
    let _ = attacker.socket.set_read_timeout(Some(SHORTLY));
    'attack: while began.elapsed() < FLOOD {
        attacker.send(&round);
        for _ in 0..10 {
            match attacker.hear() {
                Some(_) => heard += 1,
                None => break 'attack,
            }
        }
    }
    watch.told(format!("{heard} error lines"));
    watch.end(SLACK);
    assert!((1..2_000).contains(&heard), "{heard} error lines in {FLOOD:?}");
}

#[test]
fn a_page_of_elsewhere_neither_reads_nor_opens() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("pages of other origins", &server);
    for origin in ["http://evil.test", "null", "http://127.0.0.1.evil.test", "http://evil.test:80", "file://"] {
        let answer = raw(server.address, handshake(&format!("Origin: {origin}\r\n")).as_bytes(), SHORTLY);
        assert_eq!(status(&answer), 403, "{origin}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("access-control-allow"), "{answer}");
    }
    watch.told("403");
    watch.end(SLACK);
}

#[test]
fn a_name_that_was_bound_anew_does_not_open_a_development_server() {
    let _alone = alone();
    let server = Server::run_with(&["--dev", "--no-match", "--port", "0", "--shards", "1", "--log-level", "info"]);
    let rebound = handshake("Origin: http://evil.test:8000\r\n").replace("Host: 127.0.0.1", "Host: evil.test:8000");
    let told = status(&raw(server.address, rebound.as_bytes(), SHORTLY));
    let own = status(&raw(server.address, handshake("").as_bytes(), SHORTLY));
    assert!(matches!(told, 400 | 403 | 421), "a foreign Host is refused: {told}");
    assert_eq!(own, 101);
}

#[test]
fn bombs_of_deflate_are_defused() {
    let _alone = alone();
    let server = Server::with(&json!({"websocket": {"compression": true}}));
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![b' '; MIB as usize];
    (0..32).for_each(|_| encoder.write_all(&zeros).expect("memory is there"));
    encoder.flush().expect("memory is there");
    // The end of a flush is removed (RFC 7692 section 7.2.1).
    let bomb = encoder
        .get_ref()
        .strip_suffix(&[0, 0, 0xff, 0xff])
        .map(|bomb| frame(0xc1, bomb))
        .expect("a flush has this end");
    let mut watch = Watch::begin("100 deflate bombs of 32 MB", &server);
    let mut told = Vec::new();
    for _ in 0..100 {
        let socket = socket(server.address);
        let mut attacker = WebSocket::over(socket, "Sec-WebSocket-Extensions: permessage-deflate\r\n");
        attacker.send_bytes(&bomb);
        told.push(attacker.end(PATIENCE));
    }
    told.dedup();
    watch.told(format!("{told:?}"));
    watch.end(SLACK);
    assert!(matches!(told[..], [Told::Closed(1007 | 1009)]), "{told:?}");
}
