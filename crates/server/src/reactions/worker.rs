//! The loop of the thread, and its work for shards, other nodes and the server API.

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
    BookOutput, CountedReactions, OpenReactions, ReactionBook, ReactionFault, ReactionLimits, ReactionState, RoundId,
    RoundProgress, finish_turn,
};
use touchline_engine::request::Publish;
use touchline_engine::{ChannelRequest, Response, ShardId};
use touchline_protocol::publication::Content;
use touchline_protocol::stream::ChannelName;
use touchline_registry::HashSeed;

use super::beginnings::Beginnings;
use super::closings::Closings;
use super::keeping::KeptTotals;
use super::waiting::{AnswerFacts, CLOSE_PATIENCE_MS, Postponed, Unanswered, WAITING_MAX};
use crate::backend::nats::REACTIONS_SCOPE;
use crate::node::Node;
use crate::runtime::ends_process::start_owner;
use crate::runtime::generation::Generation;
use crate::runtime::mailbox::{Message, ShownReactions};
use crate::runtime::reaction_mailbox::{ReactionMessage, ReactionMetrics, ReactionOperation, ReactionReply};
use crate::runtime::reply_to::ReplyTo;

/// How many messages the thread takes before it does the steps that are due.
const MESSAGES: usize = 256;
/// What the thread needs to begin.
pub(crate) struct ReactionsStart {
    pub(crate) messages: Receiver<ReactionMessage>,
    /// A random number that identifies this start of the node.
    pub(crate) incarnation: u64,
    /// The seed of the hashes of channels, which clients choose.
    pub(crate) seed: HashSeed,
}

/// Starts the thread that keeps the totals.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn start(node: Arc<Node>, start: ReactionsStart) -> io::Result<JoinHandle<()>> {
    start_owner("reactions", move || {
        // The runtime must not leave its thread.
        match Builder::new_current_thread().enable_time().build_local(LocalOptions::default()) {
            Ok(runtime) => runtime.block_on(async {
                let ReactionsStart { messages, incarnation, seed } = start;
                ReactionWorker::new(node, incarnation, seed).run(messages).await;
            }),
            Err(error) => tracing::error!(%error, "the system refused a runtime: no reactions are counted"),
        }
    })
}

struct ReactionWorker {
    node: Arc<Node>,
    generation: Arc<Generation>,
    metrics: Arc<ReactionMetrics>,
    book: ReactionBook,
    scope: Arc<str>,
    kept: KeptTotals,
    /// Final publications under way, each with the round that it closes.
    publishing: JoinSet<(ChannelName, RoundId, Response)>,
    closings: Closings,
    beginnings: Beginnings,
    /// How many channels the shards knew to be admitted when the node was full.
    admitted: usize,
    postponed: Vec<Postponed>,
    unanswered: Vec<Unanswered>,
}

