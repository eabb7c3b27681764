//! The replica's table: what each authority says, and what counts of it. It only keeps and compares; it knows neither
//! time nor messages.

mod read;

use std::cmp::Ordering;

use crate::clock::Stamp;
use crate::conflict::{Standing, compare};
use crate::digest;
use crate::entry::{Entry, NodeName};
use crate::event::{EntryChange, Reason, RegistryEvent};
use crate::groups::Groups;
use crate::names::{NameRegistration, Names};
use crate::owners::{OwnerId, Owners};
use crate::settings::{Classify, ConflictPolicyKind};
use crate::slab::{NONE, Slab};
use crate::view::{View, ViewWriter};

/// The authority that this node is itself.
pub(crate) const SELF: u32 = 0;

/// A node as the owner of entries.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) node: NodeName,
    first_owner: u32,
    /// Sum of the hashes of its entries.
    pub(crate) digest: u64,
    pub(crate) entries: u64,
    /// Claims up to this stamp are doubtful: others had purged the node. Zero = none.
    pub(crate) doubt: Stamp,
    /// The node is suspected to be dead: all its claims are doubtful, and nobody gives way to them.
    pub(crate) is_suspected: bool,
    /// All that the node says is here. Until then nobody gives way to its claims.
    pub(crate) is_settled: bool,
    /// See [`Table::set_stale`].
    is_stale: bool,
    mark: u8,
}

#[derive(Debug)]
pub(crate) struct Table {
    policy: ConflictPolicyKind,
    authorities: Slab<Authority>,
    owners: Owners,
    names: Names,
    groups: Groups,
    view: ViewWriter,
    pub(crate) events: Vec<RegistryEvent>,
    /// Names in which a claim of this node has lost since the last look.
    pub(crate) beaten: Vec<Entry>,
}

impl Table {
    pub(crate) fn new(policy: ConflictPolicyKind, classify: Option<Classify>, node: &str) -> Self {
        let mut table = Table {
            policy,
            authorities: Slab::default(),
            owners: Owners::default(),
            names: Names::default(),
            groups: Groups::new(classify),
            view: ViewWriter::default(),
            events: Vec::new(),
            beaten: Vec::new(),
        };
        let own = table.add_authority(node);
        table.authorities[own].is_settled = true;
        table
    }

    pub(crate) fn policy(&self) -> ConflictPolicyKind {
        self.policy
    }

    /// Follows another policy from now on.
    pub(crate) fn set_policy(&mut self, policy: ConflictPolicyKind) {
        if std::mem::replace(&mut self.policy, policy) != policy {
            self.reconsider();
        }
    }

    /// Claims of a node up to this stamp are doubtful from now on.
    pub(crate) fn set_doubt(&mut self, authority: u32, doubt: Stamp) {
        if std::mem::replace(&mut self.authorities[authority].doubt, doubt) != doubt {
            self.reconsider();
        }
    }

    /// Suspects a node, or no longer. [`Table::reconsider`] must follow.
    pub(crate) fn set_suspected(&mut self, authority: u32, is_suspected: bool) {
        self.authorities[authority].is_suspected = is_suspected;
    }

    /// All that a node says is here, or something is missing.
    pub(crate) fn set_settled(&mut self, authority: u32, is_settled: bool) {
        if std::mem::replace(&mut self.authorities[authority].is_settled, is_settled) != is_settled && is_settled {
            self.reconsider();
        }
    }

    /// Whether a claim may have been given to somebody else while its node was away.
    pub(crate) fn is_doubtful(&self, authority: u32, stamp: Stamp) -> bool {
        let authority = &self.authorities[authority];
        authority.is_suspected || stamp <= authority.doubt
    }

    /// Elects the claims of all contested names again.
    pub(crate) fn reconsider(&mut self) {
        for head in self.names.contested() {
            let before = self.entry_of_claim(head);
            self.settle(Some(head), Some(before), Reason::Conflict);
        }
    }

