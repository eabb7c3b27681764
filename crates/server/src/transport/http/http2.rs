//! HTTP/2. An endless answer or a WebSocket (RFC 8441) is one of many streams of a socket. The shard gets one end of a
//! pair of sockets, and a task carries the bytes between the other end and the stream.

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
use touchline_clock::Clock;

use super::body::{BodyBudget, RequestBody};
use super::caller::{HEAD_MAX, Origin};
use super::gauge::BufferGauge;
use super::respond;
use super::rewind::{ConnectionWatch, HttpStream, Rewind};
use super::routed::{Routed, Router};
use super::stream::Admitted;
use super::timeouts::{Overrun, StreamsTimer};
use crate::net::negotiated::Negotiated;
use crate::net::socket::AcceptedSocket;
use crate::runtime::mailbox::{AdoptedConnection, Message};

/// How many streams a client may have open at a time.
const STREAMS_MAX: u32 = 250;
/// The largest piece of an endless answer, and how much may wait in a stream for the client's window, in bytes.
const PIECE: usize = 8 * 1024;
const SEND_MAX: usize = 8 * 1024;
/// How many bytes of a WebSocket are copied at once in each direction.
const CARRIED: usize = 4 * 1024;
/// The room in a stream's pair of sockets, from the shard and to it, in bytes. Linux doubles it for its own records
/// (socket(7)).
const PAIR_FROM_SHARD: usize = 8 * 1024;
const PAIR_TO_SHARD: usize = 4 * 1024;
/// How many bytes a client may send ahead on one stream, and on all streams of a connection together.
const STREAM_WINDOW: u32 = 32 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
// One stream may be full without the others, and the pair of sockets has room for the bytes that are carried at once.
const _: () = assert!(STREAM_WINDOW <= CONNECTION_WINDOW && CARRIED <= PAIR_TO_SHARD && CARRIED <= PAIR_FROM_SHARD);
/// How many bytes a stream holds at most:
///
/// - bytes that wait for the client's window, and a piece more: 16 KiB
/// - bytes that are carried or wait to be carried: 4 × 4 KiB
/// - its pair of sockets: 2 × 8 KiB + 2 × 4 KiB
/// - its task, state and header fields: 8 KiB
/// - bytes that the client has sent ahead: 32 KiB
const STREAM_HELD: usize =
    SEND_MAX + PIECE + 4 * CARRIED + 2 * PAIR_FROM_SHARD + 2 * PAIR_TO_SHARD + 8 * 1024 + STREAM_WINDOW as usize;
/// How many more bytes a connection holds at most: buffers of the socket, of TLS and of the compression of header
/// fields.
const CONNECTION_HELD: usize = 64 * 1024;
/// A connection with all its streams holds less than 25 MiB. Bodies of requests and whole answers are counted by their
/// own length.
const _: () = assert!(CONNECTION_HELD + STREAMS_MAX as usize * STREAM_HELD < 25 * 1024 * 1024);
/// How many bytes the system takes ahead of the link. Bytes that a client does not read wait in the node, where they
/// are counted, or dropped when they are old.
const UNSENT_MAX: u32 = 16 * 1024;
/// How long a client may take to close after the node has announced the end of the connection.
const PARTING: Duration = Duration::from_secs(5);
/// The time between two `PING` frames of the node, and how long the client may take to answer one.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Serves the streams of one connection. `prefix`: the bytes that were already read from it.
pub(super) async fn serve<R: Router>(origin: Origin, stream: HttpStream, prefix: Bytes) {
    stream.limit_unsent(UNSENT_MAX);
    let origin = Rc::new(origin);
    let node = Arc::clone(&origin.node);
    let timer = Rc::new(StreamsTimer::new(node.clock.clone(), &node.generation().settings.http_server));
    let requests = Rc::new(Cell::new(0usize));
    let _budget = BodyBudget::new(node.shards[usize::from(origin.shard)].http_counter(), CONNECTION_HELD);
    let service = {
        let (timer, requests, origin) = (Rc::clone(&timer), Rc::clone(&requests), Rc::clone(&origin));
        service_fn(move |request: Request<Incoming>| {
            let under_way = UnderWay::begin(&origin, &timer, &requests);
            let origin = Rc::clone(&origin);
            // The future is boxed, because it is large and is moved several times before it is first polled.
            Box::pin(async move { Ok::<_, Infallible>(answer::<R>(&origin, request, under_way).await) })
        })
    };
    let gauge = BufferGauge::new(Rc::clone(&origin), Rc::clone(&timer));
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
            .serve_connection(
                TokioIo::new(Rewind::new(prefix, stream, ConnectionWatch::Frames(Box::new(gauge)))),
                service,
            ),
    );
    let is_late = origin.is_late;
    tokio::select! {
        _ = connection.as_mut() => return,
        overrun = timer.overrun() => if overrun == Overrun::Incomplete {
            return;
        },
        () = node.drain.begun(), if !is_late => {}
    }
    // `GOAWAY` says which requests are served: those that cross it on the wire are (RFC 9113 section 6.8).
    connection.as_mut().graceful_shutdown();
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = node.clock.time().sleep(PARTING) => if requests.get() == 0 {
                return;
            },
        }
    }
}

