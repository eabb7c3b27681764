//! The types for reading a channel's log and for its retention.

use super::offset::Offset;

/// How long the idempotency key of a publication is remembered, milliseconds. The same time applies to every log
/// backend.
pub const IDEMPOTENCY_KEY_TTL_MS: u64 = 300_000;

/// Identifies one read of a channel's log. The log backend gets it with the read and repeats it in its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LoadId {
    /// The answer holds the publications after this offset.
    pub behind: Offset,
    /// The number of the load, from 1 on. Among the loads of one shard, a later load has a higher number.
    pub number: u64,
}

/// How much of its log a channel keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// The maximum number of publications.
    pub size: usize,
    /// How long a publication is kept, milliseconds.
    pub ttl_ms: u64,
    /// How long the position of an empty, unused channel is kept, milliseconds.
    pub meta_ttl_ms: u64,
}
