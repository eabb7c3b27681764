//! The sockets from which connections read and to which they write.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown, TcpStream as StdTcpStream};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustls::ServerConnection;
use socket2::SockRef;

/// A non-blocking socket that is passed to the shard.
pub(crate) enum AcceptedSocket {
    /// The client's own socket.
    Tcp(StdTcpStream),
    /// The client's own socket, and its TLS session.
    Tls(StdTcpStream, Box<ServerConnection>),
    /// One end of a pair of sockets. A task carries the bytes between the other end and a stream of HTTP/2.
    Pair(StdUnixStream),
}

/// The socket of a connection that a shard serves.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsSession>),
    Pair(UnixStream),
}

impl From<AcceptedSocket> for Socket {
    fn from(accepted: AcceptedSocket) -> Self {
        match accepted {
            AcceptedSocket::Tcp(socket) => Socket::Tcp(TcpStream::from_std(socket)),
            AcceptedSocket::Tls(socket, session) => {
                Socket::Tls(Box::new(TlsSession::new(TcpStream::from_std(socket), *session)))
            }
            AcceptedSocket::Pair(socket) => Socket::Pair(UnixStream::from_std(socket)),
        }
    }
}

impl Socket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Tls(tls) => &mut tls.socket,
            Socket::Pair(socket) => socket,
        }
    }

    /// Whether the peer has sent something that is not read yet.
    pub(crate) fn has_input(&self) -> bool {
        let mut one = [MaybeUninit::uninit()];
        let peeked = match self {
            Socket::Tcp(socket) => SockRef::from(socket).peek(&mut one),
            Socket::Tls(tls) => SockRef::from(&tls.socket).peek(&mut one),
            Socket::Pair(socket) => SockRef::from(socket).peek(&mut one),
        };
        peeked.is_ok_and(|length| length > 0)
    }

    /// The address of the peer: the client, or the proxy in front of it. None = the system does not know it any more.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        let socket = match self {
            Socket::Tcp(socket) => socket,
            Socket::Tls(tls) => &tls.socket,
            Socket::Pair(_) => return None,
        };
        socket.peer_addr().ok().map(|address| address.ip().to_canonical())
    }

    /// Whether the system may know the address of the peer. It does not if the socket is one end of a pair.
    pub(crate) fn has_peer_address(&self) -> bool {
        !matches!(self, Socket::Pair(_))
    }

    /// Makes the system break the connection when the peer has not acknowledged output for this long (tcp(7),
    /// TCP_USER_TIMEOUT). That detects a peer that is gone where pings need no pong. None = the system's own limit.
    pub(crate) fn end_when_silent(&self, limit: Option<Duration>) {
        let socket = match self {
            Socket::Tcp(socket) => socket,
            Socket::Tls(tls) => &tls.socket,
            Socket::Pair(_) => return,
        };
        // A system without this option leaves the connection to its own timeouts.
        let _ = SockRef::from(socket).set_tcp_user_timeout(limit);
    }

    /// Limits the output that the system takes, because it cannot be dropped any more. The system takes at most
    /// `unsent` bytes ahead of what it can send (tcp(7), TCP_NOTSENT_LOWAT). It takes at most `unacknowledged` bytes
    /// (doubled, with its own overhead) ahead of what the peer has acknowledged (socket(7), SO_SNDBUF).
    pub(crate) fn limit_unsent(&self, unsent: u32, unacknowledged: usize) {
        let socket = match self {
            Socket::Tcp(socket) => SockRef::from(socket),
            Socket::Tls(tls) => SockRef::from(&tls.socket),
            // The other end of the pair has limits of its own.
            Socket::Pair(socket) => return drop(SockRef::from(socket).set_send_buffer_size(unsent as usize)),
        };
        // A system without these options takes as much as its buffers hold.
        let _ = socket.set_tcp_notsent_lowat(unsent).and(socket.set_send_buffer_size(unacknowledged));
    }

    /// Sends the closing alert of TLS. Without it, the peer can't distinguish an end from a broken link.
    ///
    /// # Errors
    /// When the socket is full (`WouldBlock`) or broken.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self {
            Socket::Tls(tls) => {
                tls.session.send_close_notify();
                tls.flush()
            }
            Socket::Tcp(_) | Socket::Pair(_) => Ok(()),
        }
    }

    /// Closes the output side: the peer sees its end, and may still send.
    ///
    /// # Errors
    /// When the connection is broken.
    pub(crate) fn close_output(&self) -> Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Tls(tls) => tls.socket.shutdown(Shutdown::Write),
            Socket::Pair(socket) => socket.shutdown(Shutdown::Write),
        }
    }

    /// Whether the socket uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// Whether a short read means that the socket is empty.
    pub(crate) fn is_emptied_by_short_read(&self) -> bool {
        !matches!(self, Socket::Tls(_))
    }

    /// Registers the socket with the poller. `is_known`: the poller knows it by another token.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token, is_known: bool) -> Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        if is_known {
            self.source().reregister(registry, token, interest)
        } else {
            self.source().register(registry, token, interest)
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Tls(tls) => tls.read(buffer),
            Socket::Pair(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Tls(tls) => tls.write(bytes),
            Socket::Pair(socket) => socket.write(bytes),
        }
    }

    /// Writes the bytes that were taken and could not be written yet.
    fn flush(&mut self) -> Result<()> {
        match self {
            Socket::Tls(tls) => tls.flush(),
            Socket::Tcp(_) | Socket::Pair(_) => Ok(()),
        }
    }
}

/// How many encrypted bytes may wait for the socket.
const WAITING_MAX: usize = 32 * 1024;

/// A socket with TLS. The shard's own buffers drive the session, which has no buffers while it is idle.
pub(crate) struct TlsSession {
    socket: TcpStream,
    session: ServerConnection,
}

impl TlsSession {
    fn new(socket: TcpStream, mut session: ServerConnection) -> Self {
        session.set_buffer_limit(Some(WAITING_MAX));
        TlsSession { socket, session }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if self.session.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            let processed = self.session.process_new_packets();
            // Messages of TLS itself (an alert, a new key) must not wait for the server's output.
            let _ = self.flush();
            processed.map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// Takes as many bytes as there is room for. If these are not all, the socket is full.
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut taken = 0;
        loop {
            match self.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                outcome => outcome?,
            }
            if taken == bytes.len() {
                return Ok(taken);
            }
            taken += self.session.writer().write(&bytes[taken..])?;
        }
    }

    fn flush(&mut self) -> Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}
