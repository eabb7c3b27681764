//! A server with durable channels that can be killed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use touchline_testkit::http::TestClient;
use touchline_testkit::ports::free_port;
use touchline_testkit::process::TestProgram;
use touchline_testkit::{Folder, until};

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");

/// The directory and the configuration of a server.
pub(crate) struct Home {
    folder: Folder,
    pub(crate) address: SocketAddr,
    url: String,
    nats: Option<String>,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Home {
    /// Makes a home with an empty data directory.
    pub(crate) fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        fs::create_dir(folder.file("data")).expect("the directory is ours");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let url = format!("sqlite:{}", folder.file("data/primary.db").display());
        let home = Home { folder, address, url, nats: None, variables: Vec::new() };
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
        self.folder.write("config.json", configuration.to_string());
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The directory of the database.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.file("data")
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
        command.arg("serve").arg("--config").arg(self.folder.file("config.json"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts the server, and waits until it serves.
    pub(crate) fn start(&self) -> TestProgram {
        self.start_until(|health| health == 200)
    }

    /// Starts a server and waits until it listens. It need not be ready.
    pub(crate) fn start_unready(&self) -> TestProgram {
        self.start_until(|health| health > 0)
    }

    fn start_until(&self, is_there: impl Fn(u16) -> bool) -> TestProgram {
        let mut server = TestProgram::start(&mut self.command());
        until("the server serves", || {
            assert!(!server.has_ended(), "the server ended: {}", server.errors.text());
            is_there(self.health())
        });
        server
    }

    /// The status of `GET /health`. It is 0 if the server does not listen.
    pub(crate) fn health(&self) -> u16 {
        self.client().request("GET", "/health", "", "").map_or(0, |(status, _)| status)
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
            .arg(self.folder.file("config.json"))
            .output();
        let output = output.expect("the binary runs");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    pub(crate) fn client(&self) -> TestClient {
        TestClient::new(self.address, "key")
    }

    /// Starts a `touchline watch` that reads a channel from its beginning.
    pub(crate) fn watch(&self, channel: &str) -> TestProgram {
        let url = format!("ws://{}/connection/websocket", self.address);
        TestProgram::start(Command::new(BINARY).args(["watch", channel, "--url", &url]))
    }
}
