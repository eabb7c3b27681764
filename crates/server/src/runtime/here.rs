//! Which shard the calling thread belongs to.

use std::cell::Cell;

use touchline_engine::ShardId;

thread_local! {
    static HERE: Cell<Option<ShardId>> = const { Cell::new(None) };
}

/// The shard whose own thread this is; None on other threads.
pub(crate) fn here() -> Option<ShardId> {
    HERE.get()
}

/// Marks the calling thread as the own thread of a shard.
pub(crate) fn set_here(shard: ShardId) {
    HERE.set(Some(shard));
}
