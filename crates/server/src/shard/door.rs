//! Where connections come in. A WebSocket handshake that arrives in one piece is answered on the spot, without a task,
//! a timer or a buffer of its own; every other request goes to hyper, with the bytes that have been read.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use hashbrown::HashMap;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Token};

use touchline_protocol::deflate;

use super::Shard;
use super::half_open::{Closed, Waiting};
use super::socket::Socket;
use crate::agent::Agent;
use crate::handshake::{self, Entrance, HEADERS_MAX, Headers, Refusal};
use crate::http::{self, Caller, Port, Side};
use crate::node::Node;
use crate::proxies::Remote;
use crate::tls::Tls;

/// Tokens of the listeners: that of HTTP, those of lines and of the internal port, if there are any.
const DOORS: [Token; 3] = [Token(usize::MAX), Token(usize::MAX - 1), Token(usize::MAX - 2)];
/// Tokens of visitors begin here; those of connections are below.
const VISITORS: usize = 1 << 32;
/// Connections accepted in one turn.
const ACCEPTS_MAX: usize = 32;
/// Pause when a connection can't be accepted and nothing can be closed for it here, milliseconds: trying again at once
/// would spin.
const PAUSE_MS: u64 = 100;
/// Between two log lines about connections that can't be accepted, milliseconds.
const COMPLAINT_MS: u64 = 60_000;
/// What the system says when the process, or the machine, has no file descriptors left (errno(3): EMFILE, ENFILE).
const NO_DESCRIPTORS: [i32; 2] = [24, 23];
/// TLS handshakes that may begin at once, as time at their rate, microseconds: twice the time between two ticks, which
/// end a pause.
const HANDSHAKES_BURST_US: u64 = 200_000;

/// Where a shard listens.
pub(crate) struct Listeners {
    pub(crate) http: std::net::TcpListener,
    /// For lines, if they are served.
    pub(crate) lines: Option<std::net::TcpListener>,
    /// The internal port, if there is one.
    pub(crate) inner: Option<std::net::TcpListener>,
}

/// One listener.
struct Gate {
    listener: TcpListener,
    /// Somebody may be waiting outside.
    is_knocked: bool,
    /// Nobody is let in here before this time, Unix milliseconds.
    paused_until_ms: u64,
    port: Port,
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
    /// When connections that can't be accepted are told of again, Unix milliseconds, and how many there were since the
    /// last time.
    complaint: (u64, u64),
}

struct Visitor {
    socket: TcpStream,
    remote: Remote,
    side: Side,
}

impl Door {
    /// A door at listeners that are non-blocking.
    ///
    /// # Errors
    /// When the poller does not take them.
    pub(super) fn new(listeners: Listeners, node: &Node, registry: &mio::Registry) -> std::io::Result<Self> {
        let mut gates = Vec::with_capacity(DOORS.len());
        let port = |side, is_for_lines, tls: &Option<Arc<Tls>>, is_introduced| Port {
            side,
            is_for_lines,
            tls: tls.clone(),
            is_introduced,
        };
        let side = if listeners.inner.is_some() { Side::Outer } else { Side::Whole };
        let all = [
            (Some(listeners.http), port(side, false, &node.tls.http, node.settings.http_server.proxy_protocol)),
            (listeners.lines, port(side, true, &node.tls.lines, node.settings.tcp.proxy_protocol)),
            // Backends and probes come without the proxies of clients.
            (listeners.inner, port(Side::Inner, false, &node.tls.inner, false)),
        ];
        for (listener, port) in all {
            let Some(listener) = listener else { continue };
            let mut listener = TcpListener::from_std(listener);
            registry.register(&mut listener, DOORS[gates.len()], Interest::READABLE)?;
            gates.push(Gate { listener, is_knocked: true, paused_until_ms: 0, port });
        }
        let (visitors, patience) = Default::default();
        Ok(Door { gates, closed_until_ms: 0, visitors, patience, next_visitor: VISITORS, complaint: (0, 0) })
    }

    pub(super) fn knock(&mut self, token: Token) {
        if let Some(gate) = self.gates.get_mut(usize::MAX - token.0) {
            gate.is_knocked = true;
        }
    }

    /// How many have come in and said nothing.
    pub(super) fn visitors(&self) -> usize {
        self.visitors.len()
    }

    /// Whether a visitor is there and has said nothing.
    pub(super) fn is_waiting(&self, visitor: Token) -> bool {
        self.visitors.contains_key(&visitor.0)
    }

