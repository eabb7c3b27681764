//! Room for new connections: when too many are half-open, or no file descriptors are left, the shard closes the oldest
//! half-open connection, here or on the shard that has most of them.

use touchline_engine::ShardId;

use super::half_open::{Closed, HalfOpenEntry};
use super::state::Shard;
use crate::runtime::connection_guard::ConnectionGuard;
use crate::runtime::mailbox::Message;

/// Entries beyond twice the number of half-open connections, at which stale entries are removed.
const STALE_MAX: usize = 64;
/// The most connections that one shard closes at once for another.
const ROOM_MAX: usize = 32;

impl Shard {
    /// A pass for a task that serves a connection. The task holds it until it ends.
    pub(super) fn pass(&mut self) -> ConnectionGuard {
        let (guard, tell) = ConnectionGuard::new(self.node.shards[usize::from(self.id)].tasks());
        self.note_half_open(HalfOpenEntry::Task(tell));
        guard
    }

    /// Adds a new half-open connection.
    pub(super) fn note_half_open(&mut self, entry: HalfOpenEntry) {
        self.half_open.entries.push_back(entry);
        self.forget_settled();
    }

    /// Removes the entries of connections that are not half-open any more, once they are many.
    pub(super) fn forget_settled(&mut self) {
        if self.half_open.entries.len() > 2 * self.half_open_count() + STALE_MAX {
            let mut all = std::mem::take(&mut self.half_open.entries);
            all.retain(|entry| self.is_half_open(entry));
            all.shrink_to(2 * all.len() + STALE_MAX);
            self.half_open.entries = all;
        }
    }

    /// The number of half-open connections of this shard.
    pub(super) fn half_open_count(&self) -> usize {
        self.acceptor.pending_count()
            + self.half_open.sessions
            + self.node.shards[usize::from(self.id)].tasks().half_open()
    }

    /// Closes the oldest half-open connection if one more would exceed the limit.
    pub(super) fn limit_half_open(&mut self) {
        if self.half_open_count() >= self.half_open_max {
            self.close_oldest();
        }
    }

    /// Makes room when the process has no descriptors left. Descriptors are shared by all shards, so the shard with
    /// most half-open connections closes its oldest: a shard with few would close connections that have only just come.
    pub(super) fn make_room(&mut self) -> Closed {
        let own = self.half_open_count();
        let counts = self.node.shards.iter().map(|shard| shard.metrics.half_open.get() as usize).enumerate();
        match counts.max_by_key(|(_, count)| *count) {
            Some((shard, count)) if count > own && shard != usize::from(self.id) => {
                let closes = ((count - own) / 2).clamp(1, ROOM_MAX);
                self.node.send(shard as ShardId, Message::MakeRoom { closes, from: self.id });
                Closed::Elsewhere
            }
            _ => self.close_oldest(),
        }
    }

    /// Closes half-open connections for another shard (`from`), and tells it.
    pub(super) fn make_room_for(&mut self, from: ShardId, closes: usize) {
        for _ in 0..closes {
            if self.close_oldest() == Closed::Nothing {
                break;
            }
        }
        self.publish_half_open();
        self.node.send(from, Message::RoomIsMade);
    }

    /// Publishes the number of half-open connections in the metrics, where the other shards read it too.
    pub(super) fn publish_half_open(&self) {
        self.metrics.half_open.set(self.half_open_count() as u64);
    }

    /// Closes the oldest half-open connection.
    pub(super) fn close_oldest(&mut self) -> Closed {
        while let Some(entry) = self.half_open.entries.pop_front() {
            if !self.is_half_open(&entry) {
                continue;
            }
            let closed = match entry {
                HalfOpenEntry::Pending(token) => {
                    self.acceptor.drop_pending(token);
                    Closed::Now
                }
                HalfOpenEntry::Session { slot, .. } => {
                    self.guarded(slot, |shard, slot| shard.remove(slot));
                    Closed::Now
                }
                HalfOpenEntry::Task(tell) => match tell.send(()) {
                    Ok(()) => Closed::Soon,
                    Err(()) => continue,
                },
            };
            self.metrics.half_open_closed.add(1);
            return closed;
        }
        Closed::Nothing
    }

    /// A session has connected, or ended before that.
    pub(super) fn settle_session(&mut self, slot: u32) {
        if let Some(connection) = self.connections.get_mut(slot)
            && std::mem::take(&mut connection.is_half_open)
        {
            self.half_open.sessions -= 1;
        }
    }

    fn is_half_open(&self, entry: &HalfOpenEntry) -> bool {
        match entry {
            HalfOpenEntry::Pending(token) => self.acceptor.is_waiting(*token),
            HalfOpenEntry::Task(tell) => !tell.is_closed(),
            HalfOpenEntry::Session { slot, generation } => {
                self.connections.generation(*slot) == *generation
                    && self.connections.get(*slot).is_some_and(|c| c.is_half_open)
            }
        }
    }
}
