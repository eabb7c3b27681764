//! HTTP/2: a client's endless answer, or its WebSocket (RFC 8441), is one of many streams of a socket. The shard gets
//! one end of a pair of sockets, and a task carries the bytes between the other end and the stream.

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
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::UnixStream;

use super::body::{BodyBudget, RequestBody};
use super::gauge::Gauge;
use super::respond;
use super::rewind::{Rewind, Stream, Watch};
use super::route::{self, Routed};
use super::stream::Admitted;
use super::timeouts::{Overrun, StreamsPace};
use super::{HEAD_MAX, Origin};
use crate::handshake::Negotiated;
use crate::mailbox::{AdoptedConnection, Message};
use crate::shard::AcceptedSocket;

/// Streams that a client may have open at a time.
const STREAMS_MAX: u32 = 250;
/// Most bytes of an endless answer in one piece, and most that wait in a stream for the client's window.
const PIECE: usize = 8 * 1024;
const SEND_MAX: usize = 8 * 1024;
/// Bytes of a WebSocket that are carried at once, either way.
const CARRIED: usize = 4 * 1024;
/// Room in the pair of sockets of a stream, from the shard and to it, bytes; Linux makes it twice that for its own
/// records (socket(7)).
const PAIR_FROM_SHARD: usize = 8 * 1024;
const PAIR_TO_SHARD: usize = 4 * 1024;
/// Bytes that a client may send ahead on one stream, and on all streams of a connection together.
const STREAM_WINDOW: u32 = 32 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// The most that a stream holds, bytes: what waits for the client's window and a piece more (16 KiB), what is carried
/// and waits to be (4 × 4 KiB), its pair of sockets (2 × 8 KiB + 2 × 4 KiB), its task, state and header fields (8 KiB),
/// and what the client has sent ahead (32 KiB).
const STREAM_HELD: usize =
    SEND_MAX + PIECE + 4 * CARRIED + 2 * PAIR_FROM_SHARD + 2 * PAIR_TO_SHARD + 8 * 1024 + STREAM_WINDOW as usize;
/// The most that a connection holds besides, bytes: buffers of the socket, of TLS and of the compression of header
/// fields.
const CONNECTION_HELD: usize = 64 * 1024;
/// So a connection with all its streams holds less than 25 MiB. Bodies of requests and whole answers are counted by
/// their own length.
const _: () = assert!(CONNECTION_HELD + STREAMS_MAX as usize * STREAM_HELD < 25 * 1024 * 1024);
/// How long a client may take to leave once it has been told that the connection ends.
const PARTING: Duration = Duration::from_secs(5);
/// Between two looks whether a link is there, and how long an answer may take.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Serves the streams of one connection, of which `early` has been read.
pub(super) async fn serve(origin: Origin, stream: Stream, early: Bytes) {
    let origin = Rc::new(origin);
    let node = Arc::clone(&origin.node);
    let pace = Rc::new(StreamsPace::new(node.clock.ticks(), &node.settings.http_server));
    let requests = Rc::new(Cell::new(0usize));
    let _held = BodyBudget::new(node.shards[usize::from(origin.shard)].http_counter(), CONNECTION_HELD);
    let service = {
        let (pace, requests, origin) = (Rc::clone(&pace), Rc::clone(&requests), Rc::clone(&origin));
        service_fn(move |request: Request<Incoming>| {
            let under_way = UnderWay::begin(&origin, &pace, &requests);
            let origin = Rc::clone(&origin);
            async move { Ok::<_, Infallible>(answer(&origin, request, under_way).await) }
        })
    };
    let gauge = Gauge::new(Arc::clone(&node), origin.shard, Rc::clone(&pace));
    let mut connection = Box::pin(
        http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_MAX as u32)
            .max_send_buf_size(SEND_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .enable_connect_protocol()
            .serve_connection(TokioIo::new(Rewind::new(early, stream, Watch::Frames(Box::new(gauge)))), service),
    );
    let mut draining = node.draining.subscribe();
    let is_late = origin.is_late;
    tokio::select! {
        _ = connection.as_mut() => return,
        overrun = pace.overrun() => if overrun == Overrun::Incomplete {
            return;
        },
        _ = draining.wait_for(|draining| *draining), if !is_late => {}
    }
    // The client is told which of its requests are served: those that cross the word are (RFC 9113 section 6.8).
    connection.as_mut().graceful_shutdown();
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = tokio::time::sleep(PARTING) => if requests.get() == 0 {
                return;
            },
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
    pace: Rc<StreamsPace>,
    requests: Rc<Cell<usize>>,
    held: Option<BodyBudget>,
}

impl UnderWay {
    fn begin(origin: &Origin, pace: &Rc<StreamsPace>, requests: &Rc<Cell<usize>>) -> Self {
        requests.set(requests.get() + 1);
        pace.note_busy(true);
        let counter = origin.node.shards[usize::from(origin.shard)].http_counter();
        UnderWay {
            pace: Rc::clone(pace),
            requests: Rc::clone(requests),
            held: Some(BodyBudget::new(counter, STREAM_HELD)),
        }
    }

