//! How fast a node that drains asks its clients to leave. The code is pure: it maps a time to the part of the clients
//! that must have been asked.
//!
//! A client that is asked to leave connects to another node at once. So the time at which it is asked is the time at
//! which it connects there.

use std::time::Duration;

/// The part of `shutdown.timeout` in which all clients are asked to leave. The rest is for clients with unfinished
/// work.
const TOLD_WITHIN: f64 = 0.8;
/// Up to this many clients a second, `shutdown.spread` does not slow the drain, so that a small node stops soon.
const PACE_MIN: f64 = 20.0;

/// The shortest time of a drain, in seconds.
const SECONDS_MIN: f64 = 0.05;

/// The limits of a drain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DrainTerms {
    /// The number of clients of the node.
    pub(crate) clients: u64,
    /// The clients a second that the other nodes can take.
    pub(crate) rate: u32,
    /// The setting `shutdown.spread`: the shortest time of the drain.
    pub(crate) spread: Duration,
    /// The setting `shutdown.timeout`: the longest time until the node stops.
    pub(crate) timeout: Duration,
}

/// The forecast of a drain.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct DrainForecast {
    /// The number of clients that are asked to leave.
    pub(crate) clients: u64,
    /// The time from the first client to the last, in seconds.
    pub(crate) seconds: f64,
    /// The clients that are asked each second.
    pub(crate) clients_per_second: f64,
    /// The time that the other nodes need, in seconds. It is longer than `seconds` if `shutdown.timeout` does not allow
    /// it.
    pub(crate) needed_s: f64,
}

impl DrainForecast {
    /// Returns the `shutdown.timeout` that would give the other nodes the time that they need, in seconds.
    pub(crate) fn timeout_s(&self) -> u64 {
        (self.needed_s / TOLD_WITHIN).ceil() as u64
    }

    /// Whether the clients are asked to leave faster than the other nodes can take them.
    pub(crate) fn is_hurried(&self) -> bool {
        self.needed_s > self.seconds + 0.5
    }
}

/// The plan of a drain under way.
#[derive(Debug)]
pub(crate) struct DrainPlan {
    terms: DrainTerms,
    /// The number of clients that were asked before `from_s`.
    told: f64,
    /// When the current pace began, in seconds since the drain began.
    from_s: f64,
    /// The clients a second since then.
    pace: f64,
}

impl DrainTerms {
    /// Returns the forecast of a drain that begins now.
    pub(crate) fn forecast(&self) -> DrainForecast {
        let (pace, needed_s) = self.pace(self.clients as f64, 0.0);
        let seconds = if pace > 0.0 { self.clients as f64 / pace } else { 0.0 };
        DrainForecast { clients: self.clients, seconds, clients_per_second: pace, needed_s }
    }

    /// Returns the pace for the clients that are left after `elapsed_s`, and the time that the other nodes need for
    /// them.
    fn pace(&self, left: f64, elapsed_s: f64) -> (f64, f64) {
        if left <= 0.0 {
            return (0.0, 0.0);
        }
        let rate = f64::from(self.rate.max(1));
        // A small number of clients need not wait for the spread.
        let spread_s = (self.spread.as_secs_f64() - elapsed_s).clamp(0.0, left / PACE_MIN);
        let needed_s = (left / rate).max(spread_s);
        let allowed_s = self.timeout.as_secs_f64() * TOLD_WITHIN - elapsed_s;
        (left / needed_s.min(allowed_s).max(SECONDS_MIN), needed_s)
    }
}

impl DrainPlan {
    /// Makes the plan of a drain that begins now.
    pub(crate) fn new(terms: DrainTerms) -> Self {
        let (pace, _) = terms.pace(terms.clients as f64, 0.0);
        DrainPlan { terms, told: 0.0, from_s: 0.0, pace }
    }

    /// Changes the clients a second that the other nodes can take. `elapsed_s`: the time since the drain began.
    pub(crate) fn set_rate(&mut self, rate: u32, elapsed_s: f64) {
        if rate == self.terms.rate {
            return;
        }
        self.told = self.told(elapsed_s);
        self.from_s = elapsed_s;
        self.terms.rate = rate;
        (self.pace, _) = self.terms.pace(self.terms.clients as f64 - self.told, elapsed_s);
    }

