//! The outbox of the ledger: the lanes that this node delivers, and the batches of their events.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::Instant;
use touchline_engine::events::{BATCH_SIZE_MAX, DeadReason, EventKind, WrittenEvent};
use touchline_store::ledger::{Burial, EventLedger, LedgerError, OutboxLane, OwnLane, WaitingEvent};

use super::outage::OutageNote;
use crate::runtime::event_metrics::EventMetrics;

/// The time between two requests for events, so that many notifications cause only one request.
const FETCH_GAP: Duration = Duration::from_millis(5);
/// The pause between two attempts to use a database that fails: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How the lanes of an endpoint are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneSettings {
    /// The number of lanes that are sent at the same time.
    pub(super) lanes: usize,
    /// How long an event waits for others of its batch.
    pub(super) batch_wait: Duration,
}

/// An event of the outbox that is under way.
struct EventRow {
    lane: OutboxLane,
    row: u64,
    source: Arc<str>,
    id: Box<str>,
}

/// One of the tasks that send batches.
#[derive(Default)]
struct LaneTask {
    /// How many events the task waits for; 0 = it does not wait.
    wanted: usize,
    found: Vec<WrittenEvent>,
    under_way: Vec<EventRow>,
    /// When a batch is sent that is not full; None = no event waits for others.
    ripe_at: Option<Instant>,
    bell: Rc<Notify>,
}

/// The state that all lanes of this node share.
pub(super) struct OutboxHub {
    ledger: Rc<EventLedger>,
    endpoints: BTreeMap<String, LaneSettings>,
    metrics: Arc<EventMetrics>,
    tasks: RefCell<BTreeMap<OutboxLane, LaneTask>>,
    /// The lanes that this node delivers.
    own: RefCell<BTreeSet<OutboxLane>>,
    /// The life that delivers; `None` = the node has no life in the ledger.
    incarnation: Cell<Option<u64>>,
    bell: Notify,
    /// Held while events are fetched, so that no lane is given to another node in the meantime.
    order: Mutex<()>,
}

/// The outbox as the lanes of one endpoint see it.
pub(crate) struct OutboxSource {
    hub: Rc<OutboxHub>,
    endpoint: String,
}

impl OutboxHub {
    pub(super) fn new(
        ledger: Rc<EventLedger>,
        endpoints: BTreeMap<String, LaneSettings>,
        metrics: Arc<EventMetrics>,
    ) -> Self {
        OutboxHub {
            ledger,
            endpoints,
            metrics,
            tasks: RefCell::default(),
            own: RefCell::default(),
            incarnation: Cell::new(None),
            bell: Notify::new(),
            order: Mutex::new(()),
        }
    }

    /// Notifies the task that fetches: the outbox may contain new events.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Returns all lanes that this node may deliver.
    pub(super) fn wanted(&self) -> Vec<OutboxLane> {
        let each = |(name, settings): (&String, &LaneSettings)| {
            let name = name.clone();
            (0..settings.lanes as u32).map(move |lane| OutboxLane { endpoint: name.clone(), lane })
        };
        self.endpoints.iter().flat_map(each).collect()
    }

