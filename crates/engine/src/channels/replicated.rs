//! Channels whose order and history are somebody else's, a cluster's or a store's; a home is a cache of them for the
//! subscribers of its node.
//!
//! A channel is *heard* before anybody subscribes: the home asks for interest, then (with history) for what is kept.
//! Requests wait meanwhile. A publication carries the offset before it, so a gap is seen at once and filled before
//! anything behind it is delivered. A store needs no interest: it tells of everything that it has stored.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::stream::{ChannelName, LoadId, NamespaceName, Offset};
use touchline_protocol::{Error, Publication, encode};

use super::backend::{BackendCommand, DurablePublication, LogBackend, Submitted};
use super::loading::{AheadQuery, Verification, position_of};
use super::payload::{self, Payload};
use super::{Channel, Channels, give};
use crate::namespace::ChannelOptions;
use crate::request::{Appended, ConnectionId, Epoch, Publish, Request, Response};

/// Room for what stands around the data in a publication's object, bytes.
const OBJECT_OVERHEAD: usize = 64;
/// Refused subscribes that are remembered at once.
const REFUSED_MAX: usize = 100_000;
/// How long the cache of a channel without subscribers is kept, milliseconds.
pub(super) const UNUSED_CACHE_TTL_MS: u64 = 10_000;
/// After a failure to get what is kept: how long requests are refused at once, milliseconds.
pub(super) const LOAD_RETRY_MS: u64 = 200;

/// How far this node follows a channel whose log is in a log backend.
#[derive(Debug, Default)]
pub(super) enum SyncState {
    /// The node does not follow it, or has no peers.
    #[default]
    Idle,
    /// The subscription was requested.
    Subscribing,
    /// The history was requested from the log backend.
    Loading(Loading),
    /// The history is up to date.
    Live,
    /// The log backend did not give the history. It is not asked again before this time, Unix milliseconds.
    Failed(u64),
}

/// What arrives from other nodes while the history is requested from the log backend.
#[derive(Debug, Default)]
pub(super) struct Loading {
    /// Publications that are applied after the history, by offset.
    pub(super) waiting: BTreeMap<Offset, Appended>,
    /// The highest offset that the channel is known to have. If the answer ends below it, the history is requested
    /// again.
    pub(super) top: Offset,
}

/// All channels, sorted by name. A hash map iterates in another order in each process; a simulation must repeat.
fn in_order(table: &mut HashMap<ChannelName, Channel>) -> impl Iterator<Item = (&ChannelName, &mut Channel)> {
    let mut all: Vec<_> = table.iter_mut().collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    all.into_iter()
}

/// What channels know of those who keep them.
#[derive(Debug, Default)]
pub(super) struct Backends {
    has_cluster: bool,
    has_store: bool,
    is_linked: bool,
    /// When the link came, Unix milliseconds.
    pub(super) linked_ms: u64,
    commands: Vec<BackendCommand>,
    ready: Vec<ChannelName>,
    /// Loads that were asked for, of all channels: the number of the last one.
    asked: u64,
    /// Channels of which a log backend has denied something, with the time when it may be asked again, Unix
    /// milliseconds; in the order of the times.
    pub(super) rests: VecDeque<(u64, ChannelName)>,
    /// Subscribes that were refused lately; their sessions may have unsubscribed before they heard of it.
    refused: HashMap<(ConnectionId, ChannelName), u64>,
    /// The same in the order of their times; those that are not in the map any more are void.
    refused_order: VecDeque<(u64, (ConnectionId, ChannelName))>,
}

impl Backends {
    /// Who keeps a channel with these options.
    fn log_backend(&self, channel: &str, options: &ChannelOptions) -> LogBackend {
        match self {
            _ if channel.starts_with("$registry:") => LogBackend::Memory,
            Backends { has_store: true, .. } if options.durable => LogBackend::Store,
            Backends { has_cluster: true, .. } => LogBackend::Cluster,
            _ => LogBackend::Memory,
        }
    }

    /// Loads that were asked for, as the number of the last one.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// The number of the load that is asked for next.
    pub(super) fn next_load(&self) -> u64 {
        self.asked + 1
    }

    /// The same, which is asked for now.
    fn number_load(&mut self) -> u64 {
        self.asked = self.next_load();
        self.asked
    }
}

impl Channels {
    /// The same as a part of a cluster, which is not linked yet.
    pub fn in_cluster(mut self) -> Self {
        self.backends.has_cluster = true;
        self
    }

    /// The same with a store for durable channels.
    pub fn with_store(mut self) -> Self {
        self.backends.has_store = true;
        self
    }

