//! What is kept of the totals in the primary database: one row for each incarnation of a node and channel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use touchline_engine::reactions::ReactionBook;
use touchline_protocol::stream::ChannelName;
use touchline_store::{ReactionPlace, ReactionRow, StoreRefusal};

use crate::node::Node;

/// How often changed totals are written, milliseconds.
const KEEP_MS: u64 = 1_000;
/// Rows of one write, and of one read.
const ROWS: usize = 1_000;
/// How long a node that starts shows nothing because it reads what was counted before, milliseconds.
const LOAD_PATIENCE_MS: u64 = 10_000;
/// How long a node that stops waits for its last write.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// Outcomes that can wait: one write and one read are under way at most.
const OUTCOMES: usize = 2;

/// What a write or a read has come to.
pub(super) enum KeepingOutcome {
    /// These channels are written, or why not.
    Kept(Vec<ChannelName>, Result<(), StoreRefusal>),
    /// Rows of the database, or why they can't be read.
    Loaded(Result<Vec<ReactionRow>, StoreRefusal>),
}

/// The totals that are kept.
pub(super) struct KeptTotals {
    node: Arc<Node>,
    contributor: Box<str>,
    /// Channels whose totals have changed since the write that is under way began.
    changed: BTreeSet<ChannelName>,
    /// Channels for whose write a request waits, and whether that write has begun. They are channels of the book.
    urgent: BTreeMap<ChannelName, bool>,
    /// Channels that are still to be written in this round. Those that change meanwhile wait for the next one, so that
    /// busy channels keep none from its turn.
    round: Vec<ChannelName>,
    /// A write is under way.
    is_keeping: bool,
    keep_at_ms: u64,
    /// Where reading goes on, and when; `None` = all is read, or nothing is kept.
    load: Option<Loading>,
    /// What is not read then is shown when it is, Unix milliseconds.
    loaded_by_ms: u64,
    sender: Sender<KeepingOutcome>,
    outcomes: Receiver<KeepingOutcome>,
}

/// How far the rows of earlier incarnations are read.
struct Loading {
    after: ReactionPlace,
    at_ms: u64,
    is_under_way: bool,
}

impl KeptTotals {
    pub(super) fn new(node: &Arc<Node>, contributor: &str, now_ms: u64) -> Self {
        let (sender, outcomes) = channel(OUTCOMES);
        let channels = &node.generation().settings.channel;
        let mut options = channels.namespaces.iter().map(|namespace| &namespace.options);
        let is_any = channels.without_namespace.reactions_durable || options.any(|options| options.reactions_durable);
        let loading = || Loading { after: ReactionPlace::default(), at_ms: now_ms, is_under_way: false };
        KeptTotals {
            contributor: contributor.into(),
            changed: BTreeSet::new(),
            urgent: BTreeMap::new(),
            round: Vec::new(),
            is_keeping: false,
            keep_at_ms: 0,
            load: (is_any && node.store().is_some()).then(loading),
            loaded_by_ms: now_ms.saturating_add(LOAD_PATIENCE_MS),
            sender,
            outcomes,
            node: Arc::clone(node),
        }
    }

    /// Notes that this node has changed something in a channel.
    pub(super) fn change(&mut self, channel: &ChannelName) {
        if self.is_durable(channel) {
            if self.changed.is_empty() {
                self.keep_at_ms = self.node.clock.now_ms().saturating_add(KEEP_MS);
            }
            self.changed.insert(channel.clone());
        }
    }

    /// Notes the same, and writes it at once: a request waits until [`KeptTotals::is_kept`].
    pub(super) fn change_now(&mut self, channel: &ChannelName) {
        if self.is_durable(channel) {
            self.changed.insert(channel.clone());
            self.urgent.insert(channel.clone(), false);
            self.keep_at_ms = self.node.clock.now_ms();
        }
    }

    /// Whether no write is outstanding for which a request waits.
    pub(super) fn is_kept(&self, channel: &str) -> bool {
        !self.urgent.contains_key(channel)
    }

    fn is_durable(&self, channel: &str) -> bool {
        let is_wanted =
            self.node.generation().session.namespaces.resolve(channel).is_ok_and(|options| options.reactions_durable);
        is_wanted && self.node.store().is_some()
    }

    /// Whether totals of earlier starts are being read: nothing is shown meanwhile, but for so long only.
    pub(super) fn is_loading(&self) -> bool {
        self.load.is_some() && self.node.clock.now_ms() < self.loaded_by_ms
    }

