//! The metrics. Each shard has metrics of its own, which only the thread that runs it writes; a scrape sums them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use std::sync::Arc;

use touchline_engine::directory::ScopeMetrics;
use touchline_engine::hook::HookKind;
use touchline_store::stats::StatsMetrics;

use crate::net::transport::Transport;
use crate::runtime::hook_mailbox::{CallOutcome, HookMetrics};
use crate::runtime::programs::Programs;
use crate::runtime::registry_mailbox::RegistryMetrics;

/// A number that only grows. One thread at a time adds, any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds. One thread at a time writes, so a load and a store do, without a locked instruction.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds, where several threads may add at a time.
    pub(crate) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that grows and shrinks. One thread at a time writes, as with [`Counter::add`]; any thread reads.
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

    /// Replaces one part of the sum that this gauge is: the part was `before` and is `now`.
    pub(crate) fn replace(&self, before: u64, now: u64) {
        self.add(now.wrapping_sub(before));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the latency buckets, microseconds.
const BOUNDS_US: [u64; 14] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// A latency histogram with one writer.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Latency {
    /// Counts one latency, microseconds.
    pub(crate) fn observe_us(&self, us: u64) {
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.sum_us.add(us);
    }
}

/// The first codes of the ranges of errors that are counted each: 100–119 and 4000–4019.
const ERROR_RANGES: [u32; 2] = [100, 4_000];
/// The first codes of the ranges of disconnects that are counted each: 3000–3019, 3500–3519 and 4000–4019.
const DISCONNECT_RANGES: [u32; 3] = [3_000, 3_500, 4_000];
/// Codes in each of these ranges.
const RANGE_SIZE: u32 = 20;

macro_rules! shard_metrics {
    ($($kind:ident $name:ident: $help:literal;)*) => {
        /// The metrics of one shard.
        #[derive(Debug, Default)]
        pub(crate) struct ShardMetrics {
            $(#[doc = $help] pub(crate) $name: $kind,)*
            /// Open connections by program.
            pub(crate) programs: Programs,
            /// Open connections by transport.
            pub(crate) transports: [Gauge; Transport::ALL.len()],
            /// Errors sent to clients, by range and code.
            errors: [[Counter; RANGE_SIZE as usize]; ERROR_RANGES.len()],
            /// Disconnects by the server, by range and code.
            disconnects: [[Counter; RANGE_SIZE as usize]; DISCONNECT_RANGES.len()],
            pub(crate) publish_latency: Latency,
            pub(crate) delivery_latency: Latency,
        }

        /// Name, meaning, kind and value of each metric without labels.
        const PLAIN: &[(&str, &str, MetricKind, fn(&ShardMetrics) -> u64)] = &[
            $((stringify!($name), $help, MetricKind::$kind, |m| m.$name.get()),)*
        ];
    };
}

#[derive(Clone, Copy)]
enum MetricKind {
    Counter,
    Gauge,
}

shard_metrics! {
    Gauge connections: "Open client connections";
    Gauge subscriptions: "Subscriptions of open connections";
    Gauge channels: "Channels held in memory at home on this node";
    Gauge queued_bytes: "Bytes that wait for connections whose sockets are full";
    Gauge buffered_bytes:
        "Bytes held for single connections: queues, answers, input that waits (limit: node.buffer_max_size)";
    Gauge publications_waiting: "Publications that wait to be delivered";
    Counter connects: "Connections that were opened";
    Counter publications: "Publications accepted";
    Counter deliveries: "Publications, joins and leaves handed to connections";
    Counter writes: "Writes to sockets";
    Counter written_bytes: "Bytes written to sockets";
    Counter messages_received: "Messages received from clients";
    Counter throttled: "Times that a client had sent more than it may, and was made to wait";
    Counter relieved: "Connections ended because node.buffer_max_size was used up";
    Counter api_requests: "Requests of the server API";
    Counter accept_errors: "Connections that could not be accepted, for want of file descriptors most often";
    Gauge unauthenticated: "Connections whose client has not connected yet";
    Counter unauthenticated_closed: "Such connections that were closed to make room for others, the oldest first";
    Counter denied_by_address: "Clients refused by client.connection_limit_by_address";
    Counter denied_by_rate: "Clients refused by client.connection_rate_limit";
    Counter proxy_headers_refused:
        "Connections closed for want of a good header of the PROXY protocol, or because it came from no trusted \
         proxy";
    Counter tls_pauses: "Times that connections had to wait because of http_server.tls_handshake_rate_limit";
    Counter panics: "Connections ended by a fault of the server";
}

impl ShardMetrics {
    /// Counts an error sent to a client. A code outside the ranges is not counted. Any thread may call this.
    pub(crate) fn count_error(&self, code: u32) {
        if let Some(count) = of_code(&ERROR_RANGES, &self.errors, code) {
            count.add_shared(1);
        }
    }

    /// Counts a disconnect by the server. A code outside the ranges is not counted.
    pub(crate) fn count_disconnect(&self, code: u16) {
        if let Some(count) = of_code(&DISCONNECT_RANGES, &self.disconnects, code.into()) {
            count.add(1);
        }
    }
}

/// The counter of a code; None = the code is in no range.
fn of_code<'c>(ranges: &[u32], counters: &'c [[Counter; RANGE_SIZE as usize]], code: u32) -> Option<&'c Counter> {
    ranges.iter().zip(counters).find_map(|(first, counters)| counters.get(code.checked_sub(*first)? as usize))
}

