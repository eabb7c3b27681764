//! One lane of an endpoint. It takes a batch, sends it until the outcome of every event is known, and takes the next
//! one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use touchline_cluster::OutsideMessage;
use touchline_engine::events::{
    BatchDelivery, BatchPace, DeadReason, EndpointOutage, EndpointReply, EventLoss, Follow, GivenUpLog, WrittenEvent,
};

use super::endpoint::{EventEndpoint, EventTarget, SentBatch};
use super::signature::batch_id;
use super::source::{BatchSource, DeadEvents};
use crate::node::Node;
use crate::runtime::event_metrics::{EndpointFigures, EventMetrics};
use crate::traces::{Span, TracedPart};

/// The media type of a single event.
const MESSAGE_TYPE: &str = "application/cloudevents+json";
/// The longest sleep of a lane whose endpoint is off, because events become too old in the meantime.
const OFF_SLEEP_MS: u64 = 1_000;

/// An endpoint in operation, which all its lanes share.
pub(super) struct EndpointAtWork {
    pub(super) node: Arc<Node>,
    /// The name of the endpoint, which a reload does not change.
    pub(super) name: String,
    /// The settings of the endpoint, which a reload replaces.
    endpoint: RefCell<Arc<EventEndpoint>>,
    pub(super) source: BatchSource,
    figures: Arc<EndpointFigures>,
    /// The endpoint has answered 410.
    is_off: Cell<bool>,
    resumed: Notify,
    outage: RefCell<EndpointOutage>,
    given_up: RefCell<GivenUpLog>,
    /// The time of the oldest event that was given up, in Unix milliseconds, while no `state.reset` has reported it;
    /// None = no event was given up.
    lost_since_ms: Cell<Option<u64>>,
    random: RefCell<fastrand::Rng>,
}

impl EndpointAtWork {
    /// Makes an endpoint that has not sent anything.
    pub(super) fn new(
        node: Arc<Node>,
        endpoint: Arc<EventEndpoint>,
        source: BatchSource,
        metrics: &EventMetrics,
    ) -> Self {
        EndpointAtWork {
            node,
            outage: RefCell::new(EndpointOutage::new(endpoint.options.lanes)),
            figures: metrics.of_endpoint(&endpoint.name).unwrap_or_default(),
            name: endpoint.name.clone(),
            endpoint: RefCell::new(endpoint),
            source,
            is_off: Cell::new(false),
            resumed: Notify::new(),
            given_up: RefCell::default(),
            lost_since_ms: Cell::new(None),
            random: RefCell::new(fastrand::Rng::new()),
        }
    }

    /// Returns the metrics of the endpoint.
    pub(super) fn figures(&self) -> &EndpointFigures {
        &self.figures
    }

    /// Returns the settings of the endpoint.
    pub(super) fn endpoint(&self) -> Arc<EventEndpoint> {
        Arc::clone(&self.endpoint.borrow())
    }

    /// Replaces the settings for batches that are made from now on. Batches under way continue. A 410 of the old
    /// address does not apply to a new one.
    pub(super) fn set_endpoint(&self, endpoint: Arc<EventEndpoint>) {
        if let Some(queue) = self.source.queue() {
            queue.set_options(&endpoint.options);
        }
        let has_moved = self.endpoint().shown_address() != endpoint.shown_address();
        *self.endpoint.borrow_mut() = endpoint;
        if has_moved {
            self.resume();
        }
    }

    /// Sends events again after a 410.
    pub(super) fn resume(&self) {
        if self.is_off.replace(false) {
            self.figures().is_off.store(false, Relaxed);
            tracing::info!(endpoint = %self.name, "events are sent again");
            self.resumed.notify_waiters();
        }
    }

    fn switch_off(&self) {
        if !self.is_off.replace(true) {
            self.figures().is_off.store(true, Relaxed);
            tracing::error!(
                endpoint = %self.name,
                address = %self.endpoint().shown_address(),
                "the endpoint has answered 410: no event is sent until the next start, or `touchline events resume`"
            );
        }
    }

    /// Notes the outcome of a lane's try. The log has one line when an outage begins and one when it ends.
    fn note_try(&self, lane: usize, fault: Option<&str>) {
        let now_ms = self.node.clock.now_ms();
        let endpoint = &self.name;
        let Some(cause) = fault else {
            if let Some(lasted_ms) = self.outage.borrow_mut().arrived(lane, now_ms) {
                tracing::info!(%endpoint, seconds = lasted_ms / 1_000, "events arrive again");
            }
            return;
        };
        if self.outage.borrow_mut().failed(lane, now_ms) {
            let address = self.endpoint().shown_address();
            tracing::warn!(%endpoint, %address, cause, "events do not arrive: they are sent again");
        }
    }

    /// Counts events that are given up, and notes them for the log.
    pub(super) fn count_dead(&self, events: &[WrittenEvent], why: DeadReason, last_error: &str) {
        let (Some(first), Some(loss)) = (events.first(), EventLoss::of(events)) else { return };
        self.figures().dead[why as usize].add(loss.events);
        self.note_loss(loss.since_ms);
        self.given_up.borrow_mut().note(why, loss.events, &first.id, last_error);
    }

