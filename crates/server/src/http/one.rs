//! HTTP/1: hyper parses it; a connection that a request takes for itself is handed to the shard, and all that hyper held is freed.

use std::rc::Rc;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::begun::{Begun, Stream};
use super::pace::{Pace, Stage};
use super::route::{self, Routed};
use super::stream::Admitted;
use super::taking::{Taken, Taking};
use super::{HEAD_MAX, Origin};
use crate::handshake::{Entrance, HEADERS_MAX};
use crate::inbox::{Guest, Message};

/// Serves the requests of one connection, of which `early` has been read.
pub(super) async fn serve(origin: Origin, stream: Stream, early: Bytes) {
    let origin = Rc::new(origin);
    let node = &origin.node;
    let taking = Rc::new(Taking::default());
    let pace = Rc::new(Pace::new(node.clock, &node.settings.http_server));
    let service = service_fn(|request: Request<Incoming>| {
        let (origin, taking, pace) = (Rc::clone(&origin), Rc::clone(&taking), Rc::clone(&pace));
        // Boxed, because only a connection that can move gives its socket back.
        Box::pin(async move {
            pace.enter(Stage::Request);
            let answer = match route::answer(&origin, request).await {
                Routed::Answer(answer) => answer,
                Routed::Upgrade(answer, entrance) => {
                    taking.set(Taken::Upgrade(entrance));
                    answer
                }
                Routed::Stream(admitted) => taking.take(Taken::Stream(admitted)).await,
            };
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
    let Ok(socket) = begun.into_inner().into_arrival() else { return };
    let user = origin.user.clone();
    let guest = match taken {
        // The client's early bytes are copied: they would pin hyper's whole buffer.
        Taken::Upgrade(entrance) => {
            let early = Bytes::copy_from_slice(&parts.read_buf);
            Guest { socket, entrance, greeting: Bytes::new(), early, user }
        }
        Taken::Stream(admitted) => {
            let greeting = admitted.head();
            let Admitted { transport, wire, commands, agent, admission, .. } = *admitted;
            Guest { socket, entrance: Entrance { transport, wire, agent, admission }, greeting, early: commands, user }
        }
    };
    node.send(origin.shard, Message::Adopt(Box::new(guest)));
}
