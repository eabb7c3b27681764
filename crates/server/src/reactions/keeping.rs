//! The totals that are stored in the primary database: one row for each channel and incarnation of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use touchline_engine::reactions::ReactionBook;
use touchline_protocol::stream::ChannelName;
use touchline_store::{ReactionPlace, ReactionRow, StoreRefusal};

use crate::node::Node;

/// How often changed totals are written, in milliseconds.
const KEEP_MS: u64 = 1_000;
/// How many rows one write or one read has.
const ROWS: usize = 1_000;
/// How long a node that starts shows no totals because it reads earlier counts, in milliseconds.
const LOAD_PATIENCE_MS: u64 = 10_000;
/// How long a node that stops waits for its last write.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// How many outcomes can wait: at most one write and one read are under way.
const OUTCOMES: usize = 2;

/// The outcome of a write or a read.
pub(super) enum KeepingOutcome {
    /// These channels are written, or the reason why they are not.
    Kept(Vec<ChannelName>, Result<(), StoreRefusal>),
    /// Rows of the database, or the reason why they can't be read.
    Loaded(Result<Vec<ReactionRow>, StoreRefusal>),
}

/// The totals that are stored in the primary database.
pub(super) struct KeptTotals {
    node: Arc<Node>,
    contributor: Box<str>,
    /// Channels whose totals have changed since the write under way began.
    changed: BTreeSet<ChannelName>,
    /// Channels for whose write a request waits, and whether that write has begun. They are channels of the book.
    urgent: BTreeMap<ChannelName, bool>,
    /// Channels that are still to be written in this round. Channels that change meanwhile wait for the next round, so
    /// that busy channels do not keep others from their turn.
    round: Vec<ChannelName>,
    /// Whether a write is under way.
    is_keeping: bool,
    keep_at_ms: u64,
    /// Where and when reading continues; `None` = everything is read, or nothing is stored.
    load: Option<Loading>,
    /// Until when totals are withheld while reading continues, in Unix milliseconds. Later rows are shown when they are
    /// read.
    loaded_by_ms: u64,
    sender: Sender<KeepingOutcome>,
    outcomes: Receiver<KeepingOutcome>,
}

/// How far the rows of earlier incarnations have been read.
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

    /// Notes that this node has changed the totals of a channel.
    pub(super) fn change(&mut self, channel: &ChannelName) {
        if self.is_durable(channel) {
            if self.changed.is_empty() {
                self.keep_at_ms = self.node.clock.now_ms().saturating_add(KEEP_MS);
            }
            self.changed.insert(channel.clone());
        }
    }

    /// Notes a change and writes it at once. A request waits until [`KeptTotals::is_kept`].
    pub(super) fn change_now(&mut self, channel: &ChannelName) {
        if self.is_durable(channel) {
            self.changed.insert(channel.clone());
            self.urgent.insert(channel.clone(), false);
            self.keep_at_ms = self.node.clock.now_ms();
        }
    }

    /// Whether no request has to wait for a write of this channel any more.
    pub(super) fn is_kept(&self, channel: &str) -> bool {
        !self.urgent.contains_key(channel)
    }

    fn is_durable(&self, channel: &str) -> bool {
        let is_wanted =
            self.node.generation().session.namespaces.resolve(channel).is_ok_and(|options| options.reactions_durable);
        is_wanted && self.node.store().is_some()
    }

    /// Whether totals of earlier starts are being read. No totals are shown meanwhile, but only for a limited time.
    pub(super) fn is_loading(&self) -> bool {
        self.load.is_some() && self.node.clock.now_ms() < self.loaded_by_ms
    }

    /// Whether there are totals to write.
    fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.round.is_empty()
    }

    /// When the next step is due, in Unix milliseconds; `None` = no step is due before something else happens.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let keep_at_ms = if self.round.is_empty() { self.keep_at_ms } else { 0 };
        let keep = (self.has_changes() && !self.is_keeping).then_some(keep_at_ms);
        let load = self.load.as_ref().filter(|load| !load.is_under_way).map(|load| load.at_ms);
        let patience = self.is_loading().then_some(self.loaded_by_ms);
        [keep, load, patience].into_iter().flatten().min()
    }

    /// Waits for the outcome of a write or a read.
    pub(super) async fn outcome(&mut self) -> KeepingOutcome {
        match self.outcomes.recv().await {
            Some(outcome) => outcome,
            // The sender lives as long as this, so the channel never closes.
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
                    tracing::warn!(%error, "totals of reactions could not be written; the node retries");
                    self.changed.extend(channels);
                }
            }
            KeepingOutcome::Loaded(Ok(rows)) => {
                let last = rows.last().map(|row| (row.channel.clone(), row.contributor.clone()));
                let next = last.filter(|_| rows.len() >= ROWS);
                for row in rows.iter().filter(|row| row.contributor != self.contributor) {
                    if book.restore(&row.contributor, &row.state, now_ms).is_err() {
                        tracing::warn!(channel = %row.channel, "a row of reactions can't be read, and is skipped");
                    }
                }
                self.load = next.map(|after| Loading { after, at_ms: now_ms, is_under_way: false });
            }
            KeepingOutcome::Loaded(Err(error)) => {
                tracing::warn!(%error, "totals of reactions can't be read; the node retries");
                if let Some(load) = &mut self.load {
                    (load.is_under_way, load.at_ms) = (false, now_ms.saturating_add(KEEP_MS));
                }
            }
        }
    }

    /// Starts the steps that are due.
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

    /// Writes some of the changed totals, unless a write is under way.
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

    /// Writes the last changes, and waits for that for a limited time.
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
                    return tracing::warn!(%error, "the last totals of reactions could not be written");
                }
            }
        };
        // real time: the limit of a stop.
        if tokio::time::timeout(STOP_PATIENCE, write).await.is_err() {
            tracing::warn!("the database takes too long: the last totals of reactions were not written");
        }
    }
}
