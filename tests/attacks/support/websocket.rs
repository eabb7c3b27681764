//! A WebSocket by hand (RFC 6455), whose masks are all zeros, and crowds of WebSockets.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{PATIENCE, http};

/// An empty masked ping.
pub(crate) const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];

/// A message from the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Text(String),
    Binary(Vec<u8>),
    Pong,
    Close(u16, String),
    /// The socket was closed, or nothing arrived in time.
    End,
}

pub(crate) struct WebSocket {
    pub(crate) socket: TcpStream,
    lines: VecDeque<String>,
}

pub(crate) fn handshake(extra: &str) -> String {
    format!(
        "GET /connection/websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extra}\r\n"
    )
}

/// A masked frame.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
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

/// A text frame.
pub(crate) fn text(text: &str) -> Vec<u8> {
    frame(0x81, text.as_bytes())
}

impl WebSocket {
    /// Opens a WebSocket that has sent only its handshake.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::over(http::socket(address), "")
    }

    /// Opens a WebSocket on a socket with a small receive buffer.
    pub(crate) fn narrow(address: SocketAddr) -> Self {
        Self::over(http::narrow_socket(address), "")
    }

    /// Makes the handshake on a socket, with additional headers.
    pub(crate) fn over(mut socket: TcpStream, extra: &str) -> Self {
        socket.write_all(handshake(extra).as_bytes()).expect("the server reads");
        let head = head(&mut socket);
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        WebSocket { socket, lines: VecDeque::new() }
    }

    /// Opens a session of the anonymous user.
    pub(crate) fn connected(address: SocketAddr) -> Self {
        let mut websocket = Self::open(address);
        websocket.must(&json!({"id": 1, "connect": {}}));
        websocket
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    pub(crate) fn send_json(&mut self, command: &Value) {
        self.send(&text(&command.to_string()));
    }

    /// Whether bytes or the end arrive within some time.
    pub(crate) fn has_more(&mut self, patience: Duration) -> bool {
        let _ = self.socket.set_read_timeout(Some(patience));
        let is_there = !self.lines.is_empty() || self.socket.peek(&mut [0]).is_ok();
        let _ = self.socket.set_read_timeout(Some(PATIENCE));
        is_there
    }

    /// The next frame.
    pub(crate) fn hear(&mut self) -> Heard {
        self.try_hear().unwrap_or(Heard::End)
    }

    fn try_hear(&mut self) -> Option<Heard> {
        let mut head = [0; 2];
        self.socket.read_exact(&mut head).ok()?;
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.socket.read_exact(&mut bytes).ok()?;
                u16::from_be_bytes(bytes).into()
            }
            127 => {
                let mut bytes = [0; 8];
                self.socket.read_exact(&mut bytes).ok()?;
                u64::from_be_bytes(bytes) as usize
            }
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload).ok()?;
        Some(match head[0] {
            0x81 => Heard::Text(String::from_utf8(payload).expect("text is UTF-8")),
            0x82 => Heard::Binary(payload),
            0x8a => Heard::Pong,
            0x88 if payload.len() < 2 => Heard::Close(1005, String::new()),
            0x88 => Heard::Close(
                u16::from_be_bytes([payload[0], payload[1]]),
                String::from_utf8_lossy(&payload[2..]).into_owned(),
            ),
            other => panic!("unexpected frame {other:#x}"),
        })
    }

    /// The next message that is not a ping. Pings are answered, and pongs are skipped.
    pub(crate) fn next(&mut self) -> Result<Value, Heard> {
        loop {
            while let Some(line) = self.lines.pop_front() {
                if line == "{}" {
                    self.send(&text("{}"));
                    continue;
                }
                return Ok(serde_json::from_str(&line).expect("messages are JSON"));
            }
            match self.hear() {
                Heard::Text(text) => self.lines = text.lines().map(str::to_owned).collect(),
                Heard::Pong => {}
                other => return Err(other),
            }
        }
    }

    /// Sends a command and returns its reply, or the end of the connection. Pushes are skipped.
    pub(crate) fn ask(&mut self, command: &Value) -> Result<Value, Heard> {
        self.send_json(command);
        self.reply(&command["id"])
    }

    /// The reply with this id. Other messages are skipped.
    pub(crate) fn reply(&mut self, id: &Value) -> Result<Value, Heard> {
        loop {
            let message = self.next()?;
            if message["id"] == *id {
                return Ok(message);
            }
        }
    }

    /// Sends a command that must succeed.
    pub(crate) fn must(&mut self, command: &Value) -> Value {
        let reply = self.ask(command).unwrap_or_else(|end| panic!("{command}: {end:?}"));
        assert!(reply["error"].is_null(), "{command}: {reply}");
        reply
    }

    /// Sends a command and returns its error number or the close code.
    pub(crate) fn told(&mut self, command: &Value) -> Told {
        match self.ask(command) {
            Ok(reply) => reply["error"]["code"].as_u64().map_or(Told::Done, Told::Error),
            Err(Heard::Close(code, _)) => Told::Closed(code),
            Err(_) => Told::Ended,
        }
    }

    /// The end of the connection. Messages before it are skipped.
    pub(crate) fn end(&mut self, patience: Duration) -> Told {
        let _ = self.socket.set_read_timeout(Some(patience));
        let end = Instant::now() + patience;
        while Instant::now() < end {
            match self.hear() {
                Heard::Close(code, _) => return Told::Closed(code),
                Heard::End => return Told::Ended,
                _ => {}
            }
        }
        Told::Done
    }
}

