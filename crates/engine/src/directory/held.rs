//! What an owner of this node holds: its names and memberships in all scopes.

use std::sync::Arc;

use touchline_registry::{Entry, OwnerId};

use super::scope::Scopes;
use super::state::{Directory, Scope};

/// A name or a membership that an owner holds.
#[derive(Debug, Clone)]
pub struct HeldEntry {
    /// The name of the entry's scope.
    pub scope: Arc<str>,
    /// The name or membership itself.
    pub entry: Entry,
    /// Whether the entry is a membership in a group.
    pub is_group: bool,
}

/// The names and memberships that an owner holds.
#[derive(Debug, Clone, Default)]
pub struct HeldEntries {
    /// Some of its names and memberships, by scope in the order of the configuration.
    pub entries: Vec<HeldEntry>,
    /// The number of its names and memberships that are not in `entries`.
    pub unlisted: usize,
}

impl<A> Directory<A> {
    /// What an owner of this node holds in the configured scopes: at most `most` names and memberships. The function
    /// looks at no more than that in each scope.
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
    /// How many configured scopes have a name or a membership on any node.
    pub fn in_use(&self) -> usize {
        let scopes = self.0.split_last().map_or(&[][..], |(_, scopes)| scopes);
        scopes.iter().filter(|(_, view)| view.names() + view.members() > 0).count()
    }
}
