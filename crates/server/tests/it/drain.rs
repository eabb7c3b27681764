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

#[test]
fn under_load_every_answered_publish_is_delivered_before_the_goodbye() {
    const CLIENTS: usize = 200;
    let mut server = TestServer::with(|settings| settings.shutdown.spread = Duration::from_millis(500));
    let address = server.address;
    let listeners: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.connected();
            client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
            std::thread::spawn(move || {
                let mut last = 0;
                loop {
                    match client.next() {
                        Ok(message) => {
                            let offset = message["push"]["pub"]["offset"].as_u64().expect("only publications come");
                            assert_eq!(offset, last + 1, "nothing is left out on the way to the end");
                            last = offset;
                        }
                        Err(goodbye) => {
                            let _ = std::io::Write::write_all(&mut client.socket, &crate::support::frame(0x88, &1000u16.to_be_bytes()));
                            return (goodbye, last);
                        }
                    }
                }
            })
        })
        .collect();
    // Publishes as fast as answers come, until nobody answers any more; a publish that the drain finds under way is answered or refused.
    let publisher = std::thread::spawn(move || {
        let mut answered = 0;
        while let Some(offset) = crate::support::try_publish(address, "history:a") {
            answered = offset;
        }
        answered
    });
    std::thread::sleep(Duration::from_millis(300));
    let before = server.publish("history:a", json!(0))["result"]["offset"].as_u64().expect("it is answered");
    server.stop();
    let answered = publisher.join().expect("the publisher ends");
    for listener in listeners {
        let (goodbye, last) = listener.join().expect("listeners don't panic");
        assert_eq!(goodbye, Heard::Close(3001, "shutdown".into()));
        assert!(last >= before, "what was answered before the drain began was delivered: {last} of {before}");
    }
    assert!(answered > 0, "the publisher was served under load");
}
