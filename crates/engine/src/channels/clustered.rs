//! Channels of a cluster. The cluster gives the order and keeps the history; a home is a cache of it for the subscribers of its node.
//!
//! A channel is *heard* before anybody subscribes: the home asks for interest, then (with history) for what is kept. Requests wait
//! meanwhile. A publication carries the offset before it, so a gap is seen at once and filled before anything behind it is delivered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::publication::Place;
use touchline_protocol::{Error, Publication, encode};

use super::{Channel, Channels, deliver};
use crate::history::HistoryRing;
use crate::namespace::ChannelOptions;
use crate::request::{ConnectionId, Event, Loaded, Position, Publish, Request, Response};

/// How long the cache of a channel without subscribers is kept, milliseconds.
pub(super) const UNUSED_MS: u64 = 10_000;
/// Publications that may wait behind a gap.
const BEHIND_GAP_MAX: usize = 10_000;

const PUBLICATION: u8 = b'P';
const CLEAR: u8 = b'C';

/// How far a node hears a channel.
#[derive(Debug, Default)]
pub(super) enum Hearing {
    /// Not at all, or the node is alone.
    #[default]
    None,
    /// Interest was asked for.
    Asked,
    /// What is kept was asked for. What comes in waits.
    Loading(BTreeMap<u64, (u64, Bytes)>),
    /// It is up to date.
    Heard,
}

/// What a home wants of the cluster.
#[derive(Debug)]
pub enum ClusterAct {
    /// To begin or end hearing a channel.
    Interest(Arc<str>, bool),
    /// To get what is kept of a channel, of a namespace, behind an offset.
    Load(Arc<str>, Arc<str>, u64),
    /// To pass something on to all nodes that hear the channel.
    Pass(Arc<str>, Vec<u8>),
}

/// What came of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The answer.
    Done(Response),
    /// It has to wait until the channel is heard: submit it again after [`Channels::take_ready`] names the channel.
    Wait(Request),
    /// The cluster must store it: namespace, payload, idempotency key.
    Store(Arc<str>, Vec<u8>, Box<str>),
    /// The cluster must drop what it keeps of the channel of this namespace.
    Purge(Arc<str>),
}

/// What channels know of the cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterSide {
    is_linked: bool,
    acts: Vec<ClusterAct>,
    ready: Vec<Arc<str>>,
    /// Subscribes that were refused lately; their sessions may have unsubscribed before they heard of it.
    refused: HashMap<(ConnectionId, Arc<str>), u64>,
}

impl Channels {
    /// The same as a part of a cluster, which is not linked yet.
    pub fn in_cluster(mut self) -> Self {
        self.cluster = Some(ClusterSide::default());
        self
    }

    /// Carries a request out, or says what the cluster has to do first.
    pub fn submit(&mut self, channel: &Arc<str>, request: Request, now_ms: u64) -> Outcome {
        if self.cluster.is_none() || channel.starts_with("$registry:") {
            return Outcome::Done(self.execute(channel, request, now_ms));
        }
        let namespaces = Arc::clone(&self.namespaces);
        let options = match namespaces.resolve(channel) {
            Ok(options) => options,
            Err(error) => return Outcome::Done(Response::Refused(error)),
        };
        let namespace: Arc<str> = namespaces.namespace_of(channel).into();
        match request {
            Request::Publish(publish) => self.publish_in_cluster(channel, options, namespace, &publish, now_ms),
            Request::HistoryRemove if options.has_history() => self.if_linked(|_| Outcome::Purge(namespace)),
            Request::Subscribe(ref subscribe) => {
                let connection = subscribe.connection;
                let outcome = self.once_heard(channel, options, request, now_ms);
                self.note_refusal(connection, channel, &outcome, now_ms);
                outcome
            }
            Request::Unsubscribe { connection, is_answered: false } if self.was_refused(connection, channel) => {
                Outcome::Done(Response::Done)
            }
            Request::History(_) if options.has_history() => self.once_heard(channel, options, request, now_ms),
            Request::Passing(payload) => self.take_passing(channel, &payload),
            Request::Stored { offset, previous, payload } => {
                self.take_stored(channel, options, &namespace, (offset, previous, payload), now_ms)
            }
            Request::Interested => self.take_interest(channel, options, namespace),
            Request::Loaded(loaded) => self.take_loaded(channel, options, loaded, now_ms),
            request => Outcome::Done(self.execute(channel, request, now_ms)),
        }
    }