    /// Returns the part of the clients that must have been asked, 0 to 1. It never falls. `elapsed_s`: the time since
    /// the drain began.
    pub(crate) fn part(&self, elapsed_s: f64) -> f64 {
        match self.terms.clients {
            0 => 1.0,
            clients => (self.told(elapsed_s) / clients as f64).min(1.0),
        }
    }

    /// Returns the forecast of the whole drain, as far as it is known now.
    pub(crate) fn forecast(&self) -> DrainForecast {
        let left = self.terms.clients as f64 - self.told;
        let seconds = self.from_s + if self.pace > 0.0 { left / self.pace } else { 0.0 };
        let (_, needed_s) = self.terms.pace(left, self.from_s);
        let (clients, needed_s) = (self.terms.clients, self.from_s + needed_s);
        DrainForecast { clients, seconds, clients_per_second: self.pace, needed_s }
    }

    fn told(&self, elapsed_s: f64) -> f64 {
        let since_s = (elapsed_s - self.from_s).max(0.0);
        (self.told + since_s * self.pace).min(self.terms.clients as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(clients: u64, rate: u32, spread_s: u64, timeout_s: u64) -> DrainTerms {
        let (spread, timeout) = (Duration::from_secs(spread_s), Duration::from_secs(timeout_s));
        DrainTerms { clients, rate, spread, timeout }
    }

    #[test]
    fn clients_go_as_fast_as_the_others_can_take_them() {
        let forecast = terms(10_000, 500, 5, 60).forecast();
        assert_eq!((forecast.seconds, forecast.clients_per_second), (20.0, 500.0));
        assert!(!forecast.is_hurried());
        let plan = DrainPlan::new(terms(10_000, 500, 5, 60));
        assert_eq!([0.0, 5.0, 20.0, 30.0].map(|at_s| plan.part(at_s)), [0.0, 0.25, 1.0, 1.0]);
    }

    #[test]
    fn the_spread_is_the_least_and_the_timeout_the_most() {
        assert_eq!(terms(1_000, 50_000, 5, 30).forecast().seconds, 5.0);
        let hurried = terms(100_000, 1_000, 5, 30).forecast();
        assert_eq!((hurried.seconds, hurried.timeout_s()), (24.0, 125));
        assert!(hurried.is_hurried());
        assert!(terms(10, 1_000, 5, 30).forecast().seconds <= 0.5, "few clients need not wait");
        assert_eq!(terms(0, 1_000, 5, 30).forecast().seconds, 0.0);
        assert_eq!(DrainPlan::new(terms(0, 1_000, 5, 30)).part(0.0), 1.0);
        // With no time at all, every client is asked at once.
        assert_eq!(DrainPlan::new(terms(1_000, 10, 5, 0)).part(SECONDS_MIN), 1.0);
    }

    #[test]
    fn another_rate_changes_what_is_left() {
        let mut plan = DrainPlan::new(terms(10_000, 1_000, 0, 60));
        plan.set_rate(250, 5.0);
        assert_eq!((plan.part(5.0), plan.forecast().seconds), (0.5, 25.0));
        assert_eq!(plan.part(15.0), 0.75);
    }

    #[test]
    fn whatever_the_rates_all_are_told_in_time_and_the_part_never_falls() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..2_000 {
            let clients = random.u64(0..100_000);
            let (spread_s, timeout_s) = (random.u64(0..60), random.u64(0..60));
            let mut plan = DrainPlan::new(terms(clients, random.u32(0..5_000), spread_s, timeout_s));
            let (mut at_s, mut before) = (0.0, 0.0);
            let end_s = timeout_s as f64 * TOLD_WITHIN + 0.01;
            while at_s < end_s {
                at_s = f64::min(at_s + random.f64(), end_s);
                if random.u8(0..8) == 0 {
                    plan.set_rate(random.u32(0..5_000), at_s);
                }
                let part = plan.part(at_s);
                assert!(part >= before - 1e-9 && part <= 1.0, "{plan:?}");
                before = part;
            }
            assert!(plan.part(end_s + SECONDS_MIN) > 0.999_999, "{plan:?}");
        }
    }
}
