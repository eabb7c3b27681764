//! A simulated day of a cluster: what happens to the nodes, and what has to hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use touchline_engine::bans::Ban;
use touchline_engine::channels::{BackendCommand, Submitted, removal};
use touchline_engine::request::{ChannelEvent, Publish, Recover, Subscribe, WaitingRequest};
use touchline_engine::{
    ChannelOptions, ChannelRequest, ChannelSettings, Namespace, Namespaces, RecoveryMode, Response,
};
use touchline_protocol::Error;
use touchline_protocol::fact::FactChange;
use touchline_protocol::publication::Content;
use touchline_protocol::stream::ChannelName;
use touchline_testkit::seeds::{SeededRandom, Trace};

use super::fan::{FanState, Visit};
use super::nats::SimulatedNats;
use super::node::{Outcome, Outcomes, ROOM, START_MS, SimulatedNode, shown};
use super::reports::Reports;
use super::store::{SimulatedStore, StoreNotice, StoreRequest};
use super::time;
use super::truth::{between, lacking, number_of};

pub(super) const KEPT: [&str; 2] = ["kept:one", "kept:two"];
pub(super) const DURABLE: [&str; 2] = ["durable:one", "durable:two"];
pub(super) const PASSING: [&str; 2] = ["passing:one", "passing:two"];
pub(super) const NAMES: [&str; 4] = ["bike", "car", "door", "phone"];
pub(super) const USERS: [&str; 3] = ["u1", "u2", "u3"];
/// The number of publications that a channel keeps.
pub(super) const SIZE: usize = 8;
/// The step of the time, milliseconds.
const STEP_MS: u64 = 5;
/// The step of the time when all is quiet, milliseconds.
const CALM_STEP_MS: u64 = 20;
/// The longest time that a caller waits for the result of a publication, milliseconds.
const APPEND_LIMIT_MS: u64 = 5_500;
/// The longest time that a caller waits for the change of a ban or the removal of a history, milliseconds.
pub(super) const CHANGE_LIMIT_MS: u64 = 10_500;
/// The most bytes by which the last message exceeds the limit of those that wait.
const LAST_MESSAGE: usize = 8 << 10;

/// A publication, a removal or a change whose result is awaited.
pub(super) struct Awaited {
    node: u64,
    due_ms: u64,
    what: What,
}

pub(super) enum What {
    Publication { channel: ChannelName, data: u64 },
    Ban(usize, bool),
    Removal,
}

pub(super) struct ClusterDay {
    pub(super) random: SeededRandom,
    pub(super) now_ms: u64,
    pub(super) nats: SimulatedNats,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) nodes: Vec<Option<SimulatedNode>>,
    pub(super) numbers: Vec<u64>,
    pub(super) started: u64,
    pub(super) replicas: usize,
    pub(super) seed: u64,
    pub(super) store: SimulatedStore,
    pub(super) reports: Reports,
    pub(super) outcomes: Outcomes,
    pub(super) awaited: BTreeMap<u64, Awaited>,
    pub(super) requests: u64,
    pub(super) published: u64,
    /// The acknowledged publications: the channel, the data, the offset.
    pub(super) stored: Vec<(ChannelName, u64, u64)>,
    /// The last change of the ban of each user: whether it is banned, and whether that was acknowledged.
    pub(super) bans: [(bool, bool); USERS.len()],
    /// When a link was blocked in a direction.
    pub(super) blocked_ms: Vec<Option<u64>>,
    pub(super) node_timeout_ms: u64,
    /// Whether JetStream may lose what it has acknowledged.
    pub(super) loses: bool,
    pub(super) has_lost: bool,
    pub(super) is_calm: bool,
    pub(super) seen: [u64; 6],
    pub(super) trace: Trace,
}

pub(super) const KINDS: [(&str, u64); 6] = [
    ("lost links", 2),
    ("unknown publications", 10),
    ("refused publications", 20),
    ("broken subscriptions", 50),
    ("nodes that died", 5),
    ("unknown changes of bans", 20),
];

