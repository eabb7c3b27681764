//! What the nodes report about channels that become occupied and vacated: in the end the last report is true, or a
//! doubt has said that it may not be.

use std::collections::BTreeSet;
use std::sync::Arc;

use touchline_engine::events::{StateKey, TellerOutput};

use super::fan::FanState;
use super::world::{ClusterDay, DURABLE, KEPT, PASSING};

/// A report, with the node that made it.
struct MadeReport {
    by: Arc<str>,
    channel: usize,
    generation: u64,
}

/// All reports of a day.
#[derive(Default)]
pub(super) struct Reports {
    made: Vec<MadeReport>,
    /// How many reports there were when something was last doubted.
    doubted_at: Option<usize>,
}

fn channels() -> impl Iterator<Item = &'static str> {
    KEPT.into_iter().chain(PASSING).chain(DURABLE)
}

impl ClusterDay {
    /// Lets the reporting part of a node see which channels have subscribers, and takes its outputs.
    pub(super) fn run_reports(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let Some(node) = &mut self.nodes[index] else { return };
        for (number, channel) in channels().enumerate() {
            let is_held = node.fans.iter().any(|fan| *fan.channel == *channel && fan.state == FanState::Live);
            if node.held[number] != is_held {
                node.held[number] = is_held;
                node.teller.set_held(&StateKey::Channel(channel.into()), is_held, now_ms);
            }
        }
        node.teller.wake(now_ms);
        node.teller.advance(now_ms);
        let by = Arc::clone(&node.id);
        for output in node.teller.outputs().collect::<Vec<_>>() {
            match output {
                TellerOutput::Send { to, message } => {
                    node.cluster.send_to_scope(&Arc::from(super::node::EVENTS), to.as_ref(), message);
                }
                TellerOutput::Tell(change) => {
                    let channel = channels().position(|channel| change.key == StateKey::Channel(channel.into()));
                    let channel = channel.expect("a channel of the day");
                    assert!(
                        change.is_held() || !node.held[channel],
                        "a channel with subscribers is reported as vacated"
                    );
                    self.trace.note(|| format!("{now_ms} {by} reports {:?} {}", change.key, change.generation));
                    let generation = change.generation;
                    self.reports.made.push(MadeReport { by: Arc::clone(&by), channel, generation });
                }
                TellerOutput::Doubt { .. } => self.reports.doubted_at = Some(self.reports.made.len()),
                TellerOutput::Node { node: other, .. } => drop(node.met.insert(other)),
            }
        }
    }

    /// The last report of each channel is true, unless nobody is left who could have doubted it.
    pub(super) fn check_reports(&self) {
        for (number, channel) in channels().enumerate() {
            let of_channel = || self.reports.made.iter().filter(|report| report.channel == number);
            let last = of_channel().map(|report| report.generation).collect::<BTreeSet<_>>().last().copied();
            let last = last.unwrap_or_default();
            let is_held = self.nodes.iter().flatten().any(|node| node.held[number]);
            if (last % 2 == 1) == is_held {
                continue;
            }
            let is_last = |report: &MadeReport| report.channel == number && report.generation == last;
            let last_at = self.reports.made.iter().rposition(is_last).unwrap_or_default();
            let is_doubted = self.reports.doubted_at.is_some_and(|at| at > last_at);
            let by = self.reports.made.get(last_at).map(|report| &report.by);
            let mut left = self.nodes.iter().flatten();
            let is_forgotten = by.is_some_and(|by| left.all(|node| node.id != *by && !node.met.contains(by)));
            assert!(is_doubted || is_forgotten, "the last report of {channel} is {last}, occupied: {is_held}");
        }
    }
}
