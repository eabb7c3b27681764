//! Answers that are much larger than their requests: the server makes them only when there is room, and disconnects no
//! client for a request.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use touchline_testkit::PATIENCE;
use touchline_testkit::websocket::{WebSocket, handshake, text};

use crate::support::http::http;
use crate::support::server::{Server, with_namespace};
use crate::support::watch::Watch;
use crate::support::websocket::{Attacker, Told, crowd, narrow};
use crate::support::{FLOOD, MIB, alone, http, pause, size};

const SLACK: u64 = 24 * MIB;
/// The number of history commands that fit into one message of 64 KB.
const ASKED: usize = 1_100;

/// Fills a channel with 300 publications of 20 KB.
fn fill(server: &Server, channel: &str) {
    let mut http = http(server.address);
    let data = json!("x".repeat(20_000));
    for _ in 0..300 {
        assert!(http.publish(channel, &data)["result"]["offset"].is_u64());
    }
}

/// One message with many commands that ask for a history.
fn questions(limit: usize) -> String {
    let message: Vec<String> = (2..ASKED + 2)
        .map(|id| format!("{{\"id\":{id},\"history\":{{\"channel\":\"big:a\",\"limit\":{limit}}}}}"))
        .collect();
    let message = message.join("");
    assert!(message.len() <= 65_536, "it is one message");
    message
}

/// A session on a socket with a small receive buffer.
fn session(address: SocketAddr) -> WebSocket {
    let mut client = narrow(address);
    client.must(json!({"id": 1, "connect": {}}));
    client
}

#[test]
fn a_message_of_60_kb_that_asks_for_histories_and_does_not_read_costs_one_answer() {
    let _alone = alone();
    let server = Server::start();
    fill(&server, "big:a");
    let mut attacker = session(server.address);
    let mut watch = Watch::begin("1,100 histories of 6 MB in a message, not read", &server);
    attacker.send_bytes(&text(&questions(300)));
    pause(FLOOD);
    let first = attacker.next_message();
    watch.told(format!("{:?} when read", first.as_ref().map(|reply| reply["error"]["code"].clone())));
    // The server sends one answer and makes the next one. Each exists as text and as a frame.
    watch.end(4 * 6 * MIB + SLACK);
    assert_eq!(
        first.map(|reply| reply["history"]["publications"].as_array().map(Vec::len)),
        Ok(Some(300)),
        "it was made"
    );
}

#[test]
fn a_client_that_asks_for_1100_histories_at_once_and_reads_gets_them_all() {
    let _alone = alone();
    let server = Server::start();
    fill(&server, "big:a");
    let mut client = WebSocket::connected(server.address);
    let mut watch = Watch::begin("1,100 histories in a message, read", &server);
    client.send_bytes(&text(&questions(size(20, 300))));
    let answered = (2..ASKED + 2)
        .take_while(|id| client.reply(&json!(id)).is_ok_and(|reply| reply["history"].is_object()))
        .count();
    watch.told(format!("{answered} answers"));
    watch.end(4 * 6 * MIB + SLACK);
    assert_eq!(answered, ASKED);
}

#[test]
fn a_client_that_recovers_30_channels_of_300_kb_at_once_gets_all_and_stays() {
    let _alone = alone();
    let server = Server::start();
    let mut http = http(server.address);
    let data = json!("x".repeat(3_000));
    for channel in 0..30 {
        for _ in 0..100 {
            http.publish(&format!("big:{channel}"), &data);
        }
    }
    let epochs: Vec<Value> = (0..30)
        .map(|channel| {
            http.api("history", &json!({"channel": format!("big:{channel}"), "limit": 0}))["result"]["epoch"].clone()
        })
        .collect();
    let mut client = session(server.address);
    let mut watch = Watch::begin("30 channels of 300 KB recovered at once", &server);
    for (channel, epoch) in epochs.iter().enumerate() {
        let subscribe = json!({"channel": format!("big:{channel}"), "recover": true, "offset": 0, "epoch": epoch});
        client.send_json(json!({"id": channel + 2, "subscribe": subscribe}));
    }
    let mut recovered = vec![0; 30];
    for _ in 0..30 {
        let reply = client.next_message().expect("the client is not disconnected");
        let channel = reply["id"].as_u64().expect("a reply") as usize - 2;
        recovered[channel] = reply["subscribe"]["publications"].as_array().map_or(0, Vec::len);
    }
    watch.told(format!("{} publications", recovered.iter().sum::<usize>()));
    watch.end(10 * MIB + SLACK);
    assert!(recovered.iter().all(|count| *count == 100), "{recovered:?}");
}

