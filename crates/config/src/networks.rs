//! Sets of addresses and networks in the configuration.

use std::net::IpAddr;

/// A text that is neither an IP address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an IP address nor a network such as 10.0.0.0/8")]
pub struct BadNetwork(pub String);

/// The addresses whose first `prefix` bits equal those of `address`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            // `parse` would accept a sign.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= bits)?
            }
            Some(_) => return None,
        };
        // An IPv4 address written in IPv6 form is compared as the IPv4 address.
        let in_ipv6 = prefix.checked_sub(128 - 32).filter(|_| address.is_ipv6());
        match (address.to_canonical(), in_ipv6) {
            (ipv4 @ IpAddr::V4(_), Some(prefix)) => Some(Network { address: ipv4, prefix }),
            _ => Some(Network { address, prefix }),
        }
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
    /// Parses addresses and networks, IPv4 and IPv6.
    ///
    /// # Errors
    /// The first text that is neither an address nor a network.
    pub fn parse(texts: &[String]) -> Result<Self, BadNetwork> {
        let networks = texts.iter().map(|text| Network::parse(text).ok_or_else(|| BadNetwork(text.clone())));
        networks.collect::<Result<_, _>>().map(Networks)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address is in the set. An IPv4 address in IPv6 form (`::ffff:10.0.0.1`) counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_in_ipv6_is_the_ipv4_address() {
        let has = |network: &str, address: &str| {
            let networks = Networks::parse(&[network.to_owned()]).expect("a network");
            networks.contains(address.parse().expect("an address"))
        };
        for network in ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1/128", "::ffff:127.0.0.0/104", "::ffff:0:0/96"] {
            assert!(has(network, "127.0.0.1") && has(network, "::ffff:127.0.0.1"), "{network}");
            assert!(!has(network, "::1"), "{network}");
        }
        assert!(!has("::ffff:127.0.0.0/104", "128.0.0.1"));
        assert!(has("::/0", "2001:db8::1") && !has("::/0", "127.0.0.1"), "it is about IPv6 alone");
        assert!(!has("::ffff:0:0/95", "127.0.0.1") && has("::ffff:0:0/95", "::fffe:0:1"));
    }
}
