//! A walk over all names in steps. A name may move to another slot of the slab between two steps, when its owner
//! changes. If it moves to a slot that was already visited, it is visited once more.

/// The maximum number of moved names that the next steps visit again. With more, the walk starts again.
const MOVED_MAX: usize = 65_536;

/// The progress of a walk.
#[derive(Debug, Default)]
pub(super) struct NameWalk {
    /// The first slot that has not been visited.
    pub(super) next: u32,
    /// Visited slots in which another claim has become the winning one.
    pub(super) moved: Vec<u32>,
}

impl NameWalk {
    /// Records the slot of a winning claim.
    pub(super) fn note(&mut self, slot: u32) {
        if slot >= self.next {
            return;
        }
        if self.moved.len() == MOVED_MAX {
            // The walk starts again. If it was abandoned, it records nothing more.
            return *self = NameWalk::default();
        }
        self.moved.push(slot);
    }
}
