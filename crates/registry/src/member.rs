//! A member of a group.

use crate::entry::Entry;

/// One membership: its entry, and its neighbours in two lists ([`crate::slab::NONE`] = there is none).
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) entry: Entry,
    pub(crate) owner: u32,
    pub(crate) group: u32,
    /// Neighbours in the group's list.
    pub(crate) next_of_group: u32,
    pub(crate) previous_of_group: u32,
    /// Neighbours in the owner's list.
    pub(crate) next_of_owner: u32,
    pub(crate) previous_of_owner: u32,
    /// Which snapshot it was last seen in.
    pub(crate) mark: u8,
}
