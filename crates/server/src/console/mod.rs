//! The state of the console: who has signed in, what was read of the counters, what is wrong, and what has changed.

mod activity;
mod lost;
mod problems;
mod role;
mod sample;
mod signed;
mod throttle;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use activity::{Activity, ActivityLog};
pub(crate) use lost::AbsentNodes;
pub(crate) use problems::{NATS_CUT, NODE_LOST, Problem, ProblemBook, ProblemSeverity, RUNBOOK, WatchedFacts};
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
    watch: Mutex<Watch>,
    throttle: Mutex<LoginThrottle>,
    pub(crate) activity: ActivityLog,
    lost: Mutex<AbsentNodes>,
    /// When somebody has asked last, Unix milliseconds.
    asked_ms: AtomicU64,
}

impl ConsoleState {
    /// What the node watches of itself.
    pub(crate) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes that have gone without a goodbye.
    pub(crate) fn lost(&self) -> MutexGuard<'_, AbsentNodes> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that somebody looks.
    pub(crate) fn note_look(&self, now_ms: u64) {
        self.asked_ms.store(now_ms, Relaxed);
    }

    /// Whether somebody has looked within this time, milliseconds.
    pub(crate) fn is_watched(&self, now_ms: u64, within_ms: u64) -> bool {
        now_ms.saturating_sub(self.asked_ms.load(Relaxed)) < within_ms
    }

    /// How often somebody may try a password.
    pub(crate) fn throttle(&self) -> MutexGuard<'_, LoginThrottle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
