//! How a node binds its ports: every shard has its own listener on each port.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::net::port::Port;
use crate::preparation::PreparedPort;
use crate::shard::acceptor::BoundListener;
use crate::start_error::StartError;

/// Adds a listener on a port to the listeners of each shard, and returns the address that was bound.
///
/// # Errors
/// [`StartError::Bind`] if the address cannot be bound.
pub(crate) fn listen_on_each(
    shards: &mut [Vec<BoundListener>],
    prepared: PreparedPort,
    port: &Port,
    backlog: u32,
) -> Result<SocketAddr, StartError> {
    let (sockets, bound) = listen(prepared, backlog, shards.len())?;
    for (listeners, socket) in shards.iter_mut().zip(sockets) {
        listeners.push(BoundListener { socket, port: port.clone() });
    }
    Ok(bound)
}

/// Binds one listener for each shard to the same address. The kernel spreads connections over the listeners.
fn listen(port: PreparedPort, backlog: u32, count: usize) -> Result<(Vec<TcpListener>, SocketAddr), StartError> {
    let PreparedPort { key, address: mut bound } = port;
    let refused = |address| move |source| StartError::Bind { key, address, source };
    let mut listeners = Vec::with_capacity(count);
    if bound.port() != 0 {
        // The listeners set `SO_REUSEPORT`, so another process of the same user could share the port. That must be an
        // error.
        probe(bound).map_err(refused(bound))?;
    }
    for _ in 0..count {
        let listener = listen_once(bound, backlog).map_err(refused(bound))?;
        bound = listener.local_addr().map_err(refused(bound))?;
        listeners.push(listener);
    }
    Ok((listeners, bound))
}

fn probe(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    serve_both(&socket, address)?;
    socket.bind(&address.into())
}

fn listen_once(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Small writes should be sent at once. Accepted sockets inherit the option (tcp(7) on Linux).
    socket.set_tcp_nodelay(true)?;
    serve_both(&socket, address)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Makes the unspecified address of IPv6 include IPv4, whatever the default of the system is.
fn serve_both(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() && address.ip().is_unspecified() { socket.set_only_v6(false) } else { Ok(()) }
}
