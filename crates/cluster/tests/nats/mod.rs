//! A separate NATS server for a test, and nodes that join it.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use touchline_cluster::{Cluster, ClusterEvent, JoinOptions, StreamSettings, join};
use touchline_config::ClusterSettings;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A separate NATS server. It ends when the value is dropped.
pub(crate) struct Nats {
    process: Child,
    pub(crate) port: u16,
    directory: PathBuf,
}

impl Nats {
    pub(crate) fn start(name: &str, more: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free").port();
        let directory = std::env::temp_dir().join(format!("touchline-cluster-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let file = directory.join("nats.conf");
        let store = directory.join("data");
        let more = more.replace("$STORE", &store.display().to_string());
        std::fs::write(&file, format!("listen: \"127.0.0.1:{port}\"\n{more}")).expect("the directory is ours");
        let binary = std::env::var("NATS_SERVER_BIN").unwrap_or_else(|_| "nats-server".to_owned());
        let mut command = Command::new(binary);
        // Debian installs it in a directory that is not always in the PATH.
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        let process = command.arg("--config").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let nats = Nats { process: process.expect("nats-server is installed"), port, directory };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < TIMEOUT, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        nats
    }

    pub(crate) fn options(&self, name: &str) -> JoinOptions {
        JoinOptions {
            cluster: ClusterSettings {
                nats_url: vec![format!("nats://127.0.0.1:{}", self.port)],
                name: name.to_owned(),
                heartbeat_interval: Duration::from_millis(100),
                node_timeout: Duration::from_secs(5),
                suspect_grace: Duration::from_secs(1),
                ..ClusterSettings::default()
            },
            node: format!("node-{name}"),
            streams: vec![StreamSettings { namespace: String::new(), size: 100, ttl: Duration::from_secs(600) }],
            check_delay: Duration::from_secs(1),
            ..JoinOptions::default()
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Joins the cluster, and returns the receiver of its events.
pub(crate) fn start(options: JoinOptions) -> (Cluster, Receiver<ClusterEvent>) {
    let (cluster, joining) = join(options).expect("the settings are good");
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let sink = move |event| {
        let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(event);
    };
    joining.start(sink).expect("the thread starts");
    (cluster, events)
}
