//! The state of the console: its sign-ins, the readings of the counters, the problems, and the changes.

mod activity;
mod lost;
mod problems;
mod role;
mod sample;
mod signed;
mod throttle;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use touchline_lock::{Lock, LockGuard};

pub(crate) use activity::{Activity, ActivityLog};
pub(crate) use lost::AbsentNodes;
pub(crate) use problems::{
    NATS_CUT, NODE_LOST, PrimarySize, Problem, ProblemBook, ProblemSeverity, RUNBOOK, WatchedFacts,
};
pub(crate) use role::ConsoleRole;
pub(crate) use sample::{HOUR_STEP_MS, Sample, Samples};
pub(crate) use signed::{ConsoleSession, ConsoleSigner, SESSION_TIME, TOKEN_TIME};
pub(crate) use throttle::LoginThrottle;

/// What a node watches of itself.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) samples: Samples,
    pub(crate) problems: ProblemBook,
}

/// The state of the console of a node.
#[derive(Debug, Default)]
pub(crate) struct ConsoleState {
    watch: Lock<Watch>,
    throttle: Lock<LoginThrottle>,
    pub(crate) activity: ActivityLog,
    lost: Lock<AbsentNodes>,
    /// The number of live connections.
    pub(crate) live: AtomicUsize,
    /// When the console last asked for something, in Unix milliseconds.
    asked_ms: AtomicU64,
}

impl ConsoleState {
    /// Returns what the node watches of itself.
    pub(crate) fn watch(&self) -> LockGuard<'_, Watch> {
        self.watch.lock()
    }

    /// Returns the nodes that have gone without a goodbye.
    pub(crate) fn lost(&self) -> LockGuard<'_, AbsentNodes> {
        self.lost.lock()
    }

    /// Notes that the console is in use.
    pub(crate) fn note_look(&self, now_ms: u64) {
        self.asked_ms.store(now_ms, Relaxed);
    }

    /// Whether the console was in use within this time, in milliseconds.
    pub(crate) fn is_watched(&self, now_ms: u64, within_ms: u64) -> bool {
        now_ms.saturating_sub(self.asked_ms.load(Relaxed)) < within_ms
    }

    /// Returns the limit of password attempts.
    pub(crate) fn throttle(&self) -> LockGuard<'_, LoginThrottle> {
        self.throttle.lock()
    }
}
