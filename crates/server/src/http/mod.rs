//! HTTP: hyper parses it; a WebSocket's bare socket is taken back and all that hyper held is freed.

mod begun;
mod pace;
mod respond;
mod route;
mod upgrade;

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use touchline_engine::ShardId;

use crate::handshake::HEADERS_MAX;
use crate::inbox::{Adopted, Message};
use crate::node::Node;
use crate::shard::is_loopback;
use begun::Begun;
use pace::{Pace, Stage};

/// Bytes of a request's head, and of hyper's read buffer.
pub(crate) const HEAD_MAX: usize = 16 * 1024;

/// Serves the requests of one connection, of which `early` has been read; if one of them upgrades it, hands the socket to the shard.
pub(crate) async fn serve(node: Arc<Node>, shard: ShardId, socket: std::net::TcpStream, early: Bytes, peer: IpAddr) {
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    let upgraded = Rc::new(Cell::new(None));
    let pace = Rc::new(Pace::new(node.clock, &node.settings.http_server));
    let service = service_fn(|request: Request<Incoming>| {
        let (node, upgraded, pace) = (Arc::clone(&node), Rc::clone(&upgraded), Rc::clone(&pace));
        // Boxed, because only a connection that can move gives its socket back.
        Box::pin(async move {
            pace.enter(Stage::Request);
            let answer = route::answer(&node, shard, request, &upgraded).await;
            pace.enter(Stage::Waiting);
            Ok::<_, std::convert::Infallible>(answer)
        })
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(false)
        .serve_connection(TokioIo::new(Begun::new(early, stream, Rc::clone(&pace))), service);
    let mut draining = node.draining.subscribe();
    let ended = tokio::select! {
        ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        () = pace.overrun() => return,
        _ = draining.wait_for(|draining| *draining) => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            std::future::poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    let (Ok(_), Some(agent)) = (ended, upgraded.get()) else { return };
    let parts = connection.into_parts();
    let Ok(socket) = parts.io.into_inner().into_inner().into_std() else { return };
    // The client's early bytes are copied: they would pin hyper's whole buffer.
    let early = Bytes::copy_from_slice(&parts.read_buf);
    let adopted = Adopted { socket, early, is_loopback: is_loopback(peer), agent };
    node.send(shard, Message::Adopt(Box::new(adopted)));
}
