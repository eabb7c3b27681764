//! A model check of the protocol: three real replicas and two names. It tries every order of commands, messages, losses
//! and restarts within a budget. In every reachable state, once disturbances stop, all replicas must agree with what
//! the owners were notified of.
//!
//! Replicas cannot be compared directly. So a state is the sequence of actions that leads to it, and states are
//! compared by a hash of everything in them that matters.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use stateright::{Checker, Model, Property};

use crate::table::SELF;
use crate::{ConflictPolicyKind, HashSeed, Output, OwnerId, Registered, Replica, ReplicaSettings, ReplicaTiming};

const NODES: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 2] = ["x", "y"];
const START_MS: u64 = 1_000;
/// The rounds of heartbeats after which all replicas must agree.
const ROUNDS: usize = 4;

/// The actions that may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ModelAction {
    /// A node's owner registers a name or takes it over.
    Register {
        node: usize,
        name: usize,
        take_over: bool,
    },
    Unregister {
        node: usize,
        name: usize,
    },
    /// A node sends a heartbeat with its number and digest.
    Beat {
        node: usize,
    },
    /// A message arrives. Any message may be next, because there is no order.
    Arrive {
        message: usize,
    },
    Lose {
        message: usize,
    },
    /// A message arrives, and a copy stays in transit.
    Double {
        message: usize,
    },
    /// A node dies with all its owners and starts again.
    Restart {
        node: usize,
    },
    /// A node stands still.
    Freeze {
        node: usize,
    },
    /// The connection of a frozen node's owner closes.
    Die {
        node: usize,
    },
    /// A node purges another node that stands still.
    Purge {
        node: usize,
        other: usize,
    },
    /// A frozen node continues and checks its connections.
    Thaw {
        node: usize,
    },
}

/// How often each action may happen in one run.
#[derive(Debug, Clone, Copy)]
struct Budget {
    commands: usize,
    beats: usize,
    losses: usize,
    doubles: usize,
    restarts: usize,
    freezes: usize,
}

struct Protocol {
    policy: ConflictPolicyKind,
    /// The size of the operation log in bytes. With 0, every gap needs a snapshot.
    log_max: usize,
    budget: Budget,
}

#[derive(Debug, Clone)]
struct State {
    way: Vec<ModelAction>,
    messages: usize,
    held: BTreeSet<(usize, usize)>,
    frozen: BTreeSet<usize>,
    print: u64,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

/// The replicas, the messages in transit, and the names that owners believe they own.
struct World {
    replicas: Vec<Replica>,
    /// Sorted, so that equal states have equal lists.
    messages: Vec<(usize, Arc<[u8]>)>,
    held: BTreeSet<(usize, usize)>,
    /// The nodes that stand still.
    frozen: BTreeSet<usize>,
    /// The frozen nodes whose owner is gone.
    dead: BTreeSet<usize>,
    now_ms: u64,
}

fn owner(node: usize) -> OwnerId {
    OwnerId([node as u8; 16])
}

impl World {
    fn new(protocol: &Protocol) -> Self {
        let mut world = World {
            replicas: Vec::new(),
            messages: Vec::new(),
            held: BTreeSet::new(),
            frozen: BTreeSet::new(),
            dead: BTreeSet::new(),
            now_ms: START_MS,
        };
        world.replicas = (0..NODES.len()).map(|node| world.replica(protocol, node)).collect();
        world.calm_down(2);
        world
    }

    fn replica(&self, protocol: &Protocol, node: usize) -> Replica {
        let timing =
            ReplicaTiming { timeout_ms: 1 << 40, retry_ms: 0, snapshot_interval_ms: 0, ..ReplicaTiming::default() };
        let settings = ReplicaSettings {
            policy: protocol.policy,
            timing,
            log_max: protocol.log_max,
            ..ReplicaSettings::default()
        };
        Replica::new(NODES[node], self.now_ms, settings, HashSeed::repeatable(node as u64), self.now_ms)
    }

