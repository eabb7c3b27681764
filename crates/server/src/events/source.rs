//! Where the lanes of an endpoint take their batches from: a queue in memory (best effort), or the outbox of the
//! primary database (`durable`).
//!
//! A lane asks for a batch by [`BatchSource::next`], and tells by [`BatchSource::done`] and [`BatchSource::dead`] what
//! has become of each event of it, once.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use touchline_config::EventsSettings;
use touchline_engine::duration::millis;
use touchline_engine::events::{DeadReason, EventLoss, EventQueue, EventQueueLimits, WrittenEvent};

use super::durable::OutboxSource;
use super::endpoint::EventEndpoint;
use crate::node::Node;

/// Where batches come from.
pub(super) enum BatchSource {
    /// A queue in memory.
    Queue(QueueSource),
    /// The outbox of the primary database.
    Outbox(OutboxSource),
}

/// Events that did not arrive and are not sent any more.
pub(super) struct DeadEvents<'a> {
    pub(super) events: &'a [WrittenEvent],
    pub(super) why: DeadReason,
    /// How often they were sent, in batches of whatever size.
    pub(super) tries: u32,
    /// The last answer, for people; empty = there was none.
    pub(super) last_error: &'a str,
}

impl BatchSource {
    /// Waits for the next batch of a lane: at most `batch_max` events, at least one.
    pub(super) async fn next(&self, lane: usize, batch_max: usize) -> Vec<WrittenEvent> {
        match self {
            BatchSource::Queue(queue) => queue.next(lane, batch_max).await,
            BatchSource::Outbox(outbox) => outbox.next(lane, batch_max).await,
        }
    }

    /// The oldest event of a lane that is under way came to be then, Unix milliseconds; `None` = none is.
    pub(super) fn note_oldest(&self, lane: usize, oldest_ms: Option<u64>) {
        if let Some(of_lane) = self.queue().and_then(|queue| queue.oldest_under_way_ms.get(lane)) {
            of_lane.set(oldest_ms);
        }
    }

    /// These events have arrived.
    pub(super) async fn done(&self, events: &[WrittenEvent]) {
        match self {
            BatchSource::Queue(queue) => queue.finish(events.len()),
            BatchSource::Outbox(outbox) => outbox.done(events).await,
        }
    }

    /// These events did not arrive, and are not sent any more. Returns how many older ones, that were kept, had to go.
    pub(super) async fn dead(&self, dead: DeadEvents<'_>) -> u64 {
        match self {
            BatchSource::Queue(queue) => {
                let DeadEvents { events, why, tries, last_error } = dead;
                tracing::debug!(events = events.len(), reason = why.as_str(), tries, last_error, "events are given up");
                queue.finish(events.len());
                0
            }
            BatchSource::Outbox(outbox) => {
                let error = if dead.last_error.is_empty() { dead.why.as_str() } else { dead.last_error };
                outbox.dead(dead.events, dead.tries, error).await
            }
        }
    }

    /// The queue; `None` = the source is none.
    pub(super) fn queue(&self) -> Option<&QueueSource> {
        match self {
            BatchSource::Queue(queue) => Some(queue),
            BatchSource::Outbox(_) => None,
        }
    }
}

/// The queue of an endpoint in memory.
pub(super) struct QueueSource {
    node: Arc<Node>,
    queue: RefCell<EventQueue>,
    /// Wakes each lane.
    lanes: Vec<Notify>,
    /// Events that were taken and have no outcome yet.
    under_way: Cell<usize>,
    /// When the oldest of them in each lane came to be, Unix milliseconds.
    oldest_under_way_ms: Vec<Cell<Option<u64>>>,
    /// No event waits for others any more.
    is_closing: Cell<bool>,
}

impl QueueSource {
    /// An empty queue.
    pub(super) fn new(node: Arc<Node>, endpoint: &EventEndpoint) -> Self {
        let options = &endpoint.options;
        let limits = limits_of(options);
        QueueSource {
            node,
            queue: RefCell::new(EventQueue::new(limits)),
            lanes: std::iter::repeat_with(Notify::new).take(options.lanes).collect(),
            under_way: Cell::new(0),
            oldest_under_way_ms: vec![Cell::new(None); options.lanes],
            is_closing: Cell::new(false),
        }
    }

    /// Adds an event; returns what was dropped for it.
    pub(super) fn push(&self, event: WrittenEvent) -> Option<EventLoss> {
        let (lane, dropped) = self.queue.borrow_mut().push(event, self.node.clock.now_ms());
        self.lanes[lane].notify_one();
        dropped
    }

    /// Other limits hold from now on; the number of lanes stays.
    pub(super) fn set_options(&self, options: &EventsSettings) {
        self.queue.borrow_mut().set_limits(limits_of(options));
        self.lanes.iter().for_each(Notify::notify_one);
    }

    /// Something was lost: each lane tells so first.
    pub(super) fn note_loss(&self, reset: &WrittenEvent) {
        self.queue.borrow_mut().note_loss(reset);
        self.lanes.iter().for_each(Notify::notify_one);
    }

    /// Takes the events that have become too old, Unix milliseconds.
    pub(super) fn expire(&self, until_ms: u64) -> Vec<WrittenEvent> {
        self.queue.borrow_mut().expire(until_ms)
    }

    /// From now on no event waits for others.
    pub(super) fn close(&self) {
        self.is_closing.set(true);
        self.lanes.iter().for_each(Notify::notify_one);
    }

    /// Events that wait or are under way.
    pub(super) fn len(&self) -> usize {
        self.queue.borrow().len() + self.under_way.get()
    }

    /// Bytes of the events that wait.
    pub(super) fn size(&self) -> usize {
        self.queue.borrow().size()
    }

    /// When the oldest event that waits or is under way came to be, Unix milliseconds.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        let under_way = self.oldest_under_way_ms.iter().filter_map(Cell::get);
        under_way.chain(self.queue.borrow().oldest_ms()).min()
    }

    async fn next(&self, lane: usize, batch_max: usize) -> Vec<WrittenEvent> {
        loop {
            let now_ms = self.node.clock.now_ms();
            let ready = self.queue.borrow().ready_at(lane, batch_max);
            let woken = self.lanes[lane].notified();
            match ready {
                Some(at_ms) if at_ms <= now_ms || self.is_closing.get() => {
                    let batch = self.queue.borrow_mut().take(lane, batch_max);
                    self.under_way.set(self.under_way.get() + batch.len());
                    return batch;
                }
                Some(at_ms) => drop(tokio::time::timeout(Duration::from_millis(at_ms - now_ms), woken).await),
                None => woken.await,
            }
        }
    }

    fn finish(&self, events: usize) {
        self.under_way.set(self.under_way.get().saturating_sub(events));
    }
}

fn limits_of(options: &EventsSettings) -> EventQueueLimits {
    EventQueueLimits {
        lanes: options.lanes,
        entries_max: options.queue_max,
        size_max: options.queue_max_size,
        batch_wait_ms: millis(options.batch_wait),
    }
}
