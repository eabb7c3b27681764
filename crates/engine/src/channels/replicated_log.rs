//! Replicated channels: their log is in a log backend, the cluster or the store. Their home keeps a cache of it for the
//! subscribers of its node.
//!
//! A channel becomes *live* before its first subscribe is executed: the home subscribes to the channel in the cluster,
//! then (with history) it loads the log. Requests wait meanwhile. A publication carries the previous offset, so the
//! home notices a gap at once and fills it before it delivers any later publication. The store needs no subscription:
//! it reports everything that it has appended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::stored::{self, StoredPayload};
use touchline_protocol::stream::{ChannelName, LoadId, Offset};
use touchline_protocol::{Error, Publication, encode};

use super::backend::{BackendCommand, DurablePublication, LogBackend, Submitted};
use super::loading::AheadQuery;
use super::remembered_refusals::RefusedSubscribes;
use super::{Channel, Channels, deliver_publication};
use crate::namespace::{ChannelOptions, WATCH_CHANNEL_PREFIX};
use crate::request::{Appended, BackendEvent, ChannelRequest, ConnectionId, Publish, Response, WaitingRequest};

/// Bytes that a publication's object has besides its data, at most.
const OBJECT_OVERHEAD: usize = 64;
/// How long the cache of a channel without subscribers is kept after its last use, milliseconds.
pub(super) const UNUSED_CACHE_TTL_MS: u64 = 10_000;
/// How long requests are refused at once after a load has failed, milliseconds.
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

/// What a home knows about the log backends.
#[derive(Debug, Default)]
pub(super) struct Backends {
    has_cluster: bool,
    has_store: bool,
    pub(super) is_linked: bool,
    /// When the link to the cluster came, Unix milliseconds.
    pub(super) linked_ms: u64,
    pub(super) commands: Vec<BackendCommand>,
    pub(super) ready: Vec<ChannelName>,
    /// The number of the last load that was requested, of all channels.
    last_requested: u64,
    /// Channels whose log backend did not have an offset, with the time when it may be queried again, Unix
    /// milliseconds; in the order of the times.
    pub(super) resting: VecDeque<(u64, ChannelName)>,
    pub(super) refused: RefusedSubscribes,
}

impl Backends {
    /// The log backend of a channel with these options.
    pub(super) fn log_backend(&self, channel: &str, options: &ChannelOptions) -> LogBackend {
        match self {
            _ if channel.starts_with(WATCH_CHANNEL_PREFIX) => LogBackend::Memory,
            Backends { has_store: true, .. } if options.durable => LogBackend::Store,
            Backends { has_cluster: true, .. } => LogBackend::Cluster,
            _ => LogBackend::Memory,
        }
    }

    /// The number of the last load that was requested; 0 = none was.
    pub(super) fn last_requested(&self) -> u64 {
        self.last_requested
    }

    /// The number of the load that is requested next.
    pub(super) fn next_load(&self) -> u64 {
        self.last_requested + 1
    }

    /// Numbers the load that is requested now.
    pub(super) fn number_load(&mut self) -> u64 {
        self.last_requested = self.next_load();
        self.last_requested
    }
}

impl Channels {
    /// Makes these channels a part of a cluster, which is not linked yet.
    pub fn in_cluster(mut self) -> Self {
        self.backends.has_cluster = true;
        self
    }

    /// Gives these channels a store for durable channels.
    pub fn with_store(mut self) -> Self {
        self.backends.has_store = true;
        self
    }

    /// Executes a request, which may have waited, or returns what has to be done first.
    pub fn submit(&mut self, channel: &ChannelName, request: impl Into<WaitingRequest>, now_ms: u64) -> Submitted {
        let WaitingRequest { request, first_load } = request.into();
        if !self.backends.has_cluster && !self.backends.has_store {
            return Submitted::Done(self.execute(channel, request, now_ms));
        }
        let namespaces = Arc::clone(&self.namespaces);
        let options = match namespaces.resolve(channel) {
            Ok(options) => options,
            Err(error) => return Submitted::Done(Response::Refused(error)),
        };
        let backend = self.backends.log_backend(channel, options);
        if backend == LogBackend::Memory {
            return Submitted::Done(self.execute(channel, request, now_ms));
        }
        let first_load = first_load.unwrap_or(self.backends.next_load());
        match request {
            ChannelRequest::Publish(publish) => self.publish_replicated(channel, options, backend, &publish, now_ms),
            ChannelRequest::HistoryRemove if backend == LogBackend::Store => Submitted::Remove,
            ChannelRequest::HistoryRemove if options.has_history() => {
                self.if_linked(|channels| Submitted::Purge(channels.namespaces.namespace_of(channel).into()))
            }
            ChannelRequest::Subscribe(_) => self.when_live(channel, options, backend, (request, first_load), now_ms),
            ChannelRequest::History(_) if options.has_history() => {
                self.when_live(channel, options, backend, (request, first_load), now_ms)
            }
            ChannelRequest::Unsubscribe { .. }
            | ChannelRequest::Announce(_)
            | ChannelRequest::History(_)
            | ChannelRequest::HistoryRemove => Submitted::Done(self.execute(channel, request, now_ms)),
        }
    }

