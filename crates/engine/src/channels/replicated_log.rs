//! Replicated channels: their log is in a log backend, the cluster or the store. Their home keeps a cache of it for the
//! subscribers of its node.
//!
//! A channel becomes *live* before its first subscribe is executed. The home subscribes to the channel in the cluster,
//! then (with history) it loads the log. Requests wait meanwhile. A publication carries the previous offset, so the
//! home notices a gap at once and fills it before it delivers any later publication. The store needs no subscription:
//! it reports everything that it has appended.
//!
//! This module turns each input into a [`SyncEvent`], [`transition`] decides, and the effects are executed in order. If
//! an effect causes another event (a publication cannot be read), the remaining effects of the first event are skipped.

use std::sync::Arc;

use touchline_protocol::stored::{self, StoredPayload};
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset};
use touchline_protocol::{Error, Publication};

use super::backend::{BackendCommand, DurablePublication, LogBackend, Submitted};
use super::cache::{AheadQuery, Backlog, Verification};
use super::delivery::{deliver, deliver_publication};
use super::sync::{Ahead, Arrival, LogReach, SyncEffect, SyncEvent, SyncState, transition};
use super::table::{Channel, Channels};
use crate::history::HistoryRing;
use crate::namespace::ChannelOptions;
use crate::request::{Appended, BackendEvent, ChannelEvent, ChannelRequest, Loaded, Publish, Response, WaitingRequest};

/// How long requests are refused immediately after a load has failed, milliseconds.
pub(super) const LOAD_RETRY_MS: u64 = 200;

/// What an event carries that its effects need.
#[derive(Debug)]
pub(super) enum Cargo {
    /// The effects need nothing else.
    None,
    /// A publication that the log backend has appended.
    Publication(Appended),
    /// A part of the log that was loaded.
    Load(Box<Loaded>),
    /// The last offset of the log, or the first offset that contradicts the cache.
    Offset(Offset),
}

impl Cargo {
    fn offset(&self) -> Offset {
        match self {
            Cargo::Offset(offset) => *offset,
            Cargo::Publication(publication) => publication.offset,
            Cargo::None | Cargo::Load(_) => Offset::START,
        }
    }
}

impl Channels {
    /// Puts these channels in cluster mode. The cluster is not linked yet.
    pub fn in_cluster(mut self) -> Self {
        self.backends.has_cluster = true;
        self
    }

    /// Gives these channels a store, which keeps the logs of durable channels.
    pub fn with_store(mut self) -> Self {
        self.backends.has_store = true;
        self
    }

