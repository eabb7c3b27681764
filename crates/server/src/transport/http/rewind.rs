//! The byte stream under HTTP: a socket, with or without TLS, of which some bytes may have been read already.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::gauge::BufferGauge;
use super::timeouts::TimeoutTimer;
use crate::net::socket::AcceptedSocket;
use crate::runtime::connection_guard::ConnectionGuard;

/// A socket, with or without TLS.
pub(super) enum HttpStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl HttpStream {
    /// Makes the system take no more output than this many bytes ahead of what it can send (tcp(7), TCP_NOTSENT_LOWAT).
    pub(super) fn limit_unsent(&self, bytes: u32) {
        let socket = match self {
            HttpStream::Plain(socket) => SockRef::from(socket),
            HttpStream::Tls(stream) => SockRef::from(stream.get_ref().0),
        };
        // A system without this option takes as much as its buffers hold.
        let _ = socket.set_tcp_notsent_lowat(bytes);
    }

    /// Returns the socket in the form that the shard adopts.
    ///
    /// # Errors
    /// When the runtime can't release the socket.
    pub(super) fn into_arrival(self) -> io::Result<AcceptedSocket> {
        Ok(match self {
            HttpStream::Plain(socket) => AcceptedSocket::Tcp(socket.into_std()?),
            HttpStream::Tls(stream) => {
                let (socket, session) = stream.into_inner();
                AcceptedSocket::Tls(socket.into_std()?, Box::new(session))
            }
        })
    }
}

/// For how long, and up to how many bytes, the node continues to read after it has closed a connection for writing. It
/// is somewhat more than the largest body of a request by default.
const PARTING_TIME: Duration = Duration::from_secs(5);
const PARTING_SIZE: usize = 16 * 1024 * 1024;
/// How many bytes are read and discarded at once meanwhile.
const PARTING_PIECE: usize = 8 * 1024;

/// What is notified of the bytes that are read.
pub(super) enum ConnectionWatch {
    /// HTTP/1: the timer is notified when a request begins, and the guard when the last answer was sent.
    Requests(Rc<TimeoutTimer>, Rc<ConnectionGuard>),
    /// HTTP/2: the gauge counts the frames.
    Frames(Box<BufferGauge>),
    /// Nothing, because the connection is no longer HTTP.
    Nothing,
}

/// A socket, the bytes that were read from it before, and the watch on later bytes.
pub(super) struct Rewind {
    prefix: Bytes,
    stream: HttpStream,
    watch: ConnectionWatch,
    /// Whether the last write was refused because the socket's buffer was full.
    owes: bool,
    parting: Option<Box<Parting>>,
}

/// The end of a connection (RFC 9112 section 9.6). For a while, the node reads and discards what the client still
/// sends. If the socket were closed with unread bytes, or before some arrive, the kernel would answer with a reset. A
/// reset can destroy the last answer before the client has read it.
struct Parting {
    end: Pin<Box<Sleep>>,
    left: usize,
}

impl Rewind {
    pub(super) fn new(prefix: Bytes, stream: HttpStream, watch: ConnectionWatch) -> Self {
        Rewind { prefix, stream, watch, owes: false, parting: None }
    }

    /// Whether an answer is still waiting for room in the socket's buffer.
    pub(super) fn owes(&self) -> bool {
        self.owes
    }

    pub(super) fn into_inner(self) -> HttpStream {
        self.stream
    }
}

/// Evaluates an expression for the socket of either variant.
macro_rules! each {
    ($stream:expr, $socket:ident => $work:expr) => {
        match $stream {
            HttpStream::Plain($socket) => $work,
            HttpStream::Tls($socket) => $work,
        }
    };
}

impl Rewind {
    fn poll_bytes(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return each!(&mut self.stream, socket => Pin::new(socket).poll_read(context, buffer));
        }
        let length = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix[..length]);
        self.prefix.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl Rewind {
    fn note_write(&mut self, outcome: &Poll<io::Result<usize>>) {
        self.owes = outcome.is_pending();
        if let (ConnectionWatch::Requests(timer, _), Poll::Ready(Ok(1..))) = (&self.watch, outcome) {
            timer.note_written();
        }
    }
}

impl AsyncRead for Rewind {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let ConnectionWatch::Frames(gauge) = &mut self.watch {
            ready!(gauge.poll_ready(context));
        }
        let before = buffer.filled().len();
        let outcome = self.poll_bytes(context, buffer);
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            let owes = self.owes;
            match &mut self.watch {
                // Bytes that arrive while an answer is being written are read ahead; they do not begin a request.
                ConnectionWatch::Requests(timer, _) if !owes => timer.note_read(),
                ConnectionWatch::Requests(..) | ConnectionWatch::Nothing => {}
                ConnectionWatch::Frames(gauge) => gauge.note_read(read),
            }
        }
        outcome
    }
}

impl AsyncWrite for Rewind {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = each!(&mut self.stream, socket => Pin::new(socket).poll_write(context, bytes));
        self.note_write(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = each!(&mut self.stream, socket => Pin::new(socket).poll_write_vectored(context, slices));
        self.note_write(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        each!(&self.stream, socket => socket.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.stream, socket => Pin::new(socket).poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Rewind { stream, parting, watch, .. } = &mut *self;
        if parting.is_none() {
            ready!(each!(stream, socket => Pin::new(socket).poll_shutdown(context)))?;
            if let ConnectionWatch::Requests(_, pass) = watch {
                pass.part();
            }
        }
        let parting =
            parting.get_or_insert_with(|| Box::new(Parting { end: Box::pin(sleep(PARTING_TIME)), left: PARTING_SIZE }));
        parting.poll(stream, context).map(Ok)
    }
}

impl Parting {
    /// Becomes ready when the client has closed its side too, or when [`PARTING_TIME`] or [`PARTING_SIZE`] is used up.
    fn poll(&mut self, stream: &mut HttpStream, context: &mut Context<'_>) -> Poll<()> {
        while self.end.as_mut().poll(context).is_pending() {
            let mut piece = [MaybeUninit::uninit(); PARTING_PIECE];
            let mut buffer = ReadBuf::uninit(&mut piece);
            let outcome = ready!(each!(&mut *stream, socket => Pin::new(socket).poll_read(context, &mut buffer)));
            let length = buffer.filled().len();
            if outcome.is_err() || length == 0 || length >= self.left {
                break;
            }
            self.left -= length;
        }
        Poll::Ready(())
    }
}
