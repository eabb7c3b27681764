//! A node's use of its machine (descriptors, files, log), and the data that it forwards to other nodes.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use socket2::{Domain, Socket, Type};
use touchline_testkit::http::{TestClient, socket, status};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::websocket::{WebSocket, handshake};
use touchline_testkit::{PATIENCE, comes};

use crate::support::http::{http, raw};
use crate::support::server::{Server, with_namespace};
use crate::support::token::token;
use crate::support::watch::Watch;
use crate::support::{FLOOD, MIB, alone, pause};

const SLACK: u64 = 24 * MIB;

#[test]
fn a_soft_limit_of_descriptors_is_raised() {
    let _alone = alone();
    let server = Server::in_shell("ulimit -Sn 256 && exec \"$0\" serve --config \"$1\"", &json!({}));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("it runs");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("there is a limit").to_owned();
    let mut limits = files.split_whitespace().skip(3);
    assert_eq!(limits.next(), limits.next(), "{files}");
    assert!(
        server.log().iter().any(|line| line.contains("ready") && line.contains("connections")),
        "it tells how many connections that is"
    );
}

#[test]
fn silent_sockets_keep_nobody_out_when_descriptors_are_short() {
    let _alone = alone();
    let server = Server::in_shell("ulimit -n 256 && exec \"$0\" serve --config \"$1\"", &json!({}));
    let mut watch = Watch::begin("600 silent sockets at 256 descriptors", &server);
    let mut silent: Vec<TcpStream> = (0..600).map(|_| socket(server.address)).collect();
    pause(Duration::from_millis(500));
    // The server accepts a client that sends a request although silent connections have time left.
    let answer = raw(server.address, handshake("").as_bytes(), Duration::from_secs(3));
    watch.told(format!("a new client: {}", status(&answer)));
    pause(FLOOD);
    let errors = server.log().iter().filter(|line| line.contains("accept") || line.contains("descriptor")).count();
    watch.told(format!("{errors} log lines"));
    silent.iter_mut().for_each(|socket| drop(socket.write_all(b"x")));
    watch.end(SLACK);
    assert_eq!(status(&answer), 101, "{answer}");
    assert!(errors < 10, "{errors} log lines in some seconds");
}

