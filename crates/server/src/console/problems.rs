//! The problems of a node, as text, with their remedies. A problem begins when its condition has held for a while, and
//! ends when it has not held for a while, so that problems do not flicker.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::Sample;

/// The problem that a node cannot reach NATS.
pub(crate) const NATS_CUT: &str = "nats_cut";
/// The problem that nodes have gone without a goodbye. Each remaining node reports it.
pub(crate) const NODE_LOST: &str = "node_lost";
/// The page of the documentation that has a section for each problem.
pub(crate) const RUNBOOK: &str = "docs/guides/console.md#";
/// How long a condition must not hold before its problem ends, in milliseconds.
const CLEARS_AFTER_MS: u64 = 30_000;

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProblemSeverity {
    /// Nothing is wrong.
    Ok,
    /// An operator should look at it.
    Look,
    /// Clients or data are affected.
    Bad,
}

/// A problem of a node, or of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Problem {
    /// The id of the condition, such as `slow_connections`.
    pub(crate) id: String,
    /// The severity of the problem.
    pub(crate) severity: ProblemSeverity,
    /// When the problem began, in Unix milliseconds.
    pub(crate) since_ms: u64,
    /// The name of the node; empty = the whole cluster.
    pub(crate) node: String,
    /// The number of affected connections, rows or calls.
    pub(crate) count: u64,
    /// What is wrong, in a sentence.
    pub(crate) words: String,
    /// What the operator can do.
    pub(crate) remedy: String,
    /// Where the documentation describes the problem.
    pub(crate) runbook: String,
    /// The page of the console that shows the affected objects; empty = no page shows them.
    pub(crate) link: String,
}

/// The size of the primary database, and whether it may grow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PrimarySize {
    /// The bytes that count against the limit.
    pub(crate) used: u64,
    /// The limit `store.primary.max_size`, in bytes; 0 = no limit.
    pub(crate) limit: u64,
    /// Writes that would make the database larger are refused.
    pub(crate) is_full: bool,
    /// They are refused because the disk has too little space left.
    pub(crate) is_disk_short: bool,
}

/// The facts that the conditions are checked against.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchedFacts {
    pub(crate) now: Sample,
    /// The sample of one minute before, or the oldest one.
    pub(crate) before: Sample,
    /// The limit `node.buffer_max_size`, in bytes.
    pub(crate) buffer_max: u64,
    /// The publications that wait to be delivered, and the limit.
    pub(crate) backlog: (u64, u64),
    /// Why NATS cannot be reached; None = it can.
    pub(crate) link_fault: Option<String>,
    /// The last write to the primary database has failed.
    pub(crate) primary_fails: bool,
    /// The size of the primary database.
    pub(crate) primary_size: PrimarySize,
    /// The last write to the statistics database has failed.
    pub(crate) stats_fails: bool,
    /// Backends that are not asked, because they failed too often.
    pub(crate) open_backends: Vec<String>,
    /// Endpoints of events that are sent nothing, because they answered 410.
    pub(crate) events_off: Vec<String>,
    /// Consumers that make no progress.
    pub(crate) stuck_consumers: Vec<String>,
    /// Nodes with another configuration.
    pub(crate) differing: Vec<String>,
    /// Sections with certificates, and when these expire, in Unix seconds.
    pub(crate) certificates: Vec<(String, u64)>,
    /// The last reload has failed, and has changed nothing.
    pub(crate) reload_failed: bool,
    /// The ids of nodes that have gone without a goodbye.
    pub(crate) lost: Vec<String>,
}

/// A condition that holds.
struct Holding {
    id: &'static str,
    severity: ProblemSeverity,
    /// How long the condition must hold before the problem begins, in milliseconds.
    holds_for_ms: u64,
    count: u64,
    words: String,
    remedy: &'static str,
    link: &'static str,
}

