//! Addresses and networks that an operator names.

use std::net::IpAddr;

/// A text that is neither an IP address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an IP address nor a network such as 10.0.0.0/8")]
pub struct BadNetwork(pub String);

/// Addresses that have the first `prefix` bits in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            // `parse` would take a sign.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= bits)?
            }
            Some(_) => return None,
        };
        Some(Network { address, prefix })
    }

    fn contains(&self, other: IpAddr) -> bool {
        let same = match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        same >= self.prefix
    }
}

/// A set of addresses and networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// Reads addresses and networks, IPv4 and IPv6.
    ///
    /// # Errors
    /// The first text that is neither.
    pub fn parse(texts: &[String]) -> Result<Self, BadNetwork> {
        let networks = texts.iter().map(|text| Network::parse(text).ok_or_else(|| BadNetwork(text.clone())));
        networks.collect::<Result<_, _>>().map(Networks)
    }

    /// Whether the set has no address at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address is in the set. An IPv4 address in IPv6 (`::ffff:10.0.0.1`) is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }
}
