//! How large a reply may be, and how much room a connection has for replies.

/// The size that the reply to a request can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// The reply is short.
    Small,
    /// The reply can be as large as `client.answer_max_size` allows.
    Large,
    /// The reply comes from another client. Such calls have a limit of their own.
    Waiting,
}

/// How much may be sent to a connection now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The bytes of replies that may be written. A reply that begins below this limit may end above it.
    pub bytes: usize,
    /// Whether the node is short of memory. If so, commands that may have a large reply are refused with error 111.
    pub is_scarce: bool,
}

impl Room {
    /// No limit: there is room for anything.
    pub const ANY: Room = Room { bytes: usize::MAX, is_scarce: false };
}
