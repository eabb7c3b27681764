//! Claims of names, and which of them wins.

use std::cmp::Ordering;

use super::state::{SELF, Table};
use crate::conflict::{Standing, compare};
use crate::entry::Entry;
use crate::event::{EntryChange, Reason, RegistryEvent};
use crate::names::NameRegistration;
use crate::slab::NONE;

impl Table {
    /// Sets an authority's claim of a name. An identical claim changes nothing.
    pub(crate) fn put_claim(&mut self, authority: u32, entry: Entry, rank: u8, reason: Reason) {
        let name = entry.clone();
        let name = name.key();
        let mut head = self.names.head(name);
        let before = head.map(|index| self.entry_of_claim(index));
        let mark = self.authorities[authority].mark;
        if let Some(index) = self.claim_of(head, authority) {
            let claim = &mut self.names.claims[index];
            if claim.entry.owner() == entry.owner() {
                claim.mark = mark;
                if (claim.rank, &claim.entry) != (rank, &entry) {
                    self.account_claim(authority, index, false);
                    let claim = &mut self.names.claims[index];
                    (claim.rank, claim.entry) = (rank, entry);
                    self.account_claim(authority, index, true);
                    self.settle(head, before, reason);
                }
                return;
            }
            head = self.unlink_claim(authority, head, index);
        }
        let owner = self.owners.find_or_insert(authority, entry.owner(), &mut self.authorities[authority].first_owner);
        let next_of_owner = self.owners.get(owner).first_claim;
        let claim = NameRegistration { entry, owner, next_of_owner, previous_of_owner: NONE, rank, mark };
        let index = self.names.insert(head, claim);
        if let Some(neighbour) = self.names.claims.get_mut(next_of_owner) {
            neighbour.previous_of_owner = index;
        }
        let holder = self.owners.get_mut(owner);
        holder.first_claim = index;
        holder.entries += 1;
        self.account_claim(authority, index, true);
        self.settle(Some(head.unwrap_or(index)), before, reason);
    }

    /// Removes an authority's claim of a name. Returns false if there is none.
    pub(crate) fn drop_claim(&mut self, authority: u32, name: &str, reason: Reason) -> bool {
        let head = self.names.head(name);
        let Some(index) = self.claim_of(head, authority) else { return false };
        let before = head.map(|head| self.entry_of_claim(head));
        let head = self.unlink_claim(authority, head, index);
        self.settle(head, before, reason);
        true
    }

    /// Removes a claim from all lists and counts. Returns the head of its name's claims afterwards.
    pub(super) fn unlink_claim(&mut self, authority: u32, head: Option<u32>, index: u32) -> Option<u32> {
        self.account_claim(authority, index, false);
        let claim = &self.names.claims[index];
        let (owner, next, previous) = (claim.owner, claim.next_of_owner, claim.previous_of_owner);
        if let Some(neighbour) = self.names.claims.get_mut(next) {
            neighbour.previous_of_owner = previous;
        }
        match self.names.claims.get_mut(previous) {
            Some(neighbour) => neighbour.next_of_owner = next,
            None => self.owners.get_mut(owner).first_claim = next,
        }
        let left = head.and_then(|head| self.names.remove(head, index));
        self.release_owner(authority, owner);
        left
    }

    /// Elects the winning claim of a name, and reports what changed compared with `before`. `head` is one of its
    /// claims. `None` = the name has no claims.
    pub(super) fn settle(&mut self, head: Option<u32>, before: Option<Entry>, reason: Reason) {
        let Some(mut head) = head else {
            if let Some(entry) = before {
                self.view.remove(entry.key());
                self.events.push(RegistryEvent { change: EntryChange::Unregistered, entry, reason });
                self.publish_counts();
            }
            return;
        };
        if !self.names.rivals(head).is_empty() {
            head = self.elect(head);
            self.drop_stale_rivals(head);
        }
        self.name_walk.note(head);
        let after = self.entry_of_claim(head);
        if before.as_ref() == Some(&after) {
            return;
        }
        self.view.put(after.clone());
        match before {
            Some(old) if (old.owner(), old.node()) != (after.owner(), after.node()) => {
                self.events.push(RegistryEvent { change: EntryChange::Unregistered, entry: old, reason });
                self.events.push(RegistryEvent { change: EntryChange::Registered, entry: after, reason });
            }
            Some(_) => self.events.push(RegistryEvent { change: EntryChange::Updated, entry: after, reason }),
            None => {
                self.events.push(RegistryEvent { change: EntryChange::Registered, entry: after, reason });
                self.publish_counts();
            }
        }
    }

    /// Moves the winning claim to the front, and records it if a claim of this node lost.
    pub(super) fn elect(&mut self, head: u32) -> u32 {
        let mut best = head;
        for index in self.names.chain(Some(head)) {
            if compare(self.policy, self.standing(index), self.standing(best)) == Ordering::Greater {
                best = index;
            }
        }
        let own = self.claim_of(Some(head), SELF).filter(|own| *own != best);
        self.beaten.extend(own.map(|own| self.names.claims[own].entry.clone()));
        self.names.promote(head, best);
        best
    }

    pub(super) fn standing(&self, index: u32) -> Standing<'_> {
        let claim = &self.names.claims[index];
        let (authority, stamp) = (self.owners.get(claim.owner).authority(), claim.entry.stamp());
        let is_doubtful = self.is_doubtful(authority, stamp);
        Standing { is_doubtful, rank: claim.rank, stamp, node: self.authorities[authority].node.as_arc() }
    }
}
