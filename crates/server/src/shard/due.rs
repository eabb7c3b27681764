//! The output that one connection is due: a list of notes in the outbox.

/// The number that means "no note".
pub(super) const NONE: u32 = u32::MAX;

/// The frames to be written to a connection: a list in the outbox.
pub(super) struct Due {
    /// The first and the last note; [`NONE`] = the list is empty.
    pub(super) first: u32,
    pub(super) last: u32,
    /// How many bytes of the frames are answers.
    pub(super) answers: u32,
    /// Whether the connection waits in the outbox for its turn.
    pub(super) is_waiting: bool,
}

impl Default for Due {
    fn default() -> Self {
        Due { first: NONE, last: NONE, answers: 0, is_waiting: false }
    }
}

impl Due {
    /// How many bytes of the frames are answers.
    pub(super) fn answers(&self) -> usize {
        self.answers as usize
    }
}
