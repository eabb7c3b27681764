//! The channels whose home is one shard. The home gives each publication its position, so a channel has one total
//! order, and it replies to a subscribe in that same order: no publication is lost between what is recovered and what
//! is delivered live.

mod backend;
mod catch_up;
mod empties;
mod loading;
mod remembered_refusals;
mod replicated_log;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use touchline_protocol::publication::{EncodedPush, LogPosition};
use touchline_protocol::stream::{ChannelName, Epoch, Offset, Retention, RunId, StreamPosition};
use touchline_protocol::{Error, Publication};

use crate::history::HistoryRing;
use crate::idempotency::Idempotency;
use crate::namespace::{ChannelOptions, Namespaces};
pub use backend::{BackendCommand, DurablePublication, Submitted};
use empties::Empties;
use loading::{AheadQuery, Verification};
use replicated_log::{Backends, SyncState};
pub use replicated_log::{clearing, removal};

use crate::request::{
    ChannelEvent, ChannelRequest, ConnectionId, Delivery, History, Publish, Response, ShardId, Subscribe, Subscribed,
};

/// The shortest time between two checks of a channel's expiry, milliseconds. Busy channels trim themselves when they
/// publish.
const EXPIRY_STEP_MS: u64 = 1_000;

#[derive(Debug)]
struct Channel {
    name: ChannelName,
    /// Subscribers on each shard.
    subscribers: Box<[u32]>,
    log: Option<Box<ChannelLog>>,
    /// How far the cache follows the log backend; `Idle` if the log is in memory.
    sync: SyncState,
    /// All subscribers were told to subscribe anew; they may not have left yet.
    is_broken: bool,
    /// The greatest number of subscribers at a time since [`Channels::take_subscriber_counts`] was called.
    peak: u32,
    /// Subscribers may request deltas to the previous publication.
    has_changes: bool,
    /// The previous publication, the base of the next delta; `None` = there is none, or deltas are not allowed.
    latest: Option<Arc<Publication>>,
}

/// The log of a channel with history: the log itself, or a cache of what the log backend keeps.
#[derive(Debug)]
struct ChannelLog {
    ring: HistoryRing,
    retention: Retention,
    /// When an unused, empty history is forgotten with its position, Unix milliseconds.
    forgotten_ms: u64,
    version: u64,
    version_epoch: Box<str>,
    /// When its expiry is checked, Unix milliseconds; 0 = no check is scheduled.
    expiry_ms: u64,
    /// Its number among the empty channels; 0 = it is not one of them.
    empty_number: u64,
    /// The query to its log backend because of a client that is ahead of the cache.
    ahead: AheadQuery,
    /// The check of its log backend because of something that contradicts the cache.
    verification: Verification,
    /// The epoch in which its log backend has lost publications, and until when the home does not trust loads with that
    /// epoch, Unix milliseconds.
    lost: (Epoch, u64),
    /// The run that has lost publications, and the first offset that is no longer part of it. The log backend may learn
    /// it a moment later.
    ended: Option<(RunId, Offset)>,
    /// The number of the last load that the cache contains; 0 = nothing was loaded, or the log is in memory.
    last_load: u64,
    /// When that load was applied, or when the link was lost since, Unix milliseconds: until then the cache missed
    /// nothing.
    synced_ms: u64,
}

/// Times in Unix milliseconds and channels, the earliest on top.
type Expiries = BinaryHeap<Reverse<(u64, ChannelName)>>;

/// The channels whose home is one shard.
#[derive(Debug)]
pub struct Channels {
    namespaces: Arc<Namespaces>,
    shards: usize,
    /// Channels in the table; 0 = any number.
    limit: usize,
    random: u64,
    table: HashMap<ChannelName, Channel>,
    /// When to check the expiry of which channel. An entry whose time differs from the channel's `expiry_ms` is void.
    expiries: Expiries,
    empties: Empties,
    idempotency: Idempotency,
    outgoing: Vec<(ShardId, Delivery)>,
    backends: Backends,
    /// The greatest numbers of subscribers of forgotten channels, for [`Channels::take_subscriber_counts`]; `None` =
    /// they are not counted.
    forgotten_peaks: Option<HashMap<ChannelName, u32>>,
}

