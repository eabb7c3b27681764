//! The opening of all subscribers: so many at a time, each timed from its first packet to its subscription.

use std::time::{Duration, Instant};

use super::messages::WorkerReport;
use crate::ledger::{Ledger, Times};

/// An opening that makes no progress for so long has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Opener {
    concurrency: usize,
    began: Instant,
    progressed: Instant,
    /// Subscribers that have been dialled.
    dialled: usize,
    open: usize,
    failed: usize,
    first_failure: Option<String>,
    times: Times,
}

impl Opener {
    pub(super) fn new(concurrency: usize) -> Self {
        let now = Instant::now();
        Opener {
            concurrency,
            began: now,
            progressed: now,
            dialled: 0,
            open: 0,
            failed: 0,
            first_failure: None,
            times: Times::default(),
        }
    }

    /// The next subscriber to dial, if there is room.
    pub(super) fn next(&mut self, total: usize) -> Option<usize> {
        if self.dialled >= total || self.dialled - self.finished() >= self.concurrency {
            return None;
        }
        self.dialled += 1;
        Some(self.dialled - 1)
    }

    pub(super) fn done(&mut self, took_us: u64) {
        self.open += 1;
        self.times.record(took_us);
        self.progressed = Instant::now();
    }

    pub(super) fn failed(&mut self, why: String) {
        self.failed += 1;
        self.first_failure.get_or_insert(why);
        self.progressed = Instant::now();
    }

    pub(super) fn finished(&self) -> usize {
        self.open + self.failed
    }

    /// Whether all are open, or have failed. `stages`: how far those are that are under way, for people.
    pub(super) fn is_over(&mut self, total: usize, stages: impl FnOnce() -> String) -> bool {
        if self.finished() < total && self.progressed.elapsed() > TIMEOUT {
            self.failed = total - self.open;
            self.first_failure.get_or_insert_with(|| format!("no progress for 20 seconds: {}", stages()));
        }
        self.finished() >= total
    }

    /// `first_closing`: why the first connection ended that was open.
    pub(super) fn report(&mut self, ledger: &mut Ledger, first_closing: Option<String>) -> WorkerReport {
        WorkerReport::Opened {
            open: self.open,
            failed: self.failed,
            first_failure: self.first_failure.take(),
            recovered: ledger.delivered,
            wrongs: std::mem::take(&mut ledger.wrongs),
            first_closing,
            times: self.times.to_pairs(),
            seconds: self.progressed.duration_since(self.began).as_secs_f64(),
        }
    }
}
