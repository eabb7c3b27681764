//! Connections whose client has not connected yet: they are counted, and the oldest are closed first.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use touchline_testkit::http::head_of;
use touchline_testkit::websocket::handshake;
use touchline_testkit::{PATIENCE, until};

use crate::support::{KEY, TestServer};

const LIMIT: usize = 8;

fn server() -> TestServer {
    TestServer::with(|settings| {
        settings.node.shards = 1;
        settings.client.unauthenticated_connection_limit = LIMIT;
    })
}

/// Whether the server has closed the connection.
fn is_closed(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("sockets have timeouts");
    let closed = match socket.read(&mut [0; 512]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    };
    socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
    closed
}

fn open(sockets: &mut [TcpStream]) -> Vec<bool> {
    sockets.iter_mut().map(|socket| !is_closed(socket)).collect()
}

#[test]
fn silent_visitors_make_room_oldest_first_and_clients_stay() {
    let server = server();
    let mut client = server.connected();
    let mut silent: Vec<TcpStream> = (0..3 * LIMIT).map(|_| server.socket()).collect();
    until("the oldest are closed", || is_closed(&mut silent[2 * LIMIT - 1]));
    assert_eq!(open(&mut silent[..2 * LIMIT]), [false; 2 * LIMIT], "those before are, too");
    assert_eq!(open(&mut silent[2 * LIMIT..]), [true; LIMIT], "as many as may stay are there");
    assert_eq!(
        client.ask(json!({"id": 2, "rpc": {"method": "none"}}))["id"],
        2,
        "a client that has connected counts no more"
    );
    let mut late = server.connected();
    assert_eq!(late.ask(json!({"id": 2, "rpc": {"method": "none"}}))["id"], 2, "a newcomer gets in");
}

#[test]
fn sessions_before_their_connect_command_make_room_too() {
    let server = server();
    let mut clients: Vec<_> = (0..LIMIT + 2).map(|_| server.connected()).collect();
    let mut waiting: Vec<TcpStream> = Vec::new();
    for _ in 0..LIMIT + 3 {
        let mut socket = server.socket();
        socket.write_all(handshake("").as_bytes()).expect("the server listens");
        assert!(head_of(&mut socket).starts_with("HTTP/1.1 101"));
        waiting.push(socket);
    }
    until("the oldest are closed", || is_closed(&mut waiting[2]));
    assert_eq!(open(&mut waiting[..3]), [false; 3]);
    assert_eq!(open(&mut waiting[3..]), [true; LIMIT]);
    for client in &mut clients {
        assert_eq!(client.ask(json!({"id": 2, "rpc": {"method": "none"}}))["id"], 2);
    }
}

#[test]
fn requests_that_are_read_make_room_too_and_backends_stay() {
    let server = server();
    let mut backend = server.socket();
    let call = format!("POST /api/info HTTP/1.1\r\nHost: t\r\nX-API-Key: {KEY}\r\nContent-Length: 2\r\n\r\n{{}}");
    let ask = |backend: &mut TcpStream| {
        backend.write_all(call.as_bytes()).expect("it is open");
        let head = head_of(backend);
        let length =
            head.to_lowercase().split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or_else(|| panic!("{head}"))];
        backend.read_exact(&mut body).expect("a body");
    };
    ask(&mut backend);
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..2 * LIMIT {
        let mut socket = server.socket();
        socket.write_all(b"GET / HTTP/1.1\r\nHo").expect("the server listens");
        slow.push(socket);
    }
    until("the oldest are closed", || is_closed(&mut slow[0]));
    until("as many as may stay are there", || open(&mut slow).iter().filter(|open| **open).count() <= LIMIT);
    assert!(!is_closed(&mut slow[2 * LIMIT - 1]), "the newest one stays");
    ask(&mut backend);
}

pub(crate) struct Certificate {
    directory: std::path::PathBuf,
    pem: String,
}

/// Makes a self-signed certificate for `localhost`.
pub(crate) fn certificate(name: &str) -> Certificate {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let directory = std::env::temp_dir().join(format!("touchline-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).expect("a file");
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).expect("a file");
    Certificate { directory, pem: made.cert.pem() }
}

impl Certificate {
    pub(crate) fn server(&self, change: impl FnOnce(&mut touchline_server::Settings)) -> TestServer {
        TestServer::with(|settings| {
            settings.node.shards = 1;
            settings.http_server.tls.enabled = true;
            (settings.http_server.tls.cert_pem, settings.http_server.tls.key_pem) = self.paths();
            change(settings);
        })
    }

    /// The files of the certificate and of its key.
    pub(crate) fn paths(&self) -> (String, String) {
        let path = |name: &str| self.directory.join(name).display().to_string();
        (path("cert.pem"), path("key.pem"))
    }

    /// A root store that trusts the certificate.
    pub(crate) fn roots(&self) -> rustls::RootCertStore {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM")).expect("a certificate");
        roots
    }

    pub(crate) fn agree(&self, socket: TcpStream) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        self.agree_as(socket, None)
    }

    /// Does the handshake for a client with its own certificate and key.
    pub(crate) fn agree_as(
        &self,
        socket: TcpStream,
        own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        let config = rustls::ClientConfig::builder().with_root_certificates(self.roots());
        let config = match own {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).expect("they fit"),
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let session = rustls::ClientConnection::new(Arc::new(config), name).expect("a session");
        rustls::StreamOwned::new(session, socket)
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn tls_handshakes_that_never_end_make_room_too() {
    let certificate = certificate("unauthenticated");
    let server = certificate.server(|settings| settings.client.unauthenticated_connection_limit = LIMIT);
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..2 * LIMIT {
        silent.push(server.socket());
    }
    until("the oldest are closed", || is_closed(&mut silent[0]));
    let mut stream = certificate.agree(server.socket());
    stream.write_all(handshake("").as_bytes()).expect("a newcomer gets in");
    assert!(head_of(&mut stream).starts_with("HTTP/1.1 101"));
}

#[test]
fn tls_handshakes_beyond_their_rate_wait_and_nobody_is_refused() {
    let certificate = certificate("rate");
    let server = certificate.server(|settings| settings.http_server.tls_handshake_rate_limit = 20);
    let sockets: Vec<TcpStream> = (0..12).map(|_| server.socket()).collect();
    let mut metrics = String::new();
    for socket in sockets {
        let mut stream = certificate.agree(socket);
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").expect("it is served");
        metrics.clear();
        let _ = stream.read_to_string(&mut metrics);
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    }
    assert!(!metrics.contains("touchline_tls_pauses_total 0\n"), "{metrics}");
}

#[test]
fn the_proxy_protocol_comes_before_tls() {
    let certificate = certificate("proxy");
    let server = certificate.server(|settings| {
        settings.http_server.trusted_proxies = vec!["127.0.0.1".into()];
        settings.http_server.proxy_protocol = true;
        settings.client.connection_limit_by_address = 1;
    });
    let come = |address: &str| {
        let mut socket = server.socket();
        for piece in format!("PROXY TCP4 {address} 127.0.0.1 1 2\r\n").as_bytes().chunks(9) {
            socket.write_all(piece).expect("the server listens");
        }
        let mut stream = certificate.agree(socket);
        stream.write_all(handshake("").as_bytes()).expect("TLS is agreed upon");
        (head_of(&mut stream), stream)
    };
    let (first, _held) = come("203.0.113.1");
    assert!(first.starts_with("HTTP/1.1 101"), "{first}");
    assert!(come("203.0.113.1").0.starts_with("HTTP/1.1 429"));
    assert!(come("203.0.113.2").0.starts_with("HTTP/1.1 101"));
}
