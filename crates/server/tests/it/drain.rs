//! A node that stops disconnects its clients properly, and finishes what it began.
//!
//! A request is *taken* when the server has read its head. A client can see that: the server answers `Expect:
//! 100-continue` when it begins to read the body. Until then, the server may refuse or close a connection without harm,
//! because the client can send the request elsewhere. From then on, the server must answer the request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use touchline_testkit::http::head_of;
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::websocket::{Heard, WebSocket, frame};
use touchline_testkit::{PATIENCE, until};

use crate::metrics::value;
use crate::support::{KEY, TestServer};

/// A server that may take longer to stop than any test waits: it must end by itself.
fn with_time(spread: Duration) -> TestServer {
    TestServer::with(|settings| {
        settings.shutdown.spread = spread;
        settings.shutdown.timeout = 10 * PATIENCE;
        // Short: it ends the connections that never send a head.
        settings.http_server.header_timeout = Duration::from_secs(1);
    })
}

fn begin_to_stop(mut server: TestServer) -> JoinHandle<()> {
    std::thread::spawn(move || server.stop())
}

/// Asserts that a node which has started to stop waits for its clients.
pub(crate) fn still_runs(stopping: &JoinHandle<()>) {
    // waits: several times as long as a node needs that waits for no client.
    std::thread::sleep(Duration::from_millis(500));
    assert!(!stopping.is_finished(), "the node waits for its clients");
}

fn has_stopped(stopping: JoinHandle<()>) {
    until("the node stops", || stopping.is_finished());
    stopping.join().expect("it does not panic");
}

/// Answers the server's close frame, as clients do.
fn part(client: &mut WebSocket) {
    let _ = client.socket.write_all(&frame(0x88, &1000u16.to_be_bytes()));
}

/// `drain::plan` tests how the node spreads the disconnects over time.
#[test]
fn all_clients_are_disconnected_by_a_stop() {
    let mut server = TestServer::with(|settings| settings.shutdown.spread = Duration::from_millis(400));
    let clients: Vec<_> = (0..40).map(|_| server.connected()).collect();
    let listeners: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                let heard = client.close();
                part(&mut client);
                heard
            })
        })
        .collect();
    server.stop();
    for listener in listeners {
        assert_eq!(listener.join().expect("listeners don't panic"), Heard::Close(3001, "shutdown".into()));
    }
}

/// A node of a cluster that reports this connect rate.
fn taking(nats: &NatsServer, connect_rate: usize) -> TestServer {
    let server = TestServer::with(|settings| {
        settings.cluster.engine = "nats".to_owned();
        settings.cluster.nats_url = vec![nats.url()];
        settings.shutdown.connect_rate = connect_rate;
        settings.shutdown.spread = Duration::ZERO;
        settings.shutdown.timeout = 10 * PATIENCE;
    });
    until("the node is ready", || value(&server, "touchline_ready") == 1.0);
    server
}

/// The forecast of a drain that would begin now: clients a second, and tenths of a second.
fn forecast(server: &TestServer) -> (u64, u64) {
    let tenths = (value(server, "touchline_drain_seconds") * 10.0).round() as u64;
    (value(server, "touchline_drain_clients_per_second").round() as u64, tenths)
}

#[test]
fn a_drain_goes_at_the_pace_that_the_other_nodes_can_take() {
    let nats = NatsServer::start(JETSTREAM);
    let leaving = taking(&nats, 1_000);
    let clients: Vec<_> = (0..200).map(|_| leaving.connected()).collect();
    assert_eq!(forecast(&leaving), (4_000, 1), "a node that is alone makes nobody wait");
    let takers = [taking(&nats, 120), taking(&nats, 80)];
    until("the others say what they take", || forecast(&leaving) == (200, 10));
    assert_eq!(value(&leaving, "touchline_connect_rate"), 1_000.0);
    // Two nodes that stop at the same time share the rate that is left.
    let [other, taker] = takers;
    let held = other.connected();
    let stopping = begin_to_stop(other);
    until("the other one drains", || forecast(&leaving) == (40, 50));
    let started = std::time::Instant::now();
    let leaving = begin_to_stop(leaving);
    for mut client in clients {
        assert_eq!(client.close(), Heard::Close(3001, "shutdown".into()));
        part(&mut client);
    }
    assert!(started.elapsed() >= Duration::from_secs(2), "200 clients at 80 a second, or fewer");
    drop(held);
    has_stopped(leaving);
    has_stopped(stopping);
    drop(taker);
}

