//! Sequences of commands and of random bytes on every transport, made by `arbitrary`. The inputs in `corpus/` run
//! first. The watch decides whether a sequence harms the server.
//!
//! TOUCHLINE_FUZZ_SECONDS sets the duration (2 without it), TOUCHLINE_FUZZ_SEED the first seed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use serde_json::{Value, json};
use touchline_testkit::http::TestClient;
use touchline_testkit::websocket::{self, WebSocket, handshake};

use crate::support::http::{self, http};
use crate::support::protobuf;
use crate::support::server::Server;
use crate::support::token::token;
use crate::support::watch::Watch;
use crate::support::websocket::{PING, narrow};
use crate::support::{MIB, alone};

/// The number of connections from earlier sequences that stay open. The test reads some of them.
const OPEN: usize = 12;
/// The most memory of these connections: a queue and an answer of 6 MB each, and the rest of the memory in which such
/// answers were made.
const MOST: u64 = OPEN as u64 * 9 * MIB + 32 * MIB;
/// The number of random bytes from which a sequence is made.
const INPUT: usize = 400;

/// The transport of a sequence.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Way {
    WebSocket,
    Protobuf,
    Lines,
    Stream,
}

/// The channels of the test, by their options.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Channel {
    Plain(u8),
    Big(u8),
    Room(u8),
    Filtered(u8),
    Shut,
    New(u32),
    Odd,
}

#[derive(Debug, Arbitrary)]
enum Method {
    Register,
    Join,
    Send,
    Names,
    Members,
    Call,
    Count,
    None,
}

/// One action of a client.
#[derive(Debug, Arbitrary)]
enum Step {
    Connect { has_token: bool },
    Subscribe { channel: Channel, recover: bool, has_filter: bool },
    Unsubscribe { channel: Channel },
    Publish { channel: Channel, size: u16 },
    History { channel: Channel, limit: i16, reverse: bool },
    Presence { channel: Channel, is_count: bool },
    Rpc { method: Method, name: u8, size: u16 },
    Refresh,
    Empty { times: u8 },
    Fragment { is_first: bool, is_last: bool, size: u8 },
    Ping { times: u8 },
    Garbage { bytes: Vec<u8> },
    Read,
}

#[derive(Debug, Arbitrary)]
struct Sequence {
    way: Way,
    is_reading: bool,
    /// How many times the last command is sent again at the end.
    again: u8,
    steps: Vec<Step>,
}

impl Channel {
    fn name(self) -> String {
        match self {
            Channel::Plain(n) => format!("c{}", n % 4),
            Channel::Big(n) => format!("big:{}", n % 4),
            Channel::Room(n) => format!("room:{}", n % 4),
            Channel::Filtered(n) => format!("filtered:{}", n % 4),
            Channel::Shut => "shut:a".to_owned(),
            Channel::New(n) => format!("big:new{n}"),
            Channel::Odd => "$\u{0}#*".to_owned(),
        }
    }
}

impl Method {
    fn name(&self) -> &'static str {
        match self {
            Method::Register => "registry.register",
            Method::Join => "registry.join",
            Method::Send => "registry.send",
            Method::Names => "registry.names",
            Method::Members => "registry.members",
            Method::Call => "registry.call",
            Method::Count => "registry.count",
            Method::None => "none",
        }
    }
}

impl Step {
    /// The command and its field in Protobuf. `None`: the step is not a command.
    fn command(&self) -> Option<(u8, &'static str, Value)> {
        Some(match self {
            Step::Connect { has_token: true } => (4, "connect", json!({"token": token(&json!({"sub": "ann"}))})),
            Step::Connect { .. } => (4, "connect", json!({})),
            Step::Subscribe { channel, recover, has_filter } => {
                let filter =
                    if *has_filter { json!({"key": "k", "cmp": "in", "vals": ["a", "b"]}) } else { Value::Null };
                (5, "subscribe", json!({"channel": channel.name(), "recover": recover, "epoch": "e", "tf": filter}))
            }
            Step::Unsubscribe { channel } => (6, "unsubscribe", json!({"channel": channel.name()})),
            Step::Publish { channel, size } => {
                (7, "publish", json!({"channel": channel.name(), "data": "p".repeat((*size).into())}))
            }
            Step::Presence { channel, is_count: true } => (9, "presence_stats", json!({"channel": channel.name()})),
            Step::Presence { channel, .. } => (8, "presence", json!({"channel": channel.name()})),
            Step::History { channel, limit, reverse } => {
                (10, "history", json!({"channel": channel.name(), "limit": limit, "reverse": reverse}))
            }
            Step::Rpc { method, name, size } => {
                let data = json!({
                    "scope": "devices", "name": format!("n{name}"), "group": format!("g{}", name % 4),
                    "data": "d".repeat((*size).into()),
                    "meta": "m".repeat((*size % 5_000).into()), "timeout_ms": size, "limit": size,
                });
                (13, "rpc", json!({"method": method.name(), "data": data}))
            }
            Step::Refresh => (14, "refresh", json!({"token": "no.good.token"})),
            _ => return None,
        })
    }
}

