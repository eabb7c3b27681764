//! The state of a node's directory, and what can be read from it.

use std::sync::Arc;

use touchline_protocol::Error;
use touchline_registry::{Classify, Counters, HashSeed, RegisterRefusal, Replica, ReplicaSettings, ReplicaTiming};

use super::calls::Calls;
use super::effect::DirectoryEffect;
use super::inbox::Inbox;
use super::incident::{ActingOwner, ToldChanges};
use super::presence_entry;
use super::scope::{ScopeId, ScopeOptions, Scopes};
use super::watch::ScopeWatch;

/// The scope of presence. A configured scope cannot have this name, and [`Scopes::find`] never finds it.
const PRESENCE: &str = "$presence";

/// The greatest number of effects for which the directory keeps memory between two batches.
const SPARE_EFFECTS: usize = 4_096;

/// The metrics of a scope: counters since the node started, and its present size.
#[derive(Debug, Clone)]
pub struct ScopeMetrics {
    /// The name of the scope.
    pub scope: Arc<str>,
    /// The number of names with an owner, on all nodes.
    pub names: u64,
    /// The number of memberships, on all nodes.
    pub members: u64,
    /// Counters since the node started.
    pub counters: Counters,
}

/// A scope of this node.
pub(super) struct Scope {
    pub(super) name: Arc<str>,
    pub(super) options: ScopeOptions,
    pub(super) replica: Replica,
    /// The recent changes, for clients that watch the scope; `None` = clients may not watch it.
    pub(super) watch: Option<ScopeWatch>,
}

/// A node's part of the registry. `A` identifies the requester that waits for a reply.
pub struct Directory<A> {
    pub(super) node: Arc<str>,
    /// The configured scopes, then the scope of presence.
    pub(super) scopes: Vec<Scope>,
    pub(super) calls: Calls<A>,
    pub(super) inbox: Inbox,
    pub(super) effects: Vec<DirectoryEffect<A>>,
    pub(super) is_clustered: bool,
    /// The changes that are reported to backends; `None` = none are.
    pub(super) told: Option<ToldChanges>,
    /// The client whose request is being executed, and its user. It is set only if changes are reported to backends.
    pub(super) acting: Option<ActingOwner>,
    /// Whether the host is checking its connections ([`DirectoryEffect::Probe`]).
    pub(super) is_probing: bool,
    /// The greatest size of one message to another node, bytes.
    pub(super) message_max: usize,
    /// The time of the latest call, Unix milliseconds.
    pub(super) now_ms: u64,
}

impl<A> Directory<A> {
    /// An empty directory. `node`: the node's id, unique in the cluster. `birth`: a random number that differs between
    /// incarnations of the node. `hash_seed`: the seed for hashes of names and groups, which clients choose.
    pub fn new(
        node: &str,
        scopes: &[ScopeOptions],
        timing: &ReplicaTiming,
        birth: u64,
        hash_seed: HashSeed,
        is_clustered: bool,
        now_ms: u64,
    ) -> Self {
        let presence = ScopeOptions {
            name: PRESENCE.into(),
            // Sessions have already checked their requests against the channels' own limits.
            name_max_length: usize::from(u16::MAX),
            meta_max_size: usize::MAX,
            client_entries_limit: usize::MAX,
            ..ScopeOptions::default()
        };
        let make = |options: &ScopeOptions, classify: Option<Classify>| Scope {
            name: options.name.as_str().into(),
            replica: Replica::new(
                node,
                birth,
                ReplicaSettings { classify, ..options.settings(timing) },
                hash_seed,
                now_ms,
            ),
            watch: options.allow_watch_for_client.then(|| ScopeWatch::new(birth, options.watch_log_size)),
            options: options.clone(),
        };
        let presence = make(&presence, Some(presence_entry::shown_user));
        let scopes = scopes.iter().map(|options| make(options, None)).chain([presence]).collect();
        let (calls, inbox) = (Calls::new(birth), Inbox::default());
        Directory {
            node: node.into(),
            scopes,
            calls,
            inbox,
            effects: Vec::new(),
            is_clustered,
            told: None,
            acting: None,
            is_probing: false,
            message_max: usize::MAX,
            now_ms,
        }
    }

    /// The scopes as sessions see them.
    pub fn scopes(&self) -> Scopes {
        Scopes(self.scopes.iter().map(|scope| (scope.options.clone(), scope.replica.view())).collect())
    }

    /// The names of the scopes, including presence.
    pub fn scope_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.scopes.iter().map(|scope| &scope.name)
    }

    /// The metrics of each scope.
    pub fn metrics(&self) -> impl Iterator<Item = ScopeMetrics> {
        self.scopes.iter().map(|scope| {
            let view = scope.replica.view();
            let counters = scope.replica.counters();
            ScopeMetrics { scope: Arc::clone(&scope.name), names: view.names(), members: view.members(), counters }
        })
    }

    /// The number of calls that wait for a reply.
    pub fn calls_waiting(&self) -> usize {
        self.calls.len()
    }

    /// When [`Directory::tick`] or [`Directory::flush`] next has something to do, Unix milliseconds; `None` = never.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let watches = self.scopes.iter().filter_map(|scope| scope.watch.as_ref()?.next_deadline_ms());
        self.calls.next_deadline_ms().into_iter().chain(self.inbox.next_deadline_ms()).chain(watches).min()
    }

    /// Frees memory that only a mass change needed.
    pub(super) fn release_spare(&mut self) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.release_spare());
        if self.effects.is_empty() && self.effects.capacity() > SPARE_EFFECTS {
            self.effects = Vec::new();
        }
    }

    /// Removes and returns the effects to carry out, in order.
    pub fn effects(&mut self) -> std::vec::Drain<'_, DirectoryEffect<A>> {
        self.effects.drain(..)
    }

    /// This node's part of presence.
    pub(super) fn presence(&mut self) -> &mut Replica {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last].replica
    }

    /// Returns a scope by its id.
    ///
    /// # Errors
    /// 4003 if the scope does not exist.
    pub(super) fn scope(&mut self, id: ScopeId) -> Result<&mut Scope, Error> {
        self.scopes.get_mut(usize::from(id.0)).ok_or(Error::NO_SUCH_SCOPE)
    }
}

/// The error that corresponds to a refusal of a replica.
pub(super) fn refusal(refusal: RegisterRefusal) -> Error {
    match refusal {
        RegisterRefusal::Taken(_) => Error::NAME_TAKEN,
        RegisterRefusal::Undefined => Error::NOT_REGISTERED,
        RegisterRefusal::Changed(_) => Error::CHANGED,
        RegisterRefusal::TooLong => Error::BAD_REQUEST,
        RegisterRefusal::TooMany => Error::LIMIT_EXCEEDED,
    }
}

#[cfg(test)]
mod tests {
    use touchline_registry::OwnerId;

    use super::*;

    #[test]
    fn the_memory_of_a_mass_change_is_freed_once_all_effects_are_taken() {
        let mut directory =
            Directory::<()>::new("here", &[], &ReplicaTiming::default(), 7, HashSeed::repeatable(7), false, 1_000);
        for (room, is_kept) in [(1, true), (SPARE_EFFECTS, true), (SPARE_EFFECTS + 1, false)] {
            directory.effects = Vec::with_capacity(room);
            directory.effects.push(DirectoryEffect::Disconnect(OwnerId([1; 16])));
            directory.release_spare();
            assert_eq!(directory.effects.capacity(), room, "effects that wait are kept");
            assert_eq!(directory.effects().count(), 1);
            directory.release_spare();
            assert_eq!(directory.effects.capacity(), if is_kept { room } else { 0 });
        }
    }
}