    /// What is here of a node may be of long ago, until the next snapshot. Its claims that count stay; those that
    /// don't, or that cease to, are dropped: they must not come to count by what happens to others.
    pub(crate) fn set_stale(&mut self, authority: u32) {
        (self.authorities[authority].is_stale, self.authorities[authority].is_settled) = (true, false);
        self.names.contested().into_iter().for_each(|head| self.drop_stale_rivals(head));
    }

    fn drop_stale_rivals(&mut self, head: u32) {
        for index in self.names.rivals(head).to_vec() {
            let authority = self.owners.get(self.names.claims[index].owner).authority();
            if self.authorities[authority].is_stale {
                self.unlink_claim(authority, Some(head), index);
            }
        }
    }

    /// Whether a claim of this node has a rival.
    pub(crate) fn is_own_contested(&self) -> bool {
        self.names.contested().into_iter().any(|head| self.claim_of(Some(head), SELF).is_some())
    }

    pub(crate) fn view(&self) -> &View {
        self.view.view()
    }

    pub(crate) fn add_authority(&mut self, node: &str) -> u32 {
        self.authorities.insert(Authority {
            node: NodeName::new(node),
            first_owner: NONE,
            digest: 0,
            entries: 0,
            doubt: Stamp(0),
            is_suspected: false,
            is_settled: false,
            is_stale: false,
            mark: 0,
        })
    }

    pub(crate) fn authority(&self, authority: u32) -> &Authority {
        &self.authorities[authority]
    }

    /// Purges a node and forgets it. Touches its own entries only.
    pub(crate) fn remove_authority(&mut self, authority: u32, reason: Reason) {
        self.purge(authority, reason);
        self.authorities.remove(authority);
    }

    /// Removes all that a node owns.
    pub(crate) fn purge(&mut self, authority: u32, reason: Reason) {
        while let Some(owner) = Some(self.authorities[authority].first_owner).filter(|first| *first != NONE) {
            self.drop_all_of(owner, reason);
        }
    }

    /// Sets an authority's claim of a name. Nothing happens if it says the same already.
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

    /// Removes an authority's claim of a name. False if there is none.
    pub(crate) fn drop_claim(&mut self, authority: u32, name: &str, reason: Reason) -> bool {
        let head = self.names.head(name);
        let Some(index) = self.claim_of(head, authority) else { return false };
        let before = head.map(|head| self.entry_of_claim(head));
        let head = self.unlink_claim(authority, head, index);
        self.settle(head, before, reason);
        true
    }

