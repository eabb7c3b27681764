//! A walk over all names in steps. A name may move to another slot of the slab between two steps, when it goes to
//! another owner; one that moves to where the walk has been is met once more.

/// Names that have moved and that the next steps meet again; with more the walk begins anew.
const MOVED_MAX: usize = 65_536;

/// How far a walk has come.
#[derive(Debug, Default)]
pub(super) struct NameWalk {
    /// The first slot that it has not met.
    pub(super) next: u32,
    /// Slots before it in which another claim has come to count.
    pub(super) moved: Vec<u32>,
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
