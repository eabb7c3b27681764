//! How much a connection may send: for commands and for bytes a rate each, by the generic cell rate algorithm (ITU-T
//! I.371): a number that runs ahead of the clock by what has been sent.

/// How much may be sent at once, as time at the rate, microseconds; and at least so many.
const BURST_US: u64 = 200_000;
const BURST_MIN: u64 = 1_000;

/// What a connection has sent of what it may.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RateLimiter {
    /// For commands and for bytes: when what has been sent is made up for, microseconds.
    due_us: [u64; 2],
}

impl RateLimiter {
    /// Takes note of amounts, each with the number allowed in a second (0 = any). When one is above its rate: the time
    /// until which it must wait.
    pub(crate) fn charge(&mut self, amounts: [(usize, usize); 2], now_us: u64) -> Option<u64> {
        let mut until = None;
        for (due_us, (amount, rate)) in self.due_us.iter_mut().zip(amounts) {
            if rate == 0 {
                continue;
            }
            let time_of = |amount: u64| amount.saturating_mul(1_000_000) / rate as u64;
            *due_us = (*due_us).max(now_us) + time_of(amount as u64);
            let allowed_us = now_us + BURST_US.max(time_of(BURST_MIN));
            if *due_us > allowed_us {
                until = until.max(Some(now_us + *due_us - allowed_us));
            }
        }
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_is_above_the_rate_waits() {
        let mut allowance = RateLimiter::default();
        assert_eq!(allowance.charge([(2_000, 10_000), (0, 0)], 1_000_000), None, "a fifth of a second's worth");
        assert_eq!(allowance.charge([(1_000, 10_000), (0, 0)], 1_000_000), Some(1_100_000));
        assert_eq!(allowance.charge([(0, 10_000), (0, 0)], 1_100_000), None, "the wait was enough");
        assert_eq!(allowance.charge([(1_000, 10_000), (0, 0)], 1_200_000), None, "as much as the time since then");
    }

    #[test]
    fn a_steady_client_at_its_rate_never_waits() {
        let mut allowance = RateLimiter::default();
        for step in 0..10_000u64 {
            assert_eq!(allowance.charge([(1, 100), (50, 5_000)], step * 10_000), None);
        }
    }

    #[test]
    fn a_slow_rate_still_lets_a_client_begin() {
        let mut allowance = RateLimiter::default();
        assert_eq!(allowance.charge([(129, 1), (0, 0)], 0), None, "connect and a full set of subscriptions");
    }
}
