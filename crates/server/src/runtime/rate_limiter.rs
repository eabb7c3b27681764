//! The rate limiter of a connection: one rate for commands and one for bytes. It uses the generic cell rate algorithm
//! (ITU-T I.371). For each rate it keeps a time that runs ahead of the clock by what has been sent.
//!
//! The project does not use the crate `governor`, which reads its own clock and keeps its state in atomics. A
//! connection belongs to one thread, which knows the time.

/// The burst that may be sent at once: as time at the rate, in microseconds, and as the least number of units.
const BURST_US: u64 = 200_000;
const BURST_MIN: u64 = 1_000;

/// What a connection has sent, compared with its rates.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RateLimiter {
    /// For commands and for bytes: when the rate has made up for what was sent, in microseconds of the node's clock.
    due_us: [u64; 2],
}

impl RateLimiter {
    /// Charges amounts, each with the number allowed per second (0 = unlimited). Returns until when the connection must
    /// wait, in microseconds; None = no amount is above its rate.
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
        let mut limiter = RateLimiter::default();
        assert_eq!(limiter.charge([(2_000, 10_000), (0, 0)], 1_000_000), None, "a fifth of a second's worth");
        assert_eq!(limiter.charge([(1_000, 10_000), (0, 0)], 1_000_000), Some(1_100_000));
        assert_eq!(limiter.charge([(0, 10_000), (0, 0)], 1_100_000), None, "the wait was enough");
        assert_eq!(limiter.charge([(1_000, 10_000), (0, 0)], 1_200_000), None, "as much as the time since then");
    }

    #[test]
    fn a_steady_client_at_its_rate_never_waits() {
        let mut limiter = RateLimiter::default();
        for step in 0..10_000u64 {
            assert_eq!(limiter.charge([(1, 100), (50, 5_000)], step * 10_000), None);
        }
    }

    #[test]
    fn a_slow_rate_still_lets_a_client_begin() {
        let mut limiter = RateLimiter::default();
        assert_eq!(limiter.charge([(129, 1), (0, 0)], 0), None, "connect and a full set of subscriptions");
    }
}
