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
use crate::handshake::{self, HEADERS_MAX, HandshakeRefusal, Headers, Negotiated};
use crate::http::{self, Caller, Port, Side};
use crate::node::Node;
use crate::proxies::Remote;
use crate::tls::Tls;

/// Tokens of the listeners: that of HTTP, those of lines and of the internal port, if there are any.
const LISTENER_TOKENS: [Token; 3] = [Token(usize::MAX), Token(usize::MAX - 1), Token(usize::MAX - 2)];
/// Tokens of visitors begin here; those of connections are below.
const PENDING_TOKENS_FROM: usize = 1 << 32;
/// Connections accepted in one turn.
const ACCEPTS_MAX: usize = 32;
/// Pause when a connection can't be accepted and nothing can be closed for it here, milliseconds: trying again at once
/// would spin.
const PAUSE_MS: u64 = 100;
/// Between two log lines about connections that can't be accepted, milliseconds.
const ERROR_REPORT_INTERVAL_MS: u64 = 60_000;
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
struct Listener {
    listener: TcpListener,
    /// Somebody may be waiting outside.
    is_ready: bool,
    /// Nobody is let in here before this time, Unix milliseconds.
    paused_until_ms: u64,
    port: Port,
}

/// The listeners of a shard, and those who have come in and said nothing yet.
pub(super) struct Acceptor {
    listeners: Vec<Listener>,
    /// Nobody is let in before this time, Unix milliseconds.
    closed_until_ms: u64,
    pending: HashMap<usize, PendingConnection>,
    /// Visitors by the time until which they must have spoken.
    deadlines: VecDeque<(u64, usize)>,
    next_pending: usize,
    /// When connections that can't be accepted are told of again, Unix milliseconds, and how many there were since the
    /// last time.
    error_report: (u64, u64),
}

struct PendingConnection {
    socket: TcpStream,
    remote: Remote,
    side: Side,
}

impl Acceptor {
    /// A door at listeners that are non-blocking.
    ///
    /// # Errors
    /// When the poller does not take them.
    pub(super) fn new(listeners: Listeners, node: &Node, registry: &mio::Registry) -> std::io::Result<Self> {
        let mut gates = Vec::with_capacity(LISTENER_TOKENS.len());
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
            registry.register(&mut listener, LISTENER_TOKENS[gates.len()], Interest::READABLE)?;
            gates.push(Listener { listener, is_ready: true, paused_until_ms: 0, port });
        }
        let (visitors, patience) = Default::default();
        Ok(Acceptor {
            listeners: gates,
            closed_until_ms: 0,
            pending: visitors,
            deadlines: patience,
            next_pending: PENDING_TOKENS_FROM,
            error_report: (0, 0),
        })
    }

    pub(super) fn on_ready(&mut self, token: Token) {
        if let Some(gate) = self.listeners.get_mut(usize::MAX - token.0) {
            gate.is_ready = true;
        }
    }

    /// How many have come in and said nothing.
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether a visitor is there and has said nothing.
    pub(super) fn is_waiting(&self, visitor: Token) -> bool {
        self.pending.contains_key(&visitor.0)
    }

    /// Sends a visitor away.
    pub(super) fn drop_pending(&mut self, visitor: Token) {
        self.pending.remove(&visitor.0);
    }

    /// Says in the log that a connection could not be accepted, some time after it has said so before.
    fn report_error(&mut self, error: &Error, now_ms: u64) {
        let (due_ms, count) = &mut self.error_report;
        *count += 1;
        if *due_ms <= now_ms {
            let is_short = error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code));
            let remedy = if is_short {
                ": raise the limit of open files (systemd: LimitNOFILE=, shells: ulimit -Hn)"
            } else {
                ""
            };
            tracing::warn!(%error, count = *count, "connections could not be accepted{remedy}");
            self.error_report = (now_ms + ERROR_REPORT_INTERVAL_MS, 0);
        }
    }
}

/// Whether a token is a listener's.
pub(super) fn is_listener(token: Token) -> bool {
    LISTENER_TOKENS.contains(&token)
}

/// Whether a token is a visitor's.
pub(super) fn is_pending(token: Token) -> bool {
    token.0 >= PENDING_TOKENS_FROM && !is_listener(token)
}

impl Shard {
    /// Whether somebody can be let in at once.
    pub(super) fn has_ready_listener(&self) -> bool {
        self.door.closed_until_ms <= self.now_ms && self.door.listeners.iter().any(|gate| self.is_open(gate))
    }

    /// Whether somebody may be waiting at a listener who can be let in. While the node drains, only HTTP has an answer
    /// to that: it is drained.
    fn is_open(&self, gate: &Listener) -> bool {
        gate.is_ready && gate.paused_until_ms <= self.now_ms && (self.drain.is_none() || !gate.port.is_for_lines)
    }

    /// Lets in who waits outside.
    pub(super) fn accept(&mut self) {
        if self.has_ready_listener() {
            self.accept_some();
            self.tell_half_open();
        }
    }

    /// Another shard has closed connections: what could not be accepted is tried again.
    pub(super) fn retry_accepts(&mut self) {
        self.door.closed_until_ms = 0;
    }

