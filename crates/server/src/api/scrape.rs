//! The parts that a scrape of `/metrics` reads, and the description of every metric. The descriptions come from a
//! scrape of parts that have counted one of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use touchline_cluster::LinkTraffic;
use touchline_engine::directory::ScopeMetrics;
use touchline_engine::hook::HookKind;
use touchline_registry::Counters;

use super::metrics_text::text_format;
use super::readiness::is_ready;
use super::table::names_by_place;
use crate::auth::KeySets;
use crate::draining::{connect_rate, forecast};
use crate::node::Node;
use crate::runtime::ban_metrics::BanCollector;
use crate::runtime::consumer_metrics::{ConsumerCollector, ConsumerMetrics};
use crate::runtime::database_metrics::{StatsCollector, StoreCollector};
use crate::runtime::event_metrics::{EventCollector, EventMetrics};
use crate::runtime::hook_metrics::{CallOutcome, HookCollector, HookMetrics};
use crate::runtime::key_metrics::{CallerCollector, KeySetCollector, KeySetFigures};
use crate::runtime::limit_metrics::{LimitCollector, LimitMetrics, TableSizes};
use crate::runtime::metrics::{NodeCollector, ShardMetrics};
use crate::runtime::node_metrics::{DrainFigures, NodeFigures, NodeFiguresCollector, ProcessCollector};
use crate::runtime::process::ProcessFigures;
use crate::runtime::reaction_mailbox::ReactionCollector;
use crate::runtime::registry_mailbox::RegistryMetrics;
use crate::runtime::registry_metrics::{ClusterStatus, RegistryCollector};
use crate::runtime::seen_users::{SeenCollector, SeenUsers};

/// The parts of a node that have metrics.
pub(super) struct Scrape {
    registry: RegistryCollector,
    shards: NodeCollector,
    /// None = no feature needs the primary database.
    store: Option<StoreCollector>,
    /// None = statistics are off.
    stats: Option<StatsCollector>,
    /// None = no hook is on.
    hooks: Option<HookCollector>,
    /// None = no endpoint of events is configured.
    events: Option<EventCollector>,
    reactions: ReactionCollector,
    callers: CallerCollector,
    key_sets: KeySetCollector,
    bans: BanCollector,
    /// None = no rate limit is on.
    limits: Option<LimitCollector>,
    /// Empty = no consumer runs.
    consumers: ConsumerCollector,
    /// None = the node does not keep when users were last connected.
    seen: Option<SeenCollector>,
    node: NodeFigures,
    process: ProcessFigures,
}

fn drain_figures(node: &Node) -> DrainFigures {
    let forecast = forecast(node);
    DrainFigures {
        seconds: forecast.seconds,
        clients_per_second: forecast.clients_per_second,
        connect_rate: connect_rate(node),
        connect_cost_s: node.drain.cost().cost_s(),
    }
}