/// Sums the shards' metrics at each scrape.
#[derive(Debug)]
pub(crate) struct NodeCollector(Vec<Arc<ShardMetrics>>);

impl NodeCollector {
    /// The metrics of all shards of a node.
    pub(crate) fn of<'m>(shards: impl Iterator<Item = &'m Arc<ShardMetrics>>) -> Self {
        NodeCollector(shards.map(Arc::clone).collect())
    }

    /// The counters and gauges that have no labels, by name.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        PLAIN.iter().map(|(name, _, _, pick)| (*name, self.sum(pick)))
    }

    fn sum(&self, pick: impl Fn(&ShardMetrics) -> u64) -> u64 {
        self.0.iter().map(|shard| pick(shard)).sum()
    }

    fn latency(&self, pick: fn(&ShardMetrics) -> &Latency) -> SummedLatency {
        SummedLatency::of(self.0.iter().map(|shard| pick(shard)))
    }
}

impl NodeCollector {
    fn encode_transports(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Open client connections by transport";
        let mut family = encoder.encode_descriptor("transport_connections", help, None, MetricType::Gauge)?;
        for transport in Transport::ALL {
            let open = ConstGauge::new(self.sum(|m| m.transports[transport as usize].get()) as i64);
            open.encode(family.encode_family(&[("transport", transport.as_str())])?)?;
        }
        Ok(())
    }

