//! The node's clock: Unix time that never steps, because it is read once and then carried by the monotonic clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time since it was made, and the Unix time that follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    started_unix: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { started: Instant::now(), started_unix }
    }

    /// Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        (self.started_unix + self.started.elapsed()).as_millis() as u64
    }

    /// Tenths of a second since the node started.
    pub(crate) fn tenths(&self) -> u32 {
        (self.started.elapsed().as_millis() / 100) as u32
    }

    /// Unix milliseconds of a time in tenths of a second since the node started.
    pub(crate) fn at(&self, tenths: u32) -> u64 {
        (self.started_unix + Duration::from_millis(u64::from(tenths) * 100)).as_millis() as u64
    }

    /// Microseconds since the node started.
    pub(crate) fn elapsed_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}
