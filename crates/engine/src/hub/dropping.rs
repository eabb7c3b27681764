//! Channels in which publications are dropped while they wait for slow subscribers.

use super::{Hub, LocalChannel};

impl Hub {
    /// Takes a reference to a channel by name, as [`Hub::acquire`] does. `age_us`: how long a publication may wait for
    /// a slow subscriber before it is dropped, microseconds; `None` = it is not dropped.
    pub fn acquire_dropping(&mut self, name: &str, age_us: Option<u64>) -> LocalChannel {
        let channel = self.acquire(name);
        self.audience_mut(channel).drop_after_us = age_us;
        channel
    }

    /// How long a publication may wait for a slow subscriber before it is dropped, microseconds; `None` = it is not
    /// dropped.
    pub fn drop_after_us(&self, channel: LocalChannel) -> Option<u64> {
        self.audience(channel).drop_after_us
    }
}
