//! The subscribers of a channel: on which shards they are, and how many there were.

use indexmap::IndexMap;
use touchline_protocol::stream::{ChannelName, StreamPosition};

use super::backend::Submitted;
use super::table::Channels;
use crate::events::{HeldChanges, StateKey};
use crate::namespace::ChannelOptions;
use crate::request::{ConnectionId, Response, Subscribe, Subscribed};

/// What a home knows about one of its channels.
#[derive(Debug, Clone)]
pub struct ChannelFacts {
    /// The number of connections of this node that subscribe to the channel.
    pub subscribers: u64,
    /// The top of the channel's log; `None` = the channel has no log.
    pub position: Option<StreamPosition>,
    /// The number of publications of the log that are in memory.
    pub kept: usize,
    /// `idle` (the log is in memory, or the home does not follow it), `loading`, `live` or `failed`.
    pub state: &'static str,
}

impl Channels {
    /// The channels that have at least one subscriber: name and number of subscribers.
    pub fn active(&self) -> impl Iterator<Item = (&ChannelName, u64)> {
        let counted = self.table.values().map(|c| (&c.name, c.subscribers.iter().map(|n| u64::from(*n)).sum::<u64>()));
        counted.filter(|(_, subscribers)| *subscribers > 0)
    }

    /// What is known about one channel; `None` = the channel has neither subscribers nor a log in memory.
    pub fn facts(&self, name: &str) -> Option<ChannelFacts> {
        let channel = self.table.get(name)?;
        Some(ChannelFacts {
            subscribers: channel.subscribers.iter().map(|n| u64::from(*n)).sum(),
            position: channel.log.as_ref().map(|log| log.ring.position()),
            kept: channel.log.as_ref().map_or(0, |log| log.ring.len()),
            state: channel.sync.as_str(),
        })
    }

    /// From now on also counts the audiences of channels that are forgotten.
    pub fn counting_audiences(mut self) -> Self {
        self.forgotten_peaks = Some(IndexMap::with_hasher(*self.table.hasher()));
        self
    }

    /// From now on notes which channels get their first subscriber and lose their last.
    pub fn noting_held(mut self) -> Self {
        self.note_held(|_| false);
        self
    }

    /// The same when channels are in use already: a channel with subscribers counts as having just got its first one,
    /// unless it was noted before. `was_noted` returns whether a channel was noted before.
    pub fn note_held(&mut self, was_noted: impl Fn(&str) -> bool) {
        let is_new = self.held.is_none();
        let held = self.held.get_or_insert_default();
        for channel in self.table.values().filter(|channel| channel.subscribers.iter().any(|n| *n > 0)) {
            if is_new || !was_noted(&channel.name) {
                held.note_found(StateKey::Channel(channel.name.clone()));
            }
        }
    }

    /// The channels that have got their first subscriber or lost their last; `None` = they are not noted.
    pub fn held_changes(&mut self) -> Option<&mut HeldChanges> {
        self.held.as_mut()
    }

    /// The channels that had a subscriber since the last call, with their present and their greatest number of
    /// subscribers.
    pub fn take_subscriber_counts(&mut self) -> Vec<(ChannelName, (u64, u64))> {
        let hasher = *self.table.hasher();
        let new = || IndexMap::with_hasher(hasher);
        let mut forgotten = self.forgotten_peaks.as_mut().map_or_else(new, |peaks| std::mem::replace(peaks, new()));
        let mut all = Vec::new();
        for channel in self.table.values_mut() {
            let current = channel.subscribers.iter().sum();
            let peak = std::mem::replace(&mut channel.peak, current);
            if peak > 0 {
                // The channel may have been forgotten and created again.
                let before = forgotten.swap_remove(&channel.name).unwrap_or_default();
                all.push((channel.name.clone(), (u64::from(current), u64::from(before.max(peak)))));
            }
        }
        all.extend(forgotten.into_iter().map(|(name, peak)| (name, (0, u64::from(peak)))));
        all
    }

    pub(super) fn subscribe(
        &mut self,
        name: &ChannelName,
        options: &ChannelOptions,
        subscribe: Subscribe,
        now_ms: u64,
    ) -> Response {
        if let Err(error) = self.make_room(name) {
            self.note_refused(subscribe.connection, name, now_ms);
            return Response::Refused(error);
        }
        let channel = self.channel(name, options, now_ms);
        channel.subscribers[usize::from(subscribe.connection.shard)] += 1;
        let subscribers = channel.subscribers.iter().sum();
        channel.peak = channel.peak.max(subscribers);
        let is_first = subscribers == 1;
        let mut subscribed = Subscribed::default();
        if let Some(log) = &mut channel.log {
            log.ring.trim(now_ms);
            subscribed.position = log.ring.position();
            subscribed.is_denied = subscribe
                .recover
                .as_ref()
                .is_some_and(|from| log.cache.last_load > 0 && log.ring.ahead(from.offset, &from.epoch).is_some());
            subscribed.recovered = subscribe.recover.map(|from| log.ring.recover(&from));
            if let Some(Some(missed)) = &mut subscribed.recovered {
                missed.retain(|publication| !publication.is_expired(now_ms));
            }
        }
        if !self.reactions.is_empty() {
            subscribed.reactions = self.reactions.get(name).cloned();
        }
        if is_first && let Some(held) = &mut self.held {
            held.note(StateKey::Channel(name.clone()), true);
        }
        Response::Subscribed(subscribed)
    }

    pub(super) fn unsubscribe(&mut self, name: &ChannelName, connection: ConnectionId, now_ms: u64) -> Response {
        let Some(channel) = self.table.get_mut(name) else { return Response::Done };
        let subscribers = &mut channel.subscribers[usize::from(connection.shard)];
        debug_assert!(*subscribers > 0, "only subscribers leave");
        let was_one = *subscribers > 0;
        *subscribers = subscribers.saturating_sub(1);
        if let Some(held) = &mut self.held
            && was_one
            && channel.subscribers.iter().all(|count| *count == 0)
        {
            held.note(StateKey::Channel(name.clone()), false);
        }
        if let Some(log) = &mut channel.log {
            log.forgotten_ms = now_ms.saturating_add(log.retention.meta_ttl_ms);
        }
        self.keep_or_forget(name, now_ms);
        Response::Done
    }

    /// Remembers for a while that a subscribe was refused. Amortised O(1).
    pub(super) fn note_refused(&mut self, connection: ConnectionId, channel: &ChannelName, now_ms: u64) {
        self.backends.refused.note(connection, channel, now_ms);
    }

    pub(super) fn note_refusal(
        &mut self,
        connection: ConnectionId,
        channel: &ChannelName,
        outcome: &Submitted,
        now_ms: u64,
    ) {
        match outcome {
            Submitted::Done(Response::Refused(_)) => self.note_refused(connection, channel, now_ms),
            Submitted::Done(_) => drop(self.backends.refused.take(connection, channel)),
            _ => {}
        }
    }
}
