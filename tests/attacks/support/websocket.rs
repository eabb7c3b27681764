//! Attackers over WebSockets, and crowds of WebSockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use touchline_testkit::websocket::{Heard, WebSocket, handshake, text};

use super::{http, pause};

/// An empty masked ping.
pub(crate) const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];

/// Opens a WebSocket on a socket with a small receive buffer.
pub(crate) fn narrow(address: SocketAddr) -> WebSocket {
    WebSocket::over(http::narrow_socket(address), "")
}

/// The part of a client that reads the server's answers to an attack.
pub(crate) trait Attacker {
    /// Sends a command and returns its error number or the close code.
    fn told(&mut self, command: &Value) -> Told;

    /// The end of the connection. Messages before it are skipped.
    fn end(&mut self, patience: Duration) -> Told;
}

impl Attacker for WebSocket {
    fn told(&mut self, command: &Value) -> Told {
        match self.try_ask(command) {
            Ok(reply) => reply["error"]["code"].as_u64().map_or(Told::Done, Told::Error),
            Err(Heard::Close(code, _)) => Told::Closed(code),
            Err(_) => Told::Ended,
        }
    }

    fn end(&mut self, patience: Duration) -> Told {
        let _ = self.socket.set_read_timeout(Some(patience));
        let end = Instant::now() + patience;
        while Instant::now() < end {
            match self.hear() {
                Heard::Close(code, _) => return Told::Closed(code),
                Heard::End | Heard::Silence => return Told::Ended,
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
            pause(Duration::from_millis(1));
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