    /// Applies a report of a log backend to the cache of a channel. A report about a channel whose log is in memory
    /// does nothing.
    pub fn apply(&mut self, channel: &ChannelName, event: BackendEvent, now_ms: u64) {
        let namespaces = Arc::clone(&self.namespaces);
        let Ok(options) = namespaces.resolve(channel) else { return };
        if self.backends.log_backend(channel, options) == LogBackend::Memory {
            return;
        }
        match event {
            BackendEvent::Ephemeral(payload) => self.handle_ephemeral(channel, &payload),
            BackendEvent::Appended(appended) => self.handle_appended(channel, options, appended, now_ms),
            BackendEvent::Advanced(top) => self.handle_advanced(channel, top),
            BackendEvent::Subscribed => self.handle_subscribed(channel, options),
            BackendEvent::Loaded(loaded) => self.handle_loaded(channel, options, loaded, now_ms),
        }
    }

    /// Takes the commands for the cluster and the store, in order.
    pub fn backend_commands(&mut self) -> Vec<BackendCommand> {
        std::mem::take(&mut self.backends.commands)
    }

    /// Takes the channels whose waiting requests can be submitted again.
    pub fn take_ready(&mut self) -> Vec<ChannelName> {
        std::mem::take(&mut self.backends.ready)
    }

    fn note_refusal(&mut self, connection: ConnectionId, channel: &ChannelName, outcome: &Submitted, now_ms: u64) {
        match outcome {
            Submitted::Done(Response::Refused(_)) => self.note_refused(connection, channel, now_ms),
            Submitted::Done(_) => drop(self.was_refused(connection, channel)),
            _ => {}
        }
    }

    pub(super) fn forget(&mut self, name: &ChannelName) {
        let Some(forgotten) = self.table.remove(name) else { return };
        if let (Some(peaks), 1..) = (&mut self.forgotten_peaks, forgotten.peak) {
            let peak = peaks.entry(name.clone()).or_default();
            *peak = forgotten.peak.max(*peak);
        }
        if self.log_backend(name) == LogBackend::Cluster {
            self.command(BackendCommand::SetInterest { channel: name.clone(), is_wanted: false });
        }
    }

    /// How long the cache of a replicated channel is kept after its last use, milliseconds; `None` = the log is in
    /// memory.
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

    pub(super) fn command(&mut self, command: BackendCommand) {
        self.backends.commands.push(command);
    }

