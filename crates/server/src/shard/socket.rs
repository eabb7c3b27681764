//! What a connection reads from and writes to.

use std::io::{Read, Result, Write};
use std::net::TcpStream as StdTcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

/// A socket as it comes to the shard, non-blocking.
pub(crate) enum Arrival {
    /// The client's own.
    Tcp(StdTcpStream),
    /// One end of a pair: a task carries the bytes between the other end and a stream of HTTP/2.
    Pair(StdUnixStream),
}

/// The socket of a connection.
pub(super) enum Socket {
    Tcp(TcpStream),
    Pair(UnixStream),
}

impl From<Arrival> for Socket {
    fn from(arrival: Arrival) -> Self {
        match arrival {
            Arrival::Tcp(socket) => Socket::Tcp(TcpStream::from_std(socket)),
            Arrival::Pair(socket) => Socket::Pair(UnixStream::from_std(socket)),
        }
    }
}

impl Socket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Pair(socket) => socket,
        }
    }

    /// Lets the poller tell of it by this token. `is_known`: the poller knows it by another.
    pub(super) fn register(&mut self, registry: &Registry, token: Token, is_known: bool) -> Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        if is_known { self.source().reregister(registry, token, interest) } else { self.source().register(registry, token, interest) }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Pair(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Pair(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
