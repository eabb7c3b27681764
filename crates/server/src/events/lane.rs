//! One lane of an endpoint: it takes a batch, sends it until its end is known, and takes the next one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use touchline_cluster::OutsideMessage;
use touchline_engine::events::{BatchDelivery, BatchPace, DeadReason, EndpointReply, Follow, WrittenEvent};

use super::endpoint::{EventEndpoint, EventTarget, SentBatch};
use super::signature::batch_id;
use super::source::{BatchSource, DeadEvents};
use crate::node::Node;
use crate::runtime::event_metrics::{EndpointFigures, EventMetrics};

/// The media type of an event by itself.
const MESSAGE_TYPE: &str = "application/cloudevents+json";
/// Time between two lines of the log about dead events of one endpoint, milliseconds.
const DEAD_LOG_MS: u64 = 60_000;

/// An endpoint at work: all its lanes share it.
pub(super) struct EndpointAtWork {
    pub(super) node: Arc<Node>,
    pub(super) endpoint: Arc<EventEndpoint>,
    pub(super) source: BatchSource,
    pub(super) metrics: Arc<EventMetrics>,
    /// Its number in the metrics.
    pub(super) number: usize,
    /// It has answered 410.
    is_off: Cell<bool>,
    resumed: Notify,
    /// When the present outage began, Unix milliseconds; None = there is none.
    failing_since_ms: Cell<Option<u64>>,
    /// When the log was last told of dead events, Unix milliseconds, and how many have died since.
    dead_log: Cell<(u64, u64)>,
    /// Something was given up, and no `state.reset` has said so yet.
    has_lost: Cell<bool>,
    random: RefCell<fastrand::Rng>,
}

impl EndpointAtWork {
    /// An endpoint that has sent nothing.
    pub(super) fn new(
        node: Arc<Node>,
        (endpoint, number): (Arc<EventEndpoint>, usize),
        source: BatchSource,
        metrics: Arc<EventMetrics>,
    ) -> Self {
        EndpointAtWork {
            node,
            endpoint,
            source,
            metrics,
            number,
            is_off: Cell::new(false),
            resumed: Notify::new(),
            failing_since_ms: Cell::new(None),
            dead_log: Cell::new((0, 0)),
            has_lost: Cell::new(false),
            random: RefCell::new(fastrand::Rng::new()),
        }
    }

    /// Its metrics.
    pub(super) fn figures(&self) -> &EndpointFigures {
        &self.metrics.endpoints[self.number]
    }

    /// Sends events again after a 410.
    pub(super) fn resume(&self) {
        if self.is_off.replace(false) {
            self.figures().is_off.store(false, Relaxed);
            tracing::info!(endpoint = %self.endpoint.name, "events are sent again");
            self.resumed.notify_waiters();
        }
    }

    fn switch_off(&self) {
        if !self.is_off.replace(true) {
            self.figures().is_off.store(true, Relaxed);
            tracing::error!(
                endpoint = %self.endpoint.name,
                address = %self.endpoint.shown_address(),
                "the endpoint has answered 410: no event is sent until the next start, or `touchline events resume`"
            );
        }
    }

    /// Notes the outcome of a try for the log: one line when an outage begins, one when it is over.
    fn note_try(&self, fault: Option<&str>) {
        let now_ms = self.node.clock.now_ms();
        match (fault, self.failing_since_ms.get()) {
            (Some(cause), None) => {
                self.failing_since_ms.set(Some(now_ms));
                let (endpoint, address) = (&self.endpoint.name, self.endpoint.shown_address());
                tracing::warn!(%endpoint, %address, cause, "events do not arrive: they are sent again");
            }
            (None, Some(since_ms)) => {
                self.failing_since_ms.set(None);
                let seconds = now_ms.saturating_sub(since_ms) / 1_000;
                tracing::info!(endpoint = %self.endpoint.name, seconds, "events arrive again");
            }
            _ => {}
        }
    }

    /// Counts and logs events that are not sent any more.
    pub(super) fn count_dead(&self, events: u64, why: DeadReason, last_error: &str) {
        self.figures().dead[why as usize].add(events);
        self.note_loss();
        let (logged_ms, unlogged) = self.dead_log.get();
        let now_ms = self.node.clock.now_ms();
        if now_ms.saturating_sub(logged_ms) < DEAD_LOG_MS {
            return self.dead_log.set((logged_ms, unlogged + events));
        }
        self.dead_log.set((now_ms, 0));
        let (endpoint, events) = (&self.endpoint.name, unlogged + events);
        tracing::error!(%endpoint, events, reason = why.as_str(), last_error, "events are given up");
    }

    /// Something is not told: a `state.reset` must say so.
    pub(super) fn note_loss(&self) {
        self.has_lost.set(true);
    }

    /// Whether something was given up since this was asked last. A `state.reset` that is given up counts too, so it
    /// stays owed until one has arrived.
    pub(super) fn take_loss(&self) -> bool {
        self.has_lost.take()
    }
}

