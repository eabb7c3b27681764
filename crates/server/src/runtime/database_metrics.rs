//! The metrics of the two databases.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use touchline_store::SizeMetrics;
use touchline_store::stats::StatsMetrics;

use super::meters::{SummedLatency, counter, gauge};

/// The metrics of the primary database.
#[derive(Debug)]
pub(crate) struct StoreCollector(pub(crate) Arc<touchline_store::StoreMetrics>);

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let metrics = &self.0;
        let counters = [
            ("store_publications", "Publications stored", &metrics.stored),
            ("store_failures", "Commits that failed", &metrics.failures),
            ("store_refused", "Publications refused because too many waited", &metrics.refused),
            ("store_full_refused", "Requests refused because the primary database may not grow", &metrics.size.refused),
            ("store_loads", "Histories read", &metrics.loads),
            ("store_inbox_messages", "Messages stored for names", &metrics.inbox_messages),
            (
                "store_inbox_messages_expired",
                "Messages that expired before a client took them",
                &metrics.inbox_messages_expired,
            ),
        ];
        counters
            .into_iter()
            .try_for_each(|(name, help, count)| counter(&mut encoder, name, help, count.load(Relaxed)))?;
        let times = SummedLatency { buckets: metrics.commit_times.buckets(), sum_s: metrics.commit_times.sum_s() };
        let help = "How long commits took, successful or not";
        times.encode(encoder.encode_descriptor("store_commit_seconds", help, None, MetricType::Histogram)?)?;
        let gauges = [
            ("store_waiting", "Publications that wait for a commit", metrics.waiting.load(Relaxed)),
            ("store_reading", "Reads that wait or are under way", metrics.reading.load(Relaxed)),
            ("store_healthy", "1 while the last write succeeded", u64::from(metrics.is_healthy())),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))?;
        encode_size(&mut encoder, &metrics.size)
    }
}

/// Encodes the size of the primary database. If the disk cannot be measured, its free bytes and its reserved
/// bytes are 0.
fn encode_size(encoder: &mut DescriptorEncoder<'_>, size: &SizeMetrics) -> std::fmt::Result {
    let disk = size.disk_free().map(|free| (free, size.disk_reserve())).unwrap_or_default();
    let used = size.used().unwrap_or_default();
    let gauges = [
        ("store_size_bytes", "Bytes of the primary database that count against its limit", used),
        ("store_reusable_bytes", "Bytes inside its files that new rows take first", size.reusable()),
        ("store_size_limit_bytes", "Bytes that the primary database may hold; 0 = any number", size.limit()),
        ("store_disk_free_bytes", "Free bytes of the file system of an SQLite primary", disk.0),
        ("store_disk_reserve_bytes", "Bytes that stay free there; 0 = none", disk.1),
        ("store_full", "1 while the primary database may not grow", u64::from(size.is_full())),
    ];
    gauges.into_iter().try_for_each(|(name, help, value)| gauge(encoder, name, help, value))
}

/// The metrics of the statistics database.
#[derive(Debug)]
pub(crate) struct StatsCollector(pub(crate) Arc<StatsMetrics>);

impl Collector for StatsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let metrics = &self.0;
        let counters = [
            ("stats_written", "Rows of statistics written", &metrics.written),
            (
                "stats_dropped",
                "Rows of statistics dropped, because too many waited or the database failed",
                &metrics.dropped,
            ),
            ("stats_failures", "Batches of statistics that failed", &metrics.failures),
        ];
        counters
            .into_iter()
            .try_for_each(|(name, help, count)| counter(&mut encoder, name, help, count.load(Relaxed)))?;
        let gauges = [
            ("stats_waiting", "Rows of statistics that wait to be written", metrics.waiting.load(Relaxed)),
            ("stats_reading", "Questions to the statistics that wait or are under way", metrics.reading.load(Relaxed)),
            ("stats_healthy", "1 while the last batch of statistics was written", u64::from(metrics.is_healthy())),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))
    }
}
