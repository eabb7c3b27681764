//! What a shard counts between two reports: reactions of its clients, and messages that were refused.

use std::sync::Arc;

use hashbrown::HashMap;
use touchline_protocol::stream::ChannelName;
use touchline_registry::{FoldState, HashSeed, spare_capacity};

use super::admission::ReactionAdmission;
use super::opening::{OpenReactions, RoundId};
use crate::namespace::Namespaces;

/// Why a reaction is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReactionRefusal {
    /// The message cannot be read, or its option is not open.
    Invalid,
    /// The client is not subscribed to the channel.
    NotSubscribed,
    /// The channel has no reactions.
    NotOpen,
    /// The channel's reactions are closed.
    Closed,
    /// The connection has reacted too often.
    Rate,
    /// The shard has no room for one more channel.
    Limit,
}

impl ReactionRefusal {
    /// All reasons with their names in metrics.
    pub const ALL: [(ReactionRefusal, &'static str); 6] = [
        (ReactionRefusal::Invalid, "invalid"),
        (ReactionRefusal::NotSubscribed, "not_subscribed"),
        (ReactionRefusal::NotOpen, "not_open"),
        (ReactionRefusal::Closed, "closed"),
        (ReactionRefusal::Rate, "rate"),
        (ReactionRefusal::Limit, "limit"),
    ];
}

/// The numbers of refused messages by reason, in the order of [`ReactionRefusal::ALL`].
pub type ReactionRefusals = [u64; ReactionRefusal::ALL.len()];

/// The progress of a round, as a shard knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundProgress {
    /// The round has begun: clients may react in it from now on.
    Begun,
    /// The round has neither begun nor ended; it continues.
    Counting,
    /// The round is closed. The shard counts nothing more in it after this.
    Ended,
}

/// The reactions that a shard has counted in one round of one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedReactions {
    /// The channel of the reactions.
    pub channel: ChannelName,
    /// The round in which the reactions were accepted.
    pub round: RoundId,
    /// The options of the round.
    pub options: Arc<[Box<str>]>,
    /// The number of reactions for each option, in the order of the options.
    pub counts: Box<[u64]>,
    /// The progress of the round, as the shard knows it.
    pub progress: RoundProgress,
}

/// What is open in a channel, and what was counted there since the board was last emptied.
#[derive(Debug)]
struct ChannelCounting {
    open: Arc<OpenReactions>,
    counts: Box<[u64]>,
}

/// The reactions of a shard's clients.
#[derive(Debug)]
pub struct ReactionBoard {
    namespaces: Arc<Namespaces>,
    /// What was opened or closed in channels by other means than the namespace.
    told: HashMap<ChannelName, Arc<OpenReactions>, FoldState>,
    /// What the namespaces open, by name of the namespace.
    standing: HashMap<Box<str>, Arc<OpenReactions>, FoldState>,
    counting: HashMap<ChannelName, ChannelCounting, FoldState>,
    /// The greatest number of channels in `counting`.
    limit: usize,
    /// Whether the node has room for one more channel.
    admission: Arc<ReactionAdmission>,
    refusals: ReactionRefusals,
    accepted: u64,
}

impl ReactionBoard {
    /// An empty board. `limit`: the greatest number of channels that are counted between two calls of
    /// [`ReactionBoard::take`]. `seed`: the seed for hashes of channels, which clients choose.
    pub fn new(namespaces: Arc<Namespaces>, limit: usize, seed: HashSeed) -> Self {
        Self::with_admission(namespaces, limit, Arc::default(), seed)
    }

    /// The same on a node whose shards share its room for channels.
    pub fn with_admission(
        namespaces: Arc<Namespaces>,
        limit: usize,
        admission: Arc<ReactionAdmission>,
        seed: HashSeed,
    ) -> Self {
        let hasher = seed.fold();
        ReactionBoard {
            namespaces,
            told: HashMap::with_hasher(hasher),
            standing: HashMap::with_hasher(hasher),
            counting: HashMap::with_hasher(hasher),
            limit,
            admission,
            refusals: ReactionRefusals::default(),
            accepted: 0,
        }
    }

    /// Replaces the namespaces that say what is open. What was counted before stays in its round.
    pub fn set_namespaces(&mut self, namespaces: Arc<Namespaces>) {
        self.namespaces = namespaces;
        self.standing.clear();
    }

