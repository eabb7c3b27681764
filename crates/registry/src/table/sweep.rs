//! Applies the snapshots of an authority: entries that a snapshot does not contain are dropped.

use super::state::Table;
use crate::event::Reason;
use crate::slab::NONE;

impl Table {
    /// Begins a snapshot. Entries that are not put again before [`Table::end_sweep`] are dropped there.
    pub(crate) fn begin_sweep(&mut self, authority: u32) {
        let authority = &mut self.authorities[authority];
        authority.mark = authority.mark.wrapping_add(1);
        authority.is_stale = false;
    }

    /// Ends a snapshot and drops the entries that it did not contain.
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
}
