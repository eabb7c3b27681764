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
use touchline_protocol::publication::Place;

use super::elsewhere::{Hearing, Keeper, Loading, RETRY_MS};
use super::payload::{self, Payload};
use super::{Channel, Channels, KeeperAct, Outcome, deliver, give};
use crate::history::HistoryRing;
use crate::namespace::ChannelOptions;
use crate::request::{Epoch, Event, Loaded, Request, Response, Stored};

/// Publications that may wait behind a gap.
const BEHIND_GAP_MAX: usize = 10_000;

/// How long a log backend that has lost something is given to begin a new life or run, milliseconds.
const LOST_MS: u64 = 10_000;

/// How much less than `history_ttl` a cache may have been without the link to be sure that nothing has come and gone:
/// loads take time, and clocks differ.
const AGE_MARGIN_MS: u64 = 10_000;

/// What a log backend was asked because of a client that is ahead of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Question {
    /// Nothing.
    #[default]
    None,
    /// The answer is awaited.
    Asked {
        /// The number of the load that answers it, as any later one does.
        load: u64,
        /// The most of what is asked for, as of [`HistoryRing::ahead`]; where a run is not known here, the highest
        /// number.
        most: u64,
    },
    /// It did not have what was asked for. It is not asked again before this time, Unix milliseconds: whoever is ahead
    /// meanwhile waits.
    Rests(u64),
    /// It did not answer. It is not asked again before this time, Unix milliseconds.
    Failed(u64),
}

/// A look at a log backend because of something that contradicts the cache: it may have been set back to an earlier
/// state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    /// The number of the load that is it, as any later one is; 0 = none is under way.
    pub(super) load: u64,
    /// What the log backend had when it began, and has still if it has lost nothing.
    pub(super) top: u64,
    /// Another look is needed after it, from this offset on.
    pub(super) next: Option<u64>,
}

impl Channels {
    /// Looks at what the log backend has from an offset on, which contradicts what is here. One look at a time.
    pub(super) fn look(&mut self, channel: &Arc<str>, from: u64) {
        let is_of_store = self.keeper(channel) == Keeper::Store;
        let Some(Channel { hearing, history: Some(stored), .. }) = self.table.get_mut(channel) else { return };
        if stored.look.load > 0 || !matches!(hearing, Hearing::Heard) {
            stored.look.next = Some(stored.look.next.map_or(from, |next| next.min(from)));
            return;
        }
        // The top of a cluster's channel may be that of its stream.
        let top = if is_of_store { stored.ring.position().offset } else { stored.ring.newest().unwrap_or_default() };
        stored.look = Look { load: self.keepers.next_load(), top, next: None };
        self.load(channel, from.saturating_sub(1));
    }

    /// Takes a publication that is not behind the cache's top: it is here already, or the log backend was set back and
    /// gives offsets again.
    fn take_again(&mut self, channel: &Arc<str>, new: &Stored, now_ms: u64) {
        let Some(stored) = self.table.get(channel).and_then(|known| known.history.as_ref()) else { return };
        if contradicts(&stored.ring, channel, new.offset, &new.payload) {
            self.set_back(channel, new.offset, now_ms);
        } else if stored.ring.get(new.offset).is_none() {
            self.look(channel, new.offset);
        }
    }

    /// The log backend has lost what was acknowledged, from an offset on: subscribers begin anew, and so does the
    /// cache.
    fn set_back(&mut self, channel: &Arc<str>, first: u64, now_ms: u64) {
        if let Some(stored) = self.table.get_mut(channel).and_then(|known| known.history.as_mut()) {
            let position = stored.ring.position();
            let run = position.epoch.run_id();
            stored.question = Question::None;
            stored.look = Look::default();
            stored.lost = (position.epoch, now_ms + LOST_MS);
            stored.ended = Some((run, first));
            stored.ring = HistoryRing::new(Epoch::default());
            self.act(match self.keeper(channel) {
                Keeper::Store => KeeperAct::SetBack(Arc::clone(channel), run, first),
                _ => KeeperAct::StreamSetBack(self.namespaces.namespace_of(channel).into(), run),
            });
        }
        self.break_off(channel, Hearing::None);
    }

