//! Admission control: limits on new client connections that apply to the whole node. A limit that is off costs one
//! comparison.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use touchline_engine::limit::AddressKey;
use touchline_lock::Lock;

/// What the node knows of a client that it has admitted.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) is_loopback: bool,
    /// The address of the client, as far as the node knows it.
    pub(crate) client: IpAddr,
    /// The key by which rates count the address.
    pub(crate) address: AddressKey,
    /// The client's place among the connections of its address; None = they have no limit.
    pub(crate) address_slot: Option<AddressSlot>,
}

/// Why a client is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The node drains, has as many connections as it may have, or admits no more in this second.
    Full,
    /// The client's address has as many connections as it may have.
    Address,
    /// The client's address is refused for a while, or is above its rate of connects (`client.rate_limit`).
    Refused,
}

/// The limits of a node that all new connections share.
#[derive(Debug, Default)]
pub(crate) struct AdmissionControl {
    pub(crate) address_slots: Arc<AddressSlots>,
    pub(crate) connections: Rate,
    pub(crate) handshakes: Rate,
}

/// A rate limiter that all threads share. It uses the generic cell rate algorithm (ITU-T I.371).
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// When the rate has made up for what was taken, in nanoseconds of the node's clock.
    due_ns: AtomicU64,
}

impl Rate {
    /// How long until the next [`Rate::try_admit`] succeeds, in microseconds; None = it succeeds now.
    pub(crate) fn wait(&self, limit: usize, burst_us: u64, now_us: u64) -> Option<u64> {
        if limit == 0 {
            return None;
        }
        let (each_ns, allowed_ns) = bounds(limit, burst_us, now_us);
        let due_ns = self.due_ns.load(Relaxed).saturating_add(each_ns);
        (due_ns > allowed_ns).then(|| (due_ns - allowed_ns).div_ceil(1_000))
    }

    /// Takes one from the rate. `limit`: how many a second, 0 = unlimited. As many as fit into `burst_us`
    /// (microseconds) may be taken at once, and always at least one.
    ///
    /// False = the limit refuses it now.
    pub(crate) fn try_admit(&self, limit: usize, burst_us: u64, now_us: u64) -> bool {
        if limit == 0 {
            return true;
        }
        let (each_ns, allowed_ns) = bounds(limit, burst_us, now_us);
        let next = |due_ns: u64| {
            Some(due_ns.max(now_us.saturating_mul(1_000)).saturating_add(each_ns))
                .filter(|due_ns| *due_ns <= allowed_ns)
        };
        self.due_ns.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

/// The cost of one, and how far costs may run ahead of the clock, both in nanoseconds.
fn bounds(limit: usize, burst_us: u64, now_us: u64) -> (u64, u64) {
    let each_ns = (1_000_000_000 / limit as u64).max(1);
    (each_ns, now_us.saturating_mul(1_000).saturating_add(burst_us.saturating_mul(1_000).max(each_ns)))
}

/// The number of connections of each address. Only addresses that have connections are in it.
#[derive(Debug, Default)]
pub(crate) struct AddressSlots {
    taken: Lock<HashMap<IpAddr, usize>>,
}

impl AddressSlots {
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr, limit: usize) -> Option<AddressSlot> {
        let address = whole_network(address);
        let mut all = self.taken.lock();
        let taken = all.entry(address).or_default();
        (*taken < limit).then(|| {
            *taken += 1;
            AddressSlot { places: Arc::clone(self), address }
        })
    }
}

/// One connection's place among those of its address. When this is dropped, the place is free again.
#[derive(Debug)]
pub(crate) struct AddressSlot {
    places: Arc<AddressSlots>,
    address: IpAddr,
}

impl AddressSlot {
    /// The address; of an IPv6 address, its /64 network.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut all = self.places.taken.lock();
        if let Some(taken) = all.get_mut(&self.address) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// An IPv4 address, or the /64 network of an IPv6 address, which is the least that one customer of a provider has (RFC
/// 6177).
fn whole_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The key by which rates count an address.
pub(crate) fn address_key(address: IpAddr) -> AddressKey {
    AddressKey(match whole_network(address) {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    })
}

/// The address of a key, for the log; for IPv6, the first address of the /64 network.
pub(crate) fn address_of(key: AddressKey) -> IpAddr {
    IpAddr::from(Ipv6Addr::from_bits(key.0)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_address_has_its_own_places_and_gets_them_back() {
        let places = Arc::new(AddressSlots::default());
        let first = places.take(ip("203.0.113.1"), 2).expect("a first one");
        let second = places.take(ip("::ffff:203.0.113.1"), 2).expect("a second one");
        assert!(places.take(ip("203.0.113.1"), 2).is_none());
        assert!(places.take(ip("203.0.113.2"), 2).is_some(), "another address");
        drop(first);
        let third = places.take(ip("203.0.113.1"), 2);
        assert!(third.is_some());
        drop((second, third));
        assert!(places.taken.lock().is_empty(), "nothing is kept of clients that are gone");
    }

    #[test]
    fn of_ipv6_a_whole_network_counts() {
        let places = Arc::new(AddressSlots::default());
        let _first = places.take(ip("2001:db8:0:1::1"), 1).expect("a first one");
        assert!(places.take(ip("2001:db8:0:1:ffff::2"), 1).is_none());
        assert!(places.take(ip("2001:db8:0:2::1"), 1).is_some());
    }

    #[test]
    fn a_rate_lets_a_burst_pass_and_then_its_share() {
        let rate = Rate::default();
        let at = |now_us: u64| (0..1_000).take_while(|_| rate.try_admit(100, 1_000_000, now_us)).count();
        assert_eq!(at(5_000_000), 100);
        assert_eq!(rate.wait(100, 1_000_000, 5_000_000), Some(10_000), "the next one in a hundredth of a second");
        assert_eq!(at(5_500_000), 50);
        assert_eq!(at(60_000_000), 100, "what was not used is not saved up");
        assert!((0..10_000).all(|_| rate.try_admit(0, 0, 0)), "no limit");
    }

    #[test]
    fn a_rate_without_a_burst_lets_one_pass_at_a_time() {
        let rate = Rate::default();
        assert!(rate.try_admit(2, 0, 1_000_000));
        assert!(!rate.try_admit(2, 0, 1_000_000));
        assert_eq!(rate.wait(2, 0, 1_000_000), Some(500_000));
        assert_eq!(rate.wait(2, 0, 1_500_000), None);
        assert!(rate.try_admit(2, 0, 1_500_000));
    }
}
