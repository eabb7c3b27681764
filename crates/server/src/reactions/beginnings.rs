//! Rounds that have begun and that not all shards of this node know: a client could be told that nothing is open.

use std::collections::{BTreeSet, HashMap};

use touchline_engine::ShardId;
use touchline_engine::reactions::RoundId;
use touchline_protocol::stream::ChannelName;

/// The rounds. They are of channels of the book, so `reactions.channel_limit` bounds them, and each is removed when all
/// shards know it, or when it has ended ([`Beginnings::retain`]).
#[derive(Debug)]
pub(super) struct Beginnings {
    shards: usize,
    channels: HashMap<ChannelName, Beginning>,
}

/// How far the beginning of a round is.
#[derive(Debug)]
struct Beginning {
    round: RoundId,
    /// Shards of this node that know it.
    known: BTreeSet<ShardId>,
}

impl Beginnings {
    /// No rounds. `shards`: how many shards this node has.
    pub(super) fn new(shards: usize) -> Self {
        Beginnings { shards, channels: HashMap::new() }
    }

    /// The shards are told of a round.
    pub(super) fn begin(&mut self, channel: &ChannelName, round: RoundId) {
        self.channels.insert(channel.clone(), Beginning { round, known: BTreeSet::new() });
    }

    /// A shard knows a round. Returns whether all shards know it now.
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

    /// Whether a shard does not know the last round of a channel.
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
        assert!(!beginnings.is_under_way("a") && !beginnings.note(0, &channel, &round(1)), "nobody was told");
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
