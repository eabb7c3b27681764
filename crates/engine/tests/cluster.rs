//! Channels with history on three nodes, against a stream that stores and republishes as JetStream does: messages to nodes are lost, links
//! are cut, loads fail or come late, subscribers come, go and return. Whoever is subscribed sees every publication once, in order, or is
//! told to begin anew.
//!
//! `TOUCHLINE_SIM_SEEDS` sets how many such days (10,000 unless set), `TOUCHLINE_SIM_SEED` runs one of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_engine::channels::{KeeperAct, Outcome};
use touchline_engine::request::{Epoch, Event, Loaded, Publish, Recover, Runs, Stored, Subscribe};
use touchline_engine::{ChannelOptions, ChannelSettings, Channels, ConnectionId, Namespaces, RecoveryMode, Request, Response};
use touchline_protocol::publication::Content;

const SIZE: usize = 8;
const NODES: usize = 3;
const CHANNELS: [&str; 2] = ["one", "two"];

/// xorshift64* (Vigna, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 33) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What JetStream keeps: one sequence for all channels, so many of each.
#[derive(Default)]
struct Stream {
    last: u64,
    /// All that was ever stored, by channel: the truth.
    all: HashMap<Arc<str>, Vec<(u64, Bytes)>>,
}

impl Stream {
    fn load(&self, channel: &str, behind: u64) -> Loaded {
        let all = self.all.get(channel).map_or(&[][..], Vec::as_slice);
        let kept: Vec<_> = all[all.len().saturating_sub(SIZE)..].iter().filter(|(offset, _)| *offset > behind).cloned().collect();
        let top = kept.last().map_or(if behind > 0 { behind } else { self.last }, |(offset, _)| *offset);
        let floor = if kept.len() < SIZE { 0 } else { kept[0].0 };
        Loaded { epoch: Epoch::from_bits(7), behind, kept, top, floor: floor.max(behind), runs: Runs::default() }
    }

    /// Offsets of a channel behind one and up to another.
    fn between(&self, channel: &str, behind: u64, to: u64) -> Vec<u64> {
        let all = self.all.get(channel).into_iter().flatten();
        all.map(|(offset, _)| *offset).filter(|offset| *offset > behind && *offset <= to).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Away,
    Asked,
    Live,
}

struct Fan {
    channel: Arc<str>,
    connection: ConnectionId,
    state: State,
    /// The last offset that it has; none = it was never there.
    last: Option<u64>,
}

struct Node {
    channels: Channels,
    is_linked: bool,
    interests: Vec<Arc<str>>,
    /// What comes in, in order: republished, and the server's echo.
    inbox: Vec<(u64, Arc<str>, Request)>,
    /// Loads under way: when they are served, the channel, the offset behind which, whether it is only a check.
    loads: Vec<(u64, Arc<str>, u64, bool)>,
    /// Requests that wait until a channel is heard, with the fan that asks.
    waiting: HashMap<Arc<str>, Vec<(Request, usize)>>,
    fans: Vec<Fan>,
    wrongs: [u64; 3],
}

struct World {
    random: Random,
    now_ms: u64,
    stream: Stream,
    nodes: Vec<Node>,
    is_calm: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let history = ChannelOptions { history_size: SIZE, history_ttl: Duration::from_secs(3_600), ..ChannelOptions::default() };
        let namespaces = Arc::new(Namespaces::new(ChannelSettings { without_namespace: history, ..ChannelSettings::default() }));
        let node = |number: u64| Node {
            channels: Channels::new(Arc::clone(&namespaces), 1, seed + number).in_cluster(),
            is_linked: false,
            interests: Vec::new(),
            inbox: Vec::new(),
            loads: Vec::new(),
            waiting: HashMap::new(),
            fans: Vec::new(),
            wrongs: [0; 3],
        };
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut world =
            World { random, now_ms: 1_000_000, stream: Stream::default(), nodes: (0..NODES as u64).map(node).collect(), is_calm: false };
        (0..NODES).for_each(|index| world.link(index, true));
        world
    }

