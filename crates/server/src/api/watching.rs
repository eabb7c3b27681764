//! Reads the counters and the problems of the node for the console.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{io, thread};

use touchline_protocol::{Disconnect, Error};

use crate::console::{HOUR_STEP_MS, PrimarySize, Sample, WatchedFacts};
use crate::node::Node;
use crate::runtime::meters::BOUNDS_US;
use crate::runtime::process::ProcessFigures;

/// The time between two readings: while the console is in use, and otherwise.
const WATCHED_STEP: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(HOUR_STEP_MS);
/// The shortest time between two readings in milliseconds, however many requests ask for one.
const SHORTEST_STEP_MS: u64 = 900;
/// How long the console counts as in use after the last request, in milliseconds.
const LEASE_MS: u64 = 15_000;

/// Starts the thread that reads the node's state from time to time, if the console is on. The thread ends with the
/// node.
///
/// # Errors
/// When the system cannot start the thread.
pub(crate) fn start_watching(node: &Arc<Node>) -> io::Result<()> {
    if !node.newest.get().settings.admin.enabled {
        return Ok(());
    }
    let node = Arc::downgrade(node);
    let run = move || {
        while let Some(node) = node.upgrade().filter(|node| !node.is_stopped.load(Relaxed)) {
            look(&node);
            let is_watched = node.console.is_watched(node.clock.now_ms(), LEASE_MS);
            drop(node);
            // real time: a heartbeat that reads the node's clock.
            thread::sleep(if is_watched { WATCHED_STEP } else { STEP });
        }
    };
    thread::Builder::new().name("watch".into()).spawn(run).map(drop)
}

/// Reads the counters, and looks for problems.
pub(super) fn look(node: &Node) {
    let mut watch = node.console.watch();
    let last_ms = watch.samples.now().map_or(0, |last| last.at_ms);
    if node.clock.now_ms() < last_ms + SHORTEST_STEP_MS {
        return;
    }
    let sample = read(node);
    watch.samples.add(sample);
    let before = watch.samples.before(60_000).copied().unwrap_or(sample);
    let facts = facts(node, sample, before);
    watch.problems.look(&node.generation().settings.node.name, &facts);
}

/// Reads all counters once.
fn read(node: &Node) -> Sample {
    let process = ProcessFigures::read();
    let shards = || node.shards.iter().map(|shard| &shard.metrics);
    let traffic = shards().map(|metrics| metrics.sessions.traffic());
    let (publications, deliveries) = traffic.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    let mut latencies = [0; BOUNDS_US.len() + 1];
    for counts in shards().map(|metrics| metrics.delivery_latency.counts()) {
        latencies.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let refused = [Disconnect::INVALID_TOKEN.code, Disconnect::PERMISSION_DENIED.code];
    let refusals = shards().map(|metrics| {
        let ends: u64 = refused.iter().map(|code| metrics.disconnects(*code)).sum();
        ends + metrics.sessions.errors(Error::PERMISSION_DENIED.code)
    });
    let conflicts = node.registry_metrics().scopes.iter().map(|scope| scope.counters.conflicts_lost).sum();
    Sample {
        at_ms: node.clock.now_ms(),
        connections: shards().map(|metrics| metrics.connections.get()).sum(),
        subscriptions: shards().map(|metrics| metrics.subscriptions.get()).sum(),
        channels: shards().map(|metrics| metrics.channels.get()).sum(),
        waiting_connections: shards().map(|metrics| metrics.waiting_connections.get()).sum(),
        queued_bytes: shards().map(|metrics| metrics.queued_bytes.get()).sum(),
        buffered_bytes: shards().map(|metrics| metrics.buffered_bytes.get()).sum(),
        resident: process.resident,
        open_files: process.open_files,
        files_max: process.files_max,
        deliveries,
        publications,
        processor_s: process.processor_s,
        busiest_shard_s: node.shards.iter().map(|shard| shard.processor_s()).fold(0.0, f64::max),
        latencies,
        accept_errors: shards().map(|metrics| metrics.accept_errors.get()).sum(),
        panics: shards().map(|metrics| metrics.panics.get()).sum(),
        refusals: refusals.sum(),
        stats_dropped: node.stats().map_or(0, |stats| stats.metrics().dropped.load(Relaxed)),
        conflicts,
    }
}

/// Returns the facts from which problems are found.
fn facts(node: &Node, now: Sample, before: Sample) -> WatchedFacts {
    let generation = node.generation();
    let is_cut = node.cluster.is_some() && !node.is_linked.load(Relaxed);
    let text = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let open = generation.hooks.as_ref().map_or(Vec::new(), |hooks| hooks.metrics.open_backends());
    let stuck = generation.consumers.iter().filter(|one| one.is_stuck()).map(|one| one.name().to_owned());
    let tls = node.tls.get().into_iter().flatten().filter_map(|tls| tls.expiry());
    WatchedFacts {
        now,
        before,
        buffer_max: node.buffer_slice.saturating_mul(node.shards.len()) as u64,
        backlog: (
            node.shards.iter().map(|shard| shard.backlog() as u64).max().unwrap_or_default(),
            generation.settings.node.publish_backlog_max as u64,
        ),
        link_fault: is_cut.then(|| match node.stream_fault() {
            fault if fault.is_empty() => "NATS does not answer".to_owned(),
            fault => format!("JetStream cannot be used: {fault}"),
        }),
        primary_fails: node.store().is_some_and(|store| !store.metrics().is_healthy()),
        primary_size: node.store().map_or_else(PrimarySize::default, |store| {
            let size = &store.metrics().size;
            PrimarySize {
                used: size.used().unwrap_or_default(),
                limit: size.limit(),
                is_full: size.is_full(),
                is_disk_short: size.is_disk_short(),
            }
        }),
        stats_fails: node.stats().is_some_and(|stats| !stats.metrics().is_healthy()),
        open_backends: text(open),
        events_off: node.events.get().map_or(Vec::new(), |events| events.metrics.off()),
        stuck_consumers: stuck.collect(),
        differing: node.others_with_other_configuration().iter().map(ToString::to_string).collect(),
        certificates: tls.map(|(section, ends_s)| (section.to_owned(), ends_s)).collect(),
        reload_failed: node.newest.reloads.has_failed.load(Relaxed),
        lost: node.console.lost().present(node.peers.load(Relaxed), now.at_ms),
    }
}
