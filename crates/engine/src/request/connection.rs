//! The ids by which a home knows subscribers.

/// A shard of this node, from 0 on.
pub type ShardId = u16;

/// The id of a connection. A slot with a new occupant has a new generation, so a stale id reaches no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The shard that owns the connection.
    pub shard: ShardId,
    /// The slot on that shard.
    pub slot: u32,
    /// The number of the slot's occupant.
    pub generation: u32,
}
