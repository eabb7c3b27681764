//! Which client address counts for a connection: behind trusted proxies, and with headers that a client has made up.
//! Also the limits that depend on the address.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::json;
use touchline_server::{Server, Settings, StartError};
use touchline_testkit::http::{head_of, up_to};
use touchline_testkit::until;
use touchline_testkit::websocket::{Heard, WebSocket, handshake};

use crate::support::{TestServer, settings};

const LOCAL: &str = "127.0.0.1";
const REMOTE: &str = "203.0.113.9";
/// A header of version 2: TCP over IPv4, from 203.0.113.9, with a TLV of three bytes.
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x12\xcb\x00\x71\x09\x0a\x00\x00\x02\xc8\x22\x01\xbb\x04\x00\x03abc";
const BINARY_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

/// Only clients of this machine may be anonymous, so a connect shows which address counts.
fn behind_proxy(settings: &mut Settings) {
    settings.http_server.trusted_proxies = vec![LOCAL.into(), "10.0.0.0/8".into()];
    settings.client.anonymous_on_loopback_only = true;
    settings.http_stream.enabled = true;
}

/// Whether these bytes open a session, and the session counts as local. `pieces` are sent one after the other.
fn is_local(server: &TestServer, pieces: &[&[u8]]) -> bool {
    let mut socket = server.socket();
    for piece in pieces {
        socket.write_all(piece).expect("the server listens");
        // waits: each piece comes in a packet of its own.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let head = head_of(&mut socket);
    assert!(head.starts_with("HTTP/1.1 101"), "{head:?}");
    let mut websocket = WebSocket::from(socket);
    websocket.send_json(json!({"id": 1, "connect": {}}));
    match websocket.next_message() {
        Ok(reply) => reply["connect"]["client"].is_string(),
        Err(Heard::Close(3507, _)) => false,
        Err(heard) => panic!("{heard:?}"),
    }
}

fn status(server: &TestServer, extra: &str) -> (String, TcpStream) {
    let mut socket = server.socket();
    socket.write_all(handshake(extra).as_bytes()).expect("the server listens");
    let head = head_of(&mut socket);
    (head.split(' ').nth(1).unwrap_or_default().to_owned(), socket)
}

#[test]
fn a_trusted_proxy_is_believed_and_what_its_client_writes_is_not() {
    let server = TestServer::with(behind_proxy);
    for (fields, local) in [
        ("X-Forwarded-For: 127.0.0.1\r\n", true),
        ("Forwarded: for=127.0.0.1\r\n", true),
        ("X-Forwarded-For: 127.0.0.1, 10.1.1.1\r\n", true),
        ("X-Forwarded-For: 203.0.113.9\r\n", false),
        ("X-Forwarded-For: 127.0.0.1, 203.0.113.9\r\n", false),
        ("X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: 203.0.113.9\r\n", false),
        ("X-Forwarded-For: 127.0.0.1, nonsense\r\n", false),
        ("Forwarded: for=127.0.0.1, for=\"[2001:db8::1]:80\"\r\n", false),
        ("Forwarded: for=127.0.0.1;x=\", for=203.0.113.9\r\n", false),
        ("", false),
    ] {
        let request = handshake(fields);
        let (begin, end) = request.as_bytes().split_at(40);
        assert_eq!(is_local(&server, &[request.as_bytes()]), local, "in one piece: {fields:?}");
        assert_eq!(is_local(&server, &[begin, end]), local, "in two pieces: {fields:?}");
    }
    let (refused, _) = status(&server, "X-Forwarded-For: 203.0.113.9\r\nForwarded: for=127.0.0.1\r\n");
    assert_eq!(refused, "400", "nobody can say which one the proxy has written");
}

#[test]
fn streams_of_http_have_the_address_of_their_request() {
    let server = TestServer::with(behind_proxy);
    for (address, local) in [(LOCAL, true), (REMOTE, false)] {
        let mut socket = server.socket();
        let body = r#"{"id":1,"connect":{}}"#;
        let length = body.len();
        let request = format!(
            "POST /connection/http_stream HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: {address}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).expect("the server listens");
        assert!(head_of(&mut socket).starts_with("HTTP/1.1 200"));
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).expect("an answer comes");
        assert_eq!(line.contains("\"client\""), local, "{line}");
    }
}

#[test]
fn headers_of_others_count_for_nothing() {
    let server = TestServer::with(|settings| {
        behind_proxy(settings);
        settings.http_server.trusted_proxies = vec!["10.0.0.0/8".into()];
        settings.client.connection_limit_by_address = 2;
    });
    for forged in ["X-Forwarded-For: 203.0.113.9\r\n", "Forwarded: for=10.0.0.1, for=203.0.113.9\r\n"] {
        assert!(is_local(&server, &[handshake(forged).as_bytes()]), "{forged}");
    }
    let held: Vec<_> = (0..2).map(|_| server.connected()).collect();
    for n in 0..5 {
        assert_eq!(
            status(&server, &format!("X-Forwarded-For: 203.0.113.{n}\r\n")).0,
            "429",
            "a made-up address gives no place"
        );
    }
    drop(held);
}

#[test]
fn three_hundred_behind_one_proxy_have_an_address_each() {
    let server = TestServer::with(|settings| {
        behind_proxy(settings);
        settings.client.connection_limit_by_address = 2;
    });
    let of = |n: u32| format!("X-Forwarded-For: 1.1.1.1, 198.51.{}.{}\r\n", n / 200, n % 200);
    let mut crowd: Vec<_> = (0..300).map(|n| status(&server, &of(n))).collect();
    assert!(crowd.iter().all(|(status, _)| status == "101"));
    crowd.push(status(&server, &of(7)));
    assert_eq!(crowd[300].0, "101", "a second one");
    assert_eq!(status(&server, &of(7)).0, "429", "a third one");
    // read once: a refusal is counted before it is answered.
    assert_eq!(server.metric("touchline_denied_by_address_total"), 1, "and once");
    crowd.clear();
    until("places are given back", || server.metric("touchline_connections") == 0);
    assert_eq!(status(&server, &of(7)).0, "101");
    let of_six = |host: &str| format!("X-Forwarded-For: 2001:db8:0:1::{host}\r\n");
    let held = [status(&server, &of_six("1")), status(&server, &of_six("2:ffff"))];
    assert!(held.iter().all(|(status, _)| status == "101"));
    assert_eq!(status(&server, &of_six("3")).0, "429", "a network of IPv6 counts as one address");
}

#[test]
fn beyond_the_rate_of_new_connections_clients_are_told_to_come_again() {
    let server = TestServer::with(|settings| settings.client.connection_rate_limit = 1);
    let (first, _socket) = status(&server, "");
    assert_eq!(first, "101");
    let refused = server.raw(handshake("Connection: close\r\n").as_bytes());
    assert!(refused.starts_with("HTTP/1.1 503") && refused.to_lowercase().contains("retry-after: 1\r\n"), "{refused}");
    until("a second is over", || status(&server, "").0 == "101");
}

#[test]
fn the_proxy_protocol_tells_the_client_however_it_is_cut() {
    let server = TestServer::with(|settings| {
        behind_proxy(settings);
        settings.http_server.proxy_protocol = true;
    });
    let request = handshake("");
    let request = request.as_bytes();
    let text = b"PROXY TCP4 203.0.113.9 127.0.0.1 51234 80\r\n";
    // The client is on this machine, and there is no proxy.
    let local = b"PROXY TCP4 127.0.0.2 127.0.0.1 51234 80\r\n";
    for (header, is_on_this_machine) in [
        (&text[..], false),
        (&local[..], true),
        (b"PROXY TCP6 ::1 ::1 1 2\r\n", true),
        (BINARY, false),
        (BINARY_LOCAL, false),
        (b"PROXY UNKNOWN\r\n", false),
    ] {
        assert_eq!(is_local(&server, &[&[header, request].concat()]), is_on_this_machine, "in one piece");
        let mut pieces: Vec<&[u8]> = header.chunks(1).collect();
        pieces.push(request);
        assert_eq!(is_local(&server, &pieces), is_on_this_machine, "byte by byte");
        let (begin, end) = request.split_at(20);
        assert_eq!(
            is_local(&server, &[&header[..5], &[&header[5..], begin].concat(), end]),
            is_on_this_machine,
            "across the border"
        );
    }
    let forwarded = handshake("X-Forwarded-For: 127.0.0.1\r\n");
    assert!(!is_local(&server, &[text, forwarded.as_bytes()]), "the client behind the proxy is not a proxy");
    // Any other beginning is closed.
    let too_long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200], b"\r\n"].concat();
    let too_large = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x09\x00".as_slice(), &[0; 2304]].concat();
    for bad in
        [request, b"PROXY TCP4 1.2.3.4\r\n".as_slice(), &too_long, &too_large, b"PROXY\0TCP4 1.2.3.4 1.2.3.4 1 2\r\n"]
    {
        assert_eq!(server.raw(bad), "");
    }
    let metrics = server.raw(b"PROXY UNKNOWN\r\nGET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    assert!(metrics.contains("touchline_proxy_headers_refused_total 5\n"), "{metrics}");
}

