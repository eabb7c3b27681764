//! What other nodes can no longer report because they are gone: their clients, names and groups. One of the remaining
//! nodes reports it, once they agree which nodes are left.

use std::collections::BTreeMap;
use std::sync::Arc;

use touchline_engine::directory::{EntryIncident, LostClient};
use touchline_registry::OwnerId;

/// The most nodes that were reported as lost and are remembered, because they may come back.
const TOLD_MAX: usize = 1_024;

/// The last state of a node that is out of sight.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeEnd {
    /// The life of the node that ended.
    pub(super) life: u32,
    /// When the node was last heard from, in Unix milliseconds.
    pub(super) heard_ms: u64,
}

/// What was lost with one node.
#[derive(Debug, Default)]
pub(super) struct LostNode {
    /// The life of the node that ended.
    pub(super) life: u32,
    /// The clients of the node, each once, even if several sources knew it.
    pub(super) clients: BTreeMap<OwnerId, LostClient>,
    pub(super) entries: Vec<(u64, Box<EntryIncident>)>,
}

/// Nodes that are gone, and what was lost with them.
#[derive(Debug, Default)]
pub(super) struct LostNodes {
    waiting: BTreeMap<Arc<str>, LostNode>,
    /// Nodes that are not in sight.
    ended: BTreeMap<Arc<str>, NodeEnd>,
    /// Nodes that were reported as lost, and when they were last heard from, in Unix milliseconds.
    told: BTreeMap<Arc<str>, u64>,
}

impl LostNodes {
    /// Adds a client that was lost with its node.
    pub(super) fn add_client(&mut self, lost: LostClient) {
        let clients = &mut self.waiting.entry(Arc::clone(&lost.node)).or_default().clients;
        // An entry of presence contains the user, and an entry of a name does not.
        match clients.get(&lost.client) {
            Some(known) if !known.user.is_empty() => {}
            _ => drop(clients.insert(lost.client, lost)),
        }
    }

    /// Adds a name or a membership that was lost with its node.
    pub(super) fn add_entry(&mut self, at_ms: u64, incident: Box<EntryIncident>) {
        self.waiting.entry(Arc::clone(incident.entry.node())).or_default().entries.push((at_ms, incident));
    }

    /// Takes what is lost with nodes that are out of sight. `tells`: this node reports it; the other nodes drop it.
    pub(super) fn take(&mut self, sees: impl Fn(&str) -> bool, tells: impl Fn(&str) -> bool) -> Vec<LostNode> {
        let mut lost = Vec::new();
        for (node, of_node) in std::mem::take(&mut self.waiting) {
            if sees(&node) {
                self.waiting.insert(node, of_node);
            } else if tells(&node) {
                // A node that ended before anything was known of it is in its first life.
                let NodeEnd { life, heard_ms } =
                    self.ended.get(&node).copied().unwrap_or(NodeEnd { life: 1, heard_ms: 0 });
                lost.push(LostNode { life, ..of_node });
                remember(&mut self.told, node, heard_ms);
            }
        }
        lost
    }

    /// Notes that a node is out of sight.
    pub(super) fn note_end(&mut self, node: Arc<str>, end: NodeEnd) {
        remember(&mut self.ended, node, end);
    }

    /// Notes that a node is in sight. Returns when it was last heard from before, in Unix milliseconds, if it was
    /// reported as lost.
    pub(super) fn note_return(&mut self, node: &str) -> Option<u64> {
        self.waiting.remove(node);
        self.ended.remove(node);
        self.told.remove(node)
    }
}

/// Remembers something about a node. If there are too many nodes, one of them is forgotten.
fn remember<T>(nodes: &mut BTreeMap<Arc<str>, T>, node: Arc<str>, what: T) {
    if nodes.len() >= TOLD_MAX {
        nodes.pop_first();
    }
    nodes.insert(node, what);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(node: &str, client: u8, user: &str) -> LostClient {
        LostClient { node: node.into(), client: OwnerId([client; 16]), user: user.into() }
    }

    #[test]
    fn what_is_lost_is_told_in_the_life_that_ended_with_the_node() {
        let mut nodes = LostNodes::default();
        for life in 1..=2 {
            nodes.add_client(lost("n", 1, ""));
            nodes.add_client(lost("n", 1, "ann"));
            assert!(nodes.take(|_| true, |_| true).is_empty(), "it is in sight");
            nodes.note_end("n".into(), NodeEnd { life, heard_ms: 70 });
            let told = nodes.take(|_| false, |_| true);
            let users: Vec<_> =
                told.iter().flat_map(|lost| lost.clients.values().map(|client| &*client.user)).collect();
            assert_eq!((told.len(), told[0].life, users), (1, life, vec!["ann"]));
            assert_eq!((nodes.note_return("n"), nodes.note_return("n")), (Some(70), None));
        }
        // Another node reports it.
        nodes.add_client(lost("m", 2, ""));
        assert!(nodes.take(|_| false, |_| false).is_empty() && nodes.take(|_| false, |_| true).is_empty());
        assert_eq!(nodes.note_return("m"), None);
    }
}
