//! The bytes under HTTP: a socket, perhaps with TLS, of which some bytes may have been read already.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::pace::Pace;
use crate::shard::Arrival;

/// A socket.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Lets the shard have it.
    ///
    /// # Errors
    /// When the runtime does not give it away.
    pub(super) fn into_arrival(self) -> io::Result<Arrival> {
        Ok(match self {
            Stream::Plain(socket) => Arrival::Tcp(socket.into_std()?),
            Stream::Tls(stream) => {
                let (socket, session) = stream.into_inner();
                Arrival::Tls(socket.into_std()?, Box::new(session))
            }
        })
    }
}

/// A socket, the bytes that were read from it before, and how long it may take.
pub(super) struct Begun {
    early: Bytes,
    stream: Stream,
    pace: Rc<Pace>,
    /// The last write found no room.
    owes: bool,
}

impl Begun {
    pub(super) fn new(early: Bytes, stream: Stream, pace: Rc<Pace>) -> Self {
        Begun { early, stream, pace, owes: false }
    }

    /// Whether something is to be written that had no room yet.
    pub(super) fn owes(&self) -> bool {
        self.owes
    }

    pub(super) fn into_inner(self) -> Stream {
        self.stream
    }
}

/// Does the same with either kind of socket.
macro_rules! each {
    ($stream:expr, $socket:ident => $work:expr) => {
        match $stream {
            Stream::Plain($socket) => $work,
            Stream::Tls($socket) => $work,
        }
    };
}

impl AsyncRead for Begun {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            let before = buffer.filled().len();
            let outcome = each!(&mut self.stream, socket => Pin::new(socket).poll_read(context, buffer));
            if buffer.filled().len() > before {
                self.pace.hear();
            }
            return outcome;
        }
        let length = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early[..length]);
        self.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = each!(&mut self.stream, socket => Pin::new(socket).poll_write(context, bytes));
        self.owes = outcome.is_pending();
        outcome
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let outcome = each!(&mut self.stream, socket => Pin::new(socket).poll_write_vectored(context, slices));
        self.owes = outcome.is_pending();
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        each!(&self.stream, socket => socket.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.stream, socket => Pin::new(socket).poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.stream, socket => Pin::new(socket).poll_shutdown(context))
    }
}
