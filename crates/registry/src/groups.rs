//! The groups of a scope and their members.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::entry::Entry;
use crate::hash_seed::FoldState;
use crate::member::Member;
use crate::member_counts::MemberCounts;
use crate::memberships::Memberships;
use crate::settings::Classify;
use crate::slab::{NONE, Slab};
use crate::spare::spare_capacity;

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: Arc<str>,
    pub(crate) first: u32,
    pub(crate) members: u32,
    /// The number of counted members, and the number of their kinds.
    pub(crate) tally: (u32, u32),
}

/// All groups of the scope.
#[derive(Debug)]
pub(crate) struct Groups {
    hasher: FoldState,
    by_key: HashTable<u32>,
    groups: Slab<Group>,
    pub(crate) members: Slab<Member>,
    by_owner: Memberships,
    tally: Option<MemberCounts>,
    /// The next member of the walk. [`NONE`] = no walk is in progress.
    walk: u32,
}

impl Groups {
    pub(crate) fn new(classify: Option<Classify>, hasher: FoldState) -> Self {
        Groups {
            hasher,
            by_key: HashTable::new(),
            groups: Slab::default(),
            members: Slab::default(),
            by_owner: Memberships::new(hasher),
            tally: classify.map(|classify| MemberCounts::new(classify, hasher)),
            walk: NONE,
        }
    }

    pub(crate) fn find(&self, key: &str) -> Option<u32> {
        self.by_key.find(self.hasher.hash_one(key), |&index| &*self.groups[index].key == key).copied()
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Group> {
        self.groups.get(index)
    }

    pub(crate) fn find_or_insert(&mut self, key: &str) -> u32 {
        if let Some(found) = self.find(key) {
            return found;
        }
        let index = self.groups.insert(Group { key: key.into(), first: NONE, members: 0, tally: (0, 0) });
        let Groups { hasher, by_key, groups, .. } = self;
        by_key.insert_unique(hasher.hash_one(key), index, |&i| hasher.hash_one(&*groups[i].key));
        index
    }

    pub(crate) fn insert(&mut self, group: u32, owner: u32, entry: Entry, mark: u8) -> u32 {
        let next_of_group = self.groups[group].first;
        let (previous_of_group, next_of_owner, previous_of_owner) = (NONE, NONE, NONE);
        let index = self.members.insert(Member {
            entry,
            owner,
            group,
            next_of_group,
            previous_of_group,
            next_of_owner,
            previous_of_owner,
            next_of_kind: NONE,
            previous_of_kind: NONE,
            is_indexed: false,
            mark,
        });
        if let Some(neighbour) = self.members.get_mut(next_of_group) {
            neighbour.previous_of_group = index;
        }
        let group = &mut self.groups[group];
        group.first = index;
        group.members += 1;
        self.count_in(index);
        index
    }

    /// Replaces a member's entry.
    pub(crate) fn replace(&mut self, index: u32, entry: Entry) {
        self.count_out(index);
        self.members[index].entry = entry;
        self.count_in(index);
    }

    fn count_in(&mut self, index: u32) {
        let Some(is_new_kind) = self.tally.as_mut().and_then(|tally| tally.add(index, &mut self.members)) else {
            return;
        };
        let (members, kinds) = &mut self.groups[self.members[index].group].tally;
        *members += 1;
        *kinds += u32::from(is_new_kind);
    }

    fn count_out(&mut self, index: u32) {
        let Some(is_last_of_kind) = self.tally.as_mut().and_then(|tally| tally.remove(index, &mut self.members)) else {
            return;
        };
        let (members, kinds) = &mut self.groups[self.members[index].group].tally;
        *members -= 1;
        *kinds -= u32::from(is_last_of_kind);
    }

    /// Begins a walk through a group. A walk in progress is abandoned.
    pub(crate) fn begin_walk(&mut self, key: &str) {
        self.walk = self.find(key).map_or(NONE, |group| self.groups[group].first);
    }

    /// The next member of the walk. A member that stays for the whole walk is returned once. A member that joins
    /// meanwhile is not returned.
    pub(crate) fn step(&mut self) -> Option<&Member> {
        let member = self.members.get(self.walk)?;
        self.walk = member.next_of_group;
        Some(member)
    }

    /// Whether a walk is in progress.
    pub(crate) fn is_walking(&self) -> bool {
        self.walk != NONE
    }

    /// Removes a member. A group without members is removed.
    pub(crate) fn remove(&mut self, index: u32) {
        self.count_out(index);
        let Some(member) = self.members.remove(index) else { return };
        self.by_owner.remove(index, &member, &self.members);
        if self.walk == index {
            self.walk = member.next_of_group;
        }
        match self.members.get_mut(member.previous_of_group) {
            Some(neighbour) => neighbour.next_of_group = member.next_of_group,
            None => self.groups[member.group].first = member.next_of_group,
        }
        if let Some(neighbour) = self.members.get_mut(member.next_of_group) {
            neighbour.previous_of_group = member.previous_of_group;
        }
        let group = &mut self.groups[member.group];
        group.members -= 1;
        if group.members > 0 {
            return;
        }
        let Groups { hasher, by_key, groups, .. } = self;
        if let Ok(entry) = by_key.find_entry(hasher.hash_one(&*groups[member.group].key), |&i| i == member.group) {
            entry.remove();
        }
        groups.remove(member.group);
        if let Some(capacity) = spare_capacity(by_key.len(), by_key.capacity()) {
            by_key.shrink_to(capacity, |&i| hasher.hash_one(&*groups[i].key));
        }
    }

    /// The membership of an owner in a group. `first` begins the owner's list.
    pub(crate) fn find_of_owner(&self, owner: u32, first: u32, group: u32) -> Option<u32> {
        self.by_owner.find((owner, first), group, &self.members)
    }

    /// Puts a new membership at the head of its owner's list, which began with `next`. `entries`: how many entries the
    /// owner holds now.
    pub(crate) fn link_to_owner(&mut self, index: u32, next: u32, entries: u32) {
        self.members[index].next_of_owner = next;
        if let Some(neighbour) = self.members.get_mut(next) {
            neighbour.previous_of_owner = index;
        }
        self.by_owner.add(index, entries, &mut self.members);
    }

    /// The indices of a group's members.
    pub(crate) fn members_of(&self, group: u32) -> impl Iterator<Item = u32> {
        let first = self.groups.get(group).map(|g| g.first).filter(|first| *first != NONE);
        std::iter::successors(first, |&index| Some(self.members[index].next_of_group).filter(|next| *next != NONE))
    }

    /// The highest index of a group plus one.
    pub(crate) fn end(&self) -> u32 {
        self.groups.end()
    }

    /// The number of entries for which there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        let of_tally = self.tally.as_ref().map_or(0, MemberCounts::capacity);
        self.by_key.capacity() + self.groups.capacity() + self.members.capacity() + self.by_owner.capacity() + of_tally
    }

    /// The number of groups with members.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }
}
