//! What few sessions have, among it: a user's connections on the node, which have a limit and are counted before a
//! connect is answered.

use std::sync::Arc;

use super::flow::Deferred;

/// Counts the connections of each user on all shards of a node.
pub trait UserCounter {
    /// Counts one more connection of a user. False, and nothing is counted, when it has as many as it may.
    fn take(&self, user: &str) -> bool;

    /// A connection of the user has ended that was counted.
    fn give_back(&self, user: &str);
}

/// What few sessions have.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// Names that the token allows: scope and pattern.
    pub(super) granted: Box<[(Box<str>, Box<str>)]>,
    /// The connection is counted among its user's.
    pub(super) counted: Option<Counted>,
    /// Commands that wait for room.
    pub(super) deferred: Option<Deferred>,
}

/// A connection that is counted until this is dropped: whatever ends the connection gives it back, and once only.
pub(super) struct Counted {
    counter: Arc<dyn UserCounter + Send + Sync>,
    user: Box<str>,
}

impl Counted {
    /// Counts a connection; none when the user has as many as it may.
    pub(super) fn take(counter: &Arc<dyn UserCounter + Send + Sync>, user: &str) -> Option<Self> {
        counter.take(user).then(|| Counted { counter: Arc::clone(counter), user: user.into() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counter.give_back(&self.user);
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Counted").field(&self.user).finish()
    }
}
