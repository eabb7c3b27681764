//! For which host a request may be, and from which pages it may come.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::json;
use touchline_testkit::PATIENCE;
use touchline_testkit::websocket;

use crate::support::TestServer;

/// Sends a request in two ways. In one piece, the shard answers it itself if it can. After another request, hyper reads
/// it.
fn both_ways(server: &TestServer, request: &str) -> Vec<String> {
    let before = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let behind = server.raw(format!("{before}{request}").as_bytes());
    let (_, behind) = behind.split_once("\r\n\r\n{}").expect("the first request is answered");
    vec![server.raw(request.as_bytes()), behind.to_owned()]
}

/// A handshake for the host `test`.
fn handshake(extra: &str) -> String {
    websocket::handshake(extra).replace("Host: 127.0.0.1", "Host: test")
}

#[test]
fn a_request_names_one_host() {
    let server = TestServer::start();
    let plain = "GET /health HTTP/1.1\r\nConnection: close\r\nHost: test\r\n\r\n".to_owned();
    for request in
        [handshake("Connection: close\r\n").replace("Connection: Upgrade\r\n", "Connection: Upgrade, close\r\n"), plain]
    {
        for (what, changed) in [
            ("no host", request.replace("Host: test\r\n", "")),
            ("two hosts", request.replace("Host: test\r\n", "Host: test\r\nHost: evil.test\r\n")),
            ("the same host twice", request.replace("Host: test\r\n", "Host: test\r\nhost: test\r\n")),
            ("a list", request.replace("Host: test\r\n", "Host: test, evil.test\r\n")),
        ] {
            for answer in both_ways(&server, &changed) {
                assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer}");
            }
        }
    }
    assert!(server.raw(b"GET /health HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200 "), "HTTP/1.0 needs none");
}

#[test]
fn a_page_whose_name_was_pointed_here_is_kept_out() {
    let server = TestServer::with(|settings| settings.http_server.allowed_hosts = vec!["localhost".into()]);
    let port = server.address.port();
    for host in ["evil.test".to_owned(), format!("evil.test:{port}"), "localhost.evil.test".to_owned()] {
        let request = handshake(&format!("Origin: http://{host}\r\n"))
            .replace("Connection: Upgrade", "Connection: close, Upgrade");
        for answer in both_ways(&server, &request.replace("Host: test", &format!("Host: {host}"))) {
            assert!(
                answer.starts_with("HTTP/1.1 421 ") && answer.contains("http_server.allowed_hosts"),
                "{host}: {answer}"
            );
        }
        let absolute = format!("GET http://{host}/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(server.raw(absolute.as_bytes()).starts_with("HTTP/1.1 421 "), "{host}");
        let of_api =
            format!("POST /api/info HTTP/1.1\r\nHost: {host}\r\nX-Request-ID: r-7\r\nConnection: close\r\n\r\n");
        let answer = server.raw(of_api.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 421 ") && answer.contains("x-request-id: r-7\r\n"), "{host}: {answer}");
    }
    for host in ["localhost".to_owned(), format!("LOCALHOST:{port}"), format!("127.0.0.1:{port}"), "[::1]".to_owned()] {
        let request = format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert!(server.raw(request.as_bytes()).starts_with("HTTP/1.1 200 "), "{host}");
        let mut socket = server.socket();
        let request = handshake(&format!("Origin: http://{host}\r\n")).replace("Host: test", &format!("Host: {host}"));
        socket.write_all(request.as_bytes()).expect("the server listens");
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).expect("an answer comes");
        assert!(line.starts_with("HTTP/1.1 101 "), "{host}: {line}");
    }
}

#[test]
fn a_page_of_anywhere_gets_no_answer_in_its_users_name() {
    let server = TestServer::with(|settings| {
        settings.sse.enabled = true;
        settings.client.allowed_origins = vec!["*".into(), "https://app.test".into()];
    });
    let asked = |origin: &str| {
        let request =
            format!("OPTIONS /connection/sse HTTP/1.1\r\nHost: test\r\nConnection: close\r\nOrigin: {origin}\r\n\r\n");
        server.raw(request.as_bytes()).to_ascii_lowercase()
    };
    let named = asked("https://app.test");
    assert!(named.contains("access-control-allow-origin: https://app.test\r\n"), "{named}");
    assert!(named.contains("access-control-allow-credentials: true\r\n"), "{named}");
    let any = asked("https://elsewhere.test");
    assert!(any.contains("access-control-allow-origin: *\r\n"), "{any}");
    assert!(!any.contains("access-control-allow-credentials"), "{any}");
}

/// The lines that a client receives until the server closes the connection.
fn lines_after(server: &TestServer, sent: &str) -> Vec<String> {
    let mut socket = TcpStream::connect(server.lines()).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
    let _ = socket.write_all(sent.as_bytes());
    BufReader::new(socket).lines().map_while(Result::ok).collect()
}

fn with_lines() -> TestServer {
    TestServer::with(|settings| {
        settings.tcp.enabled = true;
        settings.tcp.address = "127.0.0.1".into();
        settings.tcp.port = 0;
    })
}

#[test]
fn a_request_of_http_is_no_way_to_send_lines() {
    let server = with_lines();
    let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"publish\":{\"channel\":\"history:a\",\"data\":1}}\n";
    for head in ["POST / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\n", "PUT /x HTTP/1.0\n"] {
        let heard = lines_after(&server, &format!("{head}{commands}"));
        assert!(heard.iter().all(|line| !line.contains("\"connect\"")), "{head}: {heard:?}");
        assert!(heard.first().is_some_and(|line| line.contains("\"error\"")), "{head}: {heard:?}");
    }
    let history = server.api("history", json!({"channel": "history:a", "limit": 10}));
    assert_eq!(history["result"]["publications"], json!([]), "nothing was carried out");
}

#[test]
fn mistakes_add_up_though_good_lines_come_between_them() {
    let server = with_lines();
    let round = format!("{}{}", "hello\n".repeat(9), "{\"id\":2,\"rpc\":{\"method\":\"x\"}}\n");
    let heard = lines_after(&server, &format!("{{\"id\":1,\"connect\":{{}}}}\n{}", round.repeat(50)));
    let mistakes = heard.iter().filter(|line| line.contains("\"error\"") && !line.contains("\"id\":2")).count();
    assert_eq!(mistakes, 10, "{heard:?}");
}
