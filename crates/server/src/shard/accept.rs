//! How a shard accepts connections. If a WebSocket handshake arrives in one piece, the shard answers it itself, without
//! a task, a timer or a buffer. Every other request goes to hyper, with the bytes that have been read.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use mio::net::TcpStream;
use mio::{Interest, Token};
use touchline_protocol::deflate;

use super::acceptor::{Listener, NO_DESCRIPTORS, PendingConnection};
use super::state::{SCRATCH_SIZE, Shard};
use super::unauthenticated::{Closed, UnauthenticatedEntry};
use crate::net::agent::Agent;
use crate::net::headers::{HEADERS_MAX, Headers};
use crate::net::negotiated::Negotiated;
use crate::net::port::{Port, PortRole};
use crate::net::remote::Remote;
use crate::net::socket::Socket;
use crate::node::Node;
use crate::transport::handshake::{self, HandshakeRefusal};
use crate::transport::http::{HEAD_MAX, HttpCaller};

/// How many connections a shard accepts in one turn at most.
const ACCEPTS_MAX: usize = 32;
/// How long all listeners pause, in milliseconds, when a connection can't be accepted and the shard cannot close
/// another one for it. An immediate new attempt would spin.
const PAUSE_MS: u64 = 100;
/// How many TLS handshakes may begin at once, as time at their rate, in microseconds. It is twice the time between two
/// ticks, which end a pause.
const HANDSHAKES_BURST_US: u64 = 200_000;
// One read holds the longest head of a request.
const _: () = assert!(HEAD_MAX <= SCRATCH_SIZE);

impl Shard {
    /// Serves the bytes that a client sent immediately after its handshake.
    pub(super) fn receive_prefix(&mut self, slot: u32, mut prefix: Vec<u8>) {
        if !prefix.is_empty() {
            self.guarded(slot, |shard, slot| shard.receive(slot, &mut prefix));
        }
    }

    /// Whether a connection can be accepted at once.
    pub(super) fn has_ready_listener(&self) -> bool {
        self.acceptor.closed_until_ms <= self.now_ms
            && self.acceptor.listeners.iter().any(|listener| self.is_open(listener))
    }

    /// Whether the listener accepts connections and some may wait there. While the node drains, only HTTP accepts,
    /// because it can reply that the node drains.
    fn is_open(&self, listener: &Listener) -> bool {
        listener.is_ready
            && listener.paused_until_ms <= self.now_ms
            && (self.drain.is_none() || !listener.port.is_for_lines)
    }

    /// Accepts waiting connections.
    pub(super) fn accept(&mut self) {
        if self.has_ready_listener() {
            self.accept_some();
            self.publish_unauthenticated();
        }
    }

    /// Accepts again at once, because another shard has closed connections.
    pub(super) fn retry_accepts(&mut self) {
        self.acceptor.closed_until_ms = 0;
    }

    /// Accepts the connections of one turn, at most [`ACCEPTS_MAX`].
    fn accept_some(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            if !self.has_ready_listener() {
                return;
            }
            let now_ms = self.now_ms;
            let Some(open) = self.acceptor.listeners.iter().position(|listener| self.is_open(listener)) else { return };
            let listener = &mut self.acceptor.listeners[open];
            if listener.port.tls.is_some()
                && let Some(wait_us) = wait_for_handshake(&self.node)
            {
                listener.paused_until_ms = now_ms + wait_us.div_ceil(1_000);
                self.metrics.tls_pauses.add(1);
                continue;
            }
            match listener.listener.accept() {
                Ok((socket, peer)) => {
                    let port = listener.port.clone();
                    self.limit_unauthenticated();
                    self.isolated(|shard| shard.admit(socket, peer.ip(), port));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => listener.is_ready = false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if !self.makes_room(&error) => return,
                Err(_) => {}
            }
        }
    }

