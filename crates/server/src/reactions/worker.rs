//! The loop of the thread, and what it does for whom.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use touchline_engine::duration::millis;
use touchline_engine::reactions::{
    BookOutput, CountedReactions, ReactionBook, ReactionFault, ReactionLimits, ReactionState, RoundId, finish_turn,
};
use touchline_engine::request::Publish;
use touchline_engine::{ChannelRequest, Response, ShardId};
use touchline_protocol::publication::Content;
use touchline_protocol::stream::ChannelName;
use touchline_registry::HashSeed;

use super::keeping::KeptTotals;
use crate::backend::nats::REACTIONS_SCOPE;
use crate::node::Node;
use crate::runtime::mailbox::{Message, ShownReactions};
use crate::runtime::reaction_mailbox::{
    ReactionAnswerFault, ReactionMessage, ReactionMetrics, ReactionOperation, ReactionReply,
};
use crate::runtime::reply_to::ReplyTo;

/// Messages that are taken before what is due is done.
const MESSAGES: usize = 256;
/// How long a node waits for each node before it whose turn it is to publish a closed channel, milliseconds.
const TURN_MS: u64 = 3_000;
/// How long the server API waits for the closing publication, milliseconds: some turns.
const CLOSE_PATIENCE_MS: u64 = 10_000;

/// What the thread begins with.
pub(crate) struct ReactionsStart {
    pub(crate) messages: Receiver<ReactionMessage>,
    /// A random number.
    pub(crate) incarnation: u64,
    /// Of the hashes of channels, which clients choose.
    pub(crate) seed: HashSeed,
}

/// Starts the thread.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn start(node: Arc<Node>, start: ReactionsStart) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("reactions".into()).spawn(move || {
        // The runtime must not leave its thread.
        match Builder::new_current_thread().enable_time().build_local(LocalOptions::default()) {
            Ok(runtime) => runtime.block_on(async {
                let ReactionsStart { messages, incarnation, seed } = start;
                ReactionWorker::new(node, incarnation, seed).run(messages).await;
            }),
            Err(error) => tracing::error!(%error, "the system refused what reactions need: none is counted"),
        }
    })
}

/// A request of the server API that waits until its channel is published for the last time.
struct WaitingClose {
    reply: ReactionReply<ReactionState>,
    /// It is answered then, whatever has happened, Unix milliseconds.
    until_ms: u64,
}

struct ReactionWorker {
    node: Arc<Node>,
    metrics: Arc<ReactionMetrics>,
    book: ReactionBook,
    scope: Arc<str>,
    kept: KeptTotals,
    /// Closing publications under way, with the round that each closes.
    publishing: JoinSet<(ChannelName, RoundId, Response)>,
    published_next: HashSet<ChannelName>,
    closes: HashMap<ChannelName, Vec<WaitingClose>>,
    /// How many channels shards were told that there is room for, when the node was full.
    admitted: usize,
    /// Requests that wait until the totals of earlier starts are read; each waits in a task of the server API, whose
    /// number is limited.
    early: Vec<(ChannelName, ReactionOperation)>,
}

impl ReactionWorker {
    fn new(node: Arc<Node>, incarnation: u64, seed: HashSeed) -> Self {
        let settings = &node.settings.reactions;
        let limits = ReactionLimits {
            channels: settings.channel_limit,
            ttl_ms: millis(settings.ttl),
            tick_ms: millis(settings.tick).max(1),
        };
        let now_ms = node.clock.now_ms();
        let book = ReactionBook::new(&node.id, incarnation, limits, seed, now_ms);
        ReactionWorker {
            metrics: Arc::clone(&node.reactions.metrics),
            kept: KeptTotals::new(&node, book.contributor().as_str(), now_ms),
            book,
            scope: REACTIONS_SCOPE.into(),
            publishing: JoinSet::new(),
            published_next: HashSet::new(),
            closes: HashMap::new(),
            admitted: 0,
            early: Vec::new(),
            node,
        }
    }

