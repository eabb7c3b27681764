//! What becomes of a row or a message.

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryOutcome {
    /// It was carried out.
    Done,
    /// It was stored, and its row is gone with that.
    Gone,
    /// It is not for this server. The text says why.
    PassedOver(String),
    /// It can't be carried out, ever.
    Failed(String),
    /// It may be carried out later.
    Retry(String),
    /// It was not tried, because one before it has to be tried again.
    Waiting,
}
