//! How fast one connection may react: the generic cell rate algorithm (ITU-T I.371) with weights.
//!
//! The buckets of `limit/` have a fixed size and take one token at a time. Here each channel has a rate of its own, and
//! a message takes as many tokens as it has reactions.

/// How many seconds' worth of reactions a connection may send at once.
const BURST_S: u64 = 5;

/// How much of its rate a connection has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReactionRate {
    /// When the rate is fully available again, microseconds of a monotonic clock.
    due_us: u64,
}

impl ReactionRate {
    /// Takes `n` reactions at `rate` a second. Returns whether the rate allows them; otherwise nothing is taken.
    pub fn take(&mut self, n: u32, rate: u32, now_us: u64) -> bool {
        let cost_us = u64::from(n) * 1_000_000 / u64::from(rate.max(1));
        let next_us = self.due_us.max(now_us).saturating_add(cost_us);
        let has_room = next_us <= now_us.saturating_add(BURST_S * 1_000_000);
        if has_room {
            self.due_us = next_us;
        }
        has_room
    }

    /// The greatest number of reactions that can be taken at once at a rate.
    pub fn burst(rate: u32) -> u32 {
        rate.max(1).saturating_mul(BURST_S as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_seconds_worth_may_come_at_once_and_then_the_rate() {
        let mut rate = ReactionRate::default();
        let mut taken = 0;
        for now_us in (0..10_000_000).step_by(10_000) {
            while rate.take(1, 20, now_us) {
                taken += 1;
            }
        }
        assert!((299..=301).contains(&taken), "a burst of 100 and twenty a second for ten seconds: {taken}");
        assert_eq!(ReactionRate::burst(20), 100);
    }

    #[test]
    fn what_is_refused_takes_nothing() {
        let mut rate = ReactionRate::default();
        assert!(!rate.take(101, 20, 0) && rate.take(100, 20, 0));
        assert!(!rate.take(1, 20, 0) && rate.take(1, 20, 50_000));
        assert!(rate.take(5, 0, 90_000_000), "a rate of 0 counts as 1");
    }
}