    fn link(&mut self, index: usize, is_linked: bool) {
        let node = &mut self.nodes[index];
        if node.is_linked == is_linked {
            return;
        }
        node.is_linked = is_linked;
        if !is_linked {
            node.inbox.clear();
        }
        node.channels.set_linked(is_linked);
        self.settle(index);
    }

    /// The cluster says that there is more than before.
    fn check(&mut self, index: usize) {
        self.nodes[index].channels.check(&"".into());
        self.settle(index);
    }

    fn publish(&mut self, index: usize, channel: &Arc<str>) {
        let content = Content { data: Bytes::from_static(b"{}"), ..Content::default() };
        let publish = Request::Publish(Box::new(Publish { content, ..Publish::default() }));
        let outcome = self.nodes[index].channels.submit(channel, publish, self.now_ms);
        let Outcome::Keep(_, payload, _) = outcome else {
            assert!(!self.nodes[index].is_linked, "{outcome:?}");
            return;
        };
        let payload = Bytes::from(payload);
        self.stream.last += 1;
        let (offset, all) = (self.stream.last, self.stream.all.entry(Arc::clone(channel)).or_default());
        let previous = all.last().map_or(0, |(offset, _)| *offset);
        all.push((offset, payload.clone()));
        for node in &mut self.nodes {
            let is_lost = !self.is_calm && self.random.chance(8);
            if node.is_linked && node.interests.contains(channel) && !is_lost {
                let at_ms = node.inbox.last().map_or(0, |(at, ..)| *at).max(self.now_ms + self.random.below(40));
                node.inbox.push((
                    at_ms,
                    Arc::clone(channel),
                    Request::Stored(Stored { offset, previous, epoch: None, payload: payload.clone() }),
                ));
            }
        }
    }

    /// A fan comes, new or back, to the node where it was or with the position that another node gave it.
    fn come(&mut self, index: usize, fan: usize) {
        if self.random.chance(40) {
            self.change_places(index, fan);
        }
        let known = &mut self.nodes[index].fans[fan];
        known.state = State::Asked;
        let recover = known.last.map(|offset| Recover {
            offset,
            epoch: Epoch::from_bits(7).as_str().into(),
            mode: RecoveryMode::Stream,
            limit: 1_000,
            size_max: usize::MAX,
        });
        let request = Request::Subscribe(Box::new(Subscribe { connection: known.connection, recover }));
        self.submit(index, Arc::clone(&self.nodes[index].fans[fan].channel), request, fan);
        self.settle(index);
    }

    /// A fan takes over the position of one of another node that is away: it has moved.
    fn change_places(&mut self, index: usize, fan: usize) {
        let other = (index + 1 + self.random.below(NODES as u64 - 1) as usize) % NODES;
        let channel = Arc::clone(&self.nodes[index].fans[fan].channel);
        let is_away = |fan: &&mut Fan| fan.channel == channel && fan.state == State::Away;
        let Some(away) = self.nodes[other].fans.iter_mut().find(is_away).map(|away| away.last.take()) else { return };
        let here = std::mem::replace(&mut self.nodes[index].fans[fan].last, away);
        if let Some(there) = self.nodes[other].fans.iter_mut().find(is_away) {
            there.last = here;
        }
    }

    fn go(&mut self, index: usize, fan: usize) {
        let known = &mut self.nodes[index].fans[fan];
        let is_answered = known.state == State::Live;
        known.state = State::Away;
        let request = Request::Unsubscribe { connection: known.connection, is_answered };
        self.submit(index, Arc::clone(&self.nodes[index].fans[fan].channel), request, fan);
        self.settle(index);
    }

