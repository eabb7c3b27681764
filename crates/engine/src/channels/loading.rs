//! What log backends tell: publications that they have stored, and what they keep of a channel.
//!
//! A client may be ahead of this node's cache: another node gave it its position a moment ago. The cache never answers
//! for the log backend then; it asks, one question for a channel at a time, and everybody who is ahead waits for that
//! answer. Loads are numbered in the order in which they are asked for: one that was asked for before a request came
//! says nothing about what the request asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Publication;
use touchline_protocol::publication::LogPosition;
use touchline_protocol::stream::{ChannelName, Offset};

use super::backend::LogBackend;
use super::payload::{self, Payload};
use super::replicated::{LOAD_RETRY_MS, Loading, SyncState};
use super::{BackendCommand, Channel, Channels, Submitted, deliver, give};
use crate::history::HistoryRing;
use crate::namespace::ChannelOptions;
use crate::request::{Appended, ChannelEvent, Epoch, Loaded, Request, Response};

/// Publications that may wait behind a gap.
const BEHIND_GAP_MAX: usize = 10_000;

/// How long a log backend that has lost something is given to begin a new life or run, milliseconds.
const RUN_CHANGE_TIMEOUT_MS: u64 = 10_000;

/// How much less than `history_ttl` a cache may have been without the link to be sure that nothing has come and gone:
/// loads take time, and clocks differ.
const AGE_MARGIN_MS: u64 = 10_000;

/// What a log backend was asked because of a client that is ahead of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AheadQuery {
    /// Nothing.
    #[default]
    None,
    /// The answer is awaited.
    Asked {
        /// The number of the load that answers it, as any later one does.
        load: u64,
        /// The most of what is asked for, as of [`HistoryRing::ahead`]; where a run is not known here, the highest
        /// number.
        most: Offset,
    },
    /// It did not have what was asked for. It is not asked again before this time, Unix milliseconds: whoever is ahead
    /// meanwhile waits.
    Resting(u64),
    /// It did not answer. It is not asked again before this time, Unix milliseconds.
    Failed(u64),
}

/// A look at a log backend because of something that contradicts the cache: it may have been set back to an earlier
/// state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verification {
    /// The number of the load that is it, as any later one is; 0 = none is under way.
    pub(super) load: u64,
    /// What the log backend had when it began, and has still if it has lost nothing.
    pub(super) top: Offset,
    /// Another look is needed after it, from this offset on.
    pub(super) next: Option<Offset>,
}

impl Channels {
    /// Looks at what the log backend has from an offset on, which contradicts what is here. One look at a time.
    pub(super) fn verify(&mut self, channel: &ChannelName, from: Offset) {
        let is_of_store = self.log_backend(channel) == LogBackend::Store;
        let Some(Channel { sync: hearing, log: Some(stored), .. }) = self.table.get_mut(channel) else { return };
        if stored.verification.load > 0 || !matches!(hearing, SyncState::Live) {
            stored.verification.next = Some(stored.verification.next.map_or(from, |next| next.min(from)));
            return;
        }
        // The top of a cluster's channel may be that of its stream.
        let top = if is_of_store { stored.ring.position().offset } else { stored.ring.newest().unwrap_or_default() };
        stored.verification = Verification { load: self.backends.next_load(), top, next: None };
        self.load(channel, from.previous());
    }

    /// Takes a publication that is not behind the cache's top: it is here already, or the log backend was set back and
    /// gives offsets again.
    fn handle_repeated(&mut self, channel: &ChannelName, new: &Appended, now_ms: u64) {
        let Some(stored) = self.table.get(channel).and_then(|known| known.log.as_ref()) else { return };
        if contradicts(&stored.ring, channel, new.offset, &new.payload) {
            self.set_back(channel, new.offset, now_ms);
        } else if stored.ring.get(new.offset).is_none() {
            self.verify(channel, new.offset);
        }
    }