    /// Makes room after a connection could not be accepted. True = the next attempt may follow at once.
    fn makes_room(&mut self, error: &Error) -> bool {
        self.metrics.accept_errors.add(1);
        self.acceptor.report_error(error, self.now_ms);
        let is_short = error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code));
        match if is_short { self.make_room() } else { Closed::Nothing } {
            Closed::Now => true,
            // The task must run first, and it runs before the next turn.
            Closed::Soon => false,
            Closed::Elsewhere | Closed::Nothing => {
                self.acceptor.closed_until_ms = self.now_ms + PAUSE_MS;
                false
            }
        }
    }

    /// Begins to serve an accepted connection. A proxy's header or TLS takes more than one read, so a task does it, and
    /// returns the socket to the shard.
    fn admit(&mut self, socket: TcpStream, peer: IpAddr, port: Port) {
        let remote = Remote::of(peer);
        if port.is_introduced && !self.generation.proxies.contains(peer) {
            self.metrics.proxy_headers_refused.add_shared(1);
            tracing::debug!(%peer, "closed a connection that does not come from a trusted proxy");
            return;
        }
        if port.tls.is_some() && !port.is_introduced && self.node.is_unwelcome(remote, port.side, port.is_for_lines) {
            return;
        }
        if port.tls.is_some() {
            let limit = self.generation.settings.http_server.tls_handshake_rate_limit;
            self.node.admission.handshakes.try_admit(limit, HANDSHAKES_BURST_US, self.node.clock.elapsed_us());
        }
        if port.is_introduced || port.tls.is_some() {
            let caller = self.caller(remote, port.side);
            self.services.prepare(caller, socket.into(), port);
        } else if port.is_for_lines {
            self.serve_lines(socket, remote);
        } else {
            self.read_head(PendingConnection { socket, remote, side: port.side }, None);
        }
    }

    fn caller(&mut self, remote: Remote, side: PortRole) -> HttpCaller {
        HttpCaller { node: Arc::clone(&self.node), shard: self.id, remote, side, pass: self.pass() }
    }

    /// Serves lines over TCP, which need no handshake.
    fn serve_lines(&mut self, socket: TcpStream, remote: Remote) {
        if self.drain.is_none()
            && let Ok(admission) = self.node.admit(remote)
        {
            self.insert_connection(Socket::Tcp(socket), false, Negotiated::lines(admission));
        }
    }

    /// Serves a connection whose client address a proxy has reported. Tasks can only be started on the shard's own
    /// thread, and this may be another thread. So the connection becomes pending, and the poller reports its input.
    pub(super) fn serve_introduced(
        &mut self,
        socket: std::net::TcpStream,
        remote: Remote,
        side: PortRole,
        is_for_lines: bool,
    ) {
        let socket = TcpStream::from_std(socket);
        if is_for_lines {
            self.isolated(|shard| shard.serve_lines(socket, remote));
        } else {
            self.keep_pending(PendingConnection { socket, remote, side }, None);
        }
    }

    /// Reads a pending connection that the poller has reported.
    pub(super) fn read_pending(&mut self, token: Token) {
        if let Some(connection) = self.acceptor.pending.remove(&token.0) {
            self.serve_accepted(connection, Some(token));
        }
    }

    /// Closes the pending connections whose deadline has passed.
    pub(super) fn drop_overdue(&mut self) {
        while let Some((until_ms, token)) = self.acceptor.deadlines.front().copied() {
            if until_ms > self.now_ms && self.acceptor.pending.contains_key(&token) {
                break;
            }
            self.acceptor.deadlines.pop_front();
            self.acceptor.pending.remove(&token);
        }
    }

    /// Reads a pending connection. A panic ends that connection only, and is counted.
    fn serve_accepted(&mut self, connection: PendingConnection, known: Option<Token>) {
        self.isolated(|shard| shard.read_head(connection, known));
    }

    /// Reads the first bytes of a connection and decides what serves it. `known`: the connection's token; None = the
    /// poller does not know the connection.
    fn read_head(&mut self, mut connection: PendingConnection, known: Option<Token>) {
        // A request that is read after the node has stopped might get no response.
        if self.node.is_stopped.load(Relaxed) {
            return;
        }
        let length = match connection.socket.read(&mut self.scratch) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return self.keep_pending(connection, known);
            }
            Err(_) => return,
        };
        let verdict = match connection.side {
            side if !side.serves_clients() => HandshakeVerdict::ForHttp,
            _ if self.drain.is_some() => HandshakeVerdict::ForHttp,
            _ => grant(&self.node, connection.remote, &self.scratch[..length]),
        };
        let GrantedHandshake { response, negotiated } = match verdict {
            HandshakeVerdict::Granted(granted) => granted,
            HandshakeVerdict::Denied(response) => {
                // The whole request was read, so the close causes no reset that would destroy the response on its way.
                let _ = connection.socket.write(response);
                return;
            }
            HandshakeVerdict::ForHttp => return self.hand_to_http(connection, known, length),
        };
        // The buffer of a new socket has room for these few bytes.
        if matches!(connection.socket.write(&response), Ok(written) if written == response.len()) {
            self.insert_connection(Socket::Tcp(connection.socket), known.is_some(), negotiated);
        }
    }

    /// Keeps a connection pending until the poller reports it. `known`: the same as in [`Shard::read_head`].
    fn keep_pending(&mut self, mut connection: PendingConnection, known: Option<Token>) {
        let token = known.unwrap_or(Token(self.acceptor.next_pending));
        if known.is_none() {
            if self.registry.register(&mut connection.socket, token, Interest::READABLE | Interest::WRITABLE).is_err() {
                return;
            }
            self.acceptor.next_pending += 1;
            let until_ms = self.now_ms + self.generation.settings.http_server.header_timeout.as_millis() as u64;
            self.acceptor.deadlines.push_back((until_ms, token.0));
        }
        self.acceptor.pending.insert(token.0, connection);
        if known.is_none() {
            self.note_unauthenticated(UnauthenticatedEntry::Pending(token));
        }
    }

    /// Starts a task that serves a connection by HTTP. `length`: how many bytes of it are in the scratch buffer.
    fn hand_to_http(&mut self, mut connection: PendingConnection, known: Option<Token>, length: usize) {
        if known.is_some() && self.registry.deregister(&mut connection.socket).is_err() {
            return;
        }
        let prefix = Bytes::copy_from_slice(&self.scratch[..length]);
        let caller = self.caller(connection.remote, connection.side);
        self.services.serve_http(caller, connection.socket.into(), prefix);
    }
}

