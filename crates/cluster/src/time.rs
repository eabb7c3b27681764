//! The clock, the timers and the random numbers of the link. A simulation has its own.

#[cfg(not(test))]
use std::collections::hash_map::RandomState;
#[cfg(not(test))]
use std::hash::BuildHasher as _;
use std::time::Duration;

pub(crate) use tokio::time::Instant;
#[cfg(not(test))]
pub(crate) use tokio::time::{sleep, sleep_until, timeout, timeout_at};

#[cfg(test)]
pub(crate) use crate::tests::simulation::time::{new_id, now, sleep, sleep_until, timeout, timeout_at};

/// The present time.
#[cfg(not(test))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// An id of 40 random bits, which an epoch shows as eight letters.
#[cfg(not(test))]
pub(crate) fn new_id() -> u64 {
    const BITS: u32 = 40;
    RandomState::new().hash_one(0) >> (u64::BITS - BITS)
}

/// Ticks with a fixed interval. A late tick delays those after it.
pub(crate) struct Ticks {
    interval: Duration,
    next: Instant,
}

impl Ticks {
    /// The first tick comes at once.
    pub(crate) fn new(interval: Duration) -> Self {
        Ticks { interval, next: now() }
    }

    /// Waits for the next tick. It may be dropped at any time.
    pub(crate) async fn tick(&mut self) {
        sleep_until(self.next).await;
        self.next = now() + self.interval;
    }
}