    /// Sets a membership. Nothing happens if it is the same already.
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
        let next = self.owners.get(owner).first_member;
        self.groups.members[index].next_of_owner = next;
        if let Some(neighbour) = self.groups.members.get_mut(next) {
            neighbour.previous_of_owner = index;
        }
        let holder = self.owners.get_mut(owner);
        holder.first_member = index;
        holder.entries += 1;
        self.account_member(authority, index, true);
        let entry = self.entry_of_member(index);
        self.events.push(RegistryEvent { change: EntryChange::Joined, entry, reason });
        self.publish_counts();
    }

    /// Ends a membership. False if there is none.
    pub(crate) fn drop_member(&mut self, authority: u32, group: &str, owner: OwnerId, reason: Reason) -> bool {
        let Some(index) = self.find_member(authority, group, owner) else { return false };
        self.remove_member(authority, index, reason);
        true
    }

    /// Removes all that an owner holds. False if it holds nothing.
    pub(crate) fn drop_owner(&mut self, authority: u32, owner: OwnerId, reason: Reason) -> bool {
        let Some(owner) = self.owners.find(authority, owner) else { return false };
        self.drop_all_of(owner, reason);
        true
    }

    /// Begins a snapshot: what is not put again until [`Table::end_sweep`] is gone then.
    pub(crate) fn begin_sweep(&mut self, authority: u32) {
        let authority = &mut self.authorities[authority];
        authority.mark = authority.mark.wrapping_add(1);
        authority.is_stale = false;
    }

    /// Ends a snapshot.
    pub(crate) fn end_sweep(&mut self, authority: u32, reason: Reason) {
        let mark = self.authorities[authority].mark;
        let mut next_owner = self.authorities[authority].first_owner;
        let (mut claims, mut members) = (Vec::new(), Vec::new());
        while next_owner != NONE {
            let owner = self.owners.get(next_owner);
            let (mut claim, mut member) = (owner.first_claim, owner.first_member);
            next_owner = owner.next;
            while claim != NONE {
                let at = &self.names.claims[claim];
                claims.extend((at.mark != mark).then(|| at.entry.clone()));
                claim = at.next_of_owner;
            }
            while member != NONE {
                let at = &self.groups.members[member];
                members.extend((at.mark != mark).then_some(member));
                member = at.next_of_owner;
            }
        }
        for name in claims {
            self.drop_claim(authority, name.key(), reason);
        }
        for member in members {
            self.remove_member(authority, member, reason);
        }
    }

    fn drop_all_of(&mut self, owner: u32, reason: Reason) {
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

    /// The claim of an authority in a name's chain.
    fn claim_of(&self, head: Option<u32>, authority: u32) -> Option<u32> {
        self.names.chain(head).find(|&index| self.owners.get(self.names.claims[index].owner).authority() == authority)
    }

    /// Takes a claim out of all lists and accounts. Gives the claim of its name that stands first then.
    fn unlink_claim(&mut self, authority: u32, head: Option<u32>, index: u32) -> Option<u32> {
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

    fn remove_member(&mut self, authority: u32, index: u32, reason: Reason) {
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

    fn release_owner(&mut self, authority: u32, owner: u32) {
        self.owners.get_mut(owner).entries -= 1;
        self.owners.release(owner, &mut self.authorities[authority].first_owner);
    }

    /// Elects the claim that counts of a name, and tells what changed against `before`. `head`: one of its claims, if
    /// there are any.
    fn settle(&mut self, head: Option<u32>, before: Option<Entry>, reason: Reason) {
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

    /// Puts the claim that counts first, and notes it if one of this node's does not.
    fn elect(&mut self, head: u32) -> u32 {
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

    fn standing(&self, index: u32) -> Standing<'_> {
        let claim = &self.names.claims[index];
        let (authority, stamp) = (self.owners.get(claim.owner).authority(), claim.entry.stamp());
        let is_doubtful = self.is_doubtful(authority, stamp);
        Standing { is_doubtful, rank: claim.rank, stamp, node: self.authorities[authority].node.as_arc() }
    }

    fn find_member(&self, authority: u32, group: &str, owner: OwnerId) -> Option<u32> {
        let group = self.groups.find(group)?;
        let mut next = self.owners.get(self.owners.find(authority, owner)?).first_member;
        while next != NONE {
            let member = &self.groups.members[next];
            if member.group == group {
                return Some(next);
            }
            next = member.next_of_owner;
        }
        None
    }

    fn account_claim(&mut self, authority: u32, index: u32, is_added: bool) {
        let claim = &self.names.claims[index];
        let hash = digest::claim(&claim.entry, claim.rank);
        self.account(authority, hash, is_added);
    }

    fn account_member(&mut self, authority: u32, index: u32, is_added: bool) {
        let hash = digest::member(&self.groups.members[index].entry);
        self.account(authority, hash, is_added);
    }

    fn account(&mut self, authority: u32, hash: u64, is_added: bool) {
        let authority = &mut self.authorities[authority];
        if is_added {
            authority.digest = authority.digest.wrapping_add(hash);
            authority.entries += 1;
        } else {
            authority.digest = authority.digest.wrapping_sub(hash);
            authority.entries -= 1;
        }
    }

    fn publish_counts(&self) {
        self.view.count(self.groups.members.len(), self.groups.len());
    }
}