    async fn run(mut self, mut messages: Receiver<ReactionMessage>) {
        loop {
            let due = self.due();
            tokio::select! {
                message = messages.recv() => {
                    let mut is_over = message.is_none();
                    let rest = std::iter::from_fn(|| messages.try_recv().ok()).take(MESSAGES);
                    let batch: Vec<_> = message.into_iter().chain(rest).collect();
                    for message in batch {
                        is_over |= matches!(message, ReactionMessage::Stop);
                        self.handle(message);
                    }
                    if is_over {
                        return self.finish().await;
                    }
                }
                Some(published) = self.publishing.join_next() => self.note_published(published.ok()),
                outcome = self.kept.outcome() => self.kept.note(outcome, &mut self.book, self.node.clock.now_ms()),
                () = tokio::time::sleep(due.unwrap_or(Duration::MAX)), if due.is_some() => {}
            }
            self.advance();
        }
    }

    /// How long nothing is to be done; `None` = until something happens.
    fn due(&self) -> Option<Duration> {
        let closes = self.closes.values().flatten().map(|close| close.until_ms).min();
        let book = self.book.due_ms().filter(|_| !self.kept.is_loading());
        let due_ms = [book, self.kept.due_ms(), closes].into_iter().flatten().min()?;
        Some(Duration::from_millis(due_ms.saturating_sub(self.node.clock.now_ms()).max(1)))
    }

    fn handle(&mut self, message: ReactionMessage) {
        match message {
            ReactionMessage::Counted(counted) => counted.iter().for_each(|counted| self.count(counted)),
            ReactionMessage::Scope(message) => {
                if self.book.receive(&message, self.node.clock.now_ms()).is_err() {
                    tracing::warn!("a message about reactions can't be read: a node of a later version may be there");
                }
            }
            ReactionMessage::Joined => self.book.joined(),
            ReactionMessage::Operate(channel, operation) if self.kept.is_loading() => {
                self.early.push((channel, operation));
            }
            ReactionMessage::Operate(channel, operation) => self.operate(channel, operation),
            ReactionMessage::Stop => {}
        }
    }

    fn count(&mut self, counted: &CountedReactions) {
        let CountedReactions { channel, round, options, counts } = counted;
        let some = options.iter().zip(counts).filter(|(_, n)| **n > 0).map(|(option, n)| (&**option, *n));
        let some: Vec<_> = some.collect();
        match self.book.add(channel, round, &some, self.node.clock.now_ms()) {
            Ok(()) => self.kept.change(channel),
            Err(_) => self.metrics.late.add(some.iter().map(|(_, n)| n).sum()),
        }
    }

    fn operate(&mut self, channel: ChannelName, operation: ReactionOperation) {
        let now_ms = self.node.clock.now_ms();
        let is_standing = !self.standing(&channel).0.is_empty();
        match operation {
            ReactionOperation::Open { options, rate, closes_at_ms, reply } => {
                let opened = self.book.open(&channel, options, (rate, closes_at_ms), now_ms);
                self.kept.change(&channel);
                // The shards of this node have it before anybody knows that it is open.
                self.perform(now_ms);
                let _ = reply.send(opened.map_err(ReactionAnswerFault::Fault));
            }
            ReactionOperation::Add { option, n, reply } => {
                let _ = reply.send(self.add(&channel, &option, n, now_ms));
            }
            ReactionOperation::Get(reply) => {
                let state = self.state(&channel).ok_or(ReactionAnswerFault::Fault(ReactionFault::NotOpen));
                let _ = reply.send(state);
            }
            ReactionOperation::Close(reply) => match self.book.close(&channel, is_standing, now_ms) {
                Ok(_) => {
                    self.kept.change(&channel);
                    let until_ms = now_ms.saturating_add(CLOSE_PATIENCE_MS);
                    self.closes.entry(channel).or_default().push(WaitingClose { reply, until_ms });
                }
                Err(fault) => drop(reply.send(Err(ReactionAnswerFault::Fault(fault)))),
            },
        }
    }

