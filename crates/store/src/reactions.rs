//! Totals of reactions. Only their writer understands the content of a row; the store keeps bytes.

use bytes::Bytes;

use crate::refusal::StoreRefusal;

/// What one start of a node has counted in a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReactionRow {
    /// The channel, without a NUL character.
    pub channel: Box<str>,
    /// The node start that counted, which alone writes the row. Without a NUL character.
    pub contributor: Box<str>,
    /// The counts, in the writer's own format.
    pub state: Bytes,
    /// When the counts last changed, Unix milliseconds.
    pub changed_ms: u64,
}

/// A place among the rows in their order: a channel and a contributor.
pub type ReactionPlace = (Box<str>, Box<str>);

/// A callback for rows, in the order of their channels and contributors.
pub type OnReactions = Box<dyn FnOnce(Result<Vec<ReactionRow>, StoreRefusal>) + Send + Sync>;
