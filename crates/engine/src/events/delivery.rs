//! What happens after the answer to a batch: it is done, it is sent again, it is split, or its events become dead
//! letters.

use std::collections::VecDeque;

use super::draft::WrittenEvent;

/// The first wait before a batch is sent again, milliseconds. Each further wait is twice as long.
const FIRST_WAIT_MS: u64 = 100;
/// The longest wait before a batch is sent again, milliseconds.
const WAIT_MAX_MS: u64 = 60_000;
/// The longest wait that an endpoint can request, milliseconds.
const ASKED_WAIT_MAX_MS: u64 = 3_600_000;
/// How many times a batch or a single event is sent while the endpoint refuses it.
const REFUSALS_MAX: u32 = 5;

/// The answer of an endpoint to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointReply {
    /// The endpoint answered with an HTTP status.
    Status {
        /// The HTTP status of the answer.
        status: u16,
        /// How long the endpoint asks to wait, milliseconds; `None` = it does not say.
        retry_after_ms: Option<u64>,
    },
    /// The endpoint could not be reached, or was too slow to answer.
    Nothing,
}

/// Why events become dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadReason {
    /// The endpoint refuses them even one by one.
    Refused,
    /// They are larger than the endpoint accepts.
    TooLarge,
    /// They are older than `max_age`.
    TooOld,
    /// Their rows in the database do not contain events.
    Unreadable,
}

impl DeadReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [DeadReason; 4] =
        [DeadReason::Refused, DeadReason::TooLarge, DeadReason::TooOld, DeadReason::Unreadable];

    /// The reason's name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            DeadReason::Refused => "refused",
            DeadReason::TooLarge => "too_large",
            DeadReason::TooOld => "too_old",
            DeadReason::Unreadable => "unreadable",
        }
    }
}

/// What happens after an answer.
#[derive(Debug, PartialEq)]
pub enum Follow {
    /// These events were delivered. The next piece follows, if there is one.
    Done(Vec<WrittenEvent>),
    /// The same batch is sent again after a wait ([`BatchPace::wait_ms`]).
    Again,
    /// The batch was split. Its next piece is sent at once, as a separate batch.
    Cut,
    /// These events become dead letters. The next piece follows, if there is one.
    Dead(Vec<WrittenEvent>, DeadReason),
    /// The endpoint wants no more events until an operator enables it again.
    Off,
}

/// The size of a lane's batches and the time of its next attempt. After an endpoint was overloaded, batches are smaller
/// and later; each success makes them larger again. The pace is kept from batch to batch: if all events of a batch
/// become too old, the next batch waits too.
#[derive(Debug, Clone, Copy)]
pub struct BatchPace {
    most: usize,
    now: usize,
    /// Nothing is sent before this time, Unix milliseconds.
    wait_until_ms: u64,
}

impl BatchPace {
    /// A pace with full batches of `batch_max` events and no wait.
    pub fn new(batch_max: usize) -> Self {
        BatchPace { most: batch_max.max(1), now: batch_max.max(1), wait_until_ms: 0 }
    }

    /// The greatest number of events in the next batch.
    pub fn batch_max(&self) -> usize {
        self.now
    }

    /// How long the lane has to wait before it sends the events of a delivery, milliseconds; 0 = it sends them now. The
    /// wait ends at the latest when one of the events becomes too old, because then that event is given up.
    /// `max_age_ms`: the greatest age of an event.
    pub fn wait_ms(&self, delivery: &BatchDelivery, max_age_ms: u64, now_ms: u64) -> u64 {
        let too_old_ms = delivery.oldest_ms().map_or(u64::MAX, |oldest_ms| oldest_ms.saturating_add(max_age_ms));
        self.wait_until_ms.min(too_old_ms).saturating_sub(now_ms)
    }

    fn halve(&mut self) {
        self.now = (self.now / 2).max(1);
    }

    fn recover(&mut self) {
        self.now = (self.now * 2).min(self.most);
    }
}

/// A part of a batch that is sent separately.
#[derive(Debug)]
struct BatchPiece {
    events: Vec<WrittenEvent>,
    /// How many times the piece was sent.
    tries: u32,
    /// How many times the endpoint has refused the piece.
    refusals: u32,
}

impl BatchPiece {
    fn of(events: Vec<WrittenEvent>) -> Self {
        BatchPiece { events, tries: 0, refusals: 0 }
    }
}

