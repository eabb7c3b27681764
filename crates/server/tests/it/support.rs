//! A running server, a bare HTTP call and a bare WebSocket. They share no code with the server.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Namespace, Running, Server, Settings};

pub(crate) const KEY: &str = "api-key";
pub(crate) const SECRET: &str = "token-secret";
/// No step of a test may take longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct TestServer {
    running: Option<Running>,
    pub(crate) address: SocketAddr,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }
}

pub(crate) fn open() -> ChannelOptions {
    ChannelOptions { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true, ..Default::default() }
}

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.http_server.address = "127.0.0.1".into();
    settings.http_server.port = 0;
    settings.http_api.key = KEY.into();
    settings.client.token.hmac_secret_key = SECRET.into();
    settings.client.allow_anonymous_connect_without_token = true;
    settings.health.enabled = true;
    settings.prometheus.enabled = true;
    settings.shutdown.spread = Duration::from_millis(50);
    settings.shutdown.timeout = Duration::from_secs(3);
    settings.channel.without_namespace = open();
    let history = ChannelOptions {
        history_size: 1_000,
        history_ttl: Duration::from_secs(600),
        force_recovery: true,
        allow_history_for_subscriber: true,
        allow_history_for_anonymous: true,
        allow_publish_for_subscriber: true,
        allow_publish_for_anonymous: true,
        ..open()
    };
    let room = ChannelOptions {
        presence: true,
        join_leave: true,
        force_push_join_leave: true,
        allow_presence_for_subscriber: true,
        allow_presence_for_anonymous: true,
        ..open()
    };
    for (name, options) in [("history", history), ("room", room), ("closed", ChannelOptions::default())] {
        settings.channel.namespaces.push(Namespace { name: name.into(), options });
    }
    settings
}

impl TestServer {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        Self::of(Server::bind(settings).expect("the settings are good").start().expect("the server starts"))
    }

    /// Wraps a server that was started in another way.
    pub(crate) fn of(running: Running) -> Self {
        TestServer { address: running.address(), running: Some(running) }
    }

    /// The address of the port for lines.
    pub(crate) fn lines(&self) -> SocketAddr {
        self.running.as_ref().and_then(Running::tcp_address).expect("lines are served")
    }

    /// The address of the server API over gRPC.
    pub(crate) fn grpc(&self) -> SocketAddr {
        self.running.as_ref().and_then(Running::grpc_address).expect("gRPC is served")
    }

    pub(crate) fn stop(&mut self) {
        self.running.take().expect("it stops once").stop();
    }

    /// Opens a connection to the port for lines.
    pub(crate) fn line_socket(&self) -> TcpStream {
        let address = self.running.as_ref().and_then(Running::tcp_address).expect("it serves lines");
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
        socket
    }

    pub(crate) fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
        socket.set_nodelay(true).expect("sockets have this option");
        socket
    }

    /// Sends raw bytes and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = self.socket();
        let _ = socket.write_all(bytes);
        to_the_end(&mut socket)
    }

    pub(crate) fn http(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let reply = self.raw(
            format!(
                "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\
                 {headers}Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, reply.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    pub(crate) fn api(&self, operation: &str, body: Value) -> Value {
        let (status, text) =
            self.http("POST", &format!("/api/{operation}"), &format!("X-API-Key: {KEY}\r\n"), &body.to_string());
        assert!(status == 200 || status == 503, "{operation}: {status} {text}");
        serde_json::from_str(&text).expect("replies are JSON")
    }

    pub(crate) fn publish(&self, channel: &str, data: Value) -> Value {
        self.api("publish", json!({"channel": channel, "data": data}))
    }

    /// The value of a counter or gauge of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.http("GET", "/metrics", "", "");
        let of_name = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        let values = text.lines().filter(|line| of_name(line)).filter_map(|line| line.rsplit_once(' '));
        values.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
    }

    pub(crate) fn websocket(&self) -> WebSocket {
        let mut socket = self.socket();
        socket.write_all(handshake("").as_bytes()).expect("the server listens");
        let head = head_of(&mut socket);
        assert!(head.starts_with("HTTP/1.1 101") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        WebSocket { socket, lines: Vec::new() }
    }

    /// An open session of the anonymous user.
    pub(crate) fn connected(&self) -> WebSocket {
        let mut websocket = self.websocket();
        let reply = websocket.ask(json!({"id": 1, "connect": {}}));
        assert!(reply["connect"]["client"].is_string(), "{reply}");
        websocket
    }
}

/// Fills a buffer. False = the connection has ended, properly or by a reset. If it neither ends nor continues in time,
/// that is a fault.
pub(crate) fn fill(socket: &mut impl Read, buffer: &mut [u8]) -> bool {
    match socket.read_exact(buffer) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("nothing comes, and no end: {error}")
        }
        outcome => outcome.is_ok(),
    }
}