    /// Executes a request, which may have waited before, or returns what the caller has to do first.
    pub fn submit(&mut self, channel: &ChannelName, request: impl Into<WaitingRequest>, now_ms: u64) -> Submitted {
        let WaitingRequest { request, first_load } = request.into();
        if !self.backends.has_cluster && !self.backends.has_store {
            return Submitted::Done(self.execute(channel, request, now_ms));
        }
        let namespaces = Arc::clone(&self.namespaces);
        let options = match namespaces.resolve(channel) {
            Ok(options) => options,
            Err(error) => return Submitted::Done(self.refuse(channel, &request, error, now_ms)),
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

    /// Applies a log backend's report to the cache of a channel. A report about a channel whose log is in memory has no
    /// effect.
    pub fn apply(&mut self, channel: &ChannelName, event: BackendEvent, now_ms: u64) {
        let namespaces = Arc::clone(&self.namespaces);
        let Ok(options) = namespaces.resolve(channel) else { return };
        if self.backends.log_backend(channel, options) == LogBackend::Memory {
            return;
        }
        match event {
            BackendEvent::Ephemeral(payload) => self.handle_ephemeral(channel, &payload),
            BackendEvent::Appended(appended) => self.handle_appended(channel, options, appended, now_ms),
            BackendEvent::Advanced(top) => self.handle_advanced(channel, options, top, now_ms),
            BackendEvent::Subscribed => {
                let event = SyncEvent::Subscribed { has_log: options.has_history() };
                self.step(channel, options, event, Cargo::None, now_ms);
            }
            BackendEvent::Loaded(loaded) => self.handle_loaded(channel, options, loaded, now_ms),
        }
    }

    /// Removes and returns the commands for the cluster and the store, in order.
    pub fn backend_commands(&mut self) -> Vec<BackendCommand> {
        std::mem::take(&mut self.backends.commands)
    }

    /// Removes and returns the channels whose waiting requests can be submitted again.
    pub fn take_ready(&mut self) -> Vec<ChannelName> {
        std::mem::take(&mut self.backends.ready)
    }

    /// Whether the cache of a channel is up to date. A request that waits nevertheless is ahead of the cache.
    pub fn is_live(&self, channel: &str) -> bool {
        self.table.get(channel).is_some_and(|known| known.sync == SyncState::Live)
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

    /// Requests the log of a channel after an offset.
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
        let payload = DurablePublication::encode(publish, now_ms);
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
            self.is_repetition = true;
            return Submitted::Done(Response::Published(None));
        }
        if !key.is_empty() {
            self.idempotency.put(channel, key, None, now_ms);
        }
        // A cluster that cannot be reached returns it, after all that it has returned before.
        if self.backends.has_cluster {
            self.command(BackendCommand::Broadcast { channel: channel.clone(), payload });
        } else {
            // Without a cluster the node serves its own subscribers.
            self.handle_ephemeral(channel, &payload);
        }
        Submitted::Done(Response::Published(None))
    }

    /// Executes a request if the channel is live. Otherwise the request waits until the channel is live, together with
    /// the number of the first load that was requested after it.
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
        let (reach, unreachable) = match backend {
            LogBackend::Store => (LogReach::Store, Error::STORE_UNAVAILABLE),
            _ if self.backends.is_linked => (LogReach::Cluster, Error::CLUSTER_UNREACHABLE),
            _ if options.has_history() => (LogReach::Cut, Error::CLUSTER_UNREACHABLE),
            _ => (LogReach::Alone, Error::CLUSTER_UNREACHABLE),
        };
        if let Some(Channel { sync: SyncState::Failed, log: Some(log), .. }) = self.table.get(channel)
            && log.cache.retry_ms <= now_ms
        {
            self.step(channel, options, SyncEvent::RetryDue, Cargo::None, now_ms);
        }
        let state = self.table.get(channel).map(|known| known.sync).unwrap_or_default();
        let ahead =
            if state == SyncState::Live { self.ahead(channel, &request, first_load, now_ms) } else { Ahead::No };
        let (next, effects) = transition(state, SyncEvent::Requested(reach, ahead));
        if next != state {
            self.channel(channel, options, now_ms).sync = next;
        }
        for effect in effects {
            match effect {
                SyncEffect::Execute => return Submitted::Done(self.execute(channel, request, now_ms)),
                SyncEffect::Refuse => return Submitted::Done(Response::Refused(unreachable)),
                SyncEffect::Query => self.query_backend(channel, &request),
                effect => drop(self.perform(channel, options, *effect, &mut Cargo::None, now_ms)),
            }
        }
        Submitted::Wait(WaitingRequest { request, first_load: Some(first_load) })
    }

