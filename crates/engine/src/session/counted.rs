//! State that few sessions have, such as the count of their user's connections: these have a limit, and are counted
//! before the connect reply.

use std::sync::Arc;

use super::flow::Deferred;
use super::hook_state::HookState;
use super::limit_state::LimitState;
use crate::reactions::ReactionRate;

/// Counts the connections of each user on all shards of a node.
pub trait UserCounter {
    /// Counts one more connection of a user. Returns false, and counts nothing, if the user has reached the limit.
    fn take(&self, user: &str) -> bool;

    /// A connection of the user that was counted has ended.
    fn give_back(&self, user: &str);
}

/// State that few sessions have.
#[derive(Debug, Default)]
pub(super) struct RareState {
    /// Scopes and patterns of names that the token allows.
    pub(super) granted: Box<[(Box<str>, Box<str>)]>,
    /// The count of the connection; `None` = it is not counted.
    pub(super) counted: Option<CountedUser>,
    /// Commands that wait for room; `None` = none wait.
    pub(super) deferred: Option<Deferred>,
    /// What hooks need; `None` = none was asked, and no token said anything for one.
    pub(super) hooks: Option<Box<HookState>>,
    /// What rates need; `None` = none is switched on that needs something of this session yet.
    pub(super) limits: Option<Box<LimitState>>,
    /// What the client has used of its rate of reactions.
    pub(super) reactions: ReactionRate,
}

/// A connection that is counted until this is dropped, so that its end is counted exactly once.
pub(super) struct CountedUser {
    counter: Arc<dyn UserCounter + Send + Sync>,
    user: Box<str>,
}

impl CountedUser {
    /// Counts a connection; `None` = the user has reached the limit.
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
