//! The outbox of the ledger: which lanes this node delivers, and the batches of their events.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::{Mutex, Notify};
use touchline_engine::events::{EventKind, WrittenEvent};
use touchline_store::ledger::{Burial, EventLedger, LedgerError, OutboxLane, WaitingEvent};

use super::outage::OutageNote;

/// Between two looks for events that other nodes have put into the outbox.
const POLL: Duration = Duration::from_millis(100);
/// Between two looks for lanes that nobody delivers.
const SHARE: Duration = Duration::from_secs(1);
/// Between two attempts to use a database that fails: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Who owns lanes: a life of this node.
pub(super) trait LaneOwner {
    /// The incarnation of the life; `None` = there is none now.
    fn incarnation(&self) -> Option<u64>;
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
    /// How many events it waits for; 0 = it does not wait.
    wanted: usize,
    found: Vec<WrittenEvent>,
    under_way: Vec<EventRow>,
    bell: Rc<Notify>,
}

/// What all lanes of this node share.
pub(super) struct OutboxHub {
    ledger: Rc<EventLedger>,
    owner: Rc<dyn LaneOwner>,
    /// The names of the endpoints with the number of their tasks.
    endpoints: BTreeMap<String, usize>,
    tasks: RefCell<BTreeMap<OutboxLane, LaneTask>>,
    /// The lanes that this node delivers.
    own: RefCell<BTreeSet<OutboxLane>>,
    bell: Notify,
    /// No lane is given away while its events are fetched.
    order: Mutex<()>,
}

/// The outbox, as the lanes of one endpoint see it.
pub(crate) struct OutboxSource {
    hub: Rc<OutboxHub>,
    endpoint: String,
}

impl OutboxHub {
    pub(super) fn new(ledger: Rc<EventLedger>, owner: Rc<dyn LaneOwner>, endpoints: BTreeMap<String, usize>) -> Self {
        OutboxHub {
            ledger,
            owner,
            endpoints,
            tasks: RefCell::default(),
            own: RefCell::default(),
            bell: Notify::new(),
            order: Mutex::new(()),
        }
    }

    /// Something may have been put into the outbox.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// The task that sends a lane. When an endpoint has fewer lanes than before, one task serves several.
    fn task_of(&self, lane: &OutboxLane) -> OutboxLane {
        let count = self.endpoints.get(&lane.endpoint).copied().unwrap_or(1).max(1);
        OutboxLane { endpoint: lane.endpoint.clone(), lane: lane.lane % count as u32 }
    }

    /// The lanes of this node whose tasks wait for events, with how many they take.
    fn waiting(&self) -> Vec<(OutboxLane, u32)> {
        let tasks = self.tasks.borrow();
        let own = self.own.borrow();
        let wanted = |lane: &OutboxLane| tasks.get(&self.task_of(lane)).map_or(0, |task| task.wanted);
        own.iter().map(|lane| (lane.clone(), wanted(lane) as u32)).filter(|(_, wanted)| *wanted > 0).collect()
    }

    /// Gives the events of a lane to its task.
    fn give(&self, lane: OutboxLane, events: Vec<WaitingEvent>) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(&self.task_of(&lane)) else { return };
        for event in events {
            let row = event.id;
            let Some(event) = written(event) else {
                tracing::error!(row, "an event of the outbox can't be read: it stays there");
                continue;
            };
            let (source, id) = (Arc::clone(&event.source), event.id.clone());
            task.under_way.push(EventRow { lane: lane.clone(), row, source, id });
            task.found.push(event);
        }
        if !task.found.is_empty() {
            task.wanted = 0;
            task.bell.notify_one();
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

/// An event of the outbox as lanes send it. It is as old as its row, so that one that is retried is new.
fn written(event: WaitingEvent) -> Option<WrittenEvent> {
    let head: EventHead<'_> = serde_json::from_str(&event.body).ok()?;
    Some(WrittenEvent {
        kind: EventKind::from_cloud_type(&head.cloud_type)?,
        source: (*head.source).into(),
        id: (*head.id).into(),
        key: (*head.key).into(),
        time_ms: event.made_ms,
        since_ms: event.made_ms,
        body: Bytes::from(event.body),
    })
}

/// Takes lanes that nobody delivers, for ever.
pub(super) async fn share(hub: Rc<OutboxHub>) {
    let outage = OutageNote::new("no event is delivered for certain");
    let each = |(name, lanes): (&String, &usize)| {
        let name = name.clone();
        (0..*lanes as u32).map(move |lane| OutboxLane { endpoint: name.clone(), lane })
    };
    let wanted: Vec<OutboxLane> = hub.endpoints.iter().flat_map(each).collect();
    loop {
        let Some(incarnation) = hub.owner.incarnation() else {
            hub.own.borrow_mut().clear();
            tokio::time::sleep(RETRY.0).await;
            continue;
        };
        let order = hub.order.lock().await;
        let idle: Vec<OutboxLane> = hub.waiting().into_iter().map(|(lane, _)| lane).collect();
        match hub.ledger.claim(incarnation, &wanted, &idle).await {
            Ok(own) => {
                outage.works();
                *hub.own.borrow_mut() = own.into_iter().collect();
                hub.ring();
            }
            Err(error) => outage.fails(&error),
        }
        drop(order);
        tokio::time::sleep(SHARE).await;
    }
}

/// Fetches the events of lanes that wait for some, for ever.
pub(super) async fn fetch(hub: Rc<OutboxHub>) {
    let outage = OutageNote::new("no event is delivered for certain");
    loop {
        let _ = tokio::time::timeout(POLL, hub.bell.notified()).await;
        let _order = hub.order.lock().await;
        let (Some(incarnation), wanted) = (hub.owner.incarnation(), hub.waiting()) else { continue };
        if wanted.is_empty() {
            continue;
        }
        match hub.ledger.fetch(incarnation, &wanted).await {
            Ok(found) => {
                outage.works();
                found.into_iter().for_each(|(lane, events)| hub.give(lane, events));
            }
            Err(error) => {
                outage.fails(&error);
                tokio::time::sleep(RETRY.0).await;
            }
        }
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

    /// These events have arrived: deletes them, when the database lets it.
    pub(crate) async fn done(&self, events: &[WrittenEvent]) {
        for (lane, rows) in self.rows(events) {
            until_done(|| self.hub.ledger.finish(&lane, &rows)).await;
        }
    }

    /// These events are put aside with their last error, when the database lets it. Returns how many older ones had to
    /// go for them.
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
            Err(error) => tracing::debug!(%error, "the outbox of events can't be written now"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}