    /// Keeps lanes from being fetched while it is decided again which lanes belong to this node.
    pub(super) async fn hold(&self) -> MutexGuard<'_, ()> {
        self.order.lock().await
    }

    /// Returns the lanes in which no event is under way.
    pub(super) fn idle(&self) -> Vec<OutboxLane> {
        self.waiting().into_iter().map(|(lane, _)| lane).collect()
    }

    /// Sets the lanes that this node delivers in a life, with the events that wait in them.
    pub(super) fn set_own(&self, incarnation: Option<u64>, lanes: &[OwnLane]) {
        self.incarnation.set(incarnation);
        *self.own.borrow_mut() = lanes.iter().map(|own| own.lane.clone()).collect();
        for figures in self.endpoints.keys().filter_map(|name| self.metrics.of_endpoint(name)) {
            let own = || lanes.iter().filter(|own| own.lane.endpoint == figures.name);
            figures.queued.set(own().map(|own| own.events).sum());
            figures.queued_bytes.set(own().map(|own| own.size).sum());
            figures.oldest_ms.set(own().map(|own| own.oldest_ms).max().unwrap_or_default());
        }
        let waiting = self.waiting();
        if lanes.iter().any(|own| own.events > 0 && waiting.iter().any(|(lane, _)| *lane == own.lane)) {
            self.ring();
        }
    }

    /// Returns the task that sends a lane. If an endpoint has fewer lanes than before, one task serves several.
    fn task_of(&self, lane: &OutboxLane) -> OutboxLane {
        let count = self.endpoints.get(&lane.endpoint).map_or(1, |settings| settings.lanes.max(1));
        OutboxLane { endpoint: lane.endpoint.clone(), lane: lane.lane % count as u32 }
    }

    /// Returns the lanes of this node whose tasks wait for events, with the number of events that they take.
    fn waiting(&self) -> Vec<(OutboxLane, u32)> {
        let tasks = self.tasks.borrow();
        let own = self.own.borrow();
        let wanted = |lane: &OutboxLane| tasks.get(&self.task_of(lane)).map_or(0, |task| task.wanted);
        own.iter().map(|lane| (lane.clone(), wanted(lane) as u32)).filter(|(_, wanted)| *wanted > 0).collect()
    }

    /// Returns when the first incomplete batch is to be sent.
    fn ripe_at(&self) -> Option<Instant> {
        self.tasks.borrow().values().filter_map(|task| task.ripe_at).min()
    }

    /// Clears the times up to this one, because their events were found or are gone.
    fn forget_ripe(&self, looked_at: Instant) {
        for task in self.tasks.borrow_mut().values_mut() {
            task.ripe_at = task.ripe_at.filter(|at| *at > looked_at);
        }
    }

    /// Gives the events of a lane to its task, if they are a full batch or have waited long enough. Returns the rows
    /// that cannot be read as events.
    fn give(&self, lane: &OutboxLane, events: Vec<WaitingEvent>, looked_at: Instant) -> Vec<Burial> {
        let (fetched, mut size, mut batch, mut unreadable) = (events.len(), 0, Vec::new(), Vec::new());
        let mut is_full = false;
        for event in events {
            let row = event.id;
            match written(event) {
                Ok(event) => {
                    // One byte more for the comma or the bracket before the event, or for the last bracket.
                    size += event.body.len() + 1;
                    is_full = size >= BATCH_SIZE_MAX && !batch.is_empty();
                    if is_full {
                        break;
                    }
                    batch.push((row, event));
                }
                Err(error) => unreadable.push(Burial { id: row, tries: 0, error }),
            }
        }
        let mut tasks = self.tasks.borrow_mut();
        // Another lane may have given the task a batch in the meantime. Then these events wait.
        let task = tasks.get_mut(&self.task_of(lane)).filter(|task| task.wanted > 0 && !batch.is_empty());
        let Some(task) = task else { return unreadable };
        let batch_wait = self.endpoints.get(&lane.endpoint).map_or(Duration::ZERO, |settings| settings.batch_wait);
        if !is_full && fetched < task.wanted && !batch_wait.is_zero() {
            let ripe_at = *task.ripe_at.get_or_insert(looked_at + batch_wait);
            if looked_at < ripe_at {
                return unreadable;
            }
        }
        (task.ripe_at, task.wanted) = (None, 0);
        for (row, event) in batch {
            let (source, id) = (Arc::clone(&event.source), event.id.clone());
            task.under_way.push(EventRow { lane: lane.clone(), row, source, id });
            task.found.push(event);
        }
        task.bell.notify_one();
        unreadable
    }

    /// Puts rows that are not events aside, so that they do not block their lane.
    async fn put_aside(&self, lane: &OutboxLane, burials: &[Burial]) {
        if burials.is_empty() {
            return;
        }
        match self.ledger.bury(lane, burials).await {
            Ok(_) => {
                let (endpoint, events) = (&lane.endpoint, burials.len());
                tracing::error!(%endpoint, events, "events of the outbox cannot be read: they are dead letters now");
                if let Some(figures) = self.metrics.of_endpoint(endpoint) {
                    figures.dead[DeadReason::Unreadable as usize].add(events as u64);
                }
                self.ring();
            }
            // The next request finds the rows again.
            Err(error) => tracing::debug!(%error, "events that cannot be read could not be put aside"),
        }
    }
}

/// The parts of an event that are read again.
#[derive(Deserialize)]
struct EventHead<'b> {
    #[serde(borrow)]
    id: std::borrow::Cow<'b, str>,
    #[serde(borrow)]
    source: std::borrow::Cow<'b, str>,
    #[serde(borrow, rename = "type")]
    cloud_type: std::borrow::Cow<'b, str>,
    #[serde(borrow, rename = "partitionkey")]
    key: std::borrow::Cow<'b, str>,
}

/// Returns an event of the outbox as lanes send it. Its age is that of its row, so that a retried dead letter counts as
/// new.
///
/// # Errors
/// Why the row is not an event.
fn written(event: WaitingEvent) -> Result<WrittenEvent, String> {
    let unreadable = |error| format!("the row is not an event: {error}");
    let head: EventHead<'_> = serde_json::from_str(&event.body).map_err(unreadable)?;
    let kind = EventKind::from_cloud_type(&head.cloud_type);
    Ok(WrittenEvent {
        kind: kind.ok_or_else(|| format!("this version does not know the type {:?}", head.cloud_type))?,
        source: (*head.source).into(),
        id: (*head.id).into(),
        key: (*head.key).into(),
        time_ms: event.made_ms,
        since_ms: event.made_ms,
        body: Bytes::from(event.body),
    })
}

