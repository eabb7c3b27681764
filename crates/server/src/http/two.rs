//! HTTP/2: a client's endless answer, or its WebSocket (RFC 8441), is one of many streams of a socket. The shard gets one end of a pair of
//! sockets, and a task carries the bytes between the other end and the stream.

use std::cell::Cell;
use std::convert::Infallible;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

use super::begun::{Begun, Stream};
use super::pace::{Pace, Stage};
use super::route::{self, Routed};
use super::stream::Admitted;
use super::{HEAD_MAX, Origin};
use crate::handshake::Entrance;
use crate::inbox::{Guest, Message};
use crate::shard::Arrival;

/// Streams that a client may have open at a time.
const STREAMS_MAX: u32 = 250;
/// Most bytes of an answer's body in one piece.
const PIECE: usize = 16 * 1024;
/// Between two looks whether a link is there, and how long an answer may take.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Serves the streams of one connection, of which `early` has been read.
pub(super) async fn serve(origin: Origin, stream: Stream, early: Bytes) {
    let origin = Rc::new(origin);
    let node = Arc::clone(&origin.node);
    let pace = Rc::new(Pace::new(node.clock, &node.settings.http_server));
    let requests = Rc::new(Cell::new(0usize));
    let service = {
        let (pace, requests, origin) = (Rc::clone(&pace), Rc::clone(&requests), Rc::clone(&origin));
        service_fn(move |request: Request<Incoming>| {
            let under_way = UnderWay::begin(&pace, &requests);
            let origin = Rc::clone(&origin);
            async move { Ok::<_, Infallible>(answer(&origin, request, under_way).await) }
        })
    };
    let mut connection = Box::pin(
        http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_MAX as u32)
            .keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .enable_connect_protocol()
            .serve_connection(TokioIo::new(Begun::new(early, stream, Rc::clone(&pace))), service),
    );
    let mut draining = node.draining.subscribe();
    tokio::select! {
        _ = connection.as_mut() => {}
        () = pace.overrun() => {}
        _ = draining.wait_for(|draining| *draining) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Runs what hyper wants run on the shard's own thread.
#[derive(Clone)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// A request, or the stream that came of it: while there is one the connection is not idle, and its time is its own.
struct UnderWay {
    pace: Rc<Pace>,
    requests: Rc<Cell<usize>>,
}

impl UnderWay {
    fn begin(pace: &Rc<Pace>, requests: &Rc<Cell<usize>>) -> Self {
        requests.set(requests.get() + 1);
        pace.enter(Stage::Busy);
        UnderWay { pace: Rc::clone(pace), requests: Rc::clone(requests) }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.requests.set(self.requests.get() - 1);
        if self.requests.get() == 0 {
            self.pace.enter(Stage::Waiting);
        }
    }
}

type Answer = Response<Either<Full<Bytes>, Endless>>;

async fn answer(origin: &Origin, mut request: Request<Incoming>, under_way: UnderWay) -> Answer {
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let limit = origin.node.settings.http_server.request_timeout;
    let Ok(routed) = tokio::time::timeout(limit, route::answer(origin, request)).await else {
        return super::respond::text(hyper::StatusCode::REQUEST_TIMEOUT, "the request took too long\n").map(Either::Left);
    };
    match (routed, upgrade) {
        (Routed::Answer(answer), _) => answer.map(Either::Left),
        (Routed::Stream(admitted), _) => open(origin, *admitted, under_way),
        (Routed::Upgrade(answer, entrance), Some(upgrade)) => {
            if let Some(pair) = seat(origin, entrance, Bytes::new(), Bytes::new()) {
                tokio::task::spawn_local(carry(upgrade, pair, under_way));
            }
            answer.map(Either::Left)
        }
        (Routed::Upgrade(..), None) => super::respond::text(hyper::StatusCode::BAD_REQUEST, "no stream to upgrade\n").map(Either::Left),
    }
}

/// Gives the shard its end of a pair; the other one is ours.
fn seat(origin: &Origin, entrance: Entrance, greeting: Bytes, early: Bytes) -> Option<UnixStream> {
    let (theirs, ours) = StdUnixStream::pair().ok()?;
    theirs.set_nonblocking(true).ok()?;
    ours.set_nonblocking(true).ok()?;
    let ours = UnixStream::from_std(ours).ok()?;
    let socket = Arrival::Pair(theirs);
    let guest = Guest { socket, entrance, greeting, early, user: origin.user.clone() };
    // Sessions count by themselves from here on.
    origin.pass.settle();
    origin.node.send(origin.shard, Message::Adopt(Box::new(guest)));
    Some(ours)
}

/// An answer whose body comes from the shard.
fn open(origin: &Origin, admitted: Admitted, under_way: UnderWay) -> Answer {
    let greeting = Bytes::from(admitted.prelude());
    let Admitted { transport, wire, headers, commands, agent, admission } = admitted;
    let Some(pair) = seat(origin, Entrance { transport, wire, agent, admission }, greeting, commands) else {
        return super::respond::text(hyper::StatusCode::SERVICE_UNAVAILABLE, "no room for more connections\n").map(Either::Left);
    };
    let mut answer = Response::new(Either::Right(Endless { pair, _under_way: under_way }));
    *answer.headers_mut() = headers;
    answer
}

/// Carries a WebSocket's bytes both ways until one side ends.
async fn carry(upgrade: OnUpgrade, mut pair: UnixStream, _under_way: UnderWay) {
    if let Ok(stream) = upgrade.await {
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(stream), &mut pair).await;
    }
}

/// A body that lasts as long as the shard has something to say. Dropped, it tells the shard that the client has gone.
pub(super) struct Endless {
    pair: UnixStream,
    _under_way: UnderWay,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let mut piece = BytesMut::zeroed(PIECE);
        let mut buffer = ReadBuf::new(&mut piece);
        match Pin::new(&mut self.pair).poll_read(context, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
            Poll::Ready(Ok(())) => {
                let length = buffer.filled().len();
                if length == 0 {
                    return Poll::Ready(None);
                }
                // What is kept until the client's window opens is no larger than it must be.
                Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece[..length])))))
            }
        }
    }
}
