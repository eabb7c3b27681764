//! When channels close automatically, by time and by channel.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use touchline_protocol::stream::ChannelName;
use touchline_registry::{HashSeed, SipState, spare_capacity};

/// The times at which channels close, Unix milliseconds. Each channel has at most one.
#[derive(Debug)]
pub(super) struct DueClosings {
    by_time: BTreeSet<(u64, ChannelName)>,
    by_channel: IndexMap<ChannelName, u64, SipState>,
}

impl DueClosings {
    pub(super) fn new(seed: HashSeed) -> Self {
        DueClosings { by_time: BTreeSet::new(), by_channel: IndexMap::with_hasher(seed.sip()) }
    }

    /// Sets when a channel closes; `None` = it does not close automatically.
    pub(super) fn set(&mut self, channel: &ChannelName, at_ms: Option<u64>) {
        let before = match at_ms {
            Some(at_ms) => self.by_channel.insert(channel.clone(), at_ms),
            None => self.by_channel.swap_remove(channel),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, channel.clone()));
        }
        if let Some(at_ms) = at_ms {
            self.by_time.insert((at_ms, channel.clone()));
        } else if let Some(capacity) = spare_capacity(self.by_channel.len(), self.by_channel.capacity()) {
            self.by_channel.shrink_to(capacity);
        }
    }

    /// The first time; `None` = no channel closes automatically.
    pub(super) fn first_ms(&self) -> Option<u64> {
        self.by_time.first().map(|(at_ms, _)| *at_ms)
    }

    /// Removes and returns the first channel whose time has come, with that time.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<(u64, ChannelName)> {
        let (at_ms, channel) = self.by_time.first().filter(|(at_ms, _)| *at_ms <= now_ms).cloned()?;
        self.set(&channel, None);
        Some((at_ms, channel))
    }
}