    /// Carries a request out, or says what has to be done first.
    pub fn submit(&mut self, channel: &ChannelName, request: Request, now_ms: u64) -> Submitted {
        if !self.backends.has_cluster && !self.backends.has_store {
            return Submitted::Done(self.execute(channel, request, now_ms));
        }
        let namespaces = Arc::clone(&self.namespaces);
        let options = match namespaces.resolve(channel) {
            Ok(options) => options,
            Err(error) => return Submitted::Done(Response::Refused(error)),
        };
        let keeper = self.backends.log_backend(channel, options);
        if keeper == LogBackend::Memory {
            return Submitted::Done(self.execute(channel, request, now_ms));
        }
        let came = self.backends.next_load();
        match request {
            Request::Publish(publish) => self.publish_replicated(channel, options, keeper, &publish, now_ms),
            Request::HistoryRemove if keeper == LogBackend::Store => Submitted::Remove,
            Request::HistoryRemove if options.has_history() => {
                self.if_linked(|side| Submitted::Purge(side.namespaces.namespace_of(channel).into()))
            }
            Request::Subscribe(_) => self.when_live(channel, options, keeper, (request, came), now_ms),
            Request::Retry(came, request) => self.when_live(channel, options, keeper, (*request, came), now_ms),
            Request::History(_) if options.has_history() => {
                self.when_live(channel, options, keeper, (request, came), now_ms)
            }
            Request::Ephemeral(payload) => self.handle_ephemeral(channel, &payload),
            Request::Appended(stored) => self.handle_appended(channel, options, stored, now_ms),
            Request::Advanced(epoch, top) => self.handle_advanced(channel, epoch, top),
            Request::SubscribedToBackend => self.handle_subscribed(channel, options),
            Request::Loaded(loaded) => self.handle_loaded(channel, options, loaded, now_ms),
            request => Submitted::Done(self.execute(channel, request, now_ms)),
        }
    }

    /// What the cluster and the store have to do, in order.
    pub fn backend_commands(&mut self) -> Vec<BackendCommand> {
        std::mem::take(&mut self.backends.commands)
    }

    /// Channels whose waiting requests can be submitted again.
    pub fn take_ready(&mut self) -> Vec<ChannelName> {
        std::mem::take(&mut self.backends.ready)
    }

    /// The link to the cluster is there, or is gone. When it is back, every cache catches up.
    pub fn set_linked(&mut self, is_linked: bool, now_ms: u64) {
        let side = &mut self.backends;
        side.is_linked = is_linked;
        if is_linked {
            side.linked_ms = now_ms;
        }
        let namespaces = Arc::clone(&self.namespaces);
        for (name, channel) in in_order(&mut self.table) {
            if namespaces.resolve(name).is_ok_and(|options| side.log_backend(name, options) != LogBackend::Cluster) {
                continue;
            }
            let namespace = || -> NamespaceName { namespaces.namespace_of(name).into() };
            let position = channel.log.as_ref().map(|stored| stored.ring.position());
            if !is_linked && matches!(channel.sync, SyncState::Live) {
                channel.log.iter_mut().for_each(|stored| stored.synced_ms = now_ms);
            }
            match (&mut channel.sync, position, is_linked) {
                // What came meanwhile is asked for; so is what was under way when the link went. The newest that is
                // here is read again: the cluster may have been set back to an earlier state, and have
                // gone on from there.
                (hearing @ (SyncState::Live | SyncState::Loading(_)), Some(position), true) => {
                    if matches!(hearing, SyncState::Live) {
                        *hearing = SyncState::Loading(Loading::default());
                    }
                    let number = side.number_load();
                    let mut behind = position.offset;
                    if let Some(stored) = &mut channel.log {
                        behind = stored.ring.proof();
                        let top = stored.ring.newest().unwrap_or_default();
                        stored.verification = Verification { load: number, top, next: stored.verification.next };
                    }
                    side.commands.push(BackendCommand::Load {
                        channel: name.clone(),
                        namespace: namespace(),
                        load: LoadId { behind, number },
                    });
                }
                (SyncState::Subscribing, Some(_), true) => {
                    side.commands.push(BackendCommand::SetInterest { channel: name.clone(), is_wanted: true })
                }
                (SyncState::Subscribing | SyncState::Idle, None, true) => {
                    channel.sync = SyncState::Subscribing;
                    side.commands.push(BackendCommand::SetInterest { channel: name.clone(), is_wanted: true });
                }
                // A client that is ahead is refused until the link is back.
                (SyncState::Live, _, false)
                    if channel.log.as_ref().is_some_and(|stored| matches!(stored.ahead, AheadQuery::Asked { .. })) =>
                {
                    channel.log.iter_mut().for_each(|stored| stored.ahead = AheadQuery::None);
                    side.ready.push(name.clone());
                }
                (SyncState::Live, _, _) | (_, _, true) => {}
                // What came before the link went may be lost when it is back; what is still there is read then.
                (SyncState::Loading(loading), _, false) => {
                    *loading = Loading::default();
                    side.ready.push(name.clone());
                }
                // Whoever waits hears now that it can't be had.
                (_, _, false) => side.ready.push(name.clone()),
            }
        }
    }

