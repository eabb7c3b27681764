//! The names and groups of a token: a client gets all of them, or none.

use std::collections::{BTreeMap, BTreeSet};

use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::request::Registration;
use super::scope::ScopeId;
use super::state::{Directory, refusal};

impl<A> Directory<A> {
    /// Registers names and joins groups for an owner. If one of them is refused, nothing changes.
    pub(super) fn register_all(
        &mut self,
        owner: OwnerId,
        registrations: &[Registration],
        now_ms: u64,
    ) -> Result<(), Error> {
        self.check_all(owner, registrations)?;
        for Registration { scope, key, meta, is_group } in registrations {
            let replica = &mut self.scope(*scope)?.replica;
            // All of them were checked, and no other request is executed in between.
            if *is_group {
                replica.join(owner, key, meta, now_ms).map_err(refusal)?;
            } else {
                replica.register(owner, key, meta, true, now_ms).map_err(refusal)?;
            }
        }
        Ok(())
    }

    fn check_all(&mut self, owner: OwnerId, registrations: &[Registration]) -> Result<(), Error> {
        let mut new: BTreeMap<ScopeId, BTreeSet<(bool, &str)>> = BTreeMap::new();
        for Registration { scope, key, meta, is_group } in registrations {
            let replica = &self.scope(*scope)?.replica;
            let checked = if *is_group {
                replica.may_join(owner, key, meta)
            } else {
                replica.may_register(owner, key, meta, true)
            };
            if checked.map_err(refusal)? {
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
