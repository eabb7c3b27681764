//! Thousands of bad days of a cluster. Messages are lost, duplicated, delayed and reordered. Links are cut one way or
//! both. Nodes crash, freeze and return, and clocks jump. After a quiet time all replicas equal the truth, each name
//! has one owner, and the events replay to the tables.
//!
//! There are 10,000 days by default; `touchline_testkit::seeds` has the variables that change this.

mod cluster;
mod node;
mod scenarios;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use touchline_registry::{ConflictPolicyKind, Counters, Entry, OwnerId, ReplicaSettings};
use touchline_testkit::seeds::{SeededRandom, Trace, compare, seeds, simulate};

use node::{Node, Tables};

/// A message in transit: arrival time, sender, receiver, bytes.
type Flight = (u64, usize, usize, Arc<[u8]>);

struct World {
    random: SeededRandom,
    /// True if nodes have different policies.
    differ: bool,
    now_ms: u64,
    settings: ReplicaSettings,
    nodes: Vec<Option<Node>>,
    /// Messages by arrival time. The second number distinguishes them.
    network: BTreeMap<(u64, u64), Flight>,
    sent: u64,
    /// Links that carry nothing in this direction.
    cut: BTreeSet<(usize, usize)>,
    /// When the other nodes are notified that a killed node is gone, and the index of that node.
    killed: Vec<(u64, usize)>,
    /// Nothing arrives anywhere until then, because NATS is down.
    outage_until_ms: u64,
    /// When names and memberships ended at their authorities.
    graves: BTreeMap<(String, OwnerId), u64>,
    is_calm: bool,
    trace: Trace,
}

/// The longest time in which a node may believe in an entry that has ended. It is three times the timeout, for an
/// unnoticed silence, a standstill of at most that length, and messages in transit.
const STALE_MAX_MS: u64 = 15_000;

const POLICIES: [ConflictPolicyKind; 4] =
    [ConflictPolicyKind::Newest, ConflictPolicyKind::Oldest, ConflictPolicyKind::Reject, ConflictPolicyKind::Hook];
const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

impl World {
    fn new(seed: u64, trace: Trace) -> Self {
        let mut random = SeededRandom::new(seed);
        let mut settings = ReplicaSettings {
            policy: POLICIES[random.below(4) as usize],
            classify: Some(node::kind),
            ..ReplicaSettings::default()
        };
        // These are so small that gaps outlive the log, and snapshots arrive in parts.
        settings.message_max = 280 + random.below(400) as usize;
        settings.log_max = 100 + random.below(2_000) as usize;
        let mut world = World {
            differ: random.chance(20),
            random,
            now_ms: 1_700_000_000_000,
            settings,
            nodes: Vec::new(),
            network: BTreeMap::new(),
            sent: 0,
            cut: BTreeSet::new(),
            killed: Vec::new(),
            outage_until_ms: 0,
            graves: BTreeMap::new(),
            is_calm: false,
            trace,
        };
        for index in 0..2 + world.random.below(3) as usize {
            world.nodes.push(None);
            // Some nodes start later, and join a cluster that has a past.
            if index == 0 || world.random.chance(80) {
                world.start(index);
            }
        }
        world
    }

    fn start(&mut self, index: usize) {
        let skew_ms = if self.random.chance(30) { self.random.below(7_200_000) as i64 - 3_600_000 } else { 0 };
        let mut settings = self.settings.clone();
        if self.differ {
            // A setting is being changed on one node after the other.
            settings.policy = POLICIES[self.random.below(3) as usize];
        }
        self.killed.retain(|(_, other)| *other != index);
        self.trace.note(|| format!("{} {} starts, off by {skew_ms} ms", self.now_ms, NAMES[index]));
        self.nodes[index] = Some(Node::new(NAMES[index], self.random.any(), settings, self.now_ms, skew_ms));
    }

    /// Disturbs the cluster once.
    fn disturb(&mut self) {
        let index = self.random.below(self.nodes.len() as u64) as usize;
        let other = self.random.below(self.nodes.len() as u64) as usize;
        let kind = self.random.below(100);
        self.trace.note(|| format!("{} disturbance {kind} of {index} and {other}", self.now_ms));
        match kind {
            0..4 => drop(self.cut.insert((index, other))),
            4..7 => self.cut.extend([(index, other), (other, index)]),
            7..12 => self.cut.clear(),
            12..13 => self.stop(index),
            13..14 => self.kill(index),
            14..18 if self.nodes[index].is_none() => self.start(index),
            18..20 => self.each(index, |node, _, _| node.is_frozen = !node.is_frozen),
            20..21 => self.each(index, |node, random, _| node.skew_ms += random.below(7_200_000) as i64 - 3_600_000),
            21..22 => {
                self.each(index, |node, _, _| node.replica.goodbye());
                self.run(index);
                self.stop(index);
            }
            34..36 => {
                // A living node is suspected, or no longer suspected.
                let is_suspected = self.random.chance(50);
                self.suspect(index, is_suspected);
            }
            22..24 => self.outage_until_ms = self.now_ms + self.random.below(20_000),
            24..26 => {
                // Nothing happens for a time that may exceed every timeout.
                let ms = self.random.below(20_000);
                self.pass_slowly(ms);
            }
            26..34 => self.each(index, |node, random, _| {
                if node.is_frozen {
                    node.close_unnoticed(random);
                }
            }),
            _ => self.each(index, |node, random, now_ms| {
                if !node.is_frozen {
                    node.act(random, now_ms);
                }
            }),
        }
    }

