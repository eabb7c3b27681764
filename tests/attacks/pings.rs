//! Control frames, fragments and empty lines: the server charges them like commands, and limits its answers to them.

use std::io::Write as _;
use std::net::TcpStream;

use touchline_testkit::websocket::{WebSocket, frame, text};

use crate::support::http::http;
use crate::support::lines::Lines;
use crate::support::server::Server;
use crate::support::two::Two;
use crate::support::watch::Watch;
use crate::support::websocket::{Attacker, PING, Told, flood, narrow};
use crate::support::{FLOOD, MIB, alone};

/// The most other memory that a server may use during an attack, in bytes.
const SLACK: u64 = 16 * MIB;
/// The value of `client.queue_max_size`, in bytes.
const QUEUE: u64 = MIB;
/// The number of pings that fit into one write.
const PINGS: usize = 4_096;

fn sockets_that_ping(name: &'static str, is_connected: bool) {
    let _alone = alone();
    let server = Server::start();
    let mut sockets: Vec<TcpStream> = Vec::new();
    for _ in 0..10 {
        let mut attacker = narrow(server.address);
        if is_connected {
            attacker.must(serde_json::json!({"id": 1, "connect": {}}));
        }
        sockets.push(attacker.socket);
    }
    let mut watch = Watch::begin(name, &server);
    let (sent, ended) = flood(&sockets, &PING.repeat(PINGS), FLOOD, false);
    watch.told(format!("{} MiB sent, {ended} of 10 ended", sent / MIB));
    watch.end(10 * QUEUE + SLACK);
}

#[test]
fn ten_sockets_that_ping_and_never_read_cost_no_more_than_their_queues() {
    sockets_that_ping("pings without reading, before connect", false);
}

#[test]
fn ten_clients_that_ping_and_never_read_cost_no_more_than_their_queues() {
    sockets_that_ping("pings without reading, connected", true);
}

#[test]
fn twenty_websockets_in_one_http2_connection_that_ping_and_never_read_cost_no_more_than_their_queues() {
    let _alone = alone();
    let server = Server::start();
    let mut two = Two::open(server.address, 0);
    let streams: Vec<u32> = (0..20).map(|index| 1 + 2 * index).collect();
    streams.iter().for_each(|stream| two.websocket(*stream));
    let mut watch = Watch::begin("pings without reading, 20 streams of HTTP/2", &server);
    let sent = two.flood(&streams, &PING.repeat(1_000), FLOOD * 2);
    watch.told(format!("{} MiB sent{}", sent / MIB, if two.is_over { ", ended" } else { "" }));
    watch.end(20 * QUEUE + SLACK);
}

#[test]
fn clients_that_ping_and_read_are_slowed_down_as_others_are() {
    let _alone = alone();
    let server = Server::start();
    let sockets: Vec<TcpStream> = (0..4).map(|_| WebSocket::connected(server.address).socket).collect();
    let mut watch = Watch::begin("pings with reading", &server);
    let (sent, _) = flood(&sockets, &PING.repeat(PINGS), FLOOD, true);
    let throttled = http(server.address).metric("touchline_throttled_total");
    watch.told(format!("{} MiB sent, read more slowly {throttled} times", sent / MIB));
    watch.end(4 * QUEUE + SLACK);
    assert!(throttled > 0, "pings are charged");
}

#[test]
fn empty_fragments_are_charged() {
    let _alone = alone();
    let server = Server::start();
    let mut sockets: Vec<TcpStream> = (0..4).map(|_| WebSocket::connected(server.address).socket).collect();
    sockets.iter_mut().for_each(|socket| socket.write_all(&frame(0x01, b"")).expect("the server reads"));
    let mut watch = Watch::begin("empty fragments", &server);
    let (sent, _) = flood(&sockets, &frame(0x00, b"").repeat(PINGS), FLOOD, true);
    let throttled = http(server.address).metric("touchline_throttled_total");
    watch.told(format!("{} million sent, read more slowly {throttled} times", sent / 6 / 1_000_000));
    watch.end(SLACK);
    assert!(throttled > 0, "fragments are charged");
}

#[test]
fn empty_lines_are_charged() {
    let _alone = alone();
    let server = Server::start();
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let mut attacker = Lines::open(server.lines);
        attacker.send("{\"id\":1,\"connect\":{}}\n");
        assert!(attacker.hear().is_some_and(|line| line.contains("connect")));
        sockets.push(attacker.socket);
    }
    let mut watch = Watch::begin("empty lines", &server);
    let (sent, _) = flood(&sockets, &[b'\n'; 64 * 1024], FLOOD, true);
    let throttled = http(server.address).metric("touchline_throttled_total");
    watch.told(format!("{} million sent, read more slowly {throttled} times", sent / 1_000_000));
    watch.end(SLACK);
    assert!(throttled > 0, "empty lines are charged");
}

#[test]
fn a_crowd_that_has_shaken_hands_only_is_told_to_go() {
    let _alone = alone();
    let server = Server::with(&serde_json::json!({"client": {"stale_close_delay": "1s"}}));
    let mut watch = Watch::begin("2,000 WebSockets that say nothing", &server);
    let mut crowd: Vec<WebSocket> = (0..2_000).map(|_| narrow(server.address)).collect();
    let told = crowd.first_mut().map(|first| first.end(touchline_testkit::PATIENCE));
    watch.told(format!("{told:?}"));
    watch.end(SLACK);
    assert_eq!(told, Some(Told::Closed(3502)));
}

#[test]
fn commands_at_full_speed_are_read_more_slowly() {
    let _alone = alone();
    let server = Server::start();
    let sockets: Vec<TcpStream> = (0..4).map(|_| WebSocket::connected(server.address).socket).collect();
    let mut watch = Watch::begin("commands at full speed", &server);
    let (sent, ended) = flood(&sockets, &text(r#"{"id":7,"rpc":{"method":"none"}}"#).repeat(1_000), FLOOD, true);
    let throttled = http(server.address).metric("touchline_throttled_total");
    watch.told(format!("{} MiB sent, {ended} ended, read more slowly {throttled} times", sent / MIB));
    watch.end(4 * QUEUE + SLACK);
    assert!(throttled > 0, "commands are charged");
}
