//! What is counted. Each shard has counters of its own that only its thread writes; a scrape sums them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use std::sync::Arc;

use touchline_engine::directory::ScopeMetrics;
use touchline_store::stats::StatsMetrics;

use crate::node::Node;
use crate::programs::Programs;
use crate::registry_actor::RegistryMetrics;
use crate::transport::Transport;

/// A number with one writer and any readers.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds. One thread at a time writes, so a load and a store do, without a locked instruction.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds, where several threads may.
    pub(crate) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn subtract(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
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
    buckets: [Count; BOUNDS_US.len() + 1],
    sum_us: Count,
}

impl Latency {
    pub(crate) fn observe_us(&self, us: u64) {
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.sum_us.add(us);
    }
}

/// Numbers on the wire that are counted by themselves: errors 100–119 and 4001–4019, disconnects 3000–3019, 3500–3519
/// and 4000–4019.
const ERRORS: [u32; 2] = [100, 4_000];
/// Numbers in each of these ranges.
const RANGE: u32 = 20;

macro_rules! shard_metrics {
    ($($kind:ident $name:ident: $help:literal;)*) => {
        /// The counters of one shard.
        #[derive(Debug, Default)]
        pub(crate) struct ShardMetrics {
            $(#[doc = $help] pub(crate) $name: Count,)*
            /// Open connections by program.
            pub(crate) programs: Programs,
            /// Open connections by transport.
            pub(crate) transports: [Count; Transport::ALL.len()],
            pub(crate) errors: [[Count; RANGE as usize]; 2],
            pub(crate) disconnects: [[Count; 20]; 3],
            pub(crate) publish_latency: Latency,
            pub(crate) delivery_latency: Latency,
        }

        const PLAIN: &[(&str, &str, MetricKind, fn(&ShardMetrics) -> &Count)] = &[
            $((stringify!($name), $help, MetricKind::$kind, |m| &m.$name),)*
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
    Gauge buffered_bytes: "Bytes held for single connections: queues, answers, input that waits (limit: node.buffer_max_size)";
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
    Gauge half_open: "Connections whose client has not connected yet";
    Counter half_open_closed: "Such connections that were closed to make room for others, the oldest first";
    Counter denied_by_address: "Clients refused by client.connection_limit_by_address";
    Counter denied_by_rate: "Clients refused by client.connection_rate_limit";
    Counter proxy_headers_refused: "Connections closed for want of a good header of the PROXY protocol, or because it came from no trusted proxy";
    Counter tls_pauses: "Times that connections had to wait because of http_server.tls_handshake_rate_limit";
    Counter panics: "Connections ended by a fault of the server";
}

impl ShardMetrics {
    pub(crate) fn count_error(&self, code: u32) {
        for (first, counts) in ERRORS.iter().zip(&self.errors) {
            if let Some(count) = code.checked_sub(*first).and_then(|i| counts.get(i as usize)) {
                count.add_shared(1);
            }
        }
    }

    pub(crate) fn count_disconnect(&self, code: u16) {
        if let Some((kind, number)) = disconnect_index(code) {
            self.disconnects[kind][number].add(1);
        }
    }
}

fn disconnect_index(code: u16) -> Option<(usize, usize)> {
    match code {
        3000..3020 => Some((0, usize::from(code - 3000))),
        3500..3520 => Some((1, usize::from(code - 3500))),
        4000..4020 => Some((2, usize::from(code - 4000))),
        _ => None,
    }
}

/// Sums the shards' counters when somebody asks.
#[derive(Debug)]
pub(crate) struct NodeCollector(Vec<Arc<ShardMetrics>>);

impl NodeCollector {
    /// The counters of all shards of a node.
    pub(crate) fn of(node: &Node) -> Self {
        NodeCollector(node.shards.iter().map(|shard| shard.metrics.clone()).collect())
    }

    /// The counters and gauges that have no labels, by name.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        PLAIN.iter().map(|(name, _, _, pick)| (*name, self.sum(|shard| pick(shard).get())))
    }

    fn sum(&self, pick: impl Fn(&ShardMetrics) -> u64) -> u64 {
        self.0.iter().map(|shard| pick(shard)).sum()
    }

    fn latency(&self, pick: fn(&ShardMetrics) -> &Latency) -> SummedLatency {
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let counts = (0..=BOUNDS_US.len()).map(|i| self.sum(|m| pick(m).buckets[i].get()));
        SummedLatency { buckets: bounds.zip(counts).collect(), sum_us: self.sum(|m| pick(m).sum_us.get()) }
    }
}

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, kind, pick) in PLAIN {
            let value = self.sum(|m| pick(m).get());
            match kind {
                MetricKind::Counter => {
                    let metric = ConstCounter::new(value);
                    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
                }
                MetricKind::Gauge => {
                    let metric = ConstGauge::new(value as i64);
                    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "transport_connections",
            "Open client connections by transport",
            None,
            MetricType::Gauge,
        )?;
        for transport in Transport::ALL {
            let open = ConstGauge::new(self.sum(|m| m.transports[transport as usize].get()) as i64);
            open.encode(family.encode_family(&[("transport", transport.as_str())])?)?;
        }
        let mut programs = BTreeMap::new();
        self.0.iter().for_each(|shard| shard.programs.add_to(&mut programs));
        let mut family = encoder.encode_descriptor(
            "client_connections",
            "Open client connections by the name and version that clients give when they connect",
            None,
            MetricType::Gauge,
        )?;
        for ((name, version), open) in &programs {
            let labels = [("client_name", &**name), ("client_version", &**version)];
            ConstGauge::new(*open as i64).encode(family.encode_family(&labels)?)?;
        }
        let mut family =
            encoder.encode_descriptor("errors", "Errors told to clients, by number", None, MetricType::Counter)?;
        for (range, first) in ERRORS.into_iter().enumerate() {
            for code in first..first + RANGE {
                let count = self.sum(|m| m.errors[range][(code - first) as usize].get());
                if count > 0 {
                    ConstCounter::new(count).encode(family.encode_family(&[("code", code.to_string())])?)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "disconnects",
            "Connections ended by the server, by number",
            None,
            MetricType::Counter,
        )?;
        for code in (3000..3020u16).chain(3500..3520).chain(4000..4020) {
            let Some((kind, number)) = disconnect_index(code) else { continue };
            let count = self.sum(|m| m.disconnects[kind][number].get());
            if count > 0 {
                ConstCounter::new(count).encode(family.encode_family(&[("code", code.to_string())])?)?;
            }
        }
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

/// Whether the cluster can be reached, and the other nodes in sight.
#[derive(Debug)]
pub(crate) struct ClusterStatus {
    pub(crate) is_up: bool,
    pub(crate) peers: usize,
}

/// What the registry has counted, by scope, and the cluster's link.
#[derive(Debug)]
pub(crate) struct RegistryCollector {
    pub(crate) figures: Arc<RegistryMetrics>,
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
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: usize| {
            let metric = ConstGauge::new(value as i64);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        gauge("calls_waiting", "Calls that wait for an answer", self.figures.calls_waiting)?;
        if let Some(link) = &self.link {
            gauge("cluster_linked", "1 while NATS can be reached", usize::from(link.is_up))?;
            gauge("cluster_peers", "Other nodes in sight", link.peers)?;
        }
        for (name, help, kind, pick) in OF_SCOPE {
            let metric_type = match kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for of in &self.figures.scopes {
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

/// What the store has done.
#[derive(Debug)]
pub(crate) struct StoreCollector(pub(crate) Arc<touchline_store::StoreMetrics>);

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = &self.0;
        let counters = [
            ("store_publications", "Publications stored", &figures.stored),
            ("store_commits", "Commits, whatever came of them", &figures.commits),
            ("store_failures", "Commits that failed", &figures.failures),
            ("store_refused", "Publications refused because too many waited", &figures.refused),
            ("store_loads", "Histories read", &figures.loads),
            ("store_letters", "Messages kept for names", &figures.inbox_messages),
            ("store_letters_expired", "Messages that nobody came for in time", &figures.inbox_messages_expired),
            ("store_commit_microseconds", "Time spent in commits", &figures.commit_us),
        ];
        counters.into_iter().try_for_each(|(name, help, count)| counter(&mut encoder, name, help, count))?;
        let gauges = [
            ("store_waiting", "Publications that wait for a commit", figures.waiting.load(Relaxed)),
            ("store_reading", "Reads that wait or are under way", figures.reading.load(Relaxed)),
            ("store_healthy", "1 while the last write succeeded", u64::from(figures.is_healthy())),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))
    }
}

/// What the statistics have done.
#[derive(Debug)]
pub(crate) struct StatsCollector(pub(crate) Arc<StatsMetrics>);

impl Collector for StatsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = &self.0;
        let counters = [
            ("stats_written", "Rows of statistics written", &figures.written),
            (
                "stats_dropped",
                "Rows of statistics dropped, because too many waited or the database failed",
                &figures.dropped,
            ),
            ("stats_failures", "Batches of statistics that failed", &figures.failures),
        ];
        counters.into_iter().try_for_each(|(name, help, count)| counter(&mut encoder, name, help, count))?;
        let gauges = [
            ("stats_waiting", "Rows of statistics that wait to be written", figures.waiting.load(Relaxed)),
            ("stats_reading", "Questions to the statistics that wait or are under way", figures.reading.load(Relaxed)),
            ("stats_healthy", "1 while the last batch of statistics was written", u64::from(figures.is_healthy())),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))
    }
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    count: &AtomicU64,
) -> Result<(), std::fmt::Error> {
    let metric = ConstCounter::new(count.load(Relaxed));
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Result<(), std::fmt::Error> {
    let metric = ConstGauge::new(value as i64);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

struct SummedLatency {
    buckets: Vec<(f64, u64)>,
    sum_us: u64,
}

impl EncodeMetric for SummedLatency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let count = self.buckets.iter().map(|(_, n)| n).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum_us as f64 / 1e6, count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
