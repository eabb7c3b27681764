//! A NATS server that the lab starts.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::guard;
use crate::process::ChildProcess;

const START_PATIENCE: Duration = Duration::from_secs(10);

/// A NATS server with JetStream in a directory of its own; both are removed when this is dropped.
pub(crate) struct Nats {
    pub(crate) url: String,
    server: ChildProcess,
    _store: NatsStore,
}

struct NatsStore(PathBuf);

impl Drop for NatsStore {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Nats {
    /// Starts the `nats-server` that is on the path.
    ///
    /// # Errors
    /// When the program is not installed, or does not listen.
    pub(crate) fn start() -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let store = std::env::temp_dir().join(format!("touchline-lab-nats-{}-{port}", std::process::id()));
        let arguments = [
            "--addr".into(),
            "127.0.0.1".into(),
            "--port".into(),
            port.to_string(),
            "--jetstream".into(),
            "--store_dir".into(),
        ];
        let child =
            Command::new("nats-server").args(arguments).arg(&store).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.context("no nats-server on the path; Debian has it as the package nats-server")?;
        let mut server = ChildProcess::of(child, "nats-server");
        guard::remove_with_lab(&store);
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = server.0.try_wait()? {
                bail!("nats-server ended at once: {status}");
            }
            if began.elapsed() > START_PATIENCE {
                bail!("nats-server does not listen");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Nats { url: format!("nats://127.0.0.1:{port}"), server, _store: NatsStore(store) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }
}
