//! The minute statistics of a shard: audiences and traffic by the minute. The shard counts a finished minute in small
//! parts, one at each tick, so that the count delays nothing else.

use std::collections::HashMap;
use std::sync::Arc;

use touchline_engine::{Channels, Hub};
use touchline_protocol::stream::ChannelName;
use touchline_store::sketch::{Sketch, hash};
use touchline_store::stats::{Row, Stats};

use super::connections::Connections;

/// How many subscribers and channels the count visits in one tick at most.
const VISITS_MAX: usize = 5_000;
const MINUTE_MS: u64 = 60_000;

/// What a shard counts, and where it writes the rows.
pub(super) struct Audience<'s> {
    pub(super) hub: &'s mut Hub,
    pub(super) channels: &'s mut Channels,
    pub(super) connections: &'s Connections,
    pub(super) stats: &'s Stats,
}

/// The statistics of the current minute, and of the last one until it is counted.
pub(super) struct MinuteStats {
    /// The current minute, in minutes since the Unix epoch.
    minute: u64,
    /// The name of this shard, unique among all nodes.
    part: Arc<str>,
    /// The users that have left each channel in this minute.
    left: HashMap<ChannelName, Sketch>,
    /// Publications and deliveries of this minute, by namespace.
    traffic: HashMap<Box<str>, (u64, u64)>,
    /// The count of the last minute; None = it is finished.
    count: Option<MinuteCount>,
}

/// The count of a finished minute, while it is under way.
struct MinuteCount {
    minute: u64,
    /// The current and the peak number of subscribers, for the channels whose home is this shard and that are not
    /// counted yet.
    at_home: HashMap<ChannelName, (u64, u64)>,
    left: HashMap<ChannelName, Sketch>,
    /// The index in the hub of the channel that is visited next.
    index: u32,
    /// The first index of channels that were added after the minute.
    end: u32,
    /// The channel whose visit is under way: its name, how many of its subscribers are left, and its users so far.
    channel: Option<(ChannelName, usize, Sketch)>,
    /// Channels without a subscriber here: their home is this shard, or their last subscriber has left. None until the
    /// other channels are counted.
    rest: Option<Vec<ChannelName>>,
}

impl MinuteStats {
    pub(super) fn new(part: Arc<str>, now_ms: u64) -> Self {
        MinuteStats { minute: now_ms / MINUTE_MS, part, left: HashMap::new(), traffic: HashMap::new(), count: None }
    }

    /// Counts a publication.
    pub(super) fn published(&mut self, namespace: &str) {
        self.add_traffic(namespace, 1, 0);
    }

    /// Counts deliveries in a namespace.
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

    /// Adds the users that have left channels. It must be called while their connections still exist.
    pub(super) fn note_leavers(&mut self, hub: &mut Hub, connections: &Connections) {
        for (channel, slot) in hub.leavers() {
            self.left.entry(channel).or_default().add(user_of(connections, slot));
        }
    }

    /// Begins to count a minute that has ended, and continues a count under way.
    pub(super) fn tick(&mut self, now_ms: u64, audience: &mut Audience<'_>) {
        let minute = now_ms / MINUTE_MS;
        if self.minute != minute {
            self.turn_minute(minute, audience);
        }
        self.count_some(VISITS_MAX, audience);
    }

    /// Counts the rest of the last minute and the current one, because the node stops.
    pub(super) fn finish(&mut self, now_ms: u64, audience: &mut Audience<'_>) {
        self.count_some(usize::MAX, audience);
        self.turn_minute(now_ms / MINUTE_MS, audience);
        self.count_some(usize::MAX, audience);
    }

    fn turn_minute(&mut self, next: u64, audience: &mut Audience<'_>) {
        // A count that did not finish within a whole minute is dropped.
        let minute = std::mem::replace(&mut self.minute, next);
        for (namespace, (publications, deliveries)) in self.traffic.drain() {
            audience.stats.record(Row::Traffic {
                minute,
                namespace,
                part: Arc::clone(&self.part),
                publications,
                deliveries,
            });
        }
        let at_home = audience.channels.take_subscriber_counts().into_iter().collect();
        let left = std::mem::take(&mut self.left);
        self.count = Some(MinuteCount {
            minute,
            at_home,
            left,
            index: 0,
            end: audience.hub.capacity(),
            channel: None,
            rest: None,
        });
    }

    fn count_some(&mut self, mut visits: usize, audience: &Audience<'_>) {
        let Audience { hub, connections, stats, .. } = audience;
        let Some(count) = &mut self.count else { return };
        while visits > 0 && count.index < count.end {
            visits -= 1;
            let local = hub.at(count.index);
            let is_same = |name: &ChannelName| local.is_some_and(|local| hub.name(local) == name);
            let (name, end, mut users) = match (count.channel.take().filter(|(name, ..)| is_same(name)), local) {
                (Some(under_way), _) => under_way,
                (None, Some(local)) => (hub.name(local).clone(), usize::MAX, Sketch::default()),
                (None, None) => {
                    count.index += 1;
                    continue;
                }
            };
            let Some(local) = local else { continue };
            // From the end on: at worst a subscriber that moves into the slot of one that leaves is visited twice.
            let subscribers = hub.subscribers(local);
            let end = end.min(hub.subscriber_count(local));
            let start = end.saturating_sub(visits);
            subscribers.skip(start).take(end - start).for_each(|slot| users.add(user_of(connections, slot)));
            visits -= (end - start).min(visits);
            if start > 0 {
                count.channel = Some((name, start, users));
                continue;
            }
            count.record(name, users, &self.part, stats);
            count.index += 1;
        }
        while visits > 0 && count.index >= count.end {
            visits -= 1;
            let Some(name) = count.next_of_rest() else {
                self.count = None;
                return;
            };
            count.record(name, Sketch::default(), &self.part, stats);
        }
    }
}

impl MinuteCount {
    /// The next channel without a subscriber here; None = all are counted.
    fn next_of_rest(&mut self) -> Option<ChannelName> {
        let MinuteCount { at_home, left, rest, .. } = self;
        let all = || at_home.keys().chain(left.keys().filter(|name| !at_home.contains_key(*name))).cloned().collect();
        rest.get_or_insert_with(all).pop()
    }

    fn record(&mut self, channel: ChannelName, mut users: Sketch, part: &Arc<str>, stats: &Stats) {
        let (current, peak) = self.at_home.remove(&channel).unwrap_or_default();
        if let Some(left) = self.left.remove(&channel) {
            users.unite(&left);
        }
        // The channel may exist without ever having had a subscriber.
        if peak > 0 || users != Sketch::default() {
            stats.record(Row::Audience { minute: self.minute, channel, part: Arc::clone(part), current, peak, users });
        }
    }
}

/// The hash of a connection's user. An anonymous connection has the hash of its client id, so that it counts
/// separately. 0 = there is no connection in this slot.
fn user_of(connections: &Connections, slot: u32) -> u64 {
    connections.get(slot).map_or(0, |connection| match connection.session.user() {
        "" => hash(&connection.session.owner().0),
        user => hash(user.as_bytes()),
    })
}
