//! What one connection is due: a list of notes in the outbox.

/// The number that stands for no note.
pub(super) const NONE: u32 = u32::MAX;

/// The frames that are to be written to a connection: a list in the outbox.
pub(super) struct Due {
    /// The first note and the last one; [`NONE`] = the list is empty.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Bytes of answers among the frames.
    pub(super) answers: u32,
    /// The connection waits in the outbox for its turn.
    pub(super) is_waiting: bool,
}

impl Default for Due {
    fn default() -> Self {
        Due { first: NONE, last: NONE, answers: 0, is_waiting: false }
    }
}

impl Due {
    /// Bytes of answers among the frames.
    pub(super) fn answers(&self) -> usize {
        self.answers as usize
    }
}