    /// Requests the log of a channel behind an offset.
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
        backend: LogBackend,
        publish: &Publish,
        now_ms: u64,
    ) -> Submitted {
        let size = publish.content.data.len() + OBJECT_OVERHEAD;
        let payload = stored::encode_publication(now_ms, size, |out| encode::publication(out, &publish.content, None));
        let key = publish.idempotency_key.clone();
        if options.has_history() && !publish.skip_history {
            if backend == LogBackend::Cluster {
                return self.if_linked(|channels| Submitted::Append {
                    namespace: channels.namespaces.namespace_of(channel).into(),
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
            // Without a cluster or a link the node serves its own subscribers.
            self.handle_ephemeral(channel, &payload);
        }
        Submitted::Done(Response::Published(None))
    }

    /// Executes a request if the channel is live; else the request waits while the channel becomes live. With the
    /// request comes the number of the first load that was requested after it.
    fn when_live(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        backend: LogBackend,
        (request, first_load): (ChannelRequest, u64),
        now_ms: u64,
    ) -> Submitted {
        let subscriber = request.subscriber();
        let outcome = self.execute_or_synchronize(channel, options, backend, (request, first_load), now_ms);
        if let Some(connection) = subscriber {
            self.note_refusal(connection, channel, &outcome, now_ms);
        }
        outcome
    }

    fn execute_or_synchronize(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        backend: LogBackend,
        (request, first_load): (ChannelRequest, u64),
        now_ms: u64,
    ) -> Submitted {
        if let Err(error) = self.make_room(channel) {
            return Submitted::Done(Response::Refused(error));
        }
        let is_reachable = backend == LogBackend::Store || self.backends.is_linked;
        let unreachable =
            if backend == LogBackend::Store { Error::STORE_UNAVAILABLE } else { Error::CLUSTER_UNREACHABLE };
        match self.table.get(channel).map(|known| &known.sync) {
            Some(SyncState::Live) => match self.ahead_query(channel, &request, first_load, now_ms) {
                None => return Submitted::Done(self.execute(channel, request, now_ms)),
                Some(_) if !is_reachable => return Submitted::Done(Response::Refused(unreachable)),
                Some(AheadQuery::Asked { .. } | AheadQuery::Resting(_)) => {}
                Some(AheadQuery::Failed(_)) => return Submitted::Done(Response::Refused(unreachable)),
                Some(_) => self.query_backend(channel, &request),
            },
            Some(SyncState::Failed(until_ms)) if now_ms < *until_ms => {
                return Submitted::Done(Response::Refused(unreachable));
            }
            _ if !is_reachable && options.has_history() => {
                self.forget_unsynchronized(channel);
                return Submitted::Done(Response::Refused(unreachable));
            }
            // Without the link a channel without history is served by this node alone.
            _ if !is_reachable => return Submitted::Done(self.execute(channel, request, now_ms)),
            Some(SyncState::Subscribing | SyncState::Loading(_)) => {}
            Some(SyncState::Idle | SyncState::Failed(_)) | None if backend == LogBackend::Store => {
                self.channel(channel, options, now_ms).sync = SyncState::Loading(Loading::default());
                self.load(channel, Offset::START);
            }
            Some(SyncState::Idle | SyncState::Failed(_)) | None => {
                self.channel(channel, options, now_ms).sync = SyncState::Subscribing;
                self.command(BackendCommand::SetInterest { channel: channel.clone(), is_wanted: true });
            }
        }
        Submitted::Wait(WaitingRequest { request, first_load: Some(first_load) })
    }

    /// Forgets a channel that is not live and has no subscribers.
    pub(super) fn forget_unsynchronized(&mut self, channel: &ChannelName) {
        let is_unused =
            |known: &Channel| !matches!(known.sync, SyncState::Live) && known.subscribers.iter().all(|n| *n == 0);
        if self.table.get(channel).is_some_and(is_unused) {
            self.forget(channel);
        }
    }

    fn handle_subscribed(&mut self, channel: &ChannelName, options: &ChannelOptions) {
        let Some(known) = self.table.get_mut(channel) else { return };
        if matches!(known.sync, SyncState::Subscribing) {
            if options.has_history() {
                known.sync = SyncState::Loading(Loading::default());
                self.load(channel, Offset::START);
            } else {
                known.sync = SyncState::Live;
                self.make_ready(channel);
            }
        }
    }

    /// Whether the cache of a channel is up to date. A request that waits all the same is ahead of the cache.
    pub fn is_live(&self, channel: &str) -> bool {
        self.table.get(channel).is_some_and(|known| matches!(known.sync, SyncState::Live))
    }

    pub(super) fn make_ready(&mut self, channel: &ChannelName) {
        self.backends.ready.push(channel.clone());
    }

    fn handle_ephemeral(&mut self, channel: &ChannelName, payload: &[u8]) {
        let Some(known) = self.table.get_mut(channel) else { return };
        match stored::decode(payload) {
            Ok(StoredPayload::Publication { object, .. }) => {
                let publication = Publication::wrap(channel, object, None);
                deliver_publication(&mut self.outgoing, known, Arc::new(publication));
            }
            Ok(StoredPayload::Clear(_)) => known.log.iter_mut().for_each(|log| log.ring.clear()),
            Err(unreadable) => self.command(BackendCommand::Unreadable { channel: channel.clone(), unreadable }),
        }
    }
}

/// The payload of a [`BackendEvent::Ephemeral`] that reports that the history of its channel was removed.
pub fn clearing() -> Bytes {
    stored::encode_clear(Offset::END).into()
}

/// The payload that a log keeps in place of a history that is removed up to an offset.
pub fn removal(until: Offset) -> Vec<u8> {
    stored::encode_clear(until)
}