    /// Handles a publication that a log backend has appended.
    pub(super) fn handle_appended(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        new: Appended,
        now_ms: u64,
    ) {
        let Some(Channel { sync, log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        let top = log.ring.position();
        let arrival = match new.epoch {
            Some(epoch) if !top.epoch.can_be(&epoch) => Arrival::OfOtherEpoch,
            _ if new.offset <= top.offset => Arrival::Repeated,
            _ if new.previous > top.offset => Arrival::BehindGap,
            _ => Arrival::Next,
        };
        // The same as `step`, but without another lookup of the channel for every publication.
        let (next, effects) = transition(*sync, SyncEvent::Appended(arrival));
        *sync = next;
        self.perform_all(channel, options, effects, Cargo::Publication(new), now_ms);
    }

    /// Gives an event to a channel in the table, and executes the effects.
    pub(super) fn step(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        event: SyncEvent,
        cargo: Cargo,
        now_ms: u64,
    ) {
        let Some(known) = self.table.get_mut(channel) else { return };
        let (next, effects) = transition(known.sync, event);
        known.sync = next;
        self.perform_all(channel, options, effects, cargo, now_ms);
    }

    /// Executes effects in order, until one causes another event.
    fn perform_all(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        effects: &[SyncEffect],
        mut cargo: Cargo,
        now_ms: u64,
    ) {
        for effect in effects {
            if let Err(event) = self.perform(channel, options, *effect, &mut cargo, now_ms) {
                return self.step(channel, options, event, cargo, now_ms);
            }
        }
    }

    /// Executes one effect.
    ///
    /// # Errors
    /// The event that the effect causes. The remaining effects are skipped.
    fn perform(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        effect: SyncEffect,
        cargo: &mut Cargo,
        now_ms: u64,
    ) -> Result<(), SyncEvent> {
        match effect {
            // The caller handles the request.
            SyncEffect::Execute | SyncEffect::Wait | SyncEffect::Refuse | SyncEffect::Query => {}
            SyncEffect::Resume => self.make_ready(channel),
            SyncEffect::Follow => {
                self.command(BackendCommand::SetInterest { channel: channel.clone(), is_wanted: true })
            }
            SyncEffect::LoadAll => self.load(channel, Offset::START),
            SyncEffect::LoadGap => self.load_gap(channel),
            SyncEffect::LoadKept => self.load_kept(channel),
            SyncEffect::LoadNewest => self.load_newest(channel),
            SyncEffect::Check => self.check(channel),
            SyncEffect::Verify => self.verify(channel, cargo.offset()),
            SyncEffect::Append => return self.append_arrived(channel, options, cargo, now_ms),
            SyncEffect::Compare => return self.compare(channel, cargo),
            SyncEffect::NoteLoad => self.note_load(channel, cargo, now_ms),
            SyncEffect::Apply => return self.apply_load(channel, options, cargo, now_ms),
            SyncEffect::Replay => self.replay(channel, options, now_ms),
            SyncEffect::BeginRun => self.begin_run(channel, cargo.offset(), now_ms),
            SyncEffect::Break => self.break_subscriptions(channel),
            SyncEffect::ForgetUnused => self.forget_unsynchronized(channel),
            effect => self.note(channel, effect, cargo, now_ms),
        }
        Ok(())
    }

    /// Executes an effect that only changes the state of a cache.
    fn note(&mut self, channel: &ChannelName, effect: SyncEffect, cargo: &mut Cargo, now_ms: u64) {
        let Some(log) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) else { return };
        let cache = &mut log.cache;
        match effect {
            SyncEffect::EndQuery => cache.ahead = AheadQuery::None,
            SyncEffect::FailQuery => cache.ahead = AheadQuery::Failed(now_ms + LOAD_RETRY_MS),
            SyncEffect::EndVerification => cache.verification = Verification::default(),
            SyncEffect::Hold => {
                if let Cargo::Publication(new) = std::mem::replace(cargo, Cargo::None) {
                    cache.backlog.hold(new);
                }
            }
            SyncEffect::NoteTop => cache.backlog.top = cache.backlog.top.max(cargo.offset()),
            SyncEffect::DropBacklog => cache.backlog = Backlog::default(),
            SyncEffect::DropCache => {
                (cache.ahead, cache.verification) = (AheadQuery::None, Verification::default());
                cache.backlog = Backlog::default();
                log.ring = HistoryRing::new(Epoch::default());
            }
            SyncEffect::NoteSynced => cache.synced_ms = now_ms,
            SyncEffect::ScheduleRetry => cache.retry_ms = now_ms + LOAD_RETRY_MS,
            _ => {}
        }
    }

    /// Asks the subscribers of a channel to subscribe again.
    fn break_subscriptions(&mut self, channel: &ChannelName) {
        let Some(known) = self.table.get_mut(channel) else { return };
        deliver(&mut self.outgoing, known, ChannelEvent::Broken);
        known.is_broken = true;
        known.log.iter_mut().for_each(|log| log.cache.backlog = Backlog::default());
    }

    /// Forgets a channel that is not live and has no subscribers.
    pub(super) fn forget_unsynchronized(&mut self, channel: &ChannelName) {
        let is_unused = |known: &Channel| known.sync != SyncState::Live && known.subscribers.iter().all(|n| *n == 0);
        if self.table.get(channel).is_some_and(is_unused) {
            self.forget(channel);
        }
    }

    pub(super) fn make_ready(&mut self, channel: &ChannelName) {
        self.backends.ready.push(channel.clone());
    }

    fn handle_ephemeral(&mut self, channel: &ChannelName, payload: &[u8]) {
        let Some(known) = self.table.get_mut(channel) else { return };
        match stored::decode(payload) {
            Ok(StoredPayload::Publication { object, .. }) => {
                let publication = Publication::wrap(channel, object, None).excluding(stored::exclusion(payload));
                deliver_publication(&mut self.outgoing, known, Arc::new(publication));
            }
            Ok(StoredPayload::Clear(_)) => known.log.iter_mut().for_each(|log| log.ring.clear()),
            Err(unreadable) => self.command(BackendCommand::Unreadable { channel: channel.clone(), unreadable }),
        }
    }
}