/// The problems of one node.
#[derive(Debug, Default)]
pub(crate) struct ProblemBook(BTreeMap<&'static str, NotedProblem>);

#[derive(Debug)]
struct NotedProblem {
    /// Since when the condition has held, in Unix milliseconds.
    since_ms: u64,
    /// When the condition last held, in Unix milliseconds.
    held_ms: u64,
    has_begun: bool,
    problem: Problem,
}

impl ProblemBook {
    /// Checks the conditions. `node`: the name of the node.
    pub(crate) fn look(&mut self, node: &str, facts: &WatchedFacts) {
        let now_ms = facts.now.at_ms;
        for held in conditions(facts) {
            let problem = Problem {
                id: held.id.to_owned(),
                severity: held.severity,
                since_ms: now_ms,
                node: node.to_owned(),
                count: held.count,
                words: held.words,
                remedy: held.remedy.to_owned(),
                runbook: format!("{RUNBOOK}{}", held.id),
                link: held.link.to_owned(),
            };
            let noted = self.0.entry(held.id).or_insert_with(|| NotedProblem {
                since_ms: now_ms,
                held_ms: now_ms,
                has_begun: false,
                problem: problem.clone(),
            });
            noted.held_ms = now_ms;
            noted.problem = Problem { since_ms: noted.since_ms, ..problem };
            noted.has_begun |= now_ms >= noted.since_ms + held.holds_for_ms;
        }
        self.0.retain(|_, noted| {
            let unheld_ms = now_ms.saturating_sub(noted.held_ms);
            unheld_ms == 0 || noted.has_begun && unheld_ms < CLEARS_AFTER_MS
        });
    }

    /// Returns the problems that have begun, the worst first.
    pub(crate) fn present(&self) -> Vec<Problem> {
        let begun = self.0.values().filter(|noted| noted.has_begun);
        let mut present: Vec<Problem> = begun.map(|noted| noted.problem.clone()).collect();
        present.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.since_ms.cmp(&b.since_ms)));
        present
    }
}

/// Returns the conditions that hold.
fn conditions(facts: &WatchedFacts) -> Vec<Holding> {
    let mut held = Vec::new();
    of_dependencies(facts, &mut held);
    of_resources(facts, &mut held);
    of_work(facts, &mut held);
    of_clients(facts, &mut held);
    of_backends(facts, &mut held);
    of_configuration(facts, &mut held);
    held
}

fn of_dependencies(facts: &WatchedFacts, held: &mut Vec<Holding>) {
    if let Some(why) = &facts.link_fault {
        held.push(Holding {
            id: NATS_CUT,
            severity: ProblemSeverity::Bad,
            holds_for_ms: 3_000,
            count: facts.now.connections,
            words: format!("The node cannot reach the other nodes: {why}."),
            remedy: "Look at the NATS servers and at the network between them and the node.",
            link: "",
        });
    }
    if facts.primary_fails {
        held.push(Holding {
            id: "database_failing",
            severity: ProblemSeverity::Bad,
            holds_for_ms: 0,
            count: 0,
            words: "The primary database fails: publications into durable channels are refused with 4010.".to_owned(),
            remedy: "Look at the database and at the log of the node, which has the cause.",
            link: "",
        });
    }
    of_size(facts.primary_size, held);
    let dropped = facts.now.stats_dropped.saturating_sub(facts.before.stats_dropped);
    if facts.stats_fails || dropped > 0 {
        held.push(Holding {
            id: "statistics_dropped",
            severity: ProblemSeverity::Look,
            holds_for_ms: 10_000,
            count: dropped,
            words: format!("The statistics database fails or is slow; {dropped} rows were dropped in the last minute."),
            remedy: "Look at store.stats: its disk, its size, and the log of the node.",
            link: "/statistics",
        });
    }
}

fn of_size(size: PrimarySize, held: &mut Vec<Holding>) {
    if !size.is_full {
        return;
    }
    let words = match size.is_disk_short {
        true => "The disk of the primary database has little space left:".to_owned(),
        false => {
            format!("The primary database holds {} of {} MiB that it may hold:", size.used >> 20, size.limit >> 20)
        }
    };
    held.push(Holding {
        id: "database_full",
        severity: ProblemSeverity::Bad,
        holds_for_ms: 0,
        count: 0,
        words: format!("{words} writes that would make it larger are refused with 111."),
        remedy: "Remove what is not needed, keep shorter histories, compact the database, or give it more space.",
        link: "",
    });
}

fn of_resources(facts: &WatchedFacts, held: &mut Vec<Holding>) {
    let WatchedFacts { now, before, buffer_max, .. } = facts;
    if now.files_max > 0 && now.open_files * 10 > now.files_max * 9 {
        held.push(Holding {
            id: "files_near_limit",
            severity: ProblemSeverity::Bad,
            holds_for_ms: 5_000,
            count: now.open_files,
            words: format!("The node has {} of {} file descriptors open.", now.open_files, now.files_max),
            remedy: "Raise LimitNOFILE, or lower client.connection_limit.",
            link: "",
        });
    }
    let refused = now.accept_errors.saturating_sub(before.accept_errors);
    if refused > 0 {
        held.push(Holding {
            id: "accept_errors",
            severity: ProblemSeverity::Bad,
            holds_for_ms: 0,
            count: refused,
            words: format!("The node could not accept {refused} connections in the last minute."),
            remedy: "Look at the limit of file descriptors and of memory.",
            link: "",
        });
    }
    if *buffer_max > 0 && now.buffered_bytes * 10 > buffer_max * 7 {
        held.push(Holding {
            id: "memory_near_limit",
            severity: ProblemSeverity::Bad,
            holds_for_ms: 5_000,
            count: now.waiting_connections,
            words: format!(
                "The node holds {} of {} MiB for single connections; at the limit it ends the largest ones.",
                now.buffered_bytes >> 20,
                buffer_max >> 20
            ),
            remedy: "Look at the slowest connections, or raise node.buffer_max_size.",
            link: "/connections?q=waiting:>64KiB",
        });
    }
}

