//! The channels whose home is one shard. The home gives each publication its place, so a channel has one total order,
//! and it answers a subscribe in that same order: nothing can fall between what is recovered and what is delivered
//! live.

mod backend;
mod empties;
mod loading;
mod payload;
mod replicated;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use touchline_protocol::publication::{EncodedPush, LogPosition};
use touchline_protocol::stream::{ChannelName, Offset, Retention};
use touchline_protocol::{Error, Publication};

use crate::history::HistoryRing;
use crate::idempotency::Idempotency;
use crate::namespace::{ChannelOptions, Namespaces};
pub use backend::{BackendCommand, DurablePublication, Submitted};
use empties::Empties;
use loading::{AheadQuery, Verification};
pub use payload::Unreadable;
use replicated::{Backends, SyncState};
pub use replicated::{clearing, removal};

use crate::request::{
    ChannelEvent, ConnectionId, Delivery, Epoch, History, Publish, Request, Response, ShardId, StreamPosition,
    Subscribe, Subscribed,
};

/// Shortest time between two looks at a channel's expiry, milliseconds: busy channels trim themselves when they
/// publish.
const EXPIRY_STEP_MS: u64 = 1_000;

#[derive(Debug)]
struct Channel {
    name: ChannelName,
    /// Subscribers on each shard.
    listeners: Box<[u32]>,
    log: Option<Box<ChannelLog>>,
    /// Of a channel that is kept elsewhere: how far the node hears it.
    sync: SyncState,
    /// All listeners were told to begin anew; they may not have left yet.
    is_broken: bool,
    /// Most subscribers at a time since [`Channels::audiences`] was called.
    peak: u32,
    /// Subscribers may ask for changes to the publication before.
    has_changes: bool,
    /// That publication.
    latest: Option<Arc<Publication>>,
}

/// What a channel with history keeps.
#[derive(Debug)]
struct ChannelLog {
    ring: HistoryRing,
    retention: Retention,
    /// When an unused, empty history is forgotten with its position.
    forgotten_ms: u64,
    version: u64,
    version_epoch: Box<str>,
    /// When its expiry is looked at; 0 = not at all.
    expiry_ms: u64,
    /// Its number among the empty channels; 0 = it is none of them.
    empty_number: u64,
    /// What its log backend was asked because of a client that is ahead of the cache.
    ahead: AheadQuery,
    /// What its log backend was asked because of something that contradicts the cache.
    verification: Verification,
    /// The life in which its log backend has lost something, and until when what it keeps is not believed while it
    /// says that life, Unix milliseconds.
    lost: (Epoch, u64),
    /// The run that has lost something, and the first offset that is not its any more. The log backend may know it a
    /// moment later.
    ended: Option<(u64, Offset)>,
    /// The number of the last load that is in the cache; 0 = nothing was loaded, or the log is in memory.
    last_load: u64,
    /// When that was put in, or when the link was lost since: until then nothing was missed. Unix milliseconds.
    synced_ms: u64,
}

/// Times and channels, the first on top.
type Expiries = BinaryHeap<Reverse<(u64, ChannelName)>>;

/// The channels at home on one shard.
#[derive(Debug)]
pub struct Channels {
    namespaces: Arc<Namespaces>,
    shards: usize,
    /// Channels in the table; 0 = any number.
    limit: usize,
    random: u64,
    table: HashMap<ChannelName, Channel>,
    /// When to look at which channel's expiry. An entry that its channel does not know any more is void.
    expiries: Expiries,
    empties: Empties,
    idempotency: Idempotency,
    outgoing: Vec<(ShardId, Delivery)>,
    backends: Backends,
    /// The greatest audiences of channels that are forgotten, if somebody wants to know.
    gone: Option<HashMap<ChannelName, u32>>,
}

