//! The source of an endpoint's batches: a queue in memory (best effort), or the outbox of the primary database
//! (`durable`).
//!
//! A lane gets a batch from [`BatchSource::next`], and reports the outcome of each of its events once, with
//! [`BatchSource::done`] or [`BatchSource::dead`].

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

/// The source of batches.
pub(super) enum BatchSource {
    /// A queue in memory.
    Queue(QueueSource),
    /// The outbox of the primary database.
    Outbox(OutboxSource),
}

/// Events that were not delivered and are given up.
pub(super) struct DeadEvents<'a> {
    pub(super) events: &'a [WrittenEvent],
    pub(super) why: DeadReason,
    /// How many times the events were sent, in batches of any size.
    pub(super) tries: u32,
    /// The last answer as text, for people; empty = none arrived.
    pub(super) last_error: &'a str,
}

impl BatchSource {
    /// Waits for the next batch of a lane, with one to `batch_max` events.
    pub(super) async fn next(&self, lane: usize, batch_max: usize) -> Vec<WrittenEvent> {
        match self {
            BatchSource::Queue(queue) => queue.next(lane, batch_max).await,
            BatchSource::Outbox(outbox) => outbox.next(lane, batch_max).await,
        }
    }

    /// Notes when the oldest event under way in a lane was made, in Unix milliseconds; `None` = no event is under way.
    pub(super) fn note_oldest(&self, lane: usize, oldest_ms: Option<u64>) {
        if let Some(of_lane) = self.queue().and_then(|queue| queue.oldest_under_way_ms.get(lane)) {
            of_lane.set(oldest_ms);
        }
    }

    /// Notes that these events were delivered.
    pub(super) async fn done(&self, events: &[WrittenEvent]) {
        match self {
            BatchSource::Queue(queue) => queue.finish(events.len()),
            BatchSource::Outbox(outbox) => outbox.done(events).await,
        }
    }

    /// Gives up these events. Returns how many older dead letters were dropped for them.
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

    /// Returns the queue; `None` = the source is the outbox.
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
    /// One notification for each lane, which wakes the lane.
    lanes: Vec<Notify>,
    /// The number of events that were taken and have no outcome yet.
    under_way: Cell<usize>,
    /// When the oldest event under way in each lane was made, in Unix milliseconds.
    oldest_under_way_ms: Vec<Cell<Option<u64>>>,
    /// Events no longer wait for others of their batch.
    is_closing: Cell<bool>,
}

impl QueueSource {
    /// Makes an empty queue.
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

    /// Adds an event. Returns the events that were dropped for it.
    pub(super) fn push(&self, event: WrittenEvent) -> Option<EventLoss> {
        let (lane, dropped) = self.queue.borrow_mut().push(event, self.node.clock.now_ms());
        self.lanes[lane].notify_one();
        dropped
    }

    /// Replaces the limits. The number of lanes does not change.
    pub(super) fn set_options(&self, options: &EventsSettings) {
        self.queue.borrow_mut().set_limits(limits_of(options));
        self.lanes.iter().for_each(Notify::notify_one);
    }

    /// Notes that events were lost. Each lane reports this first.
    pub(super) fn note_loss(&self, reset: &WrittenEvent) {
        self.queue.borrow_mut().note_loss(reset);
        self.lanes.iter().for_each(Notify::notify_one);
    }

    /// Takes the events that are older than this time, in Unix milliseconds.
    pub(super) fn expire(&self, until_ms: u64) -> Vec<WrittenEvent> {
        self.queue.borrow_mut().expire(until_ms)
    }

    /// Closes the queue: events no longer wait for others of their batch.
    pub(super) fn close(&self) {
        self.is_closing.set(true);
        self.lanes.iter().for_each(Notify::notify_one);
    }

    /// Returns the number of events that wait or are under way.
    pub(super) fn len(&self) -> usize {
        self.queue.borrow().len() + self.under_way.get()
    }

    /// Returns the bytes of the events that wait.
    pub(super) fn size(&self) -> usize {
        self.queue.borrow().size()
    }

    /// Returns when the oldest event that waits or is under way was made, in Unix milliseconds.
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
                Some(at_ms) => drop(self.node.clock.time().timeout(Duration::from_millis(at_ms - now_ms), woken).await),
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
