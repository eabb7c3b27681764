//! What a node knows about its own incarnation. [`crate::rebirth`] acts on it.

use crate::peer::Incarnation;

/// What a replica knows about its own incarnation. Times are Unix milliseconds.
#[derive(Debug, Default)]
pub(crate) struct IncarnationState {
    /// When this node last noticed that it had stood still. `None` = never.
    pub(crate) stood_still_ms: Option<u64>,
    /// The node sends nothing until the host has checked its connections, or at most until this time. `None` = not
    /// silent.
    pub(crate) silent_until_ms: Option<u64>,
    /// The latest incarnation of this node that other nodes have purged.
    pub(crate) purged: Option<Incarnation>,
    /// When the current incarnation began.
    pub(crate) began_ms: u64,
    /// The number of snapshots that were requested. It makes nonces.
    pub(crate) nonces: u64,
}

impl IncarnationState {
    /// Whether the node sends nothing until the host has checked its connections.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent_until_ms.is_some()
    }

    /// Moves the stored times because the clock was set ahead.
    pub(crate) fn clock_set(&mut self, by_ms: u64) {
        for time in [&mut self.stood_still_ms, &mut self.silent_until_ms].into_iter().flatten() {
            *time += by_ms;
        }
        self.began_ms += by_ms;
    }
}
