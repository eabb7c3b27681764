//! Why the store refuses a request.

/// Why a request to the store failed. The text says what to do. The log says why a database fails, once for each
/// outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreRefusal {
    /// Too many requests are already waiting.
    #[error(
        "too many requests are waiting for the database: send this one again later, or raise store.commit_queue or the \
         database's read_queue"
    )]
    QueueFull,
    /// The database must not grow. It has reached `store.primary.max_size`, or its disk is nearly full. Nothing was
    /// stored.
    #[error(
        "the database has reached its maximum size, or its disk is nearly full: remove what is not needed, or raise \
         store.primary.max_size; then send the request again"
    )]
    DatabaseFull,
    /// The database failed, but may work again later. Nothing was delivered, and probably nothing was stored.
    #[error("the database fails; the log says why. Send the request again later, with the same idempotency key")]
    Failed,
    /// The inbox of the name is full.
    #[error("the inbox of the name is full: its owner must acknowledge messages, or messages must expire")]
    InboxFull,
    /// The directory has no description of the channel.
    #[error("the directory has no description of the channel: describe it first")]
    NotFound,
    /// The database can never store the values of the request: a text with NUL, a text that is too long for an index,
    /// or a number out of range.
    #[error("the database cannot store these values: a text with NUL, a text that is too long, a number out of range")]
    Invalid,
}
