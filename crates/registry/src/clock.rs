//! A hybrid logical clock (Kulkarni, Demirbas et al., 2014). It is close to wall time, and later than every stamp that
//! it has observed.
//!
//! Hand-written: a timestamp of `uhlc` contains the id of its node, 16 bytes. Each entry has a stamp, and this one
//! takes only 8 bytes.

/// A point in the cluster's time: Unix milliseconds in the upper 48 bits, a counter in the lower 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(pub u64);

impl Stamp {
    /// The wall time of the stamp, Unix milliseconds.
    pub fn millis(self) -> u64 {
        self.0 >> 16
    }
}

/// Creates stamps that never go back, and counts clocks that are far off.
#[derive(Debug)]
pub struct HybridClock {
    last: u64,
    drift_max_ms: u64,
    /// The number of observed stamps that were ahead by more than the bound. They did not move this clock.
    pub drifted: u64,
}

impl HybridClock {
    /// Creates a clock. `drift_max_ms` is how far another node's clock may move this one ahead of its own wall time.
    pub fn new(drift_max_ms: u64) -> Self {
        HybridClock { last: 0, drift_max_ms, drifted: 0 }
    }

    /// A stamp later than all earlier ones of this clock, and later than `seen` if that is given. A replacement is thus
    /// always later than the entry that it replaces.
    pub fn stamp(&mut self, seen: Option<Stamp>, now_ms: u64) -> Stamp {
        self.last = (self.last + 1).max(now_ms << 16);
        match seen {
            // The replaced entry may come from a clock that is far ahead. The stamp is later, but this clock does not
            // follow.
            Some(seen) if seen.0 >= self.last => Stamp(seen.0 + 1),
            _ => Stamp(self.last),
        }
    }

    /// The latest stamp that this clock knows.
    pub fn latest(&self, now_ms: u64) -> Stamp {
        Stamp(self.last.max(now_ms << 16))
    }

    /// Moves this clock to another node's stamp. A stamp beyond the bound is only counted, so a clock that jumped does
    /// not move the clocks of other nodes.
    pub fn observe(&mut self, stamp: Stamp, now_ms: u64) {
        if stamp.millis() > now_ms + self.drift_max_ms {
            self.drifted += 1;
        } else {
            self.last = self.last.max(stamp.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_never_go_back_and_a_jumped_clock_drags_nobody_along() {
        let mut clock = HybridClock::new(1_000);
        let first = clock.stamp(None, 10_000);
        let second = clock.stamp(None, 9_000);
        assert!(second > first, "the wall clock stepped back");
        clock.observe(Stamp(10_900 << 16), 10_000);
        assert!(clock.stamp(None, 10_000) > Stamp(10_900 << 16));
        let far = Stamp(3_600_000 << 16);
        clock.observe(far, 10_000);
        assert_eq!(clock.drifted, 1);
        assert!(clock.stamp(None, 10_000) < far);
        assert!(clock.stamp(Some(far), 10_000) > far, "who replaces it is later all the same");
        assert!(clock.stamp(None, 10_000) < far);
    }

    #[test]
    fn who_replaces_something_is_later_than_it_and_than_all_before() {
        // The clock's last stamp, the stamp of the replaced entry, and the stamp of the replacement.
        let now = 10_000 << 16;
        for (seen, expected) in [
            (now - 5, now),
            // The replaced stamp equals the one that the clock would give.
            (now, now + 1),
            (now + 1, now + 2),
            (now << 8, (now << 8) + 1),
        ] {
            let mut clock = HybridClock::new(1_000);
            assert_eq!(clock.stamp(Some(Stamp(seen)), 10_000), Stamp(expected));
            // The clock itself continues as if the far stamp had not been seen.
            assert_eq!(clock.stamp(None, 10_000), Stamp(now + 1));
        }
        let mut clock = HybridClock::new(1_000);
        clock.observe(Stamp(10_900 << 16), 10_000);
        assert_eq!(
            clock.stamp(Some(Stamp(now)), 10_000),
            Stamp((10_900 << 16) + 1),
            "the clock is far later than what is replaced"
        );
    }

    #[test]
    fn a_clock_follows_up_to_the_bound() {
        for (millis, follows) in [(11_000, true), (11_001, false)] {
            let mut clock = HybridClock::new(1_000);
            clock.observe(Stamp(millis << 16 | 0xffff), 10_000);
            assert_eq!((clock.latest(0) > Stamp(0), clock.drifted), (follows, u64::from(!follows)));
            assert_eq!(clock.latest(12_000), Stamp(12_000 << 16));
        }
    }
}
