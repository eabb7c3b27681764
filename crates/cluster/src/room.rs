//! The room for messages to NATS that are not yet written: their bytes are charged before they are queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The bytes that a queued message costs besides its payload: its subject and its entries in queues.
const MESSAGE_COST: usize = 512;

/// The bytes that wait to be written to NATS, and their limit.
#[derive(Debug, Default)]
pub(crate) struct OutgoingRoom {
    limit: usize,
    queued: AtomicUsize,
    refused: AtomicU64,
}

impl OutgoingRoom {
    /// A room for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(OutgoingRoom { limit, ..OutgoingRoom::default() })
    }

    /// The bytes that wait now.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// The number of messages that were refused because the room was full.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Whether the room takes another message.
    pub(crate) fn is_free(&self) -> bool {
        self.queued() < self.limit
    }

    /// Whether the room takes another message that is not written to NATS. Messages that wait for NATS may still fill
    /// the room a while after the link is lost.
    pub(crate) fn is_free_here(&self) -> bool {
        self.queued() < self.limit.saturating_mul(2)
    }

    /// Counts a message that was refused.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Charges a payload of this many bytes, whatever the limit is. The caller has checked [`OutgoingRoom::is_free`].
    pub(crate) fn charge(self: &Arc<Self>, payload: usize) -> OutgoingCharge {
        let bytes = payload + MESSAGE_COST;
        self.queued.fetch_add(bytes, Relaxed);
        OutgoingCharge { room: Arc::clone(self), bytes }
    }

    /// Charges a payload if the room is free. A refused payload is counted.
    pub(crate) fn take(self: &Arc<Self>, payload: usize) -> Option<OutgoingCharge> {
        if self.is_free() {
            Some(self.charge(payload))
        } else {
            self.count_refused();
            None
        }
    }
}

/// The charge of one message. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct OutgoingCharge {
    room: Arc<OutgoingRoom>,
    bytes: usize,
}

impl Drop for OutgoingCharge {
    fn drop(&mut self) {
        self.room.queued.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_refuses_until_a_charge_ends() {
        let room = OutgoingRoom::new(1_000);
        let first = room.take(400).expect("it is free");
        let second = room.take(1_000_000).expect("one message may exceed the limit");
        assert!(room.take(0).is_none() && room.refused() == 1);
        drop(second);
        assert!(room.is_free() && room.queued() == 400 + MESSAGE_COST);
        drop(first);
        assert_eq!(room.queued(), 0);
    }
}
