//! What other nodes can't tell any more, because they are gone: their clients, names and groups. One of the nodes that
//! are left tells it, once they agree which nodes are left.

use std::collections::BTreeMap;
use std::sync::Arc;

use touchline_engine::directory::{EntryIncident, LostClient};
use touchline_registry::OwnerId;

/// Nodes that were told as lost, and are remembered in case that they come back.
const TOLD_MAX: usize = 1_024;

/// How a node went out of sight.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeEnd {
    /// The life of it that ended.
    pub(super) life: u32,
    /// When it was last heard, Unix milliseconds.
    pub(super) heard_ms: u64,
}

/// What was lost with one node.
#[derive(Debug, Default)]
pub(super) struct LostNode {
    /// The life of it that ended.
    pub(super) life: u32,
    /// Each client once, however often it was known.
    pub(super) clients: BTreeMap<OwnerId, LostClient>,
    pub(super) entries: Vec<(u64, Box<EntryIncident>)>,
}

/// Nodes that are gone, and what was lost with them.
#[derive(Debug, Default)]
pub(super) struct LostNodes {
    waiting: BTreeMap<Arc<str>, LostNode>,
    /// Nodes that are not in sight.
    ended: BTreeMap<Arc<str>, NodeEnd>,
    /// Nodes that were told as lost, and when they were last heard, Unix milliseconds.
    told: BTreeMap<Arc<str>, u64>,
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
                // One that has ended before anything was known of it is in its first life.
                let NodeEnd { life, heard_ms } =
                    self.ended.get(&node).copied().unwrap_or(NodeEnd { life: 1, heard_ms: 0 });
                lost.push(LostNode { life, ..of_node });
                remember(&mut self.told, node, heard_ms);
            }
        }
        lost
    }

    /// A node is out of sight.
    pub(super) fn note_end(&mut self, node: Arc<str>, end: NodeEnd) {
        remember(&mut self.ended, node, end);
    }

    /// A node is there. Returns when it was last heard before, Unix milliseconds, if it was told as lost.
    pub(super) fn note_return(&mut self, node: &str) -> Option<u64> {
        self.waiting.remove(node);
        self.ended.remove(node);
        self.told.remove(node)
    }
}

/// Remembers something of a node, and forgets another one if there are too many.
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
        // Another node tells it.
        nodes.add_client(lost("m", 2, ""));
        assert!(nodes.take(|_| false, |_| false).is_empty() && nodes.take(|_| false, |_| true).is_empty());
        assert_eq!(nodes.note_return("m"), None);
    }
}
