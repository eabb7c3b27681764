//! The table of the channels whose home is one shard: how channels are added and removed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use indexmap::IndexMap;
use touchline_protocol::stream::{ChannelName, Epoch, Retention};
use touchline_protocol::{Error, Publication};
use touchline_registry::{HashSeed, SipState, spare_capacity};

use super::backend::{BackendCommand, Backends, LogBackend};
use super::cache::{AheadQuery, CacheState};
use super::empties::Empties;
use super::sync::SyncState;
use crate::events::HeldChanges;
use crate::history::HistoryRing;
use crate::idempotency::Idempotency;
use crate::namespace::{ChannelOptions, Namespaces};
use crate::request::{Delivery, ShardId};

/// The shortest time between two checks of a channel's expiry, milliseconds. Busy channels remove expired publications
/// when they publish.
pub(super) const EXPIRY_STEP_MS: u64 = 1_000;
/// How long the cache of a channel without subscribers is kept after its last use, milliseconds.
pub(super) const UNUSED_CACHE_TTL_MS: u64 = 10_000;

/// A channel that costs memory: it has subscribers or a history.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) name: ChannelName,
    /// The number of subscribers on each shard.
    pub(super) subscribers: Box<[u32]>,
    pub(super) log: Option<Box<ChannelLog>>,
    /// How far the cache follows the log backend; `Idle` if the log is in memory.
    pub(super) sync: SyncState,
    /// All subscribers were asked to subscribe again; some may not have left yet.
    pub(super) is_broken: bool,
    /// The greatest number of simultaneous subscribers since [`Channels::take_subscriber_counts`] was called.
    pub(super) peak: u32,
    /// Whether subscribers may request deltas to the previous publication.
    pub(super) has_changes: bool,
    /// The previous publication, the base of the next delta; `None` = there is none, or deltas are not allowed.
    pub(super) latest: Option<Arc<Publication>>,
}

/// The log of a channel with history: the log itself, or a cache of what the log backend keeps.
#[derive(Debug)]
pub(super) struct ChannelLog {
    pub(super) ring: HistoryRing,
    pub(super) retention: Retention,
    /// When an unused, empty history is forgotten together with its position, Unix milliseconds.
    pub(super) forgotten_ms: u64,
    pub(super) version: u64,
    pub(super) version_epoch: Box<str>,
    /// When the log's expiry is checked, Unix milliseconds; 0 = no check is scheduled.
    pub(super) expiry_ms: u64,
    /// The channel's number among the empty channels; 0 = it is not one of them.
    pub(super) empty_number: u64,
    /// What is known about the log that the log backend keeps.
    pub(super) cache: CacheState,
}

/// Channels by name. Their order depends only on the past events.
pub(super) type ChannelTable = IndexMap<ChannelName, Channel, SipState>;
/// Channels with times in Unix milliseconds, the earliest on top.
pub(super) type Expiries = BinaryHeap<Reverse<(u64, ChannelName)>>;

/// The channels whose home is one shard.
#[derive(Debug)]
pub struct Channels {
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) shards: usize,
    /// The greatest number of channels in the table; 0 = any number.
    pub(super) limit: usize,
    pub(super) random: u64,
    pub(super) table: ChannelTable,
    /// When the expiry of each channel is checked. An entry is void if its time differs from the channel's `expiry_ms`.
    pub(super) expiries: Expiries,
    pub(super) empties: Empties,
    pub(super) idempotency: Idempotency,
    pub(super) outgoing: Vec<(ShardId, Delivery)>,
    pub(super) backends: Backends,
    /// The greatest numbers of subscribers of forgotten channels, for [`Channels::take_subscriber_counts`]; `None` =
    /// they are not counted.
    pub(super) forgotten_peaks: Option<IndexMap<ChannelName, u32, SipState>>,
    /// The channels that have got their first subscriber or lost their last; `None` = they are not noted.
    pub(super) held: Option<HeldChanges>,
    /// The reactions that were last delivered in each channel, also in channels without subscribers.
    pub(super) reactions: IndexMap<ChannelName, Arc<Publication>, SipState>,
    /// The last publish was a repetition: its idempotency key was known already, or its version was not newer. See
    /// [`Channels::take_repetition`].
    pub(super) is_repetition: bool,
}

impl Channels {
    /// Whether a publish since the last call was answered without a new publication: its idempotency key was known
    /// already, or its version was not newer.
    pub fn take_repetition(&mut self) -> bool {
        std::mem::take(&mut self.is_repetition)
    }

    /// An empty table. The epochs are derived from `seed`; it must be random, so that no epoch of an earlier process is
    /// used again. `hash_seed` seeds the hashes of channels and idempotency keys, which clients and backends choose.
    pub fn new(namespaces: Arc<Namespaces>, shards: usize, seed: u64, hash_seed: HashSeed) -> Self {
        let empties = Empties::new(namespaces.settings().empty_channels_max.div_ceil(shards.max(1)));
        Channels {
            namespaces,
            empties,
            shards,
            limit: 0,
            random: seed,
            table: IndexMap::with_hasher(hash_seed.sip()),
            expiries: BinaryHeap::new(),
            idempotency: Idempotency::new(hash_seed.fold()),
            outgoing: Vec::new(),
            backends: Backends::default(),
            forgotten_peaks: None,
            held: None,
            is_repetition: false,
            reactions: IndexMap::with_hasher(hash_seed.sip()),
        }
    }