/// The server's answer to an attacker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    /// The action was accepted.
    Done,
    /// The number of an error.
    Error(u64),
    /// A close code.
    Closed(u16),
    /// The socket ended without a close frame, or nothing arrived.
    Ended,
}

/// The head of an HTTP answer.
pub(crate) fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read_exact(&mut byte).is_err() {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Opens many sessions. Each has sent the same messages after `connect`, and its answer contains some words.
pub(crate) fn crowd(address: SocketAddr, size: usize, messages: &[u8], words: &str) -> Vec<TcpStream> {
    let mut sockets: Vec<TcpStream> = Vec::with_capacity(size);
    let opening = [handshake("").as_bytes(), &text(r#"{"id":1,"connect":{}}"#), messages].concat();
    // Some hundred connect at a time: more would only wait in the backlog.
    while sockets.len() < size {
        let first = sockets.len();
        for _ in first..size.min(first + 250) {
            let mut socket = http::narrow_socket(address);
            socket.write_all(&opening).expect("the server reads");
            sockets.push(socket);
        }
        for socket in &mut sockets[first..] {
            let (mut heard, mut some) = (Vec::new(), [0; 4096]);
            while !words.is_empty() && !String::from_utf8_lossy(&heard).contains(words) {
                match socket.read(&mut some) {
                    Ok(length @ 1..) => heard.extend_from_slice(&some[..length]),
                    other => panic!("a connection of the crowd ends: {other:?} {}", String::from_utf8_lossy(&heard)),
                }
            }
        }
    }
    sockets
}

/// Sends the same bytes on all sockets as fast as they accept them, and reads the answers if `is_reading`. Returns the
/// number of bytes sent and the number of sockets that have ended.
pub(crate) fn flood(sockets: &[TcpStream], bytes: &[u8], lasting: Duration, is_reading: bool) -> (u64, usize) {
    let began = Instant::now();
    let (mut sent, mut ended, mut some) = (0, vec![false; sockets.len()], vec![0; 64 * 1024]);
    let mut places = vec![0; sockets.len()];
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).expect("sockets have this option"));
    while began.elapsed() < lasting && !ended.iter().all(|ended| *ended) {
        let mut is_stuck = true;
        for (index, mut socket) in sockets.iter().enumerate().filter(|(index, _)| !ended[*index]).collect::<Vec<_>>() {
            match socket.write(&bytes[places[index]..]) {
                Ok(length) => {
                    (sent, is_stuck) = (sent + length as u64, false);
                    places[index] = (places[index] + length) % bytes.len();
                }
                Err(error) => ended[index] = error.kind() != ErrorKind::WouldBlock,
            }
            if is_reading {
                let (has_any, is_over) = drain(socket, &mut some);
                (is_stuck, ended[index]) = (is_stuck && !has_any, ended[index] || is_over);
            }
        }
        if is_stuck {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    sockets.iter().for_each(|socket| socket.set_nonblocking(false).expect("sockets have this option"));
    (sent, ended.iter().filter(|ended| **ended).count())
}

/// Reads much of what has arrived. Returns whether there was input, and whether the socket has ended.
fn drain(mut socket: &TcpStream, some: &mut [u8]) -> (bool, bool) {
    for reads in 0..16 {
        match socket.read(some) {
            Ok(0) => return (reads > 0, true),
            Ok(_) => {}
            Err(error) => return (reads > 0, error.kind() != ErrorKind::WouldBlock),
        }
    }
    (true, false)
}
