//! What was reported about channels and users, without a database. Each node knows which nodes hold a key, through a
//! registry scope of its own. One node reports when that differs from what was reported last.
//!
//! A key is a group. A node that holds the key is a member. The node that reported last is a member too, with the
//! *generation* as its metadata: it increases by one with each change, and odd means held. So all nodes know what was
//! reported before it is sent. The reporter of a key is the visible node with the highest hash of key and node; it
//! reports the next change.
//!
//! There is one limit: if a node reported something while no other node could see it, and then died, the others do not
//! know what it reported. [`TellerOutput::Doubt`] says when that may have happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use indexmap::IndexMap;
use touchline_registry::{
    EntryChange, HashSeed, Limits, Output, OwnerId, Reason, RegistryEvent, Replica, ReplicaSettings, SipState,
    spare_capacity,
};

use super::state_key::StateKey;
use super::telling::{StateChange, TellerOptions, TellerOutput};

/// The greatest number of keys that no node holds and whose generation is remembered. Beyond it the oldest key is
/// forgotten, and its count begins from the start.
const EMPTY_KEYS_MAX: usize = 262_144;
/// The number of heartbeats for which a node must have seen the same nodes before it reports anything.
const QUIET_HEARTBEATS: u64 = 2;
/// How long a node that disappeared without notice is remembered, milliseconds. It may live beyond a network split.
const GONE_KEPT_MS: u64 = 600_000;
/// The group that a node leaves before it stops. A node that did not leave it is lost. No key has this name.
const ALIVE: &str = "alive";
/// The metadata in that group once the node may report.
const REMEMBERS: &[u8] = b"1";
/// The group that a node joins once other nodes have purged it. Its metadata is the number of the life in which the
/// node reports since then. No key has this name.
const LIFE: &str = "life";
/// The greatest number of keys that one call examines.
const KEYS_PER_CALL_MAX: usize = 8_192;

/// What the node knows about a key.
#[derive(Debug, Default)]
struct TellerKey {
    /// The number of nodes that hold the key.
    holders: u32,
    /// The generation that was reported last; 0 = unknown.
    told: u64,
    /// The number of nodes that remember what was reported.
    witnesses: u32,
    /// Since when no node remembers it, Unix milliseconds.
    unwitnessed_ms: u64,
    /// Whether this node is one of those that remember it.
    is_witness: bool,
    /// Since when no node holds the key, Unix milliseconds.
    empty_since_ms: u64,
    /// The reason for the key's last change.
    reason: Option<Reason>,
    /// When to examine the key, Unix milliseconds; 0 = not at all.
    due_ms: u64,
}

/// A node that disappeared without notice. Times are Unix milliseconds.
#[derive(Debug, Clone, Copy)]
struct GoneNode {
    /// When the disappearance was noticed.
    gone_ms: u64,
    /// When the node was last heard.
    heard_ms: u64,
}

/// One node's part in reporting the states of keys.
pub struct StateTeller {
    options: TellerOptions,
    node: Arc<str>,
    /// What the nodes hold and have reported; `None` = the node is alone.
    replica: Option<Replica>,
    holder: OwnerId,
    witness: OwnerId,
    keys: IndexMap<Box<str>, TellerKey, SipState>,
    due: BTreeSet<(u64, Box<str>)>,
    /// The keys that no node holds, in the order in which that was reported.
    empties: VecDeque<Box<str>>,
    /// The other nodes in sight.
    nodes: BTreeSet<Arc<str>>,
    /// The nodes that existed when this node started, and are not in sight yet.
    awaited: BTreeSet<Arc<str>>,
    /// Nodes in sight that know what was reported before they started, or since.
    remembering: BTreeSet<Arc<str>>,
    /// The nodes that have announced that they stop.
    stopping: BTreeSet<Arc<str>>,
    /// The nodes that disappeared without notice.
    gone: BTreeMap<Arc<str>, GoneNode>,
    /// The lives of the nodes in sight that are in a later life than their first one.
    lives: BTreeMap<Arc<str>, u32>,
    /// The life of this node that the other nodes have been sent.
    noted_life: u32,
    /// The life of this node that the other nodes know.
    life: u32,
    /// When a node last appeared or disappeared while others were gone, Unix milliseconds; `None` = it was already
    /// judged.
    changed_ms: Option<u64>,
    /// Nothing is reported before this time, Unix milliseconds.
    quiet_until_ms: u64,
    /// All keys from this index on have to be examined, because the nodes in sight have changed.
    rescan: Option<usize>,
    /// Whether this node may be the first to report: it has not checked yet whether others know what was reported.
    is_new: bool,
    outputs: Vec<TellerOutput>,
}