    /// Whether something is to be written.
    fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.round.is_empty()
    }

    /// When something is to be done, Unix milliseconds; `None` = not before something happens.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let keep_at_ms = if self.round.is_empty() { self.keep_at_ms } else { 0 };
        let keep = (self.has_changes() && !self.is_keeping).then_some(keep_at_ms);
        let load = self.load.as_ref().filter(|load| !load.is_under_way).map(|load| load.at_ms);
        let patience = self.is_loading().then_some(self.loaded_by_ms);
        [keep, load, patience].into_iter().flatten().min()
    }

    /// What a write or a read has come to, once it has.
    pub(super) async fn outcome(&mut self) -> KeepingOutcome {
        match self.outcomes.recv().await {
            Some(outcome) => outcome,
            // The sender lives as long as this.
            None => std::future::pending().await,
        }
    }

    pub(super) fn note(&mut self, outcome: KeepingOutcome, book: &mut ReactionBook, now_ms: u64) {
        match outcome {
            KeepingOutcome::Kept(channels, result) => {
                self.is_keeping = false;
                let is_written = result.is_ok();
                self.urgent.retain(|_, is_begun| !(is_written && *is_begun));
                if let Err(error) = result {
                    self.urgent.values_mut().for_each(|is_begun| *is_begun = false);
                    self.keep_at_ms = now_ms.saturating_add(KEEP_MS);
                    self.node.reactions.metrics.failed_writes.add(1);
                    tracing::warn!(%error, "totals of reactions are not written; it is tried again");
                    self.changed.extend(channels);
                }
            }
            KeepingOutcome::Loaded(Ok(rows)) => {
                let last = rows.last().map(|row| (row.channel.clone(), row.contributor.clone()));
                let next = last.filter(|_| rows.len() >= ROWS);
                for row in rows.iter().filter(|row| row.contributor != self.contributor) {
                    if book.restore(&row.contributor, &row.state, now_ms).is_err() {
                        tracing::warn!(channel = %row.channel, "a row of reactions can't be read, and is passed over");
                    }
                }
                self.load = next.map(|after| Loading { after, at_ms: now_ms, is_under_way: false });
            }
            KeepingOutcome::Loaded(Err(error)) => {
                tracing::warn!(%error, "totals of reactions can't be read; it is tried again");
                if let Some(load) = &mut self.load {
                    (load.is_under_way, load.at_ms) = (false, now_ms.saturating_add(KEEP_MS));
                }
            }
        }
    }

    /// Begins what is due.
    pub(super) fn advance(&mut self, book: &ReactionBook, now_ms: u64) {
        if let Some(load) = self.load.as_mut().filter(|load| !load.is_under_way && load.at_ms <= now_ms)
            && let Some(store) = self.node.store()
        {
            load.is_under_way = true;
            let sender = self.sender.clone();
            let done = move |rows| drop(sender.try_send(KeepingOutcome::Loaded(rows)));
            store.reactions(load.after.clone(), ROWS, Box::new(done));
        }
        if !self.round.is_empty() || self.keep_at_ms <= now_ms {
            self.keep(book);
        }
    }

    /// Writes some of what has changed, unless a write is under way.
    fn keep(&mut self, book: &ReactionBook) {
        if self.is_keeping || !self.has_changes() {
            return;
        }
        let Some(store) = self.node.store() else { return };
        let now_ms = self.node.clock.now_ms();
        if self.round.is_empty() {
            self.round = std::mem::take(&mut self.changed).into_iter().collect();
            self.keep_at_ms = now_ms.saturating_add(KEEP_MS);
        }
        let channels = self.round.split_off(self.round.len().saturating_sub(ROWS));
        let row = |channel: &ChannelName| {
            let (state, contributor) = (book.row(channel)?.into(), self.contributor.clone());
            Some(ReactionRow { channel: (&**channel).into(), contributor, state, changed_ms: now_ms })
        };
        let rows: Vec<ReactionRow> = channels.iter().filter_map(row).collect();
        for channel in &channels {
            match self.urgent.get_mut(channel) {
                Some(is_begun) if book.has_row(channel) => *is_begun = true,
                Some(_) => drop(self.urgent.remove(channel)),
                None => {}
            }
        }
        if rows.is_empty() {
            return;
        }
        self.is_keeping = true;
        let sender = self.sender.clone();
        let done = move |result| drop(sender.try_send(KeepingOutcome::Kept(channels, result)));
        store.keep_reactions(rows, Box::new(done));
    }

    /// Writes what has changed last, and waits for that, but not for ever.
    pub(super) async fn finish(mut self, book: &ReactionBook) {
        let write = async {
            while self.is_keeping || self.has_changes() {
                self.keep(book);
                if !self.is_keeping {
                    return;
                }
                let KeepingOutcome::Kept(_, result) = self.outcome().await else { continue };
                self.is_keeping = false;
                if let Err(error) = result {
                    return tracing::warn!(%error, "the last reactions are not written");
                }
            }
        };
        if tokio::time::timeout(STOP_PATIENCE, write).await.is_err() {
            tracing::warn!("the database takes too long: the last reactions are not written");
        }
    }
}
