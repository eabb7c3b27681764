//! Logs why requests to JetStream fail. Each cause is logged once in an outage, however many requests fail.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use touchline_lock::Lock;

/// Without a failure for this time, the next success ends the outage.
const QUIET: Duration = Duration::from_secs(5);
/// The maximum number of causes that are logged in one outage.
const CAUSES_MAX: usize = 8;

/// The outages of one kind of request.
pub(crate) struct OutageLog {
    /// The kind of requests, as named in the log.
    requests: &'static str,
    /// True during an outage. Successful requests check only this.
    is_on: AtomicBool,
    outage: Lock<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    causes: Vec<String>,
    failed: u64,
    last: Option<Instant>,
}

impl OutageLog {
    /// Creates a log. `requests` names the kind of requests in the plural.
    pub(crate) fn new(requests: &'static str) -> Self {
        OutageLog { requests, is_on: AtomicBool::new(false), outage: Lock::default() }
    }

    /// Records that a request failed. Its cause is logged if it is new in this outage.
    pub(crate) fn fail(&self, cause: &dyn Display) {
        if self.note(cause.to_string(), Instant::now()) {
            let requests = self.requests;
            tracing::warn!("{requests} fail: {cause}; further failures with this cause are counted, not logged");
        }
    }

    /// Records that a request succeeded.
    pub(crate) fn succeed(&self) {
        if self.is_on.load(Relaxed)
            && let Some(failed) = self.end(Instant::now())
        {
            tracing::info!(failed, "{} succeed again", self.requests);
        }
    }

    /// Counts a failure. Returns whether its cause is new in this outage.
    fn note(&self, cause: String, now: Instant) -> bool {
        let mut outage = self.outage.lock();
        self.is_on.store(true, Relaxed);
        outage.failed += 1;
        outage.last = Some(now);
        let is_new = outage.causes.len() < CAUSES_MAX && !outage.causes.contains(&cause);
        if is_new {
            outage.causes.push(cause);
        }
        is_new
    }

    /// The number of failed requests if the outage ends now. `None` = it does not end now.
    fn end(&self, now: Instant) -> Option<u64> {
        let mut outage = self.outage.lock();
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