    /// What the cluster has to do, in order.
    pub fn cluster_acts(&mut self) -> Vec<ClusterAct> {
        self.cluster.as_mut().map_or_else(Vec::new, |side| std::mem::take(&mut side.acts))
    }

    /// Channels whose waiting requests can be submitted again.
    pub fn take_ready(&mut self) -> Vec<Arc<str>> {
        self.cluster.as_mut().map_or_else(Vec::new, |side| std::mem::take(&mut side.ready))
    }

    /// The link to the cluster is there, or is gone. When it is back, every cache catches up.
    pub fn set_linked(&mut self, is_linked: bool) {
        let Some(side) = &mut self.cluster else { return };
        side.is_linked = is_linked;
        let namespaces = Arc::clone(&self.namespaces);
        for (name, channel) in &mut self.table {
            let namespace = || -> Arc<str> { namespaces.namespace_of(name).into() };
            let position = channel.history.as_ref().map(|stored| stored.ring.position());
            match (&mut channel.hearing, position, is_linked) {
                // What came meanwhile is asked for; so is what was under way when the link went.
                (hearing @ (Hearing::Heard | Hearing::Loading(_)), Some(position), true) => {
                    if matches!(hearing, Hearing::Heard) {
                        *hearing = Hearing::Loading(BTreeMap::new());
                    }
                    side.acts.push(ClusterAct::Load(Arc::clone(name), namespace(), position.offset));
                }
                (Hearing::Asked, Some(_), true) => side.acts.push(ClusterAct::Interest(Arc::clone(name), true)),
                (Hearing::Asked | Hearing::None, None, true) => {
                    channel.hearing = Hearing::Asked;
                    side.acts.push(ClusterAct::Interest(Arc::clone(name), true));
                }
                (Hearing::Heard, _, _) | (_, _, true) => {}
                // Whoever waits hears now that it can't be had.
                (_, _, false) => side.ready.push(Arc::clone(name)),
            }
        }
    }

    fn note_refusal(&mut self, connection: ConnectionId, channel: &Arc<str>, outcome: &Outcome, now_ms: u64) {
        let Some(side) = &mut self.cluster else { return };
        match outcome {
            Outcome::Done(Response::Refused(_)) => {
                side.refused.retain(|_, at_ms| now_ms < *at_ms + UNUSED_MS);
                side.refused.insert((connection, Arc::clone(channel)), now_ms);
            }
            Outcome::Done(_) if !side.refused.is_empty() => drop(side.refused.remove(&(connection, Arc::clone(channel)))),
            _ => {}
        }
    }

    fn was_refused(&mut self, connection: ConnectionId, channel: &Arc<str>) -> bool {
        self.cluster.as_mut().is_some_and(|side| side.refused.remove(&(connection, Arc::clone(channel))).is_some())
    }

    pub(super) fn forget(&mut self, name: &Arc<str>) {
        if self.table.remove(name).is_some()
            && let Some(side) = &mut self.cluster
        {
            side.acts.push(ClusterAct::Interest(Arc::clone(name), false));
        }
    }

    /// In a cluster: how long a cache outlives its last use.
    pub(super) fn unused_ttl_ms(&self, channel: &str) -> Option<u64> {
        (self.cluster.is_some() && !channel.starts_with("$registry:")).then_some(UNUSED_MS)
    }

    fn if_linked(&mut self, then: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        if self.cluster.as_ref().is_some_and(|side| side.is_linked) {
            then(self)
        } else {
            Outcome::Done(Response::Refused(Error::CLUSTER_UNREACHABLE))
        }
    }

    fn act(&mut self, act: ClusterAct) {
        if let Some(side) = &mut self.cluster {
            side.acts.push(act);
        }
    }

    fn publish_in_cluster(
        &mut self,
        channel: &Arc<str>,
        options: &ChannelOptions,
        namespace: Arc<str>,
        publish: &Publish,
        now_ms: u64,
    ) -> Outcome {
        let mut payload = vec![PUBLICATION];
        payload.extend_from_slice(&now_ms.to_le_bytes());
        encode::publication(&mut payload, &publish.content, None);
        if options.has_history() && !publish.skip_history {
            let key = publish.idempotency_key.clone();
            return self.if_linked(|_| Outcome::Store(namespace, payload, key));
        }
        let key = &publish.idempotency_key;
        if !key.is_empty() && self.idempotency.get(channel, key, now_ms).is_some() {
            return Outcome::Done(Response::Published(None));
        }
        if !key.is_empty() {
            self.idempotency.put(channel, key.clone(), None, now_ms);
        }
        if self.cluster.as_ref().is_some_and(|side| side.is_linked) {
            self.act(ClusterAct::Pass(Arc::clone(channel), payload));
        } else {
            // Cut off, a node serves its own subscribers.
            self.take_passing(channel, &payload);
        }
        Outcome::Done(Response::Published(None))
    }

