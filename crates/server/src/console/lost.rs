//! Nodes that have gone without a goodbye.

use std::collections::BTreeSet;

/// A lost node is told of for so long at most, milliseconds.
const TOLD_MS: u64 = 3_600_000;
/// The number of other nodes is told anew within this time, milliseconds.
const COUNTED_MS: u64 = 5_000;

/// A node that has gone without a goodbye.
#[derive(Debug)]
struct AbsentNode {
    node: Box<str>,
    /// When, Unix milliseconds.
    since_ms: u64,
    /// How many other nodes there were before.
    peers: usize,
}

/// The nodes that may be lost, and those that are.
#[derive(Debug, Default)]
pub(crate) struct AbsentNodes {
    suspected: BTreeSet<Box<str>>,
    lost: Vec<AbsentNode>,
    /// The link to the other nodes was lost.
    is_cut: bool,
    was_linked: bool,
}

impl AbsentNodes {
    /// Notes that the other nodes can be reached, or cannot. Returns whether that is news: the first link is none.
    pub(crate) fn note_link(&mut self, is_linked: bool) -> bool {
        let is_news = self.was_linked && self.is_cut == is_linked;
        self.was_linked |= is_linked;
        self.is_cut = !is_linked;
        is_news
    }

    /// Notes that a node may be lost, or is not.
    pub(crate) fn suspect(&mut self, node: &str, is_suspected: bool) {
        if is_suspected {
            self.suspected.insert(node.into());
        } else {
            self.suspected.remove(node);
        }
    }

    /// Notes that a node has gone. Returns whether it is lost: nobody suspects a node that says goodbye.
    pub(crate) fn note_gone(&mut self, node: &str, peers: usize, now_ms: u64) -> bool {
        let is_lost = self.suspected.remove(node);
        if is_lost {
            self.lost.push(AbsentNode { node: node.into(), since_ms: now_ms, peers });
        }
        is_lost
    }

    /// The ids of those that are lost. One that another node has come for, or itself, is lost no more.
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
        assert!(!nodes.note_gone("polite", 2, 0));
        nodes.suspect("late", true);
        nodes.suspect("late", false);
        assert!(!nodes.note_gone("late", 2, 0));
        nodes.suspect("dead", true);
        assert!(nodes.note_gone("dead", 2, 1_000));
        assert_eq!(nodes.present(2, 2_000), ["dead"], "the number may not be told yet");
        assert_eq!(nodes.present(1, 60_000), ["dead"]);
        assert!(nodes.present(2, 61_000).is_empty());
        nodes.suspect("dead", true);
        nodes.note_gone("dead", 2, 1_000);
        assert!(nodes.present(1, 1_000 + TOLD_MS).is_empty());
    }
}
