//! Refused subscribes that the home remembers for a while. A session may unsubscribe before it receives the refusal.
//! The home must not mistake such an unsubscribe for one of a subscriber.

use std::collections::{BTreeMap, VecDeque};

use touchline_protocol::stream::ChannelName;

use crate::request::ConnectionId;

/// The greatest number of refused subscribes that a home remembers.
const REFUSED_MAX: usize = 100_000;
/// How long a refused subscribe is remembered, milliseconds.
const REFUSED_TTL_MS: u64 = 10_000;

/// A connection and the channel to which its subscribe was refused.
type RefusedKey = (ConnectionId, ChannelName);

/// The refused subscribes that a home remembers.
#[derive(Debug, Default)]
pub(super) struct RefusedSubscribes {
    /// When each was refused, Unix milliseconds.
    times: BTreeMap<RefusedKey, u64>,
    /// The same entries in the order of the times. An entry whose time is not in `times` is void.
    order: VecDeque<(u64, RefusedKey)>,
}

impl RefusedSubscribes {
    /// Remembers for a while that a subscribe was refused. Amortised O(1).
    pub(super) fn note(&mut self, connection: ConnectionId, channel: &ChannelName, now_ms: u64) {
        while let Some((at_ms, _)) = self.order.front()
            && (at_ms + REFUSED_TTL_MS <= now_ms || self.order.len() >= REFUSED_MAX)
        {
            let Some((at_ms, key)) = self.order.pop_front() else { break };
            if self.times.get(&key) == Some(&at_ms) {
                self.times.remove(&key);
            }
        }
        let key = (connection, channel.clone());
        self.order.push_back((now_ms, key.clone()));
        self.times.insert(key, now_ms);
    }

    /// Whether a subscribe of this connection to this channel was refused recently. Forgets the refusal.
    pub(super) fn take(&mut self, connection: ConnectionId, channel: &ChannelName) -> bool {
        !self.times.is_empty() && self.times.remove(&(connection, channel.clone())).is_some()
    }
}
