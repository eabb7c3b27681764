//! The client at the other end of a connection.

use std::net::IpAddr;

/// The client at the other end of a connection, as far as the node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The address that counts for limits and logs.
    pub(crate) address: IpAddr,
    /// Whether the client is on this machine.
    pub(crate) is_loopback: bool,
    /// Whether a header of the PROXY protocol came first. Then everything after it is the client's own: no proxy has
    /// written what a request says of its client.
    pub(crate) is_introduced: bool,
}

impl Remote {
    /// The program that has this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Remote { address, is_loopback: address.is_loopback(), is_introduced: false }
    }

    /// The client that a header of the PROXY protocol names.
    pub(crate) fn introduced_by(proxy: IpAddr, client: IpAddr) -> Self {
        let told = Remote::of(client);
        // Only a proxy on this machine knows which other programs are on it.
        let is_loopback = told.is_loopback && proxy.to_canonical().is_loopback();
        Remote { is_loopback, is_introduced: true, ..told }
    }

    /// An unknown client behind the proxy with this address: a header of the PROXY protocol names no client.
    pub(crate) fn unknown_behind(proxy: IpAddr) -> Self {
        Remote { address: proxy.to_canonical(), is_loopback: false, is_introduced: true }
    }
}
