//! A node that stops tells its clients, and finishes what it began.

use std::time::Duration;

use serde_json::json;

use crate::support::{Heard, TestServer};

#[test]
fn clients_are_told_over_the_configured_time() {
    let mut server = TestServer::with(|settings| settings.shutdown.spread = Duration::from_millis(400));
    let clients: Vec<_> = (0..40).map(|_| server.connected()).collect();
    let started = std::time::Instant::now();
    let listeners: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                let heard = client.close();
                let _ = std::io::Write::write_all(&mut client.socket, &crate::support::frame(0x88, &1000u16.to_be_bytes()));
                (heard, started.elapsed())
            })
        })
        .collect();
    server.stop();
    let mut times = Vec::new();
    for listener in listeners {
        let (heard, at) = listener.join().expect("listeners don't panic");
        assert_eq!(heard, Heard::Close(3001, "shutdown".into()));
        times.push(at);
    }
    times.sort();
    assert!(times[39] - times[0] >= Duration::from_millis(200), "spread over {:?}", times[39] - times[0]);
}

#[test]
fn a_stopped_node_takes_nobody_in_and_a_publish_under_way_is_answered() {
    let mut server = TestServer::with(|settings| settings.shutdown.spread = Duration::from_millis(300));
    let address = server.address;
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
    let offset = server.publish("history:a", json!(1))["result"]["offset"].clone();
    assert_eq!(offset, 1);
    server.stop();
    assert_eq!(client.publication()["data"], 1);
    assert_eq!(client.close(), Heard::Close(3001, "shutdown".into()));
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
}
