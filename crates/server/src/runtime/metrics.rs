//! The metrics. Each shard has its own metrics, which only the thread that runs the shard writes. A scrape sums them.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use touchline_protocol::Disconnect;

use super::code_counts::{CodeCounts, CodeKind, encode_codes};
use super::meters::{Counter, Gauge, Latency, MetricKind, SummedLatency, counter, gauge};
use super::operation_metrics::{OperationMetrics, encode_operations};
use super::programs::Programs;
use super::session_metrics::{SessionMetrics, encode_sessions};
use crate::net::transport::Transport;

/// The counters of the connections of one transport.
#[derive(Debug, Default)]
pub(crate) struct TransportCounts {
    pub(crate) open: Gauge,
    pub(crate) connects: Counter,
    pub(crate) messages_received: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) written_bytes: Counter,
}

macro_rules! shard_metrics {
    ($($kind:ident $name:ident: $help:literal;)*) => {
        /// The metrics of one shard.
        #[derive(Debug, Default)]
        pub(crate) struct ShardMetrics {
            $(#[doc = $help] pub(crate) $name: $kind,)*
            /// Open connections by the program of the client.
            pub(crate) programs: Programs,
            /// The counters of connections by transport.
            pub(crate) transports: [TransportCounts; Transport::ALL.len()],
            /// Connections that the server has ended.
            disconnects: Disconnects,
            pub(crate) delivery_latency: Latency,
            pub(crate) sessions: SessionMetrics,
            pub(crate) operations: OperationMetrics,
        }

        /// Name, meaning, kind and value of each metric without labels.
        const PLAIN: &[(&str, &str, MetricKind, fn(&ShardMetrics) -> u64)] = &[
            $((stringify!($name), $help, MetricKind::$kind, |m| m.$name.get()),)*
        ];
    };
}

/// Connections that the server has ended, by code.
#[derive(Debug)]
struct Disconnects(CodeCounts);

impl Default for Disconnects {
    fn default() -> Self {
        Disconnects(CodeCounts::of(CodeKind::Disconnects))
    }
}

shard_metrics! {
    Gauge connections: "Open client connections";
    Gauge subscriptions: "Subscriptions of open connections";
    Gauge channels: "Channels held in memory at home on this node";
    Gauge waiting_connections: "Connections whose sockets are full, so that output waits for them";
    Gauge queued_bytes: "Bytes that wait for connections whose sockets are full";
    Gauge buffered_bytes:
        "Bytes held for single connections: queues, answers, input that waits (limit: node.buffer_max_size)";
    Gauge publications_waiting: "Publications that wait to be delivered";
    Counter publications_dropped: "Publications that slow subscribers missed (slow_consumer = drop_oldest)";
    Counter writes: "Writes to sockets";
    Counter throttled: "Times that a client had sent more than it may, and was made to wait";
    Counter relieved: "Connections ended because node.buffer_max_size was used up";
    Counter accept_errors: "Connections that could not be accepted, most often for lack of file descriptors";
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
    /// Counts a disconnect by the server with this code.
    pub(crate) fn count_disconnect(&self, code: u16) {
        self.disconnects.0.count(code.into());
    }

    /// How often the server has ended a connection with a code.
    pub(crate) fn disconnects(&self, code: u16) -> u64 {
        self.disconnects.0.get(code.into())
    }

    /// Notes that the output waiting for a connection has changed from `before` to `now` bytes.
    pub(crate) fn requeue(&self, before: usize, now: usize) {
        self.queued_bytes.replace(before as u64, now as u64);
        self.waiting_connections.replace(u64::from(before > 0), u64::from(now > 0));
    }

    /// Counts one of each, so that each metric has a value.
    pub(crate) fn count_all(&self) {
        self.count_disconnect(3_001);
        self.programs.enter("program", "1");
        self.sessions.count_all();
        self.operations.observe_us(0, 1);
        self.operations.count_error(0, 100);
    }
}

type OfTransport = (&'static str, &'static str, MetricKind, fn(&TransportCounts) -> u64);

const OF_TRANSPORT: &[OfTransport] = &[
    ("transport_connections", "Open client connections by transport", MetricKind::Gauge, |counts| counts.open.get()),
    ("connects", "Connections that were opened", MetricKind::Counter, |counts| counts.connects.get()),
    ("messages_received", "Messages received from clients", MetricKind::Counter, |counts| {
        counts.messages_received.get()
    }),
    (
        "received_bytes",
        "Bytes of the messages received from clients, without their framing",
        MetricKind::Counter,
        |counts| counts.received_bytes.get(),
    ),
    ("written_bytes", "Bytes written to sockets", MetricKind::Counter, |counts| counts.written_bytes.get()),
];

/// Sums the shards' metrics at each scrape.
#[derive(Debug)]
pub(crate) struct NodeCollector {
    shards: Vec<Arc<ShardMetrics>>,
    /// The names of the operations, in the order of their places in the table.
    operations: Vec<&'static str>,
}

impl NodeCollector {
    /// Makes a collector of the metrics of all shards of a node.
    pub(crate) fn of<'m>(shards: impl Iterator<Item = &'m Arc<ShardMetrics>>) -> Self {
        NodeCollector { shards: shards.map(Arc::clone).collect(), operations: Vec::new() }
    }

    /// Sets the names by which operations are shown, in the order of their places.
    pub(crate) fn naming(mut self, operations: Vec<&'static str>) -> Self {
        self.operations = operations;
        self
    }

    /// The values of counters and gauges without labels, by name, and the totals of some metrics with labels.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let (publications, deliveries) = self
            .shards
            .iter()
            .map(|shard| shard.sessions.traffic())
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let of_transports = OF_TRANSPORT
            .iter()
            .map(|(name, _, _, pick)| (*name, self.sum(|shard| shard.transports.iter().map(pick).sum())));
        let totals = [("publications", publications), ("deliveries", deliveries)];
        PLAIN.iter().map(|(name, _, _, pick)| (*name, self.sum(pick))).chain(totals).chain(of_transports)
    }

    fn sum(&self, pick: impl Fn(&ShardMetrics) -> u64) -> u64 {
        self.shards.iter().map(|shard| pick(shard)).sum()
    }

    fn latency(&self, pick: fn(&ShardMetrics) -> &Latency) -> SummedLatency {
        SummedLatency::of(self.shards.iter().map(|shard| pick(shard)))
    }
}