    fn encode_programs(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut programs = BTreeMap::new();
        self.0.iter().for_each(|shard| shard.programs.add_to(&mut programs));
        let help = "Open client connections by the name and version that clients give when they connect";
        let mut family = encoder.encode_descriptor("client_connections", help, None, MetricType::Gauge)?;
        for ((name, version), open) in &programs {
            let labels = [("client_name", &**name), ("client_version", &**version)];
            ConstGauge::new(*open as i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Encodes counters by code, those above 0.
    fn encode_codes(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        ranges: &[u32],
        pick: fn(&ShardMetrics) -> &[[Counter; RANGE_SIZE as usize]],
    ) -> std::fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (range, first) in ranges.iter().enumerate() {
            for number in 0..RANGE_SIZE {
                let count = self.sum(|m| pick(m)[range][number as usize].get());
                if count > 0 {
                    let code = (first + number).to_string();
                    ConstCounter::new(count).encode(family.encode_family(&[("code", code)])?)?;
                }
            }
        }
        Ok(())
    }

    fn encode_latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        type Pick = fn(&ShardMetrics) -> &Latency;
        let latencies: [(&str, &str, Pick); 2] = [
            ("publish_seconds", "From a publish request's arrival to its answer", |m| &m.publish_latency),
            ("delivery_seconds", "From a publication's acceptance to its last write on a shard", |m| {
                &m.delivery_latency
            }),
        ];
        for (name, help, pick) in latencies {
            let latency = self.latency(pick);
            latency.encode(encoder.encode_descriptor(name, help, None, MetricType::Histogram)?)?;
        }
        Ok(())
    }
}

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        for (name, help, kind, pick) in PLAIN {
            let value = self.sum(pick);
            match kind {
                MetricKind::Counter => counter(&mut encoder, name, help, value)?,
                MetricKind::Gauge => gauge(&mut encoder, name, help, value)?,
            }
        }
        self.encode_transports(&mut encoder)?;
        self.encode_programs(&mut encoder)?;
        let errors = ("errors", "Errors told to clients, by number");
        self.encode_codes(&mut encoder, errors, &ERROR_RANGES, |m| &m.errors)?;
        let disconnects = ("disconnects", "Connections ended by the server, by number");
        self.encode_codes(&mut encoder, disconnects, &DISCONNECT_RANGES, |m| &m.disconnects)?;
        self.encode_latencies(&mut encoder)
    }
}

/// The link to the cluster.
#[derive(Debug)]
pub(crate) struct ClusterStatus {
    /// Whether NATS can be reached.
    pub(crate) is_up: bool,
    /// The number of other nodes in sight.
    pub(crate) peers: usize,
}

/// The registry's metrics, by scope, and those of the link to the cluster.
#[derive(Debug)]
pub(crate) struct RegistryCollector {
    pub(crate) metrics: Arc<RegistryMetrics>,
    /// None = the node runs alone.
    pub(crate) link: Option<ClusterStatus>,
}

type OfScope = (&'static str, &'static str, MetricKind, fn(&ScopeMetrics) -> u64);

const OF_SCOPE: &[OfScope] = &[
    ("registry_names", "Names with an owner, on all nodes", MetricKind::Gauge, |f| f.names),
    ("registry_members", "Memberships of groups, on all nodes", MetricKind::Gauge, |f| f.members),
    (
        "registry_conflicts_lost",
        "Names that a connection of this node lost to another node's",
        MetricKind::Counter,
        |f| f.counters.conflicts_lost,
    ),
    ("registry_gaps", "Times that operations of another node were found missing", MetricKind::Counter, |f| {
        f.counters.gaps
    }),
    ("registry_snapshots_sent", "Snapshots sent to other nodes", MetricKind::Counter, |f| f.counters.snapshots_sent),
    ("registry_snapshots_installed", "Snapshots of other nodes installed", MetricKind::Counter, |f| {
        f.counters.snapshots_installed
    }),
    ("registry_digests_wrong", "Digests that differed although nothing was missing", MetricKind::Counter, |f| {
        f.counters.digests_wrong
    }),
    ("registry_purges", "Nodes forgotten", MetricKind::Counter, |f| f.counters.purges),
    ("registry_malformed", "Messages of other nodes that could not be read", MetricKind::Counter, |f| {
        f.counters.malformed
    }),
    ("registry_drifted", "Stamps of clocks that are too far ahead", MetricKind::Counter, |f| f.counters.drifted),
    ("registry_reincarnations", "Times that this node took a new incarnation", MetricKind::Counter, |f| {
        f.counters.reincarnations
    }),
];

impl Collector for RegistryCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        gauge(&mut encoder, "calls_waiting", "Calls that wait for an answer", self.metrics.calls_waiting as u64)?;
        if let Some(link) = &self.link {
            gauge(&mut encoder, "cluster_linked", "1 while NATS can be reached", u64::from(link.is_up))?;
            gauge(&mut encoder, "cluster_peers", "Other nodes in sight", link.peers as u64)?;
        }
        for (name, help, kind, pick) in OF_SCOPE {
            let metric_type = match kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for of in &self.metrics.scopes {
                let labels = [("scope", &*of.scope)];
                match kind {
                    MetricKind::Counter => ConstCounter::new(pick(of)).encode(family.encode_family(&labels)?)?,
                    MetricKind::Gauge => ConstGauge::new(pick(of) as i64).encode(family.encode_family(&labels)?)?,
                }
            }
        }
        Ok(())
    }
}

