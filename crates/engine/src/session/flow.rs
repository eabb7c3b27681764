//! The flow of a session's commands: how many are under way, and which ones wait.

use super::ticket::Ticket;
use super::weight::Weight;

/// The number of commands under way. Waiting commands are in [`super::counted::RareState`].
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// The number of requests without a reply. Calls do not count.
    pub(super) in_flight: u16,
    /// Whether one of these requests may have a large reply.
    pub(super) has_large: bool,
    /// The number of control frames before the connect.
    pub(super) early_frames: u8,
}

/// Commands that wait for room, in order.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    pub(super) bytes: Vec<u8>,
    /// The bytes of the commands in the buffer that have been executed.
    pub(super) at: usize,
    /// Whether the next command has been charged to its rates.
    pub(super) is_paid: bool,
    /// When each part of the bytes arrived: the index where the part ends, and the time in microseconds. Kept only if
    /// commands wait for rates.
    pub(super) arrivals: Vec<(usize, u64)>,
}

impl Deferred {
    /// Forgets the commands that have been executed.
    pub(super) fn trim(&mut self) {
        let at = std::mem::take(&mut self.at);
        if at > 0 {
            self.bytes.drain(..at);
            self.arrivals.retain(|(end, _)| *end > at);
            self.arrivals.iter_mut().for_each(|(end, _)| *end -= at);
        }
    }

    /// Notes the arrival time of the bytes that have no time yet.
    pub(super) fn note_arrival(&mut self, now_us: u64) {
        match self.arrivals.last_mut() {
            Some((end, at_us)) if *at_us == now_us => *end = self.bytes.len(),
            _ => self.arrivals.push((self.bytes.len(), now_us)),
        }
    }

    /// When the byte at this index arrived, microseconds; `None` = it was not noted.
    pub(super) fn arrival_us(&self, place: usize) -> Option<u64> {
        let index = self.arrivals.partition_point(|(end, _)| *end <= place);
        self.arrivals.get(index).map(|(_, at_us)| *at_us)
    }

    /// The bytes that the waiting commands take.
    pub(super) fn size(&self) -> usize {
        self.bytes.capacity() + self.arrivals.capacity() * size_of::<(usize, u64)>()
    }
}

impl Flow {
    /// Notes that a request was sent.
    pub(super) fn begin(&mut self, weight: Weight) {
        if weight != Weight::Waiting {
            self.in_flight += 1;
            self.has_large |= weight == Weight::Large;
        }
    }

    /// Notes that a command waits for a hook, or for an earlier command that waits for one.
    pub(super) fn hold(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// Notes that a command no longer waits for a hook.
    pub(super) fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Notes that a request has its reply.
    pub(super) fn end(&mut self, ticket: Ticket) {
        if let Some(weight @ (Weight::Small | Weight::Large)) = ticket.weight() {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.has_large &= weight != Weight::Large;
        }
    }
}
