//! What other nodes can't tell any more, because they are gone: their clients, names and groups. One of the nodes that
//! are left tells it, once they agree which nodes are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use touchline_engine::directory::{EntryIncident, LostClient};
use touchline_registry::OwnerId;

/// Nodes that were told as lost, and are remembered in case that they come back.
const TOLD_MAX: usize = 1_024;

/// What was lost with one node.
#[derive(Debug, Default)]
pub(super) struct LostNode {
    /// Each client once, however often it was known.
    pub(super) clients: BTreeMap<OwnerId, LostClient>,
    pub(super) entries: Vec<(u64, Box<EntryIncident>)>,
}

/// Nodes that are gone, and what was lost with them.
#[derive(Debug, Default)]
pub(super) struct LostNodes {
    waiting: BTreeMap<Arc<str>, LostNode>,
    told: BTreeSet<Arc<str>>,
}

impl LostNodes {
    /// A client is lost with its node.
    pub(super) fn add_client(&mut self, lost: LostClient) {
        let clients = &mut self.waiting.entry(Arc::clone(&lost.node)).or_default().clients;
        // Presence knows the user, names do not.
        match clients.get(&lost.client) {
            Some(known) if !known.user.is_empty() => {}
            _ => drop(clients.insert(lost.client, lost)),
        }
    }

    /// A name or a membership is lost with its node.
    pub(super) fn add_entry(&mut self, at_ms: u64, incident: Box<EntryIncident>) {
        self.waiting.entry(Arc::clone(incident.entry.node())).or_default().entries.push((at_ms, incident));
    }

    /// Takes what is to be told of nodes that are not in sight. `tells`: this node tells it; the other nodes forget it.
    pub(super) fn take(&mut self, sees: impl Fn(&str) -> bool, tells: impl Fn(&str) -> bool) -> Vec<LostNode> {
        let mut lost = Vec::new();
        for (node, of_node) in std::mem::take(&mut self.waiting) {
            if sees(&node) {
                self.waiting.insert(node, of_node);
            } else if tells(&node) {
                lost.push(of_node);
                if self.told.len() >= TOLD_MAX {
                    self.told.pop_first();
                }
                self.told.insert(node);
            }
        }
        lost
    }

    /// A node is there. Returns whether it was told as lost.
    pub(super) fn note_return(&mut self, node: &str) -> bool {
        self.waiting.remove(node);
        self.told.remove(node)
    }
}
