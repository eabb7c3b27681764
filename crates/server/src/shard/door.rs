//! Where connections come in. A WebSocket handshake that arrives in one piece is answered on the spot, without a task, a timer or a buffer of
//! its own; every other request goes to hyper, with the bytes that have been read.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Token};

use touchline_protocol::deflate;

use super::Shard;
use super::socket::Socket;
use crate::agent::Agent;
use crate::handshake::{self, Entrance, HEADERS_MAX, Headers};
use crate::http;
use crate::node::Node;
use crate::tls::Tls;
use crate::transport::Transport;

/// Tokens of the listeners: that of HTTP, that of lines.
const DOORS: [Token; 2] = [Token(usize::MAX), Token(usize::MAX - 1)];
/// Tokens of visitors begin here; those of connections are below.
const VISITORS: usize = 1 << 32;
/// Connections accepted in one turn.
const ACCEPTS_MAX: usize = 32;
/// Pause when a connection can't be accepted, milliseconds: without file descriptors, trying again at once would spin.
const PAUSE_MS: u64 = 100;

/// Where a shard listens.
pub(crate) struct Listeners {
    pub(crate) http: std::net::TcpListener,
    /// For lines, if they are served.
    pub(crate) lines: Option<std::net::TcpListener>,
}

/// One listener.
struct Gate {
    listener: TcpListener,
    /// Somebody may be waiting outside.
    is_knocked: bool,
    is_for_lines: bool,
    tls: Option<Arc<Tls>>,
}

/// The listeners of a shard, and those who have come in and said nothing yet.
pub(super) struct Door {
    gates: Vec<Gate>,
    /// Nobody is let in before this time, Unix milliseconds.
    closed_until_ms: u64,
    visitors: HashMap<usize, Visitor>,
    /// Visitors by the time until which they must have spoken.
    patience: VecDeque<(u64, usize)>,
    next_visitor: usize,
}

struct Visitor {
    socket: TcpStream,
    peer: IpAddr,
}

impl Door {
    /// A door at listeners that are non-blocking.
    ///
    /// # Errors
    /// When the poller does not take them.
    pub(super) fn new(listeners: Listeners, node: &Node, registry: &mio::Registry) -> std::io::Result<Self> {
        let mut gates = Vec::with_capacity(2);
        let all = [(Some(listeners.http), false, &node.tls.http), (listeners.lines, true, &node.tls.lines)];
        for (listener, is_for_lines, tls) in all {
            let Some(listener) = listener else { continue };
            let mut listener = TcpListener::from_std(listener);
            registry.register(&mut listener, DOORS[gates.len()], Interest::READABLE)?;
            gates.push(Gate { listener, is_knocked: true, is_for_lines, tls: tls.clone() });
        }
        let (visitors, patience) = Default::default();
        Ok(Door { gates, closed_until_ms: 0, visitors, patience, next_visitor: VISITORS })
    }

    pub(super) fn knock(&mut self, token: Token) {
        if let Some(gate) = self.gates.get_mut(usize::MAX - token.0) {
            gate.is_knocked = true;
        }
    }
}

/// Whether a token is a listener's.
pub(super) fn is_door(token: Token) -> bool {
    DOORS.contains(&token)
}

/// Whether a token is a visitor's.
pub(super) fn is_visitor(token: Token) -> bool {
    token.0 >= VISITORS && !is_door(token)
}

impl Shard {
    /// Whether somebody can be let in at once.
    pub(super) fn has_guests(&self) -> bool {
        let door = &self.door;
        door.gates.iter().any(|gate| gate.is_knocked) && door.closed_until_ms <= self.now_ms && self.drain.is_none()
    }

