//! What is measured of the node as a whole, and of its process.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::meters::{counter, gauge};
use super::process::{ProcessFigures, TARGET, VERSION};

/// What a scrape asks the node itself.
#[derive(Debug, Default)]
pub(crate) struct NodeFigures {
    /// The name of the node.
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    pub(crate) is_draining: bool,
    pub(crate) http_buffered_bytes: usize,
    /// `node.buffer_max_size`, bytes.
    pub(crate) buffer_max: usize,
    /// Processors that the process may use.
    pub(crate) processors: usize,
    /// Processor time that the thread of each shard has used, seconds.
    pub(crate) shards_s: Vec<f64>,
    /// Commands with a rate that are under way.
    pub(crate) paced_commands: usize,
    pub(crate) configuration_generation: u64,
    /// Nodes that have another configuration than this one.
    pub(crate) configuration_differing: usize,
    /// Reloads that were not refused, and those that were.
    pub(crate) reloads: (u64, u64),
    /// The last reload was refused.
    pub(crate) has_reload_failed: bool,
    /// The sections with certificates in files, each with the end of their validity, seconds since the Unix epoch.
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
            ("draining", "1 while the node asks its clients to connect to others", u64::from(figures.is_draining)),
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
                "Nodes of the cluster that have another configuration than this one",
                figures.configuration_differing as u64,
            ),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value))?;
        let help = "Reloads of the configuration by outcome";
        let mut family = encoder.encode_descriptor("config_reloads", help, None, MetricType::Counter)?;
        for (outcome, count) in [("succeeded", figures.reloads.0), ("failed", figures.reloads.1)] {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        let help = "Processor time that the thread of a shard has used: a rate of 1 is all that one processor has";
        let mut family = encoder.encode_descriptor("shard_cpu_seconds", help, None, MetricType::Counter)?;
        for (shard, used_s) in figures.shards_s.iter().enumerate() {
            ConstCounter::new(*used_s).encode(family.encode_family(&[("shard", shard.to_string())])?)?;
        }
        let help = "When the first certificate of a port is no longer valid, seconds since the Unix epoch";
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

/// The figures of the process, under the names that all programs have for them.
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
