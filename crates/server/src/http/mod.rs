//! HTTP: hyper parses it; a WebSocket's bare socket is taken back and all that hyper held is freed.

mod respond;
mod route;
mod upgrade;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use touchline_engine::ShardId;

use crate::inbox::{Adopted, Message};
use crate::node::Node;

/// Bytes of a request's head, and of hyper's read buffer.
const HEAD_MAX: usize = 16 * 1024;
/// Header fields of a request.
const HEADERS_MAX: usize = 64;
/// Pause when a connection can't be accepted: without file descriptors, trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections for one shard until the node drains.
pub(crate) async fn accept(node: Arc<Node>, shard: ShardId, listener: TcpListener) {
    let mut draining = node.draining.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = draining.wait_for(|draining| *draining) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                tokio::task::spawn_local(serve(Arc::clone(&node), shard, stream, peer));
            }
            Err(error) => {
                node.shards[usize::from(shard)].metrics.accept_errors.add(1);
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Closing one listener of a group resets what waits in its backlog: keep it until the node is gone.
    while !node.is_stopped.load(std::sync::atomic::Ordering::Relaxed) {
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Serves the requests of one connection; if one of them upgrades it, hands the socket to the shard.
async fn serve(node: Arc<Node>, shard: ShardId, stream: TcpStream, peer: SocketAddr) {
    // Small writes should leave at once. A socket that refuses the option is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let is_upgraded = Rc::new(Cell::new(false));
    let service = service_fn(|request: Request<Incoming>| {
        let node = Arc::clone(&node);
        let is_upgraded = Rc::clone(&is_upgraded);
        // Boxed, because only a connection that can move gives its socket back.
        Box::pin(async move { Ok::<_, std::convert::Infallible>(route::answer(&node, shard, request, &is_upgraded).await) })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(node.settings.http_server.header_timeout)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut draining = node.draining.subscribe();
    let ended = tokio::select! {
        ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        _ = draining.wait_for(|draining| *draining) => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            std::future::poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    if ended.is_err() || !is_upgraded.get() {
        return;
    }
    let parts = connection.into_parts();
    let Ok(socket) = parts.io.into_inner().into_std() else { return };
    // The client's early bytes are copied: they would pin hyper's whole buffer.
    let early = bytes::Bytes::copy_from_slice(&parts.read_buf);
    let adopted = Adopted { socket, early, is_loopback: peer.ip().to_canonical().is_loopback() };
    node.send(shard, Message::Adopt(Box::new(adopted)));
}
