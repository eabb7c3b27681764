//! Nodes, the stream and subscribers, and what happens to them in a day.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_engine::channels::{BackendCommand, Submitted};
use touchline_engine::request::{Appended, BackendEvent, ChannelEvent, Publish, Recover, Subscribe, WaitingRequest};
use touchline_engine::{
    ChannelOptions, ChannelRequest, ChannelSettings, Channels, ConnectionId, Namespaces, RecoveryMode, Response,
};
use touchline_protocol::publication::Content;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset, RunId};
use touchline_registry::HashSeed;
use touchline_testkit::seeds::{SeededRandom, Trace};

use crate::stream::{Mark, SIZE, Stream, data_of};

const NODES: usize = 3;
const CHANNELS: [&str; 2] = ["one", "two"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    Away,
    Asked,
    Live,
}

pub(crate) struct Fan {
    channel: ChannelName,
    connection: ConnectionId,
    state: State,
    visits: u64,
    /// The last offset that the fan has; `None` = it was never subscribed.
    last: Option<u64>,
    epoch: Epoch,
    /// The publications that were stored since it subscribed, and that it has not received.
    due: Vec<u64>,
    /// Whether it received something wrong while no linked node could know that.
    is_deceived: bool,
}

/// A fan, and the number of its visit.
type Visit = (usize, u64);
/// When the load is served; the channel; the offset after which it reads, and its number; whether it is only a check.
type Asked = (u64, ChannelName, (u64, u64), bool);

pub(crate) struct Node {
    channels: Channels,
    is_linked: bool,
    /// The newest publication of the stream that the node knows, and its run.
    mark: Option<Mark>,
    run: u64,
    interests: Vec<ChannelName>,
    /// What arrives, in order: republished publications, and the server's echo.
    inbox: Vec<(u64, ChannelName, BackendEvent)>,
    /// The loads that are under way.
    loads: Vec<Asked>,
    /// Requests that wait until a channel is live, with the requesting fan and the number of its visit.
    waiting: BTreeMap<ChannelName, Vec<(WaitingRequest, Visit)>>,
    fans: Vec<Fan>,
    pub(crate) wrongs: [u64; 3],
}

pub(crate) struct World {
    pub(crate) random: SeededRandom,
    pub(crate) now_ms: u64,
    pub(crate) stream: Stream,
    pub(crate) nodes: Vec<Node>,
    pub(crate) is_calm: bool,
    pub(crate) published: u64,
    /// Whether the stream may be set back.
    pub(crate) loses: bool,
    pub(crate) has_lost: bool,
    /// A node came back when it was no longer known whether the stream has the last offset that the node knows.
    pub(crate) has_forgotten: bool,
    pub(crate) trace: Trace,
}

