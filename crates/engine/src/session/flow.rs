//! What a session counts for the flow of its commands: how many are under way, and which commands wait.

use super::ticket::Ticket;
use super::weight::Weight;

/// How many commands are under way. The commands that wait are in [`super::counted::RareState`].
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Requests without a reply, except calls.
    pub(super) in_flight: u16,
    /// One of them may have a large reply.
    pub(super) has_large: bool,
    /// Control frames before the connect.
    pub(super) early_frames: u8,
}

/// Commands that wait for room, in order.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    pub(super) bytes: Vec<u8>,
    /// Bytes of the commands that have been executed.
    pub(super) at: usize,
    /// The next command has been charged to its rates.
    pub(super) is_paid: bool,
    /// Where the bytes that came at one time end, and that time, microseconds; kept where commands wait for rates.
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

    /// Notes when the bytes came that have no time yet.
    pub(super) fn note_arrival(&mut self, now_us: u64) {
        match self.arrivals.last_mut() {
            Some((end, at_us)) if *at_us == now_us => *end = self.bytes.len(),
            _ => self.arrivals.push((self.bytes.len(), now_us)),
        }
    }

    /// When the byte at this place came, microseconds; `None` = it was not noted.
    pub(super) fn arrival_us(&self, place: usize) -> Option<u64> {
        let index = self.arrivals.partition_point(|(end, _)| *end <= place);
        self.arrivals.get(index).map(|(_, at_us)| *at_us)
    }

    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        self.bytes.capacity() + self.arrivals.capacity() * size_of::<(usize, u64)>()
    }
}

impl Flow {
    /// A request was sent.
    pub(super) fn begin(&mut self, weight: Weight) {
        if weight != Weight::Waiting {
            self.in_flight += 1;
            self.has_large |= weight == Weight::Large;
        }
    }

    /// A command waits for a hook, or behind one.
    pub(super) fn hold(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// A command does not wait for a hook any more.
    pub(super) fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// A request has its reply.
    pub(super) fn end(&mut self, ticket: Ticket) {
        if let Some(weight @ (Weight::Small | Weight::Large)) = ticket.weight() {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.has_large &= weight != Weight::Large;
        }
    }
}
