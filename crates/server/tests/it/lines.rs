//! Lines over bare TCP, as devices with little memory read them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use touchline_server::SlowConsumer;
use touchline_testkit::{until, until_eq};

use crate::support::TestServer;

/// Twelve times as long as a peer may acknowledge nothing in this test.
const READS_FOR: Duration = Duration::from_secs(6);

/// A client that is subscribed to a channel and reads into a small window.
fn narrow(server: &TestServer, channel: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("it is allowed");
    socket.connect(&server.lines().into()).expect("the server listens");
    let mut device = TcpStream::from(socket);
    let commands = format!("{{\"id\":1,\"connect\":{{}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"{channel}\"}}}}\n");
    device.write_all(commands.as_bytes()).expect("it is open");
    let mut lines = BufReader::new(device.try_clone().expect("it is open")).lines();
    assert!(lines.by_ref().flatten().take(2).any(|line| line.contains("\"subscribe\":")));
    device
}

/// A server with a namespace that drops publications for slow subscribers.
fn dropping(max_age: Duration, queue_max_size: usize) -> TestServer {
    TestServer::with(|settings| {
        settings.tcp.enabled = true;
        settings.tcp.address = "127.0.0.1".into();
        settings.tcp.port = 0;
        settings.client.queue_max_size = queue_max_size;
        settings.node.buffer_max_size = 32 << 20;
        let mut talk = settings.channel.namespaces[0].clone();
        talk.name = "talk".to_owned();
        talk.options.slow_consumer = SlowConsumer::DropOldest;
        talk.options.max_age = max_age;
        settings.channel.namespaces.push(talk);
    })
}

/// The numbers of the publications that a client receives, up to this one.
fn numbers(device: TcpStream, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for line in BufReader::new(device).lines() {
        let line: Value = serde_json::from_str(&line.expect("the connection stays")).expect("it is JSON");
        if let Some(number) = line["push"]["pub"]["data"]["n"].as_u64() {
            numbers.push(number);
            if number == last {
                break;
            }
        }
    }
    numbers
}

#[test]
fn a_subscriber_that_reads_too_slowly_misses_the_oldest_publications_and_stays() {
    const COUNT: u64 = 3_000;
    let server = dropping(Duration::ZERO, 65_536);
    let (slow, fast) = (narrow(&server, "talk:a"), server.connected());
    let mut fast = fast;
    fast.ask(json!({"id": 2, "subscribe": {"channel": "talk:a"}}));
    for n in 1..=COUNT {
        server.publish("talk:a", json!({"n": n, "text": "x".repeat(1_000)}));
        assert_eq!(fast.publication()["data"]["n"], n, "a client that reads gets everything");
    }
    let seen = numbers(slow, COUNT);
    assert!(seen.is_sorted() && seen.len() < COUNT as usize, "{} of {COUNT}", seen.len());
    // The contents of its queue at the end arrived without a gap.
    let tail = seen.iter().rev().zip((0..=COUNT).rev()).take_while(|(seen, wanted)| *seen == wanted).count();
    assert!((20..64).contains(&tail), "{tail}");
    until("the rest is counted", || server.metric("touchline_publications_dropped_total") == COUNT - seen.len() as u64);
}

/// Waits until publications are older than a namespace keeps them in queues.
fn grow_old() {
    // waits: publications grow older than their age.
    sleep(Duration::from_millis(600));
}

#[test]
fn publications_larger_than_the_queue_leave_gaps_and_end_no_connection() {
    const COUNT: u64 = 40;
    let server = dropping(Duration::from_millis(400), 65_536);
    let slow = narrow(&server, "talk:a");
    for n in 1..=COUNT {
        server.publish("talk:a", json!({"n": n, "text": "x".repeat(200_000)}));
    }
    grow_old();
    server.publish("talk:a", json!({"n": COUNT + 1}));
    let seen = numbers(slow, COUNT + 1);
    assert!(seen.is_sorted() && seen.len() < COUNT as usize / 2, "{seen:?}");
}

#[test]
fn a_node_whose_memory_is_used_up_drops_publications_before_it_ends_connections() {
    const COUNT: u64 = 400;
    let server = dropping(Duration::ZERO, 1 << 30);
    let slow: Vec<TcpStream> = (0..4).map(|_| narrow(&server, "talk:a")).collect();
    for n in 1..=COUNT {
        server.publish("talk:a", json!({"n": n, "text": "x".repeat(200_000)}));
    }
    until("publications were dropped", || server.metric("touchline_publications_dropped_total") > 0);
    server.publish("talk:a", json!({"n": COUNT + 1}));
    for slow in slow {
        let seen = numbers(slow, COUNT + 1);
        assert!(seen.is_sorted(), "{seen:?}");
    }
    until_eq(0, || server.metric("touchline_relieved_total"));
}