    /// Counts reactions of the backend.
    fn add(&mut self, channel: &ChannelName, option: &str, n: u64, now_ms: u64) -> Result<(), ReactionAnswerFault> {
        let (standing, rate) = self.standing(channel);
        let open = self.book.open_reactions(channel, (standing, rate));
        let round = match &open {
            Some(open) if open.is_closed_at(now_ms) => return Err(ReactionAnswerFault::Fault(ReactionFault::Closed)),
            Some(open) if open.find(option).is_none() => return Err(ReactionAnswerFault::NoSuchOption),
            Some(open) => open.round.clone(),
            None if standing.is_empty() => return Err(ReactionAnswerFault::Fault(ReactionFault::NotOpen)),
            None if !standing.iter().any(|known| known == option) => return Err(ReactionAnswerFault::NoSuchOption),
            None => RoundId::default(),
        };
        // It can be refused still, other than what shards have accepted.
        if !self.node.reactions.admission.admits(channel) {
            return Err(ReactionAnswerFault::Fault(ReactionFault::LimitExceeded));
        }
        self.book.add(channel, &round, &[(option, n)], now_ms).map_err(ReactionAnswerFault::Fault)?;
        self.kept.change(channel);
        Ok(())
    }

    /// What is known of a channel; `None` = it has no reactions.
    fn state(&self, channel: &str) -> Option<ReactionState> {
        let (standing, _) = self.standing(channel);
        let nothing = || {
            let totals = standing.iter().map(|option| (option.as_str().into(), 0)).collect();
            (!standing.is_empty()).then(|| ReactionState { totals, ..ReactionState::default() })
        };
        self.book.state(channel, standing).or_else(nothing)
    }

    /// What the namespace of a channel opens, and the rate.
    fn standing(&self, channel: &str) -> (&[String], u32) {
        let options = self.node.session.namespaces.resolve(channel);
        options.map_or((&[], 1), |options| (options.reactions.as_slice(), options.reactions_rate))
    }

