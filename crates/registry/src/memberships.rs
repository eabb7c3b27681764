//! An index of memberships by owner and group, for owners that hold much. The few memberships of all other owners are
//! found in the owner's list, so they need no memory here.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use crate::hash_seed::FoldState;
use crate::member::Member;
use crate::slab::Slab;
use crate::spare::spare_capacity;

/// An owner that holds fewer entries than this has no index.
pub(crate) const INDEXED_FROM: u32 = 16;

/// The memberships of owners that hold much. Either all memberships of an owner are here, or none.
#[derive(Debug)]
pub(crate) struct Memberships {
    hasher: FoldState,
    places: HashTable<u32>,
}

impl Memberships {
    pub(crate) fn new(hasher: FoldState) -> Self {
        Memberships { hasher, places: HashTable::new() }
    }

    /// The membership of an owner in a group. `first` begins the owner's list.
    pub(crate) fn find(&self, (owner, first): (u32, u32), group: u32, members: &Slab<Member>) -> Option<u32> {
        let mut next = first;
        while let Some(member) = members.get(next) {
            if member.is_indexed {
                let is_it = |&i: &u32| members[i].owner == owner && members[i].group == group;
                return self.places.find(self.hasher.hash_one((owner, group)), is_it).copied();
            }
            if member.group == group {
                return Some(next);
            }
            next = member.next_of_owner;
        }
        None
    }

    /// Adds a new membership at the head of its owner's list to the index, if the owner holds much or is indexed
    /// already. `entries` is the number of entries that the owner holds.
    pub(crate) fn add(&mut self, index: u32, entries: u32, members: &mut Slab<Member>) {
        let next = members[index].next_of_owner;
        if entries < INDEXED_FROM && members.get(next).is_none_or(|next| !next.is_indexed) {
            return;
        }
        let Memberships { hasher, places } = self;
        let mut next = index;
        while let Some(member) = members.get_mut(next).filter(|member| !member.is_indexed) {
            member.is_indexed = true;
            let (hash, place) = (hasher.hash_one((member.owner, member.group)), next);
            next = member.next_of_owner;
            places.insert_unique(hash, place, |&i| hasher.hash_one((members[i].owner, members[i].group)));
        }
    }

    /// The number of entries for which there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.places.capacity()
    }

    /// Removes a membership that has already left the slab.
    pub(crate) fn remove(&mut self, index: u32, member: &Member, members: &Slab<Member>) {
        if !member.is_indexed {
            return;
        }
        let Memberships { hasher, places } = self;
        if let Ok(place) = places.find_entry(hasher.hash_one((member.owner, member.group)), |&i| i == index) {
            place.remove();
        }
        if let Some(capacity) = spare_capacity(places.len(), places.capacity()) {
            places.shrink_to(capacity, |&i| hasher.hash_one((members[i].owner, members[i].group)));
        }
    }
}