/// Runs hyper's tasks on the shard's own thread.
#[derive(Clone)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// A request, or the stream that it has opened. While one exists, the connection is not idle: the request has its own
/// timeout.
struct UnderWay {
    timer: Rc<StreamsTimer>,
    requests: Rc<Cell<usize>>,
    budget: Option<BodyBudget>,
}

impl UnderWay {
    fn begin(origin: &Origin, timer: &Rc<StreamsTimer>, requests: &Rc<Cell<usize>>) -> Self {
        requests.set(requests.get() + 1);
        timer.note_busy(true);
        let counter = origin.node.shards[usize::from(origin.shard)].http_counter();
        UnderWay {
            timer: Rc::clone(timer),
            requests: Rc::clone(requests),
            budget: Some(BodyBudget::new(counter, STREAM_HELD)),
        }
    }

    /// Makes a whole answer. Its bytes are counted until the stream has sent them.
    fn whole(mut self, answer: respond::HttpResponse) -> Http2Response {
        answer.map(|body| {
            let mut budget = self.budget.take();
            if let Some(budget) = &mut budget {
                budget.add(body.size_hint().lower() as usize);
            }
            Either::Left(Whole { body, _budget: budget })
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.requests.set(self.requests.get() - 1);
        if self.requests.get() == 0 {
            self.timer.note_busy(false);
        }
    }
}

/// A whole answer and the budget that counts its bytes.
struct Whole {
    body: Full<Bytes>,
    _budget: Option<BodyBudget>,
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

/// A body that is not complete when its answer begins.
enum Streamed {
    Endless(Endless),
    /// A gRPC message with its trailers, or a stream of messages.
    #[cfg(feature = "grpc")]
    Grpc {
        body: tonic::body::Body,
        _under_way: UnderWay,
    },
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Streamed::Endless(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            #[cfg(feature = "grpc")]
            Streamed::Grpc { body, .. } => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Streamed::Endless(body) => body.is_end_stream(),
            #[cfg(feature = "grpc")]
            Streamed::Grpc { body, .. } => body.is_end_stream(),
        }
    }
}

type Http2Response = Response<Either<Whole, Streamed>>;

async fn answer<R: Router>(origin: &Origin, mut request: Request<Incoming>, under_way: UnderWay) -> Http2Response {
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let limit = origin.node.generation().settings.http_server.request_timeout;
    let request = RequestBody::wrap(request, None, origin.node.shards[usize::from(origin.shard)].http_counter());
    let Ok(routed) = origin.node.clock.time().timeout(limit, R::answer(origin, request)).await else {
        return under_way.whole(respond::text(StatusCode::REQUEST_TIMEOUT, "the request took too long\n"));
    };
    match (routed, upgrade) {
        (Routed::Answer(answer), _) => under_way.whole(answer),
        (Routed::Stream(admitted), _) => open(origin, *admitted, under_way),
        #[cfg(feature = "grpc")]
        (Routed::Grpc(answer, size), _) => {
            let mut under_way = under_way;
            under_way.budget.iter_mut().for_each(|budget| budget.add(size));
            answer.map(|body| Either::Right(Streamed::Grpc { body, _under_way: under_way }))
        }
        (Routed::Upgrade(answer, negotiated), Some(upgrade)) => {
            if let Some(pair) = adopt(origin, &under_way.timer, negotiated, Bytes::new(), Bytes::new()) {
                let client = &origin.node.generation().settings.client;
                let limit = (origin.node.clock.time().clone(), client.answer_timeout + client.pong_timeout);
                tokio::task::spawn_local(carry(upgrade, pair, limit, under_way));
            }
            answer.map(|body| Either::Left(Whole { body, _budget: None }))
        }
        (Routed::HandOver(answer, task), Some(upgrade)) => {
            tokio::task::spawn_local(async move {
                let _under_way = under_way;
                if let Ok(stream) = upgrade.await {
                    task(Box::new(TokioIo::new(stream))).await;
                }
            });
            answer.map(|body| Either::Left(Whole { body, _budget: None }))
        }
        (Routed::TakeOver(_), _) => {
            let why = "a trace that is streamed needs HTTP/1.1\n";
            under_way.whole(respond::text(StatusCode::HTTP_VERSION_NOT_SUPPORTED, why))
        }
        (Routed::Upgrade(..) | Routed::HandOver(..), None) => {
            under_way.whole(respond::text(StatusCode::BAD_REQUEST, "no stream to upgrade\n"))
        }
    }
}

/// Passes one end of a new pair of sockets to the shard, and returns the other end; None = the system refused a pair.
fn adopt(
    origin: &Origin,
    timer: &StreamsTimer,
    negotiated: Negotiated,
    response_head: Bytes,
    prefix: Bytes,
) -> Option<UnixStream> {
    let (shard_end, own_end) = StdUnixStream::pair().ok()?;
    shard_end.set_nonblocking(true).ok()?;
    own_end.set_nonblocking(true).ok()?;
    // Bytes that a client does not read must wait in the shard's counted queue, not in the kernel's buffers.
    SockRef::from(&shard_end).set_send_buffer_size(PAIR_FROM_SHARD).ok()?;
    SockRef::from(&own_end).set_send_buffer_size(PAIR_TO_SHARD).ok()?;
    let own_end = UnixStream::from_std(own_end).ok()?;
    let socket = AcceptedSocket::Pair(shard_end);
    let adopted = AdoptedConnection { socket, negotiated, response_head, prefix, user: origin.user.clone() };
    // From here on sessions are counted separately. After the last one has ended, the connection has little time left.
    origin.pass.settle();
    timer.note_session();
    origin.node.send(origin.shard, Message::Adopt(Box::new(adopted)));
    Some(own_end)
}

/// Opens an endless answer, whose body the shard writes.
fn open(origin: &Origin, admitted: Admitted, under_way: UnderWay) -> Http2Response {
    let response_head = Bytes::from(admitted.prelude());
    let Admitted { transport, wire, headers, commands, agent, admission, fields } = admitted;
    let negotiated = Negotiated { transport, wire, agent, admission, fields };
    let Some(pair) = adopt(origin, &under_way.timer, negotiated, response_head, commands) else {
        return under_way.whole(respond::text(StatusCode::SERVICE_UNAVAILABLE, "no room for more connections\n"));
    };
    let mut answer = Response::new(Either::Right(Streamed::Endless(Endless { pair, _under_way: under_way })));
    *answer.headers_mut() = headers;
    answer
}

/// Copies a WebSocket's bytes in both directions. After the shard has closed its end, the client has [`PARTING`] to
/// close its side too; then the stream is reset. It also ends if a client keeps the stream's window closed for `stall`.
async fn carry(upgrade: OnUpgrade, mut pair: UnixStream, (clock, stall): (Clock, Duration), _under_way: UnderWay) {
    let Ok(stream) = upgrade.await else { return };
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(stream));
    let (mut from_shard, mut to_shard) = pair.split();
    let outward = async {
        let mut piece = vec![0; CARRIED];
        while let Ok(length @ 1..) = from_shard.read(&mut piece).await {
            if !matches!(clock.timeout(stall, to_client.write_all(&piece[..length])).await, Ok(Ok(()))) {
                return false;
            }
        }
        to_client.shutdown().await.is_ok()
    };
    let inward = async {
        let mut piece = vec![0; CARRIED];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            // one way: a slow shard holds back the input of its client, and this task reads for no other.
            if to_shard.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
        let _ = to_shard.shutdown().await;
    };
    let (mut outward, mut inward) = (std::pin::pin!(outward), std::pin::pin!(inward));
    tokio::select! {
        is_whole = &mut outward => if is_whole {
            let _ = clock.timeout(PARTING, inward).await;
        },
        () = &mut inward => {
            let _ = outward.await;
        }
    }
}

/// A body that ends when the shard closes its end. When the body is dropped, the shard sees that the client is gone.
struct Endless {
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
                // The piece is copied, so that no more memory than needed is kept until the client's window opens.
                Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece[..length])))))
            }
        }
    }
}
