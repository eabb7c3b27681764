//! A PostgreSQL table in which applications leave commands in their own transactions. Its rows are processed partition
//! by partition, in their order, and deleted when they are done.
//!
//! Each partition belongs to the node that holds its advisory lock. The lock lasts as long as a transaction. Its key is
//! the one that Centrifugo uses, so both can run while one replaces the other.

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
