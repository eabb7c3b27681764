//! Nodes that have gone without a goodbye.

use std::collections::{BTreeMap, BTreeSet};

/// How long a lost or silent node is reported, in milliseconds.
const TOLD_MS: u64 = 3_600_000;
/// The number of other nodes is updated within this time, in milliseconds.
const COUNTED_MS: u64 = 5_000;

/// A node that has gone without a goodbye.
#[derive(Debug)]
struct AbsentNode {
    node: Box<str>,
    /// When the node went, in Unix milliseconds.
    since_ms: u64,
    /// How many other nodes there were before.
    peers: usize,
}

/// The nodes that may be lost, and those that are lost.
#[derive(Debug, Default)]
pub(crate) struct AbsentNodes {
    suspected: BTreeSet<Box<str>>,
    lost: Vec<AbsentNode>,
    /// Nodes that have gone without a goodbye, and since when, in Unix milliseconds. They may still run and serve
    /// clients, even if another node has replaced them.
    silent: BTreeMap<Box<str>, u64>,
    /// The link to the other nodes is lost.
    is_cut: bool,
    was_linked: bool,
}

impl AbsentNodes {
    /// Notes whether the other nodes can be reached. Returns whether that has changed; the first link does not count as
    /// a change.
    pub(crate) fn note_link(&mut self, is_linked: bool) -> bool {
        let is_news = self.was_linked && self.is_cut == is_linked;
        self.was_linked |= is_linked;
        self.is_cut = !is_linked;
        is_news
    }

    /// Notes whether a node may be lost.
    pub(crate) fn suspect(&mut self, node: &str, is_suspected: bool) {
        if is_suspected {
            self.suspected.insert(node.into());
        } else {
            self.suspected.remove(node);
        }
    }

    /// Notes that a node has gone. `has_left`: it has said goodbye. Returns whether the node is lost. A node that says
    /// goodbye is never suspected.
    pub(crate) fn note_gone(&mut self, node: &str, has_left: bool, peers: usize, now_ms: u64) -> bool {
        self.silent.retain(|_, since_ms| now_ms.saturating_sub(*since_ms) < TOLD_MS);
        if has_left {
            self.silent.remove(node);
        } else {
            self.silent.insert(node.into(), now_ms);
        }
        let is_lost = self.suspected.remove(node) && !has_left;
        if is_lost {
            self.lost.push(AbsentNode { node: node.into(), since_ms: now_ms, peers });
        }
        is_lost
    }

    /// Returns the ids of nodes that have gone without a goodbye within the last hour and are not back. They may still
    /// serve clients. `is_in_sight`: whether a node is back.
    pub(crate) fn silent(&self, now_ms: u64, is_in_sight: impl Fn(&str) -> bool) -> Vec<Box<str>> {
        let recent = self.silent.iter().filter(|(_, since_ms)| now_ms.saturating_sub(**since_ms) < TOLD_MS);
        // A node in sight stays in the list, because it may be seen for a moment after it has gone.
        recent.map(|(node, _)| node.clone()).filter(|node| !is_in_sight(node)).collect()
    }

    /// Returns the ids of the lost nodes. A node that has come back, or that another node has replaced, is not lost any
    /// more.
    pub(crate) fn present(&mut self, peers: usize, now_ms: u64) -> Vec<String> {
        self.lost.retain(|lost| {
            let age_ms = now_ms.saturating_sub(lost.since_ms);
            age_ms < COUNTED_MS || age_ms < TOLD_MS && peers < lost.peers
        });
        self.lost.iter().map(|lost| lost.node.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_news_when_it_is_lost_and_when_it_is_back() {
        let mut nodes = AbsentNodes::default();
        let told = [false, true, true, false, false, true].map(|is_linked| nodes.note_link(is_linked));
        assert_eq!(told, [false, false, false, true, false, true]);
    }

    #[test]
    fn a_node_is_lost_that_was_suspected_until_another_has_come() {
        let mut nodes = AbsentNodes::default();
        assert!(!nodes.note_gone("polite", true, 2, 0));
        nodes.suspect("late", true);
        nodes.suspect("late", false);
        assert!(!nodes.note_gone("late", true, 2, 0));
        nodes.suspect("dead", true);
        assert!(nodes.note_gone("dead", false, 2, 1_000));
        assert_eq!(nodes.present(2, 2_000), ["dead"], "the number may not be told yet");
        assert_eq!(nodes.present(1, 60_000), ["dead"]);
        assert!(nodes.present(2, 61_000).is_empty());
        nodes.suspect("dead", true);
        nodes.note_gone("dead", false, 2, 1_000);
        assert!(nodes.present(1, 1_000 + TOLD_MS).is_empty());
    }

    #[test]
    fn a_node_is_silent_until_it_is_back_says_goodbye_or_an_hour_is_over() {
        let mut nodes = AbsentNodes::default();
        assert!(!nodes.note_gone("polite", true, 2, 1_000));
        // No node is suspected while the link is lost.
        assert!(!nodes.note_gone("cut", false, 2, 1_000));
        nodes.suspect("dead", true);
        assert!(nodes.note_gone("dead", false, 1, 1_000));
        assert_eq!(nodes.present(2, 60_000), Vec::<String>::new(), "others have come");
        let told = |nodes: &AbsentNodes, now_ms, back: &str| nodes.silent(now_ms, |node| node == back);
        assert_eq!(told(&nodes, 60_000, ""), ["cut".into(), "dead".into()]);
        assert_eq!(told(&nodes, 60_000, "cut"), ["dead".into()]);
        assert_eq!(told(&nodes, 60_000, ""), ["cut".into(), "dead".into()], "it was in sight for a moment");
        nodes.note_gone("cut", true, 2, 61_000);
        assert_eq!(told(&nodes, 62_000, ""), ["dead".into()]);
        assert_eq!(told(&nodes, 999 + TOLD_MS, ""), ["dead".into()]);
        assert!(told(&nodes, 1_000 + TOLD_MS, "").is_empty());
    }
}
