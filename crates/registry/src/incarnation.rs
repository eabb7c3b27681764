//! What a node knows of its own incarnation. What it does with that is in [`crate::rebirth`].

use crate::peer::Incarnation;

/// What a replica knows of its own life.
#[derive(Debug, Default)]
pub(crate) struct IncarnationState {
    /// When this node was last found to have stood still.
    pub(crate) stood_still_ms: Option<u64>,
    /// Nothing is sent until the host has looked at its connections, or until this time at the latest.
    pub(crate) silent_until_ms: Option<u64>,
    /// The latest incarnation of this node that others have purged.
    pub(crate) purged: Option<Incarnation>,
    /// When the present incarnation began.
    pub(crate) began_ms: u64,
    /// Numbers of snapshots that were asked for.
    pub(crate) nonces: u64,
}

impl IncarnationState {
    /// Whether the node says nothing until the host has looked at its connections.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent_until_ms.is_some()
    }

    /// The clock was set ahead.
    pub(crate) fn clock_set(&mut self, by_ms: u64) {
        for time in [&mut self.stood_still_ms, &mut self.silent_until_ms].into_iter().flatten() {
            *time += by_ms;
        }
        self.began_ms += by_ms;
    }
}
