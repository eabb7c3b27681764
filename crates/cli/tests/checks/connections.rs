//! `touchline check --connect`: the check connects to each server that a configuration names.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::ports::free_port;
use touchline_testkit::postgres::PostgresServer;

use crate::place::{Place, text};

/// A backend that answers each request with 405 and sends the first line of the request to the test.
fn backend() -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let (mut first, mut line) = (String::new(), String::new());
            let _ = reader.read_line(&mut first);
            while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                line.clear();
            }
            // The line is sent before the answer: a caller that has the answer may look for the line at once.
            let _ = sender.send(first);
            let _ = reader.get_mut().write_all(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, lines)
}

fn checked(place: &Place) -> (Option<i32>, String) {
    let output = place.run(&["check", "--connect"]);
    (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

#[test]
fn what_can_be_reached_is_told() {
    let (port, asked) = backend();
    let place = Place::new("");
    let nats = NatsServer::start(JETSTREAM);
    place.certificate(90);
    let postgres = PostgresServer::start(place.0.path());
    let database = postgres.url();
    place.configure(&format!(
        "store.primary.url = \"{database}\"\nhttp_server.tls.enabled = true\ncluster.engine = \"nats\"\n\
         cluster.nats_url = [\"{}\"]\n\
         client.proxy.connect = {{enabled = true, endpoint = \"http://127.0.0.1:{port}/c?x=1\"}}\n\
         events = [{{name = \"told\", endpoint = \"http://127.0.0.1:{port}/e\", types = [\"connected\"]}}]\n\
         channel.namespaces = [{{name = \"orders\", durable = true, history_size = 5, history_ttl = \"1h\"}},\
         {{name = \"chat\", history_size = 5, history_ttl = \"1h\"}}]\n",
        nats.url()
    ));
    let (code, said) = checked(&place);
    for expected in [
        "ok: http_server.tls.cert_pem: the certificate: valid for 90 days more",
        "ok: store.primary.url: the database: schema 0 of ",
        "ok: cluster.nats_url: nats://127.0.0.1:",
        ", with JetStream",
        "/c: answers (OPTIONS: 405)",
        "ok: events[told]: http://127.0.0.1:",
        ", 0 failed",
    ] {
        assert!(said.contains(expected), "{expected} is not in: {said}");
    }
    assert_eq!(code, Some(0), "{said}");
    let asked: Vec<String> = asked.try_iter().collect();
    assert!(asked.len() == 2 && asked.iter().all(|line| line.starts_with("OPTIONS /")), "{asked:?}");
}

#[test]
fn what_cannot_be_reached_is_an_error_with_its_key_and_without_passwords() {
    let closed = free_port();
    let place = Place::new("");
    let nats = NatsServer::start("authorization { user: app, password: \"other\" }");
    place.certificate(3);
    place.configure(&format!(
        "http_server.tls.enabled = true\ncluster.engine = \"nats\"\n\
         cluster.nats_url = [\"nats://app:s3cret@127.0.0.1:{}\"]\n\
         client.proxy.connect = {{enabled = true, endpoint = \"http://127.0.0.1:{closed}/\"}}\n\
         client.token.jwks_public_endpoint = \"http://127.0.0.1:{closed}/keys\"\n\
         client.token.insecure_skip_jwks_endpoint_safety_check = true\n\
         store.primary.url = \"postgres://app:s3cret@127.0.0.1:{closed}/x\"\n\
         channel.namespaces = [{{name = \"orders\", durable = true, history_size = 5, history_ttl = \"1h\"}}]\n\
         consumers = [{{name = \"rows\", enabled = true, type = \"postgresql\", postgresql = \
         {{dsn = \"postgres://a:s3cret@127.0.0.1:{closed}/x\", outbox_table_name = \"rows\", num_partitions = 1}}}}]\n",
        nats.port
    ));
    let (code, said) = checked(&place);
    for expected in [
        "error: http_server.tls.cert_pem: the certificate: valid for 3 days more: renew it",
        "error: store.primary.url: the database: ",
        "error: cluster.nats_url: nats://127.0.0.1:",
        "error: client.proxy.connect.endpoint: http://127.0.0.1:",
        "error: consumers[rows]: PostgreSQL: ",
        "a set of keys: ",
        "connections: 6 tried, 6 failed",
    ] {
        assert!(said.contains(expected), "{expected} is not in: {said}");
    }
    assert_eq!(code, Some(1), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn an_expired_certificate_and_a_silent_grpc_backend_are_errors() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = silent.local_addr().expect("it is bound").port();
    let place = Place::new("");
    place.certificate_until(std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 86_400));
    place.configure(&format!(
        "http_server.tls.enabled = true\n\
         client.proxy.connect = {{enabled = true, endpoint = \"grpc://127.0.0.1:{port}\"}}\n"
    ));
    let (code, said) = checked(&place);
    assert!(said.contains("error: http_server.tls.cert_pem: the certificate: expired 3 days ago"), "{said}");
    assert!(said.contains("error: client.proxy.connect.endpoint: grpc://127.0.0.1:"), "{said}");
    assert!(code == Some(1) && said.contains("2 tried, 2 failed"), "{said}");
}

#[test]
fn a_file_that_is_not_there_yet_is_not_made() {
    let durable =
        "channel.namespaces = [{name = \"orders\", durable = true, history_size = 5, history_ttl = \"1h\"}]\n";
    let place = Place::new(durable);
    let (code, said) = checked(&place);
    assert!(said.contains("ok: store.primary.url: sqlite:data/primary.db: schema 0 of "), "{said}");
    assert!(code == Some(0) && !place.0.file("data").exists(), "{said}");
}
