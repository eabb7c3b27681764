//! Shared facts: where a node keeps them, and what it does when they change. All of them are bans.

use std::sync::Arc;

use touchline_config::Settings;
use touchline_engine::bans::{BanKnowledge, BanScope, Bans};
use touchline_protocol::fact::FactsEvent;
use touchline_store::DatabaseUrl;

use crate::node::Node;
use crate::runtime::mailbox::Message;

/// The place where shared facts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FactBackend {
    /// The primary database. Nodes share it if it is PostgreSQL. With SQLite there is only one node.
    Primary,
    /// A bucket of NATS.
    Cluster,
    /// The memory of this node, until it stops.
    Memory,
}

impl FactBackend {
    /// Returns where a node with these settings keeps the facts.
    pub(crate) fn of(settings: &Settings) -> Self {
        match (settings.needs_primary(), settings.cluster.is_on()) {
            (true, is_clustered) if settings.store.primary.is_shared() || !is_clustered => FactBackend::Primary,
            (_, true) => FactBackend::Cluster,
            _ => FactBackend::Memory,
        }
    }
}

/// Begins without facts if there are none to load. It warns of facts in a file that is no longer used, because they are
/// not moved.
pub(crate) fn begin(node: &Node) {
    let backend = FactBackend::of(&node.generation().settings);
    if backend == FactBackend::Memory {
        apply(node, FactsEvent::Loaded { facts: Vec::new(), revision: 0 });
    }
    let url = &node.generation().settings.store.primary.url;
    let left = url.parse::<DatabaseUrl>().map_or(0, |url| url.facts_in_file());
    if backend != FactBackend::Primary && left > 0 {
        tracing::warn!(
            bans = left,
            "there are bans in {url}, but this node keeps bans in another place: those in the file do not apply"
        );
    }
}

/// Notes the nodes of the cluster that keep facts in another place, and logs them.
pub(crate) fn note_other_places(node: &Node, nodes: Vec<Arc<str>>) {
    if nodes.is_empty() {
        tracing::info!("all nodes of the cluster keep bans in one place again");
    } else {
        tracing::warn!(
            nodes = nodes.join(" "),
            "these nodes keep bans in another place than this node, so neither knows the bans of the other: give all \
             nodes the same store.primary.url"
        );
    }
    *node.nodes_with_other_facts.lock() = nodes;
}

/// Applies an event of the backend, and ends the connections that the bans affect.
pub(crate) fn apply(node: &Node, event: FactsEvent) {
    let bans = &node.generation().session.bans;
    let now_s = node.clock.now_ms() / 1_000;
    // One event at a time, so that the shards are notified in the order in which the bans change.
    let mut known = node.facts_known.lock();
    let before = bans.knowledge();
    let keeps_names = FactBackend::of(&node.generation().settings) != FactBackend::Primary;
    let scope = match event {
        FactsEvent::Loaded { facts, revision } => {
            known.revision = revision;
            let scope = bans.replace(&facts, now_s);
            let limit = node.generation().settings.security.bans_max_entries;
            if bans.counts().total() > limit {
                tracing::warn!(
                    bans = bans.counts().total(),
                    "there are more bans than security.bans_max_entries: all of them apply"
                );
            }
            if keeps_names {
                known.names.replace(facts);
            }
            scope
        }
        FactsEvent::Changed { changes, revision } => {
            known.revision = revision;
            let scope = bans.change(&changes, now_s);
            if keeps_names {
                known.names.change(changes, bans.counts().total(), now_s);
            }
            scope
        }
        // The change is the newest one of its fact, unless a later one was reported already.
        FactsEvent::Written { change, revision } if revision > known.revision => {
            let changes = vec![change];
            let scope = bans.change(&changes, now_s);
            if keeps_names {
                known.names.change(changes, bans.counts().total(), now_s);
            }
            scope
        }
        FactsEvent::Written { .. } => return,
        FactsEvent::CutOff => {
            bans.cut_off();
            BanScope::default()
        }
        FactsEvent::Unsupported => {
            bans.unsupported();
            tracing::warn!(
                "NATS has no JetStream, which keeps the bans, so this node does not know them: switch JetStream on, or \
                 use PostgreSQL as store.primary.url"
            );
            BanScope::default()
        }
    };
    tell_of(before, bans);
    look_at(node, scope);
}

/// Logs when the node is cut off from the bans, and when it is connected again. `before`: what it knew before an event.
fn tell_of(before: BanKnowledge, bans: &Bans) {
    let now = bans.knowledge();
    if now == BanKnowledge::CutOff && before != now {
        for key in bans.unreadable() {
            tracing::warn!(
                kind = &*key.kind,
                name = &*key.name,
                "a ban cannot be read: it is damaged, or a later version has written it; this node counts as cut off \
                 until it is written again or removed"
            );
        }
    }
    match (before, now) {
        (BanKnowledge::Current, BanKnowledge::CutOff) if bans.holds_back().is_some() => {
            tracing::warn!("cut off from the bans: the node accepts no client (security.when_cut_off)");
        }
        (BanKnowledge::Current, BanKnowledge::CutOff) => {
            tracing::warn!("cut off from the bans: clients are checked against the known bans");
        }
        (BanKnowledge::CutOff, BanKnowledge::Current) => {
            tracing::info!(bans = bans.counts().total(), "the bans are known again");
        }
        _ => {}
    }
}

/// Makes the shards check the connections that bans may affect.
fn look_at(node: &Node, scope: BanScope) {
    let BanScope { users, is_everybody } = scope;
    for user in &users {
        // Done before the connections end: a cached answer would admit the users again once the ban is lifted.
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
