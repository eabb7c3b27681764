//! HTTP/1 and HTTP/2, with TLS or without.

mod body;
mod cors;
mod emulation;
mod frames;
mod gauge;
mod http1;
mod http2;
mod respond;
mod rewind;
mod route;
mod stream;
mod takeover;
mod timeouts;
mod upgrade;

use std::net::TcpStream as StdTcpStream;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use touchline_engine::ShardId;
use touchline_protocol::message::Encoding;
use touchline_protocol::wire::{Coding, Framing, Wire};

use crate::admission::Admission;
use crate::agent::Agent;
use crate::handshake::Negotiated;
use crate::mailbox::{AdoptedConnection, Message};
use crate::node::Node;
use crate::proxies::Remote;
use crate::proxy_protocol;
use crate::shard::Pass;
use crate::tls::Tls;
use crate::transport::Transport;
use rewind::Stream;

/// Bytes of a request's head, and of hyper's read buffer.
pub(crate) const HEAD_MAX: usize = 16 * 1024;
/// How a connection of HTTP/2 begins (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes by which it is told from any request of HTTP/1.
const PREFACE_TELLS: usize = 3;

/// Where requests come from, and who serves them.
struct Origin {
    node: Arc<Node>,
    shard: ShardId,
    remote: Remote,
    side: Side,
    /// The user whom the client's certificate names.
    user: Option<String>,
    /// The connection came after the drain had begun: only probes are answered.
    is_late: bool,
    pass: Rc<Pass>,
}

/// A connection that a task serves.
pub(crate) struct Caller {
    pub(crate) node: Arc<Node>,
    pub(crate) shard: ShardId,
    pub(crate) remote: Remote,
    pub(crate) side: Side,
    pub(crate) pass: Pass,
}

/// What a port of HTTP serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// All of it: there is one port.
    Whole,
    /// Clients: the rest has a port of its own.
    Outer,
    /// What is not for clients.
    Inner,
}

impl Side {
    /// Whether clients, and pages for them, are served.
    pub(crate) fn serves_clients(self) -> bool {
        self != Side::Inner
    }

    /// Whether metrics and probes are served.
    pub(crate) fn serves_operators(self) -> bool {
        self != Side::Outer
    }

    /// Whether the server API is served. `is_external`: it belongs to the clients' port.
    pub(crate) fn serves_api(self, is_external: bool) -> bool {
        match self {
            Side::Whole => true,
            Side::Outer => is_external,
            Side::Inner => !is_external,
        }
    }
}

/// What a port speaks.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) side: Side,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) is_for_lines: bool,
    /// Connections begin with a header of the PROXY protocol.
    pub(crate) is_introduced: bool,
}

/// Does the work for a connection, unless it has to go before that.
async fn hold(caller: Caller, work: impl AsyncFnOnce(Origin)) {
    let Caller { node, shard, remote, side, pass } = caller;
    let pass = Rc::new(pass);
    let is_late = *node.draining.borrow();
    if is_late {
        // It is told to go elsewhere, and delays nothing.
        pass.part();
    }
    let origin = Origin { node, shard, remote, side, user: None, is_late, pass: Rc::clone(&pass) };
    tokio::select! {
        // A request that has ended in the same moment is answered before the connection is closed.
        biased;
        () = work(origin) => {}
        () = pass.revoked() => {}
    }
}

/// Serves the requests of one connection, of which `early` has been read; if one of them takes the rest of it, hands
/// the socket to the shard.
pub(crate) async fn serve(caller: Caller, socket: StdTcpStream, early: Bytes) {
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    hold(caller, async |origin| {
        if early.len() >= PREFACE_TELLS && (early.starts_with(PREFACE) || PREFACE.starts_with(&early)) {
            http2::serve(origin, Stream::Plain(stream), early).await;
        } else {
            http1::serve(origin, Stream::Plain(stream), early).await;
        }
    })
    .await;
}