/// Fetches the events of lanes that wait for some, without end.
pub(super) async fn fetch(hub: Rc<OutboxHub>) {
    let outage = OutageNote::new("durable endpoints receive no events");
    let of_others = hub.ledger.bell();
    loop {
        let ripe = async {
            match hub.ripe_at() {
                // real time: leases and ages of the ledger follow the database's clock.
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = hub.bell.notified() => {}
            () = of_others.notified() => {}
            () = ripe => {}
        }
        let order = hub.order.lock().await;
        // real time: leases and ages of the ledger follow the database's clock.
        let (incarnation, wanted, looked_at) = (hub.incarnation.get(), hub.waiting(), Instant::now());
        if let (Some(incarnation), false) = (incarnation, wanted.is_empty()) {
            match hub.ledger.fetch(incarnation, &wanted).await {
                Ok(found) => {
                    outage.works();
                    for (lane, events) in found {
                        let unreadable = hub.give(&lane, events, looked_at);
                        hub.put_aside(&lane, &unreadable).await;
                    }
                }
                Err(error) => {
                    outage.fails(&error);
                    // real time: leases and ages of the ledger follow the database's clock.
                    tokio::time::sleep(RETRY.0).await;
                    hub.ring();
                }
            }
        }
        hub.forget_ripe(looked_at);
        drop(order);
        // real time: leases and ages of the ledger follow the database's clock.
        tokio::time::sleep(FETCH_GAP).await;
    }
}

impl OutboxSource {
    pub(super) fn new(hub: Rc<OutboxHub>, endpoint: &str) -> Self {
        OutboxSource { hub, endpoint: endpoint.to_owned() }
    }

    fn lane(&self, lane: usize) -> OutboxLane {
        OutboxLane { endpoint: self.endpoint.clone(), lane: lane as u32 }
    }

    /// Waits for the next batch of a lane.
    pub(crate) async fn next(&self, lane: usize, batch_max: usize) -> Vec<WrittenEvent> {
        let lane = self.lane(lane);
        loop {
            let bell = {
                let mut tasks = self.hub.tasks.borrow_mut();
                let task = tasks.entry(lane.clone()).or_default();
                if !task.found.is_empty() {
                    return std::mem::take(&mut task.found);
                }
                task.wanted = batch_max;
                Rc::clone(&task.bell)
            };
            self.hub.ring();
            bell.notified().await;
        }
    }

    /// Takes the rows of events that are under way, by lane.
    fn rows(&self, events: &[WrittenEvent]) -> BTreeMap<OutboxLane, Vec<u64>> {
        let mut rows = BTreeMap::<OutboxLane, Vec<u64>>::new();
        let mut tasks = self.hub.tasks.borrow_mut();
        for event in events {
            let of_event = |row: &EventRow| row.id == event.id && row.source == event.source;
            let own = tasks.iter_mut().filter(|(lane, _)| lane.endpoint == self.endpoint);
            let found = own.into_iter().find_map(|(_, task)| {
                let at = task.under_way.iter().position(of_event)?;
                Some(task.under_way.remove(at))
            });
            if let Some(EventRow { lane, row, .. }) = found {
                rows.entry(lane).or_default().push(row);
            }
        }
        rows
    }

    /// Deletes delivered events, as soon as the database can.
    pub(crate) async fn done(&self, events: &[WrittenEvent]) {
        for (lane, rows) in self.rows(events) {
            until_done(|| self.hub.ledger.finish(&lane, &rows)).await;
        }
    }

    /// Makes these events dead letters with their last error, as soon as the database can. Returns how many older dead
    /// letters were dropped for them.
    pub(crate) async fn dead(&self, events: &[WrittenEvent], tries: u32, error: &str) -> u64 {
        let mut dropped = 0;
        for (lane, rows) in self.rows(events) {
            let burial = |id| Burial { id, tries, error: error.to_owned() };
            let burials: Vec<Burial> = rows.into_iter().map(burial).collect();
            dropped += until_done(|| self.hub.ledger.bury(&lane, &burials)).await;
        }
        dropped
    }
}

/// Repeats a request until it succeeds.
async fn until_done<T, F: Future<Output = Result<T, LedgerError>>>(request: impl Fn() -> F) -> T {
    let mut wait = RETRY.0;
    loop {
        match request().await {
            Ok(done) => return done,
            Err(error) => tracing::debug!(%error, "the outbox of events cannot be written now"),
        }
        // real time: leases and ages of the ledger follow the database's clock.
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}
