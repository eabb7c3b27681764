//! A node of the cluster that is restarted: a process of one touchline program or another, with one configuration.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::guard;
use crate::nats::Nats;
use crate::process::ChildProcess;
use crate::publisher::PublishClient;
use crate::server_under_test::HISTORY;

/// Maximum time until a node is ready.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time until a node has ended: `shutdown.timeout` (30 s), and the time to close its databases.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time of a probe.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// The last octet of the first node's address. Clients on this machine do not use ports of these addresses by chance.
const FIRST_ADDRESS: u8 = 11;
/// Bytes of the log that an error shows.
const SHOWN: usize = 2_000;

/// A node, and the data to start it again.
pub(super) struct DeployNode {
    pub(super) address: SocketAddr,
    pub(super) api: PublishClient,
    configuration: TemporaryFile,
    log: TemporaryFile,
    process: Option<ChildProcess>,
}

/// A file that is removed when this is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, address: SocketAddr) -> Self {
        let name = format!("touchline-lab-{}-{}-{}.{name}", std::process::id(), address.ip(), address.port());
        let path = std::env::temp_dir().join(name);
        guard::remove_with_lab(&path);
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl DeployNode {
    /// The node with this number; it does not run yet.
    ///
    /// # Errors
    /// When its configuration can't be written, or there is no port for it.
    pub(super) fn new(number: u8, nats: &Nats) -> Result<Self> {
        let ip = Ipv4Addr::new(127, 0, 0, FIRST_ADDRESS + number);
        let address = TcpListener::bind((ip, 0))?.local_addr()?;
        let configuration = TemporaryFile::new("json", address);
        std::fs::write(&configuration.0, configured(address, nats).to_string())
            .context("failed to write a node's configuration")?;
        let api = PublishClient { address, key: "lab".to_owned(), is_tls: false };
        Ok(DeployNode { address, api, configuration, log: TemporaryFile::new("log", address), process: None })
    }

    /// Starts the node with a program, and waits until it is ready.
    ///
    /// # Errors
    /// When it ends at once, or is not ready in time.
    pub(super) fn start(&mut self, program: &Path, shards: Option<u16>) -> Result<()> {
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(&self.configuration.0);
        if let Some(shards) = shards {
            command.args(["--shards", &shards.to_string()]);
        }
        let log = std::fs::File::create(&self.log.0).context("failed to make a node's log")?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.with_context(|| format!("failed to start {}", program.display()))?;
        let mut process = ChildProcess::of(child, &format!("the node at {}", self.address));
        let began = Instant::now();
        while !self.is_ready() {
            if let Some(status) = process.0.try_wait()? {
                bail!("the node at {} ended at once: {status}\n{}", self.address, self.end_of_log());
            }
            if began.elapsed() > START_PATIENCE {
                bail!("the node at {} is not ready after {START_PATIENCE:?}\n{}", self.address, self.end_of_log());
            }
            std::thread::sleep(PAUSE);
        }
        self.process = Some(process);
        Ok(())
    }

    /// Tells the node to stop: SIGTERM.
    ///
    /// # Errors
    /// When it does not run.
    pub(super) fn terminate(&self) -> Result<()> {
        self.process.as_ref().context("the node does not run")?.terminate()
    }

    /// Waits until the node has stopped.
    ///
    /// # Errors
    /// When it does not stop in time, or ends with a failure.
    pub(super) fn wait_for_end(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the node does not run")?;
        let status = process.wait_for_end(END_PATIENCE)?;
        if !status.success() {
            bail!("the node at {} stopped with a failure: {status}\n{}", self.address, self.end_of_log());
        }
        Ok(())
    }

    /// The metrics of the node, in Prometheus' text format. None = it does not answer.
    pub(super) fn metrics(&self) -> Option<String> {
        get(self.address, "/metrics").ok().filter(|(status, _)| *status == 200).map(|(_, body)| body)
    }

    /// The log of the node since its start.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log.0).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        get(self.address, "/health").is_ok_and(|(status, _)| status == 200)
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        log.get(log.len().saturating_sub(SHOWN)..).unwrap_or(&log).to_owned()
    }
}

/// Requests a page on a new connection. Returns the status and the body.
fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PROBE_PATIENCE))?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
    let status = head.split_ascii_whitespace().nth(1).and_then(|status| status.parse().ok());
    Ok((status.context("an answer has a status")?, body.to_owned()))
}

/// The configuration of a node: every key exists in each program that the scenario can begin with. How the node stops
/// is left as it is by default.
fn configured(address: SocketAddr, nats: &Nats) -> serde_json::Value {
    let namespace = HISTORY.split(':').next();
    json!({
        "http_server": {"address": address.ip(), "port": address.port()},
        "http_api": {"key": "lab"},
        "health": {"enabled": true},
        "prometheus": {"enabled": true},
        "client": {
            "allow_anonymous_connect_without_token": true,
            "allowed_origins": ["*"],
            // Nodes and clients share their processors, so the load can be late, and not the other side.
            "ping_interval": "60s",
            "pong_timeout": "30s",
        },
        "channel": {"namespaces": [{
            "name": namespace,
            "history_size": 1_000,
            "history_ttl": "1h",
            "force_recovery": true,
            "allow_subscribe_for_client": true,
            "allow_subscribe_for_anonymous": true,
        }]},
        "cluster": {
            "engine": "nats",
            "name": "lab",
            "nats_url": [nats.url],
            "heartbeat_interval": "3s",
            "node_timeout": "20s",
        },
        "log": {"level": "info"},
    })
}
