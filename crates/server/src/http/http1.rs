//! HTTP/1: hyper parses it; a connection that a request takes for itself is handed to the shard, and all that hyper
//! held is freed.

use std::rc::Rc;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::body::{BodyBudget, RequestBody, Rest};
use super::rewind::{Rewind, Stream, Watch};
use super::route::{self, Routed};
use super::stream::Admitted;
use super::takeover::{Taken, Takeover};
use super::timeouts::{Stage, TimeoutTimer};
use super::{HEAD_MAX, Origin};
use crate::handshake::{HEADERS_MAX, Negotiated};
use crate::mailbox::{AdoptedConnection, Message};
use crate::shard::AcceptedSocket;

/// Serves the requests of one connection, of which `early` has been read.
pub(super) async fn serve(origin: Origin, stream: Stream, early: Bytes) {
    let origin = Rc::new(origin);
    let node = &origin.node;
    let taking = Rc::new(Takeover::default());
    let pace = Rc::new(TimeoutTimer::new(node.clock.ticks(), &node.settings.http_server));
    let rest = Rc::new(Rest::default());
    let _held = BodyBudget::new(node.shards[usize::from(origin.shard)].http_counter(), HEAD_MAX);
    let service = service_fn(|request: Request<Incoming>| {
        let (origin, taking, pace, rest) = (Rc::clone(&origin), Rc::clone(&taking), Rc::clone(&pace), Rc::clone(&rest));
        let counter = origin.node.shards[usize::from(origin.shard)].http_counter();
        let request = RequestBody::wrap(request, Some(Rc::clone(&rest)), counter);
        // Boxed, because only a connection that can move gives its socket back.
        Box::pin(async move {
            pace.enter(Stage::Request);
            let mut answer = match route::answer(&origin, request).await {
                Routed::Answer(answer) => answer,
                Routed::Upgrade(answer, entrance) => {
                    taking.set(Taken::Upgrade(entrance));
                    answer
                }
                Routed::Stream(admitted) => taking.take(Taken::Stream(admitted)).await,
            };
            if rest.is_given_up() || origin.is_late {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            pace.enter(Stage::Waiting);
            Ok::<_, std::convert::Infallible>(answer)
        })
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(false)
        .serve_connection(
            TokioIo::new(Rewind::new(early, stream, Watch::Requests(Rc::clone(&pace), Rc::clone(&origin.pass)))),
            service,
        );
    let mut draining = node.draining.subscribe();
    let mut passing = std::pin::pin!(rest.pass_over());
    let ended = tokio::select! {
        // The connection first: what it has read and can answer is answered before a limit or a drain ends it.
        biased;
        ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        never = &mut passing => match never {},
        () = taking.now() => Ok(()),
        () = pace.overrun() => return,
        _ = draining.wait_for(|draining| *draining), if !origin.is_late => {
            // A request whose head is whole, or on its way, is served; there is none after it.
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            tokio::select! {
                ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
                never = &mut passing => match never {},
                () = pace.overrun() => return,
            }
        }
    };
    let (Ok(()), Some(taken)) = (ended, taking.taken()) else {
        // The last answer may still wait for room in the socket, and the client may still be sending.
        let _ = tokio::time::timeout(node.settings.http_server.request_timeout, connection).await;
        return;
    };
    let parts = connection.into_parts();
    let begun = parts.io.into_inner();
    // What hyper still owes to earlier requests can't be told from here.
    if begun.owes() {
        return;
    }
    let Ok(socket) = begun.into_inner().into_arrival() else { return };
    node.send(origin.shard, Message::Adopt(Box::new(guest(&origin, taken, socket, &parts.read_buf))));
}

/// The client whose connection this is from now on. `early`: what it has sent behind its request.
fn guest(origin: &Origin, taken: Taken, socket: AcceptedSocket, early: &[u8]) -> AdoptedConnection {
    let user = origin.user.clone();
    match taken {
        // The client's early bytes are copied: they would pin hyper's whole buffer.
        Taken::Upgrade(entrance) => {
            let early = Bytes::copy_from_slice(early);
            AdoptedConnection { socket, negotiated: entrance, response_head: Bytes::new(), prefix: early, user }
        }
        Taken::Stream(admitted) => {
            let greeting = admitted.head();
            let Admitted { transport, wire, commands, agent, admission, .. } = *admitted;
            AdoptedConnection {
                socket,
                negotiated: Negotiated { transport, wire, agent, admission },
                response_head: greeting,
                prefix: commands,
                user,
            }
        }
    }
}
