//! What was told of channels and users, without a database: each node knows who holds a key, by a scope of the registry
//! of its own, and one node tells when that differs from what was told last.
//!
//! A key is a group. A node that holds it is a member; so is the node that told last, with the *generation* as its
//! metadata: one more with each change, odd = held. All nodes so know what was told, before it leaves, and the reporter
//! of a key (the highest hash of key and node among those in sight) tells the next change.
//!
//! What cannot be promised: a node that told something while nobody else saw it, and then died, takes that with it.
//! [`TellerOutput::Doubt`] says when that may have happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use indexmap::IndexMap;
use touchline_registry::{
    EntryChange, HashSeed, Limits, Output, OwnerId, Reason, RegistryEvent, Replica, ReplicaSettings, SipState,
};

use super::state_key::StateKey;
use super::telling::{StateChange, TellerOptions, TellerOutput};

/// Keys that nobody holds, and whose generation is remembered: beyond them the oldest is forgotten, and its count
/// begins anew.
const EMPTY_KEYS_MAX: usize = 262_144;
/// Heartbeats for which a node must have seen the same nodes before it tells anything.
const QUIET_HEARTBEATS: u64 = 2;
/// How long a node that has gone without a word is remembered, milliseconds: it may live on the other side of a split.
const GONE_KEPT_MS: u64 = 600_000;
/// The group that a node leaves before it stops: one that has not is lost. No key is called so.
const ALIVE: &str = "alive";
/// What a node says there once it may tell.
const REMEMBERS: &[u8] = b"1";
/// The group that a node joins once others have purged it: its metadata are the number of the life that it tells in
/// since then. No key is called so.
const LIFE: &str = "life";
/// Keys that are looked at in one call.
const KEYS_PER_CALL_MAX: usize = 8_192;

/// What is known of a key.
#[derive(Debug, Default)]
struct TellerKey {
    /// Nodes that hold it.
    holders: u32,
    /// The generation that was told last; 0 = it is not known.
    told: u64,
    /// Nodes that say what was told.
    witnesses: u32,
    /// Since when none does, Unix milliseconds.
    unwitnessed_ms: u64,
    /// This node is one of them.
    is_witness: bool,
    /// Since when nobody holds it, Unix milliseconds.
    empty_since_ms: u64,
    /// Why it has changed last.
    reason: Option<Reason>,
    /// When it is looked at, Unix milliseconds; 0 = it is not to be.
    due_ms: u64,
}

/// A node that has gone without a word, Unix milliseconds.
#[derive(Debug, Clone, Copy)]
struct GoneNode {
    /// When that was noticed.
    gone_ms: u64,
    /// When it was last heard.
    heard_ms: u64,
}

/// One node's part in telling.
pub struct StateTeller {
    options: TellerOptions,
    node: Arc<str>,
    /// What the nodes hold and have told; `None` = the node is alone.
    replica: Option<Replica>,
    holder: OwnerId,
    witness: OwnerId,
    keys: IndexMap<Box<str>, TellerKey, SipState>,
    due: BTreeSet<(u64, Box<str>)>,
    /// Keys that nobody holds, in the order in which that was told.
    empties: VecDeque<Box<str>>,
    /// The other nodes in sight.
    nodes: BTreeSet<Arc<str>>,
    /// Nodes that were there when this one came, and are not in sight yet.
    awaited: BTreeSet<Arc<str>>,
    /// Those of them that know what was told before they came, or since.
    remembering: BTreeSet<Arc<str>>,
    /// Nodes that have said that they stop.
    stopping: BTreeSet<Arc<str>>,
    /// Nodes that have gone without a word.
    gone: BTreeMap<Arc<str>, GoneNode>,
    /// The lives of the nodes in sight that are in a later one than their first.
    lives: BTreeMap<Arc<str>, u32>,
    /// The life of this node that the others are told of.
    noted_life: u32,
    /// The life of this node that they know.
    life: u32,
    /// When a node came last while others were gone, Unix milliseconds; `None` = it has been judged.
    changed_ms: Option<u64>,
    /// Nothing is told before, Unix milliseconds.
    quiet_until_ms: u64,
    /// All keys from this one on are to be looked at, because the nodes in sight have changed.
    rescan: Option<usize>,
    /// Nobody knew what was told when the node came: that has not been said yet.
    is_new: bool,
    outputs: Vec<TellerOutput>,
}