    fn act(&mut self, protocol: &Protocol, action: ModelAction) {
        match action {
            ModelAction::Register { node, name, take_over } => {
                let result = self.replicas[node].register(owner(node), NAMES[name], b"", take_over, self.now_ms);
                if let Ok(Registered::New(_)) = result {
                    self.held.insert((node, name));
                }
            }
            ModelAction::Unregister { node, name } => {
                self.held.remove(&(node, name));
                assert_eq!(self.replicas[node].unregister(owner(node), NAMES[name]), Ok(()));
            }
            ModelAction::Beat { node } => {
                self.replicas[node].heartbeat_due_ms = 0;
                self.replicas[node].tick(self.now_ms);
            }
            // The message stays in the socket of a frozen node.
            ModelAction::Arrive { message } | ModelAction::Double { message }
                if self.frozen.contains(&self.messages[message].0) => {}
            ModelAction::Arrive { message } => {
                let (to, message) = self.messages.remove(message);
                self.replicas[to].receive(&message, self.now_ms);
            }
            ModelAction::Double { message } => {
                let (to, message) = self.messages[message].clone();
                self.replicas[to].receive(&message, self.now_ms);
            }
            ModelAction::Lose { message } => drop(self.messages.remove(message)),
            ModelAction::Restart { node } => {
                self.now_ms += 1;
                self.replicas[node] = self.replica(protocol, node);
                self.held.retain(|(holder, _)| *holder != node);
                self.frozen.remove(&node);
                self.dead.remove(&node);
            }
            ModelAction::Freeze { node } => drop(self.frozen.insert(node)),
            ModelAction::Die { node } => {
                self.held.retain(|(holder, _)| *holder != node);
                self.dead.insert(node);
            }
            ModelAction::Purge { node, other } => self.replicas[node].gone(NODES[other], self.now_ms),
            ModelAction::Thaw { node } => self.thaw(node),
        }
        self.collect();
    }

    fn thaw(&mut self, node: usize) {
        if self.frozen.remove(&node) {
            // As after a clock that went back, which counts as the longest standstill.
            self.replicas[node].ticked_ms = self.now_ms + 1;
            self.replicas[node].wake(self.now_ms);
            if self.dead.remove(&node) {
                self.replicas[node].close(owner(node));
            }
            self.replicas[node].probed(self.now_ms);
        }
    }

    /// Sends the outgoing messages of the replicas, and removes names from the owners that lost them.
    fn collect(&mut self) {
        for node in 0..NODES.len() {
            self.replicas[node].flush();
            for output in self.replicas[node].outputs().collect::<Vec<_>>() {
                match output {
                    Output::Send { to, message } => {
                        let receives =
                            |other: &usize| *other != node && to.as_ref().is_none_or(|to| **to == *NODES[*other]);
                        self.messages.extend((0..NODES.len()).filter(receives).map(|to| (to, Arc::clone(&message))));
                    }
                    Output::Lost { lost, .. } => {
                        let name = NAMES.iter().position(|name| *name == lost.key()).expect("one of two");
                        assert!(self.held.remove(&(node, name)), "who loses a name had it");
                    }
                    Output::Resolve { .. } => panic!("no backend here"),
                    Output::Event(_) | Output::Node { .. } | Output::Probe | Output::Differs { .. } => {}
                }
            }
        }
        self.messages.sort();
        // A second copy of a message in transit is the same as a duplicated message.
        self.messages.dedup();
    }

    fn calm_down(&mut self, rounds: usize) {
        (0..NODES.len()).for_each(|node| self.thaw(node));
        self.collect();
        for _ in 0..rounds {
            self.now_ms += 10_000;
            for node in 0..NODES.len() {
                self.replicas[node].tick(self.now_ms);
            }
            self.collect();
            while let Some((to, message)) = self.messages.pop() {
                self.replicas[to].receive(&message, self.now_ms);
                self.collect();
            }
        }
    }

    /// Whether all replicas see exactly what the owners were notified of.
    fn is_right(&self) -> bool {
        NAMES.iter().enumerate().all(|(number, name)| {
            let mut holders = self.held.iter().filter(|(_, held)| *held == number).map(|(node, _)| *node);
            let (holder, second) = (holders.next(), holders.next());
            let expected = holder.map(|node| (owner(node), NODES[node].to_owned()));
            let sees = |replica: &Replica| replica.lookup(name).map(|entry| (entry.owner(), entry.node().to_string()));
            let shows =
                |replica: &Replica| replica.view().lookup(name).map(|entry| (entry.owner(), entry.node().to_string()));
            second.is_none()
                && self.replicas.iter().all(|replica| sees(replica) == expected && shows(replica) == expected)
        })
    }