fn of_work(facts: &WatchedFacts, held: &mut Vec<Holding>) {
    let WatchedFacts { now, before, backlog, .. } = facts;
    let busy = now.rate(before, |sample| sample.busiest_shard_s);
    if busy > 0.95 {
        held.push(Holding {
            id: "shard_stalled",
            severity: ProblemSeverity::Look,
            holds_for_ms: 60_000,
            count: 0,
            words: format!("One shard uses {:.0} % of a processor: its channels wait.", busy * 100.0),
            remedy: "Look at the channels with most publications.",
            link: "/channels",
        });
    }
    if backlog.1 > 0 && backlog.0 * 2 > backlog.1 {
        held.push(Holding {
            id: "backlog",
            severity: ProblemSeverity::Bad,
            holds_for_ms: 2_000,
            count: backlog.0,
            words: format!("{} publications wait on the node; at {} it refuses more with 111.", backlog.0, backlog.1),
            remedy: "Publish less often, or add nodes.",
            link: "/channels",
        });
    }
    let panics = now.panics.saturating_sub(before.panics);
    if panics > 0 {
        held.push(Holding {
            id: "panics",
            severity: ProblemSeverity::Bad,
            holds_for_ms: 0,
            count: panics,
            words: format!("A fault of the server has ended {panics} connections in the last minute."),
            remedy: "Report it with the lines of the log.",
            link: "",
        });
    }
}

fn of_clients(facts: &WatchedFacts, held: &mut Vec<Holding>) {
    let WatchedFacts { now, before, .. } = facts;
    if now.waiting_connections >= 20 && now.waiting_connections * 100 > now.connections {
        held.push(Holding {
            id: "slow_connections",
            severity: if now.waiting_connections * 10 > now.connections {
                ProblemSeverity::Bad
            } else {
                ProblemSeverity::Look
            },
            holds_for_ms: 10_000,
            count: now.waiting_connections,
            words: format!(
                "{} connections read slower than they are sent to; {} MiB wait.",
                now.waiting_connections,
                now.queued_bytes >> 20
            ),
            remedy: "Look at the slowest ones; allow deltas or drop_oldest for their namespace.",
            link: "/connections?q=waiting:>64KiB",
        });
    }
    let refused = now.rate(before, |sample| sample.refusals as f64);
    if refused > 5.0 {
        held.push(Holding {
            id: "refusals_rise",
            severity: ProblemSeverity::Look,
            holds_for_ms: 30_000,
            count: refused as u64,
            words: format!("The node refuses {refused:.0} commands and connects a second."),
            remedy: "Look at the causes: a token key, a permission or an origin may have changed.",
            link: "/connections?tab=refused",
        });
    }
    let conflicts = now.conflicts.saturating_sub(before.conflicts);
    if conflicts > 10 {
        held.push(Holding {
            id: "conflicts_rise",
            severity: ProblemSeverity::Look,
            holds_for_ms: 10_000,
            count: conflicts,
            words: format!("{conflicts} names were lost to other nodes in the last minute."),
            remedy: "Look for devices that connect twice under one name.",
            link: "/registry",
        });
    }
}

fn of_backends(facts: &WatchedFacts, held: &mut Vec<Holding>) {
    let mut push = |id, names: &[String], words: &str, remedy, link| {
        if !names.is_empty() {
            held.push(Holding {
                id,
                severity: ProblemSeverity::Bad,
                holds_for_ms: 5_000,
                count: names.len() as u64,
                words: format!("{words} {}.", names.join(", ")),
                remedy,
                link,
            });
        }
    };
    push(
        "hook_open",
        &facts.open_backends,
        "Backends are not asked, because they have failed too often:",
        "Look at the backend; clients are refused meanwhile.",
        "",
    );
    push(
        "events_dead",
        &facts.events_off,
        "Endpoints of events are sent nothing, because they have answered 410:",
        "Repair the endpoint, then resume it.",
        "/events",
    );
    push(
        "consumer_behind",
        &facts.stuck_consumers,
        "Consumers stand still:",
        "Look at the log of the node, which has the cause.",
        "/consumers",
    );
}

