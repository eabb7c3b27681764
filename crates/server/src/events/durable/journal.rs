//! What this node writes into the ledger: everything that it has seen since its last batch, in lives.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use touchline_engine::events::{EventDraft, StateKey};
use touchline_engine::ledger::{BookBatch, BookLimits, BookNote, LedgerBook, WishList};
use touchline_registry::HashSeed;
use touchline_store::ledger::{EventLedger, LedgerBatch, LedgerCause, LedgerLife, LedgerWrite};

use super::narration::{Narration, client_note};
use super::outage::OutageNote;
use super::outbox::OutboxHub;
use super::wishes::{AskedAnew, WishFilter};

/// The most keys, and the most other changes, in one transaction.
const BATCH: usize = 1_000;
/// The most changes that wait for the database, besides what the node holds.
const WAITING_MAX: usize = 100_000;
/// The most bytes of data of a waiting change, and of a connected client.
const CHANGE_SIZE_MAX: usize = 4 * 1_024;
/// This many changes wait with all of their data. Changes after these keep only short texts.
const WAITING_WHOLE_MAX: usize = 1_000;
/// How long changes wait for others of their batch.
const GATHER: Duration = Duration::from_millis(20);
/// How long a node stays in the ledger after its last sign of life, by the clock of the database.
pub(super) const LEASE: Duration = Duration::from_secs(6);
/// The time between two renewals of the lease.
const RENEWAL: Duration = Duration::from_secs(2);
const _: () = assert!(RENEWAL.as_millis() * 3 <= LEASE.as_millis());
/// The pause between two attempts to use a database that fails.
const RETRY: Duration = Duration::from_millis(500);
/// How long a node that stops waits for its last batch.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// An event with the channel that it is about, if endpoints may ask for some channels only.
#[derive(Debug, Clone)]
struct SeenEvent {
    draft: EventDraft,
    channel: Option<Box<str>>,
}

/// What this node holds and has to write.
pub(super) struct Journal {
    ledger: Rc<EventLedger>,
    narration: Arc<Narration>,
    filter: WishFilter,
    book: RefCell<LedgerBook<EventDraft, SeenEvent>>,
    /// The incarnation of the current life; `None` = the node has no life in the ledger.
    incarnation: Cell<Option<u64>>,
    /// The number of lives so far.
    lives: Cell<u64>,
    filled: Notify,
    written: Notify,
    /// Notified when a life begins.
    entered: Notify,
}

impl Journal {
    /// Makes an empty journal. `seed`: the seed for the hashes of users and channels, which clients choose.
    pub(super) fn new(
        ledger: Rc<EventLedger>,
        narration: Arc<Narration>,
        (filter, seed): (WishFilter, HashSeed),
    ) -> Self {
        Journal {
            ledger,
            narration,
            filter,
            book: RefCell::new(LedgerBook::new(BookLimits { batch: BATCH, waiting: WAITING_MAX }, seed)),
            incarnation: Cell::new(None),
            lives: Cell::new(0),
            filled: Notify::new(),
            written: Notify::new(),
            entered: Notify::new(),
        }
    }

    /// Waits for the beginning of a life.
    pub(super) async fn entered(&self) {
        self.entered.notified().await;
    }

    /// Returns the ledger.
    pub(super) fn ledger(&self) -> &EventLedger {
        &self.ledger
    }

    /// Whether the node has ever been in the ledger.
    pub(super) fn has_entered(&self) -> bool {
        self.lives.get() > 0
    }

    /// Returns the incarnation of the current life; `None` = the node has no life in the ledger.
    pub(super) fn incarnation(&self) -> Option<u64> {
        self.incarnation.get()
    }

    /// Returns the version of the wishes that this node fulfils.
    pub(super) fn knows(&self) -> u64 {
        self.filter.version()
    }

    /// Applies a changed list of wishes. What is asked for only now is written.
    pub(super) fn apply(&self, list: WishList) {
        let AskedAnew { clients, keys } = self.filter.apply(list);
        let mut book = self.book.borrow_mut();
        clients.into_iter().for_each(|draft| book.connect(draft.subject.as_str().into(), draft));
        keys.into_iter().for_each(|key| book.hold(key));
        self.filled.notify_one();
    }

    /// Notes that a client has connected.
    pub(super) fn connect(&self, draft: EventDraft) {
        let Some(draft) = self.filter.connected(self.kept(draft)) else { return };
        self.book.borrow_mut().connect(draft.subject.as_str().into(), draft);
        self.filled.notify_one();
    }

    /// Notes that the connection of a client has ended.
    pub(super) fn disconnect(&self, draft: EventDraft) {
        let client = draft.subject.clone();
        if self.filter.disconnected(&client) {
            return;
        }
        let draft = self.kept(draft);
        self.book.borrow_mut().disconnect(&client, SeenEvent { draft, channel: None });
        self.filled.notify_one();
    }

    /// Notes any other event.
    pub(super) fn tell(&self, draft: EventDraft, channel: Option<&str>) {
        if !self.filter.is_told(draft.kind, channel) {
            return;
        }
        let draft = self.kept(draft);
        self.book.borrow_mut().tell(SeenEvent { draft, channel: channel.map(Into::into) });
        self.filled.notify_one();
    }

