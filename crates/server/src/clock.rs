//! The node's clock: Unix time that never steps, because it is read once and then carried by the monotonic clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A tenth of a second, microseconds.
pub(crate) const TENTH_US: u64 = 100_000;

/// A time of the node's clock, microseconds, in tenths of a second: for what needs few bytes and lasts seconds. Good for 13 years.
pub(crate) fn tenths(elapsed_us: u64) -> u32 {
    (elapsed_us / TENTH_US) as u32
}

/// Tells the time since it was made, and the Unix time that follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    /// Unix microseconds.
    started_unix_us: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let started_unix_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        Clock { started: Instant::now(), started_unix_us }
    }

    /// Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.unix_ms(self.elapsed_us())
    }

    /// Unix milliseconds of a time in microseconds since the node started.
    pub(crate) fn unix_ms(&self, elapsed_us: u64) -> u64 {
        (self.started_unix_us + elapsed_us) / 1_000
    }

    /// Unix milliseconds of a time in tenths of a second since the node started.
    pub(crate) fn at(&self, tenths: u32) -> u64 {
        self.unix_ms(u64::from(tenths) * TENTH_US)
    }

    /// Microseconds since the node started.
    pub(crate) fn elapsed_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}
