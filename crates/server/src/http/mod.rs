//! HTTP/1 and HTTP/2, with TLS or without.

mod begun;
mod body;
mod cors;
mod emulation;
mod frames;
mod gauge;
mod one;
mod pace;
mod respond;
mod route;
mod stream;
mod taking;
mod two;
mod upgrade;

use std::net::{IpAddr, TcpStream as StdTcpStream};
use std::sync::Arc;

use bytes::Bytes;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use touchline_engine::ShardId;
use touchline_protocol::message::Body;
use touchline_protocol::wire::{Coding, Envelope, Wire};

use crate::agent::Agent;
use crate::handshake::Entrance;
use crate::inbox::{Guest, Message};
use crate::node::Node;
use crate::shard::is_loopback;
use crate::tls::Tls;
use crate::transport::Transport;
use begun::Stream;

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
    is_loopback: bool,
    /// The user whom the client's certificate names.
    user: Option<String>,
}

/// Serves the requests of one connection, of which `early` has been read; if one of them takes the rest of it, hands the socket to the shard.
pub(crate) async fn serve(node: Arc<Node>, shard: ShardId, socket: StdTcpStream, early: Bytes, peer: IpAddr) {
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    let origin = Origin { node, shard, is_loopback: is_loopback(peer), user: None };
    if early.len() >= PREFACE_TELLS && (early.starts_with(PREFACE) || PREFACE.starts_with(&early)) {
        two::serve(origin, Stream::Plain(stream), early).await;
    } else {
        one::serve(origin, Stream::Plain(stream), early).await;
    }
}

/// Agrees upon TLS, then serves requests.
pub(crate) async fn serve_tls(node: Arc<Node>, shard: ShardId, socket: StdTcpStream, peer: IpAddr, tls: Arc<Tls>) {
    let Some(stream) = agree(&node, socket, &tls).await else { return };
    let session = stream.get_ref().1;
    let is_two = session.alpn_protocol() == Some(b"h2");
    let user = tls.user(session.peer_certificates());
    let origin = Origin { node, shard, is_loopback: is_loopback(peer), user };
    if is_two {
        two::serve(origin, Stream::Tls(stream), Bytes::new()).await;
    } else {
        one::serve(origin, Stream::Tls(stream), Bytes::new()).await;
    }
}

/// Agrees upon TLS, then hands the socket to the shard for lines.
pub(crate) async fn serve_lines_tls(node: Arc<Node>, shard: ShardId, socket: StdTcpStream, peer: IpAddr, tls: Arc<Tls>) {
    let Some(stream) = agree(&node, socket, &tls).await else { return };
    let user = tls.user(stream.get_ref().1.peer_certificates());
    let Ok(socket) = Stream::Tls(stream).into_arrival() else { return };
    let entrance = Entrance { transport: Transport::Tcp, wire: LINES, agent: Agent::Unknown };
    let (greeting, early) = Default::default();
    node.send(shard, Message::Adopt(Box::new(Guest { socket, entrance, greeting, early, is_loopback: is_loopback(peer), user })));
}

/// How messages leave over bare TCP.
pub(crate) const LINES: Wire = Wire { body: Body::Json, envelope: Envelope::Stream(Coding::Identity) };

/// Agrees upon TLS. Whoever only asked for a proof of a name has it by then, and nothing else is served to it.
async fn agree(node: &Node, socket: StdTcpStream, tls: &Tls) -> Option<Box<TlsStream<TcpStream>>> {
    let stream = TcpStream::from_std(socket).ok()?;
    let agreed = async {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await.ok()?;
        if let Some(proof) = tls.proof(&begun.client_hello()) {
            let _ = begun.into_stream(proof).await.ok()?.shutdown().await;
            return None;
        }
        begun.into_stream(tls.config()).await.ok()
    };
    tokio::time::timeout(node.settings.http_server.header_timeout, agreed).await.ok()?.map(Box::new)
}