impl ReactionWorker {
    fn new(node: Arc<Node>, incarnation: u64, seed: HashSeed) -> Self {
        let generation = node.newest.get();
        let settings = &generation.settings.reactions;
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
            closings: Closings::new(node.shards.len()),
            beginnings: Beginnings::new(node.shards.len()),
            admitted: 0,
            postponed: Vec::new(),
            unanswered: Vec::new(),
            generation,
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
                () = self.node.clock.time().sleep(due.unwrap_or(Duration::MAX)), if due.is_some() => {}
            }
            self.advance();
        }
    }

    /// How long nothing is due; `None` = until something happens.
    fn due(&self) -> Option<Duration> {
        let unanswered = self.unanswered.iter().map(Unanswered::until_ms).min();
        let postponed = self.postponed.iter().map(|postponed| postponed.until_ms).min();
        let book = self.book.due_ms().filter(|_| !self.kept.is_loading());
        let due_ms = [book, self.kept.due_ms(), unanswered, postponed].into_iter().flatten().min()?;
        Some(Duration::from_millis(due_ms.saturating_sub(self.node.clock.now_ms()).max(1)))
    }

    fn handle(&mut self, message: ReactionMessage) {
        match message {
            ReactionMessage::Counted(shard, counted) => counted.iter().for_each(|counted| self.count(shard, counted)),
            ReactionMessage::Scope(message) => {
                if self.book.receive(&message, self.node.clock.now_ms()).is_err() {
                    tracing::warn!("a message about reactions can't be read: another node may run a later version");
                }
            }
            ReactionMessage::Joined => self.book.joined(),
            ReactionMessage::Operate(channel, operation) => {
                let is_full = self.postponed.len() + self.unanswered.len() >= WAITING_MAX;
                if is_full && (operation.may_wait() || self.kept.is_loading()) {
                    return operation.refuse(ReactionFault::Busy);
                }
                let until_ms = self.node.clock.now_ms().saturating_add(CLOSE_PATIENCE_MS);
                self.operate_or_postpone(Postponed { channel, operation, until_ms });
            }
            // The step after each batch looks at the nodes in sight.
            ReactionMessage::PeersChanged | ReactionMessage::Stop => {}
        }
    }

    fn count(&mut self, shard: ShardId, counted: &CountedReactions) {
        let CountedReactions { channel, round, options, counts, progress } = counted;
        let some = options.iter().zip(counts).filter(|(_, n)| **n > 0).map(|(option, n)| (&**option, *n));
        let some: Vec<_> = some.collect();
        if !some.is_empty() {
            match self.book.add(channel, round, &some, self.node.clock.now_ms()) {
                Ok(()) => self.kept.change(channel),
                Err(_) => self.metrics.late.add(some.iter().map(|(_, n)| n).sum()),
            }
        }
        match progress {
            RoundProgress::Counting => {}
            RoundProgress::Begun => {
                if self.beginnings.note(shard, channel, round) {
                    self.book.begun(channel, round);
                }
            }
            RoundProgress::Ended => {
                if self.closings.end_shard(shard, channel, round) {
                    self.book.complete(channel, round);
                    self.kept.change_now(channel);
                }
            }
        }
    }

    /// Carries out a request, unless it has to wait. All requests wait until the totals of earlier starts are read. An
    /// opening waits until the result of the round before it is published.
    fn operate_or_postpone(&mut self, postponed: Postponed) {
        let Postponed { channel, operation, until_ms } = &postponed;
        let is_behind_close = matches!(operation, ReactionOperation::Open { .. })
            && (self.book.is_finishing(channel) || self.unanswered.iter().any(|request| request.closes(channel)));
        let is_late = *until_ms <= self.node.clock.now_ms();
        if !self.kept.is_loading() && !is_behind_close {
            self.operate(postponed.channel, postponed.operation);
        } else if !is_late {
            self.postponed.push(postponed);
        } else {
            postponed.operation.refuse(ReactionFault::NotKept);
        }
    }

    fn operate(&mut self, channel: ChannelName, operation: ReactionOperation) {
        let now_ms = self.node.clock.now_ms();
        match operation {
            ReactionOperation::Open { options, rate, closes_at_ms, reply } => {
                match self.book.open(&channel, options, (rate, closes_at_ms), now_ms) {
                    Ok(_) => self.note_opened(channel, reply, now_ms),
                    Err(fault) => drop(reply.send(Err(fault))),
                }
            }
            ReactionOperation::Add { option, n, reply } => {
                let _ = reply.send(self.add(&channel, &option, n, now_ms));
            }
            ReactionOperation::Get(reply) => {
                let _ = reply.send(self.state(&channel).ok_or(ReactionFault::NotOpen));
            }
            ReactionOperation::Close(reply) => {
                let is_standing = !self.standing(&channel).0.is_empty();
                match self.book.close(&channel, is_standing, now_ms) {
                    Ok(_) => {
                        self.kept.change_now(&channel);
                        let round = self.book.round(&channel).map(|(round, _)| round).unwrap_or_default();
                        self.unanswered.push(Unanswered::close(channel, round, reply, now_ms));
                    }
                    Err(fault) => drop(reply.send(Err(fault))),
                }
            }
        }
    }

    /// Notes that reactions are open, and that a request waits for its answer.
    fn note_opened(&mut self, channel: ChannelName, reply: ReactionReply<u64>, now_ms: u64) {
        let Some(opening) = self.book.opening(&channel).map(Arc::clone) else { return };
        self.kept.change_now(&channel);
        self.unanswered.push(Unanswered::open(channel, opening, reply, now_ms));
    }

    /// Adds reactions that the backend has counted.
    fn add(&mut self, channel: &ChannelName, option: &str, n: u64, now_ms: u64) -> Result<(), ReactionFault> {
        let (standing, rate) = self.standing(channel);
        let open = self.book.open_reactions(channel, (standing, rate));
        let round = match &open {
            Some(open) if open.is_closed_at(now_ms) => return Err(ReactionFault::Closed),
            Some(open) if open.find(option).is_none() => return Err(ReactionFault::UnknownOption),
            Some(open) => open.round.clone(),
            None if standing.is_empty() => return Err(ReactionFault::NotOpen),
            None if !standing.iter().any(|known| known == option) => return Err(ReactionFault::UnknownOption),
            None => RoundId::default(),
        };
        // Unlike counts that shards have accepted, these can still be refused.
        if !self.node.reactions.admission.admits(channel) {
            return Err(ReactionFault::LimitExceeded);
        }
        self.book.add(channel, &round, &[(option, n)], now_ms)?;
        self.kept.change(channel);
        Ok(())
    }

    /// The state of a channel's reactions; `None` = the channel has no reactions.
    fn state(&self, channel: &str) -> Option<ReactionState> {
        let (standing, _) = self.standing(channel);
        let nothing = || {
            let totals = standing.iter().map(|option| (option.as_str().into(), 0)).collect();
            (!standing.is_empty()).then(|| ReactionState { totals, ..ReactionState::default() })
        };
        self.book.state(channel, standing).or_else(nothing)
    }

    /// The options that the namespace of a channel opens, and the rate.
    fn standing(&self, channel: &str) -> (&[String], u32) {
        let options = self.generation.session.namespaces.resolve(channel);
        options.map_or((&[], 1), |options| (options.reactions.as_slice(), options.reactions_rate))
    }

    /// Does the steps that are due.
    fn advance(&mut self) {
        let now_ms = self.node.clock.now_ms();
        // Before that, the totals that it would show are too low.
        if !self.kept.is_loading() && self.book.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            self.book.tick(now_ms);
        }
        self.perform(now_ms);
        // A closing is answered before an opening that waits for it opens the channel again.
        self.answer(now_ms);
        for postponed in std::mem::take(&mut self.postponed) {
            self.operate_or_postpone(postponed);
        }
        self.kept.advance(&self.book, now_ms);
        self.closings.retain(|channel| self.book.is_finishing(channel));
        self.beginnings.retain(|channel| self.book.opening(channel).is_some());
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

    /// Carries out the outputs of the book.
    fn perform(&mut self, now_ms: u64) {
        let outputs: Vec<BookOutput> = self.book.outputs().collect();
        if outputs.is_empty() {
            return;
        }
        let is_any_closed = outputs.iter().any(|output| matches!(output, BookOutput::Finish(..)));
        let peers = if is_any_closed { self.node.peers_in_order() } else { Vec::new() };
        let mut shown: Vec<Vec<ShownReactions>> = self.node.shards.iter().map(|_| Vec::new()).collect();
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
                BookOutput::Announce(channel) => self.announce(&channel),
                BookOutput::Finish(channel, closed_ms) => self.publish_last(channel, closed_ms, &peers, now_ms),
            }
        }
        for (home, shown) in shown.into_iter().enumerate().filter(|(_, shown)| !shown.is_empty()) {
            self.node.send(home as ShardId, Message::ShowReactions(shown));
        }
    }

    /// Sends the shards the reactions that are open in a channel.
    fn announce(&mut self, channel: &ChannelName) {
        let open = self.book.open_reactions(channel, self.standing(channel));
        if self.book.is_finishing(channel)
            && let Some((round, _)) = self.book.round(channel)
        {
            self.closings.begin(channel, round);
        }
        if let Some(OpenReactions { round, is_closed: false, .. }) = &open {
            self.beginnings.begin(channel, round.clone());
        }
        let message = || Message::ReactionsOpen(channel.clone(), open.clone().map(Box::new));
        self.node.send_to_shards(message);
    }

    /// What the home of a channel shows. After the end of a round, only the final publication shows a change.
    fn shown(&self, channel: ChannelName, has_news: bool) -> ShownReactions {
        let Some(state) = self.book.state(&channel, self.standing(&channel).0) else {
            return ShownReactions { channel, news: None, state: None };
        };
        let whole = Bytes::from(state.publication(state.is_closed));
        let news = (has_news && !state.is_closed).then(|| whole.clone());
        ShownReactions { channel, news, state: Some(whole) }
    }

    /// Publishes the final result of a closed channel, if it is this node's turn.
    fn publish_last(&mut self, channel: ChannelName, closed_ms: u64, peers: &[Box<str>], now_ms: u64) {
        let names = || peers.iter().map(|peer| &**peer);
        let turn = finish_turn(&channel, &self.node.id, names()) as u64;
        let state = self.book.state(&channel, self.standing(&channel).0);
        let (Some(state), Some((round, false))) = (state, self.book.round(&channel)) else { return };
        let is_complete = self.book.is_complete_at(&channel, names().chain([&*self.node.id]));
        let is_ready = is_complete && self.kept.is_kept(&channel);
        if !self.closings.takes_turn(&channel, (closed_ms, turn), is_ready, now_ms) {
            return;
        }
        let content = Content { data: Bytes::from(state.publication(true)), ..Content::default() };
        // If two nodes both take it for their turn, the publication is stored once.
        let idempotency_key = format!("$reactions/{}/{}/{closed_ms}", round.opened_ms, round.opener).into();
        let publish = ChannelRequest::Publish(Box::new(Publish { content, idempotency_key, ..Publish::default() }));
        let (sender, reply) = oneshot::channel();
        let request =
            Message::Request { channel: channel.clone(), request: publish, reply_to: ReplyTo::Operation(None, sender) };
        let home = self.node.home(&channel);
        // Clients that subscribe after the publication see the same state.
        self.node.send(home, Message::ShowReactions(vec![self.shown(channel.clone(), false)]));
        self.node.send(home, request);
        self.publishing.spawn_local(async move {
            let response = reply.await.unwrap_or(Response::Done);
            (channel, round, response)
        });
    }

    fn note_published(&mut self, published: Option<(ChannelName, RoundId, Response)>) {
        let Some((channel, round, response)) = published else { return };
        let now_ms = self.node.clock.now_ms();
        self.closings.note_published(&channel, &round, now_ms);
        let is_of_round = self.book.round(&channel).is_some_and(|(present, _)| present == round);
        if is_of_round && matches!(response, Response::Published(_)) {
            self.book.finished(&channel, now_ms);
            self.kept.change(&channel);
        }
    }

    /// Answers the requests that are done, or that have waited for too long.
    fn answer(&mut self, now_ms: u64) {
        if self.unanswered.is_empty() {
            return;
        }
        let peers = self.node.peers_in_order();
        let unanswered = std::mem::take(&mut self.unanswered);
        let (beginnings, kept) = (&self.beginnings, &self.kept);
        let facts = AnswerFacts { book: &self.book, beginnings, kept, peers: &peers, now_ms };
        let rest = unanswered.into_iter().filter_map(|request| request.answer(&facts, |channel| self.state(channel)));
        self.unanswered = rest.collect();
    }

    /// Sends the other nodes and the database the last counts of this node.
    async fn finish(mut self) {
        self.book.tell_last();
        self.perform(self.node.clock.now_ms());
        self.kept.finish(&self.book).await;
    }
}
