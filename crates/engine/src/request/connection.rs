//! The ids by which a home knows subscribers.

/// The number of a shard of this node, from 0.
pub type ShardId = u16;

/// The id of a connection. When a slot is reused, its generation changes, so an old id never reaches the new
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The shard that owns the connection.
    pub shard: ShardId,
    /// The connection's slot on that shard.
    pub slot: u32,
    /// The generation of the slot: it changes with each connection that uses the slot.
    pub generation: u32,
}