/// A command in Protobuf. Only its texts and numbers are encoded.
fn protobuf(id: u32, kind: u8, request: &Value) -> Vec<u8> {
    let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    let body = match kind {
        4 => protobuf::field(1, text("token").as_bytes()),
        7 => {
            [protobuf::field(1, text("channel").as_bytes()), protobuf::field(2, request["data"].to_string().as_bytes())]
                .concat()
        }
        10 => {
            let limit = [&[2 << 3][..], &protobuf::varint(request["limit"].as_i64().unwrap_or(0) as u64)].concat();
            [protobuf::field(1, text("channel").as_bytes()), limit].concat()
        }
        13 => {
            [protobuf::field(1, request["data"].to_string().as_bytes()), protobuf::field(2, text("method").as_bytes())]
                .concat()
        }
        14 => protobuf::field(1, text("token").as_bytes()),
        _ => protobuf::field(1, text("channel").as_bytes()),
    };
    protobuf::command(id, kind, &body)
}

/// A connection that receives sequences.
struct Client {
    way: Way,
    socket: TcpStream,
    /// The session and node of a stream, and the connection for its commands.
    session: Option<(Value, Value, TestClient)>,
    is_over: bool,
}

impl Client {
    fn open(server: &Server, way: Way) -> Self {
        let (socket, session) = match way {
            Way::WebSocket => (narrow(server.address).socket, None),
            Way::Protobuf => {
                let offered = "Sec-WebSocket-Protocol: centrifuge-protobuf\r\n";
                (WebSocket::over(http::narrow_socket(server.address), offered).socket, None)
            }
            Way::Lines => (http::narrow_socket(server.lines), None),
            Way::Stream => Self::stream(server),
        };
        socket.set_write_timeout(Some(Duration::from_millis(50))).expect("sockets have timeouts");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("sockets have timeouts");
        Client { way, socket, session, is_over: false }
    }

    fn stream(server: &Server) -> (TcpStream, Option<(Value, Value, TestClient)>) {
        let mut socket = http::narrow_socket(server.address);
        let body = r#"{"id":1,"connect":{}}"#;
        let request = format!(
            "POST /connection/http_stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).expect("the server reads");
        let _head = touchline_testkit::http::head_of(&mut socket);
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\n") && socket.read_exact(&mut byte).is_ok() {
            line.push(byte[0]);
        }
        let reply: Value = serde_json::from_slice(&line).expect("the stream begins with the answer to the connect");
        assert!(reply["connect"]["session"].is_string(), "commands need a session: {reply}");
        let connect = &reply["connect"];
        (socket, Some((connect["session"].clone(), connect["node"].clone(), http(server.address))))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.is_over |= self.socket.write_all(bytes).is_err();
    }

