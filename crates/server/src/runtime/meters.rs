//! Counters, gauges and histograms, and how they are encoded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A number that only grows. One thread at a time adds to it, and any thread reads it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only one thread at a time writes, so a load and a store are enough, without a locked
    /// instruction.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds to the counter where several threads may add at the same time.
    pub(crate) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that grows and shrinks. One thread at a time writes it, as with [`Counter::add`]; any thread reads it.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn subtract(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Changes one part of the sum in this gauge from `before` to `now`.
    pub(crate) fn replace(&self, before: u64, now: u64) {
        self.add(now.wrapping_sub(before));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the latency buckets, in microseconds.
pub(crate) const BOUNDS_US: [u64; 14] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// A latency histogram with one writer.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Latency {
    /// Counts one latency, in microseconds.
    pub(crate) fn observe_us(&self, us: u64) {
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.sum_us.add(us);
    }

    /// How many latencies each bucket contains.
    pub(crate) fn counts(&self) -> [u64; BOUNDS_US.len() + 1] {
        std::array::from_fn(|index| self.buckets[index].get())
    }

    /// Counts one latency, in microseconds, where several threads may count at the same time.
    pub(crate) fn observe_shared_us(&self, us: u64) {
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].add_shared(1);
        self.sum_us.add_shared(us);
    }
}

/// Upper bounds of the buckets of amounts.
const BOUNDS: [u64; 8] = [0, 1, 3, 10, 30, 100, 1_000, 10_000];

/// A histogram of amounts, with one writer.
#[derive(Debug, Default)]
pub(crate) struct Amounts {
    buckets: [Counter; BOUNDS.len() + 1],
    sum: Counter,
}

impl Amounts {
    /// Counts one amount.
    pub(crate) fn observe(&self, amount: u64) {
        self.buckets[BOUNDS.partition_point(|bound| *bound < amount)].add(1);
        self.sum.add(amount);
    }
}

/// The sum of the histograms of amounts of all shards.
pub(super) struct SummedAmounts {
    buckets: Vec<(f64, u64)>,
    sum: u64,
}

impl SummedAmounts {
    /// Sums these histograms.
    pub(super) fn of<'a>(all: impl Iterator<Item = &'a Amounts> + Clone) -> Self {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64).chain([f64::INFINITY]);
        let counts = (0..=BOUNDS.len()).map(|i| all.clone().map(|amounts| amounts.buckets[i].get()).sum());
        let sum = all.clone().map(|amounts| amounts.sum.get()).sum();
        SummedAmounts { buckets: bounds.zip(counts).collect(), sum }
    }
}

impl EncodeMetric for SummedAmounts {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let count = self.buckets.iter().map(|(_, n)| n).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum as f64, count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// The kind of a metric that has one number.
#[derive(Debug, Clone, Copy)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
}

impl MetricKind {
    /// The type of the metric for the encoder.
    pub(super) fn of(self) -> MetricType {
        match self {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
        }
    }

    /// Encodes one value of this kind.
    pub(super) fn encode(self, value: u64, encoder: MetricEncoder<'_>) -> std::fmt::Result {
        match self {
            MetricKind::Counter => ConstCounter::new(value).encode(encoder),
            MetricKind::Gauge => ConstGauge::new(value as i64).encode(encoder),
        }
    }
}

/// Encodes a counter without labels. Both formats add `_total` to its name.
pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeCounterValue,
) -> std::fmt::Result {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// Encodes a gauge without labels.
pub(super) fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> std::fmt::Result {
    let metric = ConstGauge::new(value as i64);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// A sum of latency histograms, for example of all shards: the count of each bucket by its upper bound, and the sum in
/// seconds.
pub(super) struct SummedLatency {
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum_s: f64,
}

impl SummedLatency {
    /// Sums these histograms.
    pub(super) fn of<'l>(all: impl Iterator<Item = &'l Latency> + Clone) -> Self {
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let counts = (0..=BOUNDS_US.len()).map(|i| all.clone().map(|latency| latency.buckets[i].get()).sum());
        let sum_us: u64 = all.clone().map(|latency| latency.sum_us.get()).sum();
        SummedLatency { buckets: bounds.zip(counts).collect(), sum_s: sum_us as f64 / 1e6 }
    }

    /// How many latencies were counted.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, n)| n).sum()
    }
}

impl EncodeMetric for SummedLatency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        encoder.encode_histogram::<NoLabelSet>(self.sum_s, self.count(), &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
