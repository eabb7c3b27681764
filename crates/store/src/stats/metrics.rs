//! The counters of the statistics, and the health of their database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The counters of the statistics.
#[derive(Debug, Default)]
pub struct StatsMetrics {
    /// The number of rows written.
    pub written: AtomicU64,
    /// The number of rows dropped because the queue had no room or the database failed.
    pub dropped: AtomicU64,
    /// The number of rows that wait for a batch.
    pub waiting: AtomicU64,
    /// The number of batches that failed.
    pub failures: AtomicU64,
    /// The number of queries that wait or are in progress.
    pub reading: AtomicU64,
    is_failing: AtomicBool,
}

impl StatsMetrics {
    /// Whether the last batch was written.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing.load(Relaxed)
    }

    /// Counts the rows of a batch that was written, or that failed.
    pub(super) fn finish(&self, rows: usize, failure: Option<&dyn std::fmt::Display>) {
        self.waiting.fetch_sub(rows as u64, Relaxed);
        match failure {
            None => {
                self.written.fetch_add(rows as u64, Relaxed);
                if self.is_failing.swap(false, Relaxed) {
                    tracing::info!("the stats database works again");
                }
            }
            Some(error) => {
                self.failures.fetch_add(1, Relaxed);
                self.dropped.fetch_add(rows as u64, Relaxed);
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::warn!(%error, "the stats database fails: rows are dropped until it works again");
                }
            }
        }
    }

    /// Counts a row that the database refuses because of its values.
    pub(super) fn refuse(&self, error: &dyn std::fmt::Display) {
        tracing::debug!(%error, "the stats database refuses a row");
        self.waiting.fetch_sub(1, Relaxed);
        self.dropped.fetch_add(1, Relaxed);
    }
}
