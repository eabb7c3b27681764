//! The names and groups of a token, which a client gets all together or not at all.

use std::collections::{BTreeMap, BTreeSet};

use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::ask::Registration;
use super::{Directory, ScopeId, answer, refusal};

impl<A> Directory<A> {
    /// Gives all of some names and groups to an owner. Nothing has changed, and nobody has lost a name, if one of them
    /// is refused.
    pub(super) fn take(&mut self, owner: OwnerId, claims: &[Registration], now_ms: u64) -> Result<Vec<u8>, Error> {
        self.may_take(owner, claims)?;
        for Registration { scope, key, meta, is_group } in claims {
            let replica = &mut self.scope(*scope)?.replica;
            // All of it has been checked, and nothing comes in between.
            if *is_group {
                replica.join(owner, key, meta, now_ms).map_err(refusal)?;
            } else {
                replica.register(owner, key, meta, true, now_ms).map_err(refusal)?;
            }
        }
        Ok(answer::empty())
    }

    fn may_take(&mut self, owner: OwnerId, claims: &[Registration]) -> Result<(), Error> {
        let mut new: BTreeMap<ScopeId, BTreeSet<(bool, &str)>> = BTreeMap::new();
        for Registration { scope, key, meta, is_group } in claims {
            let replica = &self.scope(*scope)?.replica;
            let may = if *is_group {
                replica.may_join(owner, key, meta)
            } else {
                replica.may_register(owner, key, meta, true)
            };
            if may.map_err(refusal)? {
                new.entry(*scope).or_default().insert((*is_group, key));
            }
        }
        for (scope, keys) in new {
            let scope = self.scope(scope)?;
            if scope.replica.entries_of(owner) + keys.len() > scope.options.client_entries_limit {
                return Err(Error::LIMIT_EXCEEDED);
            }
        }
        Ok(())
    }
}