#[test]
fn what_clients_cost_is_measured_and_told() {
    let server = TestServer::start();
    let default = value(&server, "touchline_connect_cost_seconds");
    assert_eq!(default, 0.000_2);
    assert!(value(&server, "touchline_connect_rate") >= 20.0);
    until("it is another number once clients have connected", || {
        let _clients: Vec<_> = (0..50).map(|_| server.connected()).collect();
        let cost = value(&server, "touchline_connect_cost_seconds");
        (0.000_02..=0.005).contains(&cost) && cost != default
    });
}

#[test]
fn a_stopped_node_listens_no_more() {
    let mut server = TestServer::start();
    let mut client = server.connected();
    server.stop();
    assert_eq!(client.close(), Heard::Close(3001, "shutdown".into()));
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens any more");
}

/// A publish request whose head the server has read, but not yet the last byte of its body.
struct Taken {
    socket: TcpStream,
    body: String,
}

impl Taken {
    /// Begins the request. None = the server has not taken it: it answered that it drains, or closed the connection
    /// before it read the head.
    fn begin(address: SocketAddr, channel: &str, data: &Value) -> Option<Taken> {
        let mut socket = TcpStream::connect(address).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
        let body = json!({"channel": channel, "data": data}).to_string();
        let head = format!(
            "POST /api/publish HTTP/1.1\r\nHost: test\r\nX-API-Key: {KEY}\r\n\
             Expect: 100-continue\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).ok()?;
        let word = head_of(&mut socket);
        if word.is_empty() || word.starts_with("HTTP/1.1 503 ") {
            return None;
        }
        assert!(word.starts_with("HTTP/1.1 100 "), "{word}");
        let _ = socket.write_all(&body.as_bytes()[..body.len() - 1]);
        Some(Taken { socket, body })
    }

    /// Sends the last byte. Returns the answer's head and body, which must be complete.
    fn finish(&mut self) -> (String, Value) {
        self.socket.write_all(&self.body.as_bytes()[self.body.len() - 1..]).expect("the server reads on");
        answer_of(&mut self.socket)
    }
}

/// Reads an answer, which must be complete. Returns its head and its body.
fn answer_of(socket: &mut TcpStream) -> (String, Value) {
    let head = head_of(socket);
    assert!(head.starts_with("HTTP/1.1 200 "), "what was taken is answered: {head:?}");
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
    let mut body = vec![0; length.expect("an answer has a length")];
    socket.read_exact(&mut body).expect("the answer comes whole");
    (head, serde_json::from_slice(&body).expect("answers are JSON"))
}

/// A connection that was answered and is kept open. Its end shows that the drain has begun.
fn kept(server: &TestServer) -> TcpStream {
    let mut socket = server.socket();
    write!(socket, "POST /api/info HTTP/1.1\r\nHost: test\r\nX-API-Key: {KEY}\r\nContent-Length: 2\r\n\r\n{{}}")
        .expect("the server reads");
    let (head, _) = answer_of(&mut socket);
    assert!(!head.to_ascii_lowercase().contains("connection: close"), "{head}");
    socket
}

/// Reads to the end. A connection that is cut instead of closed is a fault.
fn is_closed(mut socket: &TcpStream) {
    assert_eq!(socket.read(&mut [0]).expect("it is closed, not cut"), 0, "nothing follows");
}

#[test]
fn a_request_that_was_taken_is_answered_however_late_its_body_ends() {
    for clients in [0, 3] {
        let server = with_time(Duration::from_millis(100));
        let clients: Vec<_> = (0..clients).map(|_| server.connected()).collect();
        let idle = kept(&server);
        let taken: Vec<_> = (0..20)
            .map(|n| Taken::begin(server.address, "history:late", &json!(n)).expect("it is taken before the drain"))
            .collect();
        let stopping = begin_to_stop(server);
        is_closed(&idle);
        for mut client in clients {
            assert_eq!(client.close(), Heard::Close(3001, "shutdown".into()));
            part(&mut client);
        }
        still_runs(&stopping);
        let mut offsets: Vec<_> = taken
            .into_iter()
            .map(|mut taken| {
                let (head, answer) = taken.finish();
                assert!(
                    head.to_ascii_lowercase().contains("connection: close"),
                    "the client is sent elsewhere: {head}"
                );
                is_closed(&taken.socket);
                answer["result"]["offset"].as_u64().unwrap_or_else(|| panic!("it is published: {answer}"))
            })
            .collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (1..=20).collect::<Vec<_>>());
        has_stopped(stopping);
    }
}

