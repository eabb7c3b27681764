//! The publications that subscribers should get and those that they got. An average never hides a publication that is
//! missing, duplicated or out of order.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A distribution of times, microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        // Three digits need only a few dozen kilobytes. The bounds are valid by construction.
        Times(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are within bounds")))
    }
}

impl Times {
    pub(crate) fn record(&mut self, us: u64) {
        let _ = self.0.record(us);
    }

    pub(crate) fn mean_ms(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// Milliseconds that the given share (0 to 1) did not exceed.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The longest time, milliseconds.
    pub(crate) fn max_ms(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// Pairs of value and count: how times travel between processes.
    pub(crate) fn to_pairs(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    pub(crate) fn add(&mut self, other: &Times) {
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn add_pairs(&mut self, pairs: &[(u64, u64)]) {
        for (value, count) in pairs {
            let _ = self.0.record_n(*value, *count);
        }
    }
}

/// Counts of errors in deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wrongs {
    /// Publications that never came.
    pub(crate) lost: u64,
    /// Publications that arrived again, or after a later one.
    pub(crate) repeated: u64,
    /// Connections that ended before they should.
    pub(crate) closed: u64,
}

impl Wrongs {
    pub(crate) fn add(&mut self, other: Wrongs) {
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.closed += other.closed;
    }

    /// The sum of all counts. If it is not zero, the counts are printed on standard error, with the name of the side.
    pub(crate) fn total(self, side: &str) -> u64 {
        if self != Wrongs::default() {
            eprintln!("{side}: lost {}, doubled or out of order {}, closed {}", self.lost, self.repeated, self.closed);
        }

        self.lost + self.repeated + self.closed
    }
}

/// The progress of one subscriber.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Number of the last publication that came.
    pub(crate) last: u64,
    /// The number of the last publication that is due.
    due: u64,
}

/// All that a worker's subscribers are due.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) delivered: u64,
    pub(crate) expected: u64,
    pub(crate) wrongs: Wrongs,
    pub(crate) times: Times,
}

impl Ledger {
    /// Resets all counts: the connections are opened again.
    pub(crate) fn reset(&mut self) {
        *self = Ledger::default();
    }

    /// A new round begins. Connections that were closed since the last report still count.
    pub(crate) fn begin_round(&mut self) {
        let closed = self.wrongs.closed;
        *self = Ledger { wrongs: Wrongs { closed, ..Wrongs::default() }, ..Ledger::default() };
    }

    /// A subscriber is due so many more.
    pub(crate) fn expect(&mut self, subscriber: &mut Progress, more: u64) {
        subscriber.due = subscriber.last + more;
        self.expected += more;
    }

    /// Records a received publication.
    pub(crate) fn receive(&mut self, subscriber: &mut Progress, number: u64, age_us: u64) {
        if number <= subscriber.last {
            self.wrongs.repeated += 1;
            return;
        }
        self.wrongs.lost += number - subscriber.last - 1;
        subscriber.last = number;
        self.delivered += 1;
        self.times.record(age_us);
    }

    /// Whether all expected publications have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.delivered + self.wrongs.lost >= self.expected
    }

    /// Ends the round of a subscriber: publications that are still missing count as lost.
    pub(crate) fn end_round(&mut self, subscriber: &mut Progress) {
        self.wrongs.lost += subscriber.due.saturating_sub(subscriber.last);
        subscriber.last = subscriber.last.max(subscriber.due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_repetitions_are_counted() {
        let mut ledger = Ledger::default();
        let mut one = Progress::default();
        ledger.expect(&mut one, 5);
        for number in [1, 2, 2, 4] {
            ledger.receive(&mut one, number, 10);
        }
        assert!(!ledger.is_complete());
        assert_eq!((ledger.delivered, ledger.wrongs), (3, Wrongs { lost: 1, repeated: 1, closed: 0 }));
        ledger.end_round(&mut one);
        assert_eq!(ledger.wrongs.lost, 2);
        assert_eq!(one.last, 5);
    }

    #[test]
    fn a_connection_that_is_closed_between_two_rounds_is_counted() {
        let mut ledger = Ledger { delivered: 5, ..Ledger::default() };
        ledger.wrongs = Wrongs { lost: 1, repeated: 1, closed: 2 };
        ledger.begin_round();
        assert_eq!((ledger.delivered, ledger.wrongs), (0, Wrongs { lost: 0, repeated: 0, closed: 2 }));
        ledger.reset();
        assert_eq!(ledger.wrongs, Wrongs::default());
    }

    #[test]
    fn times_travel() {
        let mut times = Times::default();
        (1..=1_000).for_each(|us| times.record(us * 1_000));
        let mut other = Times::default();
        other.add_pairs(&times.to_pairs());
        assert!((other.quantile_ms(0.99) / 990.0 - 1.0).abs() < 0.01 && (other.mean_ms() / 500.5 - 1.0).abs() < 0.01);
    }
}