    /// Returns a draft in the form in which it may wait here.
    fn kept(&self, draft: EventDraft) -> EventDraft {
        let is_calm = self.book.borrow().waiting() < WAITING_WHOLE_MAX;
        draft.kept(if is_calm { CHANGE_SIZE_MAX } else { 0 })
    }

    /// Notes that this node holds a key now, or no longer.
    pub(super) fn note_held(&self, key: &StateKey, is_held: bool) {
        if !self.filter.held(key, is_held) {
            return;
        }
        if is_held {
            self.book.borrow_mut().hold(key.clone());
        } else {
            self.book.borrow_mut().release(key);
        }
        self.filled.notify_one();
    }

    pub(super) fn take_dropped(&self) -> u64 {
        self.book.borrow_mut().take_dropped()
    }

    /// Waits a while until everything is written, and ends the life.
    pub(super) async fn finish(&self) {
        let settled = async {
            while !self.book.borrow().is_settled() {
                self.filled.notify_one();
                self.written.notified().await;
            }
        };
        // real time: leases and ages of the ledger follow the database's clock.
        let _ = tokio::time::timeout(STOP_PATIENCE, settled).await;
        if let Some(incarnation) = self.incarnation.take()
            // real time: leases and ages of the ledger follow the database's clock.
            && let Ok(Err(error)) = tokio::time::timeout(STOP_PATIENCE, self.ledger.leave(incarnation)).await
        {
            tracing::warn!(%error, "the lease in the ledger of events could not be given up: it runs out by itself");
        }
    }

    /// Begins a life in the ledger.
    async fn enter(&self, outage: &OutageNote) {
        let cause = if self.lives.get() == 0 { LedgerCause::Restart } else { LedgerCause::NodeDown };
        match self.ledger.enter(cause).await {
            Ok(LedgerLife { incarnation, wishes }) => {
                outage.works();
                self.lives.set(self.lives.get() + 1);
                self.incarnation.set(Some(incarnation));
                self.apply(wishes);
                self.book.borrow_mut().enter();
                self.entered.notify_one();
                tracing::debug!(incarnation, "a life in the ledger of events has begun");
            }
            Err(error) => {
                outage.fails(&error);
                // real time: leases and ages of the ledger follow the database's clock.
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Returns the rows of a batch.
    fn render(&self, batch: &BookBatch<EventDraft, SeenEvent>) -> LedgerBatch {
        let life = self.lives.get();
        let mut rendered = LedgerBatch { number: batch.number, keys: batch.keys.clone(), ..LedgerBatch::default() };
        for note in &batch.notes {
            let numbered = |letter: &str, client: &str, draft: &EventDraft| EventDraft {
                id: format!("{client}:{letter}:{life}"),
                ..draft.clone()
            };
            match note {
                BookNote::Connected(client, draft) => {
                    rendered.connected.push((client.to_string(), client_note(draft, life)));
                    self.narration.tell(&numbered("c", client, draft), None, &mut rendered.events);
                }
                BookNote::Disconnected(client, _, seen) => {
                    rendered.disconnected.push(client.to_string());
                    self.narration.tell(&numbered("d", client, &seen.draft), None, &mut rendered.events);
                }
                BookNote::Other(seen) => {
                    self.narration.tell(&seen.draft, seen.channel.as_deref(), &mut rendered.events);
                }
            }
        }
        rendered
    }
}

/// Writes changes as they come, and renews the lease, without end.
pub(super) async fn write(journal: Rc<Journal>, hub: Rc<OutboxHub>) {
    let outage = OutageNote::new("this node reports nothing to durable endpoints");
    // real time: leases and ages of the ledger follow the database's clock.
    let mut renewed_at = Instant::now();
    let mut last = LedgerBatch::default();
    loop {
        if !journal.book.borrow().is_in() {
            journal.incarnation.set(None);
            last = LedgerBatch::default();
            journal.enter(&outage).await;
            // real time: leases and ages of the ledger follow the database's clock.
            renewed_at = Instant::now();
            continue;
        }
        let Some(incarnation) = journal.incarnation.get() else { return };
        let next = journal.book.borrow_mut().next_batch();
        let has_news = next.is_some();
        match next {
            // A batch is rendered once, so that all tries send the same bytes.
            Some(batch) if batch.number != last.number => last = journal.render(&batch),
            Some(_) => {}
            // real time: leases and ages of the ledger follow the database's clock.
            None if renewed_at.elapsed() < RENEWAL => {
                // real time: leases and ages of the ledger follow the database's clock.
                let _ = tokio::time::timeout_at(renewed_at + RENEWAL, journal.filled.notified()).await;
                // real time: leases and ages of the ledger follow the database's clock.
                tokio::time::sleep(GATHER).await;
                continue;
            }
            None => last = LedgerBatch { number: last.number, ..LedgerBatch::default() },
        }
        last.knows = journal.knows();
        match journal.ledger.write(incarnation, &last).await {
            Ok(LedgerWrite::Written) => {
                outage.works();
                // real time: leases and ages of the ledger follow the database's clock.
                renewed_at = Instant::now();
                journal.book.borrow_mut().written();
                journal.written.notify_one();
                if has_news {
                    hub.ring();
                }
            }
            Ok(LedgerWrite::Lapsed) => {
                tracing::warn!(
                    "the lease in the ledger of events had expired: everything that this node holds is reported again"
                );
                journal.book.borrow_mut().lapse();
            }
            Err(error) => {
                outage.fails(&error);
                // real time: leases and ages of the ledger follow the database's clock.
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