    /// As a shard does: what is said about a channel that is not heard yet waits, in order.
    fn submit(&mut self, index: usize, channel: Arc<str>, request: Request, fan: usize) {
        let node = &mut self.nodes[index];
        if let Some(waiting) = node.waiting.get_mut(&channel) {
            return waiting.push((request, fan));
        }
        let recover = match &request {
            Request::Subscribe(subscribe) => subscribe.recover.as_ref().map(|from| from.offset),
            _ => None,
        };
        match node.channels.submit(&channel, request, self.now_ms) {
            Outcome::Wait(request) => node.waiting.entry(channel).or_default().push((request, fan)),
            Outcome::Done(Response::Subscribed(subscribed)) => {
                let top = subscribed.position.offset;
                if let Some(recovered) = subscribed.recovered {
                    let missed = self.stream.between(&channel, recover.unwrap_or_default(), top);
                    match recovered {
                        Some(found) => assert_eq!(found.iter().map(|p| p.offset).collect::<Vec<_>>(), missed, "recovered"),
                        None => assert!(missed.len() >= SIZE, "{missed:?} could be had"),
                    }
                }
                let known = &mut node.fans[fan];
                if known.state == State::Asked {
                    (known.state, known.last) = (State::Live, Some(top));
                }
            }
            Outcome::Done(Response::Refused(_)) => {
                node.wrongs[0] += 1;
                let known = &mut node.fans[fan];
                if known.state == State::Asked {
                    known.state = State::Away;
                }
            }
            Outcome::Done(_) => {}
            other => panic!("{other:?}"),
        }
        self.deliver(index);
    }

    fn deliver(&mut self, index: usize) {
        let deliveries: Vec<_> = self.nodes[index].channels.deliveries().map(|(_, delivery)| delivery).collect();
        let mut broken = Vec::new();
        for delivery in deliveries {
            let node = &mut self.nodes[index];
            let fans = node.fans.iter_mut().enumerate().filter(|(_, fan)| fan.channel == delivery.channel && fan.state == State::Live);
            for (number, fan) in fans {
                match &delivery.event {
                    Event::Publication { publication, .. } => {
                        let due = self.stream.between(&fan.channel, fan.last.unwrap_or_default(), publication.offset);
                        assert_eq!(due, [publication.offset], "the next one, and no other");
                        fan.last = Some(publication.offset);
                    }
                    Event::Broken => broken.push(number),
                    Event::Membership(_) => panic!("nobody is announced here"),
                }
            }
        }
        for fan in broken {
            self.nodes[index].wrongs[1] += 1;
            self.go(index, fan);
        }
    }

