//! Counts of each group: the members that are counted, and their kinds. A member's kind is a part of its metadata (in
//! presence, the user). The members of one kind in one group form a list, so counting does not walk the group.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use crate::hash_seed::FoldState;
use crate::member::Member;
use crate::settings::Classify;
use crate::slab::{NONE, Slab};
use crate::spare::spare_capacity;

/// The lists of kinds.
#[derive(Debug)]
pub(crate) struct MemberCounts {
    classify: Classify,
    hasher: FoldState,
    /// The first member of each kind in each group.
    heads: HashTable<u32>,
}

impl MemberCounts {
    pub(crate) fn new(classify: Classify, hasher: FoldState) -> Self {
        MemberCounts { classify, hasher, heads: HashTable::new() }
    }

    /// Adds a member to the counts. `None` = it is not counted. `Some(true)` = it is the first of its kind in its
    /// group.
    pub(crate) fn add(&mut self, index: u32, members: &mut Slab<Member>) -> Option<bool> {
        let MemberCounts { classify, hasher, heads } = self;
        let member = &members[index];
        let kind = classify(member.entry.meta())?;
        let hash = hasher.hash_one((member.group, kind));
        let is_same = |other: &u32| is_kind(&members[*other], member.group, kind, *classify);
        let next = match heads.find_mut(hash, is_same) {
            Some(head) => std::mem::replace(head, index),
            None => {
                heads.insert_unique(hash, index, |&other| hash_of(hasher, &members[other], *classify));
                NONE
            }
        };
        if let Some(neighbour) = members.get_mut(next) {
            neighbour.previous_of_kind = index;
        }
        let member = &mut members[index];
        (member.next_of_kind, member.previous_of_kind) = (next, NONE);
        Some(next == NONE)
    }

    /// Removes a member, which must still be in the slab, from the counts. `None` = it is not counted. `Some(true)` =
    /// it was the last of its kind in its group.
    pub(crate) fn remove(&mut self, index: u32, members: &mut Slab<Member>) -> Option<bool> {
        let MemberCounts { classify, hasher, heads } = self;
        let member = members.get(index)?;
        let kind = classify(member.entry.meta())?;
        let hash = hasher.hash_one((member.group, kind));
        let (next, previous) = (member.next_of_kind, member.previous_of_kind);
        if let Some(neighbour) = members.get_mut(next) {
            neighbour.previous_of_kind = previous;
        }
        if let Some(neighbour) = members.get_mut(previous) {
            neighbour.next_of_kind = next;
            return Some(false);
        }
        if let Ok(mut head) = heads.find_entry(hash, |&head| head == index) {
            if next == NONE {
                head.remove();
            } else {
                *head.get_mut() = next;
            }
        }
        if let Some(capacity) = spare_capacity(heads.len(), heads.capacity()) {
            heads.shrink_to(capacity, |&head| hash_of(hasher, &members[head], *classify));
        }
        Some(next == NONE)
    }

    /// The number of entries for which there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.heads.capacity()
    }
}

fn is_kind(member: &Member, group: u32, kind: &[u8], classify: Classify) -> bool {
    member.group == group && classify(member.entry.meta()) == Some(kind)
}

fn hash_of(hasher: &FoldState, member: &Member, classify: Classify) -> u64 {
    hasher.hash_one((member.group, classify(member.entry.meta()).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use crate::{HashSeed, OwnerId, Replica, ReplicaSettings};

    #[test]
    fn a_kind_is_found_again_however_many_there_are() {
        let settings = ReplicaSettings { classify: Some(|meta| Some(meta)), ..ReplicaSettings::default() };
        let mut replica = Replica::new("here", 1, settings, HashSeed::repeatable(7), 1_000);
        for number in 0..1_000_u32 {
            let (owner, kind) = (OwnerId(u128::from(number).to_le_bytes()), (number % 500).to_string());
            replica.join(owner, "group", kind.as_bytes(), 1_000).expect("within limits");
            assert_eq!(replica.member_counts("group"), (u64::from(number) + 1, u64::from(number.min(499)) + 1));
        }
    }
}