impl ClusterDay {
    pub(super) fn new(seed: u64, trace: Trace) -> Self {
        time::begin();
        let mut random = SeededRandom::new(seed);
        let kept =
            ChannelOptions { history_size: SIZE, history_ttl: Duration::from_secs(3_600), ..ChannelOptions::default() };
        let durable = ChannelOptions { durable: true, ..kept.clone() };
        let of = |name: &str, options| Namespace { name: name.into(), options };
        let namespaces = vec![of("kept", kept), of("passing", ChannelOptions::default()), of("durable", durable)];
        let namespaces = Arc::new(Namespaces::new(ChannelSettings { namespaces, ..ChannelSettings::default() }));
        let nodes = 2 + random.below(4) as usize;
        let node_timeout_ms = touchline_config::ClusterSettings::default().node_timeout.as_millis() as u64;
        let mut world = ClusterDay {
            now_ms: START_MS,
            nats: SimulatedNats::new(random.any(), nodes, node_timeout_ms / 3),
            namespaces,
            nodes: (0..nodes).map(|_| None).collect(),
            numbers: vec![0; nodes],
            started: 0,
            replicas: if random.chance(50) { 3 } else { 1 },
            seed,
            store: SimulatedStore::default(),
            reports: Reports::default(),
            outcomes: Outcomes::default(),
            awaited: BTreeMap::new(),
            requests: 0,
            published: 0,
            stored: Vec::new(),
            bans: [(false, true); USERS.len()],
            blocked_ms: vec![None; nodes],
            node_timeout_ms,
            loses: seed % 2 == 1,
            has_lost: false,
            is_calm: false,
            seen: [0; 6],
            random,
            trace,
        };
        {
            let mut nats = world.nats.state();
            nats.streams.lags = world.replicas > 1;
            nats.streams.doubles = world.random.below(2) * 5;
        }
        (0..nodes).for_each(|index| world.start(index));
        world
    }

    pub(super) fn start(&mut self, index: usize) {
        self.started += 1;
        self.numbers[index] = self.started;
        let of_node = (self.started, self.seed, self.replicas);
        let node = SimulatedNode::start((&self.nats, index), of_node, &self.namespaces, self.now_ms);
        self.trace.note(|| format!("{} node {index} starts as {}", self.now_ms, self.started));
        self.nodes[index] = Some(node);
    }

    /// A node is killed. Its subscribers keep their positions, and come to another node.
    pub(super) fn kill(&mut self, index: usize) {
        let Some(node) = self.nodes[index].take() else { return };
        self.trace.note(|| format!("{} node {index} is killed", self.now_ms));
        self.seen[4] += 1;
        node.kill();
        self.nats.state().remove(index);
        self.store.forget(self.numbers[index]);
        // The callers of a dead node receive nothing.
        let number = self.numbers[index];
        self.awaited.retain(|_, awaited| {
            if let (true, What::Ban(user, _)) = (awaited.node == number, &awaited.what) {
                self.bans[*user].1 = false;
            }
            awaited.node != number
        });
        let to = (0..self.nodes.len()).find(|other| self.nodes[*other].is_some());
        if let Some(other) = to.and_then(|to| self.nodes[to].as_mut()) {
            for mut fan in node.fans {
                fan.state = FanState::Away;
                fan.visits = 0;
                fan.of_nodes.clear();
                fan.connection.slot = other.fans.len() as u32;
                other.fans.push(fan);
            }
        }
    }

