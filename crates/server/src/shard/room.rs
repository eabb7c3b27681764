//! Makes room for new connections. If too many are unauthenticated, or no file descriptors are left, the oldest
//! unauthenticated connection is closed, on this shard or on the shard that has most of them.

use touchline_engine::ShardId;

use super::state::Shard;
use super::unauthenticated::{Closed, UnauthenticatedEntry};
use crate::runtime::connection_guard::ConnectionGuard;
use crate::runtime::mailbox::Message;

/// How many entries beyond twice the number of unauthenticated connections may remain before stale entries are removed.
const STALE_MAX: usize = 64;
/// How many connections one shard closes at once for another shard at most.
const ROOM_MAX: usize = 32;

impl Shard {
    /// Makes a guard for a task that serves a connection. The task holds the guard until it ends.
    pub(super) fn pass(&mut self) -> ConnectionGuard {
        let (guard, tell) = ConnectionGuard::new(self.node.shards[usize::from(self.id)].tasks());
        self.note_unauthenticated(UnauthenticatedEntry::Task(tell));
        guard
    }

    /// Adds a new unauthenticated connection.
    pub(super) fn note_unauthenticated(&mut self, entry: UnauthenticatedEntry) {
        self.unauthenticated.entries.push_back(entry);
        self.forget_settled();
    }

    /// Removes the entries of connections that are no longer unauthenticated, once there are many such entries.
    pub(super) fn forget_settled(&mut self) {
        if self.unauthenticated.entries.len() > 2 * self.unauthenticated_count() + STALE_MAX {
            let mut all = std::mem::take(&mut self.unauthenticated.entries);
            all.retain(|entry| self.is_unauthenticated(entry));
            all.shrink_to(2 * all.len() + STALE_MAX);
            self.unauthenticated.entries = all;
        }
    }

    /// The number of unauthenticated connections of this shard.
    pub(super) fn unauthenticated_count(&self) -> usize {
        self.acceptor.pending_count()
            + self.unauthenticated.sessions
            + self.node.shards[usize::from(self.id)].tasks().unauthenticated()
    }

    /// Closes the oldest unauthenticated connection if one more would exceed the limit.
    pub(super) fn limit_unauthenticated(&mut self) {
        if self.unauthenticated_count() >= self.unauthenticated_max {
            self.close_oldest();
        }
    }

    /// Makes room when the process has no descriptors left. All shards share the descriptors, so the shard with most
    /// unauthenticated connections closes its oldest. A shard with few would close connections that have only just
    /// arrived.
    pub(super) fn make_room(&mut self) -> Closed {
        let own = self.unauthenticated_count();
        let counts = self.node.shards.iter().map(|shard| shard.metrics.unauthenticated.get() as usize).enumerate();
        match counts.max_by_key(|(_, count)| *count) {
            Some((shard, count)) if count > own && shard != usize::from(self.id) => {
                let closes = ((count - own) / 2).clamp(1, ROOM_MAX);
                self.node.send(shard as ShardId, Message::MakeRoom { closes, from: self.id });
                Closed::Elsewhere
            }
            _ => self.close_oldest(),
        }
    }

    /// Closes unauthenticated connections for another shard (`from`), and notifies it.
    pub(super) fn make_room_for(&mut self, from: ShardId, closes: usize) {
        for _ in 0..closes {
            if self.close_oldest() == Closed::Nothing {
                break;
            }
        }
        self.publish_unauthenticated();
        self.node.send(from, Message::RoomIsMade);
    }

    /// Publishes the number of unauthenticated connections in the metrics, where the other shards read it too.
    pub(super) fn publish_unauthenticated(&self) {
        self.metrics.unauthenticated.set(self.unauthenticated_count() as u64);
    }

    /// Closes the oldest unauthenticated connection.
    pub(super) fn close_oldest(&mut self) -> Closed {
        while let Some(entry) = self.unauthenticated.entries.pop_front() {
            if !self.is_unauthenticated(&entry) {
                continue;
            }
            let closed = match entry {
                UnauthenticatedEntry::Pending(token) => {
                    self.acceptor.drop_pending(token);
                    Closed::Now
                }
                UnauthenticatedEntry::Session { slot, .. } => {
                    self.guarded(slot, |shard, slot| shard.remove(slot));
                    Closed::Now
                }
                UnauthenticatedEntry::Task(tell) => match tell.send(()) {
                    Ok(()) => Closed::Soon,
                    Err(()) => continue,
                },
            };
            self.metrics.unauthenticated_closed.add(1);
            return closed;
        }
        Closed::Nothing
    }

    /// Notes that a session has connected, or ended before that.
    pub(super) fn settle_session(&mut self, slot: u32) {
        if let Some(connection) = self.connections.get_mut(slot)
            && std::mem::take(&mut connection.is_unauthenticated)
        {
            self.unauthenticated.sessions -= 1;
        }
    }

    fn is_unauthenticated(&self, entry: &UnauthenticatedEntry) -> bool {
        match entry {
            UnauthenticatedEntry::Pending(token) => self.acceptor.is_waiting(*token),
            UnauthenticatedEntry::Task(tell) => !tell.is_closed(),
            UnauthenticatedEntry::Session { slot, generation } => {
                self.connections.generation(*slot) == *generation
                    && self.connections.get(*slot).is_some_and(|c| c.is_unauthenticated)
            }
        }
    }
}
