//! Durable events. What this node has seen goes into the ledger of the primary database (`journal.rs`) with its events
//! (`narration.rs`), as far as an endpoint of any node asks for it (`wishes.rs`). The nodes share the lanes
//! (`sharing.rs`), which take their batches from the outbox of the ledger (`outbox.rs`). Each part is a task of the
//! thread that reports events.

mod journal;
mod narration;
mod outage;
mod outbox;
mod sharing;
mod silent;
mod wishes;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use touchline_engine::events::{EventDraft, EventKind, EventOrigin, StateKey};
use touchline_registry::HashSeed;
use touchline_store::ledger::{EventLedger, LedgerOptions, LedgerTidying};
use touchline_store::{OpenError, PrimaryOptions};

use self::journal::{Journal, LEASE};
use self::narration::Narration;
use self::outage::OutageNote;
pub(super) use self::outbox::OutboxSource;
use self::outbox::{LaneSettings, OutboxHub};
use self::sharing::LaneSharing;
use self::silent::SilentNodes;
use self::wishes::WishFilter;
use super::endpoint::EventEndpoint;
use crate::node::Node;
use crate::runtime::event_mailbox::DeadRequest;
use crate::runtime::event_metrics::{DropReason, EventMetrics};

/// When the only node starts again, its earlier clients have this much longer than `delay` to come back.
const GRACE: Duration = Duration::from_secs(60);
/// How long the count of a channel or a user is remembered after it was reported as vacated or offline.
const REMEMBER: Duration = Duration::from_hours(7 * 24);
/// The most channels and users that nobody holds and whose count is remembered. Beyond it the oldest are forgotten.
const KEYS_REMEMBERED_MAX: u64 = 1_000_000;
/// The most events that wait in one lane. Beyond it the oldest are dropped.
const LANE_EVENTS_MAX: u64 = 1_000_000;
/// The most dead letters that are kept. Beyond it the oldest are dropped.
const DEAD_LETTERS_MAX: u64 = 100_000;
/// How long a dead letter is kept.
const DEAD_LETTER_TTL: Duration = Duration::from_hours(30 * 24);
/// The time between two searches for what other nodes have left, and for what is to be reported as gone: the shortest,
/// while there is work, and the longest.
const SWEEP_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The longest time with a shorter `delay`.
const SHORT_SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// The time between two removals of expired rows.
const TIDY_INTERVAL: Duration = Duration::from_secs(30);

/// The part of the thread that serves durable endpoints.
pub(super) struct DurableEvents {
    node: Arc<Node>,
    ledger: Rc<EventLedger>,
    journal: Rc<Journal>,
    hub: Rc<OutboxHub>,
    metrics: Arc<EventMetrics>,
    /// The `delay` of the endpoints.
    delay: Duration,
}

impl DurableEvents {
    /// Makes the part for the durable endpoints; `None` = no endpoint is durable.
    ///
    /// # Errors
    /// The errors of [`OpenError`].
    pub(super) fn new(
        node: &Arc<Node>,
        endpoints: &[Arc<EventEndpoint>],
        (primary, seed): (Option<&PrimaryOptions>, HashSeed),
    ) -> Result<Option<Self>, OpenError> {
        let durable: Vec<_> = endpoints.iter().filter(|endpoint| endpoint.options.durable).cloned().collect();
        let Some(primary) = primary.filter(|_| !durable.is_empty()) else { return Ok(None) };
        let counted =
            |endpoint: &&Arc<EventEndpoint>| endpoint.kinds.has_channel_state() || endpoint.kinds.has_user_state();
        // All of them have the same delay.
        let delay = durable.iter().find(counted).map_or(Duration::ZERO, |endpoint| endpoint.options.delay);
        let settings_of = |endpoint: &Arc<EventEndpoint>| {
            let options = &endpoint.options;
            let settings = LaneSettings { lanes: options.lanes, batch_wait: options.batch_wait };
            (endpoint.name.clone(), settings)
        };
        let lanes = durable.iter().map(settings_of).collect();
        let wishes: Vec<_> = durable.iter().map(|endpoint| endpoint.wish()).collect();
        let filter = WishFilter::new(Arc::clone(node), wishes.clone(), seed);
        let metrics = node.events.get().map(|events| Arc::clone(&events.metrics)).unwrap_or_default();
        let narration = Arc::new(Narration::new(Arc::clone(node)));
        let clock = Arc::clone(node);
        let ledger = Rc::new(EventLedger::new(LedgerOptions {
            url: primary.url.clone(),
            tls_ca: primary.tls_ca.clone(),
            timeout: primary.store.primary.timeout,
            migrates: primary.store.migrate,
            node: node.id.clone(),
            lease: LEASE,
            delay,
            grace: GRACE,
            remember: REMEMBER,
            keys_max: KEYS_REMEMBERED_MAX,
            wishes,
            lane_max: LANE_EVENTS_MAX,
            dead_max: DEAD_LETTERS_MAX,
            dead_ttl: DEAD_LETTER_TTL,
            narrator: Arc::clone(&narration) as _,
            clock: Arc::new(move || clock.clock.now_ms()),
        })?);
        let journal = Rc::new(Journal::new(Rc::clone(&ledger), narration, (filter, seed)));
        let hub = Rc::new(OutboxHub::new(Rc::clone(&ledger), lanes, Arc::clone(&metrics)));
        Ok(Some(DurableEvents { node: Arc::clone(node), ledger, journal, hub, metrics, delay }))
    }

    /// Returns the source of batches for the lanes of an endpoint.
    pub(super) fn source(&self, endpoint: &EventEndpoint) -> OutboxSource {
        OutboxSource::new(Rc::clone(&self.hub), &endpoint.name)
    }