impl Scrape {
    /// Collects the parts of a node.
    pub(super) fn of(node: &Node) -> Self {
        let link = node.cluster.as_ref().map(|cluster| ClusterStatus {
            is_up: node.is_linked.load(Relaxed),
            peers: node.peers.load(Relaxed),
            traffic: cluster.traffic(),
        });
        Scrape {
            registry: RegistryCollector { metrics: node.registry_metrics(), link },
            shards: node.collector().naming(names_by_place()),
            store: node.store().map(|store| StoreCollector(Arc::clone(store.metrics()))),
            stats: node.stats().map(|stats| StatsCollector(Arc::clone(stats.metrics()))),
            hooks: node
                .generation()
                .hooks
                .as_ref()
                .map(|hooks| HookCollector { metrics: Arc::clone(&hooks.metrics), outstanding: hooks.outstanding() }),
            events: node.events.get().map(|events| EventCollector(Arc::clone(&events.metrics))),
            reactions: ReactionCollector(Arc::clone(&node.reactions.metrics)),
            callers: CallerCollector(
                node.generation()
                    .access
                    .api
                    .callers()
                    .map(|caller| (caller.name.clone(), caller.requests.load(Relaxed)))
                    .collect(),
            ),
            key_sets: figures(&node.generation().access.key_sets),
            bans: BanCollector::of(&node.generation().session.bans),
            limits: node.generation().limits.as_ref().map(|tables| LimitCollector {
                metrics: Arc::clone(&tables.metrics),
                sizes: tables.sizes(node.clock.elapsed_us() * 1_000),
            }),
            consumers: ConsumerCollector(node.generation().consumers.clone()),
            seen: node.seen.as_deref().map(SeenCollector::of),
            node: NodeFigures {
                name: node.generation().settings.node.name.clone(),
                processors: std::thread::available_parallelism().map_or(1, usize::from),
                shards_s: node.shards.iter().map(|shard| shard.processor_s()).collect(),
                is_ready: is_ready(node),
                is_draining: node.drain.has_begun(),
                drain: drain_figures(node),
                http_buffered_bytes: node.shards.iter().map(|shard| shard.http_buffered()).sum(),
                buffer_max: node.buffer_slice.saturating_mul(node.shards.len()),
                paced_commands: node.paced.load(Relaxed),
                configuration_generation: node.generation().number,
                configuration_differing: node.others_with_other_configuration().len(),
                certificates: node.tls.get().into_iter().flatten().filter_map(|tls| tls.expiry()).collect(),
                has_reload_failed: node.newest.reloads.has_failed.load(Relaxed),
                reloads: (node.newest.reloads.succeeded.load(Relaxed), node.newest.reloads.failed.load(Relaxed)),
            },
            process: ProcessFigures::read(),
        }
    }

    /// Makes parts in which each metric has a value.
    fn with_all() -> Self {
        let shard = ShardMetrics::default();
        shard.count_all();
        let hooks = HookMetrics::of(vec!["backend".to_owned()], Arc::default());
        hooks.count(HookKind::Connect, CallOutcome::Answered);
        let limits = LimitMetrics::default();
        limits.commands[0][0][0].add_shared(1);
        let scope = ScopeMetrics { scope: "scope".into(), names: 0, members: 0, counters: Counters::default() };
        Scrape {
            registry: RegistryCollector {
                metrics: Arc::new(RegistryMetrics { scopes: vec![scope], calls_waiting: 0 }),
                link: Some(ClusterStatus { is_up: true, peers: 0, traffic: LinkTraffic::default() }),
            },
            shards: NodeCollector::of([Arc::new(shard)].iter()).naming(names_by_place()),
            store: Some(StoreCollector(Arc::default())),
            stats: Some(StatsCollector(Arc::default())),
            hooks: Some(HookCollector { metrics: Arc::new(hooks), outstanding: 0 }),
            events: Some(EventCollector(Arc::new(EventMetrics::of(["endpoint".to_owned()])))),
            reactions: ReactionCollector(Arc::default()),
            callers: CallerCollector(vec![("default".to_owned(), 0)]),
            key_sets: KeySetCollector([("client.token".to_owned(), KeySetFigures::default())].into()),
            bans: BanCollector::nothing(),
            limits: Some(LimitCollector { metrics: Arc::new(limits), sizes: TableSizes::default() }),
            consumers: ConsumerCollector(vec![Arc::new(ConsumerMetrics::new(
                "shop",
                &touchline_clock::Clock::system(),
            ))]),
            seen: Some(SeenCollector::of(&SeenUsers::new(true))),
            node: NodeFigures {
                certificates: vec![("http_server.tls", 0)],
                shards_s: vec![0.0],
                ..NodeFigures::default()
            },
            process: ProcessFigures::default(),
        }
    }

