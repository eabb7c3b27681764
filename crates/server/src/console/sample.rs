//! Readings of a node's counters, taken from time to time, and those of the last hour.

use std::collections::VecDeque;

/// The number of buckets in the histogram of delivery times, one more than its bounds.
pub(crate) const LATENCY_BUCKETS: usize = 15;
/// The number of samples of the last hour.
const HOUR_SAMPLES: usize = 360;
/// The time between two samples of the last hour, in milliseconds.
pub(crate) const HOUR_STEP_MS: u64 = 10_000;
/// The number of samples of the last seconds, from which rates are computed.
const RECENT_SAMPLES: usize = 11;

/// One reading of a node's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    /// The time of the reading, in Unix milliseconds.
    pub(crate) at_ms: u64,
    pub(crate) connections: u64,
    pub(crate) subscriptions: u64,
    pub(crate) channels: u64,
    pub(crate) waiting_connections: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) buffered_bytes: u64,
    pub(crate) resident: u64,
    pub(crate) open_files: u64,
    pub(crate) files_max: u64,
    /// Counted since the start, like all fields below.
    pub(crate) deliveries: u64,
    pub(crate) publications: u64,
    pub(crate) processor_s: f64,
    /// Processor time of the shard that has used most, in seconds.
    pub(crate) busiest_shard_s: f64,
    /// The number of deliveries in each bucket of delivery times.
    pub(crate) latencies: [u64; LATENCY_BUCKETS],
    pub(crate) accept_errors: u64,
    pub(crate) panics: u64,
    /// Connects and commands that were refused with 103, 3500 and 3507.
    pub(crate) refusals: u64,
    pub(crate) stats_dropped: u64,
    pub(crate) conflicts: u64,
}

impl Sample {
    /// Returns how much a counter has grown per second since an earlier sample.
    pub(crate) fn rate(&self, before: &Sample, pick: impl Fn(&Sample) -> f64) -> f64 {
        let seconds = self.at_ms.saturating_sub(before.at_ms) as f64 / 1_000.0;
        if seconds > 0.0 { ((pick(self) - pick(before)) / seconds).max(0.0) } else { 0.0 }
    }

    /// Returns the time that 99 % of the deliveries since an earlier sample did not exceed, in milliseconds. It is the
    /// upper bound of a bucket; None = nothing was delivered. `bounds_us`: the bounds of the buckets.
    pub(crate) fn p99_ms(&self, before: &Sample, bounds_us: &[u64]) -> Option<f64> {
        let counts: Vec<u64> =
            self.latencies.iter().zip(before.latencies).map(|(now, then)| now.saturating_sub(then)).collect();
        let all: u64 = counts.iter().sum();
        let mut seen = 0;
        let bucket = counts.iter().position(|count| {
            seen += count;
            all > 0 && seen * 100 >= all * 99
        })?;
        let bound = bounds_us.get(bucket).or(bounds_us.last())?;
        Some(*bound as f64 / 1_000.0)
    }
}

/// The samples of a node, of the last seconds and of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    recent: VecDeque<Sample>,
    hour: VecDeque<Sample>,
}

impl Samples {
    /// Adds a sample, and drops the oldest one beyond the limit.
    pub(crate) fn add(&mut self, sample: Sample) {
        push(&mut self.recent, sample, RECENT_SAMPLES);
        if self.hour.back().is_none_or(|last| sample.at_ms >= last.at_ms + HOUR_STEP_MS) {
            push(&mut self.hour, sample, HOUR_SAMPLES);
        }
    }

    /// Returns the newest sample.
    pub(crate) fn now(&self) -> Option<&Sample> {
        self.recent.back()
    }

    /// Returns the oldest sample that is at most this old.
    pub(crate) fn before(&self, age_ms: u64) -> Option<&Sample> {
        let now_ms = self.now()?.at_ms;
        let all = self.hour.iter().chain(&self.recent);
        all.filter(|sample| sample.at_ms + age_ms >= now_ms).min_by_key(|sample| sample.at_ms)
    }

    /// Returns the samples of the last hour, the oldest first, one step apart.
    pub(crate) fn hour(&self) -> impl Iterator<Item = &Sample> {
        self.hour.iter()
    }
}

fn push(samples: &mut VecDeque<Sample>, sample: Sample, most: usize) {
    if samples.len() == most {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ms: u64, deliveries: u64) -> Sample {
        Sample { at_ms, deliveries, ..Sample::default() }
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut samples = Samples::default();
        (0..10_000).for_each(|second| samples.add(at(second * 1_000, second)));
        let hour: Vec<u64> = samples.hour().map(|sample| sample.at_ms / 1_000).collect();
        assert_eq!((hour.len(), hour[0], hour[359]), (HOUR_SAMPLES, 6_400, 9_990));
        assert_eq!(samples.before(5_000).map(|sample| sample.at_ms), Some(9_994_000));
        assert_eq!(samples.before(600_000).map(|sample| sample.at_ms), Some(9_400_000));
    }

    #[test]
    fn rates_and_times_are_those_between_two_samples() {
        let (then, mut now) = (at(1_000, 10), at(3_000, 110));
        assert_eq!(now.rate(&then, |sample| sample.deliveries as f64), 50.0);
        assert_eq!(then.rate(&then, |sample| sample.deliveries as f64), 0.0);
        assert_eq!(now.p99_ms(&then, &[50, 100, 5_000]), None);
        now.latencies[0] = 98;
        now.latencies[2] = 2;
        assert_eq!(now.p99_ms(&then, &[50, 100, 5_000]), Some(5.0));
        now.latencies[0] = 998;
        assert_eq!(now.p99_ms(&then, &[50, 100, 5_000]), Some(0.05));
    }
}
