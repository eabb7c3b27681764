//! The operations `overview` and `overview_history`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_protocol::Error;

use super::info::InfoRequest;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::watching::look;
use crate::console::{Activity, HOUR_STEP_MS, NATS_CUT, NODE_LOST, Problem, ProblemSeverity, RUNBOOK, Sample};
use crate::draining::{connect_rate, forecast};
use crate::runtime::meters::BOUNDS_US;
use crate::runtime::process::VERSION;

/// The age of the sample that the newest sample is compared with, in milliseconds.
const RATE_TIME_MS: u64 = 5_000;
/// The id of the problem that a node does not answer.
const NODE_SILENT: &str = "node_silent";
/// The most changes in the answer.
const CHANGES_SHOWN: usize = 20;

/// The state of all nodes of the cluster.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OverviewReply {
    /// The time when the state was read, in Unix milliseconds.
    at_ms: u64,
    /// The summary of the state.
    verdict: Verdict,
    /// The problems, the worst first.
    problems: Vec<Problem>,
    /// The state of each node.
    nodes: Vec<OverviewNode>,
    /// The databases, servers and backends that the nodes depend on.
    dependencies: Vec<Dependency>,
    /// The latest changes, the newest first.
    activity: Vec<Activity>,
    /// The ids of nodes that did not answer in time.
    #[serde(default)]
    missing_nodes: Vec<Box<str>>,
}

/// The summary of the state of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct Verdict {
    /// The worst severity of all problems.
    severity: ProblemSeverity,
    /// The connections of all nodes.
    connections: u64,
}

/// The state of one node.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct OverviewNode {
    /// The id of the node; it changes at each start.
    id: String,
    /// The name of the node (`node.name`).
    name: String,
    /// The state of the node: `ok`, `look`, `bad` or `draining`.
    state: String,
    /// The number of connections.
    connections: u64,
    /// The number of subscriptions.
    subscriptions: u64,
    /// The number of channels that have subscribers.
    channels: u64,
    /// Deliveries per second.
    deliveries_s: f64,
    /// Publications per second.
    publications_s: f64,
    /// Processor time in percent of all processors of the node.
    cpu: f64,
    /// The number of processors that the process may use.
    cores: usize,
    /// Memory of the process, in bytes.
    memory: u64,
    /// Bytes that wait because sockets of clients are full.
    queued_bytes: u64,
    /// Connections whose sockets are full, so that output waits for them.
    slow_connections: u64,
    /// The number of open file descriptors.
    files: u64,
    /// The greatest number of file descriptors that the process may open.
    files_max: u64,
    /// Processor time of the busiest shard, in percent of one processor.
    busiest_shard: f64,
    /// The 99th percentile of the delivery time, in milliseconds; absent = nothing was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_p99_ms: Option<f64>,
    /// The version of the server.
    version: String,
    /// The number of the configuration in use; 1 = that of the start.
    config_generation: u64,
    /// Seconds since the node started.
    uptime_s: u64,
    /// The clients per second that the node can take from a node that drains.
    #[serde(default)]
    connect_rate: u32,
    /// How long a drain that begins now would take, in seconds. For a draining node, how long its drain takes.
    #[serde(default)]
    drain_s: f64,
    /// The time of these figures, in Unix milliseconds.
    at_ms: u64,
}

/// A server, database or backend that a node depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct Dependency {
    /// The name: `nats`, `primary`, `stats`, `hook:` and a backend, `events:` and an endpoint, or `consumer:` and its
    /// name.
    name: String,
    /// The name of the node.
    node: String,
    /// The state of the dependency: `ok` or `bad`.
    state: ProblemSeverity,
}

/// The operation `overview`.
pub(crate) struct OverviewOperation;

impl Operation for OverviewOperation {
    const NAME: &'static str = "overview";
    const SUMMARY: &'static str = "Returns the problems of the nodes, their load, and the latest changes";
    const RESULT: &'static str = "`verdict` (`severity`: `ok`, `look` or `bad`), `problems`, each with a text and \
                                  a remedy, `nodes`, `dependencies`, `activity`, `missing_nodes`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{
        "at_ms": 1700000000000, "verdict": {"severity": "ok", "connections": 2}, "problems": [], "nodes": [],
        "dependencies": [], "activity": [], "missing_nodes": []
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InfoRequest;
    type Reply = OverviewReply;

