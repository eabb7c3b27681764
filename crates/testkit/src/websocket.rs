//! A WebSocket by hand (RFC 6455), whose masks are all zeros, and sessions in JSON over it.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::http;
use crate::wait::PATIENCE;

/// The answer of a server to the key of [`handshake`].
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A frame from the server, or the reason why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// A close frame: its code (1005 if it has none), and its reason.
    Close(u16, String),
    /// The connection has ended without a close frame.
    End,
    /// Nothing arrived within the timeout of the socket.
    Silence,
}

/// A client over a WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    /// The connection after its handshake.
    pub socket: TcpStream,
    lines: VecDeque<String>,
}

impl From<TcpStream> for WebSocket {
    /// Wraps a socket whose handshake is over.
    fn from(socket: TcpStream) -> Self {
        WebSocket { socket, lines: VecDeque::new() }
    }
}

/// The request of a handshake, with more header fields. `extra` ends with a line feed.
pub fn handshake(extra: &str) -> String {
    format!(
        "GET /connection/websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extra}\r\n"
    )
}

/// A masked frame. `first` is its first byte: the final bit and the opcode.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
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

/// A masked text frame.
pub fn text(text: &str) -> Vec<u8> {
    frame(0x81, text.as_bytes())
}

impl WebSocket {
    /// Opens a WebSocket that has sent only its handshake.
    #[track_caller]
    pub fn open(address: SocketAddr) -> Self {
        Self::over(http::socket(address), "")
    }

    /// Makes the handshake on a socket, with more header fields.
    #[track_caller]
    pub fn over(mut socket: TcpStream, extra: &str) -> Self {
        socket.write_all(handshake(extra).as_bytes()).expect("the server reads");
        let head = http::head_of(&mut socket);
        assert!(head.starts_with("HTTP/1.1 101") && head.contains(ACCEPT), "{head}");
        socket.into()
    }

    /// Opens a session of the anonymous user.
    #[track_caller]
    pub fn connected(address: SocketAddr) -> Self {
        let mut websocket = Self::open(address);
        websocket.must(json!({"id": 1, "connect": {}}));
        websocket
    }

    /// Sends bytes as they are. If the connection has ended, the next read shows it.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Sends a text message.
    pub fn send(&mut self, message: &str) {
        self.send_bytes(&text(message));
    }

    /// Sends a command in JSON.
    pub fn send_json(&mut self, command: impl Borrow<Value>) {
        self.send(&command.borrow().to_string());
    }

    /// Sends a close frame.
    pub fn send_close(&mut self) {
        self.send_bytes(&frame(0x88, &[]));
    }

    /// Whether bytes or the end arrive within some time.
    pub fn has_more(&mut self, within: Duration) -> bool {
        let _ = self.socket.set_read_timeout(Some(within));
        let is_there = !self.lines.is_empty() || self.socket.peek(&mut [0]).is_ok();
        let _ = self.socket.set_read_timeout(Some(PATIENCE));
        is_there
    }

    /// Whether bytes or the end have arrived.
    pub fn is_readable(&self) -> bool {
        self.socket.set_nonblocking(true).expect("sockets have this option");
        let is_readable = self.socket.peek(&mut [0]).is_ok();
        self.socket.set_nonblocking(false).expect("sockets have this option");
        is_readable
    }

    /// The next frame.
    #[track_caller]
    pub fn hear(&mut self) -> Heard {
        self.try_hear().unwrap_or_else(|error| if http::is_silence(&error) { Heard::Silence } else { Heard::End })
    }

    #[track_caller]
    fn try_hear(&mut self) -> std::io::Result<Heard> {
        let mut head = [0; 2];
        self.socket.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.socket.read_exact(&mut bytes)?;
                u16::from_be_bytes(bytes).into()
            }
            127 => {
                let mut bytes = [0; 8];
                self.socket.read_exact(&mut bytes)?;
                u64::from_be_bytes(bytes) as usize
            }
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload)?;
        Ok(match head[0] {
            0x81 => Heard::Text(String::from_utf8(payload).expect("text is UTF-8")),
            0x82 => Heard::Binary(payload),
            0x8a => Heard::Pong(payload),
            0x88 if payload.len() < 2 => Heard::Close(1005, String::new()),
            0x88 => {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                Heard::Close(code, String::from_utf8_lossy(&payload[2..]).into_owned())
            }
            other => panic!("unexpected frame {other:#x}"),
        })
    }

    /// The next message that is not a ping. Pings are answered, and pongs are skipped.
    ///
    /// # Errors
    /// What came instead of a message, or why nothing came.
    #[track_caller]
    pub fn next_message(&mut self) -> Result<Value, Heard> {
        loop {
            while let Some(line) = self.lines.pop_front() {
                if line == "{}" {
                    self.send("{}");
                    continue;
                }
                return Ok(serde_json::from_str(&line).expect("messages are JSON"));
            }
            match self.hear() {
                Heard::Text(text) => self.lines = text.lines().map(str::to_owned).collect(),
                Heard::Pong(_) => {}
                other => return Err(other),
            }
        }
    }

    /// The next message.
    #[track_caller]
    pub fn message(&mut self) -> Value {
        self.next_message().expect("a message comes")
    }

    /// Sends a command and returns its reply. Pushes before the reply are skipped.
    #[track_caller]
    pub fn ask(&mut self, command: impl Borrow<Value>) -> Value {
        let command = command.borrow();
        self.try_ask(command).unwrap_or_else(|end| panic!("{command}: {end:?}"))
    }

    /// Sends a command and returns its reply. Pushes before the reply are skipped.
    ///
    /// # Errors
    /// What came instead of the reply, or why nothing came.
    #[track_caller]
    pub fn try_ask(&mut self, command: impl Borrow<Value>) -> Result<Value, Heard> {
        self.send_json(command.borrow());
        self.reply(&command.borrow()["id"])
    }

    /// The reply with this id. Other messages are skipped.
    ///
    /// # Errors
    /// What came instead of the reply, or why nothing came.
    #[track_caller]
    pub fn reply(&mut self, id: &Value) -> Result<Value, Heard> {
        loop {
            let message = self.next_message()?;
            if message["id"] == *id {
                return Ok(message);
            }
        }
    }

    /// Sends a command that must succeed, and returns its reply.
    #[track_caller]
    pub fn must(&mut self, command: impl Borrow<Value>) -> Value {
        let command = command.borrow();
        let reply = self.ask(command);
        assert!(reply["error"].is_null(), "{command}: {reply}");
        reply
    }

    /// The next publication. Other messages are skipped.
    #[track_caller]
    pub fn publication(&mut self) -> Value {
        loop {
            let message = self.message();
            if !message["push"]["pub"].is_null() {
                return message["push"]["pub"].clone();
            }
        }
    }

    /// Skips messages until the connection ends. Returns the end.
    #[track_caller]
    pub fn close(&mut self) -> Heard {
        loop {
            match self.next_message() {
                Ok(_) => {}
                Err(Heard::Silence) => panic!("the connection does not end"),
                Err(end) => return end,
            }
        }
    }
}
