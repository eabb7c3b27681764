//! A member of a group.

use crate::entry::Entry;

/// One membership: its entry, and its neighbours in two lists ([`crate::slab::NONE`] = no neighbour).
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) entry: Entry,
    pub(crate) owner: u32,
    pub(crate) group: u32,
    /// The neighbours in the group's list.
    pub(crate) next_of_group: u32,
    pub(crate) previous_of_group: u32,
    /// The neighbours in the owner's list.
    pub(crate) next_of_owner: u32,
    pub(crate) previous_of_owner: u32,
    /// The number of the last snapshot that contained the membership, modulo 256.
    pub(crate) mark: u8,
}