#[test]
fn a_header_of_the_proxy_protocol_has_to_come_in_time_and_from_a_trusted_proxy() {
    let begun = |trusted: &str| {
        TestServer::with(|settings| {
            settings.http_server.trusted_proxies = vec![trusted.into()];
            settings.http_server.proxy_protocol = true;
            // Short: the test waits for the timeout.
            settings.http_server.header_timeout = std::time::Duration::from_millis(200);
        })
    };
    assert_eq!(begun(LOCAL).raw(b"PROXY TCP4 203."), "", "it is cut off");
    let request = [b"PROXY TCP4 203.0.113.9 127.0.0.1 51234 80\r\n", handshake("").as_bytes()].concat();
    assert_eq!(begun("10.0.0.1").raw(&request), "", "a stranger can't name its own address");
}

#[test]
fn lines_have_clients_addresses_too() {
    let server = TestServer::with(|settings| {
        behind_proxy(settings);
        settings.tcp.enabled = true;
        settings.tcp.address = LOCAL.into();
        settings.tcp.port = 0;
        settings.tcp.proxy_protocol = true;
        settings.client.connection_limit_by_address = 1;
    });
    let ask = |header: &[u8]| {
        let mut socket = server.line_socket();
        for piece in header.chunks(7) {
            socket.write_all(piece).expect("the server listens");
        }
        let _ = socket.write_all(b"{\"id\":1,\"connect\":{}}\n");
        (up_to("\n", &mut socket), socket)
    };
    let (line, held) = ask(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n");
    assert!(line.contains("\"client\""), "{line}");
    assert_eq!(ask(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n").0, "", "one connection of an address");
    let (line, _) = ask(BINARY);
    assert!(!line.contains("\"client\"") && !line.is_empty(), "of elsewhere: {line}");
    assert_eq!(ask(b"").0, "", "the header must be there");
    drop(held);
}

#[test]
fn settings_that_trust_nobody_or_nonsense_are_refused() {
    let bound = |change: fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        Server::bind(settings).err()
    };
    let error = bound(|settings| settings.http_server.proxy_protocol = true);
    assert!(matches!(error, Some(StartError::NoProxies { section: "http_server" })), "{error:?}");
    let error = bound(|settings| settings.tcp.proxy_protocol = true);
    assert!(matches!(error, Some(StartError::NoProxies { section: "tcp" })), "{error:?}");
    let error = bound(|settings| settings.http_server.trusted_proxies = vec!["10.0.0.0/40".into()]);
    assert!(matches!(error, Some(StartError::Proxy(_))), "{error:?}");
}
