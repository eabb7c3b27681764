//! Changes of names and groups that are reported to backends: those of this node's clients, and those that the end of
//! another node has caused.

use std::sync::Arc;

use touchline_registry::{Entry, EntryChange, Reason, RegistryEvent};

use super::effect::DirectoryEffect;
use super::incident::{ActingOwner, EntryIncident, LostClient, ToldChanges};
use super::presence_entry::parts;
use super::state::Directory;
use crate::events::EventKind;

impl<A> Directory<A> {
    /// From now on reports these changes ([`DirectoryEffect::Tell`], [`DirectoryEffect::TellLost`]).
    pub fn telling(mut self, told: ToldChanges) -> Self {
        self.tell(told);
        self
    }

    /// The same for a directory that is in use.
    pub fn tell(&mut self, told: ToldChanges) {
        self.told = (told != ToldChanges::default()).then_some(told);
    }
}

/// The reports about a change. `me`: this node. `acting`: the client that is acting now, and its user. `is_presence`:
/// the scope is that of presence.
pub(super) fn of_event<A>(
    told: ToldChanges,
    scope: &Arc<str>,
    event: &RegistryEvent,
    (me, acting, is_presence): (&Arc<str>, Option<&ActingOwner>, bool),
) -> Vec<DirectoryEffect<A>> {
    let RegistryEvent { change, entry, reason } = event;
    let is_own = entry.node() == me;
    let is_of_lost_node = !is_own && *reason == Reason::NodeDown;
    let mut effects = Vec::new();
    if is_of_lost_node && told.clients {
        let user = if is_presence { String::from_utf8_lossy(parts(entry.meta()).1) } else { "".into() };
        let (node, client) = (Arc::clone(entry.node()), entry.owner());
        effects.push(DirectoryEffect::TellLost(LostClient { node, client, user: user.into() }));
    }
    let is_lost_to_another = matches!(reason, Reason::Conflict | Reason::TakenOver);
    let kind = match change {
        EntryChange::Registered => EventKind::NameRegistered,
        EntryChange::Updated => EventKind::NameUpdated,
        // The report for the losing client names the winner.
        EntryChange::Unregistered if is_lost_to_another => return effects,
        EntryChange::Unregistered => EventKind::NameLost,
        EntryChange::Joined => EventKind::MemberJoined,
        EntryChange::Left => EventKind::MemberLeft,
        EntryChange::MemberUpdated => return effects,
    };
    let is_wanted = match kind {
        EventKind::MemberJoined | EventKind::MemberLeft => told.members,
        _ => told.names,
    };
    if is_wanted && !is_presence && (is_own || is_of_lost_node) {
        let user =
            acting.filter(|(owner, _)| *owner == entry.owner()).map_or_else(Box::default, |(_, user)| user.clone());
        effects.push(DirectoryEffect::Tell(Box::new(EntryIncident {
            kind,
            scope: Arc::clone(scope),
            entry: entry.clone(),
            reason: *reason,
            user,
            winner: None,
            is_of_lost_node,
        })));
    }
    effects
}

/// The report about a name that a client of this node has lost to another one.
pub(super) fn of_loss<A>(
    told: ToldChanges,
    scope: &Arc<str>,
    (lost, winner): (&Entry, &Entry),
    reason: Reason,
) -> Option<DirectoryEffect<A>> {
    let incident = || EntryIncident {
        kind: EventKind::NameLost,
        scope: Arc::clone(scope),
        entry: lost.clone(),
        reason,
        user: Box::default(),
        winner: Some(winner.clone()),
        is_of_lost_node: false,
    };
    told.names.then(|| DirectoryEffect::Tell(Box::new(incident())))
}
