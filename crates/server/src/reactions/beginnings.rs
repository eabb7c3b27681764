//! Rounds that have begun and that some shards of this node do not know yet. Such a shard could answer a client that
//! nothing is open.

use std::collections::{BTreeSet, HashMap};

use touchline_engine::ShardId;
use touchline_engine::reactions::RoundId;
use touchline_protocol::stream::ChannelName;

/// The rounds by channel. The channels are in the book, so `reactions.channel_limit` bounds them. Each round is removed
/// when all shards know it, or when it has ended ([`Beginnings::retain`]).
#[derive(Debug)]
pub(super) struct Beginnings {
    shards: usize,
    channels: HashMap<ChannelName, Beginning>,
}

/// How far the beginning of a round is known.
#[derive(Debug)]
struct Beginning {
    round: RoundId,
    /// The shards of this node that know the round.
    known: BTreeSet<ShardId>,
}

impl Beginnings {
    /// Makes an empty table. `shards`: how many shards this node has.
    pub(super) fn new(shards: usize) -> Self {
        Beginnings { shards, channels: HashMap::new() }
    }

    /// Notes that a round has begun and that the shards are being notified.
    pub(super) fn begin(&mut self, channel: &ChannelName, round: RoundId) {
        self.channels.insert(channel.clone(), Beginning { round, known: BTreeSet::new() });
    }

    /// Notes that a shard knows a round. Returns whether all shards know it now.
    pub(super) fn note(&mut self, shard: ShardId, channel: &ChannelName, round: &RoundId) -> bool {
        let Some(beginning) = self.channels.get_mut(channel).filter(|beginning| beginning.round == *round) else {
            return false;
        };
        beginning.known.insert(shard);
        let is_known = beginning.known.len() == self.shards;
        if is_known {
            self.channels.remove(channel);
        }
        is_known
    }

    /// Whether some shard does not know the last round of a channel yet.
    pub(super) fn is_under_way(&self, channel: &str) -> bool {
        self.channels.contains_key(channel)
    }

    /// Forgets rounds that have ended.
    pub(super) fn retain(&mut self, mut is_open: impl FnMut(&str) -> bool) {
        self.channels.retain(|channel, _| is_open(channel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_begun_when_every_shard_knows_it() {
        let (mut beginnings, channel) = (Beginnings::new(2), "a".into());
        let round = |opened_ms| RoundId { opened_ms, opener: "n1".into() };
        assert!(!beginnings.is_under_way("a") && !beginnings.note(0, &channel, &round(1)), "no shard was notified");
        beginnings.begin(&channel, round(1));
        assert!(!beginnings.note(0, &channel, &round(1)) && !beginnings.note(0, &channel, &round(1)));
        beginnings.begin(&channel, round(2));
        assert!(!beginnings.note(1, &channel, &round(1)), "it speaks of the round before");
        assert!(!beginnings.note(1, &channel, &round(2)) && beginnings.is_under_way("a"));
        assert!(beginnings.note(0, &channel, &round(2)) && !beginnings.is_under_way("a"));
        beginnings.begin(&channel, round(3));
        beginnings.retain(|_| false);
        assert!(!beginnings.is_under_way("a"));
    }
}
