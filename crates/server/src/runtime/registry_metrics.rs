//! The registry's metrics, by scope, and those of the link to the cluster.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use touchline_cluster::LinkTraffic;
use touchline_engine::directory::ScopeMetrics;

use super::meters::{MetricKind, counter, gauge};
use super::registry_mailbox::RegistryMetrics;

/// The state of the link to the cluster.
#[derive(Debug)]
pub(crate) struct ClusterStatus {
    /// Whether NATS can be reached.
    pub(crate) is_up: bool,
    /// The number of other nodes in sight.
    pub(crate) peers: usize,
    /// The traffic over the link.
    pub(crate) traffic: LinkTraffic,
}

/// The registry's metrics, by scope, and those of the link to the cluster.
#[derive(Debug)]
pub(crate) struct RegistryCollector {
    pub(crate) metrics: Arc<RegistryMetrics>,
    /// The state of the link; None = the node runs alone.
    pub(crate) link: Option<ClusterStatus>,
}

type OfScope = (&'static str, &'static str, MetricKind, fn(&ScopeMetrics) -> u64);

const OF_SCOPE: &[OfScope] = &[
    ("registry_names", "Names with an owner, on all nodes", MetricKind::Gauge, |f| f.names),
    ("registry_members", "Memberships of groups, on all nodes", MetricKind::Gauge, |f| f.members),
    (
        "registry_conflicts_lost",
        "Names that a connection of this node lost to a connection of another node",
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
    ("registry_drifted", "Times from clocks of other nodes that are too far ahead", MetricKind::Counter, |f| {
        f.counters.drifted
    }),
    ("registry_reincarnations", "Times that this node began a new incarnation", MetricKind::Counter, |f| {
        f.counters.reincarnations
    }),
];

impl Collector for RegistryCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        gauge(&mut encoder, "calls_waiting", "Calls that wait for an answer", self.metrics.calls_waiting as u64)?;
        if let Some(link) = &self.link {
            gauge(&mut encoder, "cluster_linked", "1 while NATS can be reached", u64::from(link.is_up))?;
            gauge(&mut encoder, "cluster_peers", "Other nodes whose heartbeats this node gets", link.peers as u64)?;
            let LinkTraffic { received, received_bytes, sent, sent_bytes, connects, queued_bytes, refused } =
                link.traffic;
            gauge(
                &mut encoder,
                "cluster_queued_bytes",
                "Bytes of the messages that wait to be sent to NATS",
                queued_bytes,
            )?;
            let counters = [
                ("cluster_connects", "Connections made to NATS: the first one, and each after one was lost", connects),
                ("cluster_messages_received", "Messages received from NATS", received),
                ("cluster_received_bytes", "Bytes of the messages received from NATS", received_bytes),
                ("cluster_messages_sent", "Messages sent to NATS", sent),
                ("cluster_sent_bytes", "Bytes of the messages sent to NATS", sent_bytes),
                ("cluster_messages_refused", "Messages to NATS refused because too many waited", refused),
            ];
            counters.into_iter().try_for_each(|(name, help, value)| counter(&mut encoder, name, help, value))?;
        }
        for (name, help, kind, pick) in OF_SCOPE {
            let mut family = encoder.encode_descriptor(name, help, None, kind.of())?;
            for of in &self.metrics.scopes {
                let labels = [("scope", &*of.scope)];
                kind.encode(pick(of), family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
