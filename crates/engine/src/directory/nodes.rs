//! The other nodes of the registry: which ones are up, which may be dead, and whether this node has their entries.

use std::sync::Arc;

use touchline_protocol::Error;
use touchline_registry::{Entry, OwnerId, RegisterRefusal, Registered};

use super::effect::DirectoryEffect;
use super::request::{Requester, Target};
use super::scope::{ScopeId, USER_VARIABLE, fits};
use super::state::{Directory, refusal};

impl<A> Directory<A> {
    /// Applies the backend's choice between two claims ([`super::DirectoryEffect::ResolveConflict`]). `keeps_mine`:
    /// whether the claim of this node's client stays; `None` = the backend did not answer, and the later claim stays.
    pub fn resolve_conflict(&mut self, scope: &str, name: &str, keeps_mine: Option<bool>, now_ms: u64) {
        if let Some(scope) = self.scopes.iter_mut().find(|of| *of.name == *scope) {
            scope.replica.resolve(name, keeps_mine, now_ms);
            self.collect();
        }
    }

    /// Detects whether this node was suspended. Call this function after each wait, before the requests and messages
    /// that arrived meanwhile.
    pub fn wake(&mut self, now_ms: u64) {
        if self.is_clustered {
            self.scopes.iter_mut().for_each(|scope| scope.replica.wake(now_ms));
            self.collect();
        }
    }

    /// Moves all deadlines by this many milliseconds, because the node's clock was set ahead by as much.
    pub fn clock_set(&mut self, by_ms: u64) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.clock_set(by_ms));
    }

    /// Notes that this node now takes part in the cluster. Before, it could not receive messages of other nodes.
    pub fn joined(&mut self, now_ms: u64) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.joined(now_ms));
    }

    /// The number of other nodes whose entries this node has.
    pub fn peers(&self) -> usize {
        self.peer_ids().count()
    }

    /// The ids of the other nodes whose entries this node has.
    pub fn peer_ids(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        self.scopes.last().into_iter().flat_map(|presence| presence.replica.nodes().map(|(id, _)| id))
    }

    /// Whether this node has the entries of all these nodes, in all scopes.
    pub fn is_settled(&self, nodes: &[Arc<str>]) -> bool {
        self.scopes.iter().all(|scope| scope.replica.is_settled())
            && nodes.iter().all(|node| self.peer_ids().any(|known| known == node))
    }

    /// Notes that a node may be dead (`is_suspected`), or is alive again ([`touchline_registry::Replica::suspect`]).
    /// Messages and calls to names of a suspected node are refused at once (4006).
    pub fn suspect(&mut self, node: &str, is_suspected: bool, now_ms: u64) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.suspect(node, is_suspected, now_ms));
        self.collect();
    }

    /// Handles that a node is dead.
    pub fn gone(&mut self, node: &str, now_ms: u64) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.gone(node, now_ms));
        self.collect();
    }

    /// Notes that the host has closed the dead connections ([`DirectoryEffect::Probe`]).
    pub fn probed(&mut self, now_ms: u64) {
        self.is_probing = false;
        self.scopes.iter_mut().for_each(|scope| scope.replica.probed(now_ms));
        self.collect();
    }

    /// Requests a probe of the host's connections, once for all scopes.
    pub(super) fn probe(&mut self) {
        if !std::mem::replace(&mut self.is_probing, true) {
            self.effects.push(DirectoryEffect::Probe);
        }
    }

    /// The entry of the name that a message or a call is for.
    pub(super) fn resolve(&mut self, target: &Target) -> Result<Entry, Error> {
        let replica = &self.scope(target.scope)?.replica;
        let entry = replica.lookup(&target.key).ok_or(Error::NOT_REGISTERED)?;
        if replica.is_suspected(entry.node()) { Err(Error::CALLEE_GONE) } else { Ok(entry) }
    }

    /// Registers a name for an owner. If a name's node may be dead, its user can take the name over by connecting here.
    pub(super) fn register(
        &mut self,
        requester: &Requester,
        (scope, name): (ScopeId, &str),
        meta: &[u8],
        take_over: bool,
        now_ms: u64,
    ) -> Result<Registered, Error> {
        let scope = self.scope(scope)?;
        let owner: OwnerId = requester.owner;
        match scope.replica.register(owner, name, meta, take_over, now_ms) {
            Err(RegisterRefusal::Taken(entry)) if scope.replica.is_suspected(entry.node()) => {
                // A pattern with `{user}` gives the name to one user only, so its present owner has the same user.
                let is_own = |pattern: &String| pattern.contains(USER_VARIABLE) && fits(pattern, name, &requester.user);
                let take_over = requester.is_backend || scope.options.allow_register.iter().any(is_own);
                scope.replica.register(owner, name, meta, take_over, now_ms).map_err(refusal)
            }
            registered => registered.map_err(refusal),
        }
    }
}
