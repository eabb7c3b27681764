//! Addresses to bind.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};

/// The IP address to bind for a configured text. Empty text = every address: IPv6 and IPv4, or IPv4 only where the
/// system has no IPv6. A host with several addresses gives its first IPv4 address, else its first address.
///
/// # Errors
/// When the text is neither an IP address nor a known host name.
pub fn resolve(text: &str) -> io::Result<IpAddr> {
    if text.is_empty() {
        let has_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
        return Ok(if has_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() });
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok(address);
    }
    let found: Vec<IpAddr> = (text, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
    found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first())
        .copied()
        .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}
