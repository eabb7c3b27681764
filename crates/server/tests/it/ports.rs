//! On which addresses the node listens, and what each port serves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use touchline_server::{Server, Settings};
use touchline_testkit::http::head_of;
use touchline_testkit::websocket::handshake;
use touchline_testkit::{PATIENCE, until};

use crate::support::{KEY, TestServer, settings};

/// The status of a request to an address, and the answer's body.
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).expect("the server listens");
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

fn is_upgraded(address: SocketAddr, path: &str) -> bool {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
    socket.write_all(handshake("").replace("/connection/websocket", path).as_bytes()).expect("the server listens");
    head_of(&mut socket).starts_with("HTTP/1.1 101")
}

fn with_all(settings: &mut Settings) {
    settings.http_stream.enabled = true;
    settings.sse.enabled = true;
    settings.uni_websocket.enabled = true;
}

#[test]
fn an_internal_port_has_what_is_not_for_clients_and_nothing_else() {
    for is_external in [false, true] {
        let mut settings = settings();
        with_all(&mut settings);
        settings.http_server.internal_port = Some(0);
        settings.http_api.external = is_external;
        let running = Server::bind(settings).expect("the settings are good").start().expect("the server starts");
        let (outer, inner) = (running.address(), running.internal_address().expect("there is an internal port"));
        let key = format!("X-API-Key: {KEY}\r\n");
        let publish = json!({"channel": "a", "data": 1}).to_string();
        let old = json!({"method": "info"}).to_string();
        for (method, path, body, on_outer, on_inner) in [
            ("POST", "/api/publish", publish.as_str(), is_external, !is_external),
            ("POST", "/api", old.as_str(), is_external, !is_external),
            ("POST", "/api/batch", "{}", is_external, !is_external),
            ("GET", "/health", "", false, true),
            ("GET", "/livez", "", false, true),
            ("GET", "/readyz", "", false, true),
            // read once: the test reads the page, not its values.
            ("GET", "/metrics", "", false, true),
        ] {
            for (address, is_served) in [(outer, on_outer), (inner, on_inner)] {
                let (status, text) = ask(address, method, path, &key, body);
                assert_eq!(status, if is_served { 200 } else { 404 }, "{path} at {address} ({is_external}): {text}");
            }
        }
        for path in ["/connection/websocket", "/connection/uni_websocket"] {
            assert!(is_upgraded(outer, path) && !is_upgraded(inner, path), "{path}");
        }
        for path in ["/connection/http_stream", "/connection/sse", "/emulation"] {
            assert_ne!(ask(outer, "OPTIONS", path, "", "").0, 404, "{path}");
            assert_eq!(ask(inner, "OPTIONS", path, "", "").0, 404, "{path}");
        }
        until("the log says which port has the path", || {
            let refused = ask(if is_external { outer } else { inner }, "POST", "/api/refusals", &key, "{}").1;
            refused.contains("is on http_server.internal_port") && refused.contains("is on http_server.port, for")
        });
        running.stop();
    }
}

#[test]
fn one_port_serves_all_of_it() {
    let server = TestServer::with(with_all);
    // read once: the test reads the page, not its values.
    for path in ["/health", "/livez", "/readyz", "/metrics"] {
        assert_eq!(server.http("GET", path, "", "").0, 200, "{path}");
        assert_eq!(server.http("POST", path, "", "").0, 405, "{path}");
    }
    assert!(is_upgraded(server.address, "/connection/websocket"));
    let silent = TestServer::with(|settings| settings.health.enabled = false);
    for path in ["/health", "/livez", "/readyz"] {
        assert_eq!(silent.http("GET", path, "", "").0, 404, "{path}");
    }
}