#[test]
fn presence_of_3000_asked_1000_times_and_not_read_costs_one_answer() {
    let _alone = alone();
    let server = Server::start();
    let _crowd = crowd(server.address, 3_000, &text(r#"{"id":2,"subscribe":{"channel":"room:a"}}"#), r#""id":2"#);
    let mut attacker = session(server.address);
    let message: String =
        (2..1_300).map(|id| format!("{{\"id\":{id},\"presence\":{{\"channel\":\"room:a\"}}}}")).collect();
    let mut watch = Watch::begin("1,300 presences of 3,000 in a message, not read", &server);
    attacker.send_bytes(&text(&message));
    pause(FLOOD);
    let first = attacker.next_message();
    watch.told(format!("{:?} when read", first.as_ref().map(|reply| reply["error"]["code"].clone())));
    watch.end(4 * MIB + SLACK);
    assert_eq!(
        first.map(|reply| reply["presence"]["presence"].as_object().map(serde_json::Map::len)),
        Ok(Some(3_000)),
        "it was made"
    );
}

#[test]
fn names_with_metadata_asked_900_times_and_not_read_cost_one_answer() {
    let _alone = alone();
    let server = Server::start();
    let mut owners: Vec<WebSocket> = (0..10).map(|_| WebSocket::connected(server.address)).collect();
    let meta = json!("m".repeat(4_000));
    for (number, owner) in owners.iter_mut().enumerate() {
        for name in 0..100 {
            let data = json!({"scope": "devices", "name": format!("{number}-{name}"), "meta": meta});
            owner.must(json!({"id": name + 2, "rpc": {"method": "registry.register", "data": data}}));
        }
    }
    let mut attacker = session(server.address);
    let message: String = (2..720)
        .map(|id| {
            let page = r#"{"scope":"devices","limit":1000}"#;
            format!(r#"{{"id":{id},"rpc":{{"method":"registry.names","data":{page}}}}}"#)
        })
        .collect();
    let mut watch = Watch::begin("720 pages of 4 MB of names in a message, not read", &server);
    attacker.send_bytes(&text(&message));
    pause(FLOOD);
    let first = attacker.next_message();
    watch.told(format!("{:?} when read", first.as_ref().map(|reply| reply["error"]["code"].clone())));
    watch.end(4 * 5 * MIB + SLACK);
    assert_eq!(
        first.map(|reply| reply["rpc"]["data"]["names"].as_array().map(Vec::len)),
        Ok(Some(1_000)),
        "it was made"
    );
}

/// Whether the server accepted the WebSocket, as its answer shows.
fn is_upgraded(mut socket: &TcpStream) -> bool {
    let mut start = [0; 12];
    socket.set_nonblocking(true).is_ok() && socket.read_exact(&mut start).is_ok() && start.ends_with(b"101")
}

/// The value of `node.buffer_max_size` of the crowd's server, in MiB.
const BUDGET: u64 = 256;
/// The other memory of a connection: slots, sessions, subscriptions, sockets.
const EACH: u64 = 4 * 1024;
/// Memory outside the budget: on each shard an answer of 6 MB while it is made, framed and gathered, and the
/// allocator's space between large blocks. Here it is half of the budget.
const UNSEEN: u64 = BUDGET * MIB / 2;

#[test]
fn a_crowd_that_asks_for_the_most_and_reads_nothing_stays_within_the_nodes_budget() {
    let _alone = alone();
    let server = Server::with(&json!({"node": {"buffer_max_size": BUDGET * MIB}}));
    fill(&server, "big:a");
    let crowd_size = size(15_000, 19_000);
    let question = text(r#"{"id":2,"history":{"channel":"big:a","limit":300}}"#);
    let mut watch = Watch::begin("a crowd that asks for 6 MB each and reads nothing", &server);
    let opening = [handshake("").as_bytes(), &text(r#"{"id":1,"connect":{}}"#), &question].concat();
    let mut crowd = Vec::new();
    while let Some(mut socket) = http::try_narrow_socket(server.address).ok().filter(|_| crowd.len() < crowd_size) {
        let _ = socket.write_all(&opening);
        crowd.push(socket);
    }
    pause(FLOOD);
    let refused = crowd.iter().filter(|socket| !is_upgraded(socket)).count();
    watch.told(format!("{refused} of {crowd_size} not let in"));
    watch.end(BUDGET * MIB + UNSEEN + crowd_size as u64 * EACH + SLACK);
}

#[test]
fn a_crowd_that_never_reads_what_is_published_is_ended_one_by_one() {
    let _alone = alone();
    let server = Server::with(&with_namespace(&json!({"name": "loud"})));
    let crowd = crowd(server.address, 1_000, &text(r#"{"id":2,"subscribe":{"channel":"loud:a"}}"#), r#""id":2"#);
    let mut watch = Watch::begin("1,000 subscribers that never read", &server);
    let mut http = http(server.address);
    let data = json!("x".repeat(20_000));
    for _ in 0..400 {
        http.publish("loud:a", &data);
    }
    let ended = touchline_testkit::comes(PATIENCE, || http.metric("touchline_connections") < 10);
    watch.told(if ended { "all ended" } else { "not all ended" });
    watch.end(16 * MIB + SLACK);
    assert!(ended, "slow clients are ended");
    drop(crowd);
}

#[test]
fn a_slow_subscriber_is_ended_with_its_code() {
    let _alone = alone();
    let server = Server::start();
    let mut attacker = WebSocket::connected(server.address);
    attacker.must(json!({"id": 2, "subscribe": {"channel": "loud"}}));
    let mut watch = Watch::begin("a subscriber that stops to read", &server);
    let mut http = http(server.address);
    for _ in 0..1_000 {
        http.publish("loud", &json!("x".repeat(20_000)));
    }
    let told = attacker.end(PATIENCE);
    watch.told(format!("{told:?}"));
    watch.end(4 * MIB + SLACK);
    assert_eq!(told, Told::Closed(3008));
}
