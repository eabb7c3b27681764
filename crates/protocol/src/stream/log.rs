//! What is read of a channel's log, and how much of it is kept.

use super::offset::Offset;

/// How long the idempotency key of a publication is remembered, whichever log backend keeps the channel's log,
/// milliseconds.
pub const IDEMPOTENCY_KEY_TTL_MS: u64 = 300_000;

/// A read of a channel's log from a log backend: what the backend is asked for, and what its answer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LoadId {
    /// The answer holds the publications behind this offset.
    pub behind: Offset,
    /// The number of the load, from 1 on: of one shard's loads, a later one has a higher number.
    pub number: u64,
}

/// How much of its log a channel keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Publications, at most.
    pub size: usize,
    /// How long a publication is kept, milliseconds.
    pub ttl_ms: u64,
    /// How long the position of an empty, unused channel is kept, milliseconds.
    pub meta_ttl_ms: u64,
}