    fn command(&mut self, id: u32, (kind, name, request): &(u8, &'static str, Value)) {
        let text = json!({"id": id, *name: request}).to_string();
        match (&mut self.session, self.way) {
            (Some((session, node, http)), _) => {
                let body = json!({"session": session, "node": node, "data": text}).to_string();
                self.is_over |= http.request("POST", "/emulation", "", &body).is_err();
            }
            (None, Way::Protobuf) => self.write(&websocket::frame(0x82, &protobuf(id, *kind, request))),
            (None, Way::Lines) => self.write((text + "\n").as_bytes()),
            (None, _) => self.write(&websocket::text(&text)),
        }
    }

    /// Sends a frame that is not a command.
    fn other(&mut self, step: &Step) {
        let is_framed = matches!(self.way, Way::WebSocket | Way::Protobuf);
        match step {
            Step::Empty { times } if is_framed => self.write(&websocket::text("{}").repeat((*times).into())),
            Step::Empty { times } => self.write(&b"\r\n".repeat((*times).into())),
            Step::Fragment { is_first, is_last, size } if is_framed => {
                let first = u8::from(*is_first) | if *is_last { 0x80 } else { 0 };
                self.write(&websocket::frame(first, &vec![b' '; (*size).into()]));
            }
            Step::Ping { times } if is_framed => self.write(&PING.repeat((*times).into())),
            Step::Garbage { bytes } => self.write(bytes),
            Step::Read => self.read(),
            _ => {}
        }
    }

    /// Reads the bytes that have arrived.
    fn read(&mut self) {
        let mut some = [0; 64 * 1024];
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            match self.socket.read(&mut some) {
                Ok(0) => return self.is_over = true,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn run(&mut self, sequence: &Sequence) {
        let mut last = None;
        for (id, step) in (2..).zip(&sequence.steps) {
            match step.command() {
                Some(command) => {
                    self.command(id, &command);
                    last = Some(command);
                }
                None => self.other(step),
            }
            if sequence.is_reading {
                self.read();
            }
            if self.is_over {
                return;
            }
        }
        let again = if self.session.is_some() { sequence.again / 16 } else { sequence.again };
        for id in 0..again.into() {
            if let Some(command) = last.as_ref().filter(|_| !self.is_over) {
                self.command(1_000 + id, command);
            }
        }
    }
}

/// Random bytes of this length, made from a seed.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

#[test]
fn sequences_of_commands_cost_nobody_else_anything() {
    let _alone = alone();
    let server = Server::start();
    let variable = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let lasting = Duration::from_secs(variable("TOUCHLINE_FUZZ_SECONDS").unwrap_or(2));
    let first = variable("TOUCHLINE_FUZZ_SEED").unwrap_or(0x0061_7474_6163_6b73);
    let mut filling = http(server.address);
    for number in 0..100 {
        filling.publish(&format!("big:{}", number % 4), &json!("x".repeat(10_000)));
    }
    let mut watch = Watch::begin("sequences of commands", &server);
    let before = server.memory();
    let (began, mut cases, mut open) = (Instant::now(), 0, std::collections::VecDeque::new());
    while cases == 0 || began.elapsed() < lasting {
        let seed = first.wrapping_add(cases);
        let input = bytes(seed, INPUT);
        let sequence = Sequence::arbitrary(&mut Unstructured::new(&input)).expect("any bytes are a sequence");
        let mut client = Client::open(&server, sequence.way);
        // Most sequences begin with a connect, as a client does. The rest is random.
        if seed % 8 != 0 && client.session.is_none() {
            client.command(1, &(4, "connect", json!({})));
        }
        client.run(&sequence);
        open.push_back(client);
        if open.len() > OPEN {
            open.pop_front();
        }
        let growth = server.memory().saturating_sub(before);
        assert!(
            growth < MOST,
            "+{growth} bytes after {sequence:?}: run on with TOUCHLINE_FUZZ_SEED={}",
            seed.saturating_sub(OPEN as u64)
        );
        cases += 1;
    }
    watch.told(format!("{cases} sequences from seed {first}"));
    watch.end(MOST);
}

/// The files below a directory of the corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attacks/corpus").join(name);
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).expect("the corpus is there").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("it is a file")).collect()
}

#[test]
fn the_corpus_costs_nobody_else_anything() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("the corpus", &server);
    let mut open = Vec::new();
    let mut send = |mut socket: TcpStream, input: &[u8]| {
        let _ = socket.set_write_timeout(Some(Duration::from_millis(200)));
        let _ = socket.write_all(input);
        let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
        let mut some = [0; 64 * 1024];
        while socket.read(&mut some).is_ok_and(|length| length > 0) {}
        open.push(socket);
    };
    for input in corpus("websocket") {
        send(WebSocket::open(server.address).socket, &input);
        send(WebSocket::connected(server.address).socket, &input);
    }
    for input in corpus("message") {
        let line = [&input[..], b"\n"].concat();
        send(WebSocket::connected(server.address).socket, &websocket::frame(0x81, &input));
        let offered = touchline_testkit::http::socket(server.address);
        offered.set_nodelay(true).expect("sockets have this option");
        let client = WebSocket::over(offered, "Sec-WebSocket-Protocol: centrifuge-protobuf\r\n");
        send(
            client.socket,
            &[websocket::frame(0x82, &protobuf(1, 4, &json!({}))), websocket::frame(0x82, &input)].concat(),
        );
        send(touchline_testkit::http::socket(server.lines), &[b"{\"id\":1,\"connect\":{}}\n", &line[..]].concat());
        send(touchline_testkit::http::socket(server.lines), &line);
    }
    corpus("lines").iter().for_each(|input| send(touchline_testkit::http::socket(server.lines), input));
    for input in corpus("http").iter().chain(&corpus("two")) {
        send(touchline_testkit::http::socket(server.address), input);
        send(touchline_testkit::http::socket(server.address), &[input, handshake("").as_bytes()].concat());
    }
    watch.told(format!("{} inputs", open.len()));
    watch.end(16 * MIB);
}