/// Sends the batches of one lane, for ever.
pub(super) async fn run(work: Rc<EndpointAtWork>, lane: usize) {
    let mut pace = BatchPace::new(work.endpoint.options.batch_max);
    loop {
        let batch = work.source.next(lane, pace.batch_max()).await;
        deliver(&work, BatchDelivery::new(batch), &mut pace).await;
    }
}

/// Sends a batch, whole or in pieces, until the end of each of its events is known.
async fn deliver(work: &EndpointAtWork, mut delivery: BatchDelivery, pace: &mut BatchPace) {
    let mut sent: Option<(u64, SentBatch)> = None;
    let mut last_error = String::new();
    loop {
        let too_old_ms = work.node.clock.now_ms().saturating_sub(work.endpoint.max_age_ms());
        let tries = delivery.tries();
        let gone = delivery.expire(too_old_ms);
        if !gone.is_empty() {
            bury(work, &gone, DeadReason::TooOld, tries, &last_error).await;
        }
        let Some((events, number)) = delivery.current() else { return };
        if work.is_off.get() {
            // Events become too old meanwhile.
            let _ = tokio::time::timeout(Duration::from_secs(1), work.resumed.notified()).await;
            continue;
        }
        let batch = match sent.take() {
            Some((known, batch)) if known == number => batch,
            _ => SentBatch { id: new_id(work), body: list(events) },
        };
        if delivery.tries() > 0 {
            work.figures().retried.add(1);
        }
        let (reply, fault) = send(work, &batch, events).await;
        work.note_try(fault.as_deref());
        last_error = fault.unwrap_or_default();
        let random = work.random.borrow_mut().u64(..);
        let tries = delivery.tries() + 1;
        match delivery.answered(reply, pace, work.node.clock.now_ms(), random) {
            Follow::Done(events) => {
                work.figures().sent.add(events.len() as u64);
                work.source.done(&events).await;
            }
            Follow::Again(at_ms) => {
                sent = Some((number, batch));
                let wait_ms = at_ms.saturating_sub(work.node.clock.now_ms());
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            }
            Follow::Cut => {}
            Follow::Dead(events, why) => bury(work, &events, why, tries, &last_error).await,
            Follow::Off => {
                sent = Some((number, batch));
                work.switch_off();
            }
        }
    }
}

async fn send(work: &EndpointAtWork, batch: &SentBatch, events: &[WrittenEvent]) -> (EndpointReply, Option<String>) {
    match &work.endpoint.target {
        EventTarget::Http(http) => http.send(batch, work.node.clock.now_ms()).await,
        EventTarget::Nats(subject) => publish(work, subject, events).await,
    }
}

/// Sends events as messages of NATS, each by itself (CloudEvents, structured mode).
async fn publish(work: &EndpointAtWork, subject: &str, events: &[WrittenEvent]) -> (EndpointReply, Option<String>) {
    let fault = |text: &str| (EndpointReply::Nothing, Some(text.to_owned()));
    let Some(cluster) = &work.node.cluster else { return fault("there is no NATS server") };
    let messages = events.iter().map(|event| OutsideMessage {
        id: message_id(event),
        content_type: MESSAGE_TYPE,
        payload: event.body.clone(),
    });
    let (done, told) = oneshot::channel();
    let done = move |has_arrived| {
        let _ = done.send(has_arrived);
    };
    cluster.tell(subject.into(), messages.collect(), Box::new(done));
    match tokio::time::timeout(work.endpoint.options.timeout, told).await {
        Ok(Ok(true)) => (EndpointReply::Status { status: 200, retry_after_ms: None }, None),
        Ok(_) => fault("NATS has not taken the messages"),
        Err(_) => fault("NATS does not answer"),
    }
}

/// The same for each repetition of an event, by which a stream knows it: a hash of its source and its id.
fn message_id(event: &WrittenEvent) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(event.source.as_bytes());
    context.update(b"\n");
    context.update(event.id.as_bytes());
    context.finish().as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn bury(work: &EndpointAtWork, events: &[WrittenEvent], why: DeadReason, tries: u32, last_error: &str) {
    work.count_dead(events.len() as u64, why, last_error);
    let dropped = work.source.dead(DeadEvents { events, why, tries, last_error }).await;
    if dropped > 0 {
        let endpoint = &work.endpoint.name;
        tracing::warn!(%endpoint, dropped, "there are too many dead letters: the oldest are dropped");
    }
}

fn new_id(work: &EndpointAtWork) -> String {
    batch_id(work.node.clock.now_ms(), work.random.borrow_mut().u128(..))
}

/// The body of a batch: a list of events.
fn list(events: &[WrittenEvent]) -> Bytes {
    let size = events.iter().map(|event| event.body.len() + 1).sum::<usize>();
    let mut body = Vec::with_capacity(size + 2);
    body.push(b'[');
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&event.body);
    }
    body.push(b']');
    body.into()
}