    /// The log backend has lost what was acknowledged, from an offset on: subscribers begin anew, and so does the
    /// cache.
    fn set_back(&mut self, channel: &ChannelName, first: Offset, now_ms: u64) {
        if let Some(stored) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) {
            let position = stored.ring.position();
            let run = position.epoch.run_id();
            stored.ahead = AheadQuery::None;
            stored.verification = Verification::default();
            stored.lost = (position.epoch, now_ms + RUN_CHANGE_TIMEOUT_MS);
            stored.ended = Some((run, first));
            stored.ring = HistoryRing::new(Epoch::default());
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

    /// What stands between a request and its answer, in a channel that is heard; none = the cache can answer.
    /// [`AheadQuery::None`] = the log backend has to be asked. `came` is the first load that was asked for after the
    /// request came.
    pub(super) fn question(
        &mut self,
        channel: &ChannelName,
        request: &Request,
        came: u64,
        now_ms: u64,
    ) -> Option<AheadQuery> {
        let stored = self.table.get_mut(channel)?.log.as_mut()?;
        let (offset, epoch) = position_of(request)?;
        let ahead = stored.ring.ahead(offset, epoch)?;
        if stored.last_load >= came {
            // The log backend was read since then, and does not have it.
            return None;
        }
        match &mut stored.ahead {
            AheadQuery::Asked { load, most } => {
                if came <= *load {
                    *most = (*most).max(most_of(ahead));
                }
                Some(stored.ahead)
            }
            AheadQuery::Resting(until_ms) | AheadQuery::Failed(until_ms) if now_ms < *until_ms => Some(stored.ahead),
            _ => Some(AheadQuery::None),
        }
    }

    /// Asks what there is behind the cache.
    pub(super) fn ask(&mut self, channel: &ChannelName, request: &Request) {
        let Some(stored) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) else { return };
        let ahead = position_of(request).and_then(|(offset, epoch)| stored.ring.ahead(offset, epoch));
        stored.ahead = AheadQuery::Asked { load: self.backends.next_load(), most: ahead.map_or(Offset::END, most_of) };
        let top = stored.ring.position().offset;
        self.load(channel, top);
    }

    /// Asks again where somebody waits for that since a denial.
    pub(super) fn end_rests(&mut self, now_ms: u64) {
        while let Some((until_ms, _)) = self.backends.rests.front()
            && *until_ms <= now_ms
            && let Some((_, channel)) = self.backends.rests.pop_front()
        {
            self.make_ready(&channel);
        }
    }

