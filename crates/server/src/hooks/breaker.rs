//! The circuit breaker of a backend: a backend that fails too often is not asked for a moment.
//!
//! Only failures count: no connection, no answer in time, or a status of 500 and above. A slow answer is not a failure.

/// The length of the window in which calls are counted, in milliseconds.
const WINDOW_MS: u64 = 10_000;
/// The number of parts of the window.
const PARTS: usize = 10;
/// The breaker does not open with fewer calls than this in the window.
const CALLS_MIN: u32 = 20;
/// How long an open breaker refuses all calls, in milliseconds. Then one call tries the backend.
const PAUSE_MS: u64 = 1_000;

/// The calls in one part of the window.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// The number of the part since the Unix epoch.
    number: u64,
    calls: u32,
    failures: u32,
}

/// The breaker of one backend. Times are Unix milliseconds.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    parts: [Part; PARTS],
    /// When the next call may try the backend; None = the breaker is closed.
    next_try_ms: Option<u64>,
}

impl Breaker {
    /// Whether a call may be made now. A call that may be made while the breaker is open tries the backend, and the
    /// others wait for the next try.
    pub(super) fn allows(&mut self, now_ms: u64) -> bool {
        match &mut self.next_try_ms {
            None => true,
            // A clock that was set back must not keep the breaker open for long.
            Some(at_ms) if *at_ms <= now_ms || *at_ms > now_ms + PAUSE_MS => {
                *at_ms = now_ms + PAUSE_MS;
                true
            }
            Some(_) => false,
        }
    }

    /// Whether the breaker is open.
    pub(super) fn is_open(&self) -> bool {
        self.next_try_ms.is_some()
    }

    /// Counts a call that has ended.
    pub(super) fn note(&mut self, has_failed: bool, now_ms: u64) {
        if self.is_open() {
            if !has_failed {
                *self = Breaker::default();
            }
            return;
        }
        let number = now_ms / (WINDOW_MS / PARTS as u64);
        let part = &mut self.parts[(number % PARTS as u64) as usize];
        if part.number != number {
            *part = Part { number, ..Part::default() };
        }
        part.calls += 1;
        part.failures += u32::from(has_failed);
        let recent = self.parts.iter().filter(|part| part.number + PARTS as u64 > number && part.number <= number);
        let (calls, failures) = recent.fold((0, 0), |sum, part| (sum.0 + part.calls, sum.1 + part.failures));
        if calls >= CALLS_MIN && failures * 2 >= calls {
            self.next_try_ms = Some(now_ms + PAUSE_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_000_000_000;

    #[test]
    fn half_of_twenty_failures_open_it_and_one_success_closes_it() {
        let mut breaker = Breaker::default();
        for number in 0..20 {
            assert!(breaker.allows(NOW), "{number}");
            breaker.note(number % 2 == 0, NOW);
        }
        assert!(breaker.is_open());
        assert!(!breaker.allows(NOW + PAUSE_MS - 1));
        assert!(breaker.allows(NOW + PAUSE_MS), "one tries");
        assert!(!breaker.allows(NOW + PAUSE_MS), "and no other");
        breaker.note(true, NOW + PAUSE_MS + 10);
        assert!(breaker.is_open());
        assert!(breaker.allows(NOW + 2 * PAUSE_MS));
        breaker.note(false, NOW + 2 * PAUSE_MS + 1);
        assert!(!breaker.is_open() && breaker.allows(NOW + 2 * PAUSE_MS + 1));
    }

    #[test]
    fn old_failures_do_not_count() {
        let mut breaker = Breaker::default();
        (0..19).for_each(|_| breaker.note(true, NOW));
        breaker.note(true, NOW + WINDOW_MS);
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_close_the_way() {
        let mut breaker = Breaker::default();
        (0..20).for_each(|_| breaker.note(true, NOW));
        assert!(breaker.allows(NOW - 3_600_000));
    }

    proptest! {
        /// The breaker opens exactly when at least twenty calls ended within the window and half of them failed, to the
        /// precision of a part.
        #[test]
        fn it_opens_as_a_plain_count_says(calls in proptest::collection::vec((0_u64..2_000, any::<bool>()), 1..200)) {
            let (mut breaker, mut now_ms, mut seen) = (Breaker::default(), NOW, Vec::new());
            for (later_ms, has_failed) in calls {
                now_ms += later_ms;
                if breaker.is_open() {
                    return Ok(());
                }
                breaker.note(has_failed, now_ms);
                seen.push((now_ms / 1_000, has_failed));
                let recent: Vec<_> = seen.iter().filter(|(part, _)| part + 10 > now_ms / 1_000).collect();
                let failures = recent.iter().filter(|(_, has_failed)| *has_failed).count();
                prop_assert_eq!(breaker.is_open(), recent.len() >= 20 && failures * 2 >= recent.len());
            }
        }
    }
}