    /// Kills a node; the carrier of messages sees its connection close.
    fn kill(&mut self, index: usize) {
        self.suspect(index, true);
        self.stop(index);
        self.killed.push((self.now_ms + 1_000, index));
    }

    fn suspect(&mut self, index: usize, is_suspected: bool) {
        for other in
            self.nodes.iter_mut().flatten().filter(|other| !other.is_frozen && **other.replica.node() != *NAMES[index])
        {
            let own_ms = other.clock(self.now_ms);
            other.replica.suspect(NAMES[index], is_suspected, own_ms);
        }
    }

    /// Notifies the nodes that can be reached that killed nodes are gone.
    fn tell_gone(&mut self) {
        let (due, later) = std::mem::take(&mut self.killed).into_iter().partition(|(at_ms, _)| *at_ms <= self.now_ms);
        self.killed = later;
        for (_, index) in due {
            for other in self.nodes.iter_mut().flatten().filter(|other| !other.is_frozen) {
                let own_ms = other.clock(self.now_ms);
                other.replica.gone(NAMES[index], own_ms);
            }
        }
    }

    fn stop(&mut self, index: usize) {
        if let Some(mut node) = self.nodes[index].take() {
            node.end_all();
            self.bury(&mut node);
        }
    }

    fn bury(&mut self, node: &mut Node) {
        self.graves.extend(node.ended.drain(..).map(|ended| (ended, self.now_ms)));
    }

    /// Checks that a named owner exists, or existed a moment ago.
    fn check_named(&self, what: &str, entry: &Entry) {
        let is_held = |node: &Node| {
            let held = node.owners.get(&entry.owner());
            held.is_some_and(|held| held.names.contains_key(entry.key()) || held.groups.contains_key(entry.key()))
        };
        if !self.nodes.iter().flatten().any(is_held) {
            let ended_ms = self.graves.get(&(entry.key().to_owned(), entry.owner()));
            let ago_ms = ended_ms.map(|ended_ms| self.now_ms - ended_ms);
            assert!(ago_ms.is_some_and(|ago| ago <= STALE_MAX_MS), "{what} ended {ago_ms:?} ms ago: {entry:?}");
        }
    }

    fn pass_slowly(&mut self, ms: u64) {
        for _ in 0..ms / 250 {
            self.pass(250);
        }
    }

    fn each(&mut self, index: usize, act: impl FnOnce(&mut Node, &mut SeededRandom, u64)) {
        if let Some(node) = &mut self.nodes[index] {
            act(node, &mut self.random, self.now_ms);
        }
        if let Some(mut node) = self.nodes[index].take() {
            self.bury(&mut node);
            self.nodes[index] = Some(node);
        }
    }