    /// Carries a request out if the channel is heard; else it waits, and the channel is asked for.
    fn once_heard(&mut self, channel: &Arc<str>, options: &ChannelOptions, request: Request, now_ms: u64) -> Outcome {
        let is_linked = self.cluster.as_ref().is_some_and(|side| side.is_linked);
        let has_history = options.has_history();
        match self.table.get(channel).map(|known| &known.hearing) {
            Some(Hearing::Heard) => return Outcome::Done(self.execute(channel, request, now_ms)),
            _ if !is_linked && has_history => {
                self.forget_unheard(channel);
                return Outcome::Done(Response::Refused(Error::CLUSTER_UNREACHABLE));
            }
            // Without the cluster a channel that keeps nothing is this node's alone, until the link is there.
            _ if !is_linked => return Outcome::Done(self.execute(channel, request, now_ms)),
            Some(Hearing::Asked | Hearing::Loading(_)) => {}
            Some(Hearing::None) | None => {
                self.channel(channel, options, now_ms).hearing = Hearing::Asked;
                self.act(ClusterAct::Interest(Arc::clone(channel), true));
            }
        }
        Outcome::Wait(request)
    }

    /// Gives up a channel that was asked for and that nobody has.
    fn forget_unheard(&mut self, channel: &Arc<str>) {
        let is_unheard = |known: &Channel| !matches!(known.hearing, Hearing::Heard) && known.listeners.iter().all(|n| *n == 0);
        if self.table.get(channel).is_some_and(is_unheard) {
            self.forget(channel);
        }
    }

    fn take_interest(&mut self, channel: &Arc<str>, options: &ChannelOptions, namespace: Arc<str>) -> Outcome {
        let Some(known) = self.table.get_mut(channel) else { return Outcome::Done(Response::Done) };
        if matches!(known.hearing, Hearing::Asked) {
            if options.has_history() {
                known.hearing = Hearing::Loading(BTreeMap::new());
                self.act(ClusterAct::Load(Arc::clone(channel), namespace, 0));
            } else {
                known.hearing = Hearing::Heard;
                self.make_ready(channel);
            }
        }
        Outcome::Done(Response::Done)
    }

    fn make_ready(&mut self, channel: &Arc<str>) {
        if let Some(side) = &mut self.cluster {
            side.ready.push(Arc::clone(channel));
        }
    }

    fn take_passing(&mut self, channel: &Arc<str>, payload: &[u8]) -> Outcome {
        let Some(known) = self.table.get_mut(channel) else { return Outcome::Done(Response::Done) };
        match parts(payload) {
            Some((_, object)) => {
                let publication = Publication::wrap(channel, object, None);
                deliver(&mut self.outgoing, known, Event::Publication(Arc::new(publication)));
            }
            None if payload.first() == Some(&CLEAR) => known.history.iter_mut().for_each(|stored| stored.ring.clear()),
            None => {}
        }
        Outcome::Done(Response::Done)
    }

    /// Tells all nodes that hear a channel to drop what they keep of it.
    pub fn pass_clear(&mut self, channel: &Arc<str>) {
        self.act(ClusterAct::Pass(Arc::clone(channel), vec![CLEAR]));
    }

