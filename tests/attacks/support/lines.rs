//! A client of the port of lines over TCP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use touchline_testkit::http::socket;

pub(crate) struct Lines {
    pub(crate) socket: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Lines {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let socket = socket(address);
        let reader = BufReader::new(socket.try_clone().expect("there is a descriptor"));
        Lines { socket, reader }
    }

    pub(crate) fn send(&mut self, text: &str) {
        let _ = self.socket.write_all(text.as_bytes());
    }

    /// The next line. `None`: the connection has ended, or nothing arrived in time.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.reader.read_line(&mut line).ok()? > 0).then_some(line)
    }

    /// All lines until the end, or until nothing arrives for a while.
    pub(crate) fn rest(&mut self, patience: Duration) -> Vec<String> {
        let _ = self.socket.set_read_timeout(Some(patience));
        std::iter::from_fn(|| self.hear()).collect()
    }
}
