//! The metrics. Each shard has metrics of its own, which only the thread that runs it writes; a scrape sums them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use std::sync::Arc;

use touchline_engine::directory::ScopeMetrics;
use touchline_store::stats::StatsMetrics;

use crate::net::transport::Transport;
use crate::runtime::meters::{Counter, Gauge, Latency, SummedLatency, counter, gauge};
use crate::runtime::programs::Programs;
use crate::runtime::registry_mailbox::RegistryMetrics;

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
    Counter publications_dropped: "Publications that slow subscribers missed (slow_consumer = drop_oldest)";
    Counter writes: "Writes to sockets";
    Counter written_bytes: "Bytes written to sockets";
    Counter messages_received: "Messages received from clients";
    Counter throttled: "Times that a client had sent more than it may, and was made to wait";
    Counter relieved: "Connections ended because node.buffer_max_size was used up";
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