impl Channels {
    /// No channels yet. `seed` makes the epochs: it must be random, so that no epoch of an earlier life comes again.
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
            gone: None,
        }
    }

    /// Carries a request out. The answer goes to the asker first, then what [`Channels::deliveries`] gives to the
    /// shards.
    pub fn execute(&mut self, channel: &ChannelName, request: Request, now_ms: u64) -> Response {
        let namespaces = Arc::clone(&self.namespaces);
        let options = match namespaces.resolve(channel) {
            Ok(options) => options,
            Err(error) => return Response::Refused(error),
        };
        match request {
            Request::Subscribe(subscribe) => self.subscribe(channel, options, *subscribe, now_ms),
            // It was told so, but had not heard it when it left.
            Request::Unsubscribe { connection, is_answered: false } if self.was_refused(connection, channel) => {
                Response::Done
            }
            Request::Unsubscribe { connection, .. } => self.unsubscribe(channel, connection, now_ms),
            Request::Retry(_, request) => self.execute(channel, *request, now_ms),
            Request::Announce(push) => self.announce(channel, push),
            Request::Ephemeral(_)
            | Request::Appended(_)
            | Request::Advanced(..)
            | Request::SubscribedToBackend
            | Request::Loaded(_) => Response::Done,
            Request::Publish(publish) => self.publish(channel, options, *publish, now_ms),
            Request::History(_) | Request::HistoryRemove if !options.has_history() => {
                Response::Refused(Error::NOT_AVAILABLE)
            }
            Request::History(history) => self.history(channel, options, &history, now_ms),
            Request::HistoryRemove => self.history_remove(channel),
        }
    }

    /// What is to be delivered since the last call, in order.
    pub fn deliveries(&mut self) -> std::vec::Drain<'_, (ShardId, Delivery)> {
        self.outgoing.drain(..)
    }

    /// Lets go of what has expired, and asks log backends what somebody waits for. Call it some times a second.
    pub fn expire(&mut self, now_ms: u64) {
        self.end_rests(now_ms);
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
        let counted = self.table.values().map(|c| (&c.name, c.listeners.iter().map(|n| u64::from(*n)).sum::<u64>()));
        counted.filter(|(_, subscribers)| *subscribers > 0)
    }

    /// Remembers from now on the audiences of channels that are forgotten meanwhile.
    pub fn counting_audiences(mut self) -> Self {
        self.gone = Some(HashMap::new());
        self
    }

    /// Channels that had a subscriber since the last call: how many they have, and had at most.
    pub fn audiences(&mut self) -> HashMap<ChannelName, (u64, u64)> {
        let gone = self.gone.as_mut().map(std::mem::take).unwrap_or_default();
        let mut all: HashMap<ChannelName, (u64, u64)> =
            gone.into_iter().map(|(name, peak)| (name, (0, u64::from(peak)))).collect();
        for channel in self.table.values_mut() {
            let current = channel.listeners.iter().sum();
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

    /// Sees that there is room for a channel: the oldest of the empty ones goes for it.
    ///
    /// # Errors
    /// 106 when the channel is not there, and there are as many as may be.
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
        channel.listeners[usize::from(subscribe.connection.shard)] += 1;
        channel.peak = channel.peak.max(channel.listeners.iter().sum());
        let mut subscribed = Subscribed::default();
        if let Some(stored) = &mut channel.log {
            stored.ring.trim(now_ms);
            subscribed.position = stored.ring.position();
            subscribed.is_denied = subscribe
                .recover
                .as_ref()
                .is_some_and(|from| stored.last_load > 0 && stored.ring.ahead(from.offset, &from.epoch).is_some());
            subscribed.recovered = subscribe.recover.map(|from| stored.ring.recover(&from));
            if let Some(Some(missed)) = &mut subscribed.recovered {
                missed.retain(|publication| !publication.is_expired(now_ms));
            }
        }
        Response::Subscribed(subscribed)
    }

    fn unsubscribe(&mut self, name: &ChannelName, connection: ConnectionId, now_ms: u64) -> Response {
        let Some(channel) = self.table.get_mut(name) else { return Response::Done };
        let listeners = &mut channel.listeners[usize::from(connection.shard)];
        debug_assert!(*listeners > 0, "only subscribers leave");
        *listeners = listeners.saturating_sub(1);
        if let Some(stored) = &mut channel.log {
            stored.forgotten_ms = now_ms.saturating_add(stored.retention.meta_ttl_ms);
        }
        self.rest(name, now_ms);
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
                give(&mut self.outgoing, channel, Arc::new(publication));
            }
            StreamPosition::default()
        };
        let position = (!position.epoch.as_str().is_empty()).then_some(position);
        if !key.is_empty() {
            self.idempotency.put(name, key, position.clone(), now_ms);
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
        let Some(stored) = &mut channel.log else { return Default::default() };
        if publish.version > 0 {
            if stored.version_epoch == publish.version_epoch && publish.version <= stored.version {
                return stored.ring.position();
            }
            stored.version = publish.version;
            stored.version_epoch = publish.version_epoch.clone();
        }
        let epoch = stored.ring.position().epoch;
        let place = LogPosition { offset: stored.ring.next_offset(), epoch: epoch.as_str(), time_ms: now_ms };
        let publication = Arc::new(Publication::encode(name, &publish.content, Some(place)));
        stored.ring.trim(now_ms);
        stored.ring.append(
            Arc::clone(&publication),
            stored.retention.size,
            now_ms.saturating_add(stored.retention.ttl_ms),
        );
        stored.forgotten_ms = now_ms.saturating_add(stored.retention.meta_ttl_ms);
        stored.book(name, now_ms + EXPIRY_STEP_MS, &mut self.expiries);
        let position = stored.ring.position();
        give(&mut self.outgoing, channel, publication);
        position
    }

    fn history(&mut self, name: &ChannelName, options: &ChannelOptions, history: &History, now_ms: u64) -> Response {
        if let Err(error) = self.make_room(name) {
            return Response::Refused(error);
        }
        let response = self.read_history(name, options, history, now_ms);
        self.rest(name, now_ms);
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
        let Some(stored) = &mut channel.log else { return Response::Refused(Error::NOT_AVAILABLE) };
        stored.ring.trim(now_ms);
        let position = stored.ring.position();
        let since = history.since.as_ref().map(|since| since.offset);
        if history
            .since
            .as_ref()
            .is_some_and(|since| !stored.ring.can_read(since.offset, &since.epoch, history.reverse))
        {
            return Response::Refused(Error::UNRECOVERABLE_POSITION);
        }
        if history.reverse && since == Some(Offset::START) {
            return Response::Refused(Error::BAD_REQUEST);
        }
        let mut publications = stored.ring.read(
            since,
            history.reverse,
            history.limit.unwrap_or(usize::MAX),
            history.size_max.unwrap_or(usize::MAX),
        );
        publications.retain(|publication| !publication.is_expired(now_ms));
        Response::History { publications, position }
    }

    fn history_remove(&mut self, name: &ChannelName) -> Response {
        if let Some(stored) = self.table.get_mut(name).and_then(|channel| channel.log.as_mut()) {
            stored.ring.clear();
        }
        Response::Done
    }

    /// The channel, made if need be. One with history gets an epoch and its time to live.
    fn channel(&mut self, name: &ChannelName, options: &ChannelOptions, now_ms: u64) -> &mut Channel {
        let meta_ttl_ms = self.unused_ttl_ms(name);
        let Channels { table, random, expiries, shards, empties, .. } = self;
        let channel = table.entry(name.clone()).or_insert_with(|| {
            let history = options.has_history().then(|| {
                let mut stored = ChannelLog::new(options, Epoch::from_bits(next_random(random)), now_ms);
                stored.retention.meta_ttl_ms = meta_ttl_ms.unwrap_or(stored.retention.meta_ttl_ms);
                stored.book(name, now_ms + EXPIRY_STEP_MS, expiries);
                Box::new(stored)
            });
            Channel {
                name: name.clone(),
                listeners: vec![0; *shards].into(),
                log: history,
                sync: SyncState::default(),
                is_broken: false,
                peak: 0,
                has_changes: !options.allowed_delta_types.is_empty(),
                latest: None,
            }
        });
        if let Some(stored) = &mut channel.log {
            stored.forgotten_ms = now_ms.saturating_add(stored.retention.meta_ttl_ms);
            if std::mem::take(&mut stored.empty_number) > 0 {
                empties.leave();
            }
        }
        channel
    }

    /// What becomes of a channel that was used: one that nobody listens to goes at once, or is kept for its history,
    /// or, if it has none yet, among the empty ones.
    fn rest(&mut self, name: &ChannelName, now_ms: u64) {
        let Channels { table, empties, expiries, .. } = self;
        let Some(channel) = table.get_mut(name) else { return };
        if channel.listeners.iter().any(|n| *n > 0) {
            return;
        }
        let is_at_home = matches!(channel.sync, SyncState::Idle);
        let Some(stored) = &mut channel.log else { return self.forget(name) };
        if !is_at_home || stored.ring.position().offset > Offset::START {
            return stored.book(name, stored.forgotten_ms, expiries);
        }
        if stored.empty_number == 0 {
            let number = empties.enter(name, |name, number| has_number(table, name, number));
            if let Some(stored) = table.get_mut(name).and_then(|channel| channel.log.as_mut()) {
                stored.empty_number = number;
            }
        }
        self.trim_empties(now_ms);
    }

    /// Forgets the oldest of the empty channels, those that are too many and those whose time is over.
    fn trim_empties(&mut self, now_ms: u64) {
        loop {
            let Channels { table, empties, .. } = self;
            let forgotten_ms = |name: &str| {
                table.get(name).and_then(|channel| channel.log.as_ref()).map_or(0, |stored| stored.forgotten_ms)
            };
            let gone =
                empties.next_to_go(|name, number| has_number(table, name, number), |name| forgotten_ms(name) <= now_ms);
            let Some(name) = gone else { return };
            self.empties.leave();
            self.forget(&name);
        }
    }

    fn expire_channel(&mut self, name: ChannelName, at_ms: u64, now_ms: u64) {
        let Some(channel) = self.table.get_mut(&name) else { return };
        let is_listened = channel.listeners.iter().any(|n| *n > 0);
        let Some(stored) = &mut channel.log else { return };
        if stored.expiry_ms != at_ms {
            // Of an earlier life of the channel.
            return;
        }
        stored.expiry_ms = 0;
        if stored.empty_number > 0 {
            // Those go by their own order.
            return;
        }
        stored.ring.trim(now_ms);
        // Where somebody else keeps the channel this is a cache, which goes when nobody uses it.
        let is_cache =
            !matches!(channel.sync, SyncState::Idle) && stored.retention.meta_ttl_ms == replicated::UNUSED_CACHE_TTL_MS;
        let next_ms = match stored.ring.next_expiry_ms() {
            Some(_) if is_cache && !is_listened && stored.forgotten_ms <= now_ms => return self.forget(&name),
            Some(at) if is_cache => at.min(stored.forgotten_ms),
            Some(at) => at,
            None if is_listened && stored.retention.meta_ttl_ms == replicated::UNUSED_CACHE_TTL_MS => {
                now_ms.saturating_add(stored.retention.meta_ttl_ms)
            }
            // A publication, or the end of the last subscription, books it again.
            None if is_listened => return,
            None if stored.forgotten_ms > now_ms => stored.forgotten_ms,
            None => return self.forget(&name),
        };
        stored.book(&name, next_ms.max(now_ms + EXPIRY_STEP_MS), &mut self.expiries);
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

    /// Has the expiry of the channel looked at, unless it will be anyway.
    fn book(&mut self, name: &ChannelName, at_ms: u64, expiries: &mut Expiries) {
        if self.expiry_ms == 0 {
            self.expiry_ms = at_ms;
            expiries.push(Reverse((at_ms, name.clone())));
        }
    }
}

