//! Shared facts: where a node keeps them, and what it does when they change. All of them are bans.

use std::sync::{Arc, PoisonError};

use touchline_config::Settings;
use touchline_engine::bans::BanScope;
use touchline_protocol::fact::FactsEvent;

use crate::node::Node;
use crate::runtime::mailbox::Message;

/// Where shared facts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FactBackend {
    /// In the primary database. Nodes share it if it is PostgreSQL; with SQLite there is one node.
    Primary,
    /// In a bucket of NATS.
    Cluster,
    /// In the memory of this node, until it stops.
    Memory,
}

impl FactBackend {
    /// Where a node with these settings keeps them.
    pub(crate) fn of(settings: &Settings) -> Self {
        match (settings.needs_primary(), settings.cluster.is_on()) {
            (true, is_clustered) if settings.store.primary.is_shared() || !is_clustered => FactBackend::Primary,
            (_, true) => FactBackend::Cluster,
            _ => FactBackend::Memory,
        }
    }
}

/// Begins with no facts where nothing has to be loaded.
pub(crate) fn begin(node: &Node) {
    if FactBackend::of(&node.settings) == FactBackend::Memory {
        apply(node, FactsEvent::Loaded { facts: Vec::new(), revision: 0 });
    }
}

/// Does what follows from an event of the backend: connections end that bans concern.
pub(crate) fn apply(node: &Node, event: FactsEvent) {
    let bans = &node.session.bans;
    let now_s = node.clock.now_ms() / 1_000;
    // One event at a time: the shards are told in the order in which the bans change.
    let mut known = node.facts_known.lock().unwrap_or_else(PoisonError::into_inner);
    let scope = match event {
        FactsEvent::Loaded { facts, revision } => {
            *known = revision;
            let scope = bans.replace(&facts, now_s);
            let limit = node.settings.security.bans_max_entries;
            if bans.counts().total() > limit {
                tracing::warn!(
                    bans = bans.counts().total(),
                    "more bans than security.bans_max_entries: all of them hold"
                );
            }
            scope
        }
        FactsEvent::Changed { changes, revision } => {
            *known = revision;
            bans.change(&changes, now_s)
        }
        // It is the newest change of its fact unless a later one was reported already.
        FactsEvent::Written { change, revision } if revision > *known => bans.change(&[change], now_s),
        FactsEvent::Written { .. } => return,
        FactsEvent::CutOff => return bans.cut_off(),
    };
    look_at(node, scope);
}

/// Lets the shards look at the connections that bans may concern.
fn look_at(node: &Node, scope: BanScope) {
    let BanScope { users, is_everybody } = scope;
    for user in &users {
        // Before their connections end: an answer that is kept would let them in again once the ban is lifted.
        node.forget_hook_answers(user, None, false);
    }
    if is_everybody {
        node.send_to_shards(|| Message::JudgeAll);
    } else if !users.is_empty() {
        let users: Arc<[Box<str>]> = users.into();
        node.send_to_shards(|| Message::Judge(Arc::clone(&users)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_where_the_nodes_share_them() {
        let backend = |url: &str, is_clustered: bool, uses_primary: bool| {
            let mut settings = Settings::default();
            settings.store.primary.url = url.to_owned();
            settings.security.use_primary = uses_primary;
            if is_clustered {
                settings.cluster.engine = "nats".to_owned();
            }
            FactBackend::of(&settings)
        };
        let (sqlite, postgres) = ("sqlite:data/primary.db", "postgres://db/live");
        assert_eq!(backend(sqlite, false, false), FactBackend::Memory);
        assert_eq!(backend(sqlite, false, true), FactBackend::Primary);
        assert_eq!(backend(sqlite, true, false), FactBackend::Cluster);
        assert_eq!(backend(sqlite, true, true), FactBackend::Cluster, "nodes do not share a file");
        for (is_clustered, uses_primary) in [(false, false), (true, false), (true, true)] {
            assert_eq!(backend(postgres, is_clustered, uses_primary), FactBackend::Primary);
        }
    }
}
