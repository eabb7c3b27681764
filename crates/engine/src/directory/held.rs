//! What an owner of this node holds: its names and groups in all scopes.

use std::sync::Arc;

use touchline_registry::{Entry, OwnerId};

use super::scope::Scopes;
use super::state::{Directory, Scope};

/// A name or a membership of an owner.
#[derive(Debug, Clone)]
pub struct HeldEntry {
    /// The name of its scope.
    pub scope: Arc<str>,
    /// The entry.
    pub entry: Entry,
    /// It is a membership.
    pub is_group: bool,
}

/// What an owner holds.
#[derive(Debug, Clone, Default)]
pub struct HeldEntries {
    /// Some of its names and memberships, by scope in the order of the configuration.
    pub entries: Vec<HeldEntry>,
    /// How many names and memberships it has beside those that were looked at.
    pub unlisted: usize,
}

impl<A> Directory<A> {
    /// What an owner of this node holds in the scopes of the configuration, `most` names and memberships at most. Looks
    /// at no more than these in each scope.
    pub fn held(&self, owner: OwnerId, most: usize) -> HeldEntries {
        let mut held = HeldEntries::default();
        let mut left = most;
        // The last scope is that of presence.
        let scopes = self.scopes.split_last().map_or(&[][..], |(_, scopes)| scopes);
        for Scope { name, replica, .. } in scopes {
            let mut found = 0;
            held.unlisted += replica.held(owner, left, |entry, is_group| {
                found += 1;
                held.entries.push(HeldEntry { scope: Arc::clone(name), entry: entry.clone(), is_group });
            });
            left -= found;
        }
        held
    }
}

impl Scopes {
    /// How many scopes of the configuration have a name or a membership on any node.
    pub fn in_use(&self) -> usize {
        let scopes = self.0.split_last().map_or(&[][..], |(_, scopes)| scopes);
        scopes.iter().filter(|(_, view)| view.names() + view.members() > 0).count()
    }
}
