//! What a shard remembers for the statistics: audiences and traffic by the minute. A minute that is over is counted bit
//! by bit, so that nobody waits for it.

use std::collections::HashMap;
use std::sync::Arc;

use touchline_protocol::stream::ChannelName;
use touchline_store::sketch::{Sketch, hash};
use touchline_store::stats::{Row, Stats};

use super::Shard;
use super::connections::Connections;

/// Listeners and channels looked at in one tick.
const LOOKS: usize = 5_000;
const MINUTE_MS: u64 = 60_000;

/// What is going on in this minute, and the last one as far as it is not counted yet.
pub(super) struct MinuteStats {
    minute: u64,
    /// This shard, as no other of any node is called.
    part: Arc<str>,
    /// Users who have left a channel in this minute.
    left: HashMap<ChannelName, Sketch>,
    /// Publications and deliveries by namespace.
    traffic: HashMap<Box<str>, (u64, u64)>,
    count: Option<Count>,
}

/// A minute that is being counted.
struct Count {
    minute: u64,
    /// Subscribers now and at most, of the channels at home here.
    at_home: HashMap<ChannelName, (u64, u64)>,
    left: HashMap<ChannelName, Sketch>,
    /// The channel of the hub that is looked at, its name, and how many of its listeners are left to be looked at.
    index: u32,
    /// Channels behind this one have come later.
    end: u32,
    channel: Option<(ChannelName, usize, Sketch)>,
    /// Channels without a listener here: at home here, or left by the last one. None until the others are counted.
    rest: Option<Vec<ChannelName>>,
}

impl MinuteStats {
    pub(super) fn new(part: Arc<str>, now_ms: u64) -> Self {
        MinuteStats { minute: now_ms / MINUTE_MS, part, left: HashMap::new(), traffic: HashMap::new(), count: None }
    }

    pub(super) fn published(&mut self, namespace: &str) {
        self.add_traffic(namespace, 1, 0);
    }

    pub(super) fn delivered(&mut self, namespace: &str, deliveries: u64) {
        self.add_traffic(namespace, 0, deliveries);
    }

    fn add_traffic(&mut self, namespace: &str, publications: u64, deliveries: u64) {
        if let Some(traffic) = self.traffic.get_mut(namespace) {
            *traffic = (traffic.0 + publications, traffic.1 + deliveries);
        } else {
            self.traffic.insert(namespace.into(), (publications, deliveries));
        }
    }
}

impl Shard {
    /// Notes who has left which channel. Call it while their connections are still there.
    pub(super) fn note_leavers(&mut self) {
        let Shard { hub, census, connections, .. } = self;
        let Some(census) = census else { return };
        for (channel, slot) in hub.leavers() {
            census.left.entry(channel.into()).or_default().add(user_of(connections, slot));
        }
    }

    /// Begins to count a minute that is over, and goes on counting.
    pub(super) fn tick_minute_stats(&mut self) {
        let minute = self.now_ms / MINUTE_MS;
        if self.census.as_ref().is_some_and(|census| census.minute != minute) {
            self.turn_minute(minute);
        }
        self.count_some(LOOKS);
    }

    /// Counts what there is of this minute: the node stops.
    pub(super) fn finish_minute_stats(&mut self) {
        self.count_some(usize::MAX);
        self.turn_minute(self.now_ms / MINUTE_MS);
        self.count_some(usize::MAX);
    }

    fn turn_minute(&mut self, next: u64) {
        // What could not be counted within a whole minute is given up.
        let (Some(census), Some(stats)) = (&mut self.census, self.node.stats()) else { return };
        let minute = std::mem::replace(&mut census.minute, next);
        for (namespace, (publications, deliveries)) in census.traffic.drain() {
            stats.record(Row::Traffic { minute, namespace, part: Arc::clone(&census.part), publications, deliveries });
        }
        let (at_home, left) = (self.channels.audiences(), std::mem::take(&mut census.left));
        census.count =
            Some(Count { minute, at_home, left, index: 0, end: self.hub.capacity(), channel: None, rest: None });
    }

    fn count_some(&mut self, mut looks: usize) {
        let Shard { hub, census, connections, node, .. } = self;
        let (Some(census), Some(stats)) = (census, node.stats()) else { return };
        let Some(count) = &mut census.count else { return };
        while looks > 0 && count.index < count.end {
            looks -= 1;
            let local = hub.at(count.index);
            let is_same = |name: &ChannelName| local.is_some_and(|local| hub.name(local) == name);
            let (name, end, mut users) = match (count.channel.take().filter(|(name, ..)| is_same(name)), local) {
                (Some(going_on), _) => going_on,
                (None, Some(local)) => (hub.name(local).clone(), usize::MAX, Sketch::default()),
                (None, None) => {
                    count.index += 1;
                    continue;
                }
            };
            let Some(local) = local else { continue };
            // From the end on: who takes the place of somebody who leaves has been looked at, at worst, twice.
            let listeners = hub.subscribers(local);
            let end = end.min(hub.subscriber_count(local));
            let start = end.saturating_sub(looks);
            listeners.skip(start).take(end - start).for_each(|slot| users.add(user_of(connections, slot)));
            looks -= (end - start).min(looks);
            if start > 0 {
                count.channel = Some((name, start, users));
                continue;
            }
            count.record(name, users, &census.part, stats);
            count.index += 1;
        }
        while looks > 0 && count.index >= count.end {
            looks -= 1;
            let Some(name) = count.next_of_rest() else {
                census.count = None;
                return;
            };
            count.record(name, Sketch::default(), &census.part, stats);
        }
    }
}

impl Count {
    fn next_of_rest(&mut self) -> Option<ChannelName> {
        let Count { at_home, left, rest, .. } = self;
        let all = || at_home.keys().chain(left.keys().filter(|name| !at_home.contains_key(*name))).cloned().collect();
        rest.get_or_insert_with(all).pop()
    }

    fn record(&mut self, channel: ChannelName, mut users: Sketch, part: &Arc<str>, stats: &Stats) {
        let (current, peak) = self.at_home.remove(&channel).unwrap_or_default();
        if let Some(left) = self.left.remove(&channel) {
            users.unite(&left);
        }
        // Somebody may be about to come, and nobody have been there.
        if peak > 0 || users != Sketch::default() {
            stats.record(Row::Audience { minute: self.minute, channel, part: Arc::clone(part), current, peak, users });
        }
    }
}

/// The user of a connection; without one every connection counts by itself.
fn user_of(connections: &Connections, slot: u32) -> u64 {
    connections.get(slot).map_or(0, |connection| match connection.session.user() {
        "" => hash(&connection.session.owner().0),
        user => hash(user.as_bytes()),
    })
}