#[test]
fn an_answer_that_is_on_its_way_arrives_whole() {
    const PUBLICATIONS: usize = 400;
    let text = "x".repeat(40_000);
    let server = with_time(Duration::from_millis(50));
    for _ in 0..PUBLICATIONS {
        server.publish("history:long", json!(text));
    }
    let idle = kept(&server);
    let mut reader = server.socket();
    let body = json!({"channel": "history:long", "limit": -1}).to_string();
    write!(
        reader,
        "POST /api/history HTTP/1.1\r\nHost: test\r\nX-API-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("the server reads");
    // The first bytes are here; the rest is more than the sockets hold.
    let mut first = [0; 1];
    assert_eq!(reader.peek(&mut first).expect("an answer begins"), 1);
    let stopping = begin_to_stop(server);
    is_closed(&idle);
    still_runs(&stopping);
    let (_, answer) = answer_of(&mut reader);
    let publications = answer["result"]["publications"].as_array().expect("a list");
    assert_eq!(publications.len(), PUBLICATIONS);
    assert!(publications.iter().all(|publication| publication["data"] == text));
    is_closed(&reader);
    drop(reader);
    has_stopped(stopping);
}

#[test]
fn a_client_that_keeps_its_idle_connection_does_not_hold_the_stop_up() {
    let server = with_time(Duration::from_millis(50));
    let idle: Vec<_> = (0..4).map(|_| kept(&server)).collect();
    // This request has begun but is not taken: its head never becomes complete.
    let half = server.socket();
    (&half).write_all(b"POST /api/publish HTTP/1.1\r\nHost: t").expect("the server listens");
    let silent = server.socket();
    has_stopped(begin_to_stop(server));
    for socket in idle.iter().chain([&silent]) {
        is_closed(socket);
    }
    drop(half);
}

#[test]
fn a_subscriber_that_is_behind_gets_all_before_its_goodbye() {
    const PUBLICATIONS: usize = 200;
    let text = "x".repeat(50_000);
    let server = TestServer::with(|settings| settings.client.queue_max_size = 100 << 20);
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
    // More data than the sockets hold, and the client does not read.
    for _ in 0..PUBLICATIONS {
        server.publish("history:a", json!(text));
    }
    let idle = kept(&server);
    let stopping = begin_to_stop(server);
    is_closed(&idle);
    // The node sends the disconnect after everything that the client has not read.
    still_runs(&stopping);
    let seen: Vec<_> = (0..PUBLICATIONS).map(|_| client.publication()).collect();
    let goodbye = client.close();
    part(&mut client);
    has_stopped(stopping);
    assert!(
        seen.iter()
            .zip(1..)
            .all(|(publication, offset)| publication["offset"] == offset && publication["data"] == text)
    );
    assert_eq!(goodbye, Heard::Close(3001, "shutdown".into()));
}

/// What a subscriber that also publishes has seen until the close frame.
#[derive(Default)]
struct Seen {
    /// The data, in the order of their offsets; the first offset is 1.
    data: Vec<String>,
    /// Its own publications that were acknowledged.
    acknowledged: Vec<String>,
}

/// Subscribes and reads until the server disconnects it. If it `publishes`, it publishes as fast as it gets answers.
fn look_on(mut client: WebSocket, name: &str, publishes: bool) -> Seen {
    let mut seen = Seen::default();
    let mut sent = 0;
    let publish = |client: &mut WebSocket, sent: &mut u64| {
        *sent += 1;
        client.send_json(
            json!({"id": 10 + *sent, "publish": {"channel": "history:a", "data": format!("{name} {sent}")}}),
        );
    };
    if publishes {
        publish(&mut client, &mut sent);
    }
    loop {
        match client.next_message() {
            Ok(message) if message["push"]["pub"].is_object() => {
                let publication = &message["push"]["pub"];
                assert_eq!(publication["offset"].as_u64(), Some(seen.data.len() as u64 + 1), "no gap and no double");
                seen.data.push(publication["data"].as_str().expect("a text").to_owned());
            }
            Ok(message) => {
                assert!(message["publish"].is_object() && message["id"] == 10 + sent, "an acknowledgement: {message}");
                seen.acknowledged.push(format!("{name} {sent}"));
                publish(&mut client, &mut sent);
            }
            Err(goodbye) => {
                assert_eq!(goodbye, Heard::Close(3001, "shutdown".into()));
                part(&mut client);
                return seen;
            }
        }
    }
}

/// Publications that were acknowledged over HTTP: offset and data.
type Acknowledged = Arc<Mutex<Vec<(u64, String)>>>;

/// Ends a request, which must be acknowledged.
fn acknowledge(mut taken: Taken, data: String, acknowledged: &Acknowledged) {
    let (_, answer) = taken.finish();
    let offset = answer["result"]["offset"].as_u64().unwrap_or_else(|| panic!("it is published: {answer}"));
    acknowledged.lock().expect("no thread panics with the lock").push((offset, data));
}

/// Publishes over HTTP until the server takes no request any more.
fn publish_on(address: SocketAddr, name: &str, acknowledged: &Acknowledged) {
    for n in 1.. {
        let data = format!("{name} {n}");
        let Some(taken) = Taken::begin(address, "history:a", &json!(data)) else { return };
        acknowledge(taken, data, acknowledged);
    }
}

fn newest(acknowledged: &Acknowledged) -> u64 {
    acknowledged
        .lock()
        .expect("no thread panics with the lock")
        .iter()
        .map(|(offset, _)| *offset)
        .max()
        .unwrap_or_default()
}

#[test]
fn what_is_acknowledged_while_the_node_drains_reaches_every_subscriber() {
    const SUBSCRIBERS: usize = 60;
    const PUBLISHING: usize = 6;
    const HELD: usize = 40;
    let server = with_time(Duration::from_millis(1_500));
    let address = server.address;
    let listeners: Vec<_> = (0..SUBSCRIBERS)
        .map(|n| {
            let mut client = server.connected();
            client.ask(json!({"id": 2, "subscribe": {"channel": "history:a"}}));
            (n, client)
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(n, client)| std::thread::spawn(move || look_on(client, &format!("client {n}"), n < PUBLISHING)))
        .collect();
    let acknowledged = Acknowledged::default();
    let publishers: Vec<_> = (0..4)
        .map(|n| {
            let acknowledged = Arc::clone(&acknowledged);
            std::thread::spawn(move || publish_on(address, &format!("backend {n}"), &acknowledged))
        })
        .collect();
    until("publications are under way", || newest(&acknowledged) > 50);
    let held: Vec<_> = (0..HELD)
        .map(|n| format!("held {n}"))
        .map(|data| (Taken::begin(address, "history:a", &json!(data)).expect("it is taken before the drain"), data))
        .collect();
    let idle = kept(&server);
    let before = newest(&acknowledged);
    let stopping = begin_to_stop(server);
    is_closed(&idle);
    for (taken, data) in held {
        acknowledge(taken, data, &acknowledged);
    }
    publishers.into_iter().for_each(|publisher| publisher.join().expect("every request that was taken is answered"));
    has_stopped(stopping);
    let seen: Vec<_> = listeners
        .into_iter()
        .map(|listener| listener.join().expect("each subscriber sees all until its goodbye"))
        .collect();

    let longest = seen.iter().map(|seen| &seen.data).max_by_key(|data| data.len()).expect("there are subscribers");
    is_delivered_in_one_order(&seen, longest, before);
    is_delivered_where_acknowledged(acknowledged, longest);
    assert!(seen.iter().take(PUBLISHING).all(|subscriber| subscriber.acknowledged.len() > 1));
}

/// Checks that each subscriber has seen a beginning of `longest`. It contains at least the `before` publications that
/// were acknowledged before the drain, and its own acknowledged ones.
fn is_delivered_in_one_order(seen: &[Seen], longest: &[String], before: u64) {
    for subscriber in seen {
        assert!(longest.starts_with(&subscriber.data), "one order for all");
        assert!(
            subscriber.data.len() as u64 >= before,
            "acknowledged before the drain: {before}, seen: {}",
            subscriber.data.len()
        );
        // An acknowledgement may cross the close frame on the wire. Only a successor that was sent after the
        // acknowledgement shows that the publication was delivered.
        let settled = subscriber.acknowledged.split_last().map_or(&[][..], |(_, settled)| settled);
        for own in settled {
            assert!(
                subscriber.data.contains(own),
                "{own} was acknowledged to a subscriber, and not delivered to it before its goodbye"
            );
        }
    }
}

/// Checks that each publication that was acknowledged over HTTP is in `longest` at its offset.
fn is_delivered_where_acknowledged(acknowledged: Acknowledged, longest: &[String]) {
    let mut acknowledged = std::mem::take(&mut *acknowledged.lock().expect("no thread panics with the lock"));
    acknowledged.sort_unstable();
    assert!(acknowledged.windows(2).all(|pair| pair[0].0 < pair[1].0), "an offset is given once");
    // Publications with later offsets were acknowledged after the last subscriber had gone.
    let delivered: Vec<_> =
        acknowledged.iter().filter_map(|(offset, data)| Some((data, longest.get(*offset as usize - 1)?))).collect();
    assert!(delivered.iter().all(|(data, seen)| data == seen), "each is delivered at the offset that was acknowledged");
    assert!(
        delivered.iter().any(|(data, _)| data.starts_with("held ")),
        "some were acknowledged and delivered while the node drained"
    );
}