    /// Sends a visitor away.
    pub(super) fn dismiss(&mut self, visitor: Token) {
        self.visitors.remove(&visitor.0);
    }

    /// Says in the log that a connection could not be accepted, some time after it has said so before.
    fn complain(&mut self, error: &Error, now_ms: u64) {
        let (due_ms, count) = &mut self.complaint;
        *count += 1;
        if *due_ms <= now_ms {
            let is_short = error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code));
            let remedy = if is_short {
                ": raise the limit of open files (systemd: LimitNOFILE=, shells: ulimit -Hn)"
            } else {
                ""
            };
            tracing::warn!(%error, count = *count, "connections could not be accepted{remedy}");
            self.complaint = (now_ms + COMPLAINT_MS, 0);
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
        self.door.closed_until_ms <= self.now_ms && self.door.gates.iter().any(|gate| self.is_open(gate))
    }

    /// Whether somebody may be waiting at a listener who can be let in. While the node drains, only HTTP has an answer
    /// to that: it is drained.
    fn is_open(&self, gate: &Gate) -> bool {
        gate.is_knocked && gate.paused_until_ms <= self.now_ms && (self.drain.is_none() || !gate.port.is_for_lines)
    }

    /// Lets in who waits outside.
    pub(super) fn accept(&mut self) {
        if self.has_guests() {
            self.accept_some();
            self.tell_half_open();
        }
    }

    /// Another shard has closed connections: what could not be accepted is tried again.
    pub(super) fn open_door(&mut self) {
        self.door.closed_until_ms = 0;
    }

    /// Lets in a turn's share.
    fn accept_some(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            if !self.has_guests() {
                return;
            }
            let now_ms = self.now_ms;
            let Some(open) = self.door.gates.iter().position(|gate| self.is_open(gate)) else { return };
            let gate = &mut self.door.gates[open];
            if gate.port.tls.is_some()
                && let Some(wait_us) = wait_for_handshake(&self.node)
            {
                gate.paused_until_ms = now_ms + wait_us.div_ceil(1_000);
                self.metrics.tls_pauses.add(1);
                continue;
            }
            match gate.listener.accept() {
                Ok((socket, peer)) => {
                    let port = gate.port.clone();
                    self.limit_half_open();
                    self.isolated(|shard| shard.let_in(socket, peer.ip(), port));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => gate.is_knocked = false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if !self.makes_room(&error) => return,
                Err(_) => {}
            }
        }
    }

    /// What is done when a connection can't be accepted. True = it may be tried again at once.
    fn makes_room(&mut self, error: &Error) -> bool {
        self.metrics.accept_errors.add(1);
        self.door.complain(error, self.now_ms);
        let is_short = error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code));
        match if is_short { self.make_room() } else { Closed::Nothing } {
            Closed::Now => true,
            // The next turn comes when its task has run.
            Closed::Soon => false,
            Closed::Elsewhere | Closed::Nothing => {
                self.door.closed_until_ms = self.now_ms + PAUSE_MS;
                false
            }
        }
    }

    /// Begins with a fresh connection. What takes more than one piece, a proxy's header or TLS, is for a task; the
    /// socket comes back from there.
    fn let_in(&mut self, socket: TcpStream, peer: IpAddr, port: Port) {
        let remote = Remote::of(peer);
        if port.is_introduced && !self.node.proxies.contains(peer) {
            self.metrics.proxy_headers_refused.add_shared(1);
            tracing::debug!(%peer, "a connection was closed: it comes from no trusted proxy");
            return;
        }
        if port.tls.is_some() {
            let limit = self.node.settings.http_server.tls_handshake_rate_limit;
            self.node.entry.handshakes.take(limit, HANDSHAKES_BURST_US, self.node.clock.elapsed_us());
        }
        if port.is_introduced || port.tls.is_some() {
            let caller = self.caller(remote, port.side);
            tokio::task::spawn_local(http::prepare(caller, socket.into(), port));
        } else if port.is_for_lines {
            self.welcome_lines(socket, remote);
        } else {
            self.hear(Visitor { socket, remote, side: port.side }, None);
        }
    }

    fn caller(&mut self, remote: Remote, side: Side) -> Caller {
        Caller { node: Arc::clone(&self.node), shard: self.id, remote, side, pass: self.pass() }
    }

    /// Lines need no handshake.
    fn welcome_lines(&mut self, socket: TcpStream, remote: Remote) {
        if self.drain.is_none()
            && let Ok(admission) = self.node.admit(remote)
        {
            self.seat(Socket::Tcp(socket), false, http::lines(admission));
        }
    }

    /// A connection comes back of which a proxy has told whose it is. Tasks are made on the shard's own thread only,
    /// and this may be another: so the poller tells what has been sent.
    pub(super) fn welcome_introduced(
        &mut self,
        socket: std::net::TcpStream,
        remote: Remote,
        side: Side,
        is_for_lines: bool,
    ) {
        let socket = TcpStream::from_std(socket);
        if is_for_lines {
            self.isolated(|shard| shard.welcome_lines(socket, remote));
        } else {
            self.wait_for(Visitor { socket, remote, side }, None);
        }
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
        // What is read from now on might never be answered.
        if self.node.is_stopped.load(Relaxed) {
            return;
        }
        let length = match visitor.socket.read(&mut self.scratch) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return self.wait_for(visitor, known);
            }
            Err(_) => return,
        };
        let verdict = match visitor.side {
            Side::Inner => Verdict::ForHttp,
            _ if self.drain.is_some() => Verdict::ForHttp,
            _ => grant(&self.node, visitor.remote, &self.scratch[..length]),
        };
        let Opening { answer, head, entrance } = match verdict {
            Verdict::Granted(opening) => opening,
            Verdict::Full => {
                // The whole request was read, so nothing destroys the answer on its way.
                let _ = visitor.socket.write(FULL);
                return;
            }
            Verdict::ForHttp => return self.hand_to_http(visitor, known, length),
        };
        // A fresh socket has room for so little.
        if matches!(visitor.socket.write(&answer), Ok(written) if written == answer.len()) {
            let early = self.scratch[head..length].to_vec();
            if let Some(slot) = self.seat(Socket::Tcp(visitor.socket), known.is_some(), entrance) {
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
        if known.is_none() {
            self.note_half_open(Waiting::Visitor(token));
        }
    }

    fn hand_to_http(&mut self, mut visitor: Visitor, known: Option<Token>, length: usize) {
        if known.is_some() && self.registry.deregister(&mut visitor.socket).is_err() {
            return;
        }
        let early = Bytes::copy_from_slice(&self.scratch[..length]);
        let caller = self.caller(visitor.remote, visitor.side);
        tokio::task::spawn_local(http::serve(caller, visitor.socket.into(), early));
    }
}

