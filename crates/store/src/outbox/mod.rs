//! A table of PostgreSQL in which applications leave commands, in their own transactions: its rows are handed over
//! partition by partition, in their order, and deleted when they are done.
//!
//! Each partition belongs to the node that holds its advisory lock, which lasts as long as a transaction. The key of
//! the lock is Centrifugo's, so that both may run while one takes the other's place.

mod partition;
mod reader;
mod statements;
pub(crate) mod types;
mod watcher;

pub use self::reader::OutboxReader;
pub use self::types::{
    COUNTED_MAX, ClaimedRows, HandledRows, LOOK_AHEAD_MAX, OutboxLag, OutboxOptions, OutboxReport, OutboxRow, RowClaim,
    RowHandler, RowOutcome, RowsHandled,
};