    /// The metrics as OpenMetrics.
    ///
    /// # Errors
    /// When a part cannot be written.
    pub(super) fn open_metrics(self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("touchline");
        registry.register_collector(Box::new(self.registry));
        registry.register_collector(Box::new(self.shards));
        if let Some(store) = self.store {
            registry.register_collector(Box::new(store));
        }
        if let Some(stats) = self.stats {
            registry.register_collector(Box::new(stats));
        }
        if let Some(hooks) = self.hooks {
            registry.register_collector(Box::new(hooks));
        }
        registry.register_collector(Box::new(self.reactions));
        if let Some(events) = self.events {
            registry.register_collector(Box::new(events));
        }
        registry.register_collector(Box::new(self.callers));
        if !self.key_sets.0.is_empty() {
            registry.register_collector(Box::new(self.key_sets));
        }
        registry.register_collector(Box::new(self.bans));
        if let Some(limits) = self.limits {
            registry.register_collector(Box::new(limits));
        }
        if !self.consumers.0.is_empty() {
            registry.register_collector(Box::new(self.consumers));
        }
        if let Some(seen) = self.seen {
            registry.register_collector(Box::new(seen));
        }
        registry.register_collector(Box::new(NodeFiguresCollector(self.node)));
        let mut unprefixed = Registry::default();
        unprefixed.register_collector(Box::new(ProcessCollector(self.process)));
        let mut text = String::new();
        encode_registry(&mut text, &registry)?;
        encode_registry(&mut text, &unprefixed)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// Returns the figures of the fetched keys. One section may have several key sets.
fn figures(sets: &KeySets) -> KeySetCollector {
    let mut figures: BTreeMap<String, KeySetFigures> = BTreeMap::new();
    for set in sets.iter() {
        let of_section = figures.entry(set.section.clone()).or_default();
        of_section.succeeded += set.counts.succeeded.load(Relaxed);
        of_section.failed += set.counts.failed.load(Relaxed);
        of_section.keys += set.counts.keys.load(Relaxed);
        of_section.skipped += set.counts.skipped.load(Relaxed);
    }
    KeySetCollector(figures)
}

/// A metric, as the documentation describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricDescription {
    /// The name in the text format 0.0.4 of Prometheus, with the `_total` of a counter.
    pub name: String,
    /// The type of the metric: `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The names of the labels, without the `le` of a histogram's buckets.
    pub labels: Vec<String>,
}

/// Describes every metric that a node may show, in the order of a scrape.
pub fn metrics() -> Vec<MetricDescription> {
    let text = Scrape::with_all().open_metrics().map(|text| text_format(&text)).unwrap_or_default();
    let mut metrics: Vec<MetricDescription> = Vec::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|about| about.split_once(' ')) {
            metrics.push(MetricDescription { name: name.to_owned(), kind: kind.to_owned(), labels: Vec::new() });
        } else if let (false, Some(metric)) = (line.starts_with('#'), metrics.last_mut()) {
            let labels = line.split_once('{').map_or("", |(_, labels)| labels);
            let names = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name);
            metric.labels = names.filter(|name| *name != "le").map(str::to_owned).collect();
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_described_with_its_kind_and_its_labels() {
        let metrics = metrics();
        let described = |name: &str, kind: &str, labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            metrics.contains(&MetricDescription { name: name.to_owned(), kind: kind.to_owned(), labels })
        };
        assert!(described("touchline_connections", "gauge", &[]));
        assert!(described("touchline_errors_total", "counter", &["method", "code"]));
        assert!(described("touchline_client_connections", "gauge", &["client_name", "client_version"]));
        assert!(described("touchline_registry_names", "gauge", &["scope"]));
        assert!(described("touchline_api_seconds", "histogram", &["method"]));
        assert!(described("touchline_store_commit_seconds", "histogram", &[]));
        assert!(described("touchline_stats_healthy", "gauge", &[]));
        assert!(described("touchline_cluster_linked", "gauge", &[]));
        assert!(described("touchline_bans", "gauge", &["kind"]));
        assert!(described("touchline_http_buffered_bytes", "gauge", &[]));
        assert!(described("touchline_commands_paced", "gauge", &[]));
    }
}
