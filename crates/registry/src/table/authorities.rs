//! What the table believes about each authority: whether its claims are doubtful, complete or stale.

use super::state::{SELF, Table};
use crate::clock::Stamp;
use crate::event::Reason;
use crate::settings::ConflictPolicyKind;
use crate::slab::NONE;

impl Table {
    /// Changes the conflict policy.
    pub(crate) fn set_policy(&mut self, policy: ConflictPolicyKind) {
        if std::mem::replace(&mut self.policy, policy) != policy {
            self.reconsider();
        }
    }

    /// Marks a node's claims up to this stamp as doubtful.
    pub(crate) fn set_doubt(&mut self, authority: u32, doubt: Stamp) {
        if std::mem::replace(&mut self.authorities[authority].doubt, doubt) != doubt {
            self.reconsider();
        }
    }

    /// Marks a node as suspected, or removes the mark. The caller must call [`Table::reconsider`] afterwards.
    pub(crate) fn set_suspected(&mut self, authority: u32, is_suspected: bool) {
        self.authorities[authority].is_suspected = is_suspected;
    }

    /// Records whether all entries of a node are here, or something is missing.
    pub(crate) fn set_settled(&mut self, authority: u32, is_settled: bool) {
        if std::mem::replace(&mut self.authorities[authority].is_settled, is_settled) != is_settled && is_settled {
            self.reconsider();
        }
    }

    /// Elects the claims of all contested names again.
    pub(crate) fn reconsider(&mut self) {
        for head in self.names.contested() {
            let before = self.entry_of_claim(head);
            self.settle(Some(head), Some(before), Reason::Conflict);
        }
    }

    /// Marks a node's entries as stale until the next snapshot. Its winning claims stay. Its other claims are dropped,
    /// and so is a claim that stops winning: a stale claim must not win because of changes elsewhere.
    pub(crate) fn set_stale(&mut self, authority: u32) {
        (self.authorities[authority].is_stale, self.authorities[authority].is_settled) = (true, false);
        self.names.contested().into_iter().for_each(|head| self.drop_stale_rivals(head));
    }

    pub(super) fn drop_stale_rivals(&mut self, head: u32) {
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

    /// Purges a node and removes it from the table. It touches only the node's own entries.
    pub(crate) fn remove_authority(&mut self, authority: u32, reason: Reason) {
        self.purge(authority, reason);
        self.authorities.remove(authority);
    }

    /// Removes all entries of a node.
    pub(crate) fn purge(&mut self, authority: u32, reason: Reason) {
        while let Some(owner) = Some(self.authorities[authority].first_owner).filter(|first| *first != NONE) {
            self.drop_all_of(owner, reason);
        }
    }
}
