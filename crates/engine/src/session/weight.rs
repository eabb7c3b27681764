//! How large a reply may be, and how much room a connection has for replies.

/// The size that the reply to a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Short.
    Small,
    /// As large as `client.answer_max_size` allows.
    Large,
    /// It comes from another client. Such calls have a limit of their own.
    Waiting,
}

/// How much a connection may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of replies that may be written; a reply that begins below this number may end above it.
    pub bytes: usize,
    /// The node is short of memory: commands that may have a large reply are refused with error 111.
    pub is_scarce: bool,
}

impl Room {
    /// Room for anything.
    pub const ANY: Room = Room { bytes: usize::MAX, is_scarce: false };
}
