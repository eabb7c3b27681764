//! Sockets and clients for HTTP/1.1.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use touchline_testkit::http::{TestClient, socket, with_patience};

use super::server::KEY;

/// A client of a server with the key of its server API.
pub(crate) fn http(address: SocketAddr) -> TestClient {
    TestClient::new(address, KEY)
}

/// A socket with a small receive buffer.
pub(crate) fn narrow_socket(address: SocketAddr) -> TcpStream {
    try_narrow_socket(address).expect("the server listens")
}

/// A socket with a small receive buffer, for a server that may have ended.
pub(crate) fn try_narrow_socket(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_recv_buffer_size(4096)?;
    socket.connect(&address.into())?;
    let socket = TcpStream::from(socket);
    with_patience(&socket)?;
    Ok(socket)
}

/// Sends bytes on a new connection. Returns the answer until the connection ends, or until nothing arrives for a while.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8], patience: Duration) -> String {
    let mut socket = socket(address);
    let _ = socket.write_all(bytes);
    rest(&mut socket, patience)
}

/// The remaining bytes until the end, or until nothing arrives for a while.
pub(crate) fn rest(socket: &mut TcpStream, patience: Duration) -> String {
    let _ = socket.set_read_timeout(Some(patience));
    let (mut reply, mut some) = (Vec::new(), [0; 16 * 1024]);
    while let Ok(length @ 1..) = socket.read(&mut some) {
        reply.extend_from_slice(&some[..length]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}
