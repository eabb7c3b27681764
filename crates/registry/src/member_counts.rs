//! Counts of each group: the members that are counted, and their kinds. A member's kind is a part of its metadata (in
//! presence, the user). The members of one kind in one group form a list, so counting does not walk the group.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use crate::hash_seed::FoldState;
use crate::member::Member;
use crate::settings::Classify;
use crate::slab::{NONE, Slab};

/// The neighbours in the list of a kind.
#[derive(Debug, Clone, Copy)]
struct Links {
    next: u32,
    previous: u32,
}

const ALONE: Links = Links { next: NONE, previous: NONE };

/// The lists of kinds. Members that are not counted need no memory here.
#[derive(Debug)]
pub(crate) struct MemberCounts {
    classify: Classify,
    hasher: FoldState,
    /// The first member of each kind in each group.
    heads: HashTable<u32>,
    /// The links of each member, by its index.
    links: Vec<Links>,
}

impl MemberCounts {
    pub(crate) fn new(classify: Classify, hasher: FoldState) -> Self {
        MemberCounts { classify, hasher, heads: HashTable::new(), links: Vec::new() }
    }

    /// Adds a member to the counts. `None` = it is not counted. `Some(true)` = it is the first of its kind in its
    /// group.
    pub(crate) fn add(&mut self, index: u32, members: &Slab<Member>) -> Option<bool> {
        let MemberCounts { classify, hasher, heads, links } = self;
        let member = &members[index];
        let kind = classify(member.entry.meta())?;
        if links.len() <= index as usize {
            links.resize(index as usize + 1, ALONE);
        }
        links[index as usize] = ALONE;
        let hash = hasher.hash_one((member.group, kind));
        if let Some(head) = heads.find_mut(hash, |&other| is_kind(&members[other], member.group, kind, *classify)) {
            links[index as usize].next = *head;
            links[*head as usize].previous = index;
            *head = index;
            return Some(false);
        }
        heads.insert_unique(hash, index, |&other| hash_of(hasher, &members[other], *classify));
        Some(true)
    }

    /// Removes a member, which must still be in the slab, from the counts. `None` = it is not counted. `Some(true)` =
    /// it was the last of its kind in its group.
    pub(crate) fn remove(&mut self, index: u32, members: &Slab<Member>) -> Option<bool> {
        let member = members.get(index)?;
        let kind = (self.classify)(member.entry.meta())?;
        let Links { next, previous } = self.links[index as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous != NONE {
            self.links[previous as usize].next = next;
            return Some(false);
        }
        if let Ok(mut head) = self.heads.find_entry(self.hasher.hash_one((member.group, kind)), |&head| head == index) {
            if next == NONE {
                head.remove();
            } else {
                *head.get_mut() = next;
            }
        }
        if self.heads.is_empty() {
            (self.heads, self.links) = (HashTable::new(), Vec::new());
        }
        Some(next == NONE)
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