    /// Logs the events that were given up, at most once a minute. `is_last`: the node stops.
    pub(super) fn log_given_up(&self, is_last: bool) {
        for line in self.given_up.borrow_mut().take(self.node.clock.now_ms(), is_last) {
            tracing::error!(
                endpoint = %self.name,
                events = line.events,
                reason = line.why.as_str(),
                first_id = %line.first_id,
                last_error = %line.last_error,
                "events are given up"
            );
        }
    }

    /// Notes that an event of this time, in Unix milliseconds, is not reported. A `state.reset` must say so.
    pub(super) fn note_loss(&self, since_ms: u64) {
        self.lost_since_ms.set(Some(self.lost_since_ms.get().map_or(since_ms, |known| known.min(since_ms))));
    }

    /// Returns the time of the oldest event that was given up since the last call, in Unix milliseconds. A
    /// `state.reset` that is given up counts too, so the endpoint is owed one until it has arrived.
    pub(super) fn take_loss(&self) -> Option<u64> {
        self.lost_since_ms.take()
    }
}

/// Sends the batches of one lane, without end.
pub(super) async fn run(work: Rc<EndpointAtWork>, lane: usize) {
    let mut pace = BatchPace::new(work.endpoint().options.batch_max);
    loop {
        let batch = work.source.next(lane, pace.batch_max()).await;
        deliver(&work, lane, BatchDelivery::new(batch), &mut pace).await;
        work.outage.borrow_mut().is_over(lane);
    }
}

/// Sends a batch, whole or in pieces, until the outcome of each of its events is known.
async fn deliver(work: &EndpointAtWork, lane: usize, mut delivery: BatchDelivery, pace: &mut BatchPace) {
    let mut sent: Option<(u64, SentBatch)> = None;
    let mut last_error = String::new();
    loop {
        let (now_ms, max_age_ms) = (work.node.clock.now_ms(), work.endpoint().max_age_ms());
        let tries = delivery.tries();
        let gone = delivery.expire(now_ms.saturating_sub(max_age_ms));
        if !gone.is_empty() {
            bury(work, &gone, DeadReason::TooOld, tries, &last_error).await;
        }
        work.source.note_oldest(lane, delivery.oldest_ms());
        let Some((events, number)) = delivery.current() else { return };
        let wait_ms = pace.wait_ms(&delivery, max_age_ms, now_ms);
        if work.is_off.get() || wait_ms > 0 {
            let old_at_ms = delivery.oldest_ms().unwrap_or_default().saturating_add(max_age_ms);
            let off_ms = OFF_SLEEP_MS.min(old_at_ms.saturating_sub(now_ms));
            let wait_ms = if work.is_off.get() { off_ms } else { wait_ms };
            let wait = Duration::from_millis(wait_ms);
            let _ = work.node.clock.time().timeout(wait, work.resumed.notified()).await;
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
        work.note_try(lane, fault.as_deref());
        last_error = fault.unwrap_or_default();
        let random = work.random.borrow_mut().u64(..);
        let tries = delivery.tries() + 1;
        match delivery.answered(reply, pace, work.node.clock.now_ms(), random) {
            Follow::Done(events) => {
                work.figures().sent.add(events.len() as u64);
                work.source.done(&events).await;
            }
            Follow::Again => sent = Some((number, batch)),
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
    let endpoint = work.endpoint();
    let mut span = Span::begin(TracedPart::Events, || format!("events {}", work.name), None);
    span.note("touchline.events", || events.len().to_string());
    let (reply, fault) = match &endpoint.target {
        EventTarget::Http(http) => http.send(batch, &span, &work.node.clock).await,
        EventTarget::Nats(subject) => publish(work, (subject, endpoint.options.timeout), events).await,
    };
    if let Some(fault) = &fault {
        span.fail(|| fault.clone());
    }
    (reply, fault)
}

/// Sends events as messages of NATS, one event per message (CloudEvents, structured mode).
async fn publish(
    work: &EndpointAtWork,
    (subject, timeout): (&str, Duration),
    events: &[WrittenEvent],
) -> (EndpointReply, Option<String>) {
    let fault = |text: &str| (EndpointReply::Nothing, Some(text.to_owned()));
    let Some(cluster) = &work.node.cluster else { return fault("this node has no connection to NATS") };
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
    match work.node.clock.time().timeout(timeout, told).await {
        Ok(Ok(true)) => (EndpointReply::Status { status: 200, retry_after_ms: None }, None),
        Ok(_) => fault("NATS has not accepted the messages"),
        Err(_) => fault("NATS does not answer"),
    }
}

/// Returns the id by which a stream recognizes repetitions of an event: a hash of its source and its id.
fn message_id(event: &WrittenEvent) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(event.source.as_bytes());
    context.update(b"\n");
    context.update(event.id.as_bytes());
    context.finish().as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn bury(work: &EndpointAtWork, events: &[WrittenEvent], why: DeadReason, tries: u32, last_error: &str) {
    work.count_dead(events, why, last_error);
    let dropped = work.source.dead(DeadEvents { events, why, tries, last_error }).await;
    if dropped > 0 {
        let endpoint = &work.name;
        tracing::warn!(%endpoint, dropped, "there are too many dead letters: the oldest are dropped");
    }
}

fn new_id(work: &EndpointAtWork) -> String {
    batch_id(work.node.clock.now_ms(), work.random.borrow_mut().u128(..))
}

/// Makes the body of a batch: a list of events.
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
