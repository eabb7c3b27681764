//! What log backends tell: publications that they have stored, and what they keep of a channel.
//!
//! A client may be ahead of this node's cache: another node gave it its position a moment ago. The cache never answers for the log backend
//! then; it asks, one question for a channel at a time, and everybody who is ahead waits for that answer.

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
use crate::request::{Event, Loaded, Request, Response, Stored};

/// Publications that may wait behind a gap.
const BEHIND_GAP_MAX: usize = 10_000;

/// What a log backend was asked because of a client that is ahead of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Question {
    /// Nothing.
    #[default]
    None,
    /// The answer is awaited; the least of what is asked for, as of [`HistoryRing::ahead`].
    Asked(u64),
    /// It does not have this. It is not asked for that or more again before this time, Unix milliseconds.
    Denied(u64, u64),
    /// It did not answer. It is not asked again before this time, Unix milliseconds.
    Failed(u64),
}

impl Question {
    /// Whether it was answered a moment ago that something is not there. What another position lacks is another question: it may have been
    /// stored since.
    pub(super) fn denies(&self, ahead: u64, now_ms: u64) -> bool {
        matches!(*self, Question::Denied(denied, until_ms) if now_ms < until_ms && (ahead == denied || denied > 0 && ahead > denied))
    }
}

impl Channels {
    /// What stands between a request and its answer, in a channel that is heard; none = the cache can answer. [`Question::None`] = the log
    /// backend has to be asked.
    pub(super) fn question(&mut self, channel: &Arc<str>, request: &Request, now_ms: u64) -> Option<Question> {
        let stored = self.table.get_mut(channel)?.history.as_mut()?;
        let (offset, epoch) = position_of(request)?;
        let ahead = stored.ring.ahead(offset, epoch)?;
        match &mut stored.question {
            denied @ Question::Denied(..) if denied.denies(ahead, now_ms) => None,
            Question::Asked(least) => {
                *least = ahead.min(*least);
                Some(Question::Asked(*least))
            }
            Question::Failed(until_ms) if now_ms < *until_ms => Some(stored.question),
            _ => Some(Question::None),
        }
    }

    /// Asks what there is behind the cache.
    pub(super) fn ask(&mut self, channel: &Arc<str>, request: &Request) {
        let Some(stored) = self.table.get_mut(channel).and_then(|known| known.history.as_mut()) else { return };
        let ahead = position_of(request).and_then(|(offset, epoch)| stored.ring.ahead(offset, epoch));
        stored.question = Question::Asked(ahead.unwrap_or_default());
        let top = stored.ring.position().offset;
        self.load(channel, top);
    }

    /// Takes a publication that a log backend has stored.
    pub(super) fn take_stored(&mut self, channel: &Arc<str>, options: &ChannelOptions, new: Stored, now_ms: u64) -> Outcome {
        let done = Outcome::Done(Response::Done);
        let Some(Channel { hearing, history: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let top = stored.ring.position();
        match hearing {
            Hearing::Heard if new.epoch.is_some_and(|epoch| epoch != top.epoch) => self.break_off(channel, Hearing::None),
            Hearing::Heard if new.offset <= top.offset => {}
            Hearing::Heard if new.previous > top.offset => {
                *hearing = Hearing::Loading(Loading { waiting: BTreeMap::from([(new.offset, new)]), top: 0 });
                self.load(channel, top.offset);
            }
            Hearing::Heard => {
                stored.ring.note_run(new.offset);
                self.append_or_fail(channel, options, new.offset, &new.payload, now_ms);
            }
            Hearing::Loading(loading) if loading.waiting.len() < BEHIND_GAP_MAX => drop(loading.waiting.insert(new.offset, new)),
            // There is no room for it: it is asked for.
            Hearing::Loading(loading) => loading.top = loading.top.max(new.offset),
            Hearing::Asked | Hearing::None | Hearing::Failed(_) => {}
        }
        done
    }

    /// Takes what the log backend keeps: the whole history of a new channel, what fills a gap, or the answer to a question.
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
            // A second answer, to what was asked when the link came back, or to a question: it may know more than the first.
            Hearing::Heard if loaded.is_some() => &mut none,
            Hearing::Heard if matches!(stored.question, Question::Asked(_)) => {
                stored.question = Question::Failed(now_ms + RETRY_MS);
                self.make_ready(channel);
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
        // It was told to be on disk, and is not there.
        let is_set_back = is_of_store && is_same_epoch && loaded.top < loaded.behind;
        // Another stream, or publications are gone between what is here and what can be had.
        let is_new = !is_same_epoch || loaded.floor > position.offset || is_set_back;
        if is_set_back && let Some((_, run)) = loaded.runs.known.last() {
            self.act(KeeperAct::SetBack(*run));
        }
        let Some(known) = self.table.get_mut(channel) else { return false };
        let Some(stored) = &mut known.history else { return false };
        if let Question::Asked(least) = std::mem::take(&mut stored.question)
            && (least == 0 || least > loaded.top)
        {
            stored.question = Question::Denied(least, now_ms + RETRY_MS);
        }
        let has_listeners = !known.is_broken && known.listeners.iter().any(|n| *n > 0);
        if is_set_back || has_listeners && is_new {
            stored.question = Question::None;
            self.break_off(channel, Hearing::None);
            return false;
        }
        known.is_broken = false;
        if is_new {
            let first = loaded.kept.first().map_or(loaded.top, |(offset, _)| offset - 1);
            stored.ring = HistoryRing::resume(loaded.epoch, loaded.floor.min(first), loaded.floor);
        }
        stored.ring.set_runs(loaded.runs);
        known.hearing = Hearing::Heard;
        for (offset, payload) in loaded.kept {
            if !self.append_or_fail(channel, options, offset, &payload, now_ms) {
                return false;
            }
        }
        if let Some(stored) = self.table.get_mut(channel).and_then(|known| known.history.as_mut()) {
            stored.ring.raise(loaded.top);
        }
        self.make_ready(channel);
        true
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

    /// Appends a publication behind the cache's top. One that can't be read is not passed over: the channel can't be had then.
    fn append_or_fail(&mut self, channel: &Arc<str>, options: &ChannelOptions, offset: u64, payload: &Bytes, now_ms: u64) -> bool {
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

/// The position that a request goes on from.
fn position_of(request: &Request) -> Option<(u64, &str)> {
    match request {
        Request::Subscribe(subscribe) => subscribe.recover.as_ref().map(|from| (from.offset, &*from.epoch)),
        Request::History(history) => history.since.as_ref().map(|(offset, epoch)| (*offset, &**epoch)),
        _ => None,
    }
}