    /// Other nodes may have stored publications that nobody told of, or the store may have been set back: every cache
    /// of a durable channel asks, and what it has is compared.
    pub fn catch_up(&mut self) {
        let mut durable: Vec<_> =
            self.table.keys().filter(|name| self.log_backend(name) == LogBackend::Store).cloned().collect();
        durable.sort_unstable();
        durable.iter().for_each(|name| self.catch_up_with(name));
    }

    fn catch_up_with(&mut self, name: &ChannelName) {
        let load = self.backends.next_load();
        match self.table.get_mut(name) {
            Some(Channel { sync: hearing @ SyncState::Live, log: Some(stored), .. }) => {
                *hearing = SyncState::Loading(Loading::default());
                stored.verification =
                    Verification { load, top: stored.ring.position().offset, next: stored.verification.next };
                let floor = stored.ring.floor();
                self.load(name, floor);
            }
            _ => drop(self.catch_up_to(name, Offset::END)),
        }
    }

    /// A namespace's stream in the cluster has grown: every cache asks whether it has all that it should have heard.
    pub fn check_namespace(&mut self, namespace: &NamespaceName) {
        for (name, channel) in in_order(&mut self.table) {
            let is_kept_there = self
                .namespaces
                .resolve(name)
                .is_ok_and(|options| self.backends.log_backend(name, options) == LogBackend::Cluster);
            // What is loading now may have been read before the stream grew; what is only asked for will be read behind
            // it.
            if let (SyncState::Live | SyncState::Loading(_), Some(stored)) = (&channel.sync, &channel.log)
                && is_kept_there
                && *self.namespaces.namespace_of(name) == **namespace
            {
                let (behind, side) = (stored.ring.position().offset, &mut self.backends);
                let number = side.number_load();
                side.commands.push(BackendCommand::Check {
                    channel: name.clone(),
                    namespace: namespace.clone(),
                    load: LoadId { behind, number },
                });
            }
        }
    }

    /// Another node has stored a publication. What it says of another life, or of an offset that is here, is looked at:
    /// it may have come late, or the log backend may have been set back to an earlier state.
    fn handle_advanced(&mut self, channel: &ChannelName, epoch: Epoch, top: Offset) -> Submitted {
        if let Some(Channel { sync: SyncState::Live | SyncState::Loading(_), log: Some(stored), .. }) =
            self.table.get(channel)
        {
            let position = stored.ring.position();
            let is_of_other = epoch != Epoch::default() && epoch != position.epoch;
            if is_of_other || top < position.offset {
                self.verify(channel, if is_of_other { position.offset.next() } else { top });
                return Submitted::Done(Response::Done);
            }
        }
        self.catch_up_to(channel, top)
    }