/// How long a TLS handshake has to wait, in microseconds; None = it may begin.
fn wait_for_handshake(node: &Node) -> Option<u64> {
    let limit = node.generation().settings.http_server.tls_handshake_rate_limit;
    node.admission.handshakes.wait(limit, HANDSHAKES_BURST_US, node.clock.elapsed_us())
}

/// The response to a handshake while the node accepts no more clients. It needs no task and no buffer.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 29\r\n\r\nno room for more connections\n";

/// The response to a handshake of a client whose address is refused for a while.
const REFUSED: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 36\r\n\r\nthis address is refused for a while\n";

/// The response to a handshake of a client whose address has too many connections.
const ADDRESS_FULL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 39\r\n\r\ntoo many connections from this address\n";

/// A handshake that the shard grants, and its response.
struct GrantedHandshake {
    /// The head of the response.
    response: Vec<u8>,
    negotiated: Negotiated,
}

/// What serves a connection, decided by its first bytes.
enum HandshakeVerdict {
    /// The handshake is good, and the shard serves the connection.
    Granted(GrantedHandshake),
    /// The handshake is good, but the client is not admitted; it gets this response.
    Denied(&'static [u8]),
    /// Hyper serves the connection.
    ForHttp,
}

/// Examines the first bytes. It grants only a whole, good handshake without a body and without frames after it. Hyper
/// serves everything else.
fn grant(node: &Node, remote: Remote, bytes: &[u8]) -> HandshakeVerdict {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else { return HandshakeVerdict::ForHttp };
    let Some(target) = request.path else { return HandshakeVerdict::ForHttp };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if request.method != Some("GET") || request.version != Some(1) || head > HEAD_MAX || head != bytes.len() {
        return HandshakeVerdict::ForHttp;
    }
    let Some(transport) = handshake::transport_of(node, path) else { return HandshakeVerdict::ForHttp };
    let headers: &[httparse::Header<'_>] = request.headers;
    if headers.value(&CONTENT_LENGTH).is_some() || headers.value(&TRANSFER_ENCODING).is_some() {
        return HandshakeVerdict::ForHttp;
    }
    let granted = match handshake::examine(node, remote, transport, query, &headers) {
        Ok(granted) => granted,
        // These are counted, so no other part may examine the handshake again.
        Err(HandshakeRefusal::Full) => return HandshakeVerdict::Denied(FULL),
        Err(HandshakeRefusal::Refused) => return HandshakeVerdict::Denied(REFUSED),
        Err(HandshakeRefusal::Address) => return HandshakeVerdict::Denied(ADDRESS_FULL),
        Err(_) => return HandshakeVerdict::ForHttp,
    };
    let mut response =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "
            .to_vec();
    response.extend_from_slice(granted.accept_key.as_bytes());
    if let Some(subprotocol) = granted.subprotocol {
        response.extend_from_slice(b"\r\nSec-WebSocket-Protocol: ");
        response.extend_from_slice(subprotocol.as_bytes());
    }
    if granted.is_deflated() {
        response.extend_from_slice(b"\r\nSec-WebSocket-Extensions: ");
        response.extend_from_slice(deflate::GRANTED.as_bytes());
    }
    response.extend_from_slice(b"\r\n\r\n");
    let negotiated = Negotiated {
        transport,
        wire: granted.wire,
        agent: Agent::of(&headers),
        admission: granted.admission,
        fields: node.generation().kept_fields.of(remote, &node.generation().proxies, &headers),
    };
    HandshakeVerdict::Granted(GrantedHandshake { response, negotiated })
}