    /// Sets what is open in a channel from now on; `None` = what its namespace says. What was counted before stays in
    /// its round and is added to `counted`, followed by the news that the round has begun or ended here.
    pub fn set_open(&mut self, channel: ChannelName, open: Option<OpenReactions>, counted: &mut Vec<CountedReactions>) {
        if let Some((name, counting)) = self.counting.remove_entry(&channel) {
            counted.extend(counting.finish(name));
        }
        if let Some(OpenReactions { round, options, is_closed, .. }) = &open {
            let (channel, round, options) = (channel.clone(), round.clone(), Arc::clone(options));
            let progress = if *is_closed { RoundProgress::Ended } else { RoundProgress::Begun };
            counted.push(CountedReactions { channel, round, options, counts: Box::default(), progress });
        }
        match open {
            Some(open) => drop(self.told.insert(channel, Arc::new(open))),
            None => {
                self.told.remove(&channel);
                if let Some(capacity) = spare_capacity(self.told.len(), self.told.capacity()) {
                    self.told.shrink_to(capacity);
                }
            }
        }
    }

    /// Returns what is open in a channel.
    ///
    /// # Errors
    /// [`ReactionRefusal::NotOpen`], [`ReactionRefusal::Closed`].
    pub fn open(&mut self, channel: &str, now_ms: u64) -> Result<Arc<OpenReactions>, ReactionRefusal> {
        let open = match self.counting.get(channel) {
            Some(counting) => Arc::clone(&counting.open),
            None => self.find_open(channel)?,
        };
        if open.is_closed_at(now_ms) { Err(ReactionRefusal::Closed) } else { Ok(open) }
    }

    fn find_open(&mut self, channel: &str) -> Result<Arc<OpenReactions>, ReactionRefusal> {
        if let Some(told) = self.told.get(channel) {
            return Ok(Arc::clone(told));
        }
        let namespace = self.namespaces.namespace_of(channel);
        if let Some(standing) = self.standing.get(namespace) {
            return Ok(Arc::clone(standing));
        }
        let options = self.namespaces.resolve(channel).map_err(|_| ReactionRefusal::NotOpen)?;
        if options.reactions.is_empty() {
            return Err(ReactionRefusal::NotOpen);
        }
        let standing = Arc::new(OpenReactions {
            round: RoundId::default(),
            options: options.reactions.iter().map(|option| option.as_str().into()).collect(),
            rate: options.reactions_rate,
            closes_at_ms: 0,
            is_closed: false,
        });
        self.standing.insert(namespace.into(), Arc::clone(&standing));
        Ok(standing)
    }

    /// Counts `n` reactions for the option with this index, which must be open.
    ///
    /// # Errors
    /// [`ReactionRefusal::Limit`]: too many channels are counted already.
    pub fn add(
        &mut self,
        channel: &ChannelName,
        open: Arc<OpenReactions>,
        option: usize,
        n: u64,
    ) -> Result<(), ReactionRefusal> {
        if let Some(count) = self.counting.get_mut(channel).and_then(|counting| counting.counts.get_mut(option)) {
            *count = count.saturating_add(n);
        } else {
            if self.counting.len() >= self.limit || !self.admission.admits(channel) {
                return Err(ReactionRefusal::Limit);
            }
            let mut counts: Box<[u64]> = vec![0; open.options.len()].into();
            counts[option] = n;
            self.counting.insert(channel.clone(), ChannelCounting { open, counts });
        }
        self.accepted += n;
        Ok(())
    }

    /// Counts a message that was refused.
    pub fn refuse(&mut self, why: ReactionRefusal) {
        self.refusals[why as usize] += 1;
    }

    /// Whether something was counted or refused since the board was last emptied.
    pub fn has_news(&self) -> bool {
        self.accepted > 0 || self.refusals.iter().any(|count| *count > 0)
    }

    /// Removes and returns what was counted since the last call.
    pub fn take(&mut self) -> Vec<CountedReactions> {
        let counting = self.counting.len();
        let counted = self.counting.drain().filter_map(|(channel, counting)| counting.finish(channel)).collect();
        // A drain takes time in proportion to the capacity.
        if let Some(capacity) = spare_capacity(counting, self.counting.capacity()) {
            self.counting.shrink_to(capacity);
        }
        counted
    }

    /// The number of accepted reactions, and of refused messages, since the last call.
    pub fn take_figures(&mut self) -> (u64, ReactionRefusals) {
        (std::mem::take(&mut self.accepted), std::mem::take(&mut self.refusals))
    }
}

impl ChannelCounting {
    fn finish(self, channel: ChannelName) -> Option<CountedReactions> {
        let is_any = self.counts.iter().any(|count| *count > 0);
        let (round, options) = (self.open.round.clone(), Arc::clone(&self.open.options));
        let progress = RoundProgress::Counting;
        is_any.then_some(CountedReactions { channel, round, options, counts: self.counts, progress })
    }
}
