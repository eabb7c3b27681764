//! A walk over all names in steps. A name may move to another slot of the slab between two steps, when it goes to
//! another owner; one that moves to where the walk has been is met once more.

use super::state::Table;
use crate::entry::Entry;

/// Names that have moved and that the next steps meet again; with more the walk begins anew.
const MOVED_MAX: usize = 65_536;

/// How far a walk has come.
#[derive(Debug, Default)]
pub(super) struct NameWalk {
    /// The first slot that it has not met.
    next: u32,
    /// Slots before it in which another claim has come to count.
    moved: Vec<u32>,
}

impl NameWalk {
    /// Notes the slot of a claim that counts.
    pub(super) fn note(&mut self, slot: u32) {
        if slot >= self.next {
            return;
        }
        if self.moved.len() == MOVED_MAX {
            // It may also be one that nobody goes on with: it notes nothing more then.
            return *self = NameWalk::default();
        }
        self.moved.push(slot);
    }
}

impl Table {
    /// See [`crate::Replica::begin_name_walk`].
    pub(crate) fn begin_name_walk(&mut self) {
        self.name_walk = NameWalk::default();
    }

    /// See [`crate::Replica::walk_names`].
    pub(crate) fn walk_names(&mut self, most: usize, mut visit: impl FnMut(&Entry)) -> bool {
        let NameWalk { next, moved } = &mut self.name_walk;
        let again = moved.split_off(moved.len().saturating_sub(most));
        let end = self.names.claims.end();
        let first = *next;
        let left = u32::try_from(most - again.len()).unwrap_or(u32::MAX);
        *next = first.saturating_add(left).min(end).max(first);
        for slot in again.into_iter().chain(first..*next) {
            let Some(claim) = self.names.claims.get(slot) else { continue };
            if self.names.head(claim.entry.key()) == Some(slot) {
                visit(&claim.entry);
            }
        }
        let has_more = *next < end || !moved.is_empty();
        if !has_more {
            self.name_walk = NameWalk::default();
        }
        has_more
    }
}
