//! Whether commands would be refused, without carrying them out: for who wants all of several, or none. And questions about members.

use std::collections::VecDeque;

use crate::entry::Entry;
use crate::owners::OwnerId;
use crate::replica::{Refusal, Replica};
use crate::settings::Policy;
use crate::table::SELF;

/// Room for events that is kept for the next ones.
const SPARE_EVENTS: usize = 4_096;

impl Replica {
    /// Whether [`Replica::register`] would give the name to the owner now; the limit of entries is left out, which the caller has to count
    /// ([`Replica::entries_of`]). Gives whether the owner would have one entry more.
    ///
    /// # Errors
    /// [`Refusal::Taken`], [`Refusal::TooLong`].
    pub fn may_register(&self, owner: OwnerId, name: &str, meta: &[u8], take_over: bool) -> Result<bool, Refusal> {
        self.check(name, meta)?;
        match self.table.counting(name) {
            Some((entry, SELF, _)) if entry.owner() == owner => Ok(false),
            Some((_, authority, _)) if authority != SELF && self.own(owner, name).is_ok() => Ok(false),
            Some((entry, authority, _)) => {
                let is_free = self.table.policy() == Policy::Newest || self.table.authority(authority).is_suspected;
                if take_over && is_free { Ok(true) } else { Err(Refusal::Taken(entry)) }
            }
            None => Ok(true),
        }
    }

    /// The same for [`Replica::join`].
    ///
    /// # Errors
    /// [`Refusal::TooLong`].
    pub fn may_join(&self, owner: OwnerId, group: &str, meta: &[u8]) -> Result<bool, Refusal> {
        self.check(group, meta)?;
        Ok(!self.is_member(owner, group))
    }

    /// A membership of an owner of any node.
    pub fn member(&self, owner: OwnerId, group: &str) -> Option<Entry> {
        self.table.member(owner, group)
    }

    /// Members of a group: a page from `cursor` on (0 = the first), and where the next one starts. A page may be short. Who is a member
    /// during the whole listing is listed exactly once. The listing of a group that fits into its first page costs the size of the group,
    /// any other the size of the scope.
    pub fn member_page(&self, group: &str, cursor: u32, limit: usize) -> (Vec<Entry>, Option<u32>) {
        self.table.member_page(group, cursor, limit)
    }

    /// Gives memory back that only a mass change needed. Call it now and then.
    pub fn release_spare(&mut self) {
        if self.table.events.is_empty() && self.table.events.capacity() > SPARE_EVENTS {
            self.table.events = Vec::new();
        }
        if self.outputs.is_empty() && self.outputs.capacity() > SPARE_EVENTS {
            self.outputs = VecDeque::new();
        }
    }

    /// Names and memberships of an owner on this node.
    pub fn entries_of(&self, owner: OwnerId) -> usize {
        self.table.entries_of(owner)
    }
}