/// How long a TLS handshake has to wait, microseconds; none = it may begin.
fn wait_for_handshake(node: &Node) -> Option<u64> {
    let limit = node.settings.http_server.tls_handshake_rate_limit;
    node.entry.handshakes.wait(limit, HANDSHAKES_BURST_US, node.clock.elapsed_us())
}

/// The answer to a handshake while the node takes no more clients: it costs no task and no buffer.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 29\r\n\r\nno room for more connections\n";

/// A granted handshake.
struct Opening {
    /// What is written.
    answer: Vec<u8>,
    /// The length of its head, bytes.
    head: usize,
    entrance: Entrance,
}

/// What becomes of the first bytes of a connection.
enum Verdict {
    /// A good handshake.
    Granted(Opening),
    /// A good handshake, but the node takes no more clients.
    Full,
    /// Hyper has to judge.
    ForHttp,
}

/// Judges a whole, good handshake without a body. Everything else is for hyper.
fn grant(node: &Node, remote: Remote, bytes: &[u8]) -> Verdict {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else { return Verdict::ForHttp };
    let Some(target) = request.path else { return Verdict::ForHttp };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if request.method != Some("GET") || request.version != Some(1) || head > http::HEAD_MAX {
        return Verdict::ForHttp;
    }
    let Some(transport) = handshake::transport_of(node, path) else { return Verdict::ForHttp };
    let headers: &[httparse::Header<'_>] = request.headers;
    if headers.value(&CONTENT_LENGTH).is_some() || headers.value(&TRANSFER_ENCODING).is_some() {
        return Verdict::ForHttp;
    }
    let granted = match handshake::examine(node, remote, transport, query, &headers) {
        Ok(granted) => granted,
        Err(Refusal::Full) if head == bytes.len() => return Verdict::Full,
        Err(_) => return Verdict::ForHttp,
    };
    let mut answer =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "
            .to_vec();
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
    let entrance = Entrance { transport, wire: granted.wire, agent: Agent::of(&headers), admission: granted.admission };
    Verdict::Granted(Opening { answer, head, entrance })
}
