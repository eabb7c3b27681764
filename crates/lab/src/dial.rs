//! How clients of the lab begin connections: each from a source address and port that the lab chooses.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use mio::net::TcpStream;
use socket2::{Domain, Socket, Type};

/// Connections from one source address. Each gets a port from the lab, because the kernel's own search for a free port
/// becomes slow beyond a few thousand.
const PER_ADDRESS: usize = 4_000;
/// The first of those ports. Each time that a client dials it uses the port 4,000 above, because closed connections
/// keep theirs for a while.
const FIRST_PORT: usize = 10_000;
const PORT_BLOCKS: usize = 12;
/// `EINPROGRESS` of Linux: the connection is under way.
const EINPROGRESS: i32 = 115;

/// Begins to connect the client with this number from the loopback network 127.`network`; `round` counts how many times
/// it has dialled.
///
/// # Errors
/// When the system refuses, for example because the port is still taken.
pub(crate) fn dial(server: SocketAddr, network: u8, number: usize, round: usize) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    let address = Ipv4Addr::new(127, network, 0, 1 + (number / PER_ADDRESS) as u8);
    let port = FIRST_PORT + round % PORT_BLOCKS * PER_ADDRESS + number % PER_ADDRESS;
    socket.bind(&SocketAddr::from((address, port as u16)).into())?;
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error.into()),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}
