//! State that few sessions have, such as the count of connections for their user. Users with a limit are counted before
//! the connect reply.

use std::sync::Arc;

use super::flow::Deferred;
use super::hook_state::HookState;
use super::limit_state::LimitState;
use crate::reactions::ReactionRate;

/// Counts the connections of each user on all shards of a node.
pub trait UserCounter {
    /// Counts one more connection of a user. Returns false, and counts nothing, if the user has reached the limit.
    fn take(&self, user: &str) -> bool;

    /// Notes that a counted connection of the user has ended.
    fn give_back(&self, user: &str);
}

/// State that few sessions have, kept apart to save memory.
#[derive(Debug, Default)]
pub(super) struct RareState {
    /// The scopes and patterns of names that the token allows.
    pub(super) granted: Box<[(Box<str>, Box<str>)]>,
    /// The counted connection of the user; `None` = it is not counted.
    pub(super) counted: Option<CountedUser>,
    /// The commands that wait for room; `None` = no command waits.
    pub(super) deferred: Option<Deferred>,
    /// The state of hooks; `None` = no hook was called, and no token contained anything for one.
    pub(super) hooks: Option<Box<HookState>>,
    /// The state of rates; `None` = no rate needs any state of this session yet.
    pub(super) limits: Option<Box<LimitState>>,
    /// How much of its reaction rate the client has used.
    pub(super) reactions: ReactionRate,
}

/// A connection that is counted until this value is dropped, so that its end is counted exactly once.
pub(super) struct CountedUser {
    counter: Arc<dyn UserCounter + Send + Sync>,
    user: Box<str>,
}

impl CountedUser {
    /// Counts a connection of the user; `None` = the user has reached the limit.
    pub(super) fn take(counter: &Arc<dyn UserCounter + Send + Sync>, user: &str) -> Option<Self> {
        counter.take(user).then(|| CountedUser { counter: Arc::clone(counter), user: user.into() })
    }
}

impl Drop for CountedUser {
    fn drop(&mut self) {
        self.counter.give_back(&self.user);
    }
}

impl std::fmt::Debug for CountedUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Counted").field(&self.user).finish()
    }
}