    /// Lets the time pass, and everything that is due happen.
    pub(super) async fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.now_ms += if self.is_calm { CALM_STEP_MS } else { STEP_MS };
            let day_ms = self.now_ms - START_MS;
            time::advance(Duration::from_millis(day_ms));
            tokio::task::yield_now().await;
            self.nats.state().step(day_ms);
            tokio::task::yield_now().await;
            self.run_store();
            for index in 0..self.nodes.len() {
                self.run_node(index);
            }
            self.take_outcomes();
            tokio::task::yield_now().await;
            self.check_limits();
        }
    }

    /// The database executes what is due, and the nodes receive its notices.
    fn run_store(&mut self) {
        let now_ms = self.now_ms;
        let living = self.nodes.iter().zip(&self.numbers).filter(|(node, _)| node.is_some());
        let nodes: Vec<u64> = living.map(|(_, number)| *number).collect();
        for (node, notice) in self.store.step(now_ms, &nodes, &mut self.random) {
            let Some(index) = self.numbers.iter().position(|number| *number == node) else { continue };
            let Some(known) = &mut self.nodes[index] else { continue };
            match notice {
                StoreNotice::Event(channel, event) => known.channels.apply(&channel, event, now_ms),
                StoreNotice::Missed => known.channels.catch_up(),
                StoreNotice::Appended(request, offset) => {
                    SimulatedNode::push_outcome(&self.outcomes, Outcome::Appended(request, offset));
                }
            }
            self.settle(index);
        }
    }

    /// The threads of a node take some of its events, in their order.
    fn run_node(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let Some(node) = &mut self.nodes[index] else { return };
        node.receive();
        let most = if self.is_calm || self.random.chance(90) { usize::MAX } else { self.random.below(3) as usize };
        for _ in 0..most {
            let Some(node) = &mut self.nodes[index] else { return };
            let Some(event) = node.inbox.pop_front() else { break };
            self.trace.note(|| format!("{now_ms} node {index} takes {}", shown(&event)));
            self.seen[0] += u64::from(matches!(event, crate::ClusterEvent::Linked(false)));
            node.handle(event, now_ms);
            self.settle(index);
        }
        let Some(node) = &mut self.nodes[index] else { return };
        node.channels.expire(now_ms);
        node.run_directory(now_ms);
        self.settle(index);
        self.run_reports(index);
    }

    /// Does the same as a shard: waiting requests are submitted again, and the channels' commands are sent.
    fn settle(&mut self, index: usize) {
        self.deliver(index);
        loop {
            let Some(node) = &mut self.nodes[index] else { return };
            let ready = node.channels.take_ready();
            for channel in &ready {
                let Some(node) = &mut self.nodes[index] else { return };
                for (request, visit) in node.waiting.remove(channel).unwrap_or_default() {
                    self.submit(index, channel.clone(), request, visit);
                }
            }
            self.deliver(index);
            let Some(node) = &mut self.nodes[index] else { return };
            for command in node.channels.backend_commands() {
                self.trace.note(|| format!("{} node {index} wants {command:?}", self.now_ms));
                match command {
                    BackendCommand::LoadStored { channel, load } => {
                        let now = (self.now_ms, &mut self.random);
                        self.store.request(self.numbers[index], channel, StoreRequest::Load(load), now);
                    }
                    command => node.command(command),
                }
            }
            if ready.is_empty() {
                return;
            }
        }
    }

    pub(super) fn publish(&mut self, index: usize, channel: &ChannelName, size: usize) {
        let (now_ms, number) = (self.now_ms, self.numbers[index]);
        let Some(node) = &mut self.nodes[index] else { return };
        self.published += 1;
        let data = self.published;
        // As the server does (`refused_by_cluster`).
        if !channel.starts_with("durable:")
            && !(if node.is_linked { node.cluster.has_room() } else { node.cluster.has_room_here() })
        {
            self.seen[2] += 1;
            return;
        }
        let text = format!(r#"{{"of":{number},"data":{data},"fill":"{}"}}"#, "x".repeat(size));
        let content = Content { data: text.into(), ..Content::default() };
        let publish = ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() }));
        let submitted = node.channels.submit(channel, publish, now_ms);
        self.trace.note(|| format!("{now_ms} node {index} publishes {data} to {channel}"));
        match submitted {
            Submitted::Append { namespace, payload, .. } => {
                let what = What::Publication { channel: channel.clone(), data };
                let (request, outcomes) = self.await_result(index, APPEND_LIMIT_MS, what);
                let Some(node) = &mut self.nodes[index] else { return };
                let done = move |result: Result<touchline_protocol::stream::StreamPosition, _>| {
                    let offset = result.ok().map(|position| position.offset.0);
                    SimulatedNode::push_outcome(&outcomes, Outcome::Appended(request, offset));
                };
                node.cluster.append(channel.clone(), namespace, payload, Box::default(), Box::new(done));
            }
            Submitted::Store(publication) => {
                let what = What::Publication { channel: channel.clone(), data };
                let (request, _) = self.await_result(index, APPEND_LIMIT_MS, what);
                let append = StoreRequest::Append(request, publication.payload.into());
                self.store.request(number, channel.clone(), append, (now_ms, &mut self.random));
            }
            Submitted::Done(Response::Published(_)) => {}
            Submitted::Done(Response::Refused(error)) => {
                assert_eq!(error.code, Error::CLUSTER_UNREACHABLE.code);
                assert!(!node.is_linked, "a linked node refuses");
            }
            other => panic!("{other:?}"),
        }
        self.settle(index);
    }

    fn await_result(&mut self, index: usize, limit_ms: u64, what: What) -> (u64, Outcomes) {
        self.requests += 1;
        let awaited = Awaited { node: self.numbers[index], due_ms: self.now_ms + limit_ms, what };
        self.awaited.insert(self.requests, awaited);
        (self.requests, Arc::clone(&self.outcomes))
    }

    pub(super) fn purge(&mut self, index: usize, channel: &ChannelName) {
        if self.nodes[index].as_ref().is_none_or(|node| !node.is_linked) {
            return;
        }
        let (request, outcomes) = self.await_result(index, CHANGE_LIMIT_MS, What::Removal);
        let Some(node) = &self.nodes[index] else { return };
        let done = move |_| SimulatedNode::push_outcome(&outcomes, Outcome::Purged(request));
        node.cluster.purge(channel.clone(), "kept".into(), removal, Box::new(done));
    }

    pub(super) fn ban(&mut self, index: usize, user: usize, is_banned: bool) {
        if self.nodes[index].is_none()
            || self.awaited.values().any(|of| matches!(of.what, What::Ban(of, _) if of == user))
        {
            return;
        }
        let ban = Ban::User(USERS[user].into());
        let change = if is_banned { FactChange::Put(ban.fact(0)) } else { FactChange::Remove(ban.key()) };
        let (request, outcomes) = self.await_result(index, CHANGE_LIMIT_MS, What::Ban(user, is_banned));
        let Some(node) = &self.nodes[index] else { return };
        let done = move |result: Result<(), _>| {
            SimulatedNode::push_outcome(&outcomes, Outcome::Changed(request, result.is_ok()))
        };
        node.cluster.change_fact(change, Box::new(done));
    }

    fn take_outcomes(&mut self) {
        loop {
            let next = self.outcomes.lock().pop_front();
            let Some(outcome) = next else { return };
            self.trace.note(|| format!("{} {outcome:?}", self.now_ms));
            let (Outcome::Appended(request, _) | Outcome::Changed(request, _) | Outcome::Purged(request)) = outcome;
            let Some(awaited) = self.awaited.remove(&request) else { continue };
            match (awaited.what, outcome) {
                (What::Publication { channel, data }, Outcome::Appended(_, Some(offset))) => {
                    self.stored.push((channel, data, offset));
                }
                (What::Publication { .. }, _) => self.seen[1] += 1,
                (What::Ban(user, is_banned), Outcome::Changed(_, is_changed)) => {
                    self.seen[5] += u64::from(!is_changed);
                    self.bans[user] = (is_banned, is_changed);
                }
                _ => {}
            }
        }
    }

    /// What must hold at any time.
    fn check_limits(&mut self) {
        for (request, awaited) in &self.awaited {
            assert!(awaited.due_ms >= self.now_ms, "request {request} of node {} was never answered", awaited.node);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            let queued = node.cluster.room.queued();
            assert!(queued <= 2 * ROOM + LAST_MESSAGE, "{queued} bytes wait for NATS at node {index}");
            if let Some(blocked_ms) = self.blocked_ms[index]
                && self.now_ms > blocked_ms + self.node_timeout_ms + 500
                && node.inbox.is_empty()
            {
                assert!(!node.is_linked, "node {index} does not notice that NATS is blocked since {blocked_ms}");
            }
        }
    }

    /// A fan subscribes, for the first time or again.
    pub(super) fn come(&mut self, index: usize, fan: usize) {
        let Some(node) = &mut self.nodes[index] else { return };
        let known = &mut node.fans[fan];
        known.state = FanState::Asked;
        known.visits += 1;
        known.of_nodes.clear();
        let visit = (fan, known.visits);
        let recover = known.last.map(|offset| Recover {
            offset: touchline_protocol::stream::Offset(offset),
            epoch: known.epoch.as_str().into(),
            mode: RecoveryMode::Stream,
            limit: 1_000,
            size_max: usize::MAX,
        });
        let (connection, channel) = (known.connection, known.channel.clone());
        let request = ChannelRequest::Subscribe(Box::new(Subscribe { connection, recover }));
        self.submit(index, channel, request, visit);
        self.settle(index);
    }

    pub(super) fn go(&mut self, index: usize, fan: usize) {
        let Some(node) = &mut self.nodes[index] else { return };
        let known = &mut node.fans[fan];
        let is_answered = known.state == FanState::Live;
        known.state = FanState::Away;
        let request = ChannelRequest::Unsubscribe { connection: known.connection, is_answered };
        let (channel, visit) = (known.channel.clone(), (fan, known.visits));
        self.submit(index, channel, request, visit);
        self.settle(index);
    }

    pub(super) fn submit(
        &mut self,
        index: usize,
        channel: ChannelName,
        request: impl Into<WaitingRequest>,
        visit: Visit,
    ) {
        let request = request.into();
        let now_ms = self.now_ms;
        let Some(node) = &mut self.nodes[index] else { return };
        if let Some(waiting) = node.waiting.get_mut(&channel) {
            return waiting.push((request, visit));
        }
        let from = match request.request() {
            ChannelRequest::Subscribe(subscribe) => subscribe.recover.as_ref().map(|from| from.offset.0),
            _ => None,
        };
        let is_current = node.fans[visit.0].visits == visit.1;
        let submitted = node.channels.submit(&channel, request, now_ms);
        self.trace.note(|| format!("{now_ms} node {index} {channel} {visit:?} from {from:?}: {submitted:?}"));
        match submitted {
            Submitted::Wait(request) => node.waiting.entry(channel).or_default().push((request, visit)),
            Submitted::Done(Response::Subscribed(_)) if !is_current => {}
            Submitted::Done(Response::Subscribed(subscribed)) => {
                let top = subscribed.position.offset.0;
                if let Some(Some(found)) = subscribed.recovered
                    && (!self.has_lost || channel.starts_with("durable:"))
                {
                    let missed = between((&self.nats, &self.store), &channel, from.unwrap_or_default(), top);
                    let found: Vec<u64> = found.iter().map(|found| found.offset.0).collect();
                    assert!(found.iter().all(|found| missed.contains(found)), "{found:?} instead of {missed:?}");
                    let lacking = lacking((&self.nats, &self.store), &channel, (from.unwrap_or_default(), top), &found);
                    assert!(lacking.is_empty(), "recovered from {from:?} to {top} without {lacking:?}");
                }
                let Some(node) = &mut self.nodes[index] else { return };
                let known = &mut node.fans[visit.0];
                if known.state == FanState::Asked {
                    (known.state, known.last, known.epoch) = (FanState::Live, Some(top), subscribed.position.epoch);
                }
            }
            Submitted::Done(Response::Refused(_)) => {
                let known = &mut node.fans[visit.0];
                if is_current && known.state == FanState::Asked {
                    known.state = FanState::Away;
                }
            }
            Submitted::Done(_) => {}
            other => panic!("{other:?}"),
        }
        self.deliver(index);
    }

    pub(super) fn deliver(&mut self, index: usize) {
        let Some(node) = &mut self.nodes[index] else { return };
        let deliveries: Vec<_> = node.channels.deliveries().map(|(_, delivery)| delivery).collect();
        let mut broken = Vec::new();
        for delivery in deliveries {
            self.trace.note(|| format!("{} node {index} delivers {delivery:?}", self.now_ms));
            let is_kept = !delivery.channel.starts_with("passing:");
            let live = node.fans.iter_mut().enumerate();
            let live = live.filter(|(_, fan)| fan.channel == delivery.channel && fan.state == FanState::Live);
            for (number, fan) in live {
                match &delivery.event {
                    ChannelEvent::Publication { publication, .. } if is_kept => {
                        let (offset, last) = (publication.offset.0, fan.last.unwrap_or_default());
                        if !self.has_lost || fan.channel.starts_with("durable:") {
                            let lacking = lacking((&self.nats, &self.store), &fan.channel, (last, offset), &[offset]);
                            assert!(lacking.is_empty(), "{offset} came after {last} without {lacking:?}");
                        }
                        fan.last = Some(offset);
                    }
                    ChannelEvent::Publication { publication, .. } => {
                        let (of, data) = (number_of(publication.json(), "of"), number_of(publication.json(), "data"));
                        fan.take(of.expect("a node"), data.expect("a number"));
                    }
                    ChannelEvent::Broken => broken.push(number),
                    ChannelEvent::Membership(_) => panic!("there are no join and leave events here"),
                }
            }
        }
        for fan in broken {
            self.seen[3] += 1;
            self.go(index, fan);
        }
    }
}
