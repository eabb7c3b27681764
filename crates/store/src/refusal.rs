//! Why the store refuses a request.

/// Why a request to the store failed. The text says what to do; the log says why a database fails, once in an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreRefusal {
    /// Too many requests wait already.
    #[error(
        "too many requests to the database wait already: send it again later, or raise store.commit_queue or the \
         database's read_queue"
    )]
    QueueFull,
    /// The database failed; it may work again later. Nothing was delivered, and it is likely that nothing was stored.
    #[error("the database fails, and the log says why: send it again later, with the same idempotency key")]
    Failed,
    /// The inbox of the name holds as many messages as it may.
    #[error("the inbox of the name is full: its owner must acknowledge messages, or messages must expire")]
    InboxFull,
    /// The directory has no description of the channel.
    #[error("the directory has no description of the channel: describe it first")]
    NotFound,
    /// The database cannot store the values of the request, and never will: a text with NUL, a text that is too long
    /// for an index, a number out of range.
    #[error("the database cannot store these values: a text with NUL, a text that is too long, a number out of range")]
    Invalid,
}
