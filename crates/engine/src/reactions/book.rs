//! The totals of a node: what it has counted, and what it knows about other nodes.
//!
//! A contributor numbers its changes. In each tick, a book sends the others what it has changed since the last tick,
//! with the first and the last change. So a book that has missed some asks for them. Every few seconds, books compare
//! hashes of what they know of each contributor. Where these differ, a book asks for everything; any book that knows
//! the contributor can answer. So losses are found, and what a dead node has sent to any other node is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use indexmap::{IndexMap, IndexSet};
use touchline_protocol::stream::ChannelName;
use touchline_registry::{HashSeed, SipState, spare_capacity};

use super::closings::DueClosings;
use super::doubt::Doubt;
use super::link::{LinkBody, LinkMessage, MalformedReactions};
use super::opening::{OPTIONS_MAX, OpenReactions, ReactionOpening, RoundId};
use super::records::{Contributor, ReactionRecord};
use super::state::ReactionState;
use super::totals::ChannelTotals;

/// Shards learn a little later that the node is full. What they have accepted until then still counts.
const ACCEPTED_BEYOND: usize = 4;
/// How often a book compares its knowledge with others, milliseconds.
const COMPARE_MS: u64 = 5_000;
/// How often to check whether a closed channel can be published for the last time, milliseconds.
const FINISH_STEP_MS: u64 = 50;
/// How much later than the others a node forgets what it has counted itself, milliseconds. So it does not begin at zero
/// while another node still knows more.
const FORGET_AFTER_OTHERS_MS: u64 = 60_000;
/// The greatest number of contributors of a channel, including dead ones.
const CONTRIBUTORS_MAX: usize = 4_096;

/// The limits of a book.
#[derive(Debug, Clone, Copy)]
pub struct ReactionLimits {
    /// The greatest number of channels in the book. Beyond it, nothing is opened, and what other nodes send is dropped.
    /// What shards accepted before they knew that is counted, up to four times as many channels.
    pub channels: usize,
    /// A channel is forgotten when nothing has changed in it for this long, milliseconds.
    pub ttl_ms: u64,
    /// The shortest time between two reports to other nodes, milliseconds; at least 1.
    pub tick_ms: u64,
}

/// Why reactions cannot be opened, counted, read or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReactionFault {
    /// The book has reached its limit of channels, or the channel its limit of options.
    LimitExceeded,
    /// No reactions are open in the channel.
    NotOpen,
    /// The reactions of the channel are closed.
    Closed,
    /// The option is not one of the open options.
    UnknownOption,
    /// Another round has begun meanwhile.
    Replaced,
    /// The database did not store it in time.
    NotKept,
    /// Too many requests are waiting.
    Busy,
}

/// An action that a book asks its host to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookOutput {
    /// Send this message to the book of a node; `None` = of all other nodes.
    Send(Option<Arc<str>>, Bytes),
    /// The state of this channel has changed. Show it to clients that subscribe from now on, and also to all
    /// subscribers if totals have changed (the flag).
    Show(ChannelName, bool),
    /// Notify the shards of what is open in this channel. Call [`ReactionBook::begun`] when all shards know a round
    /// that has begun, and [`ReactionBook::complete`] when all shards have counted what came before the round's end.
    Announce(ChannelName),
    /// This channel was closed at this time, Unix milliseconds. When the nodes have counted everything
    /// ([`ReactionBook::is_complete_at`]), publish it for the last time if it is this node's turn
    /// ([`super::finish_turn`]). The output is repeated until that is done.
    Finish(ChannelName, u64),
}