    /// Limits the number of channels that cost memory: those with subscribers or a history. 0 = any number.
    pub fn limited(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// The number of channels that cost memory: those with subscribers or a history.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table has no channel.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Makes room for a channel: forgets the oldest of the empty channels if the table is full.
    ///
    /// # Errors
    /// 106 when the channel is not in the table and the table is full.
    pub(super) fn make_room(&mut self, name: &ChannelName) -> Result<(), Error> {
        if self.limit == 0 || self.table.len() < self.limit || self.table.contains_key(name) {
            return Ok(());
        }
        let Channels { table, empties, .. } = self;
        let gone = empties
            .next_to_go(|name, number| has_number(table, name, number), |_| true)
            .ok_or(Error::LIMIT_EXCEEDED)?;
        self.empties.leave();
        self.forget(&gone);
        Ok(())
    }

    /// Returns the channel, and creates it if it does not exist. A channel with history gets an epoch and its time to
    /// live.
    pub(super) fn channel(&mut self, name: &ChannelName, options: &ChannelOptions, now_ms: u64) -> &mut Channel {
        let meta_ttl_ms = self.unused_ttl_ms(name);
        let Channels { table, random, expiries, shards, empties, .. } = self;
        let channel = table.entry(name.clone()).or_insert_with(|| {
            let log = options.has_history().then(|| {
                let mut log = ChannelLog::new(options, Epoch::from_bits(next_random(random)), now_ms);
                log.retention.meta_ttl_ms = meta_ttl_ms.unwrap_or(log.retention.meta_ttl_ms);
                log.schedule_expiry(name, now_ms + EXPIRY_STEP_MS, expiries);
                Box::new(log)
            });
            Channel {
                name: name.clone(),
                subscribers: vec![0; *shards].into(),
                log,
                sync: SyncState::default(),
                is_broken: false,
                peak: 0,
                has_changes: !options.allowed_delta_types.is_empty(),
                latest: None,
            }
        });
        if let Some(log) = &mut channel.log {
            log.forgotten_ms = now_ms.saturating_add(log.retention.meta_ttl_ms);
            if std::mem::take(&mut log.empty_number) > 0 {
                empties.leave();
            }
        }
        channel
    }

    /// An epoch that no log has.
    pub(super) fn new_epoch(&mut self) -> Epoch {
        Epoch::from_bits(next_random(&mut self.random))
    }

    /// Removes a channel from the table; the node no longer follows it in the cluster. Requests that wait for the
    /// channel are judged again, because an answer for a channel that is not in the table is ignored.
    pub(super) fn forget(&mut self, name: &ChannelName) {
        let Some(forgotten) = self.table.swap_remove(name) else { return };
        if let Some(capacity) = spare_capacity(self.table.len(), self.table.capacity()) {
            self.table.shrink_to(capacity);
        }
        if forgotten.can_be_awaited() {
            self.make_ready(name);
        }
        if let (Some(peaks), 1..) = (&mut self.forgotten_peaks, forgotten.peak) {
            let peak = peaks.entry(name.clone()).or_default();
            *peak = forgotten.peak.max(*peak);
        }
        if self.log_backend(name) == LogBackend::Cluster {
            let command = BackendCommand::SetInterest { channel: name.clone(), is_wanted: false };
            self.backends.commands.push(command);
        }
    }

    /// How long the cache of a replicated channel is kept after its last use, milliseconds; `None` = the log is in
    /// memory.
    pub(super) fn unused_ttl_ms(&self, channel: &str) -> Option<u64> {
        (self.log_backend(channel) != LogBackend::Memory).then_some(UNUSED_CACHE_TTL_MS)
    }

    /// The log backend of a channel; memory if its namespace is unknown.
    pub(super) fn log_backend(&self, channel: &str) -> LogBackend {
        self.namespaces
            .resolve(channel)
            .map_or(LogBackend::Memory, |options| self.backends.log_backend(channel, options))
    }
}

impl Channel {
    /// Whether requests may wait for the channel's log backend.
    fn can_be_awaited(&self) -> bool {
        let has_query = |log: &ChannelLog| !matches!(log.cache.ahead, AheadQuery::None | AheadQuery::Failed(_));
        matches!(self.sync, SyncState::Subscribing | SyncState::Loading) || self.log.as_deref().is_some_and(has_query)
    }
}

impl ChannelLog {
    pub(super) fn new(options: &ChannelOptions, epoch: Epoch, now_ms: u64) -> Self {
        let retention = options.retention();
        ChannelLog {
            ring: HistoryRing::new(epoch),
            retention,
            forgotten_ms: now_ms.saturating_add(retention.meta_ttl_ms),
            version: 0,
            version_epoch: Box::default(),
            expiry_ms: 0,
            empty_number: 0,
            cache: CacheState::default(),
        }
    }

    /// Schedules a check of the channel's expiry, unless one is scheduled.
    pub(super) fn schedule_expiry(&mut self, name: &ChannelName, at_ms: u64, expiries: &mut Expiries) {
        if self.expiry_ms == 0 {
            self.expiry_ms = at_ms;
            expiries.push(Reverse((at_ms, name.clone())));
        }
    }
}

/// Whether a channel is among the empty ones with this number.
pub(super) fn has_number(table: &ChannelTable, name: &str, number: u64) -> bool {
    table.get(name).and_then(|channel| channel.log.as_ref()).is_some_and(|log| log.empty_number == number)
}

/// SplitMix64 (Steele, Lea, Flood 2014): spreads a seed over the epochs.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