/// Whether a channel is among the empty ones under this number.
fn has_number(table: &HashMap<ChannelName, Channel>, name: &str, number: u64) -> bool {
    table.get(name).and_then(|channel| channel.log.as_ref()).is_some_and(|stored| stored.empty_number == number)
}

/// Gives a publication to all subscribers, with the one before it if some of them may want changes only. What stands
/// beside the history is no change, and nothing to be changed: who recovers has never seen it.
fn give(outgoing: &mut Vec<(ShardId, Delivery)>, channel: &mut Channel, publication: Arc<Publication>) {
    let is_in_line = channel.log.is_some() == (publication.offset > Offset::START);
    let previous = channel.latest.take().filter(|_| is_in_line);
    channel.latest = (channel.has_changes && is_in_line).then(|| Arc::clone(&publication));
    deliver(outgoing, channel, ChannelEvent::Publication { publication, previous });
}

/// One message to each shard that has subscribers.
fn deliver(outgoing: &mut Vec<(ShardId, Delivery)>, channel: &Channel, event: ChannelEvent) {
    let audience = channel.listeners.iter().sum();
    for (shard, listeners) in channel.listeners.iter().enumerate() {
        if *listeners > 0 {
            outgoing
                .push((shard as ShardId, Delivery { channel: channel.name.clone(), event: event.clone(), audience }));
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
