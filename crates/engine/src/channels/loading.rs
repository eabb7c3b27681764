//! What log backends report: publications that they have appended, and the log of a channel.
//!
//! A client may be ahead of this node's cache: another node gave it its position a moment ago. The cache does not reply
//! for the log backend then. The home queries the log backend, with one query for a channel at a time, and all requests
//! that are ahead wait for its result. Loads are numbered in the order in which they are requested: a load that was
//! requested before a client's request came says nothing about that request.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Publication;
use touchline_protocol::publication::LogPosition;
use touchline_protocol::stored::{self, StoredPayload};
use touchline_protocol::stream::{ChannelName, Epoch, Offset};

use super::backend::LogBackend;
use super::replicated_log::{LOAD_RETRY_MS, Loading, SyncState};
use super::{BackendCommand, Channel, Channels, deliver, deliver_publication};
use crate::history::HistoryRing;
use crate::namespace::ChannelOptions;
use crate::request::{Appended, ChannelEvent, ChannelRequest, Loaded};

/// The greatest number of publications of a channel that wait behind a gap.
const BEHIND_GAP_MAX: usize = 10_000;

/// How long a log backend that has lost publications may take to begin a new epoch or run, milliseconds.
const RUN_CHANGE_TIMEOUT_MS: u64 = 10_000;

/// A cache without the link for less than `history_ttl` minus this time cannot have missed a publication that has
/// expired since, milliseconds. Loads take time, and clocks differ.
const AGE_MARGIN_MS: u64 = 10_000;

/// A query to a log backend because of a client that is ahead of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AheadQuery {
    /// The log backend was not queried.

    #[default]
    None,
    /// The result is awaited.
    Asked {
        /// The number of the load that is the result; any later load is one as well.
        load: u64,
        /// The highest offset that a request needs, as of [`HistoryRing::ahead`]; `u64::MAX` = a run is not known here.
        needed: Offset,
    },
    /// The log backend did not have the offset. It is not queried again before this time, Unix milliseconds; requests
    /// that are ahead wait meanwhile.
    Resting(u64),
    /// The load failed. The log backend is not queried again before this time, Unix milliseconds.
    Failed(u64),
}

/// A check of a log backend because of something that contradicts the cache: the backend may have been restored to an
/// earlier state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verification {
    /// The number of the load that is the check; any later load is one as well; 0 = no check is under way.
    pub(super) load: u64,
    /// The offset that the log backend had when the check began, and still has if it has lost nothing.
    pub(super) top: Offset,
    /// After this check another one is needed, from this offset on; `None` = no other.
    pub(super) next: Option<Offset>,
}