    /// Lets in who waits outside, up to a turn's share. Once the node drains, nobody; who waits is refused when the listener is gone.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            if !self.has_guests() {
                return;
            }
            let Some(gate) = self.door.gates.iter_mut().find(|gate| gate.is_knocked) else { return };
            let is_for_lines = gate.is_for_lines;
            let tls = gate.tls.clone();
            match gate.listener.accept() {
                Ok((socket, peer)) if tls.is_some() => self.welcome_tls(socket, peer.ip(), is_for_lines, tls),
                Ok((socket, peer)) if is_for_lines => drop(self.isolated(|shard| shard.welcome_lines(socket, peer.ip()))),
                Ok((socket, peer)) => self.welcome(Visitor { socket, peer: peer.ip() }, None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => gate.is_knocked = false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    self.metrics.accept_errors.add(1);
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.door.closed_until_ms = self.now_ms + PAUSE_MS;
                }
            }
        }
    }

    /// TLS is agreed upon by a task; the socket comes back from there.
    fn welcome_tls(&mut self, socket: TcpStream, peer: IpAddr, is_for_lines: bool, tls: Option<Arc<Tls>>) {
        let (Some(tls), node) = (tls, Arc::clone(&self.node)) else { return };
        if is_for_lines {
            tokio::task::spawn_local(http::serve_lines_tls(node, self.id, socket.into(), peer, tls));
        } else {
            tokio::task::spawn_local(http::serve_tls(node, self.id, socket.into(), peer, tls));
        }
    }

    /// Lines need no handshake.
    fn welcome_lines(&mut self, socket: TcpStream, peer: IpAddr) {
        if self.node.is_full() {
            return;
        }
        let entrance = Entrance { transport: Transport::Tcp, wire: http::LINES, agent: Agent::Unknown };
        self.seat(Socket::Tcp(socket), false, entrance, is_loopback(peer));
    }

    /// A visitor has something to say.
    pub(super) fn hear_visitor(&mut self, token: Token) {
        if let Some(visitor) = self.door.visitors.remove(&token.0) {
            self.welcome(visitor, Some(token));
        }
    }

    /// Sends visitors away who have said nothing in time.
    pub(super) fn dismiss_visitors(&mut self) {
        while let Some((until_ms, visitor)) = self.door.patience.front().copied() {
            if until_ms > self.now_ms && self.door.visitors.contains_key(&visitor) {
                break;
            }
            self.door.patience.pop_front();
            self.door.visitors.remove(&visitor);
        }
    }

    /// Serves a visitor. A panic on the way ends that visit only, and is counted.
    fn welcome(&mut self, visitor: Visitor, known: Option<Token>) {
        self.isolated(|shard| shard.hear(visitor, known));
    }

    /// Hears what a visitor has to say. `known` is its token, if the poller has it.
    fn hear(&mut self, mut visitor: Visitor, known: Option<Token>) {
        let length = match visitor.socket.read(&mut self.scratch) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return self.wait_for(visitor, known),
            Err(_) => return,
        };
        let Some((answer, head, entrance)) = grant(&self.node, &self.scratch[..length]) else {
            return self.hand_to_http(visitor, known, length);
        };
        // A fresh socket has room for so little.
        if matches!(visitor.socket.write(&answer), Ok(written) if written == answer.len()) {
            let early = self.scratch[head..length].to_vec();
            if let Some(slot) = self.seat(Socket::Tcp(visitor.socket), known.is_some(), entrance, is_loopback(visitor.peer)) {
                self.hear_early(slot, early);
            }
        }
    }

    fn wait_for(&mut self, mut visitor: Visitor, known: Option<Token>) {
        let token = known.unwrap_or(Token(self.door.next_visitor));
        if known.is_none() {
            if self.registry.register(&mut visitor.socket, token, Interest::READABLE | Interest::WRITABLE).is_err() {
                return;
            }
            self.door.next_visitor += 1;
            let until_ms = self.now_ms + self.node.settings.http_server.header_timeout.as_millis() as u64;
            self.door.patience.push_back((until_ms, token.0));
        }
        self.door.visitors.insert(token.0, visitor);
    }

    fn hand_to_http(&mut self, mut visitor: Visitor, known: Option<Token>, length: usize) {
        if known.is_some() && self.registry.deregister(&mut visitor.socket).is_err() {
            return;
        }
        let early = Bytes::copy_from_slice(&self.scratch[..length]);
        tokio::task::spawn_local(http::serve(Arc::clone(&self.node), self.id, visitor.socket.into(), early, visitor.peer));
    }
}

/// Whether a peer is on this machine.
pub(crate) fn is_loopback(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

/// The answer to a whole, good handshake without a body, the length of its head and how the client comes in. Everything else is for hyper to judge.
fn grant(node: &Node, bytes: &[u8]) -> Option<(Vec<u8>, usize, Entrance)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else { return None };
    let (path, query) = request.path?.split_once('?').unwrap_or((request.path?, ""));
    if request.method != Some("GET") || request.version != Some(1) || head > http::HEAD_MAX {
        return None;
    }
    let transport = handshake::transport_of(node, path)?;
    let headers: &[httparse::Header<'_>] = request.headers;
    if headers.value("content-length").is_some() || headers.value("transfer-encoding").is_some() {
        return None;
    }
    let granted = handshake::examine(node, transport, query, &headers).ok()?;
    let mut answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ".to_vec();
    answer.extend_from_slice(granted.accept_key.as_bytes());
    if let Some(subprotocol) = granted.subprotocol {
        answer.extend_from_slice(b"\r\nSec-WebSocket-Protocol: ");
        answer.extend_from_slice(subprotocol.as_bytes());
    }
    if granted.is_deflated() {
        answer.extend_from_slice(b"\r\nSec-WebSocket-Extensions: ");
        answer.extend_from_slice(deflate::GRANTED.as_bytes());
    }
    answer.extend_from_slice(b"\r\n\r\n");
    Some((answer, head, Entrance { transport, wire: granted.wire, agent: Agent::of(&headers) }))
}