/// Hears whose the connection is where a proxy has to tell, agrees upon TLS where the port speaks it, and goes on as
/// the port does.
pub(crate) async fn prepare(caller: Caller, socket: StdTcpStream, port: Port) {
    let Ok(mut stream) = TcpStream::from_std(socket) else { return };
    hold(caller, async |mut origin| {
        if port.is_introduced {
            let Some(remote) = introduced(&origin, &mut stream).await else { return };
            origin.remote = remote;
        }
        match port.tls {
            Some(tls) => serve_tls(origin, stream, &tls, port.is_for_lines).await,
            None => {
                let Ok(socket) = stream.into_std() else { return };
                let introduced = Message::Introduced {
                    socket,
                    remote: origin.remote,
                    side: port.side,
                    is_for_lines: port.is_for_lines,
                };
                origin.node.send(origin.shard, introduced);
            }
        }
    })
    .await;
}

/// Does what precedes a request. None = it failed, took too long, or the node begins to drain: nothing has been asked
/// for yet. Whoever comes later than that is told so.
async fn in_time<T>(node: &Node, is_late: bool, work: impl Future<Output = Option<T>>) -> Option<T> {
    let mut draining = node.draining.subscribe();
    tokio::select! {
        biased;
        done = tokio::time::timeout(node.settings.http_server.header_timeout, work) => done.ok().flatten(),
        _ = draining.wait_for(|draining| *draining), if !is_late => None,
    }
}

/// Whom the proxy's header tells of. None = it did not come whole, good and in time.
async fn introduced(origin: &Origin, stream: &mut TcpStream) -> Option<Remote> {
    let proxy = origin.remote.address;
    let remote = in_time(&origin.node, origin.is_late, proxy_protocol::read(stream, proxy)).await;
    if remote.is_none() {
        origin.node.metrics_here().proxy_headers_refused.add_shared(1);
        tracing::debug!(%proxy, "a connection was closed: no good header of the PROXY protocol");
    }
    remote
}

/// Agrees upon TLS, then serves requests, or hands the socket to the shard for lines.
async fn serve_tls(mut origin: Origin, stream: TcpStream, tls: &Tls, is_for_lines: bool) {
    let Some(stream) = agree(&origin, stream, tls).await else { return };
    let session = stream.get_ref().1;
    let is_two = session.alpn_protocol() == Some(b"h2");
    origin.user = tls.user(session.peer_certificates());
    if is_for_lines {
        hand_on_lines(origin, stream);
    } else if is_two {
        http2::serve(origin, Stream::Tls(stream), Bytes::new()).await;
    } else {
        http1::serve(origin, Stream::Tls(stream), Bytes::new()).await;
    }
}

fn hand_on_lines(origin: Origin, stream: Box<TlsStream<TcpStream>>) {
    let (Ok(admission), Ok(socket)) = (origin.node.admit(origin.remote), Stream::Tls(stream).into_arrival()) else {
        return;
    };
    let entrance = lines(admission);
    let (greeting, early) = Default::default();
    origin.node.send(
        origin.shard,
        Message::Adopt(Box::new(AdoptedConnection {
            socket,
            negotiated: entrance,
            response_head: greeting,
            prefix: early,
            user: origin.user,
        })),
    );
}

/// How a client of lines comes in.
pub(crate) fn lines(admission: Admission) -> Negotiated {
    Negotiated { transport: Transport::Tcp, wire: LINES, agent: Agent::Unknown, admission }
}

/// How messages leave over bare TCP.
const LINES: Wire = Wire { encoding: Encoding::Json, framing: Framing::Stream(Coding::Identity) };

/// Agrees upon TLS. Whoever only asked for a proof of a name has it by then, and nothing else is served to it.
async fn agree(origin: &Origin, stream: TcpStream, tls: &Tls) -> Option<Box<TlsStream<TcpStream>>> {
    let stream = in_time(&origin.node, origin.is_late, async {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await.ok()?;
        if let Some(proof) = tls.proof(&begun.client_hello()) {
            let _ = begun.into_stream(proof).await.ok()?.shutdown().await;
            return None;
        }
        begun.into_stream(tls.config()).await.ok()
    });
    stream.await.map(Box::new)
}