    /// What stands between a request and its answer, in a channel that is heard; none = the cache can answer.
    /// [`Question::None`] = the log backend has to be asked. `came` is the first load that was asked for after the
    /// request came.
    pub(super) fn question(
        &mut self,
        channel: &Arc<str>,
        request: &Request,
        came: u64,
        now_ms: u64,
    ) -> Option<Question> {
        let stored = self.table.get_mut(channel)?.history.as_mut()?;
        let (offset, epoch) = position_of(request)?;
        let ahead = stored.ring.ahead(offset, epoch)?;
        if stored.read >= came {
            // The log backend was read since then, and does not have it.
            return None;
        }
        match &mut stored.question {
            Question::Asked { load, most } => {
                if came <= *load {
                    *most = (*most).max(most_of(ahead));
                }
                Some(stored.question)
            }
            Question::Rests(until_ms) | Question::Failed(until_ms) if now_ms < *until_ms => Some(stored.question),
            _ => Some(Question::None),
        }
    }

    /// Asks what there is behind the cache.
    pub(super) fn ask(&mut self, channel: &Arc<str>, request: &Request) {
        let Some(stored) = self.table.get_mut(channel).and_then(|known| known.history.as_mut()) else { return };
        let ahead = position_of(request).and_then(|(offset, epoch)| stored.ring.ahead(offset, epoch));
        stored.question = Question::Asked { load: self.keepers.next_load(), most: ahead.map_or(u64::MAX, most_of) };
        let top = stored.ring.position().offset;
        self.load(channel, top);
    }

    /// Asks again where somebody waits for that since a denial.
    pub(super) fn end_rests(&mut self, now_ms: u64) {
        while let Some((until_ms, _)) = self.keepers.rests.front()
            && *until_ms <= now_ms
            && let Some((_, channel)) = self.keepers.rests.pop_front()
        {
            self.make_ready(&channel);
        }
    }