    async fn run(node: RequestNode<'_>, _: InfoRequest) -> Result<OverviewReply, OperationError> {
        node.console.note_look(node.clock.now_ms());
        look(&node);
        let report = report(node);
        let mut problems = node.console.watch().problems.present();
        leave_out_others(&mut problems);
        let severity = problems.iter().map(|problem| problem.severity).max().unwrap_or(ProblemSeverity::Ok);
        Ok(OverviewReply {
            at_ms: node.clock.now_ms(),
            verdict: Verdict { severity, connections: report.connections },
            problems,
            nodes: vec![report],
            dependencies: dependencies(node),
            activity: node.console.activity.newest(CHANGES_SHOWN),
            missing_nodes: Vec::new(),
        })
    }

    fn merge(reply: &mut OverviewReply, others: &OtherNodes<'_>) {
        for (_, json) in &others.results {
            let Ok(other) = serde_json::from_str::<OverviewReply>(json.get()) else { continue };
            reply.verdict.connections += other.verdict.connections;
            reply.problems.extend(other.problems);
            reply.nodes.extend(other.nodes);
            reply.dependencies.extend(other.dependencies);
            reply.activity.extend(other.activity);
        }
        // Every remaining node reports the lost nodes, so each lost node is kept once.
        let mut lost = BTreeSet::new();
        reply.problems.retain(|problem| problem.id != NODE_LOST || lost.insert(problem.words.clone()));
        reply.missing_nodes = others.missing.clone();
        reply.problems.extend(of_cluster(reply));
        leave_out_others(&mut reply.problems);
        reply.problems.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.since_ms.cmp(&b.since_ms)));
        reply.activity.sort_by_key(|activity| std::cmp::Reverse(activity.at_ms));
        reply.activity.truncate(CHANGES_SHOWN);
        reply.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        reply.verdict.severity = reply.problems.first().map_or(ProblemSeverity::Ok, |worst| worst.severity);
    }
}

/// Drops the problems of other nodes if a node cannot reach NATS: it does not know their state.
fn leave_out_others(problems: &mut Vec<Problem>) {
    if problems.iter().any(|problem| problem.id == NATS_CUT) {
        problems.retain(|problem| ![NODE_LOST, NODE_SILENT].contains(&problem.id.as_str()));
    }
}

/// Returns the problems that only all nodes together show.
fn of_cluster(reply: &OverviewReply) -> Vec<Problem> {
    let problem = |id: &str, severity, count: usize, words: String, remedy: &str| Problem {
        id: id.to_owned(),
        severity,
        since_ms: reply.at_ms,
        node: String::new(),
        count: count as u64,
        words,
        remedy: remedy.to_owned(),
        runbook: format!("{RUNBOOK}{id}"),
        link: String::new(),
    };
    let mut problems = Vec::new();
    if !reply.missing_nodes.is_empty() {
        let words = format!("These nodes do not answer: {}.", reply.missing_nodes.join(", "));
        let remedy = "Look at the nodes, and at NATS between them; the figures are those of the others.";
        problems.push(problem(NODE_SILENT, ProblemSeverity::Bad, reply.missing_nodes.len(), words, remedy));
    }
    let mut versions: Vec<&str> = reply.nodes.iter().map(|node| node.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        let words = format!("The nodes are of several versions: {}.", versions.join(", "));
        problems.push(problem("versions_differ", ProblemSeverity::Look, versions.len(), words, "Finish the upgrade."));
    }
    problems
}

