//! Owners hold names and memberships. An owner is a connection or anything else on a node. The index is by id and by
//! authority.

use std::hash::BuildHasher;
use std::num::NonZeroU32;

use hashbrown::HashTable;

use crate::hash_seed::FoldState;
use crate::slab::{NONE, Slab};
use crate::spare::spare_capacity;

/// An owner's id: 16 bytes that are unique in the cluster, such as a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub [u8; 16]);

#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: OwnerId,
    /// The authority plus one. A number that is never zero leaves a value for an empty slot.
    authority: NonZeroU32,
    /// The first entries in the lists of what the owner holds.
    pub(crate) first_claim: u32,
    pub(crate) first_member: u32,
    pub(crate) entries: u32,
    /// The neighbours in the list of the authority.
    pub(crate) next: u32,
    previous: u32,
}

impl Owner {
    pub(crate) fn authority(&self) -> u32 {
        self.authority.get() - 1
    }
}

/// All owners of all authorities.
#[derive(Debug)]
pub(crate) struct Owners {
    hasher: FoldState,
    by_id: HashTable<u32>,
    slab: Slab<Owner>,
}

impl Owners {
    pub(crate) fn new(hasher: FoldState) -> Self {
        Owners { hasher, by_id: HashTable::new(), slab: Slab::default() }
    }

    pub(crate) fn find(&self, authority: u32, id: OwnerId) -> Option<u32> {
        let is_it = |&index: &u32| self.slab[index].id == id && self.slab[index].authority() == authority;
        self.by_id.find(self.hasher.hash_one(id), is_it).copied()
    }

    pub(crate) fn get(&self, index: u32) -> &Owner {
        &self.slab[index]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Owner {
        &mut self.slab[index]
    }

    /// Finds an owner, or creates it at the head of its authority's list.
    pub(crate) fn find_or_insert(&mut self, authority: u32, id: OwnerId, first: &mut u32) -> u32 {
        if let Some(found) = self.find(authority, id) {
            return found;
        }
        let next = *first;
        let authority = NonZeroU32::MIN.saturating_add(authority);
        let index = self.slab.insert(Owner {
            id,
            authority,
            first_claim: NONE,
            first_member: NONE,
            entries: 0,
            next,
            previous: NONE,
        });
        if let Some(neighbour) = self.slab.get_mut(next) {
            neighbour.previous = index;
        }
        *first = index;
        let Owners { hasher, by_id, slab } = self;
        by_id.insert_unique(hasher.hash_one(id), index, |&i| hasher.hash_one(slab[i].id));
        index
    }

    /// Removes an owner that no longer holds anything.
    pub(crate) fn release(&mut self, index: u32, first: &mut u32) {
        if self.slab[index].entries > 0 {
            return;
        }
        let Some(owner) = self.slab.remove(index) else { return };
        if let Ok(entry) = self.by_id.find_entry(self.hasher.hash_one(owner.id), |&i| i == index) {
            entry.remove();
        }
        match self.slab.get_mut(owner.previous) {
            Some(neighbour) => neighbour.next = owner.next,
            None => *first = owner.next,
        }
        if let Some(neighbour) = self.slab.get_mut(owner.next) {
            neighbour.previous = owner.previous;
        }
        let Owners { hasher, by_id, slab } = self;
        if let Some(capacity) = spare_capacity(by_id.len(), by_id.capacity()) {
            by_id.shrink_to(capacity, |&i| hasher.hash_one(slab[i].id));
        }
    }

    /// The number of entries for which there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.by_id.capacity() + self.slab.capacity()
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }
}