/// Reads until the connection ends.
pub(crate) fn to_the_end(socket: &mut impl Read) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    let mut socket = BufReader::new(socket);
    while fill(&mut socket, &mut byte) {
        all.push(byte[0]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads until the input ends with `end`, or until the connection ends.
pub(crate) fn up_to(end: &str, socket: &mut impl Read) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(end.as_bytes()) && fill(socket, &mut byte) {
        all.push(byte[0]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads the head of an answer. If there is no complete head, it returns everything until the end.
pub(crate) fn head_of(socket: &mut impl Read) -> String {
    up_to("\r\n\r\n", socket)
}

pub(crate) fn handshake(extra: &str) -> String {
    format!(
        "GET /connection/websocket HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extra}\r\n"
    )
}

/// What a frame of the server says.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Text(String),
    Pong(Vec<u8>),
    Close(u16, String),
    /// The socket was closed without a close frame.
    End,
}

pub(crate) struct WebSocket {
    pub(crate) socket: TcpStream,
    lines: Vec<String>,
}

impl From<TcpStream> for WebSocket {
    /// Wraps a socket whose handshake is over.
    fn from(socket: TcpStream) -> Self {
        WebSocket { socket, lines: Vec::new() }
    }
}

/// A masked frame, with a mask of zeros.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        length @ 0..126 => out.push(0x80 | length as u8),
        length @ 126..65_536 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
    out
}

impl WebSocket {
    pub(crate) fn send(&mut self, text: &str) {
        let _ = self.socket.write_all(&frame(0x81, text.as_bytes()));
    }

    pub(crate) fn send_json(&mut self, command: Value) {
        self.send(&command.to_string());
    }

    /// Sends a close frame.
    pub(crate) fn say_goodbye(&mut self) {
        let _ = self.socket.write_all(&frame(0x88, &[]));
    }

    pub(crate) fn hear(&mut self) -> Heard {
        let mut head = [0; 2];
        if !fill(&mut self.socket, &mut head) {
            return Heard::End;
        }
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.socket.read_exact(&mut bytes).expect("frames are whole");
                u16::from_be_bytes(bytes).into()
            }
            127 => {
                let mut bytes = [0; 8];
                self.socket.read_exact(&mut bytes).expect("frames are whole");
                u64::from_be_bytes(bytes) as usize
            }
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        if !fill(&mut self.socket, &mut payload) {
            return Heard::End;
        }
        match head[0] {
            0x81 => Heard::Text(String::from_utf8(payload).expect("text is UTF-8")),
            0x8a => Heard::Pong(payload),
            0x88 if payload.len() < 2 => Heard::Close(0, String::new()),
            0x88 => {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                Heard::Close(code, String::from_utf8_lossy(&payload[2..]).into_owned())
            }
            other => panic!("unexpected frame {other:#x}"),
        }
    }

    /// The next message that is not a ping. Pings are answered.
    pub(crate) fn next(&mut self) -> Result<Value, Heard> {
        loop {
            while !self.lines.is_empty() {
                let line = self.lines.remove(0);
                if line == "{}" {
                    self.send("{}");
                    continue;
                }
                return Ok(serde_json::from_str(&line).expect("messages are JSON"));
            }
            match self.hear() {
                Heard::Text(text) => self.lines = text.lines().map(str::to_owned).collect(),
                other => return Err(other),
            }
        }
    }

    pub(crate) fn message(&mut self) -> Value {
        self.next().expect("a message comes")
    }

    /// Sends a command and returns its reply. Pushes before the reply are skipped.
    pub(crate) fn ask(&mut self, command: Value) -> Value {
        let id = command["id"].clone();
        self.send_json(command);
        loop {
            let message = self.message();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The data of the next publication. Other pushes are skipped.
    pub(crate) fn publication(&mut self) -> Value {
        loop {
            let message = self.message();
            if !message["push"]["pub"].is_null() {
                return message["push"]["pub"].clone();
            }
        }
    }

    /// Reads until the close frame.
    pub(crate) fn close(&mut self) -> Heard {
        loop {
            match self.next() {
                Ok(_) => {}
                Err(heard) => return heard,
            }
        }
    }
}

/// Waits until a condition is true.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn token(claims: Value) -> String {
    use jsonwebtoken::{EncodingKey, Header, encode};
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).expect("claims are JSON")
}
