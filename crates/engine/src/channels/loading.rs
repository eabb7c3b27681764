//! What log backends report: publications that they have appended, and the log of a channel.
//!
//! A client may be ahead of this node's cache: another node gave it its position a moment ago. In that case the cache
//! does not answer for the log backend. The home queries the log backend, with one query per channel at a time, and all
//! requests that are ahead wait for the result. Loads are numbered in the order in which they are requested. A load
//! that was requested before a client's request arrived says nothing about that request.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Publication;
use touchline_protocol::publication::LogPosition;
use touchline_protocol::stored::{self, StoredPayload};
use touchline_protocol::stream::{ChannelName, Epoch, Offset};

use super::backend::{BackendCommand, LogBackend};
use super::cache::{AheadQuery, Verification};
use super::delivery::deliver_publication;
use super::replicated_log::{Cargo, LOAD_RETRY_MS};
use super::sync::{Ahead, LoadResult, SyncEvent, SyncState};
use super::table::{Channel, ChannelLog, Channels};
use crate::history::HistoryRing;
use crate::namespace::ChannelOptions;
use crate::request::{ChannelRequest, Loaded};

/// How long a log backend that has lost publications may take to begin a new epoch or run, milliseconds.
const RUN_CHANGE_TIMEOUT_MS: u64 = 10_000;

/// A cache that was without the link for less than `history_ttl` minus this time cannot have missed a publication that
/// has expired since, milliseconds. The margin is needed because loads take time and clocks differ.
const AGE_MARGIN_MS: u64 = 10_000;

/// Which run of the log backend has assigned the offset of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssigningRun {
    /// The current run of the log backend.
    Current,
    /// One of the runs that the load listed.
    Any,
}

impl Channels {
    /// Checks what the log backend has from an offset on, because it contradicts the cache. One check runs at a time.
    pub(super) fn verify(&mut self, channel: &ChannelName, from: Offset) {
        let is_of_store = self.log_backend(channel) == LogBackend::Store;
        let Some(Channel { sync, log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        if log.cache.verification.load > 0 || *sync != SyncState::Live {
            log.cache.verification.next = Some(log.cache.verification.next.map_or(from, |next| next.min(from)));
            return;
        }
        // The top of a channel in the cluster may be that of the whole stream.
        let top = if is_of_store { log.ring.position().offset } else { log.ring.newest().unwrap_or_default() };
        log.cache.verification = Verification { load: self.backends.next_load(), top, next: None };
        self.load(channel, from.previous());
    }

    /// Compares a publication at or below the cache's top. Either the cache has it already, or the log backend was
    /// restored to an earlier state and assigns offsets a second time.
    ///
    /// # Errors
    /// [`SyncEvent::Contradicted`] when the cache has another publication at that offset.
    pub(super) fn compare(&mut self, channel: &ChannelName, cargo: &Cargo) -> Result<(), SyncEvent> {
        let Cargo::Publication(new) = cargo else { return Ok(()) };
        let Some(log) = self.table.get(channel).and_then(|known| known.log.as_ref()) else { return Ok(()) };
        if contradicts(&log.ring, channel, new.offset, &new.payload) {
            return Err(SyncEvent::Contradicted);
        }
        if log.ring.get(new.offset).is_none() {
            self.verify(channel, new.offset);
        }
        Ok(())
    }

    /// Handles that the log backend has lost acknowledged publications from an offset on: asks it to begin a new run,
    /// and starts an empty cache.
    pub(super) fn begin_run(&mut self, channel: &ChannelName, first: Offset, now_ms: u64) {
        let backend = self.log_backend(channel);
        let Some(log) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) else { return };
        let epoch = log.ring.position().epoch;
        let lost = epoch.run_id();
        log.cache.ahead = AheadQuery::None;
        log.cache.verification = Verification::default();
        log.cache.lost = (epoch, now_ms + RUN_CHANGE_TIMEOUT_MS);
        log.cache.ended = Some((lost, first));
        log.ring = HistoryRing::new(Epoch::default());
        let command = match backend {
            LogBackend::Store => BackendCommand::BeginRun { channel: channel.clone(), lost, first },
            _ => BackendCommand::BeginStreamRun { namespace: self.namespaces.namespace_of(channel).into(), lost },
        };
        self.command(command);
    }

    /// Whether a request to a live channel is ahead of the cache. `first_load` is the number of the first load that was
    /// requested after the request arrived.
    pub(super) fn ahead(
        &mut self,
        channel: &ChannelName,
        request: &ChannelRequest,
        first_load: u64,
        now_ms: u64,
    ) -> Ahead {
        let Some(log) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) else { return Ahead::No };
        let Some((offset, epoch)) = request.position() else { return Ahead::No };
        let Some(ahead) = log.ring.ahead(offset, epoch) else { return Ahead::No };
        if log.cache.last_load >= first_load {
            // The log backend was read after the request arrived, and does not have the offset.
            return Ahead::No;
        }
        match &mut log.cache.ahead {
            AheadQuery::Asked { load, needed } => {
                if first_load <= *load {
                    *needed = (*needed).max(needed_offset(ahead));
                }
                Ahead::Asked
            }
            AheadQuery::Resting(until_ms) if now_ms < *until_ms => Ahead::Asked,
            AheadQuery::Failed(until_ms) if now_ms < *until_ms => Ahead::Failed,
            AheadQuery::None | AheadQuery::Resting(_) | AheadQuery::Failed(_) => Ahead::Unasked,
        }
    }

