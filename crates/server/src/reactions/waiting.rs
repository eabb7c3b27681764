//! Requests of the server API that wait to be carried out, or until what they have begun is done.

use std::sync::Arc;

use touchline_engine::reactions::{ReactionBook, ReactionFault, ReactionOpening, ReactionState, RoundId};
use touchline_protocol::stream::ChannelName;

use super::beginnings::Beginnings;
use super::keeping::KeptTotals;
use crate::runtime::reaction_mailbox::{ReactionOperation, ReactionReply};

/// How long an opening waits for the database, and for nodes in sight that have not confirmed it, in milliseconds.
const OPEN_PATIENCE_MS: u64 = 5_000;
/// How long a closing waits until the final result is published, and how long an opening waits for that closing, in
/// milliseconds.
pub(super) const CLOSE_PATIENCE_MS: u64 = 15_000;

/// How many requests may wait; more are refused.
pub(super) const WAITING_MAX: usize = 1_024;

/// A request that was not carried out yet.
pub(super) struct Postponed {
    pub(super) channel: ChannelName,
    pub(super) operation: ReactionOperation,
    /// When the request is refused, in Unix milliseconds.
    pub(super) until_ms: u64,
}

/// A request that was carried out and is not answered yet.
pub(super) struct Unanswered {
    channel: ChannelName,
    request: UnansweredRequest,
    /// When the request is answered, whatever has happened, in Unix milliseconds.
    until_ms: u64,
}

enum UnansweredRequest {
    Open(Arc<ReactionOpening>, ReactionReply<u64>),
    Close(RoundId, ReactionReply<ReactionState>),
}

/// The facts on which an answer depends.
pub(super) struct AnswerFacts<'a> {
    pub(super) book: &'a ReactionBook,
    pub(super) beginnings: &'a Beginnings,
    pub(super) kept: &'a KeptTotals,
    /// The ids of the nodes in sight.
    pub(super) peers: &'a [Box<str>],
    pub(super) now_ms: u64,
}

impl Unanswered {
    pub(super) fn open(
        channel: ChannelName,
        opening: Arc<ReactionOpening>,
        reply: ReactionReply<u64>,
        now_ms: u64,
    ) -> Self {
        let until_ms = now_ms.saturating_add(OPEN_PATIENCE_MS);
        Unanswered { channel, request: UnansweredRequest::Open(opening, reply), until_ms }
    }

    pub(super) fn close(
        channel: ChannelName,
        round: RoundId,
        reply: ReactionReply<ReactionState>,
        now_ms: u64,
    ) -> Self {
        let until_ms = now_ms.saturating_add(CLOSE_PATIENCE_MS);
        Unanswered { channel, request: UnansweredRequest::Close(round, reply), until_ms }
    }

    pub(super) fn until_ms(&self) -> u64 {
        self.until_ms
    }

    /// Whether the request closes this channel.
    pub(super) fn closes(&self, channel: &ChannelName) -> bool {
        matches!(self.request, UnansweredRequest::Close(..)) && self.channel == *channel
    }

    /// Answers the request if its answer is known or its time is over; otherwise returns it. `state`: reads the state
    /// of a channel.
    pub(super) fn answer(
        self,
        facts: &AnswerFacts<'_>,
        state: impl FnOnce(&str) -> Option<ReactionState>,
    ) -> Option<Self> {
        let is_late = self.until_ms <= facts.now_ms;
        let Unanswered { channel, request, until_ms } = self;
        match request {
            UnansweredRequest::Open(opening, reply) => match facts.opened(&channel, &opening, is_late) {
                Some(answer) => drop(reply.send(answer)),
                None => {
                    return Some(Unanswered { channel, request: UnansweredRequest::Open(opening, reply), until_ms });
                }
            },
            UnansweredRequest::Close(round, reply) => match facts.closed(&channel, &round, is_late) {
                Some(answer) => {
                    let state = answer.and_then(|()| state(&channel).ok_or(ReactionFault::NotOpen));
                    drop(reply.send(state));
                }
                None => return Some(Unanswered { channel, request: UnansweredRequest::Close(round, reply), until_ms }),
            },
        }
        None
    }
}

impl AnswerFacts<'_> {
    /// The answer to an opening; `None` = it is not known yet. If two nodes have opened the same reactions at once, one
    /// of the two rounds counts, and both requests are answered with that one.
    fn opened(&self, channel: &str, opening: &ReactionOpening, is_late: bool) -> Option<Result<u64, ReactionFault>> {
        let Some(present) = self.book.opening(channel).filter(|present| present.is_alike(opening)) else {
            return Some(Err(ReactionFault::Replaced));
        };
        let peers = self.peers.iter().map(|peer| &**peer);
        let is_begun = !self.beginnings.is_under_way(channel) && self.book.is_known_by(channel, peers);
        match (self.kept.is_kept(channel), is_late) {
            (true, _) if is_late || is_begun => Some(Ok(present.round.opened_ms)),
            (false, true) => Some(Err(ReactionFault::NotKept)),
            _ => None,
        }
    }

    /// The answer to a closing; `None` = it is not known yet.
    fn closed(&self, channel: &str, round: &RoundId, is_late: bool) -> Option<Result<(), ReactionFault>> {
        let is_published = match self.book.round(channel) {
            Some((present, is_published)) if present == *round => is_published,
            _ => return Some(Err(ReactionFault::Replaced)),
        };
        match is_published && self.kept.is_kept(channel) {
            true => Some(Ok(())),
            false => is_late.then_some(Err(ReactionFault::NotKept)),
        }
    }
}
