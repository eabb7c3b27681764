//! What precedes the first request of a connection: the header of a proxy, TLS, and the choice of the HTTP version.

use std::net::TcpStream as StdTcpStream;
use std::rc::Rc;

use bytes::Bytes;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::caller::{HttpCaller, Origin};
use super::rewind::HttpStream;
use super::routed::Router;
use super::{http1, http2};
use crate::net::negotiated::Negotiated;
use crate::net::port::Port;
use crate::net::proxy_protocol;
use crate::net::remote::Remote;
use crate::node::Node;
use crate::runtime::mailbox::{AdoptedConnection, Message};
use crate::tls::Tls;

/// The first bytes of an HTTP/2 connection (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How many bytes of the preface distinguish it from every HTTP/1 request.
const PREFACE_DISTINCT: usize = 3;

/// Runs the work of a connection until it ends, or until the shard revokes its guard.
async fn run_until_revoked(caller: HttpCaller, work: impl AsyncFnOnce(Origin)) {
    let HttpCaller { node, shard, remote, side, pass } = caller;
    let pass = Rc::new(pass);
    let is_late = node.drain.has_begun();
    if is_late {
        // The client gets a response that sends it to another node. The drain does not wait for it.
        pass.part();
    }
    let origin = Origin { node, shard, remote, side, user: None, is_late, pass: Rc::clone(&pass) };
    tokio::select! {
        // A request that ends at the same moment is answered before the connection is closed.
        biased;
        () = work(origin) => {}
        () = pass.revoked() => {}
    }
}

/// Serves the requests of one connection. `prefix`: the bytes that were already read from it. If a request takes the
/// connection over, the socket moves to the shard.
pub(crate) async fn serve<R: Router>(caller: HttpCaller, socket: StdTcpStream, prefix: Bytes) {
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    run_until_revoked(caller, async |origin| {
        if prefix.len() >= PREFACE_DISTINCT && (prefix.starts_with(PREFACE) || PREFACE.starts_with(&prefix)) {
            http2::serve::<R>(origin, HttpStream::Plain(stream), prefix).await;
        } else {
            http1::serve::<R>(origin, HttpStream::Plain(stream), prefix).await;
        }
    })
    .await;
}

/// Reads the PROXY header if the port expects one, does the TLS handshake if the port uses TLS, and then serves the
/// connection as its port does.
pub(crate) async fn prepare<R: Router>(caller: HttpCaller, socket: StdTcpStream, port: Port) {
    let Ok(mut stream) = TcpStream::from_std(socket) else { return };
    run_until_revoked(caller, async |mut origin| {
        if port.is_introduced {
            let Some(remote) = introduced(&origin, &mut stream).await else { return };
            origin.remote = remote;
        }
        match port.tls {
            Some(_) if port.is_introduced && origin.node.is_unwelcome(origin.remote, port.side, port.is_for_lines) => {}
            Some(tls) => serve_tls::<R>(origin, stream, &tls, port.is_for_lines).await,
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

/// Does the work that precedes the first request. None = it failed, took longer than `http_server.header_timeout`, or
/// the node started to drain while the client had sent no request yet. A client that connects during the drain
/// (`is_late`) is served until it gets that response.
async fn in_time<T>(node: &Node, is_late: bool, work: impl Future<Output = Option<T>>) -> Option<T> {
    let limit = node.generation().settings.http_server.header_timeout;
    tokio::select! {
        biased;
        done = node.clock.time().timeout(limit, work) => done.ok().flatten(),
        () = node.drain.begun(), if !is_late => None,
    }
}

/// The client that the PROXY header names; None = the header was malformed, incomplete or late.
async fn introduced(origin: &Origin, stream: &mut TcpStream) -> Option<Remote> {
    let proxy = origin.remote.address;
    let remote = in_time(&origin.node, origin.is_late, proxy_protocol::read(stream, proxy)).await;
    if remote.is_none() {
        origin.node.metrics_here().proxy_headers_refused.add_shared(1);
        tracing::debug!(%proxy, "a connection was closed: no valid PROXY protocol header");
    }
    remote
}

/// The user that the certificate of the peer names. None = it names no user, or the certificate is that of a trusted
/// proxy. A proxy names users by a header field; the proxy itself is not a client.
fn certified(origin: &Origin, user: impl FnOnce() -> Option<String>) -> Option<String> {
    let Origin { node, remote, .. } = origin;
    let is_proxy = node.generation().kept_fields.user.is_some() && node.generation().proxies.contains(remote.address);
    if is_proxy { None } else { user() }
}

/// Does the TLS handshake. Then it serves requests, or passes the socket to the shard for lines.
async fn serve_tls<R: Router>(mut origin: Origin, stream: TcpStream, tls: &Tls, is_for_lines: bool) {
    let Some(stream) = accept_tls(&origin, stream, tls).await else { return };
    let session = stream.get_ref().1;
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    origin.user = certified(&origin, || tls.user(session.peer_certificates()));
    if is_for_lines {
        adopt_lines(origin, stream);
    } else if is_http2 {
        http2::serve::<R>(origin, HttpStream::Tls(stream), Bytes::new()).await;
    } else {
        http1::serve::<R>(origin, HttpStream::Tls(stream), Bytes::new()).await;
    }
}

/// Passes a connection with lines to the shard, which adopts it.
fn adopt_lines(origin: Origin, stream: Box<TlsStream<TcpStream>>) {
    let (Ok(admission), Ok(socket)) = (origin.node.admit(origin.remote), HttpStream::Tls(stream).into_arrival()) else {
        return;
    };
    origin.node.send(
        origin.shard,
        Message::Adopt(Box::new(AdoptedConnection {
            socket,
            negotiated: Negotiated::lines(admission),
            response_head: Bytes::new(),
            prefix: Bytes::new(),
            user: origin.user,
        })),
    );
}

/// Does the TLS handshake. None = it failed, or it was an ACME challenge, after which the connection serves nothing
/// else.
async fn accept_tls(origin: &Origin, stream: TcpStream, tls: &Tls) -> Option<Box<TlsStream<TcpStream>>> {
    let stream = in_time(&origin.node, origin.is_late, async {
        let handshake = LazyConfigAcceptor::new(Acceptor::default(), stream).await.ok()?;
        if let Some(challenge) = tls.challenge_config(&handshake.client_hello()) {
            let _ = handshake.into_stream(challenge).await.ok()?.shutdown().await;
            return None;
        }
        handshake.into_stream(tls.config()).await.ok()
    });
    stream.await.map(Box::new)
}