    /// Takes a publication that a log backend has stored.
    pub(super) fn take_stored(
        &mut self,
        channel: &Arc<str>,
        options: &ChannelOptions,
        new: Stored,
        now_ms: u64,
    ) -> Outcome {
        let done = Outcome::Done(Response::Done);
        let Some(Channel { hearing, history: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let top = stored.ring.position();
        match hearing {
            Hearing::Heard if new.epoch.is_some_and(|epoch| !top.epoch.can_be(&epoch)) => {
                self.break_off(channel, Hearing::None)
            }
            Hearing::Heard if new.offset <= top.offset => self.take_again(channel, &new, now_ms),
            Hearing::Heard if new.previous > top.offset => {
                *hearing = Hearing::Loading(Loading { waiting: BTreeMap::from([(new.offset, new)]), top: 0 });
                self.load(channel, top.offset);
            }
            Hearing::Heard => {
                stored.ring.note_run(new.offset);
                self.append_or_fail(channel, options, new.offset, &new.payload, now_ms);
            }
            Hearing::Loading(loading) if loading.waiting.len() < BEHIND_GAP_MAX => {
                drop(loading.waiting.insert(new.offset, new))
            }
            // There is no room for it: it is asked for.
            Hearing::Loading(loading) => loading.top = loading.top.max(new.offset),
            Hearing::Asked | Hearing::None | Hearing::Failed(_) => {}
        }
        done
    }

    /// Takes what the log backend keeps: the whole history of a new channel, what fills a gap, or the answer to a
    /// question.
    pub(super) fn take_loaded(
        &mut self,
        channel: &Arc<str>,
        options: &ChannelOptions,
        loaded: Option<Box<Loaded>>,
        now_ms: u64,
    ) -> Outcome {
        let done = Outcome::Done(Response::Done);
        let Some(Channel { hearing, history: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let mut none = Loading::default();
        let loading = match hearing {
            Hearing::Loading(loading) => loading,
            // A second answer, to what was asked when the link came back, or to a question: it may know more than the
            // first.
            Hearing::Heard if loaded.is_some() => &mut none,
            Hearing::Heard if matches!(stored.question, Question::Asked { .. }) => {
                stored.question = Question::Failed(now_ms + RETRY_MS);
                stored.look = Look::default();
                self.make_ready(channel);
                return done;
            }
            Hearing::Heard => {
                // Whether it was the look or another load: the next contradiction is looked at.
                stored.look = Look::default();
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
            self.break_off(channel, Hearing::Failed(now_ms + RETRY_MS));
            return done;
        };
        if self.put_in(channel, options, *loaded, now_ms) {
            for new in waiting.into_values() {
                self.take_stored(channel, options, new, now_ms);
            }
            // What has come meanwhile may not have been in what was read.
            return self.take_growth(channel, grown);
        }
        done
    }

    /// Makes what was loaded the cache, or a part of it; whether that is done.
    fn put_in(&mut self, channel: &Arc<str>, options: &ChannelOptions, loaded: Loaded, now_ms: u64) -> bool {
        let is_of_store = self.keeper(channel) == Keeper::Store;
        let Some(known) = self.table.get_mut(channel) else { return false };
        let Some(stored) = &mut known.history else { return false };
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
            self.break_off(channel, Hearing::Failed(now_ms + RETRY_MS));
            return false;
        }
        // Another stream, or publications are gone between what is here and what can be had.
        let is_young = now_ms.saturating_add(AGE_MARGIN_MS) < stored.sure_ms.saturating_add(stored.ttl_ms);
        let is_sure = loaded.is_aged && (is_young || stored.sure_ms >= self.keepers.linked_ms);
        let is_new = !is_same_epoch || loaded.floor > position.offset && !is_sure;
        if !is_same_epoch && loaded.behind > 0 {
            // It was asked behind an offset of another life or run, which says nothing of this one.
            self.begin_anew(channel);
            return false;
        }
        // Nothing was asked for behind the last one.
        stored.read = stored.read.max(loaded.number.min(self.keepers.asked()));
        if let Question::Asked { load, most } = stored.question
            && stored.read >= load
        {
            stored.question = Question::None;
            if most > loaded.top.max(position.offset) {
                stored.question = Question::Rests(now_ms + RETRY_MS);
                self.keepers.rests.push_back((now_ms + RETRY_MS, Arc::clone(channel)));
            }
        }
        let has_listeners = !known.is_broken && known.listeners.iter().any(|n| *n > 0);
        let look = std::mem::take(&mut stored.look);
        if has_listeners && is_new {
            stored.question = Question::None;
            self.break_off(channel, Hearing::None);
            return false;
        }
        known.is_broken = false;
        if is_new {
            let first = loaded.kept.first().map_or(loaded.top, |(offset, _)| offset - 1);
            stored.ring = HistoryRing::resume(loaded.epoch, loaded.floor.min(first), loaded.floor);
        }
        let mut runs = loaded.runs;
        stored.ended.iter().for_each(|(run, first)| runs.end_before(*run, *first));
        stored.ring.set_runs(runs);
        known.hearing = Hearing::Heard;
        stored.sure_ms = now_ms;
        for (offset, payload) in loaded.kept {
            if !self.append_or_fail(channel, options, offset, &payload, now_ms) {
                return false;
            }
        }
        if let Some(stored) = self.table.get_mut(channel).and_then(|known| known.history.as_mut()) {
            stored.ring.raise(loaded.top);
            if loaded.number < look.load {
                stored.look = look;
            } else if let Some(from) = look.next {
                self.look(channel, from);
            }
        }
        self.make_ready(channel);
        true
    }

    /// The cache is of another life or run. If it has subscribers, they are told to begin anew; else it is loaded from
    /// the beginning.
    fn begin_anew(&mut self, channel: &Arc<str>) {
        let Some(known) = self.table.get_mut(channel) else { return };
        let Some(stored) = &mut known.history else { return };
        stored.question = Question::None;
        stored.look = Look::default();
        stored.ring = HistoryRing::new(Epoch::default());
        if !known.is_broken && known.listeners.iter().any(|n| *n > 0) {
            self.break_off(channel, Hearing::None);
        } else {
            known.hearing = Hearing::Loading(Loading::default());
            self.load(channel, 0);
        }
    }

    /// The channel's cache is worth nothing any more: its subscribers begin anew.
    fn break_off(&mut self, channel: &Arc<str>, hearing: Hearing) {
        self.make_ready(channel);
        let has_failed = matches!(hearing, Hearing::Failed(_));
        if let Some(known) = self.table.get_mut(channel) {
            deliver(&mut self.outgoing, known, Event::Broken);
            known.hearing = hearing;
            known.is_broken = true;
        }
        if !has_failed {
            self.forget_unheard(channel);
        }
    }

    /// Appends a publication behind the cache's top. One that can't be read is not passed over: the channel can't be
    /// had then.
    fn append_or_fail(
        &mut self,
        channel: &Arc<str>,
        options: &ChannelOptions,
        offset: u64,
        payload: &Bytes,
        now_ms: u64,
    ) -> bool {
        match payload::read(payload) {
            Ok(read) => self.append(channel, options, offset, read, now_ms),
            Err(unreadable) => {
                self.act(KeeperAct::Unreadable(Arc::clone(channel), unreadable));
                self.break_off(channel, Hearing::Failed(now_ms + RETRY_MS));
                return false;
            }
        }
        true
    }

    fn append(&mut self, channel: &Arc<str>, options: &ChannelOptions, offset: u64, payload: Payload<'_>, now_ms: u64) {
        let Some(known) = self.table.get_mut(channel) else { return };
        let Some(stored) = &mut known.history else { return };
        if offset <= stored.ring.position().offset {
            return;
        }
        let (time_ms, object) = match payload {
            Payload::Publication(time_ms, object) => (time_ms, object),
            Payload::Clear(until) => return stored.ring.clear_at(until, offset),
        };
        let epoch = stored.ring.position().epoch;
        let place = Place { offset, epoch: epoch.as_str(), time_ms };
        let publication = Arc::new(Publication::wrap(channel, object, Some(place)));
        stored.ring.trim(now_ms);
        stored.ring.append(Arc::clone(&publication), options.history_size, time_ms.saturating_add(stored.ttl_ms));
        give(&mut self.outgoing, known, publication);
    }
}

/// The first offset at which a log backend has lost what it had acknowledged, if it has: it has less than there was
/// when it was asked, or something else than what is here.
fn first_of_others(channel: &str, stored: &super::Stored, loaded: &Loaded, is_of_store: bool) -> Option<u64> {
    let (ring, look) = (&stored.ring, stored.look);
    let top = ring.position().offset;
    let mut here = loaded.kept.iter().take_while(|(offset, _)| *offset <= top);
    if let Some((other, _)) = here.find(|(offset, payload)| contradicts(ring, channel, *offset, payload)) {
        return Some(*other);
    }
    let is_there = |newest: u64| {
        let is_it = |offset: u64, payload: &[u8]| match payload::read(payload) {
            Ok(Payload::Clear(until)) => until >= newest,
            _ => offset == newest,
        };
        loaded.kept.iter().any(|(offset, payload)| is_it(*offset, payload))
    };
    let is_missing =
        |newest: &u64| *newest > loaded.floor && *newest <= loaded.top && *newest > loaded.behind && !is_there(*newest);
    if let Some(newest) = ring.newest().filter(is_missing) {
        return Some(newest);
    }
    // The top of a cluster's channel may be that of its stream: only what a look began with counts.
    let of_look = if loaded.number >= look.load { look.top } else { 0 };
    let known = if is_of_store { loaded.behind.max(of_look) } else { of_look };
    (loaded.top < known).then_some(loaded.top + 1)
}

/// Whether a log backend says of an offset up to the cache's top what the cache can't have missed.
fn contradicts(ring: &HistoryRing, channel: &str, offset: u64, payload: &[u8]) -> bool {
    let Ok(Payload::Publication(time_ms, object)) = payload::read(payload) else { return false };
    let epoch = ring.position().epoch;
    let place = Place { offset, epoch: epoch.as_str(), time_ms };
    match ring.get(offset) {
        Some(here) => Publication::wrap(channel, object, Some(place)).json() != here.json(),
        None => !ring.has_let_go_of(offset),
    }
}

/// What is asked for by a position that is ahead, as of [`HistoryRing::ahead`].
fn most_of(ahead: u64) -> u64 {
    if ahead == 0 { u64::MAX } else { ahead }
}

/// The position that a request goes on from.
pub(super) fn position_of(request: &Request) -> Option<(u64, &str)> {
    match request {
        Request::Subscribe(subscribe) => subscribe.recover.as_ref().map(|from| (from.offset, &*from.epoch)),
        Request::History(history) => history.since.as_ref().map(|(offset, epoch)| (*offset, &**epoch)),
        _ => None,
    }
}
