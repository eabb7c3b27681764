//! A separate NATS server for a test.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::folder::Folder;
use crate::http::with_patience;
use crate::ports::free_port;
use crate::process::TestProgram;
use crate::wait::until;

/// The configuration of JetStream. `$STORE` is replaced by a directory of the test.
pub const JETSTREAM: &str = "jetstream { store_dir: \"$STORE\" }";

/// A server with its data and its port. It ends when the value is dropped.
#[derive(Debug)]
pub struct NatsServer {
    program: Option<TestProgram>,
    /// The port of clients. It stays the same when the server starts again.
    pub port: u16,
    folder: Folder,
    configuration: String,
}

impl NatsServer {
    /// Starts a server with more lines in its configuration, in which `$STORE` is a directory of the test. If they
    /// contain `jetstream`, the function waits until JetStream serves requests. In a group of servers, JetStream serves
    /// requests when the group has formed.
    #[track_caller]
    pub fn start(configuration: &str) -> Self {
        let folder = Folder::new("nats");
        let mut server =
            NatsServer { program: None, port: free_port(), folder, configuration: configuration.to_owned() };
        server.again();
        server
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts the server, for the first time or again.
    #[track_caller]
    pub fn again(&mut self) {
        let more = self.configuration.replace("$STORE", &self.folder.file("data").display().to_string());
        let file = self.folder.write("nats.conf", format!("listen: \"127.0.0.1:{}\"\n{more}\n", self.port));
        let mut command = Command::new(std::env::var("NATS_SERVER_BIN").unwrap_or_else(|_| "nats-server".to_owned()));
        // Debian installs it in a directory that is not always in the PATH.
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        self.program = Some(TestProgram::start(command.arg("--config").arg(file)));
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        until("nats-server listens", || TcpStream::connect(address).is_ok());
        if self.configuration.contains("jetstream") && !self.configuration.contains("authorization") {
            until("JetStream serves requests", || is_jetstream_ready(address).unwrap_or(false));
        }
    }

    /// Starts the server again with another configuration.
    #[track_caller]
    pub fn again_with(&mut self, configuration: &str) {
        self.stop();
        configuration.clone_into(&mut self.configuration);
        self.again();
    }

    /// Stops the process, or lets it continue. Its connections stay open.
    pub fn stand_still(&self, is_still: bool) {
        self.program.as_ref().expect("the server runs").signal(if is_still { "STOP" } else { "CONT" });
    }

    /// Kills the server.
    pub fn stop(&mut self) {
        self.program = None;
    }
}

/// Whether a server replies to a request of JetStream without an error.
fn is_jetstream_ready(address: SocketAddr) -> std::io::Result<bool> {
    let mut socket = TcpStream::connect(address)?;
    with_patience(&socket)?;
    // A group without a leader does not reply.
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.write_all(b"CONNECT {\"verbose\":false}\r\nSUB reply 1\r\nPUB $JS.API.INFO reply 0\r\n\r\n")?;
    let (mut heard, mut some) = (Vec::new(), [0; 4096]);
    loop {
        let length = socket.read(&mut some)?;
        heard.extend_from_slice(&some[..length]);
        let text = String::from_utf8_lossy(&heard);
        if length == 0 || text.contains("-ERR") || text.contains("\"error\"") {
            return Ok(false);
        }
        if text.contains("account_info_response") {
            return Ok(true);
        }
    }
}
