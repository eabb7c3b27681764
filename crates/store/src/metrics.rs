//! The counters of a store, and its health.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use touchline_lock::Lock;

use crate::size_metrics::SizeMetrics;

/// The maximum number of different causes that are logged in one outage.
const CAUSES_MAX: usize = 8;

/// The upper bounds of the histogram buckets for commit times, microseconds.
const COMMIT_BOUNDS_US: [u64; 12] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000];

/// A histogram of commit times.
#[derive(Debug, Default)]
pub struct CommitTimes {
    buckets: [AtomicU64; COMMIT_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl CommitTimes {
    fn observe(&self, took: Duration) {
        let us = took.as_micros() as u64;
        self.buckets[COMMIT_BOUNDS_US.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// The total number of commits.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The upper bound of each bucket in seconds, and the number of commits in it. The last bucket has no bound.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = COMMIT_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.buckets.iter().map(|count| count.load(Relaxed))).collect()
    }

    /// The time spent in all commits, seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_us.load(Relaxed) as f64 / 1e6
    }
}

/// The counters of a store.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    /// The number of publications written.
    pub stored: AtomicU64,
    /// The number of commits that failed.
    pub failures: AtomicU64,
    /// The number of publications that were refused because the queue was full.
    pub refused: AtomicU64,
    /// The number of publications that wait for a commit.
    pub waiting: AtomicU64,
    /// How long commits took, successful or not.
    pub commit_times: CommitTimes,
    /// The number of histories read.
    pub loads: AtomicU64,
    /// The number of reads that wait or are in progress.
    pub reading: AtomicU64,
    /// The number of inbox messages written.
    pub inbox_messages: AtomicU64,
    /// The number of inbox messages that expired before their owner acknowledged them.
    pub inbox_messages_expired: AtomicU64,
    /// The size of the database, and what its limits have refused.
    pub size: SizeMetrics,
    is_failing: AtomicBool,
    /// True if an outage is logged because the database cannot be reached.
    is_away: AtomicBool,
    is_damaged: AtomicBool,
    /// True if the database is closed or is about to be closed.
    pub(crate) is_closed: AtomicBool,
    /// Causes of failures that were logged since the last successful write.
    causes: Lock<Vec<String>>,
    /// Causes of refused items that were logged.
    refusals: Lock<Vec<String>>,
}

impl StoreMetrics {
    /// Whether the last write succeeded, and the database was never found damaged.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing() && !self.is_damaged.load(Relaxed)
    }

    /// Whether the last write failed. Writes are still tried. A store also writes to a damaged database as long as that
    /// succeeds.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    /// Counts a batch that was tried, whatever its result. `appends` is its number of publications, `took` its
    /// duration.
    pub(crate) fn count(&self, appends: u64, took: Duration) {
        self.waiting.fetch_sub(appends, Relaxed);
        self.commit_times.observe(took);
    }

    /// Records that a write succeeded.
    pub(crate) fn succeed(&self) {
        let was_away = self.is_away.swap(false, Relaxed);
        if self.is_failing.swap(false, Relaxed) || was_away {
            self.causes.lock().clear();
            if self.is_healthy() {
                tracing::info!("the primary database works again");
            }
        }
    }

    /// Records that the database is damaged. Later successful writes do not clear this state. The database must be
    /// restored.
    pub(crate) fn mark_damaged(&self, error: &dyn Display) {
        if !self.is_damaged.swap(true, Relaxed) {
            tracing::error!(
                %error,
                "the primary database is damaged: restore it from a backup, then start the node again"
            );
        }
    }

    /// Records that a write failed. The cause is logged unless it was already logged since the last successful write.
    pub(crate) fn fail(&self, error: &dyn Display) {
        self.failures.fetch_add(1, Relaxed);
        self.is_failing.store(true, Relaxed);
        if is_new(&self.causes, error.to_string()) && !self.is_damaged.load(Relaxed) {
            tracing::error!(
                %error,
                "the primary database fails: durable publications are refused until it works again"
            );
        }
    }

    /// Records that a write failed because the database cannot be reached.
    pub(crate) fn fail_away(&self, error: &dyn Display) {
        self.failures.fetch_add(1, Relaxed);
        self.is_failing.store(true, Relaxed);
        self.tell_away(error);
    }

    /// Logs that the database cannot be reached, once until a write succeeds. The first caller logs it. The errors of
    /// the others (refused, closed, no answer) belong to the same outage.
    pub(crate) fn tell_away(&self, error: &dyn Display) {
        if !self.is_away.swap(true, Relaxed) {
            tracing::error!(%error, "the primary database fails: requests that need it are refused until it recovers");
        } else {
            tracing::debug!(%error, "the primary database still fails");
        }
    }

    /// Records that the database refuses one item of a batch. Each cause is logged once.
    pub(crate) fn refuse_item(&self, error: &dyn Display) {
        if is_new(&self.refusals, error.to_string()) {
            tracing::warn!(
                %error,
                "the primary database refuses a request, and stores the others; this cause is not logged again"
            );
        }
    }
}

/// Whether a cause has not been logged yet. If so, it is added to the list.
fn is_new(logged: &Lock<Vec<String>>, cause: String) -> bool {
    let mut logged = logged.lock();
    let is_new = logged.len() < CAUSES_MAX && !logged.contains(&cause);
    if is_new {
        logged.push(cause);
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_once_until_a_write_succeeds() {
        let metrics = StoreMetrics::default();
        let logged = || metrics.causes.lock().len();
        (0..100).for_each(|_| metrics.fail(&"disk full"));
        assert_eq!((logged(), metrics.is_healthy()), (1, false));
        metrics.fail(&"disk gone");
        assert_eq!(logged(), 2, "another cause is told");
        metrics.succeed();
        assert_eq!((logged(), metrics.is_healthy()), (0, true));
        (0..100).for_each(|number| metrics.fail(&number));
        assert_eq!(logged(), CAUSES_MAX, "no more than a few");
        assert_eq!(metrics.failures.load(Relaxed), 201);
    }

    #[test]
    fn an_outage_is_told_by_the_first_who_meets_it_and_ends_with_a_write() {
        let metrics = StoreMetrics::default();
        let is_told = || metrics.is_away.load(Relaxed);
        metrics.tell_away(&"a reader's connection is closed");
        assert_eq!((is_told(), metrics.is_healthy()), (true, true), "a reader alone says nothing of writes");
        metrics.fail_away(&"refused");
        assert_eq!((is_told(), metrics.is_healthy(), metrics.failures.load(Relaxed)), (true, false, 1));
        metrics.succeed();
        assert_eq!((is_told(), metrics.is_healthy()), (false, true));
    }
}
