//! The size of the primary database, and what its limits have refused.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use touchline_lock::Lock;

use crate::growth::{FullCause, GrowthBudget, GrowthLimits};

/// The value for an unknown number.
const UNKNOWN: u64 = u64::MAX;

/// The minimum interval between two log lines that say that the database is full, or no longer full.
const TOLD_INTERVAL: Duration = Duration::from_secs(10);

/// What the log has said about a database.
#[derive(Debug, Default)]
struct ToldState {
    is_full: bool,
    /// When the last line was logged. `None` = none was.
    at: Option<Instant>,
}

impl ToldState {
    /// Whether a state is logged now. It is logged if it has changed, unless the last line is recent; then a later look
    /// logs it.
    fn tells(&mut self, is_full: bool, now: Instant) -> bool {
        let is_told = self.at.is_some_and(|at| now.saturating_duration_since(at) < TOLD_INTERVAL);
        if is_told || self.is_full == is_full {
            return false;
        }
        *self = ToldState { is_full, at: Some(now) };
        true
    }
}

/// The size of the primary database from the last look.
#[derive(Debug)]
pub struct SizeMetrics {
    /// The number of requests that were refused because the database must not grow.
    pub refused: AtomicU64,
    used: AtomicU64,
    reusable: AtomicU64,
    limit: AtomicU64,
    disk_free: AtomicU64,
    disk_reserve: AtomicU64,
    is_full: AtomicBool,
    is_disk_short: AtomicBool,
    told: Lock<ToldState>,
}

impl Default for SizeMetrics {
    fn default() -> Self {
        SizeMetrics {
            refused: AtomicU64::new(0),
            used: AtomicU64::new(UNKNOWN),
            reusable: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            disk_free: AtomicU64::new(UNKNOWN),
            disk_reserve: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            is_disk_short: AtomicBool::new(false),
            told: Lock::default(),
        }
    }
}

fn known(number: &AtomicU64) -> Option<u64> {
    Some(number.load(Relaxed)).filter(|number| *number != UNKNOWN)
}

impl SizeMetrics {
    /// The size that counts against `store.primary.max_size`, bytes. `None` = no look has succeeded yet.
    pub fn used(&self) -> Option<u64> {
        known(&self.used)
    }

    /// The room inside the files that rows take before the files grow, bytes. It is an estimate for PostgreSQL.
    pub fn reusable(&self) -> u64 {
        self.reusable.load(Relaxed)
    }

    /// `store.primary.max_size`, bytes. 0 = no limit.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// The free space of the file system of an SQLite file, bytes. `None` = unknown, as for a PostgreSQL server.
    pub fn disk_free(&self) -> Option<u64> {
        known(&self.disk_free)
    }

    /// `store.primary.disk_reserve`, bytes. 0 = no reserve.
    pub fn disk_reserve(&self) -> u64 {
        self.disk_reserve.load(Relaxed)
    }

    /// Whether writes that enlarge the database are refused now.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Whether [`SizeMetrics::is_full`] is true because the file system is nearly full.
    pub fn is_disk_short(&self) -> bool {
        self.is_full() && self.is_disk_short.load(Relaxed)
    }

    /// Records the configured limits.
    pub(crate) fn limit_to(&self, limits: GrowthLimits) {
        self.limit.store(limits.max_size, Relaxed);
        self.disk_reserve.store(limits.disk_reserve, Relaxed);
    }

    /// Records the state of a budget, and logs when refusals begin and end.
    pub(crate) fn note(&self, budget: &GrowthBudget) {
        if let Some(reading) = budget.reading() {
            self.used.store(reading.used(), Relaxed);
            self.reusable.store(reading.reusable, Relaxed);
            self.disk_free.store(reading.disk_free.unwrap_or(UNKNOWN), Relaxed);
        }
        let full = budget.full();
        self.is_disk_short.store(full == Some(FullCause::Disk), Relaxed);
        self.is_full.store(full.is_some(), Relaxed);
        if !self.told.lock().tells(full.is_some(), Instant::now()) {
            return;
        }
        let (used, limit) = (self.used().unwrap_or_default(), self.limit());
        match full {
            Some(FullCause::Limit) => tracing::error!(
                used,
                limit,
                "the primary database has reached its maximum size: writes that enlarge it are refused (111); remove \
                 what is not needed, or raise store.primary.max_size; if that does not help, the room is in indexes \
                 and small tables: run touchline compact (--full for PostgreSQL)"
            ),
            Some(FullCause::Disk) => tracing::error!(
                free = self.disk_free().unwrap_or_default(),
                reserve = self.disk_reserve(),
                "the file system of the primary database is nearly full: writes that enlarge the database are refused \
                 (111); free space on the disk"
            ),
            None => tracing::info!(used, limit, "the primary database has room again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_flickers_is_told_once_in_a_while() {
        let (start, mut told) = (Instant::now(), ToldState::default());
        let lines = (0..30_000).filter(|n| told.tells(n % 2 == 0, start + Duration::from_millis(*n))).count();
        assert!((1..=3).contains(&lines), "{lines} in 30 seconds");
        let later = start + Duration::from_secs(60);
        let is_full = told.is_full;
        assert!(told.tells(!is_full, later), "what holds is told");
        assert!(!told.tells(!is_full, later + TOLD_INTERVAL), "and once");
    }
}
