//! The requests that wait for the threads of the statistics.

use std::time::Duration;

use super::types::{EventErasure, OnErased, OnStatsResult, Row, StatsQuery};
use crate::batch::OnDone;

/// The maximum number of rows in one batch.
pub(super) const BATCH: usize = 10_000;
/// How long the first row of a batch waits for more rows.
pub(super) const DELAY: Duration = Duration::from_millis(200);
/// The interval between two deletions of old rows in SQLite.
pub(super) const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of event rows that one step of an erasure examines.
pub(super) const ERASED_ROWS_MAX: usize = 20_000;
/// The number of minutes in a day.
pub(super) const DAY: u64 = 1_440;

/// A command to a writer.
pub(super) enum StatsCommand {
    Row(Row),
    /// A task that runs after the rows that were queued before it.
    Task(StatsTask),
    Close,
}

/// A task for a writer besides writing rows.
pub(super) enum StatsTask {
    /// Reports that the rows queued before it are written or dropped.
    Settle(OnDone),
    /// A step of an erasure.
    Erase(EventErasure, OnErased),
}

/// A query that waits for a reader.
pub(super) struct PendingQuery {
    pub(super) query: StatsQuery,
    pub(super) done: OnStatsResult,
}
