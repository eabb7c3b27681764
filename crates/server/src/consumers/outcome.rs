//! The outcomes of rows and messages.

/// The outcome of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryOutcome {
    /// The entry was carried out.
    Done,
    /// The entry was stored, and its row was deleted in the same transaction.
    Gone,
    /// The entry is not for this server. The text says why.
    PassedOver(String),
    /// The entry can never be carried out. The text says why.
    Failed(String),
    /// The entry may be carried out later. The text says why it failed.
    Retry(String),
    /// The entry was not tried, because an earlier one has to be retried.
    Waiting,
}