/// The totals of all channels that a node knows.
#[derive(Debug)]
pub struct ReactionBook {
    pub(super) node: Arc<str>,
    pub(super) me: Contributor,
    /// The number of this node's last change that was sent to other nodes.
    pub(super) head: u64,
    pub(super) channels: IndexMap<ChannelName, ChannelTotals, SipState>,
    /// The last change of each other contributor that this node has seen.
    pub(super) seen: BTreeMap<Contributor, u64>,
    /// The channels in which this node has changed something since the last tick.
    pub(super) changed: IndexSet<ChannelName, SipState>,
    /// The channels whose state has changed since they were last shown, and whether their totals have changed.
    shown_next: IndexMap<ChannelName, bool, SipState>,
    closings: DueClosings,
    /// The channels that are closed and not known to be published for the last time.
    unfinished: BTreeSet<ChannelName>,
    /// Nodes and contributors that they know differently, with what this node knew when it last noticed that.
    pub(super) doubted: BTreeMap<(Arc<str>, Contributor), Doubt>,
    /// The contributors that were asked for since the last tick.
    pub(super) asked: BTreeSet<Contributor>,
    /// Whether something has to be sent before the next tick.
    is_urgent: bool,
    limits: ReactionLimits,
    next_tick_ms: u64,
    finish_at_ms: u64,
    compare_at_ms: u64,
    forget_at_ms: u64,
    /// The number of other nodes' records that were dropped for lack of room.
    dropped: u64,
    pub(super) outputs: Vec<BookOutput>,
}

impl ReactionBook {
    /// An empty book. `incarnation`: a number that no earlier process of this node had. `seed`: the seed for hashes of
    /// channels, which clients choose.
    pub fn new(node: &str, incarnation: u64, limits: ReactionLimits, seed: HashSeed, now_ms: u64) -> Self {
        let hasher = seed.sip();
        ReactionBook {
            node: node.into(),
            me: Contributor::new(node, incarnation),
            head: 0,
            channels: IndexMap::with_hasher(hasher),
            seen: BTreeMap::new(),
            changed: IndexSet::with_hasher(hasher),
            shown_next: IndexMap::with_hasher(hasher),
            closings: DueClosings::new(seed),
            unfinished: BTreeSet::new(),
            doubted: BTreeMap::new(),
            asked: BTreeSet::new(),
            is_urgent: false,
            limits,
            next_tick_ms: now_ms,
            finish_at_ms: now_ms,
            compare_at_ms: now_ms.saturating_add(COMPARE_MS),
            forget_at_ms: now_ms,
            dropped: 0,
            outputs: Vec::new(),
        }
    }

    /// This incarnation of the node, as a contributor.
    pub fn contributor(&self) -> &Contributor {
        &self.me
    }

    /// The number of channels in the book.
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// The channels in the book, if there is no room for another one; `None` = there is room.
    pub fn full(&self) -> Option<impl Iterator<Item = &ChannelName>> {
        (self.channels.len() >= self.limits.channels).then(|| self.channels.keys())
    }