#[test]
fn publications_that_wait_for_longer_than_their_age_are_dropped() {
    const COUNT: u64 = 200;
    let server = dropping(Duration::from_millis(300), 1 << 20);
    let slow = narrow(&server, "talk:a");
    for n in 1..=COUNT {
        server.publish("talk:a", json!({"n": n, "text": "x".repeat(1_000)}));
    }
    grow_old();
    server.publish("talk:a", json!({"n": COUNT + 1}));
    let seen = numbers(slow, COUNT + 1);
    assert!(seen.is_sorted() && seen.len() < COUNT as usize / 2, "{seen:?}");
    assert!(!seen.contains(&COUNT), "what has waited is not delivered: {seen:?}");
    let dropped = COUNT + 1 - seen.len() as u64;
    until("the rest is counted", || server.metric("touchline_publications_dropped_total") == dropped);
}

#[test]
fn a_device_that_reads_slowly_into_a_small_window_is_kept() {
    let server = TestServer::with(|settings| {
        settings.tcp.enabled = true;
        settings.tcp.address = "127.0.0.1".into();
        settings.tcp.port = 0;
        // Shorter than a slow device needs to read.
        settings.client.pong_timeout = Duration::from_millis(500);
    });
    for _ in 0..100 {
        server.publish("history:large", json!("x".repeat(10_000)));
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(8_192).expect("it is allowed");
    socket.set_tcp_mss(1_400).expect("it is allowed");
    socket.connect(&server.lines().into()).expect("the server listens");
    let mut device = TcpStream::from(socket);
    device
        .write_all(b"{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"history:large\"}}\n")
        .expect("it is open");
    for id in 3..20 {
        let history = format!("{{\"id\":{id},\"history\":{{\"channel\":\"history:large\",\"limit\":100}}}}\n");
        device.write_all(history.as_bytes()).expect("it is open");
    }
    let end = Instant::now() + READS_FOR;
    let mut taken = [0; 1_000];
    while Instant::now() < end {
        assert!(device.read(&mut taken).is_ok_and(|length| length > 0), "the server has ended the connection");
        // waits: the device reads slowly.
        sleep(Duration::from_millis(100));
    }
}

/// A server that reads lines.
fn of_lines() -> TestServer {
    TestServer::with(|settings| {
        settings.tcp.enabled = true;
        settings.tcp.address = "127.0.0.1".into();
        settings.tcp.port = 0;
    })
}

#[test]
fn a_device_that_still_sends_when_the_server_ends_it_reads_the_reason() {
    let server = of_lines();
    let mut device = TcpStream::connect(server.lines()).expect("the server listens");
    // The server ends the connection at the tenth mistake. It never reads all lines behind it.
    device.write_all("no\n".repeat(100_000).as_bytes()).expect("the system takes them");
    until("the server has ended the connection", || server.metric("touchline_disconnects_total{code=\"3509\"}") == 1);
    let mut told = String::new();
    device.read_to_string(&mut told).expect("the connection is not reset");
    let last: Value = serde_json::from_str(told.lines().last().expect("it was told something")).expect("it is JSON");
    assert_eq!(last["push"]["disconnect"], json!({"code": 3509, "reason": "too many errors"}), "{told}");
    drop(device);
    until("the connection is removed", || server.metric("touchline_connections") == 0);
}

#[test]
fn a_device_that_keeps_its_side_open_is_removed_after_the_end() {
    let server = of_lines();
    let mut device = TcpStream::connect(server.lines()).expect("the server listens");
    device.write_all(b"{\"id\":1,\"subscribe\":{\"channel\":\"x\"}}\n").expect("it is open");
    let mut told = String::new();
    device.read_to_string(&mut told).expect("the connection is not reset");
    assert!(told.contains("3501"), "{told}");
    until("the connection is removed", || server.metric("touchline_connections") == 0);
    // The system refuses what the device sends now.
    until("the socket is closed", || device.write_all(b"{}\n").is_err());
}

#[test]
fn a_device_that_has_closed_its_side_is_removed_when_it_has_its_reason() {
    let server = of_lines();
    let mut device = TcpStream::connect(server.lines()).expect("the server listens");
    device.write_all("no\n".repeat(10).as_bytes()).expect("it is open");
    device.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut told = String::new();
    device.read_to_string(&mut told).expect("the connection is not reset");
    assert!(told.contains("3509"), "{told}");
    until("the connection is removed", || server.metric("touchline_connections") == 0);
}