impl Channels {
    /// No channels yet. `seed` makes the epochs: it must be random, so that no epoch of an earlier process is used
    /// again.
    pub fn new(namespaces: Arc<Namespaces>, shards: usize, seed: u64) -> Self {
        let empties = Empties::new(namespaces.settings().empty_channels_max.div_ceil(shards.max(1)));
        Channels {
            namespaces,
            empties,
            shards,
            limit: 0,
            random: seed,
            table: HashMap::new(),
            expiries: BinaryHeap::new(),
            idempotency: Idempotency::default(),
            outgoing: Vec::new(),
            backends: Backends::default(),
            forgotten_peaks: None,
        }
    }

    /// Executes a request. The reply goes to the requester first, then the [`Channels::deliveries`] go to the shards.
    pub fn execute(&mut self, channel: &ChannelName, request: ChannelRequest, now_ms: u64) -> Response {
        let namespaces = Arc::clone(&self.namespaces);
        let options = match namespaces.resolve(channel) {
            Ok(options) => options,
            Err(error) => return Response::Refused(error),
        };
        match request {
            ChannelRequest::Subscribe(subscribe) => self.subscribe(channel, options, *subscribe, now_ms),
            // The refusal was sent, but the session had not received it when it left.
            ChannelRequest::Unsubscribe { connection, is_answered: false } if self.was_refused(connection, channel) => {
                Response::Done
            }
            ChannelRequest::Unsubscribe { connection, .. } => self.unsubscribe(channel, connection, now_ms),
            ChannelRequest::Announce(push) => self.announce(channel, push),
            ChannelRequest::Publish(publish) => self.publish(channel, options, *publish, now_ms),
            ChannelRequest::History(_) | ChannelRequest::HistoryRemove if !options.has_history() => {
                Response::Refused(Error::NOT_AVAILABLE)
            }
            ChannelRequest::History(history) => self.history(channel, options, &history, now_ms),
            ChannelRequest::HistoryRemove => self.history_remove(channel),
        }
    }

