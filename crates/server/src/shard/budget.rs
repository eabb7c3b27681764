//! The memory budget of single connections: the queues, answers and waiting input that they make the node hold. Each
//! shard has a slice of `node.buffer_max_size`.
//!
//! A connection is charged for the memory that only it makes the node hold. From 80 % of the slice on, the shard
//! refuses large answers with error 111 and new connections with 503. Beyond the slice, it ends the connections with
//! the largest charge with 3008 until 80 % is left.

use std::cmp::Reverse;

use touchline_protocol::Disconnect;

use super::connections::Connection;
use super::state::Shard;
use super::unauthenticated::Closed;

/// How many bytes of answers may be made for a connection before its socket has taken them. An answer that begins below
/// the limit may end above it.
pub(super) const ANSWERS_AHEAD: usize = 64 * 1024;
/// How many bytes a TLS session may hold for a blocked socket.
const TLS_SIZE: usize = 32 * 1024;
/// How many unauthenticated connections are closed in one tick at most, when HTTP has used up the node's memory.
const UNAUTHENTICATED_A_TICK: usize = 256;
/// A connection that still holds more bytes than this after its queue was dropped is closed at once.
const REST_MAX: usize = 64 * 1024;

impl Connection {
    /// How many bytes only this connection makes the node hold, apart from what every connection costs.
    fn buffered_bytes(&self) -> usize {
        let queued =
            self.queue.as_ref().map_or(0, |queue| queue.charge() + if self.socket.is_tls() { TLS_SIZE } else { 0 });
        self.due.answers() + queued + self.input.begun() + self.session.buffered_bytes()
    }

    /// How many bytes of answers the socket has not taken yet.
    pub(super) fn answers(&self) -> usize {
        self.due.answers() + self.queue.as_ref().map_or(0, |queue| queue.answers())
    }
}

impl Shard {
    /// Whether the shard refuses large answers.
    pub(super) fn is_scarce(&self) -> bool {
        self.buffered() >= self.node.buffer_scarce
    }

    fn buffered(&self) -> usize {
        self.metrics.buffered_bytes.get() as usize + self.node.shards[usize::from(self.id)].http_buffered()
    }

    /// Charges a connection for the memory that it makes the node hold now.
    pub(super) fn recharge(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let now = u32::try_from(connection.buffered_bytes()).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut connection.buffered, now);
        self.metrics.buffered_bytes.replace(before.into(), now.into());
    }

    /// Ends the connections with the largest charge if they alone have used up the slice.
    pub(super) fn relieve(&mut self) {
        if self.metrics.buffered_bytes.get() as usize > self.node.buffer_slice {
            self.end_largest(self.node.buffer_scarce);
        }
    }

    /// Makes room if connections and HTTP together have used up the slice. First it closes unauthenticated connections,
    /// oldest first. It is called once a tick, because the memory of tasks is free only after they have run.
    pub(super) fn relieve_http(&mut self) {
        if self.buffered() <= self.node.buffer_slice {
            return;
        }
        for _ in 0..UNAUTHENTICATED_A_TICK {
            if self.close_oldest() == Closed::Nothing {
                // HTTP's own limits free its memory; connections are ended only above their half of the slice.
                return self.end_largest(self.node.buffer_slice / 2);
            }
        }
    }

    /// Reduces what all connections hold together to `enough` bytes, beginning with those that hold most. First they
    /// lose the publications that may be dropped, then they end.
    fn end_largest(&mut self, enough: usize) {
        for slot in self.largest() {
            if self.metrics.buffered_bytes.get() as usize <= enough {
                return;
            }
            self.drop_droppable(slot);
        }
        for slot in self.largest() {
            if self.metrics.buffered_bytes.get() as usize <= enough {
                return;
            }
            self.metrics.relieved.add(1);
            self.guarded(slot, Shard::drop_queue);
        }
    }

    /// The connections that have a charge, in descending order of the charge.
    fn largest(&self) -> impl Iterator<Item = u32> + use<> {
        let charge = |slot: u32| self.connections.get(slot).map(|connection| (connection.buffered, slot));
        let mut charged: Vec<(u32, u32)> =
            self.connections.slots().filter_map(charge).filter(|(bytes, _)| *bytes > 0).collect();
        charged.sort_unstable_by_key(|charged| Reverse(*charged));
        charged.into_iter().map(|(_, slot)| slot)
    }

    /// Drops the waiting publications of a connection that may be dropped.
    fn drop_droppable(&mut self, slot: u32) {
        let Some(queue) = self.connections.get_mut(slot).and_then(|connection| connection.queue.as_mut()) else {
            return;
        };
        let before = queue.bytes();
        self.metrics.publications_dropped.add(queue.drop_droppable());
        self.metrics.requeue(before, queue.bytes());
        self.recharge(slot);
    }

    fn drop_queue(&mut self, slot: u32) {
        self.disconnect(slot, Disconnect::SLOW);
        self.recharge(slot);
        if self.connections.get(slot).is_some_and(|connection| connection.buffered as usize > REST_MAX) {
            self.remove(slot);
        }
    }
}
