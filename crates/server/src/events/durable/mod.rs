//! Events that are told for certain: what this node has seen goes into the ledger of the primary database
//! (`journal.rs`) with the events of it (`narration.rs`), as far as some endpoint of any node is told of it
//! (`wishes.rs`). Lanes are shared among nodes (`sharing.rs`) and take their batches from its outbox (`outbox.rs`).
//! Each part is a task of the thread that tells events.

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

/// How much longer than `delay` who was connected to the only node has to come back when that node starts again.
const GRACE: Duration = Duration::from_secs(60);
/// How long the count of a channel or a user is remembered after it was told as vacated or offline.
const REMEMBER: Duration = Duration::from_hours(7 * 24);
/// Channels and users that nobody holds and whose count is remembered; the oldest are forgotten beyond.
const KEYS_REMEMBERED_MAX: u64 = 1_000_000;
/// Events that wait in one lane; the oldest are dropped beyond.
const LANE_EVENTS_MAX: u64 = 1_000_000;
/// Dead letters that are kept; the oldest are dropped beyond.
const DEAD_LETTERS_MAX: u64 = 100_000;
/// How long a dead letter is kept.
const DEAD_LETTER_TTL: Duration = Duration::from_hours(30 * 24);
/// Between two looks for what other nodes have left, and for what is to be told as gone: the least, while something is
/// to be done, and the most.
const SWEEP_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The most with a shorter `delay`.
const SHORT_SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// Between two removals of what is kept no longer.
const TIDY_INTERVAL: Duration = Duration::from_secs(30);

/// What tells events for certain.
pub(super) struct DurableEvents {
    node: Arc<Node>,
    ledger: Rc<EventLedger>,
    journal: Rc<Journal>,
    hub: Rc<OutboxHub>,
    metrics: Arc<EventMetrics>,
    /// Of the endpoints.
    delay: Duration,
}

impl DurableEvents {
    /// What tells the events of the durable endpoints; `None` = there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(super) fn new(
        node: &Arc<Node>,
        endpoints: &[Arc<EventEndpoint>],
        (primary, seed): (Option<&PrimaryOptions>, HashSeed),
    ) -> Result<Option<Self>, OpenError> {
        let durable: Vec<_> = endpoints.iter().filter(|endpoint| endpoint.options.durable).cloned().collect();
        let Some(primary) = primary.filter(|_| !durable.is_empty()) else { return Ok(None) };
        let counted =
            |endpoint: &&Arc<EventEndpoint>| endpoint.kinds.has_channel_state() || endpoint.kinds.has_user_state();
        // They all have the same.
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

    /// Where the lanes of an endpoint take their batches from.
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

    /// Notes what has happened here. What the ledger itself finds is passed over: states of channels and users, and the
    /// clients of other nodes.
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

    /// Answers a request about dead letters when the database does.
    pub(super) fn ask_dead(&self, request: DeadRequest, tasks: &mut JoinSet<()>) {
        let ledger = Rc::clone(&self.ledger);
        tasks.spawn_local(async move { answer_dead(&ledger, request).await });
    }

    /// Things that were lost on this node since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        self.journal.take_dropped()
    }

    /// Waits until all is written that this node knows, and gives its place in the ledger up.
    pub(super) async fn finish(&self) {
        self.journal.finish().await;
    }
}

/// Answers a request about dead letters. Who does not wait any more gets none.
async fn answer_dead(ledger: &EventLedger, request: DeadRequest) {
    match request {
        DeadRequest::List { endpoint, behind, limit, reply } => {
            drop(reply.send(ledger.dead_letters(endpoint.as_deref(), behind, limit).await));
        }
        DeadRequest::Retry { ids, reply } => drop(reply.send(ledger.retry_dead(&ids).await)),
        DeadRequest::Drop { ids, reply } => drop(reply.send(ledger.drop_dead(&ids).await)),
    }
}

/// Looks for what other nodes have left and for what is to be told as gone, until the node begins to stop: then others
/// do, or its next start, which waits for those who come back.
async fn sweep(node: Arc<Node>, (journal, hub): (Rc<Journal>, Rc<OutboxHub>), delay: Duration) {
    let outage = OutageNote::new("channels, users and clients that are gone are not told");
    // What becomes empty after one look is due after the next one.
    let longest = delay.clamp(SHORT_SWEEP_INTERVAL, SWEEP_INTERVAL.1);
    while !*node.draining.borrow() {
        if !journal.has_entered() {
            // What an earlier life of the only node has left, its first step into the ledger judges.
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
        tokio::time::sleep(wait).await;
    }
}

/// Removes what is kept no longer, for ever.
async fn tidy(ledger: Rc<EventLedger>, hub: Rc<OutboxHub>, metrics: Arc<EventMetrics>) {
    loop {
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

/// Counts and logs what was removed that somebody may miss.
fn note_tidying(tidying: &LedgerTidying, metrics: &EventMetrics) {
    for (endpoint, events) in &tidying.dropped {
        if let Some(figures) = metrics.of_endpoint(endpoint) {
            figures.dropped[DropReason::LaneFull as usize].add(*events);
        }
        tracing::error!(%endpoint, events, "too many events wait for an endpoint: the oldest are dropped");
    }
    if tidying.retired > 0 {
        tracing::error!(events = tidying.retired, "no node has had their endpoint for a week: they are dropped");
    }
}