impl StateTeller {
    /// A teller that knows nothing. `birth`: random, another one in each life of the node.
    pub fn new(node: &str, birth: u64, options: TellerOptions, seed: HashSeed, now_ms: u64) -> Self {
        let limits = Limits { key_max: usize::from(u16::MAX), entries_of_owner_max: usize::MAX, ..Limits::default() };
        let settings = ReplicaSettings { limits, timing: options.timing.clone(), ..ReplicaSettings::default() };
        let mut replica = options.is_clustered.then(|| Replica::new(node, birth, settings, seed, now_ms));
        if let Some(replica) = &mut replica {
            let _ = replica.join(owner(node, 1), ALIVE, b"", now_ms);
        }
        // A node that cannot join the others tells alone after a while.
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

    /// What is empty from now on is told after another time.
    pub fn set_delay(&mut self, delay_ms: u64) {
        self.options.delay_ms = delay_ms;
    }

    /// Whether this node holds a key has changed.
    pub fn set_held(&mut self, key: &StateKey, is_held: bool, now_ms: u64) {
        let text = key.partition_key();
        match (&mut self.replica, is_held) {
            // A key that is too long for the registry is not told of.
            (Some(replica), true) => drop(replica.join(self.holder, &text, b"", now_ms)),
            (Some(replica), false) => drop(replica.leave(self.holder, &text)),
            (None, _) => self.count_holder(&text, is_held, Reason::Normal, now_ms),
        }
        self.collect(now_ms);
    }

    /// A message of another node's teller.
    pub fn receive(&mut self, message: &[u8], now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.receive(message, now_ms);
        }
        self.collect(now_ms);
    }

    /// This node takes part in the cluster from now on, in the sight of these nodes.
    pub fn joined(&mut self, nodes: &[Arc<str>], now_ms: u64) {
        let Some(replica) = &mut self.replica else { return };
        replica.joined(now_ms);
        self.awaited = nodes.iter().filter(|node| !self.nodes.contains(*node)).cloned().collect();
        let timing = &self.options.timing;
        // One that tells nothing never comes.
        let wait_ms = if self.awaited.is_empty() { 0 } else { timing.timeout_ms };
        self.quiet_until_ms = now_ms + wait_ms + QUIET_HEARTBEATS * timing.heartbeat_ms;
        self.rescan = Some(0);
    }

