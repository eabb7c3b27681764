//! The client at the other end of a connection.

use std::net::IpAddr;

/// The client at the other end of a connection, as far as the node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The address that counts for limits and logs.
    pub(crate) address: IpAddr,
    /// The client is on this machine.
    pub(crate) is_loopback: bool,
}

impl Remote {
    /// The client that has this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Remote { address, is_loopback: address.is_loopback() }
    }

    /// An unknown client behind the proxy that has this address.
    pub(crate) fn unknown_behind(proxy: IpAddr) -> Self {
        Remote { address: proxy.to_canonical(), is_loopback: false }
    }
}
