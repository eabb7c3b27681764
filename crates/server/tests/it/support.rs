//! A running server and its settings.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Clock, ClockHand, Namespace, Running, Server, Settings};
use touchline_testkit::http;
use touchline_testkit::websocket::WebSocket;

pub(crate) const KEY: &str = "api-key";
pub(crate) const SECRET: &str = "token-secret";

pub(crate) struct TestServer {
    running: Option<Running>,
    /// None = the server has the system's clock.
    clock: Option<ClockHand>,
    pub(crate) address: SocketAddr,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // The clock runs on, so that the server can stop.
        drop(self.clock.take());
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
    // Most tests answer no ping: a slow machine must not end their clients.
    settings.client.ping_interval = Duration::from_secs(1_800);
    settings.health.enabled = true;
    settings.prometheus.enabled = true;
    // Short: it only makes tests faster.
    settings.shutdown.spread = Duration::from_millis(50);
    // Short: clients that do not leave end with the test.
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

    /// Starts a server whose clock the test moves.
    pub(crate) fn timed(change: impl FnOnce(&mut Settings)) -> Self {
        let (mut settings, (clock, hand)) = (settings(), Clock::with_hand());
        change(&mut settings);
        let server = Server::builder(settings).clock(clock).build().expect("the settings are good");
        Self::of(server.start().expect("the server starts")).with_hand(hand)
    }

    /// Wraps a server that was started in another way.
    pub(crate) fn of(running: Running) -> Self {
        TestServer { address: running.address(), running: Some(running), clock: None }
    }

    /// Adds the hand of the server's clock.
    pub(crate) fn with_hand(mut self, hand: ClockHand) -> Self {
        self.clock = Some(hand);
        self
    }

    /// The hand of the server's clock.
    pub(crate) fn clock(&self) -> &ClockHand {
        self.clock.as_ref().expect("the server was started with a clock that is moved")
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
        http::socket(self.lines())
    }

    pub(crate) fn socket(&self) -> TcpStream {
        http::socket(self.address)
    }

    /// Sends raw bytes and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        http::raw(self.address, bytes)
    }

    pub(crate) fn http(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        http::request(self.address, method, path, headers, body)
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
        http::metric(&self.http("GET", "/metrics", "", "").1, name)
    }

    pub(crate) fn websocket(&self) -> WebSocket {
        WebSocket::open(self.address)
    }

    /// An open session of the anonymous user.
    pub(crate) fn connected(&self) -> WebSocket {
        WebSocket::connected(self.address)
    }
}

pub(crate) fn token(claims: Value) -> String {
    use jsonwebtoken::{EncodingKey, Header, encode};
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).expect("claims are JSON")
}

/// An answer of the server API with the texts of the catalogue of errors, without their details.
pub(crate) fn without_details(mut answer: Value) -> Value {
    match &mut answer {
        Value::Object(fields) => {
            let is_error = fields.contains_key("code");
            for (name, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if is_error && name == "message" => {
                        text.truncate(text.find(": ").unwrap_or(text.len()));
                    }
                    value => *value = without_details(value.take()),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_details(item.take())),
        _ => {}
    }
    answer
}