impl Channels {
    /// Checks what the log backend has from an offset on, because it contradicts the cache. One check at a time.
    pub(super) fn verify(&mut self, channel: &ChannelName, from: Offset) {
        let is_of_store = self.log_backend(channel) == LogBackend::Store;
        let Some(Channel { sync, log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        if log.verification.load > 0 || !matches!(sync, SyncState::Live) {
            log.verification.next = Some(log.verification.next.map_or(from, |next| next.min(from)));
            return;
        }
        // The top of a cluster's channel may be that of its stream.
        let top = if is_of_store { log.ring.position().offset } else { log.ring.newest().unwrap_or_default() };
        log.verification = Verification { load: self.backends.next_load(), top, next: None };
        self.load(channel, from.previous());
    }

    /// Handles a publication at or below the cache's top: the cache has it already, or the log backend was restored to
    /// an earlier state and assigns offsets a second time.
    fn handle_repeated(&mut self, channel: &ChannelName, new: &Appended, now_ms: u64) {
        let Some(log) = self.table.get(channel).and_then(|known| known.log.as_ref()) else { return };
        if contradicts(&log.ring, channel, new.offset, &new.payload) {
            self.begin_next_run(channel, new.offset, now_ms);
        } else if log.ring.get(new.offset).is_none() {
            self.verify(channel, new.offset);
        }
    }

    /// The log backend has lost acknowledged publications from an offset on: the subscribers subscribe anew, and the
    /// cache is loaded anew.
    fn begin_next_run(&mut self, channel: &ChannelName, first: Offset, now_ms: u64) {
        if let Some(log) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) {
            let position = log.ring.position();
            let run = position.epoch.run_id();
            log.ahead = AheadQuery::None;
            log.verification = Verification::default();
            log.lost = (position.epoch, now_ms + RUN_CHANGE_TIMEOUT_MS);
            log.ended = Some((run, first));
            log.ring = HistoryRing::new(Epoch::default());
            self.command(match self.log_backend(channel) {
                LogBackend::Store => BackendCommand::BeginRun { channel: channel.clone(), lost: run, first },
                _ => BackendCommand::BeginStreamRun {
                    namespace: self.namespaces.namespace_of(channel).into(),
                    lost: run,
                },
            });
        }
        self.detach(channel, SyncState::Idle);
    }

    /// The query that a request to a live channel has to wait for; `None` = the cache can reply. [`AheadQuery::None`] =
    /// the log backend has to be queried. `first_load` is the first load that was requested after the request came.
    pub(super) fn ahead_query(
        &mut self,
        channel: &ChannelName,
        request: &ChannelRequest,
        first_load: u64,
        now_ms: u64,
    ) -> Option<AheadQuery> {
        let log = self.table.get_mut(channel)?.log.as_mut()?;
        let (offset, epoch) = request.position()?;
        let ahead = log.ring.ahead(offset, epoch)?;
        if log.last_load >= first_load {
            // The log backend was read since the request came, and does not have the offset.
            return None;
        }
        match &mut log.ahead {
            AheadQuery::Asked { load, needed } => {
                if first_load <= *load {
                    *needed = (*needed).max(needed_offset(ahead));
                }
                Some(log.ahead)
            }
            AheadQuery::Resting(until_ms) | AheadQuery::Failed(until_ms) if now_ms < *until_ms => Some(log.ahead),
            _ => Some(AheadQuery::None),
        }
    }

    /// Queries the log backend for what is behind the cache's top.
    pub(super) fn query_backend(&mut self, channel: &ChannelName, request: &ChannelRequest) {
        let Some(log) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) else { return };
        let ahead = request.position().and_then(|(offset, epoch)| log.ring.ahead(offset, epoch));
        log.ahead =
            AheadQuery::Asked { load: self.backends.next_load(), needed: ahead.map_or(Offset::END, needed_offset) };
        let top = log.ring.position().offset;
        self.load(channel, top);
    }

    /// Repeats the queries whose requests wait since the log backend did not have the offset.
    pub(super) fn end_resting(&mut self, now_ms: u64) {
        while let Some((until_ms, _)) = self.backends.resting.front()
            && *until_ms <= now_ms
            && let Some((_, channel)) = self.backends.resting.pop_front()
        {
            self.make_ready(&channel);
        }
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
        match sync {
            SyncState::Live if new.epoch.is_some_and(|epoch| !top.epoch.can_be(&epoch)) => {
                self.detach(channel, SyncState::Idle)
            }
            SyncState::Live if new.offset <= top.offset => self.handle_repeated(channel, &new, now_ms),
            SyncState::Live if new.previous > top.offset => {
                *sync =
                    SyncState::Loading(Loading { waiting: BTreeMap::from([(new.offset, new)]), top: Offset::START });
                self.load(channel, top.offset);
            }
            SyncState::Live => {
                log.ring.note_run(new.offset);
                self.append_or_fail(channel, options, new.offset, &new.payload, now_ms);
            }
            SyncState::Loading(loading) if loading.waiting.len() < BEHIND_GAP_MAX => {
                drop(loading.waiting.insert(new.offset, new))
            }
            // There is no room for it: a later load brings it.
            SyncState::Loading(loading) => loading.top = loading.top.max(new.offset),
            SyncState::Subscribing | SyncState::Idle | SyncState::Failed(_) => {}
        }
    }

