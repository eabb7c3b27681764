//! Requests about single names and memberships.

use touchline_protocol::Error;
use touchline_registry::{OwnerId, Registered, Stamp};

use super::answer;
use super::request::Requester;
use super::scope::ScopeId;
use super::state::{Directory, refusal};

impl<A> Directory<A> {
    /// Registers a name for the requester.
    pub(super) fn register_name(
        &mut self,
        requester: &Requester,
        (scope, name): (ScopeId, &str),
        meta: &[u8],
        take_over: bool,
        now_ms: u64,
    ) -> Result<Vec<u8>, Error> {
        let registered = self.register(requester, (scope, name), meta, take_over, now_ms)?;
        let (Registered::New(entry) | Registered::Updated(entry)) = registered;
        Ok(answer::entry(&entry))
    }

    /// Ends an owner's registration of a name.
    pub(super) fn unregister(&mut self, owner: OwnerId, scope: ScopeId, name: &str) -> Result<(), Error> {
        self.scope(scope)?.replica.unregister(owner, name).map_err(refusal)
    }

    /// Replaces a name's metadata. `expected`: do it only if the name has this stamp and revision.
    pub(super) fn update_meta(
        &mut self,
        owner: OwnerId,
        (scope, name): (ScopeId, &str),
        meta: &[u8],
        expected: Option<(Stamp, u32)>,
    ) -> Result<Vec<u8>, Error> {
        let updated = self.scope(scope)?.replica.update_meta(owner, name, meta, expected);
        updated.map(|entry| answer::entry(&entry)).map_err(refusal)
    }

    /// Makes an owner a member of a group.
    pub(super) fn join(
        &mut self,
        owner: OwnerId,
        (scope, group): (ScopeId, &str),
        meta: &[u8],
        now_ms: u64,
    ) -> Result<(), Error> {
        self.scope(scope)?.replica.join(owner, group, meta, now_ms).map_err(refusal)?;
        Ok(())
    }

    /// Ends an owner's membership.
    pub(super) fn leave(&mut self, owner: OwnerId, scope: ScopeId, group: &str) -> Result<(), Error> {
        self.scope(scope)?.replica.leave(owner, group).map_err(refusal)
    }

    /// Looks up the owner of a name.
    pub(super) fn lookup(&mut self, scope: ScopeId, name: &str) -> Result<Vec<u8>, Error> {
        self.scope(scope)?.replica.lookup(name).map(|entry| answer::entry(&entry)).ok_or(Error::NOT_REGISTERED)
    }

    /// Reads the membership of a client in a group. Without a client, it is that of the requester.
    pub(super) fn member(
        &mut self,
        requester: &Requester,
        (scope, group): (ScopeId, &str),
        client: Option<OwnerId>,
    ) -> Result<Vec<u8>, Error> {
        let own = (!requester.is_backend).then_some(requester.owner);
        let client = client.or(own).ok_or(Error::BAD_REQUEST)?;
        let entry = self.scope(scope)?.replica.member(client, group).ok_or(Error::NOT_REGISTERED)?;
        Ok(answer::member(&entry))
    }
}