    /// Lets time pass: messages arrive, and nodes do what is due.
    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.tell_gone();
        while let Some(entry) = self.network.first_entry().filter(|entry| entry.key().0 <= self.now_ms) {
            let (_, from, to, message) = entry.remove();
            let Some(node) = &mut self.nodes[to] else { continue };
            if node.is_frozen {
                // The message waits in the socket of a frozen node.
                self.sent += 1;
                self.network.insert((self.now_ms + 500, self.sent), (0, from, to, message));
                continue;
            }
            let own_ms = node.clock(self.now_ms);
            self.trace.note(|| format!("{own_ms} {} hears {}: {}", NAMES[to], NAMES[from], message.escape_ascii()));
            node.replica.receive(&message, own_ms);
        }
        for index in 0..self.nodes.len() {
            self.run(index);
        }
    }

    fn run(&mut self, index: usize) {
        let Some(node) = self.nodes[index].as_mut().filter(|node| !node.is_frozen) else { return };
        let messages = node.run(&mut self.random, self.now_ms, &mut self.trace);
        let named = std::mem::take(&mut node.named);
        self.graves.extend(node.ended.drain(..).map(|ended| (ended, self.now_ms)));
        for (what, entry) in named {
            self.check_named(what, &entry);
        }
        for (to, message) in messages {
            let is_addressed = |name: &str| to.as_ref().is_none_or(|to| **to == *name);
            let others: Vec<usize> = (0..self.nodes.len()).filter(|other| is_addressed(NAMES[*other])).collect();
            for other in others {
                self.send(index, other, &message);
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: &Arc<[u8]>) {
        if self.cut.contains(&(from, to))
            || self.now_ms < self.outage_until_ms
            || !self.is_calm && self.random.chance(10)
        {
            return;
        }
        let copies = if !self.is_calm && self.random.chance(10) { 2 } else { 1 };
        for _ in 0..copies {
            let delay_ms = if self.is_calm { self.random.below(10) } else { self.random.below(20).pow(2) * 5 };
            self.sent += 1;
            let arrival = self.now_ms + delay_ms;
            self.network.insert((arrival, self.sent), (arrival, from, to, Arc::clone(message)));
        }
    }

    /// Ends all disturbances, and lets some seconds pass.
    fn calm_down(&mut self) {
        self.is_calm = true;
        self.cut.clear();
        self.outage_until_ms = 0;
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_none() {
                self.start(index);
            }
            self.each(index, |node, _, _| node.is_frozen = false);
        }
        (0..self.nodes.len()).for_each(|index| self.suspect(index, false));
        for _ in 0..60 {
            self.pass(250);
        }
    }

    /// Records what each node has and shows at the end, each list in the node's own order.
    fn note_end(&mut self) {
        for node in self.nodes.iter().flatten() {
            let replica = &node.replica;
            let members = |group: &str| replica.members(group).collect::<Vec<_>>();
            self.trace.note(|| format!("{} has {:?}", replica.node(), replica.counters()));
            self.trace.note(|| format!("  names {:?}", replica.names("", 0, usize::MAX)));
            self.trace.note(|| format!("  nodes {:?}", replica.nodes().collect::<Vec<_>>()));
            for (group, size) in replica.groups("", 0, usize::MAX).0 {
                self.trace.note(|| format!("  group {group} of {size}: {:?}", members(&group)));
            }
        }
    }

    /// The true state: everything that the owners hold according to the answers that they got.
    fn truth(&self) -> Tables {
        let mut truth = Tables::default();
        for node in self.nodes.iter().flatten() {
            let name = node.replica.node();
            for (owner, held) in &node.owners {
                for (key, meta) in &held.names {
                    let other = truth.names.insert(key.clone(), (*owner, Arc::clone(name), meta.clone()));
                    assert!(other.is_none(), "{key} has two owners");
                }
                let groups = held.groups.iter();
                truth.members.extend(groups.map(|(key, meta)| ((key.clone(), Arc::clone(name), *owner), meta.clone())));
            }
        }
        truth
    }

    fn check(&self) {
        let truth = self.truth();
        let holders =
            |node: &Node| node.owners.values().filter(|held| !held.names.is_empty() || !held.groups.is_empty()).count();
        let owners: usize = self.nodes.iter().flatten().map(holders).sum();
        for node in self.nodes.iter().flatten() {
            assert_eq!(node.tables(), truth, "what {} sees against what is", node.replica.node());
            assert_eq!(node.replica.owners(), owners, "who holds nothing is forgotten");
            assert_eq!(node.replica.nodes().count(), self.nodes.len() - 1);
            for (other, number) in node.replica.nodes() {
                let entries = truth.names.values().filter(|(_, of, _)| of == other).count()
                    + truth.members.keys().filter(|key| key.1 == *other).count();
                assert_eq!(number, entries as u64, "what {other} has");
            }
            let seen = node.replica.counters();
            assert_eq!(
                (seen.malformed, seen.digests_wrong),
                (0, 0),
                "what is lost, doubled or late is found by its number"
            );
        }
    }
}

/// Simulates a day, and returns what happened in it.
fn day(seed: u64, trace: Trace) -> (Counters, Trace) {
    let mut world = World::new(seed, trace);
    let steps = 60 + world.random.below(120);
    for _ in 0..steps {
        world.disturb();
        let ms = world.random.below(12).pow(3) / 4;
        world.pass(ms);
        for node in world.nodes.iter().flatten().filter(|node| !node.is_frozen) {
            node.tables();
        }
    }
    world.calm_down();
    world.check();
    world.note_end();
    let mut total = Counters::default();
    for seen in world.nodes.iter().flatten().map(|node| node.replica.counters()) {
        total.conflicts_lost += seen.conflicts_lost;
        total.snapshots_installed += seen.snapshots_installed;
        total.gaps += seen.gaps;
        total.purges += seen.purges;
        total.drifted += seen.drifted;
        total.hooks_failed += seen.hooks_failed;
        total.reincarnations += seen.reincarnations;
    }
    (total, world.trace)
}

#[test]
fn a_seed_gives_the_same_events_in_every_process() {
    compare("a_seed_gives_the_same_events_in_every_process", |seed, trace| day(seed, trace).1);
}

#[test]
fn after_every_bad_day_all_replicas_equal_the_truth() {
    let kinds = [
        ("conflict", 500),
        ("snapshot", 500),
        ("gap", 500),
        ("purge", 500),
        ("clock too far off", 500),
        ("silent backend", 500),
        ("second life", 500),
    ];
    simulate(seeds(10_000), kinds, |seed| {
        let seen = day(seed, Trace::Off).0;
        let (conflicts, snapshots) = (seen.conflicts_lost, seen.snapshots_installed);
        [conflicts, snapshots, seen.gaps, seen.purges, seen.drifted, seen.hooks_failed, seen.reincarnations]
    });
}