/// A socket from a local port. The port decides the shard that accepts it. The socket ends with a reset, so that the
/// port can be used again.
fn socket_from(port: u16, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// Whether the server keeps a connection open to which it sends nothing.
fn is_open(socket: &TcpStream) -> bool {
    let _ = socket.set_nonblocking(true);
    socket.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Local ports, grouped by the one of two shards that accepts their connections. The last bytes of a client id contain
/// the number of its shard.
fn ports_by_shard(address: SocketAddr, of_first: usize, of_second: usize) -> [Vec<u16>; 2] {
    let mut ports = [Vec::new(), Vec::new()];
    for port in 20_000..30_000 {
        if ports[0].len() >= of_first && ports[1].len() >= of_second {
            break;
        }
        let Ok(socket) = socket_from(port, address) else { continue };
        let mut client = WebSocket::over(socket, "");
        let reply = client.must(json!({"id": 1, "connect": {}}));
        let id = reply["connect"]["client"].as_str().expect("a client has an id");
        ports[usize::from(&id[24..28] == "0001")].push(port);
    }
    ports
}

#[test]
fn silent_sockets_of_one_shard_keep_nobody_out_of_another() {
    let _alone = alone();
    let server =
        Server::in_shell("ulimit -n 256 && exec \"$0\" serve --config \"$1\"", &json!({"node": {"shards": 2}}));
    let [first, second] = ports_by_shard(server.address, 300, 3);
    let mut silent: Vec<TcpStream> = first.iter().filter_map(|port| socket_from(*port, server.address).ok()).collect();
    assert!(silent.len() > 256, "{} sockets", silent.len());
    // The first shard holds all descriptors before the connections of the second shard are made.
    pause(Duration::from_millis(500));
    for port in second {
        let mut client = WebSocket::over(socket_from(port, server.address).expect("the kernel answers"), "");
        client.must(json!({"id": 1, "connect": {}}));
        silent.retain(is_open);
        assert!(silent.len() > 100, "{} silent sockets are left: the client had to wait for their end", silent.len());
    }
}

/// The permissions of a file or directory.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).map_or(0, |data| data.permissions().mode() & 0o777)
}

#[test]
fn databases_are_their_owners_alone() {
    let _alone = alone();
    let changes = with_namespace(&json!({"name": "kept", "durable": true, "history_size": 100, "history_ttl": "1h"}));
    let mut changes = changes;
    changes["store"] = json!({
        "primary": {"url": "sqlite:data/primary.db"}, "stats": {"enabled": true, "url": "sqlite:data/stats.db"},
    });
    let server = Server::in_shell("umask 022 && exec \"$0\" serve --config \"$1\"", &changes);
    http(server.address).publish("kept:a", &json!(1));
    let data = server.folder().join("data");
    assert_eq!(mode(&data), 0o700, "{}", data.display());
    let files: Vec<_> = std::fs::read_dir(&data).expect("it is there").flatten().map(|entry| entry.path()).collect();
    assert!(files.iter().any(|file| file.ends_with("primary.db")), "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_configuration_that_others_can_read_is_warned_of() {
    let _alone = alone();
    let server = Server::in_shell("chmod 644 \"$1\" && exec \"$0\" serve --config \"$1\"", &json!({}));
    assert!(
        server.log().iter().any(|line| line.contains("WARN") && line.contains("config.json")),
        "{:?}",
        server.log()
    );
}

#[test]
fn commands_for_nodes_that_nobody_knows_are_not_handed_on() {
    let _alone = alone();
    let nats = NatsServer::start(JETSTREAM);
    let cluster = json!({"cluster": {"engine": "nats", "name": "attacks", "nats_url": [nats.url()]}});
    let (server, _other) = (Server::with(&cluster), Server::with(&cluster));
    let mut http = http(server.address);
    assert!(comes(PATIENCE, || http.request("GET", "/health", "", "").is_ok_and(|(status, _)| status == 200)));
    let nodes = |http: &mut TestClient| http.api("info", &json!({}))["result"]["nodes"].as_array().map_or(0, Vec::len);
    assert!(comes(PATIENCE, || nodes(&mut http) == 2), "the nodes see each other");
    let mut watch = Watch::begin("300 commands for nodes that do not exist", &server);
    let mut told = Vec::new();
    for number in 0..300 {
        let body = json!({"session": "0".repeat(60), "node": format!("{number:032x}"), "data": "x".repeat(50_000)});
        told.push(http.request("POST", "/emulation", "", &body.to_string()).map_or(0, |(status, _)| status));
    }
    told.dedup();
    watch.told(format!("{told:?}"));
    watch.end(SLACK);
    assert!(!told.contains(&204), "{told:?}");
}

#[test]
fn a_stranger_with_a_session_id_commands_nobodys_stream() {
    let _alone = alone();
    let server = Server::start();
    let mut http = http(server.address);
    let mut watch = Watch::begin("forged sessions of emulation", &server);
    let mut stream = socket(server.address);
    let body = json!({"id": 1, "connect": {"token": token(&json!({"sub": "ann"}))}}).to_string();
    let request = format!(
        "POST /connection/http_stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("the server reads");
    let answer = crate::support::http::rest(&mut stream, Duration::from_secs(1));
    let reply = answer.lines().find(|line| line.contains("\"session\"")).unwrap_or_else(|| panic!("{answer}"));
    let reply: serde_json::Value = serde_json::from_str(reply).expect("it is JSON");
    let (session, node) = (reply["connect"]["session"].as_str().expect("it has one"), &reply["connect"]["node"]);
    let command = json!({"id": 2, "publish": {"channel": "big:forged", "data": 1}}).to_string();
    for at in 0..session.len() {
        let mut forged = session.as_bytes().to_vec();
        forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
        let body = json!({"session": String::from_utf8_lossy(&forged), "node": node, "data": command});
        let _ = http.request("POST", "/emulation", "", &body.to_string());
    }
    // A publication that comes after the forged ones.
    assert!(http.publish("big:forged", &json!("marker"))["error"].is_null());
    let history = http.api("history", &json!({"channel": "big:forged", "limit": -1}));
    let forged = |history: &serde_json::Value| {
        let publications = history["result"]["publications"].as_array().expect("a list");
        publications.iter().filter(|publication| publication["data"] != "marker").count()
    };
    watch.told(format!("{} forgeries carried out", forged(&history)));
    watch.end(SLACK);
    assert_eq!(forged(&history), 0);
    let mut other = WebSocket::connected(server.address);
    other.must(json!({"id": 2, "subscribe": {"channel": "big:forged"}}));
}