/// A batch that is being sent, and the pieces that it was split into. The pieces are sent one after the other, in
/// order.
#[derive(Debug)]
pub struct BatchDelivery {
    pieces: VecDeque<BatchPiece>,
    /// Changes whenever the events to send change, because then they are a new batch.
    number: u64,
}

impl BatchDelivery {
    /// A new delivery for a batch of events.
    pub fn new(events: Vec<WrittenEvent>) -> Self {
        BatchDelivery {
            pieces: Some(BatchPiece::of(events)).filter(|piece| !piece.events.is_empty()).into_iter().collect(),
            number: 0,
        }
    }

    /// The events to send now, and the number of their batch; `None` = the delivery is done.
    pub fn current(&self) -> Option<(&[WrittenEvent], u64)> {
        self.pieces.front().map(|piece| (piece.events.as_slice(), self.number))
    }

    /// When the oldest event that is not finished was created, Unix milliseconds; `None` = the delivery is done.
    pub fn oldest_ms(&self) -> Option<u64> {
        self.pieces.iter().flat_map(|piece| &piece.events).map(|event| event.time_ms).min()
    }

    /// How many times the current events were sent.
    pub fn tries(&self) -> u32 {
        self.pieces.front().map_or(0, |piece| piece.tries)
    }

    /// Removes and returns the events created at `until_ms` or before, Unix milliseconds. The rest is a new batch.
    pub fn expire(&mut self, until_ms: u64) -> Vec<WrittenEvent> {
        let mut gone = Vec::new();
        for piece in &mut self.pieces {
            gone.extend(piece.events.extract_if(.., |event| event.time_ms <= until_ms));
        }
        self.pieces.retain(|piece| !piece.events.is_empty());
        self.number += u64::from(!gone.is_empty());
        gone
    }

    /// Decides what happens after the answer to the current events. `random`: any number; it spreads the waits.
    pub fn answered(&mut self, reply: EndpointReply, pace: &mut BatchPace, now_ms: u64, random: u64) -> Follow {
        let Some(piece) = self.pieces.front_mut() else { return Follow::Done(Vec::new()) };
        piece.tries += 1;
        let tries = piece.tries;
        let again = |pace: &mut BatchPace, asked_ms: Option<u64>| {
            let wait = FIRST_WAIT_MS.saturating_mul(1 << (tries - 1).min(20)).min(WAIT_MAX_MS);
            // Half of the wait, plus a random part of the other half.
            let spread = wait / 2 + random % (wait / 2 + 1);
            let asked = asked_ms.unwrap_or_default().min(ASKED_WAIT_MAX_MS);
            pace.wait_until_ms = now_ms.saturating_add(spread.max(asked));
            Follow::Again
        };
        match reply {
            EndpointReply::Nothing => again(pace, None),
            EndpointReply::Status { status: 200..=299, .. } => {
                pace.recover();
                Follow::Done(self.take_current())
            }
            EndpointReply::Status { status: 410, .. } => Follow::Off,
            EndpointReply::Status { status: 413, .. } => {
                pace.halve();
                self.cut_or_die(DeadReason::TooLarge)
            }
            EndpointReply::Status { status, retry_after_ms } => {
                if matches!(status, 429 | 503) || retry_after_ms.is_some() {
                    pace.halve();
                    again(pace, retry_after_ms)
                } else if !matches!(status, 400..=499) || matches!(status, 408 | 425) {
                    again(pace, None)
                } else {
                    piece.refusals += 1;
                    if piece.refusals < REFUSALS_MAX { again(pace, None) } else { self.cut_or_die(DeadReason::Refused) }
                }
            }
        }
    }

    fn take_current(&mut self) -> Vec<WrittenEvent> {
        self.number += 1;
        self.pieces.pop_front().map(|piece| piece.events).unwrap_or_default()
    }

    /// Splits the current events into halves. A single event becomes a dead letter.
    fn cut_or_die(&mut self, why: DeadReason) -> Follow {
        let mut first = self.take_current();
        if first.len() < 2 {
            return Follow::Dead(first, why);
        }
        let second = first.split_off(first.len() / 2);
        // The whole batch was refused often enough. Each part is tried once, down to single events.
        for half in [second, first] {
            let refusals = if half.len() > 1 && why == DeadReason::Refused { REFUSALS_MAX - 1 } else { 0 };
            self.pieces.push_front(BatchPiece { events: half, tries: 0, refusals });
        }
        Follow::Cut
    }
}