    /// A hash of everything that decides what can happen next, and of the remaining budget.
    fn print(&self, way: &[ModelAction]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for replica in &self.replicas {
            (replica.incarnation.order, replica.incarnation.birth, replica.last, replica.clock.latest(0))
                .hash(&mut hasher);
            for peer in replica.peers.values() {
                (&peer.name, peer.incarnation.order, peer.applied).hash(&mut hasher);
                let authority = replica.table.authority(peer.authority);
                (authority.digest, authority.entries).hash(&mut hasher);
            }
            let own = replica.table.authority(SELF);
            (own.digest, own.entries).hash(&mut hasher);
            for batch in &replica.log {
                (batch.first, batch.count, &batch.operations).hash(&mut hasher);
            }
            let departed: Vec<_> = replica.departed.iter().map(|(name, (known, _))| (name, known.order)).collect();
            departed.hash(&mut hasher);
        }
        (&self.frozen, &self.dead).hash(&mut hasher);
        self.messages.hash(&mut hasher);
        self.held.hash(&mut hasher);
        spent(way).hash(&mut hasher);
        hasher.finish()
    }
}

/// The number of commands, heartbeats, losses, duplicates, restarts and freezes in a sequence.
fn spent(way: &[ModelAction]) -> [usize; 6] {
    let mut spent = [0; 6];
    for action in way {
        match action {
            ModelAction::Register { .. } | ModelAction::Unregister { .. } => spent[0] += 1,
            ModelAction::Beat { .. } => spent[1] += 1,
            ModelAction::Lose { .. } => spent[2] += 1,
            ModelAction::Double { .. } => spent[3] += 1,
            ModelAction::Restart { .. } => spent[4] += 1,
            ModelAction::Freeze { .. } => spent[5] += 1,
            ModelAction::Arrive { .. }
            | ModelAction::Die { .. }
            | ModelAction::Purge { .. }
            | ModelAction::Thaw { .. } => {}
        }
    }
    spent
}

impl Protocol {
    fn replay(&self, way: &[ModelAction]) -> World {
        let mut world = World::new(self);
        way.iter().for_each(|action| world.act(self, *action));
        world
    }