    fn take_stored(
        &mut self,
        channel: &Arc<str>,
        options: &ChannelOptions,
        namespace: &Arc<str>,
        (offset, previous, payload): (u64, u64, Bytes),
        now_ms: u64,
    ) -> Outcome {
        let done = Outcome::Done(Response::Done);
        let Some(Channel { hearing, history: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let top = stored.ring.position().offset;
        match hearing {
            Hearing::Heard if offset <= top => {}
            Hearing::Heard if previous > top => {
                *hearing = Hearing::Loading(BTreeMap::from([(offset, (previous, payload))]));
                self.act(ClusterAct::Load(Arc::clone(channel), Arc::clone(namespace), top));
            }
            Hearing::Heard => self.append(channel, options, offset, &payload, now_ms),
            Hearing::Loading(waiting) if waiting.len() < BEHIND_GAP_MAX => drop(waiting.insert(offset, (previous, payload))),
            Hearing::Loading(_) | Hearing::Asked | Hearing::None => {}
        }
        done
    }

    /// Takes what the cluster keeps: the whole history of a new channel, or what fills a gap.
    fn take_loaded(&mut self, channel: &Arc<str>, options: &ChannelOptions, loaded: Option<Box<Loaded>>, now_ms: u64) -> Outcome {
        let done = Outcome::Done(Response::Done);
        let Some(Channel { hearing, history: Some(stored), .. }) = self.table.get_mut(channel) else { return done };
        let mut none = BTreeMap::new();
        let waiting = match hearing {
            Hearing::Loading(waiting) => waiting,
            // A second answer, to what was asked when the link came back: it may know more than the first.
            Hearing::Heard if loaded.is_some() => &mut none,
            _ => return done,
        };
        if loaded.as_ref().is_some_and(|loaded| loaded.behind > stored.ring.position().offset) {
            // Asked for by an earlier cache of this channel; what this one asked for is under way.
            return done;
        }
        let waiting = std::mem::take(waiting);
        let Some(loaded) = loaded else {
            // It can't be had now. Nobody is told anything wrong: who listens must begin anew, who waits is refused.
            self.break_off(channel);
            return done;
        };
        let top = stored.ring.position().offset;
        // Another stream, or publications are gone between what is here and what can be had.
        let is_new = stored.ring.position().epoch != loaded.epoch || loaded.floor > top;
        let has_listeners = self.table.get(channel).is_some_and(|known| !known.is_broken && known.listeners.iter().any(|n| *n > 0));
        if has_listeners && is_new {
            self.break_off(channel);
            return done;
        }
        let Some(Channel { hearing, history: Some(stored), is_broken, .. }) = self.table.get_mut(channel) else { return done };
        *is_broken = false;
        if is_new {
            let first = loaded.kept.first().map_or(loaded.top, |(offset, _)| offset - 1);
            stored.ring = HistoryRing::resume(loaded.epoch, loaded.floor.min(first), loaded.floor);
        }
        *hearing = Hearing::Heard;
        for (offset, payload) in loaded.kept {
            self.append(channel, options, offset, &payload, now_ms);
        }
        if let Some(stored) = self.table.get_mut(channel).and_then(|known| known.history.as_mut()) {
            stored.ring.raise(loaded.top);
        }
        self.make_ready(channel);
        let namespace: Arc<str> = self.namespaces.namespace_of(channel).into();
        for (offset, (previous, payload)) in waiting {
            self.take_stored(channel, options, &namespace, (offset, previous, payload), now_ms);
        }
        done
    }

    /// The channel's cache is worth nothing any more: its subscribers begin anew.
    fn break_off(&mut self, channel: &Arc<str>) {
        self.make_ready(channel);
        if let Some(known) = self.table.get_mut(channel) {
            deliver(&mut self.outgoing, known, Event::Broken);
            known.hearing = Hearing::None;
            known.is_broken = true;
        }
        self.forget_unheard(channel);
    }

    fn append(&mut self, channel: &Arc<str>, options: &ChannelOptions, offset: u64, payload: &Bytes, now_ms: u64) {
        let Some((time_ms, object)) = parts(payload) else { return };
        let Some(known) = self.table.get_mut(channel) else { return };
        let Some(stored) = &mut known.history else { return };
        if offset <= stored.ring.position().offset {
            return;
        }
        let epoch = stored.ring.position().epoch;
        let place = Place { offset, epoch: epoch.as_str(), time_ms };
        let publication = Arc::new(Publication::wrap(channel, object, Some(place)));
        stored.ring.trim(now_ms);
        stored.ring.append(Arc::clone(&publication), options.history_size, time_ms + stored.ttl_ms);
        deliver(&mut self.outgoing, known, Event::Publication(publication));
    }
}

/// When a payload was published, and its JSON object.
fn parts(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (kind, rest) = payload.split_first()?;
    let (time, object) = rest.split_first_chunk::<8>()?;
    (*kind == PUBLICATION && object.starts_with(b"{")).then_some((u64::from_le_bytes(*time), object))
}

/// The position of a publication that the cluster has stored.
pub fn stored_position(offset: u64, epoch: u64) -> Position {
    Position { offset, epoch: crate::request::Epoch::from_bits(epoch) }
}
