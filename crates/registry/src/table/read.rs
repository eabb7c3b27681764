//! Queries to the table.

use std::sync::Arc;

use super::name_walk::NameWalk;
use super::state::{SELF, Table};
use crate::entry::{Entry, NodeName};
use crate::owners::OwnerId;
use crate::slab::NONE;

/// The number of slots that one page of a listing examines. A page then takes some ten microseconds.
const PAGE_SLOTS: u32 = 1_024;

impl Table {
    pub(super) fn entry_of_claim(&self, index: u32) -> Entry {
        self.names.claims[index].entry.clone()
    }

    pub(super) fn entry_of_member(&self, index: u32) -> Entry {
        self.groups.members[index].entry.clone()
    }

    /// The node of an authority.
    pub(crate) fn node(&self, authority: u32) -> &NodeName {
        &self.authorities[authority].node
    }

    /// The winning entry of a name.
    pub(crate) fn lookup(&self, name: &str) -> Option<Entry> {
        self.names.head(name).map(|head| self.entry_of_claim(head))
    }

    /// This node's claim of a name, winning or not, and its rank.
    pub(crate) fn own_claim(&self, name: &str) -> Option<(Entry, u8)> {
        let index = self.claim_of(self.names.head(name), SELF)?;
        Some((self.entry_of_claim(index), self.names.claims[index].rank))
    }

    /// The winning claim of a name, its authority and its rank.
    pub(crate) fn counting(&self, name: &str) -> Option<(Entry, u32, u8)> {
        let head = self.names.head(name)?;
        let claim = &self.names.claims[head];
        Some((self.entry_of_claim(head), self.owners.get(claim.owner).authority(), claim.rank))
    }

    /// The membership of one of this node's owners. `None` = it is not a member.
    pub(crate) fn own_member(&self, group: &str, owner: OwnerId) -> Option<Entry> {
        self.find_member(SELF, group, owner).map(|index| self.entry_of_member(index))
    }

    /// The number of entries of one of this node's owners.
    pub(crate) fn entries_of(&self, owner: OwnerId) -> usize {
        self.owners.find(SELF, owner).map_or(0, |index| self.owners.get(index).entries as usize)
    }

    /// See [`crate::Replica::held`].
    pub(crate) fn held(&self, owner: OwnerId, most: usize, mut visit: impl FnMut(&Entry, bool)) -> usize {
        let Some(owner) = self.owners.find(SELF, owner).map(|index| self.owners.get(index)) else { return 0 };
        let (mut next_claim, mut next_member) = (owner.first_claim, owner.first_member);
        let looked_at = most.min(owner.entries as usize);
        for _ in 0..looked_at {
            if let Some(claim) = self.names.claims.get(next_claim) {
                if self.names.head(claim.entry.key()) == Some(next_claim) {
                    visit(&claim.entry, false);
                }
                next_claim = claim.next_of_owner;
            } else if let Some(member) = self.groups.members.get(next_member) {
                visit(&member.entry, true);
                next_member = member.next_of_owner;
            }
        }
        owner.entries as usize - looked_at
    }

    /// The members of a group, in no particular order.
    pub(crate) fn members(&self, group: &str) -> impl Iterator<Item = Entry> {
        let group = self.groups.find(group);
        group.into_iter().flat_map(|group| self.groups.members_of(group)).map(|index| self.entry_of_member(index))
    }

    /// The number of members of a group.
    pub(crate) fn member_count(&self, group: &str) -> usize {
        self.groups.find(group).and_then(|group| self.groups.get(group)).map_or(0, |group| group.members as usize)
    }

    /// The number of counted members of a group, and of their kinds.
    pub(crate) fn tally(&self, group: &str) -> (u64, u64) {
        let tally =
            self.groups.find(group).and_then(|group| self.groups.get(group)).map_or((0, 0), |group| group.tally);
        (tally.0.into(), tally.1.into())
    }

    /// See [`crate::Replica::begin_walk`].
    pub(crate) fn begin_walk(&mut self, group: &str) {
        self.groups.begin_walk(group);
    }

    /// See [`crate::Replica::walk`].
    pub(crate) fn walk(&mut self, most: usize, mut visit: impl FnMut(&Entry)) -> bool {
        for _ in 0..most {
            let Some(member) = self.groups.step() else { return false };
            visit(&member.entry);
        }
        self.groups.is_walking()
    }

