//! What waits for the threads of the statistics.

use std::time::Duration;

use super::types::{OnStatsResult, Row, StatsQuery};

/// Rows in one batch, at most.
pub(super) const BATCH: usize = 10_000;
/// How long the first row of a batch waits for more.
pub(super) const DELAY: Duration = Duration::from_millis(200);
/// Between two removals of old rows in SQLite.
pub(super) const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// Minutes of a day.
pub(super) const DAY: u64 = 1_440;

/// A command to a writer.
pub(super) enum StatsCommand {
    Row(Row),
    Close,
}

/// A query that waits for a reader.
pub(super) struct PendingQuery {
    pub(super) query: StatsQuery,
    pub(super) done: OnStatsResult,
}
