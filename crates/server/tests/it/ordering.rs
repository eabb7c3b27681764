//! No publication is missing, doubled or out of order while many threads publish and thousands of clients subscribe,
//! recover, leave and return.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use serde_json::{Value, json};
use touchline_testkit::until;
use touchline_testkit::websocket::{frame, handshake};

use crate::support::{KEY, TestServer};

const CLIENTS: usize = 2_000;
const DRIVERS: usize = 4;
const PUBLISHERS: usize = 6;
const PUBLISHING: Duration = Duration::from_secs(6);

/// One client: it follows one channel, and now and then leaves and comes back.
struct Client {
    socket: mio::net::TcpStream,
    received: Vec<u8>,
    channel: usize,
    /// How many channels there are.
    channels: usize,
    /// The position of the client in the channel; None before its first subscribe was answered.
    position: Option<(String, u64)>,
    stage: Stage,
    next_id: u64,
    random: u64,
    /// How many publications it receives before its next action.
    patience: u64,
}

#[derive(PartialEq, Debug)]
enum Stage {
    Handshake,
    Subscribing(u64),
    Following,
    Leaving(u64),
}

/// What all drivers count.
#[derive(Debug, Default)]
struct Totals {
    live: AtomicU64,
    recovered: AtomicU64,
    resubscribed: AtomicU64,
    reconnected: AtomicU64,
}

impl Totals {
    fn are_enough(&self) -> bool {
        let Totals { live, recovered, resubscribed, reconnected } = self;
        live.load(Relaxed) > 10_000
            && [recovered, resubscribed, reconnected].iter().all(|count| count.load(Relaxed) > 100)
    }
}

impl Client {
    fn open(address: SocketAddr, number: usize, channels: usize) -> Self {
        let mut client = Client {
            socket: dial(address),
            received: Vec::new(),
            channel: number % channels,
            channels,
            position: None,
            stage: Stage::Handshake,
            next_id: 1,
            random: number as u64 * 2 + 1,
            patience: 0,
        };
        client.begin();
        client
    }

    fn begin(&mut self) {
        self.received.clear();
        self.stage = Stage::Handshake;
        self.write(handshake("").as_bytes());
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"id": id, "connect": {}}));
        self.subscribe();
    }

    fn write(&mut self, bytes: &[u8]) {
        // They are small writes into an empty socket, so they fit.
        self.socket.write_all(bytes).expect("the server reads");
    }

    fn send(&mut self, command: &Value) {
        self.write(&frame(0x81, command.to_string().as_bytes()));
    }

    fn subscribe(&mut self) {
        self.next_id += 1;
        let id = self.next_id;
        let mut request = json!({"channel": format!("history:c{}", self.channel)});
        if let Some((epoch, offset)) = &self.position {
            request["recover"] = json!(true);
            request["epoch"] = json!(epoch);
            request["offset"] = json!(offset);
        }
        self.send(&json!({"id": id, "subscribe": request}));
        if self.stage != Stage::Handshake {
            self.stage = Stage::Subscribing(id);
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // Channels with many subscribers see more publications.
        self.patience = 1 + self.random % (800 / self.channels as u64);
    }

    /// Reads the available input and checks every message. False when the connection has ended.
    fn read(&mut self, totals: &Totals) -> bool {
        let mut buffer = [0; 65_536];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        if self.stage == Stage::Handshake {
            let Some(end) = self.received.windows(4).position(|w| w == b"\r\n\r\n") else { return true };
            self.received.drain(..end + 4);
            self.stage = Stage::Subscribing(self.next_id);
        }
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        while let Some((payload, after)) = next_frame(rest) {
            rest = after;
            for line in payload.split(|b| *b == b'\n') {
                self.hear(&serde_json::from_slice(line).expect("messages are JSON"), totals);
            }
        }
        self.received = rest.to_vec();
        true
    }

    fn hear(&mut self, message: &Value, totals: &Totals) {
        assert!(message["error"].is_null(), "{message}");
        let publication = &message["push"]["pub"];
        if !publication.is_null() {
            if self.stage == Stage::Following {
                self.follow(publication);
                totals.live.fetch_add(1, Relaxed);
            } else {
                // It may arrive between the unsubscribe and its reply; the test does not rely on it.
                assert!(matches!(self.stage, Stage::Leaving(_)), "{:?} {message}", self.stage);
            }
        } else if message["subscribe"].is_object() {
            self.subscribed(&message["subscribe"], totals);
        } else if message["unsubscribe"].is_object() {
            assert!(matches!(self.stage, Stage::Leaving(id) if message["id"] == id));
            totals.resubscribed.fetch_add(1, Relaxed);
            self.subscribe();
        }
    }

    fn subscribed(&mut self, result: &Value, totals: &Totals) {
        self.stage = Stage::Following;
        let epoch = result["epoch"].as_str().expect("a position has an epoch").to_owned();
        if self.position.is_none() {
            self.position = Some((epoch, result["offset"].as_u64().unwrap_or(0)));
            return;
        }
        assert_eq!((&result["was_recovering"], &result["recovered"]), (&json!(true), &json!(true)), "{result}");
        for publication in result["publications"].as_array().into_iter().flatten() {
            self.follow(publication);
            totals.recovered.fetch_add(1, Relaxed);
        }
    }

    /// The main check: each publication must directly follow the last one.
    fn follow(&mut self, publication: &Value) {
        let (_, position) = self.position.as_mut().expect("a follower has a position");
        assert_eq!(publication["offset"], json!(*position + 1), "channel {}", self.channel);
        *position += 1;
        self.patience = self.patience.saturating_sub(1);
    }
}

