//! A server with durable channels that can be killed, and a small HTTP client for it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::postgres::free_port;

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
const PATIENCE: Duration = Duration::from_secs(60);

/// The directory and the configuration of a server.
pub(crate) struct Home {
    pub(crate) directory: PathBuf,
    pub(crate) address: SocketAddr,
    url: String,
    nats: Option<String>,
    variables: Vec<(&'static str, PathBuf)>,
}

/// A running server process.
pub(crate) struct Server {
    child: Child,
}

impl Home {
    /// Makes a home with an empty data directory.
    pub(crate) fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("touchline-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("data")).expect("the temporary directory is writable");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let url = format!("sqlite:{}", directory.join("data/primary.db").display());
        let home = Home { directory, address, url, nats: None, variables: Vec::new() };
        home.configure(&json!({}));
        home
    }

    /// Changes options of the durable namespace.
    pub(crate) fn configure(&self, options: &Value) {
        let mut namespace = json!({
            "name": "kept", "durable": true, "history_size": 100_000, "history_ttl": "24h", "force_recovery": true,
            "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
        });
        for (key, value) in options.as_object().into_iter().flatten() {
            namespace[key] = value.clone();
        }
        let mut configuration = json!({
            "http_server": {"address": self.address.ip(), "port": self.address.port()},
            "http_api": {"key": "key"},
            "client": {
                "token": {"hmac_secret_key": "secret"},
                "allow_anonymous_connect_without_token": true,
                "recovery_max_publication_limit": 100_000,
            },
            "channel": {"namespaces": [namespace], "without_namespace": {}},
            "store": {
                "commit_queue": crate::QUEUE,
                "primary": {"url": self.url},
                "stats": {"url": format!("sqlite:{}", self.data().join("stats.db").display())},
            },
            "health": {"enabled": true},
            "log": {"level": "error"},
        });
        if let Some(nats) = &self.nats {
            configuration["cluster"] = json!({"engine": "nats", "name": "durability", "nats_url": [nats]});
        }
        fs::write(self.directory.join("config.json"), configuration.to_string()).expect("the directory is ours");
    }

    /// The directory of the database.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The same home with another database.
    pub(crate) fn on(mut self, url: String) -> Self {
        self.url = url;
        self.configure(&json!({}));
        self
    }

    /// The same home as a node of a cluster.
    pub(crate) fn joined(mut self, nats: &str) -> Self {
        self.nats = Some(nats.to_owned());
        self.configure(&json!({}));
        self
    }

    /// The same home with more variables in the server's environment.
    pub(crate) fn with(mut self, variables: impl IntoIterator<Item = (&'static str, PathBuf)>) -> Self {
        self.variables.extend(variables);
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("serve").arg("--config").arg(self.directory.join("config.json"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts the server, and waits until it serves.
    pub(crate) fn start(&self) -> Server {
        self.start_until(|health| health == "200")
    }

    /// Starts a server and waits until it listens. It need not be ready.
    pub(crate) fn start_unready(&self) -> Server {
        self.start_until(|health| !health.is_empty())
    }

    fn start_until(&self, is_there: impl Fn(&str) -> bool) -> Server {
        let mut child = self.command().stderr(Stdio::inherit()).spawn().expect("the binary runs");
        let began = Instant::now();
        while !is_there(&self.client().health()) {
            assert!(child.try_wait().is_ok_and(|status| status.is_none()), "the server ended at once");
            assert!(began.elapsed() < PATIENCE, "the server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Server { child }
    }

    /// The output of a server that cannot start.
    pub(crate) fn refusal(&self) -> String {
        let output = self.command().output().expect("the binary runs");
        assert!(!output.status.success(), "it must not start");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The output of `touchline migrate`.
    pub(crate) fn migrate(&self, action: &str) -> String {
        let output = Command::new(BINARY)
            .arg("migrate")
            .args(action.split(' '))
            .arg("--config")
            .arg(self.directory.join("config.json"))
            .output();
        let output = output.expect("the binary runs");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    pub(crate) fn client(&self) -> Client {
        Client { address: self.address, socket: None }
    }

    /// Starts a `touchline watch` that reads a channel from its beginning. Its output goes to a file.
    pub(crate) fn watch(&self, channel: &str, out: &Path) -> Server {
        let out = fs::File::create(out).expect("the directory is ours");
        let url = format!("ws://{}/connection/websocket", self.address);
        let mut command = Command::new(BINARY);
        command.args(["watch", channel, "--url", &url]).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        Server { child: command.spawn().expect("the binary runs") }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Starts a NATS server and returns its URL.
pub(crate) fn nats() -> (Server, String) {
    let port = free_port().to_string();
    let mut command = Command::new("nats-server");
    command
        .args(["--addr", "127.0.0.1", "--port", &port])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().expect("nats-server is installed (Debian package nats-server)");
    (Server { child }, format!("nats://127.0.0.1:{port}"))
}

impl Server {
    /// Kills the process, which ends as in a crash.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("the test owns it");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection to the server API. It is opened again when it breaks.
pub(crate) struct Client {
    address: SocketAddr,
    socket: Option<TcpStream>,
}

impl Client {
    /// Calls an operation. `None`: the connection broke before the answer.
    pub(crate) fn call(&mut self, method: &str, body: &Value) -> Option<Value> {
        self.answer_to(method, body).ok()
    }

    /// Calls an operation of a running server. It tries a second time if the connection breaks.
    pub(crate) fn must(&mut self, method: &str, body: &Value) -> Value {
        let answer = self.answer_to(method, body).or_else(|_| self.answer_to(method, body));
        answer.unwrap_or_else(|reason| panic!("no answer to {method}: {reason}"))
    }

    fn answer_to(&mut self, method: &str, body: &Value) -> Result<Value, String> {
        let answer = self.try_call(method, body);
        if answer.is_err() {
            self.socket = None;
        }
        answer
    }

    /// The status of `GET /health`.
    pub(crate) fn health(&self) -> String {
        let Ok(mut socket) = TcpStream::connect(self.address) else { return String::new() };
        let mut answer = String::new();
        let _ = socket.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let _ = socket.read_to_string(&mut answer);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    fn try_call(&mut self, method: &str, body: &Value) -> Result<Value, String> {
        let io = |error: std::io::Error| error.to_string();
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                let socket = TcpStream::connect(self.address).map_err(io)?;
                socket.set_nodelay(true).map_err(io)?;
                socket.set_read_timeout(Some(PATIENCE)).map_err(io)?;
                none.insert(socket)
            }
        };
        let body = body.to_string();
        let head = format!(
            "POST /api/{method} HTTP/1.1\r\nHost: a\r\nX-API-Key: key\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all((head + &body).as_bytes()).map_err(io)?;
        let (mut answer, mut some) = (Vec::new(), [0; 64 * 1024]);
        loop {
            let told = || String::from_utf8_lossy(&answer).into_owned();
            match socket.read(&mut some).map_err(io)? {
                0 => return Err(format!("closed after {:?}", told())),
                length => answer.extend_from_slice(&some[..length]),
            }
            let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let length = length.ok_or_else(|| format!("an answer without a length: {head}"))?;
            if let Some(body) = answer.get(end + 4..end + 4 + length) {
                return serde_json::from_slice(body)
                    .map_err(|error| format!("{error}: {head} {}", String::from_utf8_lossy(body)));
            }
        }
    }
}