    /// Starts the tasks.
    pub(super) fn start(&self, tasks: &mut JoinSet<()>) {
        let (node, journal, hub) = (&self.node, &self.journal, &self.hub);
        tasks.spawn_local(journal::write(Rc::clone(journal), Rc::clone(hub)));
        tasks.spawn_local(sweep(Arc::clone(node), (Rc::clone(journal), Rc::clone(hub)), self.delay));
        tasks.spawn_local(tidy(Rc::clone(&self.ledger), Rc::clone(hub), Arc::clone(&self.metrics)));
        let sharing = LaneSharing {
            node: Arc::clone(node),
            journal: Rc::clone(journal),
            hub: Rc::clone(hub),
            metrics: Arc::clone(&self.metrics),
            silent: SilentNodes::default(),
            resets: 0,
        };
        tasks.spawn_local(sharing.run());
        tasks.spawn_local(outbox::fetch(Rc::clone(hub)));
    }

    /// Notes what has happened on this node. States of channels and users, and clients of other nodes, are skipped,
    /// because the ledger itself finds them.
    pub(super) fn note(&self, draft: &EventDraft, channel: Option<&str>) {
        match draft.kind {
            EventKind::Occupied | EventKind::Vacated | EventKind::UserOnline | EventKind::UserOffline => {}
            EventKind::Connected => self.journal.connect(draft.clone()),
            EventKind::Disconnected => {
                if draft.origin == EventOrigin::Node {
                    self.journal.disconnect(draft.clone());
                }
            }
            _ => self.journal.tell(draft.clone(), channel),
        }
    }

    /// Notes whether this node holds a channel or a user.
    pub(super) fn note_held(&self, key: &StateKey, is_held: bool) {
        self.journal.note_held(key, is_held);
    }

    /// Answers a request about dead letters when the database answers.
    pub(super) fn ask_dead(&self, request: DeadRequest, tasks: &mut JoinSet<()>) {
        let ledger = Rc::clone(&self.ledger);
        tasks.spawn_local(async move { answer_dead(&ledger, request).await });
    }

    /// Returns how many changes were lost on this node since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        self.journal.take_dropped()
    }

    /// Waits until everything that this node knows is written, and ends its life in the ledger.
    pub(super) async fn finish(&self) {
        self.journal.finish().await;
    }
}

/// Answers a request about dead letters. An asker that no longer waits gets no answer.
async fn answer_dead(ledger: &EventLedger, request: DeadRequest) {
    match request {
        DeadRequest::List { endpoint, behind, limit, reply } => {
            drop(reply.send(ledger.dead_letters(endpoint.as_deref(), behind, limit).await));
        }
        DeadRequest::Retry { ids, reply } => drop(reply.send(ledger.retry_dead(&ids).await)),
        DeadRequest::Drop { ids, reply } => drop(reply.send(ledger.drop_dead(&ids).await)),
    }
}

/// Looks for what other nodes have left and for what is to be reported as gone, until the node begins to stop. After
/// that the other nodes do this, or its next start, which waits for clients that come back.
async fn sweep(node: Arc<Node>, (journal, hub): (Rc<Journal>, Rc<OutboxHub>), delay: Duration) {
    let outage = OutageNote::new("channels, users and clients that are gone are not reported");
    // A state that becomes empty after one search is due after the next one.
    let longest = delay.clamp(SHORT_SWEEP_INTERVAL, SWEEP_INTERVAL.1);
    while !node.drain.has_begun() {
        if !journal.has_entered() {
            // The first step of a node into the ledger handles what an earlier life of the only node has left.
            // real time: leases and ages of the ledger follow the database's clock.
            tokio::time::sleep(SWEEP_INTERVAL.0).await;
            continue;
        }
        let mut wait = SHORT_SWEEP_INTERVAL;
        match journal.ledger().sweep().await {
            Ok(report) => {
                outage.works();
                if report.taken + report.told > 0 {
                    hub.ring();
                }
                if report.has_more {
                    continue;
                }
                wait = report.next_ms.map_or(longest, Duration::from_millis).clamp(SWEEP_INTERVAL.0, longest);
            }
            Err(error) => outage.fails(&error),
        }
        // real time: leases and ages of the ledger follow the database's clock.
        tokio::time::sleep(wait).await;
    }
}

/// Removes expired rows, without end.
async fn tidy(ledger: Rc<EventLedger>, hub: Rc<OutboxHub>, metrics: Arc<EventMetrics>) {
    loop {
        // real time: leases and ages of the ledger follow the database's clock.
        tokio::time::sleep(TIDY_INTERVAL).await;
        loop {
            match ledger.tidy().await {
                Ok(tidying) => {
                    note_tidying(&tidying, &metrics);
                    if !tidying.dropped.is_empty() {
                        hub.ring();
                    }
                    if tidying.has_more {
                        continue;
                    }
                }
                Err(error) => tracing::debug!(%error, "old events could not be removed"),
            }
            break;
        }
    }
}

/// Counts and logs removed events that an endpoint may miss.
fn note_tidying(tidying: &LedgerTidying, metrics: &EventMetrics) {
    for (endpoint, events) in &tidying.dropped {
        if let Some(figures) = metrics.of_endpoint(endpoint) {
            figures.dropped[DropReason::LaneFull as usize].add(*events);
        }
        tracing::error!(%endpoint, events, "too many events wait for an endpoint: the oldest are dropped");
    }
    if tidying.retired > 0 {
        tracing::error!(events = tidying.retired, "no node has had their endpoint for a week: dropping the events");
    }
}
