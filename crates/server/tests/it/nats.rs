//! A NATS server that a test runs for itself.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::postgres::free_port;
use super::support::PATIENCE;

/// A NATS server with its data and its port. It ends when it is dropped.
pub(crate) struct Nats {
    process: Option<Child>,
    pub(crate) port: u16,
    directory: PathBuf,
    has_jetstream: bool,
}

impl Nats {
    pub(crate) fn start(name: &str, has_jetstream: bool) -> Self {
        let directory = std::env::temp_dir().join(format!("touchline-bans-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let mut nats = Nats { process: None, port: free_port(), directory, has_jetstream };
        nats.again();
        nats
    }

    /// Starts the server, for the first time or again.
    pub(crate) fn again(&mut self) {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(std::env::var("NATS_SERVER_BIN").unwrap_or_else(|_| "nats-server".to_owned()));
        // Debian installs it in a directory that is not in every user's path.
        command.env("PATH", format!("{path}:/usr/sbin"));
        command.args(["--addr", "127.0.0.1", "--port", &self.port.to_string()]);
        if self.has_jetstream {
            command.arg("--jetstream").arg("--store_dir").arg(&self.directory);
        }
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.process = Some(process.expect("nats-server is installed (Debian package nats-server)"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < PATIENCE, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the process, or lets it continue. Its connections stay open.
    pub(crate) fn stand_still(&self, is_still: bool) {
        let process = self.process.as_ref().expect("it runs");
        let signal = if is_still { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the signal is sent");
    }

    /// Starts it again, with or without JetStream.
    pub(crate) fn again_with(&mut self, has_jetstream: bool) {
        self.stop();
        self.has_jetstream = has_jetstream;
        self.again();
    }

    /// Ends the server at once.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