    /// As a shard does: what waited is taken up, and the cluster does what channels want.
    fn settle(&mut self, index: usize) {
        self.deliver(index);
        loop {
            let ready = self.nodes[index].channels.take_ready();
            for channel in &ready {
                for (request, fan) in self.nodes[index].waiting.remove(channel).unwrap_or_default() {
                    self.submit(index, Arc::clone(channel), request, fan);
                }
            }
            self.deliver(index);
            let acts = self.nodes[index].channels.keeper_acts();
            let node = &mut self.nodes[index];
            for act in acts {
                let delay_ms = self.random.below(60);
                match act {
                    KeeperAct::Interest(channel, true) => {
                        node.interests.retain(|known| *known != channel);
                        node.interests.push(Arc::clone(&channel));
                        let at_ms = node.inbox.last().map_or(0, |(at, ..)| *at).max(self.now_ms + delay_ms);
                        node.inbox.push((at_ms, channel, Request::Interested));
                    }
                    KeeperAct::LoadStored(..) => unreachable!("nothing is durable here"),
                    KeeperAct::Interest(channel, false) => node.interests.retain(|known| *known != channel),
                    KeeperAct::Load(channel, _, behind) => node.loads.push((self.now_ms + delay_ms, channel, behind, false)),
                    KeeperAct::Check(channel, _, behind) => node.loads.push((self.now_ms + delay_ms, channel, behind, true)),
                    KeeperAct::Pass(..) | KeeperAct::SetBack(_) | KeeperAct::Unreadable(..) => panic!("nothing of that is here"),
                }
            }
            if ready.is_empty() {
                return;
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for index in 0..NODES {
            while self.nodes[index].inbox.first().is_some_and(|(at, ..)| *at <= self.now_ms) {
                let (_, channel, request) = self.nodes[index].inbox.remove(0);
                self.submit_incoming(index, &channel, request);
            }
            while let Some(at) = self.nodes[index].loads.iter().position(|(at, ..)| *at <= self.now_ms) {
                let (_, channel, behind, is_check) = self.nodes[index].loads.swap_remove(at);
                let fails = !self.nodes[index].is_linked || !self.is_calm && self.random.chance(5);
                if is_check && (fails || self.stream.between(&channel, behind, u64::MAX).is_empty()) {
                    continue;
                }
                self.nodes[index].wrongs[2] += u64::from(fails);
                let loaded = (!fails).then(|| Box::new(self.stream.load(&channel, behind)));
                self.submit_incoming(index, &channel, Request::Loaded(loaded));
            }
            self.nodes[index].channels.expire(self.now_ms);
            self.settle(index);
        }
    }

    fn submit_incoming(&mut self, index: usize, channel: &Arc<str>, request: Request) {
        let outcome = self.nodes[index].channels.submit(channel, request, self.now_ms);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        self.settle(index);
    }

    fn disturb(&mut self) {
        let index = self.random.below(NODES as u64) as usize;
        let channel: Arc<str> = CHANNELS[self.random.below(2) as usize].into();
        let fans = self.nodes[index].fans.len();
        match self.random.below(100) {
            0..45 => self.publish(index, &channel),
            45..60 if fans < 6 => {
                let connection = ConnectionId { shard: 0, slot: fans as u32, generation: 0 };
                self.nodes[index].fans.push(Fan { channel, connection, state: State::Away, last: None });
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
            90..100 => self.link(index, true),
            _ => {}
        }
    }

    /// Everything works; everybody comes, and has all in the end, though nothing is published any more.
    fn calm_down(&mut self) {
        self.is_calm = true;
        (0..NODES).for_each(|index| self.link(index, true));
        (0..20).for_each(|_| self.pass(50));
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
        for (fan, node) in self.nodes.iter().flat_map(|node| node.fans.iter().map(move |fan| (fan, node))) {
            assert_eq!(fan.state, State::Live, "{} waits: {:?}", fan.channel, node.waiting);
            let missed = self.stream.between(&fan.channel, fan.last.expect("it was live"), u64::MAX);
            assert!(missed.is_empty(), "{}: {missed:?} did not come", fan.channel);
        }
    }
}

/// A day; gives subscribes that were refused, subscriptions that broke, loads that failed.
fn day(seed: u64) -> [u64; 3] {
    let mut world = World::new(seed);
    for _ in 0..200 {
        world.disturb();
        let ms = world.random.below(30);
        world.pass(ms);
    }
    world.calm_down();
    let sum = |kind: usize| world.nodes.iter().map(|node| node.wrongs[kind]).sum();
    [sum(0), sum(1), sum(2)]
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn every_subscriber_sees_every_publication_once_or_is_told() {
    if let Some(seed) = number("TOUCHLINE_SIM_SEED") {
        day(seed);
        return;
    }
    let seeds = number("TOUCHLINE_SIM_SEEDS").unwrap_or(10_000);
    let mut days_with = [0; 3];
    for seed in 0..seeds {
        let seen = std::panic::catch_unwind(|| day(seed)).unwrap_or_else(|panic| {
            eprintln!("the day with TOUCHLINE_SIM_SEED={seed} went wrong");
            std::panic::resume_unwind(panic)
        });
        days_with.iter_mut().zip(seen).for_each(|(days, count)| *days += u64::from(count > 0));
    }
    // A simulator whose days are all fine proves nothing.
    assert!(days_with.iter().all(|days| days * 100 >= seeds), "too few bad days: {days_with:?} of {seeds}");
}