fn dial(address: SocketAddr) -> mio::net::TcpStream {
    let socket = TcpStream::connect(address).expect("the server listens");
    socket.set_nodelay(true).expect("sockets have this option");
    socket.set_nonblocking(true).expect("sockets have this option");
    mio::net::TcpStream::from_std(socket)
}

fn next_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, head) = match *bytes.get(1)? {
        126 => (usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
        short => (usize::from(short), 2),
    };
    assert_eq!(bytes[0], 0x81, "only text is expected");
    let payload = bytes.get(head..head + length)?;
    Some((payload, &bytes[head + length..]))
}

/// Drives some clients until the publishers have ended and every client has reached the top of its channel.
fn drive(address: SocketAddr, first: usize, totals: &Totals, is_published: &AtomicBool, tops: &[AtomicU64]) {
    let mut poll = Poll::new().expect("the system has pollers");
    let mut events = Events::with_capacity(1_024);
    let mut clients: Vec<Client> =
        (first..CLIENTS).step_by(DRIVERS).map(|number| Client::open(address, number, tops.len())).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        poll.registry().register(&mut client.socket, Token(index), Interest::READABLE).expect("a socket registers");
    }
    let end = Instant::now() + PUBLISHING * 20;
    loop {
        poll.poll(&mut events, Some(Duration::from_millis(50))).expect("polling works");
        for event in &events {
            let client = &mut clients[event.token().0];
            assert!(client.read(totals), "the server ended a connection");
            let is_over = is_published.load(Relaxed);
            if client.stage == Stage::Following && client.patience == 0 && !is_over {
                if client.random.is_multiple_of(3) {
                    client.socket = dial(address);
                    poll.registry()
                        .register(&mut client.socket, event.token(), Interest::READABLE)
                        .expect("a socket registers");
                    totals.reconnected.fetch_add(1, Relaxed);
                    client.begin();
                } else {
                    client.next_id += 1;
                    let id = client.next_id;
                    client.stage = Stage::Leaving(id);
                    client.send(&json!({"id": id, "unsubscribe": {"channel": format!("history:c{}", client.channel)}}));
                }
            }
        }
        let stands_at_top = |client: &Client| {
            let top = tops[client.channel].load(Relaxed);
            client.stage == Stage::Following && client.position.as_ref().is_some_and(|(_, offset)| *offset == top)
        };
        if is_published.load(Relaxed) && clients.iter().all(stands_at_top) {
            return;
        }
        assert!(
            Instant::now() < end,
            "clients are behind: {:?}",
            clients.iter().filter(|c| !stands_at_top(c)).map(|c| (&c.stage, &c.position)).next()
        );
    }
}

/// Publishes over one connection, with a pause after each answer; notes the highest offset of each channel.
fn publish(address: SocketAddr, number: usize, pause: Duration, tops: &[AtomicU64], is_over: &AtomicBool) {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket.set_nodelay(true).expect("sockets have this option");
    let mut buffer = [0; 4_096];
    let mut round = number;
    while !is_over.load(Relaxed) {
        round += 1;
        let channel = round % tops.len();
        let body =
            json!({"channel": format!("history:c{channel}"), "data": {"from": number, "round": round}}).to_string();
        let length = body.len();
        let request = format!(
            "POST /api/publish HTTP/1.1\r\nHost: t\r\nX-API-Key: {KEY}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).expect("the server reads");
        let length = socket.read(&mut buffer).expect("the server answers");
        let text = std::str::from_utf8(&buffer[..length]).expect("replies are text");
        let reply: Value =
            serde_json::from_str(text.split_once("\r\n\r\n").expect("replies are whole").1).expect("replies are JSON");
        tops[channel].fetch_max(reply["result"]["offset"].as_u64().expect("a publish is acknowledged"), Relaxed);
        // waits: the publishers publish at a rate that all clients can read.
        std::thread::sleep(pause);
    }
}

#[test]
fn every_client_sees_every_publication_once_and_in_order() {
    follow_all(4, Duration::from_millis(8));
}

/// Shards run each other inline for channels with few subscribers.
#[test]
fn so_does_every_client_of_many_small_channels() {
    follow_all(250, Duration::from_millis(1));
}

fn follow_all(channels: usize, pause: Duration) {
    let server = TestServer::with(|settings| {
        settings.node.shards = 4;
        settings.client.recovery_max_publication_limit = 1_000;
    });
    let address = server.address;
    let totals = Totals::default();
    let tops: Vec<AtomicU64> = (0..channels).map(|_| AtomicU64::new(0)).collect();
    let (is_over, is_published) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|number| {
                scope.spawn({
                    let (tops, is_over) = (&tops, &is_over);
                    move || publish(address, number, pause, tops, is_over)
                })
            })
            .collect();
        for driver in 0..DRIVERS {
            let (totals, is_published, tops) = (&totals, &is_published, &tops);
            scope.spawn(move || drive(address, driver, totals, is_published, tops));
        }
        let began = Instant::now();
        until("enough has happened", || began.elapsed() > PUBLISHING && totals.are_enough());
        is_over.store(true, Relaxed);
        for publisher in publishers {
            publisher.join().expect("publishers don't panic");
        }
        is_published.store(true, Relaxed);
    });
    assert!(totals.are_enough(), "the test must have done what it says: {totals:?}");
    drop(server);
}