impl StateTeller {
    /// A teller that knows nothing. `birth`: a random number that differs between lives of the node.
    pub fn new(node: &str, birth: u64, options: TellerOptions, seed: HashSeed, now_ms: u64) -> Self {
        let limits = Limits { key_max: usize::from(u16::MAX), entries_of_owner_max: usize::MAX, ..Limits::default() };
        let settings = ReplicaSettings { limits, timing: options.timing.clone(), ..ReplicaSettings::default() };
        let mut replica = options.is_clustered.then(|| Replica::new(node, birth, settings, seed, now_ms));
        if let Some(replica) = &mut replica {
            let _ = replica.join(owner(node, 1), ALIVE, b"", now_ms);
        }
        // A node that cannot join the others reports alone after a while.
        let quiet_ms = options.timing.timeout_ms + QUIET_HEARTBEATS * options.timing.heartbeat_ms;
        StateTeller {
            quiet_until_ms: if options.is_clustered { now_ms + quiet_ms } else { now_ms },
            options,
            node: node.into(),
            replica,
            holder: owner(node, 1),
            witness: owner(node, 2),
            keys: IndexMap::with_hasher(seed.sip()),
            due: BTreeSet::new(),
            empties: VecDeque::new(),
            nodes: BTreeSet::new(),
            awaited: BTreeSet::new(),
            remembering: BTreeSet::new(),
            stopping: BTreeSet::new(),
            gone: BTreeMap::new(),
            lives: BTreeMap::new(),
            noted_life: 1,
            life: 1,
            changed_ms: None,
            rescan: None,
            is_new: true,
            outputs: Vec::new(),
        }
    }

    /// Changes the delay for keys that become empty from now on, milliseconds.
    pub fn set_delay(&mut self, delay_ms: u64) {
        self.options.delay_ms = delay_ms;
    }

    /// Notes whether this node now holds a key.
    pub fn set_held(&mut self, key: &StateKey, is_held: bool, now_ms: u64) {
        let text = key.partition_key();
        match (&mut self.replica, is_held) {
            // A key that is too long for the registry is not reported.
            (Some(replica), true) => drop(replica.join(self.holder, &text, b"", now_ms)),
            (Some(replica), false) => drop(replica.leave(self.holder, &text)),
            (None, _) => self.count_holder(&text, is_held, Reason::Normal, now_ms),
        }
        self.collect(now_ms);
    }