    /// Lets in a turn's share.
    fn accept_some(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            if !self.has_ready_listener() {
                return;
            }
            let now_ms = self.now_ms;
            let Some(open) = self.door.listeners.iter().position(|gate| self.is_open(gate)) else { return };
            let gate = &mut self.door.listeners[open];
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
                    self.isolated(|shard| shard.admit(socket, peer.ip(), port));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => gate.is_ready = false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if !self.makes_room(&error) => return,
                Err(_) => {}
            }
        }
    }

    /// What is done when a connection can't be accepted. True = it may be tried again at once.
    fn makes_room(&mut self, error: &Error) -> bool {
        self.metrics.accept_errors.add(1);
        self.door.report_error(error, self.now_ms);
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
    fn admit(&mut self, socket: TcpStream, peer: IpAddr, port: Port) {
        let remote = Remote::of(peer);
        if port.is_introduced && !self.node.proxies.contains(peer) {
            self.metrics.proxy_headers_refused.add_shared(1);
            tracing::debug!(%peer, "a connection was closed: it comes from no trusted proxy");
            return;
        }
        if port.tls.is_some() {
            let limit = self.node.settings.http_server.tls_handshake_rate_limit;
            self.node.admission.handshakes.take(limit, HANDSHAKES_BURST_US, self.node.clock.elapsed_us());
        }
        if port.is_introduced || port.tls.is_some() {
            let caller = self.caller(remote, port.side);
            tokio::task::spawn_local(http::prepare(caller, socket.into(), port));
        } else if port.is_for_lines {
            self.serve_lines(socket, remote);
        } else {
            self.read_head(PendingConnection { socket, remote, side: port.side }, None);
        }
    }

    fn caller(&mut self, remote: Remote, side: Side) -> Caller {
        Caller { node: Arc::clone(&self.node), shard: self.id, remote, side, pass: self.pass() }
    }

    /// Lines need no handshake.
    fn serve_lines(&mut self, socket: TcpStream, remote: Remote) {
        if self.drain.is_none()
            && let Ok(admission) = self.node.admit(remote)
        {
            self.seat(Socket::Tcp(socket), false, http::lines(admission));
        }
    }

    /// A connection comes back of which a proxy has told whose it is. Tasks are made on the shard's own thread only,
    /// and this may be another: so the poller tells what has been sent.
    pub(super) fn serve_introduced(
        &mut self,
        socket: std::net::TcpStream,
        remote: Remote,
        side: Side,
        is_for_lines: bool,
    ) {
        let socket = TcpStream::from_std(socket);
        if is_for_lines {
            self.isolated(|shard| shard.serve_lines(socket, remote));
        } else {
            self.keep_pending(PendingConnection { socket, remote, side }, None);
        }
    }

    /// A visitor has something to say.
    pub(super) fn read_pending(&mut self, token: Token) {
        if let Some(visitor) = self.door.pending.remove(&token.0) {
            self.serve_accepted(visitor, Some(token));
        }
    }

    /// Sends visitors away who have said nothing in time.
    pub(super) fn drop_overdue(&mut self) {
        while let Some((until_ms, visitor)) = self.door.deadlines.front().copied() {
            if until_ms > self.now_ms && self.door.pending.contains_key(&visitor) {
                break;
            }
            self.door.deadlines.pop_front();
            self.door.pending.remove(&visitor);
        }
    }

    /// Serves a visitor. A panic on the way ends that visit only, and is counted.
    fn serve_accepted(&mut self, visitor: PendingConnection, known: Option<Token>) {
        self.isolated(|shard| shard.read_head(visitor, known));
    }

    /// Hears what a visitor has to say. `known` is its token, if the poller has it.
    fn read_head(&mut self, mut visitor: PendingConnection, known: Option<Token>) {
        // What is read from now on might never be answered.
        if self.node.is_stopped.load(Relaxed) {
            return;
        }
        let length = match visitor.socket.read(&mut self.scratch) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return self.keep_pending(visitor, known);
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

    fn keep_pending(&mut self, mut visitor: PendingConnection, known: Option<Token>) {
        let token = known.unwrap_or(Token(self.door.next_pending));
        if known.is_none() {
            if self.registry.register(&mut visitor.socket, token, Interest::READABLE | Interest::WRITABLE).is_err() {
                return;
            }
            self.door.next_pending += 1;
            let until_ms = self.now_ms + self.node.settings.http_server.header_timeout.as_millis() as u64;
            self.door.deadlines.push_back((until_ms, token.0));
        }
        self.door.pending.insert(token.0, visitor);
        if known.is_none() {
            self.note_half_open(Waiting::Visitor(token));
        }
    }

    fn hand_to_http(&mut self, mut visitor: PendingConnection, known: Option<Token>, length: usize) {
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
    node.admission.handshakes.wait(limit, HANDSHAKES_BURST_US, node.clock.elapsed_us())
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
    entrance: Negotiated,
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
        Err(HandshakeRefusal::Full) if head == bytes.len() => return Verdict::Full,
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
    let entrance =
        Negotiated { transport, wire: granted.wire, agent: Agent::of(&headers), admission: granted.admission };
    Verdict::Granted(Opening { answer, head, entrance })
}