    /// Queries the log backend for everything after the cache's top.
    pub(super) fn query_backend(&mut self, channel: &ChannelName, request: &ChannelRequest) {
        let Some(log) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) else { return };
        let ahead = request.position().and_then(|(offset, epoch)| log.ring.ahead(offset, epoch));
        log.cache.ahead =
            AheadQuery::Asked { load: self.backends.next_load(), needed: ahead.map_or(Offset::END, needed_offset) };
        let top = log.ring.position().offset;
        self.load(channel, top);
    }

    /// Repeats the queries for requests that wait because the log backend did not have their offset.
    pub(super) fn end_resting(&mut self, now_ms: u64) {
        while let Some((until_ms, _)) = self.backends.resting.front()
            && *until_ms <= now_ms
            && let Some((_, channel)) = self.backends.resting.pop_front()
        {
            self.make_ready(&channel);
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
        let Some(Channel { log: Some(log), .. }) = self.table.get(channel) else { return };
        let (result, cargo) = match loaded {
            None if matches!(log.cache.ahead, AheadQuery::Asked { .. }) => (LoadResult::QueryFailed, Cargo::None),
            None => (LoadResult::Failed, Cargo::None),
            Some(loaded) => match self.first_lost(channel, &loaded) {
                Some(first) => (LoadResult::Lost, Cargo::Offset(first)),
                None => (self.judge(channel, &loaded, now_ms), Cargo::Load(loaded)),
            },
        };
        self.step(channel, options, SyncEvent::Loaded(result), cargo, now_ms);
    }

    /// The first offset at which, according to a load of this cache, the log backend has lost acknowledged
    /// publications; `None` = no loss is known.
    fn first_lost(&self, channel: &ChannelName, loaded: &Loaded) -> Option<Offset> {
        let log = self.table.get(channel)?.log.as_ref()?;
        let position = log.ring.position();
        if loaded.behind > position.offset || !position.epoch.has_same_channel_part(&loaded.epoch) {
            return None;
        }
        first_lost(channel, log, loaded, self.log_backend(channel) == LogBackend::Store)
    }

    /// How the home can use a load that shows no loss.
    fn judge(&self, channel: &ChannelName, loaded: &Loaded, now_ms: u64) -> LoadResult {
        let Some(known @ Channel { log: Some(log), .. }) = self.table.get(channel) else { return LoadResult::Stale };
        let position = log.ring.position();
        let is_watched = !known.is_broken && known.subscribers.iter().any(|count| *count > 0);
        if loaded.behind > position.offset {
            // An earlier cache of this channel requested the load, or another load has replaced the cache since.
            let is_query = matches!(log.cache.ahead, AheadQuery::Asked { load, .. } if loaded.number >= load);
            let is_check = log.cache.verification.load > 0 && loaded.number >= log.cache.verification.load;
            if is_query || is_check { LoadResult::StaleAwaited } else { LoadResult::Stale }
        } else if loaded.epoch == log.cache.lost.0 && now_ms < log.cache.lost.1 {
            // Positions of this epoch may belong to lost publications. The home does not trust them until there is a
            // new epoch.
            LoadResult::Distrusted
        } else if loaded.epoch != position.epoch && loaded.behind > Offset::START {
            // The load says nothing about publications up to the offset after which it begins.
            if is_watched { LoadResult::OfOtherLogWatched } else { LoadResult::OfOtherLog }
        } else if is_watched && self.is_new(log, loaded, now_ms) {
            LoadResult::Incomplete
        } else {
            LoadResult::Complete
        }
    }

    /// Whether a load belongs to another log than the cache, or publications between the cache and the load are gone.
    fn is_new(&self, log: &ChannelLog, loaded: &Loaded, now_ms: u64) -> bool {
        let position = log.ring.position();
        let synced_ms = log.cache.synced_ms;
        let is_young = now_ms.saturating_add(AGE_MARGIN_MS) < synced_ms.saturating_add(log.retention.ttl_ms);
        let is_gapless = loaded.is_aged && (is_young || synced_ms >= self.backends.linked_ms);
        loaded.epoch != position.epoch || loaded.floor > position.offset && !is_gapless
    }

    /// Notes that the log backend was read. If the load answers a query, the query is over.
    pub(super) fn note_load(&mut self, channel: &ChannelName, cargo: &Cargo, now_ms: u64) {
        let Cargo::Load(loaded) = cargo else { return };
        let Channels { table, backends, .. } = self;
        let Some(Channel { log: Some(log), .. }) = table.get_mut(channel) else { return };
        // No load has a higher number than the last one that was requested.
        log.cache.last_load = log.cache.last_load.max(loaded.number.min(backends.last_requested()));
        if let AheadQuery::Asked { load, needed } = log.cache.ahead
            && log.cache.last_load >= load
        {
            log.cache.ahead = AheadQuery::None;
            if needed > loaded.top.max(log.ring.position().offset) {
                log.cache.ahead = AheadQuery::Resting(now_ms + LOAD_RETRY_MS);
                backends.resting.push_back((now_ms + LOAD_RETRY_MS, channel.clone()));
            }
        }
    }

    /// Puts a load into the cache, and delivers the new publications.
    ///
    /// # Errors
    /// [`SyncEvent::Unreadable`] when a publication cannot be read.
    pub(super) fn apply_load(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        cargo: &mut Cargo,
        now_ms: u64,
    ) -> Result<(), SyncEvent> {
        let Cargo::Load(loaded) = std::mem::replace(cargo, Cargo::None) else { return Ok(()) };
        let Some(Channel { log: Some(log), .. }) = self.table.get(channel) else { return Ok(()) };
        let is_new = self.is_new(log, &loaded, now_ms);
        let Some(Channel { log: Some(log), is_broken, .. }) = self.table.get_mut(channel) else { return Ok(()) };
        *is_broken = false;
        let verification = std::mem::take(&mut log.cache.verification);
        if is_new {
            let first = loaded.kept.first().map_or(loaded.top, |(offset, _)| offset.previous());
            log.ring = HistoryRing::resume(loaded.epoch, loaded.floor.min(first), loaded.floor);
        }
        let mut runs = loaded.runs;
        log.cache.ended.iter().for_each(|(run, first)| runs.end_before(*run, *first));
        log.ring.set_runs(runs);
        log.cache.synced_ms = now_ms;
        for (offset, payload) in loaded.kept {
            self.append(channel, options, (offset, &payload), AssigningRun::Any, now_ms)?;
        }
        let Some(Channel { log: Some(log), .. }) = self.table.get_mut(channel) else { return Ok(()) };
        log.ring.raise(loaded.top);
        if loaded.number < verification.load {
            log.cache.verification = verification;
        } else if let Some(from) = verification.next {
            self.verify(channel, from);
        }
        Ok(())
    }

    /// Appends the publications that arrived while the log was loaded. They may be missing in the load.
    pub(super) fn replay(&mut self, channel: &ChannelName, options: &ChannelOptions, now_ms: u64) {
        let Some(Channel { log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        let backlog = std::mem::take(&mut log.cache.backlog);
        for new in backlog.waiting.into_values() {
            self.handle_appended(channel, options, new, now_ms);
        }
        self.catch_up_to(channel, options, backlog.top, now_ms);
    }

    /// Appends a publication that follows the cache's top.
    ///
    /// # Errors
    /// [`SyncEvent::Unreadable`] when the publication cannot be read.
    pub(super) fn append_arrived(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        cargo: &Cargo,
        now_ms: u64,
    ) -> Result<(), SyncEvent> {
        let Cargo::Publication(new) = cargo else { return Ok(()) };
        self.append(channel, options, (new.offset, &new.payload), AssigningRun::Current, now_ms)
    }

    /// Appends a publication after the cache's top. A publication that cannot be read is not skipped.
    ///
    /// # Errors
    /// [`SyncEvent::Unreadable`] when the publication cannot be read.
    fn append(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        (offset, payload): (Offset, &Bytes),
        origin: AssigningRun,
        now_ms: u64,
    ) -> Result<(), SyncEvent> {
        let content = match stored::decode(payload) {
            Ok(content) => content,
            Err(unreadable) => {
                self.command(BackendCommand::Unreadable { channel: channel.clone(), unreadable });
                return Err(SyncEvent::Unreadable);
            }
        };
        let Some(known) = self.table.get_mut(channel) else { return Ok(()) };
        let Some(log) = &mut known.log else { return Ok(()) };
        if offset <= log.ring.position().offset {
            return Ok(());
        }
        if origin == AssigningRun::Current {
            log.ring.note_run(offset);
        }
        let (time_ms, object) = match content {
            StoredPayload::Publication { time_ms, object } => (time_ms, object),
            StoredPayload::Clear(until) => {
                log.ring.clear_at(until, offset);
                return Ok(());
            }
        };
        let epoch = log.ring.position().epoch;
        let place = LogPosition { offset, epoch: epoch.as_str(), time_ms };
        let publication = Publication::wrap(channel, object, Some(place)).excluding(stored::exclusion(payload));
        let publication = Arc::new(publication);
        log.ring.trim(now_ms);
        log.ring.append(Arc::clone(&publication), options.history_size, time_ms.saturating_add(log.retention.ttl_ms));
        deliver_publication(&mut self.outgoing, known, publication);
        Ok(())
    }
}

/// The first offset at which a log backend has lost acknowledged publications: its log ends below the offset that was
/// known when the load was requested, or it has other publications than the cache. `None` = it has lost nothing.
fn first_lost(channel: &str, log: &ChannelLog, loaded: &Loaded, is_of_store: bool) -> Option<Offset> {
    let (ring, verification) = (&log.ring, log.cache.verification);
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
    // The top of a channel in the cluster may be that of the whole stream: only the top at the start of a check counts.
    let of_verification = if loaded.number >= verification.load { verification.top } else { Offset::START };
    let known = if is_of_store { loaded.behind.max(of_verification) } else { of_verification };
    (loaded.top < known).then_some(loaded.top + 1)
}

/// Whether a log backend has, at an offset up to the cache's top, a publication that the cache cannot have missed.
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