    /// Takes a publication that a log backend has stored.
    pub(super) fn handle_appended(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        new: Appended,
        now_ms: u64,
    ) -> Submitted {
        let done = Submitted::Done(Response::Done);
        let Some(Channel { sync: hearing, log: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let top = stored.ring.position();
        match hearing {
            SyncState::Live if new.epoch.is_some_and(|epoch| !top.epoch.can_be(&epoch)) => {
                self.detach(channel, SyncState::Idle)
            }
            SyncState::Live if new.offset <= top.offset => self.handle_repeated(channel, &new, now_ms),
            SyncState::Live if new.previous > top.offset => {
                *hearing =
                    SyncState::Loading(Loading { waiting: BTreeMap::from([(new.offset, new)]), top: Offset::START });
                self.load(channel, top.offset);
            }
            SyncState::Live => {
                stored.ring.note_run(new.offset);
                self.append_or_fail(channel, options, new.offset, &new.payload, now_ms);
            }
            SyncState::Loading(loading) if loading.waiting.len() < BEHIND_GAP_MAX => {
                drop(loading.waiting.insert(new.offset, new))
            }
            // There is no room for it: it is asked for.
            SyncState::Loading(loading) => loading.top = loading.top.max(new.offset),
            SyncState::Subscribing | SyncState::Idle | SyncState::Failed(_) => {}
        }
        done
    }

    /// Takes what the log backend keeps: the whole history of a new channel, what fills a gap, or the answer to a
    /// question.
    pub(super) fn handle_loaded(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        loaded: Option<Box<Loaded>>,
        now_ms: u64,
    ) -> Submitted {
        let done = Submitted::Done(Response::Done);
        let Some(Channel { sync: hearing, log: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let mut none = Loading::default();
        let loading = match hearing {
            SyncState::Loading(loading) => loading,
            // A second answer, to what was asked when the link came back, or to a question: it may know more than the
            // first.
            SyncState::Live if loaded.is_some() => &mut none,
            SyncState::Live if matches!(stored.ahead, AheadQuery::Asked { .. }) => {
                stored.ahead = AheadQuery::Failed(now_ms + LOAD_RETRY_MS);
                stored.verification = Verification::default();
                self.make_ready(channel);
                return done;
            }
            SyncState::Live => {
                // Whether it was the look or another load: the next contradiction is looked at.
                stored.verification = Verification::default();
                return done;
            }
            _ => return done,
        };
        if loaded.as_ref().is_some_and(|loaded| loaded.behind > stored.ring.position().offset) {
            // Asked for by an earlier cache of this channel; what this one asked for is under way.
            return done;
        }
        let Loading { waiting, top: grown } = std::mem::take(loading);
        let Some(loaded) = loaded else {
            // It can't be had now. Nobody is told anything wrong: who listens must begin anew, who waits is refused.
            self.detach(channel, SyncState::Failed(now_ms + LOAD_RETRY_MS));
            return done;
        };
        if self.put_in(channel, options, *loaded, now_ms) {
            for new in waiting.into_values() {
                self.handle_appended(channel, options, new, now_ms);
            }
            // What has come meanwhile may not have been in what was read.
            return self.catch_up_to(channel, grown);
        }
        done
    }

    /// Makes what was loaded the cache, or a part of it; whether that is done.
    fn put_in(&mut self, channel: &ChannelName, options: &ChannelOptions, loaded: Loaded, now_ms: u64) -> bool {
        let is_of_store = self.log_backend(channel) == LogBackend::Store;
        let Some(known) = self.table.get_mut(channel) else { return false };
        let Some(stored) = &mut known.log else { return false };
        let position = stored.ring.position();
        let is_same_epoch = position.epoch == loaded.epoch;
        if position.epoch.is_same_life(&loaded.epoch)
            && let Some(first) = first_of_others(channel, stored, &loaded, is_of_store)
        {
            self.set_back(channel, first, now_ms);
            return false;
        }
        if loaded.epoch == stored.lost.0 && now_ms < stored.lost.1 {
            // Positions of this life may be of what is lost: they are not believed before the next one.
            self.detach(channel, SyncState::Failed(now_ms + LOAD_RETRY_MS));
            return false;
        }
        // Another stream, or publications are gone between what is here and what can be had.
        let is_young = now_ms.saturating_add(AGE_MARGIN_MS) < stored.synced_ms.saturating_add(stored.retention.ttl_ms);
        let is_sure = loaded.is_aged && (is_young || stored.synced_ms >= self.backends.linked_ms);
        let is_new = !is_same_epoch || loaded.floor > position.offset && !is_sure;
        if !is_same_epoch && loaded.behind > Offset::START {
            // It was asked behind an offset of another life or run, which says nothing of this one.
            self.begin_anew(channel);
            return false;
        }
        // Nothing was asked for behind the last one.
        stored.last_load = stored.last_load.max(loaded.number.min(self.backends.asked()));
        if let AheadQuery::Asked { load, most } = stored.ahead
            && stored.last_load >= load
        {
            stored.ahead = AheadQuery::None;
            if most > loaded.top.max(position.offset) {
                stored.ahead = AheadQuery::Resting(now_ms + LOAD_RETRY_MS);
                self.backends.rests.push_back((now_ms + LOAD_RETRY_MS, channel.clone()));
            }
        }
        let has_listeners = !known.is_broken && known.listeners.iter().any(|n| *n > 0);
        let look = std::mem::take(&mut stored.verification);
        if has_listeners && is_new {
            stored.ahead = AheadQuery::None;
            self.detach(channel, SyncState::Idle);
            return false;
        }
        known.is_broken = false;
        if is_new {
            let first = loaded.kept.first().map_or(loaded.top, |(offset, _)| offset.previous());
            stored.ring = HistoryRing::resume(loaded.epoch, loaded.floor.min(first), loaded.floor);
        }
        let mut runs = loaded.runs;
        stored.ended.iter().for_each(|(run, first)| runs.end_before(*run, *first));
        stored.ring.set_runs(runs);
        known.sync = SyncState::Live;
        stored.synced_ms = now_ms;
        for (offset, payload) in loaded.kept {
            if !self.append_or_fail(channel, options, offset, &payload, now_ms) {
                return false;
            }
        }
        if let Some(stored) = self.table.get_mut(channel).and_then(|known| known.log.as_mut()) {
            stored.ring.raise(loaded.top);
            if loaded.number < look.load {
                stored.verification = look;
            } else if let Some(from) = look.next {
                self.verify(channel, from);
            }
        }
        self.make_ready(channel);
        true
    }

    /// The cache is of another life or run. If it has subscribers, they are told to begin anew; else it is loaded from
    /// the beginning.
    fn begin_anew(&mut self, channel: &ChannelName) {
        let Some(known) = self.table.get_mut(channel) else { return };
        let Some(stored) = &mut known.log else { return };
        stored.ahead = AheadQuery::None;
        stored.verification = Verification::default();
        stored.ring = HistoryRing::new(Epoch::default());
        if !known.is_broken && known.listeners.iter().any(|n| *n > 0) {
            self.detach(channel, SyncState::Idle);
        } else {
            known.sync = SyncState::Loading(Loading::default());
            self.load(channel, Offset::START);
        }
    }

    /// The channel's cache is worth nothing any more: its subscribers begin anew.
    fn detach(&mut self, channel: &ChannelName, hearing: SyncState) {
        self.make_ready(channel);
        let has_failed = matches!(hearing, SyncState::Failed(_));
        if let Some(known) = self.table.get_mut(channel) {
            deliver(&mut self.outgoing, known, ChannelEvent::Broken);
            known.sync = hearing;
            known.is_broken = true;
        }
        if !has_failed {
            self.forget_unsynchronized(channel);
        }
    }

    /// Appends a publication behind the cache's top. One that can't be read is not passed over: the channel can't be
    /// had then.
    fn append_or_fail(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        offset: Offset,
        payload: &Bytes,
        now_ms: u64,
    ) -> bool {
        match payload::read(payload) {
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
        payload: Payload<'_>,
        now_ms: u64,
    ) {
        let Some(known) = self.table.get_mut(channel) else { return };
        let Some(stored) = &mut known.log else { return };
        if offset <= stored.ring.position().offset {
            return;
        }
        let (time_ms, object) = match payload {
            Payload::Publication(time_ms, object) => (time_ms, object),
            Payload::Clear(until) => return stored.ring.clear_at(until, offset),
        };
        let epoch = stored.ring.position().epoch;
        let place = LogPosition { offset, epoch: epoch.as_str(), time_ms };
        let publication = Arc::new(Publication::wrap(channel, object, Some(place)));
        stored.ring.trim(now_ms);
        stored.ring.append(
            Arc::clone(&publication),
            options.history_size,
            time_ms.saturating_add(stored.retention.ttl_ms),
        );
        give(&mut self.outgoing, known, publication);
    }
}

/// The first offset at which a log backend has lost what it had acknowledged, if it has: it has less than there was
/// when it was asked, or something else than what is here.
fn first_of_others(channel: &str, stored: &super::ChannelLog, loaded: &Loaded, is_of_store: bool) -> Option<Offset> {
    let (ring, look) = (&stored.ring, stored.verification);
    let top = ring.position().offset;
    let mut here = loaded.kept.iter().take_while(|(offset, _)| *offset <= top);
    if let Some((other, _)) = here.find(|(offset, payload)| contradicts(ring, channel, *offset, payload)) {
        return Some(*other);
    }
    let is_there = |newest: Offset| {
        let is_it = |offset: Offset, payload: &[u8]| match payload::read(payload) {
            Ok(Payload::Clear(until)) => until >= newest,
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
    // The top of a cluster's channel may be that of its stream: only what a look began with counts.
    let of_look = if loaded.number >= look.load { look.top } else { Offset::START };
    let known = if is_of_store { loaded.behind.max(of_look) } else { of_look };
    (loaded.top < known).then_some(loaded.top + 1)
}

/// Whether a log backend says of an offset up to the cache's top what the cache can't have missed.
fn contradicts(ring: &HistoryRing, channel: &str, offset: Offset, payload: &[u8]) -> bool {
    let Ok(Payload::Publication(time_ms, object)) = payload::read(payload) else { return false };
    let epoch = ring.position().epoch;
    let place = LogPosition { offset, epoch: epoch.as_str(), time_ms };
    match ring.get(offset) {
        Some(here) => Publication::wrap(channel, object, Some(place)).json() != here.json(),
        None => !ring.has_let_go_of(offset),
    }
}

/// What is asked for by a position that is ahead, as of [`HistoryRing::ahead`].
fn most_of(ahead: Offset) -> Offset {
    if ahead == Offset::START { Offset::END } else { ahead }
}

/// The position that a request goes on from.
pub(super) fn position_of(request: &Request) -> Option<(Offset, &str)> {
    match request {
        Request::Subscribe(subscribe) => subscribe.recover.as_ref().map(|from| (from.offset, &*from.epoch)),
        Request::History(history) => history.since.as_ref().map(|since| (since.offset, &*since.epoch)),
        _ => None,
    }
}