    /// A whole answer. The stream is counted until it has taken it.
    fn whole(mut self, answer: respond::HttpResponse) -> Http2Response {
        answer.map(|body| {
            let mut held = self.held.take();
            if let Some(held) = &mut held {
                held.add(body.size_hint().lower() as usize);
            }
            Either::Left(Whole { body, _held: held })
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.requests.set(self.requests.get() - 1);
        if self.requests.get() == 0 {
            self.pace.note_busy(false);
        }
    }
}

/// A whole answer, and what counts it.
pub(super) struct Whole {
    body: Full<Bytes>,
    _held: Option<BodyBudget>,
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

type Http2Response = Response<Either<Whole, Endless>>;

async fn answer(origin: &Origin, mut request: Request<Incoming>, under_way: UnderWay) -> Http2Response {
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let limit = origin.node.settings.http_server.request_timeout;
    let request = RequestBody::wrap(request, None, origin.node.shards[usize::from(origin.shard)].http_counter());
    let Ok(routed) = tokio::time::timeout(limit, route::answer(origin, request)).await else {
        return under_way.whole(respond::text(StatusCode::REQUEST_TIMEOUT, "the request took too long\n"));
    };
    match (routed, upgrade) {
        (Routed::Answer(answer), _) => under_way.whole(answer),
        (Routed::Stream(admitted), _) => open(origin, *admitted, under_way),
        (Routed::Upgrade(answer, entrance), Some(upgrade)) => {
            if let Some(pair) = seat(origin, &under_way.pace, entrance, Bytes::new(), Bytes::new()) {
                let client = &origin.node.settings.client;
                tokio::task::spawn_local(carry(upgrade, pair, client.answer_timeout + client.pong_timeout, under_way));
            }
            answer.map(|body| Either::Left(Whole { body, _held: None }))
        }
        (Routed::Upgrade(..), None) => {
            under_way.whole(respond::text(StatusCode::BAD_REQUEST, "no stream to upgrade\n"))
        }
    }
}

/// Gives the shard its end of a pair; the other one is ours.
fn seat(
    origin: &Origin,
    pace: &StreamsPace,
    entrance: Negotiated,
    greeting: Bytes,
    early: Bytes,
) -> Option<UnixStream> {
    let (theirs, ours) = StdUnixStream::pair().ok()?;
    theirs.set_nonblocking(true).ok()?;
    ours.set_nonblocking(true).ok()?;
    // What a client does not take waits in the shard's account of it, not in the system's.
    SockRef::from(&theirs).set_send_buffer_size(PAIR_FROM_SHARD).ok()?;
    SockRef::from(&ours).set_send_buffer_size(PAIR_TO_SHARD).ok()?;
    let ours = UnixStream::from_std(ours).ok()?;
    let socket = AcceptedSocket::Pair(theirs);
    let guest = AdoptedConnection {
        socket,
        negotiated: entrance,
        response_head: greeting,
        prefix: early,
        user: origin.user.clone(),
    };
    // Sessions count by themselves from here on, and when the last of them is gone the connection has little time.
    origin.pass.settle();
    pace.note_seated();
    origin.node.send(origin.shard, Message::Adopt(Box::new(guest)));
    Some(ours)
}

/// An answer whose body comes from the shard.
fn open(origin: &Origin, admitted: Admitted, under_way: UnderWay) -> Http2Response {
    let greeting = Bytes::from(admitted.prelude());
    let Admitted { transport, wire, headers, commands, agent, admission } = admitted;
    let Some(pair) =
        seat(origin, &under_way.pace, Negotiated { transport, wire, agent, admission }, greeting, commands)
    else {
        return under_way.whole(respond::text(StatusCode::SERVICE_UNAVAILABLE, "no room for more connections\n"));
    };
    let mut answer = Response::new(Either::Right(Endless { pair, _under_way: under_way }));
    *answer.headers_mut() = headers;
    answer
}

/// Carries a WebSocket's bytes both ways. When the shard has ended, the client has a while to end its side too; then
/// the stream is reset. A client that does not let the stream's window open ends it as well: `stall`.
async fn carry(upgrade: OnUpgrade, mut pair: UnixStream, stall: Duration, _under_way: UnderWay) {
    let Ok(stream) = upgrade.await else { return };
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(stream));
    let (mut from_shard, mut to_shard) = pair.split();
    let outward = async {
        let mut piece = vec![0; CARRIED];
        while let Ok(length @ 1..) = from_shard.read(&mut piece).await {
            if !matches!(tokio::time::timeout(stall, to_client.write_all(&piece[..length])).await, Ok(Ok(()))) {
                return false;
            }
        }
        to_client.shutdown().await.is_ok()
    };
    let inward = async {
        let mut piece = vec![0; CARRIED];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            if to_shard.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
        let _ = to_shard.shutdown().await;
    };
    let (mut outward, mut inward) = (std::pin::pin!(outward), std::pin::pin!(inward));
    tokio::select! {
        is_whole = &mut outward => if is_whole {
            let _ = tokio::time::timeout(PARTING, inward).await;
        },
        () = &mut inward => {
            let _ = outward.await;
        }
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
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