/// The metrics of the primary database.
#[derive(Debug)]
pub(crate) struct StoreCollector(pub(crate) Arc<touchline_store::StoreMetrics>);

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let metrics = &self.0;
        let counters = [
            ("store_publications", "Publications stored", &metrics.stored),
            ("store_commits", "Commits, whatever came of them", &metrics.commits),
            ("store_failures", "Commits that failed", &metrics.failures),
            ("store_refused", "Publications refused because too many waited", &metrics.refused),
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
        let commit_s = metrics.commit_us.load(Relaxed) as f64 / 1e6;
        counter(&mut encoder, "store_commit_seconds", "Time spent in commits", commit_s)?;
        let gauges = [
            ("store_waiting", "Publications that wait for a commit", metrics.waiting.load(Relaxed)),
            ("store_reading", "Reads that wait or are under way", metrics.reading.load(Relaxed)),
            ("store_healthy", "1 while the last write succeeded", u64::from(metrics.is_healthy())),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))
    }
}

/// The metrics of hooks.
#[derive(Debug)]
pub(crate) struct HookCollector {
    pub(crate) metrics: Arc<HookMetrics>,
    /// Calls that wait or are under way.
    pub(crate) outstanding: usize,
}

impl Collector for HookCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let metrics = &self.metrics;
        gauge(&mut encoder, "hooks_outstanding", "Calls of hooks that wait or are under way", self.outstanding as u64)?;
        gauge(&mut encoder, "hooks_under_way", "Calls of hooks that are under way", metrics.under_way.get())?;
        let help = "Calls of hooks by outcome";
        let mut family = encoder.encode_descriptor("hook_calls", help, None, MetricType::Counter)?;
        for kind in HookKind::ALL {
            for outcome in CallOutcome::ALL {
                let count = metrics.calls[kind as usize][outcome as usize].get();
                if count > 0 {
                    let labels = [("hook", kind.name()), ("outcome", outcome.as_str())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "From the first byte of a hook's call to the end of its answer";
        let mut family = encoder.encode_descriptor("hook_seconds", help, None, MetricType::Histogram)?;
        for kind in HookKind::ALL {
            let latency = SummedLatency::of(std::iter::once(&metrics.latency[kind as usize]));
            latency.encode(family.encode_family(&[("hook", kind.name())])?)?;
        }
        let help = "1 while a backend is not asked, because it has failed too often";
        let mut family = encoder.encode_descriptor("hook_breaker_open", help, None, MetricType::Gauge)?;
        for (name, is_open) in &metrics.endpoints {
            let is_open = ConstGauge::new(i64::from(is_open.load(Relaxed)));
            is_open.encode(family.encode_family(&[("backend", name.as_str())])?)?;
        }
        Ok(())
    }
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

/// Encodes a counter without labels; both formats add `_total` to its name.
fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeCounterValue,
) -> std::fmt::Result {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// Encodes a gauge without labels.
fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> std::fmt::Result {
    let metric = ConstGauge::new(value as i64);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// A latency histogram of all shards: the count of each bucket by its upper bound (seconds), and the sum.
struct SummedLatency {
    buckets: Vec<(f64, u64)>,
    sum_us: u64,
}

impl SummedLatency {
    fn of<'l>(all: impl Iterator<Item = &'l Latency> + Clone) -> Self {
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let counts = (0..=BOUNDS_US.len()).map(|i| all.clone().map(|latency| latency.buckets[i].get()).sum());
        let sum_us = all.clone().map(|latency| latency.sum_us.get()).sum();
        SummedLatency { buckets: bounds.zip(counts).collect(), sum_us }
    }
}

impl EncodeMetric for SummedLatency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let count = self.buckets.iter().map(|(_, n)| n).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum_us as f64 / 1e6, count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
