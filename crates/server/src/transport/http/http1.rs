//! HTTP/1, which hyper parses. When a request takes its connection over, the socket moves to the shard and hyper's
//! buffers are freed.

use std::convert::Infallible;
use std::rc::Rc;

use bytes::Bytes;
use hyper::Request;
#[cfg(feature = "grpc")]
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::body::{BodyBudget, RequestBody, Rest};
use super::caller::{HEAD_MAX, Origin};
#[cfg(feature = "grpc")]
use super::respond;
use super::respond::HttpResponse;
use super::rewind::{ConnectionWatch, HttpStream, Rewind};
use super::routed::{Routed, Router};
use super::stream::Admitted;
use super::takeover::{Taken, Takeover};
use super::timeouts::{RequestStage, TimeoutTimer};
use crate::net::headers::HEADERS_MAX;
use crate::net::negotiated::Negotiated;
use crate::net::socket::AcceptedSocket;
use crate::runtime::mailbox::{AdoptedConnection, Message};

/// Serves the requests of one connection. `prefix`: the bytes that were already read from it.
pub(super) async fn serve<R: Router>(origin: Origin, stream: HttpStream, prefix: Bytes) {
    let origin = Rc::new(origin);
    let node = &origin.node;
    let takeover = Rc::new(Takeover::default());
    let timer = Rc::new(TimeoutTimer::new(node.clock.clone(), &node.generation().settings.http_server));
    let rest = Rc::new(Rest::default());
    let _budget = BodyBudget::new(node.shards[usize::from(origin.shard)].http_counter(), HEAD_MAX);
    let service = service_fn(|request: Request<Incoming>| {
        let (origin, takeover) = (Rc::clone(&origin), Rc::clone(&takeover));
        let (timer, rest) = (Rc::clone(&timer), Rc::clone(&rest));
        let counter = origin.node.shards[usize::from(origin.shard)].http_counter();
        let request = RequestBody::wrap(request, Some(Rc::clone(&rest)), counter);
        // The future is boxed, because only a connection that can move gives its socket back. It is copied into its
        // box, so that no other future surrounds it.
        Box::pin(answer::<R>(origin, takeover, timer, rest, request))
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(false)
        .serve_connection(
            TokioIo::new(Rewind::new(
                prefix,
                stream,
                ConnectionWatch::Requests(Rc::clone(&timer), Rc::clone(&origin.pass)),
            )),
            service,
        );
    let mut passing = std::pin::pin!(rest.pass_over());
    let ended = tokio::select! {
        // The connection comes first, so it answers the requests that it has read before a limit or a drain ends it.
        biased;
        ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        never = &mut passing => match never {},
        () = takeover.now() => Ok(()),
        () = timer.overrun() => return,
        () = node.drain.begun(), if !origin.is_late => {
            // The current request is served, even if its head is still incomplete. No other request follows it.
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            tokio::select! {
                ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
                never = &mut passing => match never {},
                () = timer.overrun() => return,
            }
        }
    };
    let (Ok(()), Some(taken)) = (ended, takeover.taken()) else {
        // The last answer may still wait for room in the socket, and the client may still be sending.
        let _ = node.clock.time().timeout(node.generation().settings.http_server.request_timeout, connection).await;
        return;
    };
    let parts = connection.into_parts();
    let rewind = parts.io.into_inner();
    // Answers to earlier requests that are still in hyper's buffer would be lost.
    if rewind.owes() {
        return;
    }
    if let Taken::HandOver(task) = taken {
        origin.pass.settle();
        let stream = Rewind::new(parts.read_buf, rewind.into_inner(), ConnectionWatch::Nothing);
        return task(Box::new(stream)).await;
    }
    let Ok(socket) = rewind.into_inner().into_arrival() else { return };
    if let Some(adopted) = adopted_connection(&origin, taken, socket, &parts.read_buf) {
        node.send(origin.shard, Message::Adopt(Box::new(adopted)));
    }
}

/// Answers one request. A request that takes its connection over announces it in `takeover`.
async fn answer<R: Router>(
    origin: Rc<Origin>,
    takeover: Rc<Takeover>,
    timer: Rc<TimeoutTimer>,
    rest: Rc<Rest>,
    request: Request<RequestBody>,
) -> Result<HttpResponse, Infallible> {
    timer.enter(RequestStage::Request);
    let mut answer = match R::answer(&origin, request).await {
        Routed::Answer(answer) => answer,
        Routed::Upgrade(answer, negotiated) => {
            takeover.set(Taken::Upgrade(negotiated));
            answer
        }
        Routed::HandOver(answer, task) => {
            takeover.set(Taken::HandOver(task));
            answer
        }
        Routed::TakeOver(task) => takeover.take(Taken::HandOver(task)).await,
        Routed::Stream(admitted) => takeover.take(Taken::Stream(admitted)).await,
        #[cfg(feature = "grpc")]
        Routed::Grpc(..) => respond::text(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC needs HTTP/2\n"),
    };
    if rest.is_given_up() || origin.is_late {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    timer.enter(RequestStage::Waiting);
    Ok(answer)
}

/// The connection in the form that the shard adopts; None = the shard does not adopt it. `prefix`: the bytes that the
/// client has sent after its request.
fn adopted_connection(
    origin: &Origin,
    taken: Taken,
    socket: AcceptedSocket,
    prefix: &[u8],
) -> Option<AdoptedConnection> {
    let user = origin.user.clone();
    Some(match taken {
        // The prefix is copied, because a slice would keep hyper's whole buffer alive.
        Taken::Upgrade(negotiated) => {
            let prefix = Bytes::copy_from_slice(prefix);
            AdoptedConnection { socket, negotiated, response_head: Bytes::new(), prefix, user }
        }
        Taken::HandOver(_) => return None,
        Taken::Stream(admitted) => {
            let response_head = admitted.head();
            let Admitted { transport, wire, commands, agent, admission, fields, .. } = *admitted;
            AdoptedConnection {
                socket,
                negotiated: Negotiated { transport, wire, agent, admission, fields },
                response_head,
                prefix: commands,
                user,
            }
        }
    })
}