    /// Does what is due.
    fn advance(&mut self) {
        let now_ms = self.node.clock.now_ms();
        if !self.kept.is_loading() {
            for (channel, operation) in std::mem::take(&mut self.early) {
                self.operate(channel, operation);
            }
            // Before, totals would be shown that are too low.
            if self.book.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                self.book.tick(now_ms);
            }
        }
        self.perform(now_ms);
        self.answer_closes(now_ms);
        self.kept.advance(&self.book, now_ms);
        let admission = &self.node.reactions.admission;
        match self.book.full() {
            Some(known) if self.admitted != self.book.len() || !admission.is_full() => {
                self.admitted = self.book.len();
                admission.fill(known.cloned());
            }
            Some(_) => {}
            None => admission.open(),
        }
        self.metrics.channels.set(self.book.len() as u64);
        self.metrics.dropped.set(self.book.dropped());
    }

    /// Does what the book wants done.
    fn perform(&mut self, now_ms: u64) {
        let mut shown: Vec<Vec<ShownReactions>> = self.node.shards.iter().map(|_| Vec::new()).collect();
        let outputs: Vec<BookOutput> = self.book.outputs().collect();
        for output in outputs {
            match output {
                BookOutput::Send(to, message) => {
                    if let Some(cluster) = &self.node.cluster {
                        cluster.send_to_scope(&self.scope, to.as_ref(), message);
                    }
                }
                BookOutput::Show(channel, has_news) => {
                    let home = usize::from(self.node.home(&channel));
                    if let Some(shown) = shown.get_mut(home) {
                        shown.push(self.shown(channel, has_news));
                    }
                }
                BookOutput::Announce(channel) => {
                    let open = self.book.open_reactions(&channel, self.standing(&channel));
                    let open = || Message::ReactionsOpen(channel.clone(), open.clone().map(Box::new));
                    self.node.send_to_shards(open);
                }
                BookOutput::Finish(channel, closed_ms) => self.publish_last(channel, closed_ms, now_ms),
            }
        }
        for (home, shown) in shown.into_iter().enumerate().filter(|(_, shown)| !shown.is_empty()) {
            self.node.send(home as ShardId, Message::ShowReactions(shown));
        }
    }

    /// What the home of a channel shows. Behind the closing publication nothing is news any more.
    fn shown(&self, channel: ChannelName, has_news: bool) -> ShownReactions {
        let Some(state) = self.book.state(&channel, self.standing(&channel).0) else {
            return ShownReactions { channel, news: None, state: None };
        };
        let is_over = self.book.round(&channel).is_some_and(|(_, is_published)| is_published);
        let whole = Bytes::from(state.publication(state.is_closed));
        let news = (has_news && !is_over)
            .then(|| if state.is_closed { state.publication(false).into() } else { whole.clone() });
        ShownReactions { channel, news, state: Some(whole) }
    }

    /// Publishes a closed channel for the last time, if it is this node's turn.
    fn publish_last(&mut self, channel: ChannelName, closed_ms: u64, now_ms: u64) {
        let peers = self.node.peers_in_order();
        let turn = finish_turn(&channel, &self.node.id, peers.iter().map(|peer| &**peer)) as u64;
        let is_too_early = now_ms < closed_ms.saturating_add(turn.saturating_mul(TURN_MS));
        let state = self.book.state(&channel, self.standing(&channel).0);
        let (Some(state), Some((round, false))) = (state, self.book.round(&channel)) else { return };
        if is_too_early || !self.published_next.insert(channel.clone()) {
            return;
        }
        let content = Content { data: Bytes::from(state.publication(true)), ..Content::default() };
        // Two nodes that both take it for their turn store it once.
        let idempotency_key = format!("$reactions/{}/{}", round.opened_ms, round.opener).into();
        let publish = ChannelRequest::Publish(Box::new(Publish { content, idempotency_key, ..Publish::default() }));
        let (sender, reply) = oneshot::channel();
        let reply_to = ReplyTo::Operation(None, sender);
        self.node
            .send(self.node.home(&channel), Message::Request { channel: channel.clone(), request: publish, reply_to });
        self.publishing.spawn_local(async move {
            let response = reply.await.unwrap_or(Response::Done);
            (channel, round, response)
        });
    }

    fn note_published(&mut self, published: Option<(ChannelName, RoundId, Response)>) {
        let Some((channel, round, response)) = published else { return };
        self.published_next.remove(&channel);
        let is_of_round = self.book.round(&channel).is_some_and(|(present, _)| present == round);
        // If it was refused, the book asks for it again at its next tick.
        if is_of_round && matches!(response, Response::Published(_)) {
            self.book.finished(&channel, self.node.clock.now_ms());
            self.kept.change(&channel);
        }
    }

    /// Answers those who wait for channels that are published for the last time, or have waited for long.
    fn answer_closes(&mut self, now_ms: u64) {
        let channels: Vec<ChannelName> = self.closes.keys().cloned().collect();
        for channel in channels {
            let is_over = self.book.round(&channel).is_none_or(|(_, is_published)| is_published);
            let Some(closes) = self.closes.get_mut(&channel) else { continue };
            let answered: Vec<_> = closes.extract_if(.., |close| is_over || close.until_ms <= now_ms).collect();
            if closes.is_empty() {
                self.closes.remove(&channel);
            }
            for WaitingClose { reply, .. } in answered {
                let state = self.state(&channel).ok_or(ReactionAnswerFault::Fault(ReactionFault::NotOpen));
                let _ = reply.send(state);
            }
        }
    }

    /// Tells the other nodes, and the database, what this one has counted last.
    async fn finish(mut self) {
        self.book.tell_last();
        self.perform(self.node.clock.now_ms());
        self.kept.finish(&self.book).await;
    }
}