    /// Handles a message of another node's teller.
    pub fn receive(&mut self, message: &[u8], now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.receive(message, now_ms);
        }
        self.collect(now_ms);
    }

    /// Notes that this node now takes part in the cluster. `nodes`: the other nodes that it should see.
    pub fn joined(&mut self, nodes: &[Arc<str>], now_ms: u64) {
        let Some(replica) = &mut self.replica else { return };
        replica.joined(now_ms);
        self.awaited = nodes.iter().filter(|node| !self.nodes.contains(*node)).cloned().collect();
        let timing = &self.options.timing;
        // Some of these nodes may report nothing, and then never appear.
        let wait_ms = if self.awaited.is_empty() { 0 } else { timing.timeout_ms };
        self.quiet_until_ms = now_ms + wait_ms + QUIET_HEARTBEATS * timing.heartbeat_ms;
        self.rescan = Some(0);
    }

    /// Handles that a node is dead.
    pub fn gone(&mut self, node: &str, now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.gone(node, now_ms);
        }
        self.collect(now_ms);
    }

    /// Detects whether this node stood still. Call this function after each wait.
    pub fn wake(&mut self, now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.wake(now_ms);
        }
        self.collect(now_ms);
    }

    /// Moves all stored times, because the clock was set ahead while this node continued to run.
    pub fn clock_set(&mut self, by_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.clock_set(by_ms);
        }
        self.quiet_until_ms += by_ms;
        self.gone.values_mut().for_each(|gone| gone.gone_ms += by_ms);
        self.due.clear();
        for (text, key) in &mut self.keys {
            key.empty_since_ms += by_ms;
            if key.due_ms > 0 {
                key.due_ms += by_ms;
                self.due.insert((key.due_ms, text.clone()));
            }
        }
    }

    /// Examines what is due. Call it several times a second and after each batch of changes, then take the outputs.
    pub fn advance(&mut self, now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.tick(now_ms);
        }
        self.collect(now_ms);
        let mut changes = Vec::new();
        if self.is_ready(now_ms) {
            self.begin(now_ms);
            for text in self.take_due(now_ms) {
                changes.extend(self.look_at(&text, now_ms));
            }
            self.forget_empties();
        }
        self.judge_losses(now_ms);
        if let Some(replica) = &mut self.replica {
            replica.flush();
        }
        self.collect(now_ms);
        // The other nodes get to know a change before it is sent.
        self.outputs.extend(changes.into_iter().map(TellerOutput::Tell));
    }

    /// Notifies the other nodes that this one leaves.
    pub fn goodbye(&mut self, now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            let _ = replica.leave(self.holder, ALIVE);
            replica.goodbye();
        }
        self.collect(now_ms);
    }

    /// Removes and returns what the host has to do, in order.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, TellerOutput> {
        self.outputs.drain(..)
    }

    /// Whether this node reports changes of a key: it has the highest hash of the nodes in sight.
    pub fn is_reporter(&self, key: &str) -> bool {
        let own = rank(key, &self.node);
        self.nodes.iter().all(|other| rank(key, other) < own)
    }

    /// Whether this node has seen the same nodes for long enough to report.
    pub fn is_ready(&self, now_ms: u64) -> bool {
        now_ms >= self.quiet_until_ms && self.replica.as_ref().is_none_or(Replica::is_settled)
    }

    /// The life in which this node reports. It is 1 at first, and higher each time after other nodes have purged this
    /// node, and so may have reported the ends of its clients. All nodes in sight know it: their reports about this
    /// node belong to it.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The held keys for which this node is the reporter, as they were reported.
    pub fn states(&self, now_ms: u64) -> impl Iterator<Item = StateChange> {
        let is_told = |key: &TellerKey| key.told % 2 == 1 && key.holders > 0;
        let told = self.keys.iter().filter(move |(text, key)| is_told(key) && self.is_reporter(text));
        told.filter_map(move |(text, key)| {
            Some(StateChange {
                key: StateKey::parse(text)?,
                generation: key.told,
                reason: Reason::Normal.as_str(),
                empty_since_ms: None,
                time_ms: now_ms,
            })
        })
    }

    /// Whether another node that reports is in sight.
    pub fn sees(&self, node: &str) -> bool {
        self.nodes.contains(node)
    }

    /// The number of keys that are held, or whose generation is remembered.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Handles the first moment at which this node may report: possibly no node knows what was reported before.
    fn begin(&mut self, now_ms: u64) {
        if !std::mem::take(&mut self.is_new) {
            return;
        }
        if self.remembering.is_empty() {
            self.outputs.push(TellerOutput::Doubt { why: "start", since_ms: None });
        }
        if let Some(replica) = &mut self.replica {
            let _ = replica.join(self.holder, ALIVE, REMEMBERS, now_ms);
        }
    }

    /// Removes and returns the keys that are examined now.
    fn take_due(&mut self, now_ms: u64) -> Vec<Box<str>> {
        let mut texts = Vec::new();
        if let Some(from) = self.rescan {
            let to = (from + KEYS_PER_CALL_MAX).min(self.keys.len());
            texts.extend((from..to).filter_map(|index| self.keys.get_index(index)).map(|(text, _)| text.clone()));
            self.rescan = (to < self.keys.len()).then_some(to);
        }
        while texts.len() < KEYS_PER_CALL_MAX
            && let Some((due_ms, text)) = self.due.pop_first()
        {
            if due_ms > now_ms {
                self.due.insert((due_ms, text));
                break;
            }
            if self.keys.get(&text).is_some_and(|key| key.due_ms == due_ms) {
                texts.push(text);
            }
        }
        texts
    }

    /// Reports a key's change, if this node has to report it now.
    fn look_at(&mut self, text: &str, now_ms: u64) -> Option<StateChange> {
        self.keys.get_mut(text)?.due_ms = 0;
        self.stand_in(text, now_ms);
        let is_reporter = self.is_reporter(text);
        let key = self.keys.get_mut(text)?;
        let (is_held, was_held) = (key.holders > 0, key.told % 2 == 1);
        if !is_reporter || is_held == was_held {
            return None;
        }
        let until_ms = key.empty_since_ms.saturating_add(self.options.delay_ms);
        if !is_held && now_ms < until_ms {
            self.schedule(text, until_ms);
            return None;
        }
        key.told = if key.told == 0 { now_ms * 2 + 1 } else { key.told + 1 };
        let change = StateChange {
            key: StateKey::parse(text)?,
            generation: key.told,
            reason: key.reason.unwrap_or(Reason::Normal).as_str(),
            empty_since_ms: (!is_held).then_some(key.empty_since_ms),
            time_ms: now_ms,
        };
        if !is_held {
            self.empties.push_back(text.into());
        }
        self.bear_witness(text, now_ms);
        Some(change)
    }

    /// Publishes what was reported about a key if no other node remembers it, because the node that reported it is
    /// gone. The others may not know it. Nodes with a higher hash go first, each with one heartbeat of time.
    fn stand_in(&mut self, text: &str, now_ms: u64) {
        let Some(key) = self.keys.get(text).filter(|key| key.told > 0 && key.witnesses == 0) else { return };
        if self.replica.is_none() {
            return;
        }
        let own = rank(text, &self.node);
        let before = self.nodes.iter().filter(|other| rank(text, other) > own).count() as u64;
        let at_ms = key.unwitnessed_ms.saturating_add(before * self.options.timing.heartbeat_ms);
        if now_ms >= at_ms { self.bear_witness(text, now_ms) } else { self.schedule(text, at_ms) }
    }

    /// Publishes to the other nodes what was reported about a key.
    fn bear_witness(&mut self, text: &str, now_ms: u64) {
        let (Some(replica), Some(key)) = (&mut self.replica, self.keys.get(text)) else { return };
        let _ = replica.join(self.witness, text, &key.told.to_le_bytes(), now_ms);
        self.collect(now_ms);
    }

    /// Schedules an examination of a key at this time.
    fn schedule(&mut self, text: &str, at_ms: u64) {
        let Some(key) = self.keys.get_mut(text) else { return };
        if key.due_ms == 0 || key.due_ms > at_ms {
            key.due_ms = at_ms.max(1);
            self.due.insert((key.due_ms, text.into()));
        }
    }

    /// Forgets the oldest keys that no node holds, while there are too many.
    fn forget_empties(&mut self) {
        while self.empties.len() > EMPTY_KEYS_MAX
            && let Some(text) = self.empties.pop_front()
        {
            let is_empty = self.keys.get(&text).is_some_and(|key| key.holders == 0 && key.told.is_multiple_of(2));
            if is_empty && let Some(key) = self.keys.swap_remove(&text) {
                self.withdraw(&text, &key);
            }
        }
        if let Some(capacity) = spare_capacity(self.keys.len(), self.keys.capacity()) {
            self.keys.shrink_to(capacity);
        }
    }

    fn withdraw(&mut self, text: &str, key: &TellerKey) {
        if let Some(replica) = self.replica.as_mut().filter(|_| key.is_witness) {
            let _ = replica.leave(self.witness, text);
        }
    }

    /// Reports a doubt if a node is lost that may have reported something alone. It disappeared without notice, and
    /// although the nodes in sight have changed since, so that a split may have ended, it has not come back.
    fn judge_losses(&mut self, now_ms: u64) {
        let timing = &self.options.timing;
        let window_ms = timing.timeout_ms + QUIET_HEARTBEATS * timing.heartbeat_ms;
        if self.changed_ms.is_some_and(|changed_ms| now_ms >= changed_ms.saturating_add(window_ms)) {
            self.changed_ms = None;
            self.gone.retain(|_, gone| now_ms < gone.gone_ms.saturating_add(GONE_KEPT_MS));
            if let Some(heard_ms) = self.gone.values().map(|gone| gone.heard_ms).min() {
                self.outputs.push(TellerOutput::Doubt { why: "node_lost", since_ms: Some(heard_ms) });
            }
        }
    }

    /// Handles the outputs of the registry.
    fn collect(&mut self, now_ms: u64) {
        let Some(replica) = &mut self.replica else { return };
        let outputs: Vec<Output> = replica.outputs().collect();
        for output in outputs {
            match output {
                Output::Send { to, message } => {
                    self.outputs.push(TellerOutput::Send { to, message: Bytes::from_owner(message) });
                }
                Output::Event(event) => self.take_in(&event, now_ms),
                Output::Node { node, is_up, heard_ms } => self.note_node(node, is_up, heard_ms, now_ms),
                // This node knows exactly what it holds.
                Output::Probe => self.replica.iter_mut().for_each(|replica| replica.probed(now_ms)),
                Output::Lost { .. } | Output::Resolve { .. } | Output::Differs { .. } => {}
            }
        }
        self.note_life(now_ms);
    }

    /// Detects that others have purged this node. It publishes this before it answers any node, so a node that sees it
    /// again knows it.
    fn note_life(&mut self, now_ms: u64) {
        let Some(replica) = &mut self.replica else { return };
        let life = u32::try_from(replica.counters().reincarnations).unwrap_or(u32::MAX).saturating_add(1);
        if life > self.noted_life {
            self.noted_life = life;
            let _ = replica.join(self.holder, LIFE, life.to_string().as_bytes(), now_ms);
        }
        if life > self.life && replica.is_known(now_ms) {
            self.life = life;
        }
    }

    fn note_node(&mut self, node: Arc<str>, is_up: bool, heard_ms: u64, now_ms: u64) {
        let life = if is_up { self.lives.get(&node).copied() } else { self.lives.remove(&node) }.unwrap_or(1);
        self.outputs.push(TellerOutput::Node { node: Arc::clone(&node), is_up, life, heard_ms });
        self.awaited.remove(&node);
        if is_up {
            if !self.gone.is_empty() {
                self.changed_ms = Some(now_ms);
            }
            self.gone.remove(&node);
            self.nodes.insert(node);
        } else {
            self.nodes.remove(&node);
            self.remembering.remove(&node);
            if !self.stopping.remove(&node) {
                self.gone.insert(node, GoneNode { gone_ms: now_ms, heard_ms });
                // What the node reported may never have reached other nodes.
                self.changed_ms = Some(now_ms);
            }
        }
        if self.awaited.is_empty() {
            self.quiet_until_ms = now_ms + QUIET_HEARTBEATS * self.options.timing.heartbeat_ms;
        }
        self.rescan = Some(0);
    }

    fn take_in(&mut self, event: &RegistryEvent, now_ms: u64) {
        let text = event.entry.key();
        if text == ALIVE {
            let node = event.entry.node();
            if event.change == EntryChange::Left && event.reason == Reason::Normal {
                self.stopping.insert(Arc::clone(node));
            } else if event.entry.meta() == REMEMBERS && *node != self.node {
                self.remembering.insert(Arc::clone(node));
            }
            return;
        }
        if text == LIFE {
            let life = std::str::from_utf8(event.entry.meta()).ok().and_then(|text| text.parse().ok());
            if let Some(life) = life.filter(|_| event.change != EntryChange::Left && *event.entry.node() != self.node) {
                self.lives.insert(Arc::clone(event.entry.node()), life);
            }
            return;
        }
        let generation = event.entry.meta().try_into().map(u64::from_le_bytes).ok();
        match (event.change, generation) {
            (EntryChange::Joined, None) => self.count_holder(text, true, event.reason, now_ms),
            (EntryChange::Left, None) => self.count_holder(text, false, event.reason, now_ms),
            (EntryChange::Joined | EntryChange::MemberUpdated, Some(generation)) => {
                self.hear_witness(event, generation, now_ms);
            }
            (EntryChange::Left, Some(_)) => {
                let is_own = event.entry.owner() == self.witness;
                if let Some(key) = self.keys.get_mut(text) {
                    key.witnesses = key.witnesses.saturating_sub(1);
                    key.unwitnessed_ms = now_ms;
                    key.is_witness &= !is_own;
                }
                self.schedule(text, now_ms);
            }
            _ => {}
        }
    }

    fn count_holder(&mut self, text: &str, is_held: bool, reason: Reason, now_ms: u64) {
        let key = self.keys.entry(text.into()).or_default();
        if is_held {
            key.holders += 1;
        } else {
            key.holders = key.holders.saturating_sub(1);
            if key.holders == 0 {
                key.empty_since_ms = now_ms;
            }
        }
        key.reason = Some(reason);
        self.schedule(text, now_ms);
    }

    fn hear_witness(&mut self, event: &RegistryEvent, generation: u64, now_ms: u64) {
        let text = event.entry.key();
        let (is_own, is_new) = (event.entry.owner() == self.witness, event.change == EntryChange::Joined);
        let key = self.keys.entry(text.into()).or_default();
        key.witnesses += u32::from(is_new);
        key.is_witness |= is_own;
        let is_later = generation > key.told;
        key.told = key.told.max(generation);
        if is_later && !is_own {
            if key.told.is_multiple_of(2) {
                self.empties.push_back(text.into());
            }
            // A later generation replaces the one that this node remembers, so it withdraws its entry.
            let is_witness = self.keys.get(text).is_some_and(|key| key.is_witness);
            if let Some(replica) = self.replica.as_mut().filter(|_| is_witness) {
                let _ = replica.leave(self.witness, text);
            }
        }
        self.schedule(text, now_ms);
    }
}

/// An owner of entries that no other node uses. `part`: what the entries are for.
fn owner(node: &str, part: u8) -> OwnerId {
    let mut bytes = [part; 16];
    bytes[..8].copy_from_slice(&rank("holder", node).to_le_bytes());
    OwnerId(bytes)
}

/// The rank of a node for a key. It is the same on all nodes and in all versions.
fn rank(key: &str, node: &str) -> u64 {
    // FNV-1a (Fowler, Noll, Vo) with the last step of SplitMix64, because the ids of nodes differ in few bits.
    let bytes = key.bytes().chain([0xff]).chain(node.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}
