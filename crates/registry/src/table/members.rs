//! Memberships, and the entries of an owner.

use super::state::Table;
use crate::entry::Entry;
use crate::event::{EntryChange, Reason, RegistryEvent};
use crate::owners::OwnerId;
use crate::slab::NONE;

impl Table {
    /// Sets a membership. An identical membership changes nothing.
    pub(crate) fn put_member(&mut self, authority: u32, entry: Entry, reason: Reason) {
        let mark = self.authorities[authority].mark;
        if let Some(index) = self.find_member(authority, entry.key(), entry.owner()) {
            let member = &mut self.groups.members[index];
            member.mark = mark;
            if member.entry == entry {
                return;
            }
            self.account_member(authority, index, false);
            self.groups.replace(index, entry);
            self.account_member(authority, index, true);
            let entry = self.entry_of_member(index);
            return self.events.push(RegistryEvent { change: EntryChange::MemberUpdated, entry, reason });
        }
        let group = self.groups.find_or_insert(entry.key());
        let owner = self.owners.find_or_insert(authority, entry.owner(), &mut self.authorities[authority].first_owner);
        let index = self.groups.insert(group, owner, entry, mark);
        let holder = self.owners.get_mut(owner);
        let next = std::mem::replace(&mut holder.first_member, index);
        holder.entries += 1;
        self.groups.link_to_owner(index, next, holder.entries);
        self.account_member(authority, index, true);
        let entry = self.entry_of_member(index);
        self.events.push(RegistryEvent { change: EntryChange::Joined, entry, reason });
        self.publish_counts();
    }

    /// Ends a membership. Returns false if there is none.
    pub(crate) fn drop_member(&mut self, authority: u32, group: &str, owner: OwnerId, reason: Reason) -> bool {
        let Some(index) = self.find_member(authority, group, owner) else { return false };
        self.remove_member(authority, index, reason);
        true
    }

    pub(super) fn find_member(&self, authority: u32, group: &str, owner: OwnerId) -> Option<u32> {
        let group = self.groups.find(group)?;
        let owner = self.owners.find(authority, owner)?;
        self.groups.find_of_owner(owner, self.owners.get(owner).first_member, group)
    }

    pub(super) fn remove_member(&mut self, authority: u32, index: u32, reason: Reason) {
        let entry = self.entry_of_member(index);
        self.account_member(authority, index, false);
        let member = &self.groups.members[index];
        let (owner, next, previous) = (member.owner, member.next_of_owner, member.previous_of_owner);
        if let Some(neighbour) = self.groups.members.get_mut(next) {
            neighbour.previous_of_owner = previous;
        }
        match self.groups.members.get_mut(previous) {
            Some(neighbour) => neighbour.next_of_owner = next,
            None => self.owners.get_mut(owner).first_member = next,
        }
        self.groups.remove(index);
        self.release_owner(authority, owner);
        self.events.push(RegistryEvent { change: EntryChange::Left, entry, reason });
        self.publish_counts();
    }

    /// Removes everything that an owner holds. Returns false if it holds nothing.
    pub(crate) fn drop_owner(&mut self, authority: u32, owner: OwnerId, reason: Reason) -> bool {
        let Some(owner) = self.owners.find(authority, owner) else { return false };
        self.drop_all_of(owner, reason);
        true
    }

    pub(super) fn drop_all_of(&mut self, owner: u32, reason: Reason) {
        let (authority, left) = (self.owners.get(owner).authority(), self.owners.get(owner).entries);
        for _ in 0..left {
            let holder = self.owners.get(owner);
            if holder.first_claim != NONE {
                let entry = self.names.claims[holder.first_claim].entry.clone();
                self.drop_claim(authority, entry.key(), reason);
            } else {
                self.remove_member(authority, holder.first_member, reason);
            }
        }
    }
}
