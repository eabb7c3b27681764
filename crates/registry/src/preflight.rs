//! Checks whether commands would be refused without executing them, for callers that want all of several commands or
//! none. Also queries about members.

use std::collections::VecDeque;

use crate::entry::Entry;
use crate::owners::OwnerId;
use crate::replica::{RegisterRefusal, Replica};
use crate::settings::ConflictPolicyKind;
use crate::table::SELF;

/// The capacity for events that is kept for reuse.
const SPARE_EVENTS: usize = 4_096;

impl Replica {
    /// Checks whether [`Replica::register`] would give the name to the owner now. It does not check the limit of
    /// entries, which the caller must count ([`Replica::entries_of`]). Returns whether the owner would have one entry
    /// more.
    ///
    /// # Errors
    /// [`RegisterRefusal::Taken`], [`RegisterRefusal::TooLong`].
    pub fn may_register(
        &self,
        owner: OwnerId,
        name: &str,
        meta: &[u8],
        take_over: bool,
    ) -> Result<bool, RegisterRefusal> {
        self.check(name, meta)?;
        match self.table.counting(name) {
            Some((entry, SELF, _)) if entry.owner() == owner => Ok(false),
            Some((_, authority, _)) if authority != SELF && self.own(owner, name).is_ok() => Ok(false),
            Some((entry, authority, _)) => {
                let is_free =
                    self.table.policy() == ConflictPolicyKind::Newest || self.table.authority(authority).is_suspected;
                if take_over && is_free { Ok(true) } else { Err(RegisterRefusal::Taken(entry)) }
            }
            None => Ok(true),
        }
    }

    /// Like [`Replica::may_register`], for [`Replica::join`].
    ///
    /// # Errors
    /// [`RegisterRefusal::TooLong`].
    pub fn may_join(&self, owner: OwnerId, group: &str, meta: &[u8]) -> Result<bool, RegisterRefusal> {
        self.check(group, meta)?;
        Ok(!self.is_member(owner, group))
    }

    /// The membership of an owner on any node. `None` = it is not a member of the group.
    pub fn member(&self, owner: OwnerId, group: &str) -> Option<Entry> {
        self.table.member(owner, group)
    }

    /// One page of a group's members from `cursor` on (0 = the first), and the cursor of the next page (`None` = the
    /// end). A page may be short. An owner that is a member during the whole listing is listed exactly once. If the
    /// group fits into the first page, the listing costs the size of the group, otherwise the size of the scope.
    pub fn member_page(&self, group: &str, cursor: u32, limit: usize) -> (Vec<Entry>, Option<u32>) {
        self.table.member_page(group, cursor, limit)
    }

    /// Frees memory that was needed only for a mass change. Call it from time to time.
    pub fn release_spare(&mut self) {
        if self.table.events.is_empty() && self.table.events.capacity() > SPARE_EVENTS {
            self.table.events = Vec::new();
        }
        if self.outputs.is_empty() && self.outputs.capacity() > SPARE_EVENTS {
            self.outputs = VecDeque::new();
        }
    }

    /// The number of names and memberships of an owner on this node.
    pub fn entries_of(&self, owner: OwnerId) -> usize {
        self.table.entries_of(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_seed::HashSeed;
    use crate::settings::ReplicaSettings;

    #[test]
    fn the_room_of_a_mass_change_is_given_back_once_all_is_told() {
        // No message is ever full, so everything waits where it arises.
        let mut replica = Replica::new(
            "here",
            1,
            ReplicaSettings { message_max: usize::MAX, ..ReplicaSettings::default() },
            HashSeed::repeatable(7),
            1_000,
        );
        let room = |replica: &Replica| (replica.table.events.capacity(), replica.outputs.capacity());
        for number in 0..1_000_u32 {
            for group in 0..10 {
                replica
                    .join(OwnerId(u128::from(number).to_le_bytes()), &group.to_string(), b"", 1_000)
                    .expect("within limits");
            }
        }
        replica.release_spare();
        assert!(room(&replica).0 >= 10_000, "what waits is kept");
        replica.collect();
        replica.release_spare();
        assert!(room(&replica).0 == 0 && room(&replica).1 >= 10_000);
        assert!(replica.outputs().count() >= 10_000);
        replica.release_spare();
        assert_eq!(room(&replica).1, 0);
        // A small capacity stays for the next events.
        replica.join(OwnerId([9; 16]), "group", b"", 1_000).expect("within limits");
        replica.outputs().count();
        replica.release_spare();
        let (events, outputs) = room(&replica);
        assert!(events > 0 && outputs > 0);
    }
}