    /// A node is dead.
    pub fn gone(&mut self, node: &str, now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.gone(node, now_ms);
        }
        self.collect(now_ms);
    }

    /// Notices whether this node stood still. Call it after each wait.
    pub fn wake(&mut self, now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            replica.wake(now_ms);
        }
        self.collect(now_ms);
    }

    /// The clock was set ahead while this node went on: all times that are kept move with it.
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

    /// Looks at what is due; call it several times a second, and after each batch of changes. Then take the outputs.
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
        // Others know it before it leaves.
        self.outputs.extend(changes.into_iter().map(TellerOutput::Tell));
    }

    /// Tells the other nodes that this one leaves.
    pub fn goodbye(&mut self, now_ms: u64) {
        if let Some(replica) = &mut self.replica {
            let _ = replica.leave(self.holder, ALIVE);
            replica.goodbye();
        }
        self.collect(now_ms);
    }

    /// What is to be done, in order.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, TellerOutput> {
        self.outputs.drain(..)
    }

    /// Whether this node is the one that tells of a key: of those in sight it has the highest hash.
    pub fn is_reporter(&self, key: &str) -> bool {
        let own = rank(key, &self.node);
        self.nodes.iter().all(|other| rank(key, other) < own)
    }

    /// Whether what this node sees has held for long enough to tell by.
    pub fn is_ready(&self, now_ms: u64) -> bool {
        now_ms >= self.quiet_until_ms && self.replica.as_ref().is_none_or(Replica::is_settled)
    }

    /// The life in which this node tells: 1 at first, and higher each time that others have purged it, and so may have
    /// told the ends of its clients. All nodes in sight know it by now: what they tell of this node is of this life.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// What is held, as far as it was told and this node is the one that tells of it: as it was told.
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

    /// Whether another node that tells is in sight.
    pub fn sees(&self, node: &str) -> bool {
        self.nodes.contains(node)
    }

    /// Keys that are held, or whose generation is remembered.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The first time that this node may tell anything: perhaps nobody knows what was told before.
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

    /// The keys that are looked at now.
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

    /// Tells a key's change, if this node is to tell it now.
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

    /// Says what was told of a key where nobody does any more, because who told it is gone. The others may not know it:
    /// those that come first by their hash get a heartbeat each to say it.
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

    /// Says to the other nodes what was told of a key.
    fn bear_witness(&mut self, text: &str, now_ms: u64) {
        let (Some(replica), Some(key)) = (&mut self.replica, self.keys.get(text)) else { return };
        let _ = replica.join(self.witness, text, &key.told.to_le_bytes(), now_ms);
        self.collect(now_ms);
    }

    /// Has a key looked at, at this time.
    fn schedule(&mut self, text: &str, at_ms: u64) {
        let Some(key) = self.keys.get_mut(text) else { return };
        if key.due_ms == 0 || key.due_ms > at_ms {
            key.due_ms = at_ms.max(1);
            self.due.insert((key.due_ms, text.into()));
        }
    }

    /// Forgets the oldest of the keys that nobody holds, while there are too many.
    fn forget_empties(&mut self) {
        while self.empties.len() > EMPTY_KEYS_MAX
            && let Some(text) = self.empties.pop_front()
        {
            let is_empty = self.keys.get(&text).is_some_and(|key| key.holders == 0 && key.told.is_multiple_of(2));
            if is_empty && let Some(key) = self.keys.swap_remove(&text) {
                self.withdraw(&text, &key);
            }
        }
    }

    fn withdraw(&mut self, text: &str, key: &TellerKey) {
        if let Some(replica) = self.replica.as_mut().filter(|_| key.is_witness) {
            let _ = replica.leave(self.witness, text);
        }
    }

    /// Whether a node is lost that may have told something alone: it went without a word, others have come since, so a
    /// split may have ended, and it is not among them.
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

    /// Takes in what the registry has put out.
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
                // What this node holds it knows exactly.
                Output::Probe => self.replica.iter_mut().for_each(|replica| replica.probed(now_ms)),
                Output::Lost { .. } | Output::Resolve { .. } | Output::Differs { .. } => {}
            }
        }
        self.note_life(now_ms);
    }

    /// Notices that others have purged this node. It says so before it answers anybody: who sees it again knows it.
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
                // What it had told may never have left it.
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
            // The later word counts.
            let is_witness = self.keys.get(text).is_some_and(|key| key.is_witness);
            if let Some(replica) = self.replica.as_mut().filter(|_| is_witness) {
                let _ = replica.leave(self.witness, text);
            }
        }
        self.schedule(text, now_ms);
    }
}

/// An owner of entries that no other node has. `part`: what the entries say.
fn owner(node: &str, part: u8) -> OwnerId {
    let mut bytes = [part; 16];
    bytes[..8].copy_from_slice(&rank("holder", node).to_le_bytes());
    OwnerId(bytes)
}

/// The rank of a node for a key: the same on all nodes and in all versions.
fn rank(key: &str, node: &str) -> u64 {
    // FNV-1a (Fowler, Noll, Vo), and the last step of SplitMix64, because nodes differ in few bits.
    let bytes = key.bytes().chain([0xff]).chain(node.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}
