//! Connections whose client has not connected yet, oldest first: silent visitors, tasks that read a header, agree upon
//! TLS or read requests, and sessions before their connect command. When there are too many, or no descriptors are
//! left, the oldest goes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use mio::Token;
use tokio::sync::oneshot;
use touchline_engine::ShardId;

use super::Shard;
use crate::mailbox::Message;
use crate::node::Node;

/// Entries beyond twice those that count, before those that don't are taken out.
const STALE_MAX: usize = 64;
/// Connections that one shard closes at once for another.
const ROOM_MAX: usize = 32;

/// One of those.
pub(super) enum Waiting {
    Visitor(Token),
    /// A task that ends when it is told to. It is told by this, and hangs up when it does not count any more.
    Task(oneshot::Sender<()>),
    Session {
        slot: u32,
        generation: u32,
    },
}

/// Those of a shard, by age. Entries of connections that have gone on are left in until they are met.
#[derive(Default)]
pub(super) struct HalfOpen {
    waiting: VecDeque<Waiting>,
    /// Sessions among them.
    pub(super) sessions: usize,
}

/// What was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// Its descriptor is free.
    Now,
    /// Its task has been told, and frees it when it runs.
    Soon,
    /// Another shard has been asked, and tells when it has closed some.
    Elsewhere,
    /// There was nothing to close.
    Nothing,
}

/// What a task holds that serves a connection: while its client is not known it counts as half open, and while it may
/// owe answers a node that drains waits for it.
pub(crate) struct Pass {
    node: Arc<Node>,
    shard: ShardId,
    told: RefCell<oneshot::Receiver<()>>,
    counts: Cell<bool>,
    is_awaited: Cell<bool>,
}

impl Pass {
    /// Returns when the connection has to go.
    pub(crate) async fn revoked(&self) {
        poll_fn(|context| {
            // This is polled with each request.
            if !self.counts.get() {
                return Poll::Pending;
            }
            let told = Pin::new(&mut *self.told.borrow_mut()).poll(context);
            if matches!(told, Poll::Ready(Err(_))) {
                // The shard has ended: nobody will ever tell.
                self.settle();
                return Poll::Pending;
            }
            told.map(|_| ())
        })
        .await;
    }

    /// The connection counts no longer: it has shown a key, or it carries sessions, which count by themselves.
    pub(crate) fn settle(&self) {
        if self.counts.replace(false) {
            self.told.borrow_mut().close();
            self.node.shards[usize::from(self.shard)].leave_half_open();
        }
    }

    /// The last answer has left, and no request is read any more: a node that drains need not wait for the connection's
    /// end.
    pub(crate) fn part(&self) {
        if self.is_awaited.replace(false) {
            self.node.shards[usize::from(self.shard)].leave_awaited();
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.settle();
        self.part();
    }
}

impl Shard {
    /// A pass for a task that serves a connection. The task holds it until it ends.
    pub(super) fn pass(&mut self) -> Pass {
        let (tell, told) = oneshot::channel();
        self.note_half_open(Waiting::Task(tell));
        let handle = &self.node.shards[usize::from(self.id)];
        handle.enter_half_open();
        handle.enter_awaited();
        let (counts, is_awaited) = (Cell::new(true), Cell::new(true));
        Pass { node: Arc::clone(&self.node), shard: self.id, told: RefCell::new(told), counts, is_awaited }
    }

    /// Enters one that has just come.
    pub(super) fn note_half_open(&mut self, waiting: Waiting) {
        self.half_open.waiting.push_back(waiting);
        self.forget_settled();
    }

    /// Takes out the entries of connections that have gone on, once they are many.
    pub(super) fn forget_settled(&mut self) {
        if self.half_open.waiting.len() > 2 * self.half_open_count() + STALE_MAX {
            let mut all = std::mem::take(&mut self.half_open.waiting);
            all.retain(|waiting| self.is_half_open(waiting));
            all.shrink_to(2 * all.len() + STALE_MAX);
            self.half_open.waiting = all;
        }
    }

    /// Connections of this shard that are half open.
    pub(super) fn half_open_count(&self) -> usize {
        self.door.pending_count() + self.half_open.sessions + self.node.shards[usize::from(self.id)].half_open_tasks()
    }

    /// Makes room for one more, as far as the limit demands it.
    pub(super) fn limit_half_open(&mut self) {
        if self.half_open_count() >= self.half_open_max {
            self.close_oldest();
        }
    }

    /// Makes room when the process has no descriptors left. Descriptors are shared by all shards, so the shard with
    /// most of these connections closes its oldest: one that has few would close those that have only just come.
    pub(super) fn make_room(&mut self) -> Closed {
        let own = self.half_open_count();
        let counts = self.node.shards.iter().map(|shard| shard.metrics.half_open.get() as usize).enumerate();
        match counts.max_by_key(|(_, count)| *count) {
            Some((shard, count)) if count > own && shard != usize::from(self.id) => {
                let closes = ((count - own) / 2).clamp(1, ROOM_MAX);
                self.node.send(shard as ShardId, Message::MakeRoom { closes, asker: self.id });
                Closed::Elsewhere
            }
            _ => self.close_oldest(),
        }
    }

    /// Makes room for another shard, which waits for it.
    pub(super) fn make_room_for(&mut self, asker: ShardId, closes: usize) {
        for _ in 0..closes {
            if self.close_oldest() == Closed::Nothing {
                break;
            }
        }
        self.tell_half_open();
        self.node.send(asker, Message::RoomIsMade);
    }

    /// Tells the other shards, and the metrics, how many there are.
    pub(super) fn tell_half_open(&self) {
        let gauge = &self.metrics.half_open;
        gauge.add((self.half_open_count() as u64).wrapping_sub(gauge.get()));
    }

    /// Closes the oldest.
    pub(super) fn close_oldest(&mut self) -> Closed {
        while let Some(waiting) = self.half_open.waiting.pop_front() {
            if !self.is_half_open(&waiting) {
                continue;
            }
            let closed = match waiting {
                Waiting::Visitor(token) => {
                    self.door.drop_pending(token);
                    Closed::Now
                }
                Waiting::Session { slot, .. } => {
                    self.guarded(slot, |shard, slot| shard.remove(slot));
                    Closed::Now
                }
                Waiting::Task(tell) => match tell.send(()) {
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

    fn is_half_open(&self, waiting: &Waiting) -> bool {
        match waiting {
            Waiting::Visitor(token) => self.door.is_waiting(*token),
            Waiting::Task(tell) => !tell.is_closed(),
            Waiting::Session { slot, generation } => {
                self.connections.generation(*slot) == *generation
                    && self.connections.get(*slot).is_some_and(|c| c.is_half_open)
            }
        }
    }
}
