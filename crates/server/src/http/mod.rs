//! HTTP: hyper parses it; a WebSocket's bare socket is taken back and all that hyper held is freed.

mod begun;
mod cors;
mod emulation;
mod pace;
mod respond;
mod route;
mod stream;
mod taking;
mod upgrade;

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

use crate::handshake::{Entrance, HEADERS_MAX};
use crate::inbox::{Guest, Message};
use crate::node::Node;
use crate::shard::{Arrival, is_loopback};
use begun::Begun;
use pace::{Pace, Stage};
use stream::Admitted;
use taking::{Taken, Taking};

/// Bytes of a request's head, and of hyper's read buffer.
pub(crate) const HEAD_MAX: usize = 16 * 1024;

/// Serves the requests of one connection, of which `early` has been read; if one of them takes the rest of it, hands the socket to the shard.
pub(crate) async fn serve(node: Arc<Node>, shard: ShardId, socket: std::net::TcpStream, early: Bytes, peer: IpAddr) {
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    let taking = Rc::new(Taking::default());
    let pace = Rc::new(Pace::new(node.clock, &node.settings.http_server));
    let service = service_fn(|request: Request<Incoming>| {
        let (node, taking, pace) = (Arc::clone(&node), Rc::clone(&taking), Rc::clone(&pace));
        // Boxed, because only a connection that can move gives its socket back.
        Box::pin(async move {
            pace.enter(Stage::Request);
            let answer = route::answer(&node, shard, request, &taking).await;
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
        () = taking.now() => Ok(()),
        () = pace.overrun() => return,
        _ = draining.wait_for(|draining| *draining) => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            std::future::poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    let (Ok(()), Some(taken)) = (ended, taking.taken()) else { return };
    let parts = connection.into_parts();
    let begun = parts.io.into_inner();
    // What hyper still owes to earlier requests can't be told from here.
    if begun.owes() {
        return;
    }
    let Ok(socket) = begun.into_inner().into_std() else { return };
    let socket = Arrival::Tcp(socket);
    let guest = match taken {
        // The client's early bytes are copied: they would pin hyper's whole buffer.
        Taken::Upgrade(entrance) => {
            let early = Bytes::copy_from_slice(&parts.read_buf);
            Guest { socket, entrance, greeting: Bytes::new(), early, is_loopback: is_loopback(peer) }
        }
        Taken::Stream(admitted) => {
            let greeting = admitted.head();
            let Admitted { transport, wire, commands, agent, .. } = *admitted;
            Guest { socket, entrance: Entrance { transport, wire, agent }, greeting, early: commands, is_loopback: is_loopback(peer) }
        }
    };
    node.send(shard, Message::Adopt(Box::new(guest)));
}