#[test]
fn metrics_come_in_the_format_that_is_accepted() {
    let server = TestServer::start();
    server.publish("news", json!(1));
    let ask = |headers: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
        server.raw(request.as_bytes())
    };
    for headers in ["", "Accept: */*\r\n", "Accept: text/plain;version=0.0.4\r\n"] {
        let text = ask(headers);
        assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{text}");
        assert!(
            text.contains("# TYPE touchline_publications_total counter\n")
                && text.contains("\ntouchline_publications_total{namespace=\"without\"} 1\n"),
            "{text}"
        );
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    }
    let text = ask("Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3\r\n");
    assert!(text.contains("content-type: application/openmetrics-text"), "{text}");
    assert!(
        text.contains("# TYPE touchline_publications counter\n")
            && text.contains("\ntouchline_publications_total{namespace=\"without\"} 1\n")
            && text.ends_with("# EOF\n"),
        "{text}"
    );
}

#[test]
fn a_node_listens_on_both_protocols_and_on_host_names() {
    let both = TestServer::with(|settings| settings.http_server.address.clear());
    let port = both.address.port();
    for address in ["127.0.0.1", "::1"] {
        let address = SocketAddr::new(address.parse().expect("an address"), port);
        if address.is_ipv6() && std::net::UdpSocket::bind("[::1]:0").is_err() {
            continue;
        }
        assert_eq!(ask(address, "GET", "/health", "", "").0, 200, "{address}");
    }
    let named = TestServer::with(|settings| settings.http_server.address = "localhost".into());
    assert!(named.address.ip().is_loopback());
    assert_eq!(named.http("GET", "/health", "", "").0, 200);
    let mut unknown = settings();
    unknown.http_server.address = "no.such.host.invalid".into();
    let error = Server::bind(unknown).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(
        error,
        "http_server.address: \"no.such.host.invalid\" is neither an IP address nor a host that is known here"
    );
    // An address for documentation (RFC 5737), which no machine has.
    let mut foreign = settings();
    foreign.http_server.address = "192.0.2.1".into();
    let told: Vec<String> = touchline_server::check(&foreign).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["http_server.address: this machine can't listen on 192.0.2.1"]);
    let mut hasty = settings();
    hasty.http_server.request_timeout = Duration::ZERO;
    let told: Vec<String> = touchline_server::check(&hasty).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["http_server.request_timeout: must be above zero"]);
}

#[test]
fn whoever_comes_while_the_node_drains_is_told_so() {
    let mut settings = settings();
    with_all(&mut settings);
    settings.http_server.internal_port = Some(0);
    settings.shutdown.timeout = PATIENCE;
    let server = Server::bind(settings).expect("the settings are good").start().expect("the server starts");
    let (outer, inner) = (server.address(), server.internal_address().expect("there is an internal port"));
    // The drain lasts as long as this client, which never answers the close frame.
    let mut client = TcpStream::connect(outer).expect("the server listens");
    client.write_all(handshake("").as_bytes()).expect("the server reads");
    head_of(&mut client);
    let stopping = std::thread::spawn(move || server.stop());
    let began = Instant::now();
    while ask(inner, "GET", "/readyz", "", "").0 == 200 {
        assert!(began.elapsed() < PATIENCE, "the drain begins");
    }
    for (address, path, status) in [
        (inner, "/readyz", 503),
        (inner, "/health", 503),
        (inner, "/livez", 200),
        // read once: the test reads the page, not its values.
        (inner, "/metrics", 200),
        (inner, "/api/info", 503),
        (outer, "/connection/http_stream", 503),
        (outer, "/", 503),
    ] {
        let method = if path.starts_with("/api") { "POST" } else { "GET" };
        let (found, text) = ask(address, method, path, &format!("X-API-Key: {KEY}\r\n"), "");
        assert_eq!(found, status, "{path}: {text}");
        assert!(status != 503 || text == "draining\n", "{path}: {text}");
    }
    assert!(!is_upgraded(outer, "/connection/websocket"));
    // Another shard has no client left. It still answers new clients until the node has stopped.
    let emptied = Instant::now() + Duration::from_millis(500);
    while Instant::now() < emptied {
        assert_eq!(ask(inner, "GET", "/readyz", "", "").0, 503);
    }
    drop(client);
    stopping.join().expect("it stops");
}
