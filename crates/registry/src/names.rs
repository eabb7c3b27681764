//! Claims of names. Most names have one claim. During a conflict there is one claim for each authority, and the winning
//! claim comes first.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;

use crate::entry::Entry;
use crate::hash_seed::FoldState;
use crate::slab::Slab;
use crate::spare::spare_capacity;

#[derive(Debug)]
pub(crate) struct NameRegistration {
    pub(crate) entry: Entry,
    pub(crate) owner: u32,
    /// The neighbours in the owner's list.
    pub(crate) next_of_owner: u32,
    pub(crate) previous_of_owner: u32,
    /// Raised when the backend decided for this claim.
    pub(crate) rank: u8,
    /// The number of the last snapshot that contained the claim, modulo 256.
    pub(crate) mark: u8,
}

/// All claims of the scope, by name.
#[derive(Debug)]
pub(crate) struct Names {
    hasher: FoldState,
    /// The winning claim of each name.
    by_name: HashTable<u32>,
    /// The other claims of a contested name, by its winning claim.
    rivals: BTreeMap<u32, Vec<u32>>,
    pub(crate) claims: Slab<NameRegistration>,
}

impl Names {
    pub(crate) fn new(hasher: FoldState) -> Self {
        Names { hasher, by_name: HashTable::new(), rivals: BTreeMap::new(), claims: Slab::default() }
    }

    /// The winning claim of a name.
    pub(crate) fn head(&self, name: &str) -> Option<u32> {
        let is_it = |&index: &u32| self.claims[index].entry.key_bytes() == name.as_bytes();
        self.by_name.find(self.hasher.hash_one(name.as_bytes()), is_it).copied()
    }

    /// The claims of a name that do not win.
    pub(crate) fn rivals(&self, head: u32) -> &[u32] {
        if self.rivals.is_empty() { &[] } else { self.rivals.get(&head).map_or(&[], Vec::as_slice) }
    }

    /// The winning claims of all contested names, in the order of the slab.
    pub(crate) fn contested(&self) -> Vec<u32> {
        self.rivals.keys().copied().collect()
    }

    /// All claims of a name, the winning one first.
    pub(crate) fn chain(&self, head: Option<u32>) -> impl Iterator<Item = u32> {
        let rivals = head.map_or(&[][..], |head| self.rivals(head));
        head.into_iter().chain(rivals.iter().copied())
    }

    /// Adds a claim to the rivals of a head, or as the head of a new name.
    pub(crate) fn insert(&mut self, head: Option<u32>, claim: NameRegistration) -> u32 {
        let hash = self.hasher.hash_one(claim.entry.key_bytes());
        let index = self.claims.insert(claim);
        let Names { hasher, by_name, rivals, claims } = self;
        match head {
            Some(head) => rivals.entry(head).or_default().push(index),
            None => drop(by_name.insert_unique(hash, index, |&i| hasher.hash_one(claims[i].entry.key_bytes()))),
        }
        index
    }

    /// Removes a claim. If it was the head, one of its rivals becomes the head. Returns the head afterwards.
    pub(crate) fn remove(&mut self, head: u32, index: u32) -> Option<u32> {
        let mut left = Some(head);
        if head != index {
            self.take_rival(head, index);
        } else if let Some(next) = self.rivals(head).first().copied() {
            self.promote(head, next);
            self.take_rival(next, head);
            left = Some(next);
        } else {
            if let Ok(entry) = self.by_name.find_entry(self.hash_of(index), |&i| i == index) {
                entry.remove();
            }
            left = None;
        }
        self.claims.remove(index);
        let Names { hasher, by_name, claims, .. } = self;
        if let Some(capacity) = spare_capacity(by_name.len(), by_name.capacity()) {
            by_name.shrink_to(capacity, |&i| hasher.hash_one(claims[i].entry.key_bytes()));
        }
        left
    }

    /// Makes a rival the winning claim.
    pub(crate) fn promote(&mut self, head: u32, index: u32) {
        if head == index {
            return;
        }
        let Some(mut rivals) = self.rivals.remove(&head) else { return };
        rivals.iter_mut().filter(|rival| **rival == index).for_each(|rival| *rival = head);
        self.rivals.insert(index, rivals);
        let hash = self.hash_of(index);
        if let Some(entry) = self.by_name.find_mut(hash, |&i| i == head) {
            *entry = index;
        }
    }

    fn take_rival(&mut self, head: u32, index: u32) {
        let Some(rivals) = self.rivals.get_mut(&head) else { return };
        rivals.retain(|rival| *rival != index);
        if rivals.is_empty() {
            self.rivals.remove(&head);
        }
    }

    /// The number of entries for which there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.by_name.capacity() + self.claims.capacity()
    }

    fn hash_of(&self, index: u32) -> u64 {
        self.hasher.hash_one(self.claims[index].entry.key_bytes())
    }
}