    /// The deliveries since the last call, in order.
    pub fn deliveries(&mut self) -> std::vec::Drain<'_, (ShardId, Delivery)> {
        self.outgoing.drain(..)
    }

    /// Drops what has expired, and repeats the queries to log backends that requests wait for. Call it several times a
    /// second.
    pub fn expire(&mut self, now_ms: u64) {
        self.end_resting(now_ms);
        self.idempotency.forget(now_ms);
        while self.expiries.peek().is_some_and(|Reverse((at, _))| *at <= now_ms) {
            let Some(Reverse((at_ms, name))) = self.expiries.pop() else { return };
            self.expire_channel(name, at_ms, now_ms);
        }
        self.trim_empties(now_ms);
    }

    /// The same with a limit to the channels that cost memory: those with subscribers or a history. 0 = any number.
    pub fn limited(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Channels with at least one subscriber: name and number of subscribers.
    pub fn active(&self) -> impl Iterator<Item = (&ChannelName, u64)> {
        let counted = self.table.values().map(|c| (&c.name, c.subscribers.iter().map(|n| u64::from(*n)).sum::<u64>()));
        counted.filter(|(_, subscribers)| *subscribers > 0)
    }

    /// Counts from now on the audiences of channels that are forgotten too.
    pub fn counting_audiences(mut self) -> Self {
        self.forgotten_peaks = Some(HashMap::new());
        self
    }

    /// Channels that had a subscriber since the last call: the present and the greatest number of subscribers.
    pub fn take_subscriber_counts(&mut self) -> HashMap<ChannelName, (u64, u64)> {
        let forgotten = self.forgotten_peaks.as_mut().map(std::mem::take).unwrap_or_default();
        let mut all: HashMap<ChannelName, (u64, u64)> =
            forgotten.into_iter().map(|(name, peak)| (name, (0, u64::from(peak)))).collect();
        for channel in self.table.values_mut() {
            let current = channel.subscribers.iter().sum();
            let peak = std::mem::replace(&mut channel.peak, current);
            if peak > 0 {
                let entry = all.entry(channel.name.clone()).or_default();
                *entry = (u64::from(current), entry.1.max(u64::from(peak)));
            }
        }
        all
    }

    /// Channels that cost memory: with subscribers or a history.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no channel is known.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Makes room for a channel: forgets the oldest of the empty channels if the table is full.
    ///
    /// # Errors
    /// 106 when the channel is not in the table and the table is full.
    fn make_room(&mut self, name: &ChannelName) -> Result<(), Error> {
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

    fn subscribe(
        &mut self,
        name: &ChannelName,
        options: &ChannelOptions,
        subscribe: Subscribe,
        now_ms: u64,
    ) -> Response {
        if let Err(error) = self.make_room(name) {
            self.note_refused(subscribe.connection, name, now_ms);
            return Response::Refused(error);
        }
        let channel = self.channel(name, options, now_ms);
        channel.subscribers[usize::from(subscribe.connection.shard)] += 1;
        channel.peak = channel.peak.max(channel.subscribers.iter().sum());
        let mut subscribed = Subscribed::default();
        if let Some(log) = &mut channel.log {
            log.ring.trim(now_ms);
            subscribed.position = log.ring.position();
            subscribed.is_denied = subscribe
                .recover
                .as_ref()
                .is_some_and(|from| log.last_load > 0 && log.ring.ahead(from.offset, &from.epoch).is_some());
            subscribed.recovered = subscribe.recover.map(|from| log.ring.recover(&from));
            if let Some(Some(missed)) = &mut subscribed.recovered {
                missed.retain(|publication| !publication.is_expired(now_ms));
            }
        }
        Response::Subscribed(subscribed)
    }

    fn unsubscribe(&mut self, name: &ChannelName, connection: ConnectionId, now_ms: u64) -> Response {
        let Some(channel) = self.table.get_mut(name) else { return Response::Done };
        let subscribers = &mut channel.subscribers[usize::from(connection.shard)];
        debug_assert!(*subscribers > 0, "only subscribers leave");
        *subscribers = subscribers.saturating_sub(1);
        if let Some(log) = &mut channel.log {
            log.forgotten_ms = now_ms.saturating_add(log.retention.meta_ttl_ms);
        }
        self.keep_or_forget(name, now_ms);
        Response::Done
    }

    fn announce(&mut self, name: &ChannelName, push: Arc<EncodedPush>) -> Response {
        if let Some(channel) = self.table.get(name) {
            deliver(&mut self.outgoing, channel, ChannelEvent::Membership(push));
        }
        Response::Done
    }

    fn publish(&mut self, name: &ChannelName, options: &ChannelOptions, mut publish: Publish, now_ms: u64) -> Response {
        if options.has_history()
            && !publish.skip_history
            && let Err(error) = self.make_room(name)
        {
            return Response::Refused(error);
        }
        let key = std::mem::take(&mut publish.idempotency_key);
        if !key.is_empty()
            && let Some(result) = self.idempotency.get(name, &key, now_ms)
        {
            return Response::Published(result);
        }
        let position = if options.has_history() && !publish.skip_history {
            self.publish_stored(name, options, &publish, now_ms)
        } else {
            if let Some(channel) = self.table.get_mut(name) {
                let publication = Publication::encode(name, &publish.content, None);
                deliver_publication(&mut self.outgoing, channel, Arc::new(publication));
            }
            StreamPosition::default()
        };
        let position = (!position.epoch.as_str().is_empty()).then_some(position);
        if !key.is_empty() {
            self.idempotency.put(name, key, position, now_ms);
        }
        Response::Published(position)
    }

    fn publish_stored(
        &mut self,
        name: &ChannelName,
        options: &ChannelOptions,
        publish: &Publish,
        now_ms: u64,
    ) -> StreamPosition {
        self.channel(name, options, now_ms);
        let Some(channel) = self.table.get_mut(name) else { return Default::default() };
        let Some(log) = &mut channel.log else { return Default::default() };
        if publish.version > 0 {
            if log.version_epoch == publish.version_epoch && publish.version <= log.version {
                return log.ring.position();
            }
            log.version = publish.version;
            log.version_epoch = publish.version_epoch.clone();
        }
        let epoch = log.ring.position().epoch;
        let place = LogPosition { offset: log.ring.next_offset(), epoch: epoch.as_str(), time_ms: now_ms };
        let publication = Arc::new(Publication::encode(name, &publish.content, Some(place)));
        log.ring.trim(now_ms);
        log.ring.append(Arc::clone(&publication), log.retention.size, now_ms.saturating_add(log.retention.ttl_ms));
        log.forgotten_ms = now_ms.saturating_add(log.retention.meta_ttl_ms);
        log.schedule_expiry(name, now_ms + EXPIRY_STEP_MS, &mut self.expiries);
        let position = log.ring.position();
        deliver_publication(&mut self.outgoing, channel, publication);
        position
    }

    fn history(&mut self, name: &ChannelName, options: &ChannelOptions, history: &History, now_ms: u64) -> Response {
        if let Err(error) = self.make_room(name) {
            return Response::Refused(error);
        }
        let response = self.read_history(name, options, history, now_ms);
        self.keep_or_forget(name, now_ms);
        response
    }

    fn read_history(
        &mut self,
        name: &ChannelName,
        options: &ChannelOptions,
        history: &History,
        now_ms: u64,
    ) -> Response {
        let channel = self.channel(name, options, now_ms);
        let Some(log) = &mut channel.log else { return Response::Refused(Error::NOT_AVAILABLE) };
        log.ring.trim(now_ms);
        let position = log.ring.position();
        let since = history.since.as_ref().map(|since| since.offset);
        if history.since.as_ref().is_some_and(|since| !log.ring.can_read(since.offset, &since.epoch, history.reverse)) {
            return Response::Refused(Error::UNRECOVERABLE_POSITION);
        }
        if history.reverse && since == Some(Offset::START) {
            return Response::Refused(Error::BAD_REQUEST);
        }
        let mut publications = log.ring.read(
            since,
            history.reverse,
            history.limit.unwrap_or(usize::MAX),
            history.size_max.unwrap_or(usize::MAX),
        );
        publications.retain(|publication| !publication.is_expired(now_ms));
        Response::History { publications, position }
    }

    fn history_remove(&mut self, name: &ChannelName) -> Response {
        if let Some(log) = self.table.get_mut(name).and_then(|channel| channel.log.as_mut()) {
            log.ring.clear();
        }
        Response::Done
    }

    /// The channel, created if it does not exist. A channel with history gets an epoch and its time to live.
    fn channel(&mut self, name: &ChannelName, options: &ChannelOptions, now_ms: u64) -> &mut Channel {
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

    /// Decides about a channel after its use. A channel without subscribers is forgotten at once, or kept for its
    /// history, or, if its history has no publication yet, kept among the empty channels.
    fn keep_or_forget(&mut self, name: &ChannelName, now_ms: u64) {
        let Channels { table, empties, expiries, .. } = self;
        let Some(channel) = table.get_mut(name) else { return };
        if channel.subscribers.iter().any(|n| *n > 0) {
            return;
        }
        let is_at_home = matches!(channel.sync, SyncState::Idle);
        let Some(log) = &mut channel.log else { return self.forget(name) };
        if !is_at_home || log.ring.position().offset > Offset::START {
            return log.schedule_expiry(name, log.forgotten_ms, expiries);
        }
        if log.empty_number == 0 {
            let number = empties.enter(name, |name, number| has_number(table, name, number));
            if let Some(log) = table.get_mut(name).and_then(|channel| channel.log.as_mut()) {
                log.empty_number = number;
            }
        }
        self.trim_empties(now_ms);
    }

    /// Forgets the oldest of the empty channels, while they are too many or their time is over.
    fn trim_empties(&mut self, now_ms: u64) {
        loop {
            let Channels { table, empties, .. } = self;
            let forgotten_ms =
                |name: &str| table.get(name).and_then(|channel| channel.log.as_ref()).map_or(0, |log| log.forgotten_ms);
            let gone =
                empties.next_to_go(|name, number| has_number(table, name, number), |name| forgotten_ms(name) <= now_ms);
            let Some(name) = gone else { return };
            self.empties.leave();
            self.forget(&name);
        }
    }

    fn expire_channel(&mut self, name: ChannelName, at_ms: u64, now_ms: u64) {
        let Some(channel) = self.table.get_mut(&name) else { return };
        let has_subscribers = channel.subscribers.iter().any(|n| *n > 0);
        let Some(log) = &mut channel.log else { return };
        if log.expiry_ms != at_ms {
            // The entry is of an earlier channel of this name.
            return;
        }
        log.expiry_ms = 0;
        if log.empty_number > 0 {
            // Empty channels expire in their own order.
            return;
        }
        log.ring.trim(now_ms);
        // The log of a replicated channel is a cache, which is dropped when it is unused.
        let is_cache = !matches!(channel.sync, SyncState::Idle)
            && log.retention.meta_ttl_ms == replicated_log::UNUSED_CACHE_TTL_MS;
        let next_ms = match log.ring.next_expiry_ms() {
            Some(_) if is_cache && !has_subscribers && log.forgotten_ms <= now_ms => return self.forget(&name),
            Some(at) if is_cache => at.min(log.forgotten_ms),
            Some(at) => at,
            None if has_subscribers && log.retention.meta_ttl_ms == replicated_log::UNUSED_CACHE_TTL_MS => {
                now_ms.saturating_add(log.retention.meta_ttl_ms)
            }
            // A publication, or the end of the last subscription, schedules the next check.
            None if has_subscribers => return,
            None if log.forgotten_ms > now_ms => log.forgotten_ms,
            None => return self.forget(&name),
        };
        log.schedule_expiry(&name, next_ms.max(now_ms + EXPIRY_STEP_MS), &mut self.expiries);
    }
}

impl ChannelLog {
    fn new(options: &ChannelOptions, epoch: Epoch, now_ms: u64) -> Self {
        let retention = options.retention();
        ChannelLog {
            ring: HistoryRing::new(epoch),
            retention,
            forgotten_ms: now_ms.saturating_add(retention.meta_ttl_ms),
            version: 0,
            version_epoch: Box::default(),
            expiry_ms: 0,
            empty_number: 0,
            ahead: AheadQuery::None,
            verification: Verification::default(),
            lost: Default::default(),
            ended: None,
            last_load: 0,
            synced_ms: 0,
        }
    }

    /// Schedules a check of the channel's expiry, unless one is scheduled.
    fn schedule_expiry(&mut self, name: &ChannelName, at_ms: u64, expiries: &mut Expiries) {
        if self.expiry_ms == 0 {
            self.expiry_ms = at_ms;
            expiries.push(Reverse((at_ms, name.clone())));
        }
    }
}

/// Whether a channel is among the empty ones under this number.
fn has_number(table: &HashMap<ChannelName, Channel>, name: &str, number: u64) -> bool {
    table.get(name).and_then(|channel| channel.log.as_ref()).is_some_and(|log| log.empty_number == number)
}

/// Delivers a publication to all subscribers, with the previous one if some of them may want deltas only. A publication
/// outside the history is neither a delta nor the base of one: recovering clients have not seen it.
fn deliver_publication(outgoing: &mut Vec<(ShardId, Delivery)>, channel: &mut Channel, publication: Arc<Publication>) {
    let is_in_history = channel.log.is_some() == (publication.offset > Offset::START);
    let previous = channel.latest.take().filter(|_| is_in_history);
    channel.latest = (channel.has_changes && is_in_history).then(|| Arc::clone(&publication));
    deliver(outgoing, channel, ChannelEvent::Publication { publication, previous });
}

/// Queues one message to each shard that has subscribers.
fn deliver(outgoing: &mut Vec<(ShardId, Delivery)>, channel: &Channel, event: ChannelEvent) {
    let audience = channel.subscribers.iter().sum();
    for (shard, count) in channel.subscribers.iter().enumerate() {
        if *count > 0 {
            outgoing.push((
                shard as ShardId,
                Delivery { channel: channel.name.clone(), event: event.clone(), subscriber_count: audience },
            ));
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): spreads a seed over the epochs.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
