//! Nodes of the cluster that take no part in the ledger: no node reports what their clients do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use touchline_engine::duration::millis;

/// How long a node may be in sight before it has to be in the ledger.
const PATIENCE: Duration = Duration::from_secs(10);

/// Finds the nodes that are silent.
#[derive(Debug, Default)]
pub(super) struct SilentNodes {
    /// Nodes that were in the ledger. A node that is cut off from the ledger was reported as gone, and is reported
    /// again.
    known: BTreeSet<String>,
    /// Nodes that have never been in the ledger, and since when they are in sight, in milliseconds.
    waiting: BTreeMap<String, u64>,
    silent: Vec<String>,
}

impl SilentNodes {
    /// Notes the nodes in sight and the nodes in the ledger. `now_ms`: the time of any clock. Returns the silent nodes
    /// if they have changed.
    pub(super) fn note(&mut self, in_sight: &[Box<str>], in_ledger: &[String], now_ms: u64) -> Option<&[String]> {
        let is_in_sight = |node: &String| in_sight.iter().any(|other| **other == **node);
        self.known.extend(in_ledger.iter().cloned());
        self.known.retain(is_in_sight);
        self.waiting.retain(|node, _| is_in_sight(node));
        for node in in_sight {
            if self.known.contains(&**node) {
                self.waiting.remove(&**node);
            } else {
                self.waiting.entry(node.to_string()).or_insert(now_ms);
            }
        }
        let is_silent = |since_ms: &u64| now_ms.saturating_sub(*since_ms) >= millis(PATIENCE);
        let silent = self.waiting.iter().filter(|(_, since_ms)| is_silent(since_ms));
        let silent: Vec<String> = silent.map(|(node, _)| node.clone()).collect();
        if silent == self.silent {
            return None;
        }
        self.silent = silent;
        Some(&self.silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_never_was_in_the_ledger_is_silent_after_a_while() {
        let mut nodes = SilentNodes::default();
        let in_sight = ["a", "b"].map(Box::from);
        let ledger = ["a".to_owned()];
        assert_eq!(nodes.note(&in_sight, &ledger, 1_000), None);
        assert_eq!(nodes.note(&in_sight, &ledger, 10_999), None);
        assert_eq!(nodes.note(&in_sight, &[], 11_000), Some(&["b".to_owned()][..]), "the other one is cut off only");
        assert_eq!(nodes.note(&in_sight, &ledger, 12_000), None, "that is known");
        assert_eq!(nodes.note(&in_sight, &["b".to_owned()], 13_000), Some(&[][..]));
        assert_eq!(nodes.note(&["a", "c"].map(Box::from), &ledger, 14_000), None);
        assert_eq!(nodes.note(&["a"].map(Box::from), &ledger, 99_000), None, "it has gone");
    }
}
