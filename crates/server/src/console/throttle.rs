//! The limit of password attempts.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// The most wrong passwords of one address in a minute.
const BY_ADDRESS_MAX: u32 = 5;
/// The most wrong passwords on the node in a minute.
const BY_NODE_MAX: u32 = 20;
/// The most remembered addresses from which a user has signed in. Other addresses cannot use up their attempts.
const KNOWN_MAX: usize = 64;
/// The time in which attempts count, in seconds.
const WINDOW: u64 = 60;

/// Counts wrong passwords.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    began_s: u64,
    all: u32,
    /// Has at most [`BY_NODE_MAX`] entries, and one for each address in `known`.
    by_address: BTreeMap<IpAddr, u32>,
    /// Addresses from which a user has signed in, the newest last. Only their own attempts count for them.
    known: VecDeque<IpAddr>,
}

impl LoginThrottle {
    /// Takes one attempt of an address before its password is compared, so that simultaneous attempts count too.
    /// Returns how many attempts are left.
    ///
    /// # Errors
    /// No attempt is left. The number is the seconds until there are attempts again.
    pub(crate) fn take(&mut self, address: IpAddr, now_s: u64) -> Result<u32, u64> {
        if now_s >= self.began_s.saturating_add(WINDOW) || now_s < self.began_s {
            let known = std::mem::take(&mut self.known);
            *self = LoginThrottle { began_s: now_s, known, ..LoginThrottle::default() };
        }
        let address = network(address);
        let is_known = self.known.contains(&address);
        let used = self.by_address.get(&address).copied().unwrap_or_default();
        let of_node = if is_known { BY_ADDRESS_MAX } else { BY_NODE_MAX.saturating_sub(self.all) };
        let left = BY_ADDRESS_MAX.saturating_sub(used).min(of_node);
        if left == 0 {
            return Err(self.began_s + WINDOW - now_s);
        }
        self.all += u32::from(!is_known);
        *self.by_address.entry(address).or_default() += 1;
        Ok(left - 1)
    }

    /// Gives back the attempt of a correct password.
    pub(crate) fn give_back(&mut self, address: IpAddr) {
        let address = network(address);
        if let Some(used) = self.by_address.get_mut(&address) {
            *used = used.saturating_sub(1);
        }
        if self.known.contains(&address) {
            return;
        }
        self.all = self.all.saturating_sub(1);
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(address);
    }
}

/// Returns what counts as one address: of IPv6 the first 64 bits, which one customer has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_the_node_have_so_many_tries_in_a_minute() {
        let mut throttle = LoginThrottle::default();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert!(throttle.take(address(7), 99).is_ok());
        throttle.give_back(address(7));
        for left in (0..BY_ADDRESS_MAX).rev() {
            assert_eq!(throttle.take(address(1), 100), Ok(left));
        }
        assert_eq!(throttle.take(address(1), 110), Err(49));
        assert_eq!(throttle.take("::ffff:10.0.0.1".parse().expect("an address"), 110), Err(49));
        for n in 0..BY_NODE_MAX - BY_ADDRESS_MAX {
            assert!(throttle.take(address(n as u8 + 20), 110).is_ok());
        }
        assert_eq!(throttle.take(address(200), 110), Err(49));
        assert_eq!(throttle.take(address(7), 110), Ok(BY_ADDRESS_MAX - 1), "it has signed in before");
        assert_eq!(throttle.take(address(1), 160), Ok(BY_ADDRESS_MAX - 1));
    }

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let mut throttle = LoginThrottle::default();
        let of = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!((0..BY_ADDRESS_MAX).all(|_| throttle.take(of("2001:db8::1"), 5).is_ok()));
        assert!(throttle.take(of("2001:db8::2:1"), 5).is_err());
        assert!(throttle.take(of("2001:db8:0:1::1"), 5).is_ok());
    }
}
