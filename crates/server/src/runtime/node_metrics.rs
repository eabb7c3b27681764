//! The metrics of the node as a whole, and of its process.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::meters::{counter, gauge};
use super::process::{ProcessFigures, TARGET, VERSION};

/// The figures about drains, for a scrape.
#[derive(Debug, Default)]
pub(crate) struct DrainFigures {
    /// How long the drain under way takes, or a drain that begins now, in seconds.
    pub(crate) seconds: f64,
    /// How many clients a second the drain disconnects.
    pub(crate) clients_per_second: f64,
    /// How many clients a second the node can take from other nodes.
    pub(crate) connect_rate: u32,
    /// Processor time that one of these clients costs, in seconds.
    pub(crate) connect_cost_s: f64,
}

/// The figures of the node itself, for a scrape.
#[derive(Debug, Default)]
pub(crate) struct NodeFigures {
    /// The name of the node.
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    pub(crate) is_draining: bool,
    pub(crate) drain: DrainFigures,
    pub(crate) http_buffered_bytes: usize,
    /// The limit `node.buffer_max_size`, in bytes.
    pub(crate) buffer_max: usize,
    /// The number of processors that the process may use.
    pub(crate) processors: usize,
    /// Processor time that the thread of each shard has used, in seconds.
    pub(crate) shards_s: Vec<f64>,
    /// The number of commands with a rate that are under way.
    pub(crate) paced_commands: usize,
    pub(crate) configuration_generation: u64,
    /// The number of nodes whose configuration differs from that of this node.
    pub(crate) configuration_differing: usize,
    /// The number of reloads that succeeded, and of those that were refused.
    pub(crate) reloads: (u64, u64),
    /// Whether the last reload was refused.
    pub(crate) has_reload_failed: bool,
    /// The sections with certificates in files, each with the time at which the certificate ends, in seconds since the
    /// Unix epoch.
    pub(crate) certificates: Vec<(&'static str, u64)>,
}

/// The figures of the node, for a scrape.
#[derive(Debug)]
pub(crate) struct NodeFiguresCollector(pub(crate) NodeFigures);

impl Collector for NodeFiguresCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let figures = &self.0;
        let gauges = [
            ("ready", "1 while /readyz answers 200", u64::from(figures.is_ready)),
            ("draining", "1 while the node asks its clients to connect to other nodes", u64::from(figures.is_draining)),
            ("http_buffered_bytes", "Bytes held for requests and streams of HTTP", figures.http_buffered_bytes as u64),
            (
                "buffer_max_bytes",
                "The most bytes that the node may hold for single connections: node.buffer_max_size",
                figures.buffer_max as u64,
            ),
            ("processors", "Processors that the node may use", figures.processors as u64),
            ("commands_paced", "Commands with a rate that are under way, 16 at most", figures.paced_commands as u64),
            (
                "config_generation",
                "The configuration that the node works with: 1 at its start, 1 more after each reload that changes it",
                figures.configuration_generation,
            ),
            (
                "config_last_reload_successful",
                "0 while the last reload was refused",
                u64::from(!figures.has_reload_failed),
            ),
            (
                "config_differing_nodes",
                "Nodes of the cluster whose configuration differs from that of this node",
                figures.configuration_differing as u64,
            ),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))?;
        let DrainFigures { seconds, clients_per_second, connect_rate, connect_cost_s } = figures.drain;
        let drain = [
            ("drain_seconds", "Duration of the drain under way, or of one that begins now", seconds),
            ("drain_clients_per_second", "Clients that such a drain disconnects each second", clients_per_second),
            ("connect_rate", "Clients a second that the node can take from a node that drains", connect_rate.into()),
            ("connect_cost_seconds", "Processor time of a client that connects, measured", connect_cost_s),
        ];
        for (name, help, value) in drain {
            ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let help = "Reloads of the configuration by outcome";
        let mut family = encoder.encode_descriptor("config_reloads", help, None, MetricType::Counter)?;
        for (outcome, count) in [("succeeded", figures.reloads.0), ("failed", figures.reloads.1)] {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        let help = "Processor time that the thread of a shard has used: a rate of 1 is one whole processor";
        let mut family = encoder.encode_descriptor("shard_cpu_seconds", help, None, MetricType::Counter)?;
        for (shard, used_s) in figures.shards_s.iter().enumerate() {
            ConstCounter::new(*used_s).encode(family.encode_family(&[("shard", shard.to_string())])?)?;
        }
        let help = "When the earliest certificate of a port expires, seconds since the Unix epoch";
        let mut family =
            encoder.encode_descriptor("certificate_expires_timestamp_seconds", help, None, MetricType::Gauge)?;
        for (section, expires_s) in &figures.certificates {
            ConstGauge::new(*expires_s as i64).encode(family.encode_family(&[("section", *section)])?)?;
        }
        let mut family =
            encoder.encode_descriptor("build_info", "1; the labels say what runs", None, MetricType::Gauge)?;
        ConstGauge::new(1).encode(family.encode_family(&[
            ("version", VERSION),
            ("target", TARGET),
            ("node", &figures.name),
        ])?)
    }
}

/// The figures of the process, under the names that are usual for all programs.
#[derive(Debug)]
pub(crate) struct ProcessCollector(pub(crate) ProcessFigures);

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let ProcessFigures { processor_s, resident, virtual_size, threads, open_files, files_max, started_s } = self.0;
        counter(&mut encoder, "process_cpu_seconds", "Processor time that the process has used", processor_s)?;
        let gauges = [
            ("process_resident_memory_bytes", "Memory that the process holds", resident),
            ("process_virtual_memory_bytes", "Address space of the process", virtual_size),
            ("process_threads", "Threads of the process", threads),
            ("process_open_fds", "File descriptors that the process has open", open_files),
            ("process_max_fds", "File descriptors that the process may have open", files_max),
            ("process_start_time_seconds", "When the process started, seconds since the Unix epoch", started_s),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))
    }
}