impl World {
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        let history =
            ChannelOptions { history_size: SIZE, history_ttl: Duration::from_secs(3_600), ..ChannelOptions::default() };
        let namespaces =
            Arc::new(Namespaces::new(ChannelSettings { without_namespace: history, ..ChannelSettings::default() }));
        let node = |number: u64| Node {
            channels: Channels::new(Arc::clone(&namespaces), 1, seed + number, HashSeed::repeatable(seed + number))
                .in_cluster()
                .counting_audiences(),
            is_linked: false,
            mark: None,
            run: 0,
            interests: Vec::new(),
            inbox: Vec::new(),
            loads: Vec::new(),
            waiting: BTreeMap::new(),
            fans: Vec::new(),
            wrongs: [0; 3],
        };
        let random = SeededRandom::new(seed);
        let mut world = World {
            random,
            now_ms: 1_000_000,
            stream: Stream::default(),
            nodes: (0..NODES as u64).map(node).collect(),
            is_calm: false,
            published: 0,
            loses: seed % 2 == 1,
            has_lost: false,
            has_forgotten: false,
            trace,
        };
        (0..NODES).for_each(|index| world.link(index, true));
        world
    }

    fn link(&mut self, index: usize, is_linked: bool) {
        let node = &mut self.nodes[index];
        if node.is_linked == is_linked {
            return;
        }
        node.is_linked = is_linked;
        self.trace.note(|| format!("{} node {index} is linked: {is_linked}", self.now_ms));
        if is_linked {
            self.open_stream(index);
        }
        let node = &mut self.nodes[index];
        if !is_linked {
            node.inbox.clear();
        }
        node.channels.set_linked(is_linked, self.now_ms);
        self.settle(index);
    }

    /// Opens the stream as a node does: if the stream lacks what the node knows of it, another run begins.
    fn open_stream(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.run != self.stream.run {
            (node.run, node.mark) = (self.stream.run, None);
        } else if self.stream.lacks(&node.mark) {
            self.begin_run(index);
        } else {
            self.has_forgotten |= self.has_lost && self.stream.may_lack(&node.mark);
        }
    }

    /// Begins another run. Linked nodes open the stream again.
    fn begin_run(&mut self, index: usize) {
        self.stream.run += 1;
        for other in 0..NODES {
            if other == index || self.nodes[other].is_linked {
                (self.nodes[other].run, self.nodes[other].mark) = (self.stream.run, None);
            }
            if other != index && self.nodes[other].is_linked {
                self.nodes[other].channels.set_linked(true, self.now_ms);
                self.settle(other);
            }
        }
    }

    fn note(&mut self, index: usize, sequence: u64, payload: Option<&Bytes>) {
        let mark = &mut self.nodes[index].mark;
        if mark.as_ref().is_none_or(|(known, _)| *known < sequence) {
            *mark = Some((sequence, payload.cloned()));
        }
    }

    /// Whether only nodes that are cut off know, or have known, that something is lost.
    fn is_loss_unknowable(&self) -> bool {
        let knows = |node: &Node| self.stream.lacks(&node.mark) || self.stream.may_lack(&node.mark);
        let is_away = |node: &Node| !node.is_linked && node.run == self.stream.run;
        self.has_forgotten || self.has_lost && self.nodes.iter().any(|node| is_away(node) && knows(node))
    }

    /// Handles that the cluster reports more publications than before.
    fn check(&mut self, index: usize) {
        self.nodes[index].channels.check_namespace(&"".into());
        self.settle(index);
    }

    fn publish(&mut self, index: usize, channel: &ChannelName) {
        self.published += 1;
        let content = Content { data: self.published.to_string().into(), ..Content::default() };
        let publish = ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() }));
        let outcome = self.nodes[index].channels.submit(channel, publish, self.now_ms);
        self.trace.note(|| format!("{} node {index} publishes to {channel}: {outcome:?}", self.now_ms));
        let Submitted::Append { payload, .. } = outcome else {
            assert!(!self.nodes[index].is_linked, "{outcome:?}");
            return;
        };
        let payload = Bytes::from(payload);
        self.stream.last += 1;
        self.note(index, self.stream.last, Some(&payload));
        let (offset, all) = (self.stream.last, self.stream.all.entry(channel.clone()).or_default());
        let previous = all.last().map_or(0, |(offset, _)| *offset);
        all.push((offset, payload.clone()));
        let data = self.published;
        let fans = self.nodes.iter_mut().flat_map(|node| &mut node.fans);
        fans.filter(|fan| fan.channel == *channel && fan.last.is_some()).for_each(|fan| fan.due.push(data));
        for node in &mut self.nodes {
            let is_lost = !self.is_calm && self.random.chance(8);
            if node.is_linked && node.interests.contains(channel) && !is_lost {
                let at_ms = node.inbox.last().map_or(0, |(at, ..)| *at).max(self.now_ms + self.random.below(40));
                node.inbox.push((
                    at_ms,
                    channel.clone(),
                    BackendEvent::Appended(Appended {
                        offset: Offset(offset),
                        previous: Offset(previous),
                        epoch: None,
                        payload: payload.clone(),
                    }),
                ));
            }
        }
    }

    /// A fan subscribes: for the first time, or again at the same node, or with the position that another node gave it.
    fn come(&mut self, index: usize, fan: usize) {
        if self.random.chance(40) {
            self.change_places(index, fan);
        }
        let known = &mut self.nodes[index].fans[fan];
        known.state = State::Asked;
        known.visits += 1;
        let visit = (fan, known.visits);
        let recover = known.last.map(|offset| Recover {
            offset: Offset(offset),
            epoch: known.epoch.as_str().into(),
            mode: RecoveryMode::Stream,
            limit: 1_000,
            size_max: usize::MAX,
        });
        let request = ChannelRequest::Subscribe(Box::new(Subscribe { connection: known.connection, recover }));
        self.submit(index, self.nodes[index].fans[fan].channel.clone(), request, visit);
        self.settle(index);
    }

    /// The stream is lost, and comes back in its state of some publications ago.
    fn set_back(&mut self) {
        (0..NODES).for_each(|index| self.link(index, false));
        let many = self.random.below(6);
        self.stream.set_back(many);
        for fan in self.nodes.iter_mut().flat_map(|node| &mut node.fans) {
            fan.due.retain(|due| self.stream.offset_of(&fan.channel, *due).is_some());
        }
    }

    /// Whether nothing is under way for a fan that is not subscribed.
    fn is_free(&self, index: usize, fan: usize) -> bool {
        let node = &self.nodes[index];
        node.fans[fan].state == State::Away && node.waiting.values().flatten().all(|(_, (asker, _))| *asker != fan)
    }

    /// A fan takes over the position of an absent fan of another node: it has moved there.
    fn change_places(&mut self, index: usize, fan: usize) {
        let other = (index + 1 + self.random.below(NODES as u64 - 1) as usize) % NODES;
        let channel = self.nodes[index].fans[fan].channel.clone();
        let is_other = |at: &usize| self.nodes[other].fans[*at].channel == channel && self.is_free(other, *at);
        let Some(at) = (0..self.nodes[other].fans.len()).find(is_other).filter(|_| self.is_free(index, fan)) else {
            return;
        };
        let (low, high) = self.nodes.split_at_mut(index.max(other));
        let (one, two) = (&mut low[index.min(other)].fans, &mut high[0].fans);
        let (one, two) = if index < other { (&mut one[fan], &mut two[at]) } else { (&mut one[at], &mut two[fan]) };
        std::mem::swap(&mut one.last, &mut two.last);
        std::mem::swap(&mut one.epoch, &mut two.epoch);
        std::mem::swap(&mut one.due, &mut two.due);
        std::mem::swap(&mut one.is_deceived, &mut two.is_deceived);
    }

    fn go(&mut self, index: usize, fan: usize) {
        let known = &mut self.nodes[index].fans[fan];
        let is_answered = known.state == State::Live;
        known.state = State::Away;
        let (request, visit) =
            (ChannelRequest::Unsubscribe { connection: known.connection, is_answered }, (fan, known.visits));
        self.submit(index, self.nodes[index].fans[fan].channel.clone(), request, visit);
        self.settle(index);
    }

    /// Does the same as a shard: requests to a channel that is not live yet wait, in order.
    fn submit(&mut self, index: usize, channel: ChannelName, request: impl Into<WaitingRequest>, visit: Visit) {
        let request = request.into();
        let is_loss_unknowable = self.is_loss_unknowable();
        let node = &mut self.nodes[index];
        if let Some(waiting) = node.waiting.get_mut(&channel) {
            return waiting.push((request, visit));
        }
        let recover = match request.request() {
            ChannelRequest::Subscribe(subscribe) => subscribe.recover.as_ref().map(|from| from.offset.0),
            _ => None,
        };
        let (fan, is_current) = (visit.0, node.fans[visit.0].visits == visit.1);
        self.trace.note(|| format!("{} node {index} {channel} {visit:?} asks {request:?}", self.now_ms));
        let outcome = node.channels.submit(&channel, request, self.now_ms);
        self.trace.note(|| format!("  {outcome:?}"));
        match outcome {
            Submitted::Wait(request) => node.waiting.entry(channel).or_default().push((request, visit)),
            // The fan has left since, and sends its unsubscribe next.
            Submitted::Done(Response::Subscribed(_)) if !is_current => {}
            Submitted::Done(Response::Subscribed(subscribed)) => {
                let top = subscribed.position.offset.0;
                let known = &mut node.fans[fan];
                // A node that is cut off serves what it has, although the stream may have lost it.
                let is_ignorant = !node.is_linked && self.has_lost;
                match subscribed.recovered {
                    Some(Some(found)) => {
                        let missed = self.stream.between(&channel, recover.unwrap_or_default(), top);
                        assert!(
                            is_ignorant || found.iter().map(|found| found.offset.0).eq(missed),
                            "recovered from {recover:?}"
                        );
                        let is_later = |due: &u64| self.stream.offset_of(&channel, *due) > Some(top);
                        known.due.retain(|due| !found.iter().any(|found| data_of(found.json()) == *due));
                        let overlooked = known.due.iter().find(|due| !is_later(due));
                        known.is_deceived |= overlooked.is_some() && is_loss_unknowable;
                        let is_fine = is_ignorant || known.is_deceived || overlooked.is_none();
                        assert!(is_fine, "recovered from {recover:?} without {overlooked:?}");
                    }
                    Some(None) => {
                        let missed = self.stream.between(&channel, recover.unwrap_or_default(), top);
                        let is_held = recover >= Some(self.stream.dropped());
                        let could_be_had =
                            is_held && missed.len() <= SIZE && known.epoch == self.stream.epoch() && !self.has_lost;
                        assert!(!could_be_had, "{missed:?} could be had");
                        known.due.retain(|due| self.stream.offset_of(&channel, *due) > Some(top));
                        known.is_deceived = false;
                    }
                    None => {}
                }
                if known.state == State::Asked {
                    (known.state, known.last, known.epoch) = (State::Live, Some(top), subscribed.position.epoch);
                }
            }
            Submitted::Done(Response::Refused(_)) => {
                node.wrongs[0] += 1;
                let known = &mut node.fans[fan];
                if is_current && known.state == State::Asked {
                    known.state = State::Away;
                }
            }
            Submitted::Done(_) => {}
            other => panic!("{other:?}"),
        }
        self.deliver(index);
    }

    fn deliver(&mut self, index: usize) {
        let is_loss_unknowable = self.is_loss_unknowable();
        let deliveries: Vec<_> = self.nodes[index].channels.deliveries().map(|(_, delivery)| delivery).collect();
        let mut broken = Vec::new();
        for delivery in deliveries {
            self.trace.note(|| format!("{} node {index} delivers {delivery:?}", self.now_ms));
            let node = &mut self.nodes[index];
            let fans = node
                .fans
                .iter_mut()
                .enumerate()
                .filter(|(_, fan)| fan.channel == delivery.channel && fan.state == State::Live);
            for (number, fan) in fans {
                match &delivery.event {
                    ChannelEvent::Publication { publication, .. } => {
                        let offset = publication.offset.0;
                        let due = self.stream.between(&fan.channel, fan.last.unwrap_or_default(), offset);
                        fan.is_deceived |= due != [offset] && is_loss_unknowable;
                        assert!(due == [offset] || fan.is_deceived, "{due:?} instead of {offset}");
                        fan.last = Some(offset);
                        fan.due.retain(|due| *due != data_of(publication.json()));
                        let overlooked =
                            fan.due.iter().find(|due| self.stream.offset_of(&fan.channel, **due) < Some(offset));
                        fan.is_deceived |= overlooked.is_some() && is_loss_unknowable;
                        assert!(
                            overlooked.is_none() || fan.is_deceived,
                            "{} came before {overlooked:?}",
                            publication.offset
                        );
                    }
                    ChannelEvent::Broken => broken.push(number),
                    ChannelEvent::Membership(_) => panic!("there are no join and leave events here"),
                }
            }
        }
        for fan in broken {
            self.nodes[index].wrongs[1] += 1;
            self.go(index, fan);
        }
    }

    /// Does the same as a shard: waiting requests are submitted again, and the cluster executes the channels' commands.
    fn settle(&mut self, index: usize) {
        self.deliver(index);
        loop {
            let ready = self.nodes[index].channels.take_ready();
            self.trace.note(|| format!("{} node {index} is ready: {ready:?}", self.now_ms));
            for channel in &ready {
                for (request, visit) in self.nodes[index].waiting.remove(channel).unwrap_or_default() {
                    self.submit(index, channel.clone(), request, visit);
                }
            }
            self.deliver(index);
            let mut is_new_run = false;
            let acts = self.nodes[index].channels.backend_commands();
            let node = &mut self.nodes[index];
            for act in acts {
                let delay_ms = self.random.below(60);
                self.trace.note(|| format!("{} node {index} wants {act:?}", self.now_ms));
                match act {
                    BackendCommand::SetInterest { channel, is_wanted: true } => {
                        node.interests.retain(|known| *known != channel);
                        node.interests.push(channel.clone());
                        let at_ms = node.inbox.last().map_or(0, |(at, ..)| *at).max(self.now_ms + delay_ms);
                        node.inbox.push((at_ms, channel, BackendEvent::Subscribed));
                    }
                    BackendCommand::LoadStored { .. } => unreachable!("nothing is durable here"),
                    BackendCommand::SetInterest { channel, is_wanted: false } => {
                        node.interests.retain(|known| *known != channel)
                    }
                    BackendCommand::Load { channel, load: LoadId { behind, number }, .. } => {
                        node.loads.push((self.now_ms + delay_ms, channel, (behind.0, number), false))
                    }
                    BackendCommand::Check { channel, load: LoadId { behind, number }, .. } => {
                        node.loads.push((self.now_ms + delay_ms, channel, (behind.0, number), true))
                    }
                    BackendCommand::BeginStreamRun { lost, .. } => is_new_run |= lost == RunId(self.stream.run),
                    BackendCommand::Broadcast { .. }
                    | BackendCommand::BeginRun { .. }
                    | BackendCommand::Unreadable { .. } => {
                        panic!("nothing of that is here")
                    }
                }
            }
            if is_new_run {
                self.begin_run(index);
                self.nodes[index].channels.set_linked(true, self.now_ms);
                continue;
            }
            if ready.is_empty() {
                return;
            }
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for index in 0..NODES {
            while self.nodes[index].inbox.first().is_some_and(|(at, ..)| *at <= self.now_ms) {
                let (_, channel, event) = self.nodes[index].inbox.remove(0);
                if let BackendEvent::Appended(stored) = &event {
                    self.note(index, stored.offset.0, Some(&stored.payload));
                }
                self.apply_incoming(index, &channel, event);
            }
            while let Some(at) = self.nodes[index].loads.iter().position(|(at, ..)| *at <= self.now_ms) {
                let (_, channel, (behind, number), is_check) = self.nodes[index].loads.swap_remove(at);
                let fails = !self.nodes[index].is_linked || !self.is_calm && self.random.chance(5);
                if is_check && (fails || self.stream.between(&channel, behind, u64::MAX).is_empty()) {
                    continue;
                }
                self.nodes[index].wrongs[2] += u64::from(fails);
                let loaded = (!fails).then(|| Box::new(self.stream.load(&channel, behind, number)));
                if let Some((sequence, payload)) = loaded.as_ref().and_then(|loaded| loaded.kept.last()) {
                    self.note(index, sequence.0, Some(payload));
                } else if !fails && self.stream.all.get(&channel).is_none_or(Vec::is_empty) {
                    self.note(index, self.stream.last, None);
                }
                self.apply_incoming(index, &channel, BackendEvent::Loaded(loaded));
            }
            self.nodes[index].channels.expire(self.now_ms);
            self.settle(index);
        }
    }

    fn apply_incoming(&mut self, index: usize, channel: &ChannelName, event: BackendEvent) {
        self.trace.note(|| format!("{} node {index} {channel} takes {event:?}", self.now_ms));
        self.nodes[index].channels.apply(channel, event, self.now_ms);
        self.settle(index);
    }

    pub(crate) fn disturb(&mut self) {
        let index = self.random.below(NODES as u64) as usize;
        let channel: ChannelName = CHANNELS[self.random.below(2) as usize].into();
        let fans = self.nodes[index].fans.len();
        let kind = self.random.below(100);
        self.trace.note(|| format!("{} disturbance {kind} of node {index}, {channel}", self.now_ms));
        match kind {
            0..45 => self.publish(index, &channel),
            45..60 if fans < 6 => {
                let connection = ConnectionId { shard: 0, slot: fans as u32, generation: 0 };
                self.nodes[index].fans.push(Fan {
                    channel,
                    connection,
                    state: State::Away,
                    visits: 0,
                    last: None,
                    epoch: Epoch::default(),
                    due: Vec::new(),
                    is_deceived: false,
                });
                self.come(index, fans);
            }
            45..85 if fans > 0 => {
                let fan = self.random.below(fans as u64) as usize;
                match self.nodes[index].fans[fan].state {
                    State::Away => self.come(index, fan),
                    _ => self.go(index, fan),
                }
            }
            85..88 => self.link(index, false),
            88..90 => self.check(index),
            90..99 => self.link(index, true),
            99 if self.loses => {
                self.has_lost = true;
                self.set_back();
            }
            _ => {}
        }
    }

    /// Notes what each node has in the end, in the node's own order.
    pub(crate) fn note_end(&mut self) {
        for node in &mut self.nodes {
            self.trace.note(|| format!("active {:?}", node.channels.active().collect::<Vec<_>>()));
            self.trace.note(|| format!("audiences {:?}", node.channels.take_subscriber_counts()));
        }
    }

    /// Everything works. All fans subscribe, and have everything in the end, although nothing is published any more.
    pub(crate) fn calm_down(&mut self) {
        self.is_calm = true;
        (0..NODES).for_each(|index| self.link(index, true));
        (0..20).for_each(|_| self.pass(50));
        // A fan may have to subscribe again, because a loss is found only now.
        for _ in 0..3 {
            for index in 0..NODES {
                for fan in 0..self.nodes[index].fans.len() {
                    if self.nodes[index].fans[fan].state == State::Away {
                        self.come(index, fan);
                    }
                }
            }
            (0..20).for_each(|_| self.pass(50));
            (0..NODES).for_each(|index| self.check(index));
            (0..20).for_each(|_| self.pass(50));
        }
        for (fan, node) in self.nodes.iter().flat_map(|node| node.fans.iter().map(move |fan| (fan, node))) {
            assert_eq!(fan.state, State::Live, "{} waits: {:?}", fan.channel, node.waiting);
            let missed = self.stream.between(&fan.channel, fan.last.expect("it was live"), u64::MAX);
            assert!(missed.is_empty(), "{}: {missed:?} did not come", fan.channel);
            assert!(!fan.is_deceived || self.has_forgotten, "{}: it was never told", fan.channel);
            assert!(fan.due.is_empty() || fan.is_deceived, "{}: {:?} did not come", fan.channel, fan.due);
        }
    }
}