    /// Whether the book has no channel.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// The number of other nodes' records that were dropped for lack of room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Removes and returns what the host has to do since the last call.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, BookOutput> {
        self.outputs.drain(..)
    }

    /// Counts reactions of this node's clients. Reactions that were accepted in another round than the present one are
    /// too late: [`ReactionFault::NotOpen`].
    ///
    /// # Errors
    /// [`ReactionFault`]. In this case nothing is counted.
    pub fn add(
        &mut self,
        channel: &ChannelName,
        round: &RoundId,
        counts: &[(&str, u64)],
        now_ms: u64,
    ) -> Result<(), ReactionFault> {
        let me = self.me.clone();
        if self.channels.get(channel).map(ChannelTotals::round).unwrap_or_default() != *round {
            return Err(ReactionFault::NotOpen);
        }
        let totals = self.totals_within(channel, self.limits.channels.saturating_mul(ACCEPTED_BEYOND))?;
        if totals.options_beside(&me, counts.iter().map(|(option, _)| *option)) > 2 * OPTIONS_MAX
            || !totals.has_heard(&me) && totals.contributors() >= CONTRIBUTORS_MAX
        {
            return Err(ReactionFault::LimitExceeded);
        }
        totals.add(&me, counts.iter().copied(), now_ms);
        self.changed.insert(channel.clone());
        self.shown_next.insert(channel.clone(), true);
        Ok(())
    }

    /// Opens a new round in a channel, unless the same is already open. Returns when it was opened, Unix milliseconds.
    ///
    /// # Errors
    /// [`ReactionFault::LimitExceeded`].
    pub fn open(
        &mut self,
        channel: &ChannelName,
        options: Box<[Box<str>]>,
        (rate, closes_at_ms): (u32, u64),
        now_ms: u64,
    ) -> Result<u64, ReactionFault> {
        let (node, me) = (Arc::clone(&self.node), self.me.clone());
        let totals = self.totals(channel)?;
        let opened_ms = now_ms.max(totals.round().opened_ms.saturating_add(1));
        let round = RoundId { opened_ms, opener: (&*node).into() };
        let opening = ReactionOpening { round, options, rate, closes_at_ms };
        if let Some(present) = totals.opening.as_ref().filter(|it| totals.closed_ms == 0 && it.is_alike(&opening)) {
            return Ok(present.round.opened_ms);
        }
        totals.begin(Arc::new(opening));
        totals.note_change(&me, 0, now_ms);
        self.tell_soon(channel);
        self.shown_next.insert(channel.clone(), true);
        // A client that subscribes before the next tick must not see the round that is over.
        self.outputs.push(BookOutput::Show(channel.clone(), false));
        self.note_round(channel);
        Ok(opened_ms)
    }

    /// Closes a channel, even if its namespace has opened it. Returns whether it was open.
    ///
    /// # Errors
    /// [`ReactionFault`]. `is_standing`: whether the namespace has reactions.
    pub fn close(&mut self, channel: &ChannelName, is_standing: bool, now_ms: u64) -> Result<bool, ReactionFault> {
        if !is_standing && !self.channels.contains_key(channel) {
            return Err(ReactionFault::NotOpen);
        }
        let me = self.me.clone();
        let totals = self.totals(channel)?;
        if totals.opening.is_none() && !is_standing {
            return Err(ReactionFault::NotOpen);
        }
        if totals.closed_ms > 0 {
            return Ok(false);
        }
        totals.close(now_ms);
        totals.note_change(&me, 0, now_ms);
        self.tell_soon(channel);
        self.note_closed(channel);
        Ok(true)
    }

    /// Notes that this node's clients may react in a round. So the other nodes learn that this node knows the round.
    pub fn begun(&mut self, channel: &ChannelName, round: &RoundId) {
        let me = self.me.clone();
        if let Some(totals) = self.channels.get_mut(channel).filter(|it| it.closed_ms == 0 && it.round() == *round)
            && totals.note_begun(&me)
        {
            // The change uses no time of the channel.
            totals.note_change(&me, 0, 0);
            self.tell_soon(channel);
        }
    }

    /// Notes that this node has counted everything that its clients sent in a round before it was closed.
    pub fn complete(&mut self, channel: &ChannelName, round: &RoundId) {
        let me = self.me.clone();
        if let Some(totals) = self.channels.get_mut(channel).filter(|it| it.closed_ms > 0 && it.round() == *round)
            && totals.complete(&me)
        {
            self.tell_soon(channel);
        }
    }

    /// Whether all clients of these nodes may react in the present round of a channel.
    pub fn is_known_by<'n>(&self, channel: &str, nodes: impl IntoIterator<Item = &'n str>) -> bool {
        self.channels.get(channel).is_some_and(|totals| totals.is_known_by(nodes.into_iter()))
    }

    /// Whether these nodes have counted everything that came before a channel was closed, and this node knows that.
    pub fn is_complete_at<'n>(&self, channel: &str, nodes: impl IntoIterator<Item = &'n str>) -> bool {
        self.channels.get(channel).is_some_and(|totals| totals.is_complete_at(nodes.into_iter()))
    }

    /// Whether a channel is closed and not known to be published for the last time.
    pub fn is_finishing(&self, channel: &str) -> bool {
        self.unfinished.contains(channel)
    }

    /// Notes that the closing publication of a channel was published.
    pub fn finished(&mut self, channel: &ChannelName, now_ms: u64) {
        let me = self.me.clone();
        if let Some(totals) = self.channels.get_mut(channel)
            && totals.closed_ms > 0
            && !totals.is_published
        {
            totals.is_published = true;
            totals.note_change(&me, 0, now_ms);
            self.tell_soon(channel);
        }
        self.unfinished.remove(channel);
    }

    /// The state of a channel; `None` = nothing is known about it. `standing`: the options of its namespace.
    pub fn state(&self, channel: &str, standing: &[String]) -> Option<ReactionState> {
        self.channels.get(channel).map(|totals| totals.state(standing))
    }

    /// The round of a channel, and whether its closing publication was published; `None` = the channel is unknown.
    pub fn round(&self, channel: &str) -> Option<(RoundId, bool)> {
        self.channels.get(channel).map(|totals| (totals.round(), totals.is_published))
    }

    /// What was opened in a channel and is not closed; `None` = nothing.
    pub fn opening(&self, channel: &str) -> Option<&Arc<ReactionOpening>> {
        self.channels.get(channel).filter(|totals| totals.closed_ms == 0)?.opening.as_ref()
    }

    /// What a shard needs to know about a channel; `None` = what the namespace says. `standing`: the options and the
    /// rate of the namespace. A channel that was closed without having been opened has these.
    pub fn open_reactions(&self, channel: &str, standing: (&[String], u32)) -> Option<OpenReactions> {
        let totals = self.channels.get(channel)?;
        let is_closed = totals.closed_ms > 0;
        match &totals.opening {
            None if !is_closed => None,
            None => Some(OpenReactions {
                round: RoundId::default(),
                options: standing.0.iter().map(|option| option.as_str().into()).collect(),
                rate: standing.1,
                closes_at_ms: 0,
                is_closed,
            }),
            Some(opening) => Some(OpenReactions {
                round: opening.round.clone(),
                options: opening.options.iter().cloned().collect(),
                rate: opening.rate,
                closes_at_ms: opening.closes_at_ms,
                is_closed,
            }),
        }
    }

    /// Notes that this node now takes part in the cluster. It asks the others what they know.
    pub fn joined(&mut self) {
        self.compare(true);
    }

    /// When [`ReactionBook::tick`] next has something to do, Unix milliseconds; `None` = not until something happens.
    pub fn due_ms(&self) -> Option<u64> {
        if self.is_empty() && self.outputs.is_empty() && self.asked.is_empty() {
            return None;
        }
        if self.is_urgent {
            return Some(0);
        }
        let is_busy = !self.changed.is_empty() || !self.shown_next.is_empty() || !self.asked.is_empty();
        let tick = is_busy.then_some(self.next_tick_ms);
        let finish = (!self.unfinished.is_empty()).then_some(self.finish_at_ms);
        let slow = [self.compare_at_ms, self.forget_at_ms];
        [tick, finish, self.closings.first_ms()].into_iter().flatten().chain(slow).min()
    }

    /// Sends and shows what has changed since the last tick, if a tick is due, and does everything else that is due.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms.saturating_add(self.limits.tick_ms) < self.next_tick_ms {
            // The clock was set back.
            self.next_tick_ms = now_ms;
        }
        self.close_due(now_ms);
        if std::mem::take(&mut self.is_urgent) {
            self.tell_changes();
        }
        if now_ms >= self.finish_at_ms || self.finish_at_ms > now_ms.saturating_add(FINISH_STEP_MS) {
            self.finish_at_ms = now_ms.saturating_add(FINISH_STEP_MS);
            let closed = self.unfinished.iter().filter_map(|it| Some((it, self.channels.get(it)?.closed_ms)));
            self.outputs.extend(closed.map(|(channel, closed_ms)| BookOutput::Finish(channel.clone(), closed_ms)));
        }
        if now_ms >= self.next_tick_ms {
            self.next_tick_ms = now_ms.saturating_add(self.limits.tick_ms);
            self.tell_changes();
            self.show();
            self.asked.clear();
        }
        if now_ms >= self.compare_at_ms || self.compare_at_ms > now_ms.saturating_add(COMPARE_MS) {
            self.compare_at_ms = now_ms.saturating_add(COMPARE_MS);
            if !self.is_empty() {
                // Changes are sent before knowledge is compared.
                self.tell_changes();
                self.compare(false);
            }
        }
        if now_ms >= self.forget_at_ms || self.forget_at_ms > now_ms.saturating_add(FORGET_AFTER_OTHERS_MS) {
            self.forget_at_ms = now_ms.saturating_add(FORGET_AFTER_OTHERS_MS / 4);
            self.forget(now_ms);
        }
    }

    /// Sends the other nodes what has changed since the last tick at once, because the node stops.
    pub fn tell_last(&mut self) {
        self.tell_changes();
    }

    /// Handles a message of another node's book.
    ///
    /// # Errors
    /// [`MalformedReactions`]: the message cannot be read.
    pub fn receive(&mut self, message: &[u8], now_ms: u64) -> Result<(), MalformedReactions> {
        let LinkMessage { from, body } = LinkMessage::read(message)?;
        let from: Arc<str> = from.into();
        match body {
            LinkBody::Delta { of, .. } if of == self.me => {}
            LinkBody::Delta { of, since, upto, records } => {
                for record in records {
                    self.merge(&of, record, now_ms);
                }
                let seen = self.seen.entry(of.clone()).or_default();
                let before = std::mem::replace(seen, upto.max(*seen));
                if since > before {
                    self.ask(&from, [(of, before)]);
                }
            }
            LinkBody::Known { known, is_new } => {
                if is_new && !(self.seen.is_empty() && self.head == 0) {
                    let message = self.known_message(false);
                    self.outputs.push(BookOutput::Send(Some(Arc::clone(&from)), message));
                }
                self.compare_with(&from, known);
            }
            LinkBody::Ask(asked) => {
                for (of, since) in asked {
                    self.answer(&from, &of, since);
                }
            }
        }
        Ok(())
    }

    /// Whether this incarnation of the node has a row about a channel for the database.
    pub fn has_row(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|totals| totals.has_heard(&self.me))
    }

    /// The row of this incarnation of the node about a channel, for the database; `None` = there is none.
    pub fn row(&self, channel: &str) -> Option<Vec<u8>> {
        let record = self.channels.get(channel)?.record(channel, &self.me)?;
        serde_json::to_vec(&record).ok()
    }

    /// Restores a contributor's row from the database.
    ///
    /// # Errors
    /// [`MalformedReactions`]: the row cannot be read.
    pub fn restore(&mut self, contributor: &str, row: &[u8], now_ms: u64) -> Result<(), MalformedReactions> {
        let record: ReactionRecord = serde_json::from_slice(row).map_err(|_| MalformedReactions)?;
        self.merge(&Contributor::from(contributor), record, now_ms);
        Ok(())
    }

    /// The totals of a channel; they are created if there are none.
    fn totals(&mut self, channel: &ChannelName) -> Result<&mut ChannelTotals, ReactionFault> {
        self.totals_within(channel, self.limits.channels)
    }

    fn totals_within(&mut self, channel: &ChannelName, limit: usize) -> Result<&mut ChannelTotals, ReactionFault> {
        if self.channels.len() >= limit && !self.channels.contains_key(channel) {
            return Err(ReactionFault::LimitExceeded);
        }
        Ok(self.channels.entry(channel.clone()).or_default())
    }

    fn merge(&mut self, of: &Contributor, record: ReactionRecord, now_ms: u64) {
        let over_ms = record.used_until_ms().saturating_add(self.limits.ttl_ms);
        if over_ms < now_ms && !self.channels.contains_key(&*record.channel) {
            // The channel is forgotten here, and will be forgotten where the record came from.
            return;
        }
        let channel = ChannelName::from(&*record.channel);
        let Ok(totals) = self.totals(&channel) else {
            self.dropped += 1;
            return;
        };
        if !totals.has_heard(of) && totals.contributors() >= CONTRIBUTORS_MAX {
            self.dropped += 1;
            return;
        }
        let effect = totals.merge(of, record);
        let (is_closed, is_published) = (totals.closed_ms > 0, totals.is_published);
        if effect.is_shown && is_closed {
            // Nothing of it is news any more. Clients that subscribe before the closing publication see the rest.
            self.outputs.push(BookOutput::Show(channel.clone(), false));
        } else if effect.is_shown {
            self.shown_next.insert(channel.clone(), true);
        }
        if effect.is_announced {
            self.note_round(&channel);
        }
        if is_published {
            self.unfinished.remove(&channel);
        }
    }

    /// Shows what has changed since the last tick.
    fn show(&mut self) {
        let ReactionBook { shown_next, outputs, .. } = self;
        let shown = shown_next.len();
        outputs.extend(shown_next.drain(..).map(|(channel, is_news)| BookOutput::Show(channel, is_news)));
        if let Some(capacity) = spare_capacity(shown, shown_next.capacity()) {
            shown_next.shrink_to(capacity);
        }
    }

    /// Sends a channel to the other nodes before the next tick.
    fn tell_soon(&mut self, channel: &ChannelName) {
        self.changed.insert(channel.clone());
        self.is_urgent = true;
    }

    /// Handles that what is open in a channel has changed.
    fn note_round(&mut self, channel: &ChannelName) {
        self.closings.set(channel, None);
        self.unfinished.remove(channel);
        let Some(totals) = self.channels.get(channel) else { return };
        if totals.closed_ms > 0 {
            return self.note_closed(channel);
        }
        if let Some(at_ms) = totals.opening.as_ref().map(|opening| opening.closes_at_ms).filter(|at_ms| *at_ms > 0) {
            self.closings.set(channel, Some(at_ms));
        }
        self.outputs.push(BookOutput::Announce(channel.clone()));
    }

    fn note_closed(&mut self, channel: &ChannelName) {
        self.closings.set(channel, None);
        if self.channels.get(channel).is_some_and(|totals| !totals.is_published) {
            self.unfinished.insert(channel.clone());
        }
        // Clients that subscribe from now on see that it is closed.
        self.outputs.push(BookOutput::Show(channel.clone(), false));
        self.outputs.push(BookOutput::Announce(channel.clone()));
    }

    /// Closes channels that close automatically. Their own time is used, so that all nodes say the same.
    fn close_due(&mut self, now_ms: u64) {
        while let Some((at_ms, channel)) = self.closings.take_due(now_ms) {
            if self.channels.get_mut(&channel).is_some_and(|totals| totals.close(at_ms)) {
                self.note_closed(&channel);
            }
        }
    }

    /// Forgets channels in which nothing has changed for long, and contributors of which nothing is left.
    fn forget(&mut self, now_ms: u64) {
        let ttl_ms = self.limits.ttl_ms;
        let me = self.me.clone();
        let is_over = |totals: &ChannelTotals| {
            let extra_ms = if totals.has_heard(&me) { FORGET_AFTER_OTHERS_MS } else { 0 };
            totals.used_until_ms().saturating_add(ttl_ms).saturating_add(extra_ms) < now_ms
        };
        let over =
            self.channels.iter().filter(|(channel, totals)| is_over(totals) && !self.unfinished.contains(*channel));
        let over: Vec<_> = over.map(|(channel, _)| channel.clone()).collect();
        for channel in over {
            self.channels.swap_remove(&channel);
            self.changed.swap_remove(&channel);
            self.closings.set(&channel, None);
            self.unfinished.remove(&channel);
            self.outputs.push(BookOutput::Announce(channel.clone()));
            self.outputs.push(BookOutput::Show(channel, false));
        }
        if let Some(capacity) = spare_capacity(self.channels.len(), self.channels.capacity()) {
            self.channels.shrink_to(capacity);
        }
        if self.channels.is_empty() {
            self.doubted.clear();
            self.seen.clear();
        }
    }
}