fn report(node: RequestNode<'_>) -> OverviewNode {
    let watch = node.console.watch();
    let now = watch.samples.now().copied().unwrap_or_default();
    let before = watch.samples.before(RATE_TIME_MS).copied().unwrap_or(now);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let worst = watch.problems.present().first().map(|problem| problem.severity);
    let state = match worst {
        _ if node.drain.has_begun() => "draining",
        Some(ProblemSeverity::Bad) => "bad",
        Some(ProblemSeverity::Look) => "look",
        _ => "ok",
    };
    let rate = |pick: fn(&Sample) -> f64| rounded(now.rate(&before, pick));
    OverviewNode {
        id: node.id.clone(),
        name: node.generation().settings.node.name.clone(),
        state: state.to_owned(),
        connections: now.connections,
        subscriptions: now.subscriptions,
        channels: now.channels,
        deliveries_s: rate(|sample| sample.deliveries as f64),
        publications_s: rate(|sample| sample.publications as f64),
        cpu: rounded(now.rate(&before, |sample| sample.processor_s) / cores as f64 * 100.0),
        cores,
        memory: now.resident,
        queued_bytes: now.queued_bytes,
        slow_connections: now.waiting_connections,
        files: now.open_files,
        files_max: now.files_max,
        busiest_shard: rounded(now.rate(&before, |sample| sample.busiest_shard_s) * 100.0),
        delivery_p99_ms: now.p99_ms(&before, &BOUNDS_US),
        version: VERSION.to_owned(),
        config_generation: node.generation().number,
        uptime_s: node.clock.elapsed_us() / 1_000_000,
        connect_rate: connect_rate(&node),
        drain_s: rounded(forecast(&node).seconds),
        at_ms: now.at_ms,
    }
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn dependencies(node: RequestNode<'_>) -> Vec<Dependency> {
    let generation = node.generation();
    let name = generation.settings.node.name.clone();
    let mut all = Vec::new();
    let mut push = |of: String, is_good: bool| {
        let state = if is_good { ProblemSeverity::Ok } else { ProblemSeverity::Bad };
        all.push(Dependency { name: of, node: name.clone(), state });
    };
    if node.cluster.is_some() {
        push("nats".to_owned(), node.is_linked.load(Relaxed));
    }
    if let Some(store) = node.store() {
        push("primary".to_owned(), store.metrics().is_healthy());
    }
    if let Some(stats) = node.stats() {
        push("stats".to_owned(), stats.metrics().is_healthy());
    }
    if let Some(hooks) = &generation.hooks {
        for (backend, is_open) in &hooks.metrics.endpoints {
            push(format!("hook:{backend}"), !is_open.load(Relaxed));
        }
    }
    if let Some(events) = node.events.get() {
        let off = events.metrics.off();
        for endpoint in generation.settings.events.iter().map(|endpoint| &endpoint.name) {
            push(format!("events:{endpoint}"), !off.contains(endpoint));
        }
    }
    for consumer in &generation.consumers {
        push(format!("consumer:{}", consumer.name()), !consumer.is_stuck());
    }
    all
}

/// The figures of the last hour of a node: one number per step, the oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OverviewHistoryReply {
    /// The time between two numbers, in milliseconds.
    step_ms: u64,
    /// The time of the last number, in Unix milliseconds.
    end_ms: u64,
    /// The numbers of each figure.
    series: HourSeries,
}

/// The figures of one hour.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct HourSeries {
    /// The number of connections.
    connections: Vec<u64>,
    /// Deliveries per second.
    deliveries_s: Vec<f64>,
    /// Publications per second.
    publications_s: Vec<f64>,
    /// The 99th percentile of the delivery time, in milliseconds; -1 = nothing was delivered.
    delivery_p99_ms: Vec<f64>,
    /// Bytes that wait because sockets of clients are full.
    queued_bytes: Vec<u64>,
    /// Processor time in percent of all processors.
    cpu: Vec<f64>,
    /// Memory of the process, in bytes.
    memory: Vec<u64>,
}

/// The operation `overview_history`.
pub(crate) struct OverviewHistoryOperation;

impl Operation for OverviewHistoryOperation {
    const NAME: &'static str = "overview_history";
    const SUMMARY: &'static str = "Returns the figures of the asked node for the last hour, one number for each 10 s";
    const RESULT: &'static str = "`step_ms`, `end_ms`, `series`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{
        "step_ms": 10000, "end_ms": 1700000000000,
        "series": {
            "connections": [2], "deliveries_s": [4.0], "publications_s": [2.0], "delivery_p99_ms": [1.5],
            "queued_bytes": [0], "cpu": [0.4], "memory": [20000000]
        }
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InfoRequest;
    type Reply = OverviewHistoryReply;

    async fn run(node: RequestNode<'_>, _: InfoRequest) -> Result<OverviewHistoryReply, OperationError> {
        let watch = node.console.watch();
        let hour: Vec<&Sample> = watch.samples.hour().collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let mut series = HourSeries::default();
        for (before, now) in hour.iter().zip(hour.iter().skip(1)) {
            series.connections.push(now.connections);
            series.deliveries_s.push(rounded(now.rate(before, |sample| sample.deliveries as f64)));
            series.publications_s.push(rounded(now.rate(before, |sample| sample.publications as f64)));
            series.delivery_p99_ms.push(now.p99_ms(before, &BOUNDS_US).unwrap_or(-1.0));
            series.queued_bytes.push(now.queued_bytes);
            series.cpu.push(rounded(now.rate(before, |sample| sample.processor_s) / cores * 100.0));
            series.memory.push(now.resident);
        }
        let end_ms = hour.last().map_or(0, |sample| sample.at_ms);
        Ok(OverviewHistoryReply { step_ms: HOUR_STEP_MS, end_ms, series })
    }
}
