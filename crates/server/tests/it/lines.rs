//! Lines over bare TCP, as devices with little memory read them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::support::TestServer;

/// A dozen times as long as a peer may acknowledge nothing in this test.
const READS_FOR: Duration = Duration::from_secs(6);

#[test]
fn a_device_that_reads_slowly_into_a_small_window_is_kept() {
    let server = TestServer::with(|settings| {
        settings.tcp.enabled = true;
        settings.tcp.address = "127.0.0.1".into();
        settings.tcp.port = 0;
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
        sleep(Duration::from_millis(100));
    }
}