    fn state(&self, way: Vec<ModelAction>) -> State {
        let world = self.replay(&way);
        State { messages: world.messages.len(), print: world.print(&way), held: world.held, frozen: world.frozen, way }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<State> {
        vec![self.state(Vec::new())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<ModelAction>) {
        let [commands, beats, losses, doubles, restarts, freezes] = spent(&state.way);
        let messages = 0..state.messages;
        actions.extend(messages.clone().map(|message| ModelAction::Arrive { message }));
        for &node in &state.frozen {
            let is_new = |action| !state.way.contains(&action);
            actions.push(ModelAction::Thaw { node });
            actions.extend(Some(ModelAction::Die { node }).filter(|action| is_new(*action)));
            let others = (0..NODES.len()).filter(|other| !state.frozen.contains(other));
            actions.extend(
                others.map(|other| ModelAction::Purge { node: other, other: node }).filter(|action| is_new(*action)),
            );
        }
        if losses < self.budget.losses {
            actions.extend(messages.clone().map(|message| ModelAction::Lose { message }));
        }
        if doubles < self.budget.doubles {
            actions.extend(messages.map(|message| ModelAction::Double { message }));
        }
        for node in (0..NODES.len()).filter(|node| !state.frozen.contains(node)) {
            if freezes < self.budget.freezes {
                actions.push(ModelAction::Freeze { node });
            }
            if commands < self.budget.commands {
                // Names are interchangeable, so the first command may always use the first name.
                for name in 0..if commands == 0 { 1 } else { NAMES.len() } {
                    let take_overs =
                        if self.policy == ConflictPolicyKind::Newest { &[false, true][..] } else { &[false] };
                    actions.extend(take_overs.iter().map(|take_over| ModelAction::Register {
                        node,
                        name,
                        take_over: *take_over,
                    }));
                    actions
                        .extend(state.held.contains(&(node, name)).then_some(ModelAction::Unregister { node, name }));
                }
            }
            if beats < self.budget.beats {
                actions.push(ModelAction::Beat { node });
            }
            if restarts < self.budget.restarts {
                actions.push(ModelAction::Restart { node });
            }
        }
    }

    fn next_state(&self, state: &State, action: ModelAction) -> Option<State> {
        let mut way = state.way.clone();
        way.push(action);
        Some(self.state(way))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "after quiet all replicas see what owners were told",
                |protocol: &Protocol, state: &State| {
                    let mut world = protocol.replay(&state.way);
                    world.calm_down(ROUNDS);
                    world.is_right()
                },
            ),
            Property::sometimes("a conflict was resolved", |protocol: &Protocol, state: &State| {
                protocol.replay(&state.way).replicas.iter().any(|replica| replica.counters().conflicts_lost > 0)
            }),
        ]
    }
}

/// Explores everything within the budget, or all sequences of at most `steps_max` steps.
fn check(protocol: Protocol, steps_max: usize, states_min: usize) {
    let checker = protocol.checker().threads(2).target_max_depth(steps_max).spawn_bfs().join();
    println!("{} states, the longest way has {} steps", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    assert!(checker.unique_state_count() >= states_min, "only {} states", checker.unique_state_count());
}

const ALL_STEPS: usize = 1_000;

/// The limit on steps. Full exploration takes minutes and runs with TOUCHLINE_LONG.
fn steps(short: usize) -> usize {
    if is_long() { ALL_STEPS } else { short }
}

fn is_long() -> bool {
    std::env::var_os("TOUCHLINE_LONG").is_some()
}

#[test]
fn commands_and_messages_in_any_order() {
    let budget = Budget { commands: 3, beats: 0, losses: 0, doubles: 0, restarts: 0, freezes: 0 };
    check(
        Protocol { policy: ConflictPolicyKind::Newest, log_max: 0, budget },
        steps(9),
        if is_long() { 300_000 } else { 30_000 },
    );
    let budget = Budget { commands: 2, ..budget };
    for policy in [ConflictPolicyKind::Oldest, ConflictPolicyKind::Reject] {
        check(Protocol { policy, log_max: 1_000, budget }, ALL_STEPS, 500);
    }
}

#[test]
fn gaps_and_snapshots_in_any_order() {
    let budget = Budget { commands: 2, beats: 1, losses: 0, doubles: 0, restarts: 0, freezes: 0 };
    check(
        Protocol { policy: ConflictPolicyKind::Newest, log_max: 0, budget },
        steps(9),
        if is_long() { 50_000 } else { 10_000 },
    );
    for (losses, doubles) in [(1, 0), (0, 1)] {
        let budget = Budget { commands: 2, beats: 0, losses, doubles, restarts: 0, freezes: 0 };
        check(Protocol { policy: ConflictPolicyKind::Newest, log_max: 0, budget }, ALL_STEPS, 3_000);
        check(Protocol { policy: ConflictPolicyKind::Oldest, log_max: 0, budget }, ALL_STEPS, 1_000);
    }
}

#[test]
fn restarts_in_any_order() {
    // All orders of these actions are too many, so only their first seven steps are checked.
    let budget = Budget { commands: 2, beats: 0, losses: 1, doubles: 0, restarts: 1, freezes: 0 };
    check(Protocol { policy: ConflictPolicyKind::Newest, log_max: 0, budget }, 7, 10_000);
}

/// A node stands still, its owner's connection closes, other nodes purge it and give its names away, and it returns: in
/// every order.
#[test]
fn freezes_purges_and_thaws_in_any_order() {
    let budget = Budget { commands: 2, beats: 0, losses: 0, doubles: 0, restarts: 0, freezes: 1 };
    for policy in [ConflictPolicyKind::Newest, ConflictPolicyKind::Oldest, ConflictPolicyKind::Reject] {
        check(Protocol { policy, log_max: 1_000, budget }, if is_long() { 9 } else { 7 }, 1_000);
    }
}
