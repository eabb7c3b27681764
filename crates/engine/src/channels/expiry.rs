//! What expires by itself: old publications, unused histories and caches, and empty channels beyond the limit.

use std::cmp::Reverse;

use touchline_protocol::stream::{ChannelName, Offset};

use super::sync::SyncState;
use super::table::{Channels, EXPIRY_STEP_MS, UNUSED_CACHE_TTL_MS, has_number};

impl Channels {
    /// Drops what has expired, and repeats the queries to log backends that requests wait for. Call this function
    /// several times a second.
    pub fn expire(&mut self, now_ms: u64) {
        self.end_resting(now_ms);
        self.idempotency.forget(now_ms);
        while self.expiries.peek().is_some_and(|Reverse((at, _))| *at <= now_ms) {
            let Some(Reverse((at_ms, name))) = self.expiries.pop() else { return };
            self.expire_channel(name, at_ms, now_ms);
        }
        self.trim_empties(now_ms);
    }

    /// Decides what to do with a channel after its use. A channel without subscribers is forgotten at once, or kept for
    /// its history. If its history has no publication yet, the channel is kept among the empty channels.
    pub(super) fn keep_or_forget(&mut self, name: &ChannelName, now_ms: u64) {
        let Channels { table, empties, expiries, .. } = self;
        let Some(channel) = table.get_mut(name) else { return };
        if channel.subscribers.iter().any(|n| *n > 0) {
            return;
        }
        let is_at_home = matches!(channel.sync, SyncState::Idle);
        let Some(log) = &mut channel.log else { return self.forget(name) };
        if !is_at_home || log.ring.position().offset > Offset::START {
            return log.schedule_expiry(name, log.forgotten_ms, expiries);
        }
        if log.empty_number == 0 {
            let number = empties.enter(name, |name, number| has_number(table, name, number));
            if let Some(log) = table.get_mut(name).and_then(|channel| channel.log.as_mut()) {
                log.empty_number = number;
            }
        }
        self.trim_empties(now_ms);
    }

    /// Forgets the oldest empty channels while there are too many, or while their time is over.
    fn trim_empties(&mut self, now_ms: u64) {
        loop {
            let Channels { table, empties, .. } = self;
            let forgotten_ms =
                |name: &str| table.get(name).and_then(|channel| channel.log.as_ref()).map_or(0, |log| log.forgotten_ms);
            let gone =
                empties.next_to_go(|name, number| has_number(table, name, number), |name| forgotten_ms(name) <= now_ms);
            let Some(name) = gone else { return };
            self.empties.leave();
            self.forget(&name);
        }
    }

    fn expire_channel(&mut self, name: ChannelName, at_ms: u64, now_ms: u64) {
        let Some(channel) = self.table.get_mut(&name) else { return };
        let has_subscribers = channel.subscribers.iter().any(|n| *n > 0);
        let Some(log) = &mut channel.log else { return };
        if log.expiry_ms != at_ms {
            // The entry belongs to an earlier channel of this name.
            return;
        }
        log.expiry_ms = 0;
        if log.empty_number > 0 {
            // Empty channels expire in an order of their own.
            return;
        }
        log.ring.trim(now_ms);
        // The log of a replicated channel is a cache, which is dropped when it is no longer used.
        let is_cache = !matches!(channel.sync, SyncState::Idle) && log.retention.meta_ttl_ms == UNUSED_CACHE_TTL_MS;
        let next_ms = match log.ring.next_expiry_ms() {
            Some(_) if is_cache && !has_subscribers && log.forgotten_ms <= now_ms => return self.forget(&name),
            Some(at) if is_cache => at.min(log.forgotten_ms),
            Some(at) => at,
            None if has_subscribers && log.retention.meta_ttl_ms == UNUSED_CACHE_TTL_MS => {
                now_ms.saturating_add(log.retention.meta_ttl_ms)
            }
            // A publication, or the end of the last subscription, will schedule the next check.
            None if has_subscribers => return,
            None if log.forgotten_ms > now_ms => log.forgotten_ms,
            None => return self.forget(&name),
        };
        log.schedule_expiry(&name, next_ms.max(now_ms + EXPIRY_STEP_MS), &mut self.expiries);
    }
}