    /// Handles a load: the whole log of a new channel, the publications of a gap, or the result of a query. `None` =
    /// the load failed.
    pub(super) fn handle_loaded(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        loaded: Option<Box<Loaded>>,
        now_ms: u64,
    ) {
        let Some(Channel { sync, log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        let mut none = Loading::default();
        let loading = match sync {
            SyncState::Loading(loading) => loading,
            // A second load, because the link came back, or because of a query: it may contain more than the first.
            SyncState::Live if loaded.is_some() => &mut none,
            SyncState::Live if matches!(log.ahead, AheadQuery::Asked { .. }) => {
                log.ahead = AheadQuery::Failed(now_ms + LOAD_RETRY_MS);
                log.verification = Verification::default();
                self.make_ready(channel);
                return;
            }
            SyncState::Live => {
                // Whether it was the check or another load: the next contradiction is checked.
                log.verification = Verification::default();
                return;
            }
            _ => return,
        };
        if loaded.as_ref().is_some_and(|loaded| loaded.behind > log.ring.position().offset) {
            // An earlier cache of this channel requested it; the load that this cache requested is under way.
            return;
        }
        let Loading { waiting, top: advanced } = std::mem::take(loading);
        let Some(loaded) = loaded else {
            // The load failed. Subscribers must subscribe anew, and requests that wait are refused: none gets a wrong
            // reply.
            self.detach(channel, SyncState::Failed(now_ms + LOAD_RETRY_MS));
            return;
        };
        if self.apply_load(channel, options, *loaded, now_ms) {
            for new in waiting.into_values() {
                self.handle_appended(channel, options, new, now_ms);
            }
            // What came meanwhile may be missing in the load.
            self.catch_up_to(channel, advanced);
        }
    }

    /// Applies a load to the cache. Returns whether the cache is live afterwards.
    fn apply_load(&mut self, channel: &ChannelName, options: &ChannelOptions, loaded: Loaded, now_ms: u64) -> bool {
        let is_of_store = self.log_backend(channel) == LogBackend::Store;
        let Some(known) = self.table.get_mut(channel) else { return false };
        let Some(log) = &mut known.log else { return false };
        let position = log.ring.position();
        let is_same_epoch = position.epoch == loaded.epoch;
        if position.epoch.has_same_channel_part(&loaded.epoch)
            && let Some(first) = first_lost(channel, log, &loaded, is_of_store)
        {
            self.begin_next_run(channel, first, now_ms);
            return false;
        }
        if loaded.epoch == log.lost.0 && now_ms < log.lost.1 {
            // Positions of this epoch may be of what is lost: the home does not trust them before the next epoch.
            self.detach(channel, SyncState::Failed(now_ms + LOAD_RETRY_MS));
            return false;
        }
        // Another stream, or publications between the cache and the load are gone.
        let is_young = now_ms.saturating_add(AGE_MARGIN_MS) < log.synced_ms.saturating_add(log.retention.ttl_ms);
        let is_gapless = loaded.is_aged && (is_young || log.synced_ms >= self.backends.linked_ms);
        let is_new = !is_same_epoch || loaded.floor > position.offset && !is_gapless;
        if !is_same_epoch && loaded.behind > Offset::START {
            // The load began behind an offset of another epoch or run, which says nothing about this one.
            self.reload(channel);
            return false;
        }
        // No load has a higher number than the last one that was requested.
        log.last_load = log.last_load.max(loaded.number.min(self.backends.last_requested()));
        if let AheadQuery::Asked { load, needed } = log.ahead
            && log.last_load >= load
        {
            log.ahead = AheadQuery::None;
            if needed > loaded.top.max(position.offset) {
                log.ahead = AheadQuery::Resting(now_ms + LOAD_RETRY_MS);
                self.backends.resting.push_back((now_ms + LOAD_RETRY_MS, channel.clone()));
            }
        }
        let has_subscribers = !known.is_broken && known.subscribers.iter().any(|n| *n > 0);
        let verification = std::mem::take(&mut log.verification);
        if has_subscribers && is_new {
            log.ahead = AheadQuery::None;
            self.detach(channel, SyncState::Idle);
            return false;
        }
        known.is_broken = false;
        if is_new {
            let first = loaded.kept.first().map_or(loaded.top, |(offset, _)| offset.previous());
            log.ring = HistoryRing::resume(loaded.epoch, loaded.floor.min(first), loaded.floor);
        }
        let mut runs = loaded.runs;
        log.ended.iter().for_each(|(run, first)| runs.end_before(*run, *first));
        log.ring.set_runs(runs);
        known.sync = SyncState::Live;
        log.synced_ms = now_ms;
        for (offset, payload) in loaded.kept {
            if !self.append_or_fail(channel, options, offset, &payload, now_ms) {
                return false;
            }
        }
        if let Some(log) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) {
            log.ring.raise(loaded.top);
            if loaded.number < verification.load {
                log.verification = verification;
            } else if let Some(from) = verification.next {
                self.verify(channel, from);
            }
        }
        self.make_ready(channel);
        true
    }

    /// The cache is of another epoch or run. If it has subscribers, they are told to subscribe anew; else it is loaded
    /// from the beginning.
    fn reload(&mut self, channel: &ChannelName) {
        let Some(known) = self.table.get_mut(channel) else { return };
        let Some(log) = &mut known.log else { return };
        log.ahead = AheadQuery::None;
        log.verification = Verification::default();
        log.ring = HistoryRing::new(Epoch::default());
        if !known.is_broken && known.subscribers.iter().any(|n| *n > 0) {
            self.detach(channel, SyncState::Idle);
        } else {
            known.sync = SyncState::Loading(Loading::default());
            self.load(channel, Offset::START);
        }
    }

    /// Gives the cache of a channel up: its subscribers subscribe anew.
    fn detach(&mut self, channel: &ChannelName, sync: SyncState) {
        self.make_ready(channel);
        let has_failed = matches!(sync, SyncState::Failed(_));
        if let Some(known) = self.table.get_mut(channel) {
            deliver(&mut self.outgoing, known, ChannelEvent::Broken);
            known.sync = sync;
            known.is_broken = true;
        }
        if !has_failed {
            self.forget_unsynchronized(channel);
        }
    }

    /// Appends a publication behind the cache's top. A publication that cannot be read is not skipped: the channel
    /// fails then.
    fn append_or_fail(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        offset: Offset,
        payload: &Bytes,
        now_ms: u64,
    ) -> bool {
        match stored::decode(payload) {
            Ok(read) => self.append(channel, options, offset, read, now_ms),
            Err(unreadable) => {
                self.command(BackendCommand::Unreadable { channel: channel.clone(), unreadable });
                self.detach(channel, SyncState::Failed(now_ms + LOAD_RETRY_MS));
                return false;
            }
        }
        true
    }

    fn append(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        offset: Offset,
        payload: StoredPayload<'_>,
        now_ms: u64,
    ) {
        let Some(known) = self.table.get_mut(channel) else { return };
        let Some(log) = &mut known.log else { return };
        if offset <= log.ring.position().offset {
            return;
        }
        let (time_ms, object) = match payload {
            StoredPayload::Publication { time_ms, object } => (time_ms, object),
            StoredPayload::Clear(until) => return log.ring.clear_at(until, offset),
        };
        let epoch = log.ring.position().epoch;
        let place = LogPosition { offset, epoch: epoch.as_str(), time_ms };
        let publication = Arc::new(Publication::wrap(channel, object, Some(place)));
        log.ring.trim(now_ms);
        log.ring.append(Arc::clone(&publication), options.history_size, time_ms.saturating_add(log.retention.ttl_ms));
        deliver_publication(&mut self.outgoing, known, publication);
    }
}

/// The first offset at which a log backend has lost what it had acknowledged: its log ends below the offset that was
/// known when the load was requested, or it has other publications than the cache. `None` = it has lost nothing.
fn first_lost(channel: &str, log: &super::ChannelLog, loaded: &Loaded, is_of_store: bool) -> Option<Offset> {
    let (ring, verification) = (&log.ring, log.verification);
    let top = ring.position().offset;
    let mut here = loaded.kept.iter().take_while(|(offset, _)| *offset <= top);
    if let Some((other, _)) = here.find(|(offset, payload)| contradicts(ring, channel, *offset, payload)) {
        return Some(*other);
    }
    let is_there = |newest: Offset| {
        let is_it = |offset: Offset, payload: &[u8]| match stored::decode(payload) {
            Ok(StoredPayload::Clear(until)) => until >= newest,
            _ => offset == newest,
        };
        loaded.kept.iter().any(|(offset, payload)| is_it(*offset, payload))
    };
    let is_missing = |newest: &Offset| {
        *newest > loaded.floor && *newest <= loaded.top && *newest > loaded.behind && !is_there(*newest)
    };
    if let Some(newest) = ring.newest().filter(is_missing) {
        return Some(newest);
    }
    // The top of a cluster's channel may be that of its stream: only the top at the start of a check counts.
    let of_verification = if loaded.number >= verification.load { verification.top } else { Offset::START };
    let known = if is_of_store { loaded.behind.max(of_verification) } else { of_verification };
    (loaded.top < known).then_some(loaded.top + 1)
}

/// Whether a log backend has at an offset up to the cache's top a publication that the cache cannot have missed.
fn contradicts(ring: &HistoryRing, channel: &str, offset: Offset, payload: &[u8]) -> bool {
    let Ok(StoredPayload::Publication { time_ms, object }) = stored::decode(payload) else { return false };
    let epoch = ring.position().epoch;
    let place = LogPosition { offset, epoch: epoch.as_str(), time_ms };
    match ring.get(offset) {
        Some(here) => Publication::wrap(channel, object, Some(place)).json() != here.json(),
        None => !ring.has_dropped(offset),
    }
}

/// The offset that a request needs, from the result of [`HistoryRing::ahead`]; `u64::MAX` = it is not known.
fn needed_offset(ahead: Offset) -> Offset {
    if ahead == Offset::START { Offset::END } else { ahead }
}