    /// Loads what a cache does not have of a channel that has grown.
    pub(super) fn catch_up_to(&mut self, channel: &ChannelName, top: Offset) -> Submitted {
        let done = Submitted::Done(Response::Done);
        let Some(Channel { sync: hearing, log: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let behind = stored.ring.position().offset;
        match hearing {
            SyncState::Live if behind < top => {
                *hearing = SyncState::Loading(Loading::default());
                self.load(channel, behind);
            }
            SyncState::Loading(loading) => loading.top = loading.top.max(top),
            _ => {}
        }
        done
    }

    fn note_refusal(&mut self, connection: ConnectionId, channel: &ChannelName, outcome: &Submitted, now_ms: u64) {
        match outcome {
            Submitted::Done(Response::Refused(_)) => self.note_refused(connection, channel, now_ms),
            Submitted::Done(_) => drop(self.was_refused(connection, channel)),
            _ => {}
        }
    }

    /// Remembers for a while that a subscribe was refused. However many are, each costs the same.
    pub(super) fn note_refused(&mut self, connection: ConnectionId, channel: &ChannelName, now_ms: u64) {
        let Backends { refused, refused_order, .. } = &mut self.backends;
        while let Some((at_ms, _)) = refused_order.front()
            && (at_ms + UNUSED_CACHE_TTL_MS <= now_ms || refused_order.len() >= REFUSED_MAX)
        {
            let Some((at_ms, key)) = refused_order.pop_front() else { break };
            if refused.get(&key) == Some(&at_ms) {
                refused.remove(&key);
            }
        }
        let key = (connection, channel.clone());
        refused_order.push_back((now_ms, key.clone()));
        refused.insert(key, now_ms);
    }

    pub(super) fn was_refused(&mut self, connection: ConnectionId, channel: &ChannelName) -> bool {
        !self.backends.refused.is_empty() && self.backends.refused.remove(&(connection, channel.clone())).is_some()
    }

    pub(super) fn forget(&mut self, name: &ChannelName) {
        let Some(forgotten) = self.table.remove(name) else { return };
        if let (Some(gone), 1..) = (&mut self.gone, forgotten.peak) {
            let peak = gone.entry(name.clone()).or_default();
            *peak = forgotten.peak.max(*peak);
        }
        if self.log_backend(name) == LogBackend::Cluster {
            self.command(BackendCommand::SetInterest { channel: name.clone(), is_wanted: false });
        }
    }

    /// Of a channel that is kept elsewhere: how long the cache outlives its last use.
    pub(super) fn unused_ttl_ms(&self, channel: &str) -> Option<u64> {
        (self.log_backend(channel) != LogBackend::Memory).then_some(UNUSED_CACHE_TTL_MS)
    }

    pub(super) fn log_backend(&self, channel: &str) -> LogBackend {
        self.namespaces
            .resolve(channel)
            .map_or(LogBackend::Memory, |options| self.backends.log_backend(channel, options))
    }

    fn if_linked(&mut self, then: impl FnOnce(&mut Self) -> Submitted) -> Submitted {
        if self.backends.is_linked {
            then(self)
        } else {
            Submitted::Done(Response::Refused(Error::CLUSTER_UNREACHABLE))
        }
    }

    pub(super) fn command(&mut self, act: BackendCommand) {
        self.backends.commands.push(act);
    }

    /// Asks for what is kept of a channel behind an offset.
    pub(super) fn load(&mut self, channel: &ChannelName, behind: Offset) {
        let number = self.backends.number_load();
        self.command(match self.log_backend(channel) {
            LogBackend::Store => {
                BackendCommand::LoadStored { channel: channel.clone(), load: LoadId { behind, number } }
            }
            _ => BackendCommand::Load {
                channel: channel.clone(),
                namespace: self.namespaces.namespace_of(channel).into(),
                load: LoadId { behind, number },
            },
        });
    }

    fn publish_replicated(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        keeper: LogBackend,
        publish: &Publish,
        now_ms: u64,
    ) -> Submitted {
        let mut payload = payload::begin(now_ms, publish.content.data.len() + OBJECT_OVERHEAD);
        encode::publication(&mut payload, &publish.content, None);
        let key = publish.idempotency_key.clone();
        if options.has_history() && !publish.skip_history {
            if keeper == LogBackend::Cluster {
                return self.if_linked(|side| Submitted::Append {
                    namespace: side.namespaces.namespace_of(channel).into(),
                    payload,
                    idempotency_key: key,
                });
            }
            return Submitted::Store(DurablePublication {
                payload,
                time_ms: now_ms,
                idempotency_key: key,
                version: publish.version,
                version_epoch: publish.version_epoch.clone(),
                retention: options.retention(),
            });
        }
        if !key.is_empty() && self.idempotency.get(channel, &key, now_ms).is_some() {
            return Submitted::Done(Response::Published(None));
        }
        if !key.is_empty() {
            self.idempotency.put(channel, key, None, now_ms);
        }
        if self.backends.has_cluster && self.backends.is_linked {
            self.command(BackendCommand::Broadcast { channel: channel.clone(), payload });
        } else {
            // Alone or cut off, a node serves its own subscribers.
            self.handle_ephemeral(channel, &payload);
        }
        Submitted::Done(Response::Published(None))
    }

    /// Carries a request out if the channel is heard; else it waits, and the channel is asked for. With the request the
    /// first load that was asked for after it came.
    fn when_live(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        keeper: LogBackend,
        (request, came): (Request, u64),
        now_ms: u64,
    ) -> Submitted {
        let subscriber = if let Request::Subscribe(subscribe) = &request { Some(subscribe.connection) } else { None };
        let outcome = match self.execute_or_synchronize(channel, options, keeper, (request, came), now_ms) {
            Submitted::Wait(request) if position_of(&request).is_some() => {
                Submitted::Wait(Request::Retry(came, Box::new(request)))
            }
            outcome => outcome,
        };
        if let Some(connection) = subscriber {
            self.note_refusal(connection, channel, &outcome, now_ms);
        }
        outcome
    }

    fn execute_or_synchronize(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        keeper: LogBackend,
        (request, came): (Request, u64),
        now_ms: u64,
    ) -> Submitted {
        if let Err(error) = self.make_room(channel) {
            return Submitted::Done(Response::Refused(error));
        }
        let is_reachable = keeper == LogBackend::Store || self.backends.is_linked;
        let unreachable =
            if keeper == LogBackend::Store { Error::STORE_UNAVAILABLE } else { Error::CLUSTER_UNREACHABLE };
        match self.table.get(channel).map(|known| &known.sync) {
            Some(SyncState::Live) => match self.question(channel, &request, came, now_ms) {
                None => return Submitted::Done(self.execute(channel, request, now_ms)),
                Some(_) if !is_reachable => return Submitted::Done(Response::Refused(unreachable)),
                Some(AheadQuery::Asked { .. } | AheadQuery::Resting(_)) => {}
                Some(AheadQuery::Failed(_)) => return Submitted::Done(Response::Refused(unreachable)),
                Some(_) => self.ask(channel, &request),
            },
            Some(SyncState::Failed(until_ms)) if now_ms < *until_ms => {
                return Submitted::Done(Response::Refused(unreachable));
            }
            _ if !is_reachable && options.has_history() => {
                self.forget_unsynchronized(channel);
                return Submitted::Done(Response::Refused(unreachable));
            }
            // Without the cluster a channel that keeps nothing is this node's alone, until the link is there.
            _ if !is_reachable => return Submitted::Done(self.execute(channel, request, now_ms)),
            Some(SyncState::Subscribing | SyncState::Loading(_)) => {}
            Some(SyncState::Idle | SyncState::Failed(_)) | None if keeper == LogBackend::Store => {
                self.channel(channel, options, now_ms).sync = SyncState::Loading(Loading::default());
                self.load(channel, Offset::START);
            }
            Some(SyncState::Idle | SyncState::Failed(_)) | None => {
                self.channel(channel, options, now_ms).sync = SyncState::Subscribing;
                self.command(BackendCommand::SetInterest { channel: channel.clone(), is_wanted: true });
            }
        }
        Submitted::Wait(request)
    }

    /// Gives up a channel that was asked for and that nobody has.
    pub(super) fn forget_unsynchronized(&mut self, channel: &ChannelName) {
        let is_unheard =
            |known: &Channel| !matches!(known.sync, SyncState::Live) && known.listeners.iter().all(|n| *n == 0);
        if self.table.get(channel).is_some_and(is_unheard) {
            self.forget(channel);
        }
    }

    fn handle_subscribed(&mut self, channel: &ChannelName, options: &ChannelOptions) -> Submitted {
        let Some(known) = self.table.get_mut(channel) else { return Submitted::Done(Response::Done) };
        if matches!(known.sync, SyncState::Subscribing) {
            if options.has_history() {
                known.sync = SyncState::Loading(Loading::default());
                self.load(channel, Offset::START);
            } else {
                known.sync = SyncState::Live;
                self.make_ready(channel);
            }
        }
        Submitted::Done(Response::Done)
    }

    /// Whether the cache of a channel can answer: who waits all the same is ahead of it.
    pub fn is_live(&self, channel: &str) -> bool {
        self.table.get(channel).is_some_and(|known| matches!(known.sync, SyncState::Live))
    }

    pub(super) fn make_ready(&mut self, channel: &ChannelName) {
        self.backends.ready.push(channel.clone());
    }

    fn handle_ephemeral(&mut self, channel: &ChannelName, payload: &[u8]) -> Submitted {
        let Some(known) = self.table.get_mut(channel) else { return Submitted::Done(Response::Done) };
        match payload::read(payload) {
            Ok(Payload::Publication(_, object)) => {
                let publication = Publication::wrap(channel, object, None);
                give(&mut self.outgoing, known, Arc::new(publication));
            }
            Ok(Payload::Clear(_)) => known.log.iter_mut().for_each(|stored| stored.ring.clear()),
            Err(unreadable) => self.command(BackendCommand::Unreadable { channel: channel.clone(), unreadable }),
        }
        Submitted::Done(Response::Done)
    }
}

/// What a [`Request::Passing`] says when the history of its channel was removed.
pub fn clearing() -> Bytes {
    payload::clear(Offset::END).into()
}

/// The payload that is stored in place of a history which is removed up to an offset.
pub fn removal(until: Offset) -> Vec<u8> {
    payload::clear(until)
}