fn of_configuration(facts: &WatchedFacts, held: &mut Vec<Holding>) {
    if !facts.lost.is_empty() {
        held.push(Holding {
            id: NODE_LOST,
            severity: ProblemSeverity::Bad,
            holds_for_ms: 0,
            count: facts.lost.len() as u64,
            words: format!("These nodes have gone without a goodbye: {}.", facts.lost.join(", ")),
            remedy: "Look at their machines, and at NATS between them; clients connect to the others meanwhile.",
            link: "",
        });
    }
    if !facts.differing.is_empty() {
        held.push(Holding {
            id: "configuration_differs",
            severity: ProblemSeverity::Look,
            holds_for_ms: 60_000,
            count: facts.differing.len() as u64,
            words: format!("These nodes have another configuration: {}.", facts.differing.join(", ")),
            remedy: "Reload the nodes with the older configuration.",
            link: "/configuration",
        });
    }
    if facts.reload_failed {
        held.push(Holding {
            id: "reload_failed",
            severity: ProblemSeverity::Look,
            holds_for_ms: 0,
            count: 0,
            words: "The last reload has changed nothing: the configuration has a fault.".to_owned(),
            remedy: "Run `touchline check` on the file of the node.",
            link: "/configuration",
        });
    }
    let now_s = facts.now.at_ms / 1_000;
    let first = facts.certificates.iter().min_by_key(|(_, ends_s)| *ends_s);
    if let Some((section, ends_s)) = first.filter(|(_, ends_s)| *ends_s < now_s + 14 * 86_400) {
        let days = ends_s.saturating_sub(now_s) / 86_400;
        held.push(Holding {
            id: "certificate_expires",
            severity: if days < 3 { ProblemSeverity::Bad } else { ProblemSeverity::Look },
            holds_for_ms: 0,
            count: 0,
            words: format!("The certificate of {section} is valid for {days} days more."),
            remedy: "Renew it: the node reads the files again by itself.",
            link: "",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ms: u64, waiting_connections: u64) -> WatchedFacts {
        let now = Sample { at_ms, connections: 1_000, waiting_connections, ..Sample::default() };
        WatchedFacts { now, ..WatchedFacts::default() }
    }

    #[test]
    fn a_problem_begins_and_ends_after_a_while() {
        let mut book = ProblemBook::default();
        let mut story = Vec::new();
        let waits = |second: u64| if (5..60).contains(&second) && second != 30 { 200 } else { 0 };
        for second in 0..120 {
            book.look("one", &at(second * 1_000, waits(second)));
            let is_there = !book.present().is_empty();
            if story.last().map_or(is_there, |(_, before)| *before != is_there) {
                story.push((second, is_there));
            }
        }
        assert_eq!(story, [(15, true), (89, false)]);
    }

    #[test]
    fn a_full_database_is_told_with_its_cause() {
        for (is_disk_short, expected) in [(true, "disk of the primary"), (false, "15 of 16 MiB")] {
            let mut book = ProblemBook::default();
            let primary_size = PrimarySize { used: 15 << 20, limit: 16 << 20, is_full: true, is_disk_short };
            book.look("one", &WatchedFacts { primary_size, ..at(1_000, 0) });
            let present = book.present();
            assert_eq!(present[0].id, "database_full");
            assert!(present[0].words.contains(expected), "{}", present[0].words);
        }
    }

    #[test]
    fn the_worst_comes_first_with_its_words() {
        let mut book = ProblemBook::default();
        let facts = WatchedFacts {
            primary_fails: true,
            certificates: vec![("http_server.tls".into(), 10 * 86_400)],
            ..at(1_000, 0)
        };
        book.look("one", &facts);
        let present = book.present();
        let ids: Vec<&str> = present.iter().map(|problem| problem.id.as_str()).collect();
        assert_eq!(ids, ["database_failing", "certificate_expires"]);
        assert!(present[1].words.contains("9 days"), "{}", present[1].words);
    }

    #[test]
    fn each_problem_has_a_part_of_the_guide() {
        let guide = include_str!("../../../../docs/guides/console.md");
        let told = guide.lines().filter_map(|line| line.strip_prefix("### "));
        let told: Vec<&str> =
            told.filter(|heading| heading.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).collect();
        let sources = [include_str!("problems.rs"), include_str!("../api/operations/overview.rs")];
        let texts = sources.iter().flat_map(|source| source.split('"')).skip(1).step_by(2);
        let is_id = |text: &&str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let named: Vec<&str> = texts.filter(is_id).filter(|text| told.contains(text)).collect();
        for id in &told {
            assert!(named.contains(id), "{id} is no problem");
        }
        for line in sources[0].lines().filter_map(|line| line.trim().strip_prefix("id: \"")) {
            let id = line.split('"').next().unwrap_or_default();
            assert!(told.contains(&id), "{id} is not told of");
        }
    }
}
