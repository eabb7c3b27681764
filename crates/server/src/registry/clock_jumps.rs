//! Distinguishes a clock that was set from a process that stood still. The registry treats a jump of its time as a
//! standstill. A clock that was set while the process continued to run is not one.

use std::time::{Duration, Instant};

use touchline_clock::Clock;

/// A smaller difference is rounding, in milliseconds.
const STEP_MIN_MS: u64 = 200;

/// The clocks as last read.
pub(crate) struct ClockJumps {
    /// The time from which [`suspended`] measures how long the machine ran.
    origin: Instant,
    clock: Clock,
    at: Instant,
    now_ms: u64,
    /// The result of [`suspended`] when the clocks were last read.
    suspended: Duration,
}

impl ClockJumps {
    pub(crate) fn new(clock: &Clock, now_ms: u64) -> Self {
        // real time: it is compared with the uptime of the machine.
        let origin = Instant::now();
        ClockJumps { origin, clock: clock.clone(), at: clock.now(), now_ms, suspended: suspended(origin) }
    }

    /// By how many milliseconds the node's clock was set ahead since the last call. None = it was not, or the process
    /// stood still.
    pub(crate) fn check(&mut self, now_ms: u64) -> Option<u64> {
        let at = self.clock.now();
        let passed_ms = at.duration_since(self.at).as_millis() as u64;
        let step_ms = now_ms.saturating_sub(self.now_ms).saturating_sub(passed_ms);
        (self.at, self.now_ms) = (at, now_ms);
        if step_ms < STEP_MIN_MS {
            return None;
        }
        let before = std::mem::replace(&mut self.suspended, suspended(self.origin));
        let slept_ms = self.suspended.saturating_sub(before).as_millis() as u64;
        Some(step_ms.saturating_sub(slept_ms)).filter(|step_ms| *step_ms >= STEP_MIN_MS)
    }
}

/// The time since the machine started, minus the time that it ran since `origin`. `/proc/uptime` counts suspensions,
/// and the monotonic clock does not. Only differences of the result are meaningful.
fn suspended(origin: Instant) -> Duration {
    let uptime = std::fs::read_to_string("/proc/uptime").ok();
    let seconds = uptime.as_deref().and_then(|text| text.split(' ').next()?.parse::<f64>().ok()).unwrap_or_default();
    Duration::try_from_secs_f64(seconds).unwrap_or_default().saturating_sub(origin.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_differs_from_time_that_passes() {
        let mut steps = ClockJumps::new(&Clock::system(), 1_000_000);
        assert_eq!(steps.check(1_000_000), None);
        let step_ms = steps.check(1_020_000).expect("nothing else can have taken that long");
        assert!((19_000..=20_000).contains(&step_ms), "{step_ms}");
        assert_eq!(steps.check(1_020_010), None, "the step is reported once");
        assert_eq!(steps.check(1_010_000), None, "a clock that goes back is not set ahead");
    }
}