impl NodeCollector {
    fn encode_transports(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        for (name, help, kind, pick) in OF_TRANSPORT {
            let mut family = encoder.encode_descriptor(name, help, None, kind.of())?;
            for transport in Transport::ALL {
                let sum = self.sum(|m| pick(&m.transports[transport as usize]));
                kind.encode(sum, family.encode_family(&[("transport", transport.as_str())])?)?;
            }
        }
        Ok(())
    }

    fn encode_programs(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut programs = BTreeMap::new();
        self.shards.iter().for_each(|shard| shard.programs.add_to(&mut programs));
        let help = "Open client connections by the name and version that clients give when they connect";
        let mut family = encoder.encode_descriptor("client_connections", help, None, MetricType::Gauge)?;
        for ((name, version), open) in &programs {
            let labels = [("client_name", &**name), ("client_version", &**version)];
            ConstGauge::new(*open as i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_latency(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Time from the acceptance of a publication until a shard has written it to its last subscriber";
        let latency = self.latency(|shard| &shard.delivery_latency);
        latency.encode(encoder.encode_descriptor("delivery_seconds", help, None, MetricType::Histogram)?)
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
        let disconnects = self.shards.iter().map(|shard| &shard.disconnects.0).collect();
        let about = ("disconnects", "Connections ended by the server, by code");
        let known: Vec<u32> = Disconnect::ALL.iter().map(|why| why.code.into()).collect();
        encode_codes(&mut encoder, about, [(None, disconnects)].into_iter(), &known)?;
        encode_sessions(&mut encoder, &self.shards.iter().map(|shard| &shard.sessions).collect::<Vec<_>>())?;
        let operations: Vec<_> = self.shards.iter().map(|shard| &shard.operations).collect();
        encode_operations(&mut encoder, &operations, &self.operations)?;
        self.encode_latency(&mut encoder)
    }
}
