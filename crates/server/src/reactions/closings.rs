//! Channels that are closed and whose final result is not published yet. For each, it knows which shards of this node
//! have counted everything, and when it is this node's turn to publish.

use std::collections::{BTreeSet, HashMap};

use touchline_engine::ShardId;
use touchline_engine::reactions::RoundId;
use touchline_protocol::stream::ChannelName;

/// How long a node waits for each node that is before it in the order of publishing, in milliseconds.
const TURN_MS: u64 = 3_000;
/// How long the first node waits for nodes in sight that have not reported all their counts, in milliseconds.
const COMPLETE_PATIENCE_MS: u64 = 10_000;
/// How long after a refused publication it is retried, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// The closed channels. They are in the book, so `reactions.channel_limit` bounds them. Each is removed when its result
/// is published ([`Closings::retain`]).
#[derive(Debug)]
pub(super) struct Closings {
    shards: usize,
    channels: HashMap<ChannelName, Closing>,
}

/// How far the closing of a channel has got.
#[derive(Debug)]
struct Closing {
    round: RoundId,
    /// The shards of this node that count nothing more in the round.
    ended: BTreeSet<ShardId>,
    /// Since when all counts are complete, in Unix milliseconds; 0 = they are not.
    ready_since_ms: u64,
    is_publishing: bool,
    /// Until when no publication is tried, in Unix milliseconds.
    retry_at_ms: u64,
}

impl Closings {
    /// Makes an empty table. `shards`: how many shards this node has.
    pub(super) fn new(shards: usize) -> Self {
        Closings { shards, channels: HashMap::new() }
    }

    /// Notes that a round is closed and that the shards are being notified.
    pub(super) fn begin(&mut self, channel: &ChannelName, round: RoundId) {
        if self.channels.get(channel).is_some_and(|closing| closing.round == round) {
            return;
        }
        let ended = BTreeSet::new();
        let closing = Closing { round, ended, ready_since_ms: 0, is_publishing: false, retry_at_ms: 0 };
        self.channels.insert(channel.clone(), closing);
    }

    /// Notes that a shard counts nothing more in a round. Returns whether this is so for all shards now.
    pub(super) fn end_shard(&mut self, shard: ShardId, channel: &ChannelName, round: &RoundId) -> bool {
        let Some(closing) = self.channels.get_mut(channel).filter(|closing| closing.round == *round) else {
            return false;
        };
        closing.ended.insert(shard) && closing.ended.len() == self.shards
    }

    /// Whether this node must publish a channel now that was closed at `closed_ms`, in Unix milliseconds. `turn`: how
    /// many nodes come before it. `is_ready`: whether all counts are complete. If it returns true, the publication is
    /// under way until [`Closings::note_published`].
    pub(super) fn takes_turn(
        &mut self,
        channel: &ChannelName,
        (closed_ms, turn): (u64, u64),
        is_ready: bool,
        now_ms: u64,
    ) -> bool {
        let Some(closing) = self.channels.get_mut(channel) else { return false };
        if is_ready && closing.ready_since_ms == 0 {
            closing.ready_since_ms = now_ms;
        }
        if !is_ready {
            closing.ready_since_ms = 0;
        }
        let begins_ms = if is_ready { closing.ready_since_ms } else { closed_ms.saturating_add(COMPLETE_PATIENCE_MS) };
        let at_ms = begins_ms.saturating_add(turn.saturating_mul(TURN_MS)).max(closing.retry_at_ms);
        let is_turn = at_ms <= now_ms && !closing.is_publishing;
        closing.is_publishing |= is_turn;
        is_turn
    }

    /// Notes that a publication has ended. If it was refused, it is retried later.
    pub(super) fn note_published(&mut self, channel: &ChannelName, round: &RoundId, now_ms: u64) {
        if let Some(closing) = self.channels.get_mut(channel).filter(|closing| closing.round == *round) {
            (closing.is_publishing, closing.retry_at_ms) = (false, now_ms.saturating_add(RETRY_MS));
        }
    }

    /// Forgets channels that are published, or open again.
    pub(super) fn retain(&mut self, mut is_finishing: impl FnMut(&ChannelName) -> bool) {
        self.channels.retain(|channel, _| is_finishing(channel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(opened_ms: u64) -> RoundId {
        RoundId { opened_ms, opener: "n1".into() }
    }

    #[test]
    fn a_round_has_ended_when_every_shard_says_so() {
        let (mut closings, channel) = (Closings::new(2), "a".into());
        assert!(!closings.end_shard(0, &channel, &round(1)), "nobody was asked");
        closings.begin(&channel, round(1));
        assert!(!closings.end_shard(0, &channel, &round(1)));
        assert!(!closings.end_shard(0, &channel, &round(1)), "it has said so twice");
        assert!(!closings.end_shard(1, &channel, &round(2)), "it speaks of another round");
        closings.begin(&channel, round(1));
        assert!(closings.end_shard(1, &channel, &round(1)));
        assert!(!closings.end_shard(1, &channel, &round(1)), "all have ended once");
    }

    #[test]
    fn the_first_publishes_when_all_is_there_and_the_others_later() {
        let (mut closings, channel) = (Closings::new(1), "a".into());
        assert!(!closings.takes_turn(&channel, (1_000, 0), true, 99_000), "it is not closed");
        closings.begin(&channel, round(1));
        assert!(!closings.takes_turn(&channel, (1_000, 1), true, 1_050));
        assert!(!closings.takes_turn(&channel, (1_000, 1), true, 1_049 + TURN_MS));
        assert!(closings.takes_turn(&channel, (1_000, 1), true, 1_050 + TURN_MS));
        assert!(!closings.takes_turn(&channel, (1_000, 0), true, 99_000), "one is under way");
        closings.note_published(&channel, &round(1), 99_000);
        assert!(!closings.takes_turn(&channel, (1_000, 0), true, 99_000));
        assert!(closings.takes_turn(&channel, (1_000, 0), true, 99_000 + RETRY_MS));
        closings.retain(|_| false);
        assert!(!closings.takes_turn(&channel, (1_000, 0), true, 199_000));
    }

    #[test]
    fn nodes_that_say_nothing_are_waited_for_but_not_for_ever() {
        let (mut closings, channel) = (Closings::new(1), "a".into());
        closings.begin(&channel, round(1));
        assert!(!closings.takes_turn(&channel, (1_000, 0), false, 999 + COMPLETE_PATIENCE_MS));
        assert!(closings.takes_turn(&channel, (1_000, 0), false, 1_000 + COMPLETE_PATIENCE_MS));
    }
}
