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