    /// One page of the names that start with `prefix`, from `cursor` on, and the cursor of the next page. A page
    /// examines a bounded number of slots, so it may be short or empty. A name that stays registered during the whole
    /// listing is listed exactly once.
    pub(crate) fn names(&self, prefix: &str, cursor: u32, limit: usize) -> (Vec<Entry>, Option<u32>) {
        let end = self.names.claims.end();
        let mut found = Vec::new();
        for index in cursor..end.min(cursor.saturating_add(PAGE_SLOTS)) {
            if found.len() == limit {
                return (found, Some(index));
            }
            let Some(claim) = self.names.claims.get(index) else { continue };
            let key = claim.entry.key();
            if key.starts_with(prefix) && self.names.head(key) == Some(index) {
                found.push(self.entry_of_claim(index));
            }
        }
        let next = cursor.saturating_add(PAGE_SLOTS);
        (found, (next < end).then_some(next))
    }

    /// See [`crate::Replica::begin_name_walk`].
    pub(crate) fn begin_name_walk(&mut self) {
        self.name_walk = NameWalk::default();
    }

    /// See [`crate::Replica::walk_names`].
    pub(crate) fn walk_names(&mut self, most: usize, mut visit: impl FnMut(&Entry)) -> bool {
        let NameWalk { next, moved } = &mut self.name_walk;
        let again = moved.split_off(moved.len().saturating_sub(most));
        let end = self.names.claims.end();
        let first = *next;
        let left = u32::try_from(most - again.len()).unwrap_or(u32::MAX);
        *next = first.saturating_add(left).min(end).max(first);
        for slot in again.into_iter().chain(first..*next) {
            let Some(claim) = self.names.claims.get(slot) else { continue };
            if self.names.head(claim.entry.key()) == Some(slot) {
                visit(&claim.entry);
            }
        }
        let has_more = *next < end || !moved.is_empty();
        if !has_more {
            self.name_walk = NameWalk::default();
        }
        has_more
    }

    /// The groups that start with `prefix` and their sizes, in pages as in [`Table::names`].
    pub(crate) fn groups(&self, prefix: &str, cursor: u32, limit: usize) -> (Vec<(Arc<str>, u32)>, Option<u32>) {
        let end = self.groups.end();
        let mut found = Vec::new();
        for index in cursor..end.min(cursor.saturating_add(PAGE_SLOTS)) {
            if found.len() == limit {
                return (found, Some(index));
            }
            let Some(group) = self.groups.get(index) else { continue };
            if group.key.starts_with(prefix) {
                found.push((Arc::clone(&group.key), group.members));
            }
        }
        let next = cursor.saturating_add(PAGE_SLOTS);
        (found, (next < end).then_some(next))
    }

    /// The membership of an owner of any authority.
    pub(crate) fn member(&self, owner: OwnerId, group: &str) -> Option<Entry> {
        let mut authorities =
            (0..self.authorities.end()).filter(|authority| self.authorities.get(*authority).is_some());
        authorities
            .find_map(|authority| self.find_member(authority, group, owner))
            .map(|index| self.entry_of_member(index))
    }

    /// The members of a group, in pages as in [`Table::names`]. A group that fits into its first page is found without
    /// examining the members of other groups.
    pub(crate) fn member_page(&self, group: &str, cursor: u32, limit: usize) -> (Vec<Entry>, Option<u32>) {
        let Some(group) = self.groups.find(group) else { return (Vec::new(), None) };
        if cursor == 0 && self.groups.get(group).is_some_and(|group| group.members as usize <= limit) {
            return (self.groups.members_of(group).map(|index| self.entry_of_member(index)).collect(), None);
        }
        let end = self.groups.members.end();
        let mut found = Vec::new();
        for index in cursor..end.min(cursor.saturating_add(PAGE_SLOTS)) {
            if found.len() == limit {
                return (found, Some(index));
            }
            found.extend(
                self.groups
                    .members
                    .get(index)
                    .filter(|member| member.group == group)
                    .map(|member| member.entry.clone()),
            );
        }
        let next = cursor.saturating_add(PAGE_SLOTS);
        (found, (next < end).then_some(next))
    }

    /// The number of an authority's entries in the table.
    pub(crate) fn entries_by(&self, authority: u32) -> u64 {
        self.authorities[authority].entries
    }

    /// The number of owners of all authorities.
    pub(crate) fn owner_count(&self) -> usize {
        self.owners.len()
    }

    /// Visits this node's own claims, each with its rank, and its memberships. They are the content of a snapshot.
    pub(crate) fn own_entries(&self, mut claim: impl FnMut(&Entry, u8), mut member: impl FnMut(&Entry)) {
        let mut next_owner = self.authorities[SELF].first_owner;
        while next_owner != NONE {
            let owner = self.owners.get(next_owner);
            let (mut next_claim, mut next_member) = (owner.first_claim, owner.first_member);
            next_owner = owner.next;
            while next_claim != NONE {
                let at = &self.names.claims[next_claim];
                claim(&at.entry, at.rank);
                next_claim = at.next_of_owner;
            }
            while next_member != NONE {
                let at = &self.groups.members[next_member];
                member(&at.entry);
                next_member = at.next_of_owner;
            }
        }
    }
}
