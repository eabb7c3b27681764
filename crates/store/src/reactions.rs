//! Totals of reactions. What a row says, its writer knows; the store keeps bytes.

use bytes::Bytes;

use crate::refusal::StoreRefusal;

/// What one start of a node has counted in a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReactionRow {
    /// The channel, without a NUL.
    pub channel: Box<str>,
    /// The start of the node, which alone writes the row; without a NUL.
    pub contributor: Box<str>,
    /// What it has counted.
    pub state: Bytes,
    /// When that was changed last, Unix milliseconds.
    pub changed_ms: u64,
}

/// A place among rows in their order: a channel and a contributor.
pub type ReactionPlace = (Box<str>, Box<str>);

/// Takes rows in the order of their channels and contributors.
pub type OnReactions = Box<dyn FnOnce(Result<Vec<ReactionRow>, StoreRefusal>) + Send + Sync>;
