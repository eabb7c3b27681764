//! A socket of which some bytes have been read already: they come first again.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::pace::Pace;

/// A socket and the bytes that were read from it before.
pub(super) struct Begun {
    early: Bytes,
    stream: TcpStream,
    pace: Rc<Pace>,
    /// The last write found no room.
    owes: bool,
}

impl Begun {
    pub(super) fn new(early: Bytes, stream: TcpStream, pace: Rc<Pace>) -> Self {
        Begun { early, stream, pace, owes: false }
    }

    /// Whether something is to be written that had no room yet.
    pub(super) fn owes(&self) -> bool {
        self.owes
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Begun {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            let before = buffer.filled().len();
            let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
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
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.owes = outcome.is_pending();
        outcome
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.owes = outcome.is_pending();
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
