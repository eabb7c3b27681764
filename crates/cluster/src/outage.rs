//! Why requests to JetStream fail, in the log: each cause once in an outage, however many requests meet it.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Without a failure for so long, the next success ends the outage.
const QUIET: Duration = Duration::from_secs(5);
/// Causes that are told in one outage.
const CAUSES_MAX: usize = 8;

/// The outages of one kind of requests.
pub(crate) struct OutageLog {
    /// What fails, as the log names it.
    requests: &'static str,
    /// There is an outage: what succeeds looks at this alone.
    is_on: AtomicBool,
    outage: Mutex<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    causes: Vec<String>,
    failed: u64,
    last: Option<Instant>,
}

impl OutageLog {
    /// A log of what fails; `requests` names it, in the plural.
    pub(crate) fn new(requests: &'static str) -> Self {
        OutageLog { requests, is_on: AtomicBool::new(false), outage: Mutex::default() }
    }

    /// A request has failed: its cause is logged if this outage had it not.
    pub(crate) fn fail(&self, cause: &dyn Display) {
        if self.note(cause.to_string(), Instant::now()) {
            let requests = self.requests;
            tracing::warn!("{requests} fail: {cause}; the next ones with this cause are counted and not logged");
        }
    }

    /// A request has succeeded.
    pub(crate) fn succeed(&self) {
        if self.is_on.load(Relaxed)
            && let Some(failed) = self.end(Instant::now())
        {
            tracing::info!(failed, "{} succeed again", self.requests);
        }
    }

    /// Counts a failure; whether its cause is new in this outage.
    fn note(&self, cause: String, now: Instant) -> bool {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_on.store(true, Relaxed);
        outage.failed += 1;
        outage.last = Some(now);
        let is_new = outage.causes.len() < CAUSES_MAX && !outage.causes.contains(&cause);
        if is_new {
            outage.causes.push(cause);
        }
        is_new
    }

    /// How many requests have failed, if the outage has ended now.
    fn end(&self, now: Instant) -> Option<u64> {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let last = outage.last?;
        if now.saturating_duration_since(last) < QUIET {
            return None;
        }
        self.is_on.store(false, Relaxed);
        Some(std::mem::take(&mut *outage).failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_in_an_outage_and_again_in_the_next() {
        let (log, began) = (OutageLog::new("publications"), Instant::now());
        assert!(log.note("full".into(), began));
        for _ in 0..100 {
            assert!(!log.note("full".into(), began), "the same cause is counted alone");
        }
        assert!(log.note("away".into(), began), "another cause is told");
        assert_eq!(log.end(began + QUIET / 2), None, "some succeed while others fail");
        assert!(!log.note("full".into(), began + QUIET / 2));
        assert_eq!(log.end(began + QUIET * 2), Some(103));
        assert_eq!(log.end(began + QUIET * 2), None, "it has ended");
        assert!(log.note("full".into(), began + QUIET * 3), "a new outage");
    }

    #[test]
    fn an_outage_with_endless_causes_is_bounded() {
        let (log, now) = (OutageLog::new("publications"), Instant::now());
        let told = (0..100).filter(|cause| log.note(cause.to_string(), now)).count();
        assert_eq!(told, CAUSES_MAX);
    }
}
