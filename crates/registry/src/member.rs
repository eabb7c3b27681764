//! A member of a group.

use crate::entry::Entry;

/// One membership: its entry, and its neighbours in three lists ([`crate::slab::NONE`] = no neighbour).
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
    /// The neighbours among the members of the same kind in the group; see [`crate::member_counts::MemberCounts`].
    pub(crate) next_of_kind: u32,
    pub(crate) previous_of_kind: u32,
    /// Whether it is in [`crate::memberships::Memberships`].
    pub(crate) is_indexed: bool,
    /// The number of the last snapshot that contained the membership, modulo 256.
    pub(crate) mark: u8,
}
