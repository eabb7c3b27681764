//! One node's part in one scope: the commands of its owners. [`crate::sync`] keeps it in sync with other nodes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::clock::{HybridClock, Stamp};
use crate::codec::{self, ReplicatedOperation};
use crate::entry::Entry;
use crate::event::{Output, Reason};
use crate::hash_seed::HashSeed;
use crate::incarnation::IncarnationState;
use crate::owners::OwnerId;
use crate::peer::{Incarnation, Peer};
use crate::settings::{ConflictPolicyKind, Limits, ReplicaSettings};
use crate::table::{SELF, Table};
use crate::view::View;

/// Why a command was refused. A refused command changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterRefusal {
    /// Another owner has the name; its entry is given.
    Taken(Entry),
    /// No owner has the name, or this owner does not have it, or the membership does not exist.
    Undefined,
    /// The entry has changed since it was read: the stamp or the revision differs. The current entry is given.
    Changed(Entry),
    /// A name, a group or metadata is too long, or is empty although it must not be.
    TooLong,
    /// The owner already holds the maximum number of entries.
    TooMany,
}

/// The result of a successful register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// The name was free or was taken over.
    New(Entry),
    /// The owner already had the name, and its metadata was replaced.
    Updated(Entry),
}

/// Counts of events since the replica was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Conflicts that this node's claim lost.
    pub conflicts_lost: u64,
    /// Snapshots that this node sent.
    pub snapshots_sent: u64,
    /// Snapshots that this node installed.
    pub snapshots_installed: u64,
    /// How often operations were found missing.
    pub gaps: u64,
    /// Digests that differed although no operation was missing.
    pub digests_wrong: u64,
    /// Nodes that this node purged.
    pub purges: u64,
    /// Messages that could not be read.
    pub malformed: u64,
    /// Stamps of other nodes that were ahead by more than the bound.
    pub drifted: u64,
    /// Conflicts that the backend did not resolve in time.
    pub hooks_failed: u64,
    /// How often this node began a new incarnation because other nodes had purged it.
    pub reincarnations: u64,
    /// How often this node met a node with other options for the scope.
    pub differences: u64,
}

/// A conflict that waits for the backend's answer.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    pub(crate) until_ms: u64,
    pub(crate) other_rank: u8,
}

/// Operations that were sent, kept for nodes that lack them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) operations: Box<[u8]>,
}

/// One node's part in one scope.
#[derive(Debug)]
pub struct Replica {
    pub(crate) node: Arc<str>,
    pub(crate) incarnation: Incarnation,
    pub(crate) settings: ReplicaSettings,
    /// The smallest limits of all nodes in sight.
    pub(crate) limits: Limits,
    /// The maximum size of one message in bytes, as the carrier allows.
    pub(crate) message_max: usize,
    pub(crate) clock: HybridClock,
    pub(crate) table: Table,
    /// The number of this node's last operation.
    pub(crate) last: u64,
    /// Operations that have not been sent yet.
    pub(crate) unsent: Vec<u8>,
    pub(crate) unsent_count: u64,
    pub(crate) log: VecDeque<Batch>,
    pub(crate) log_bytes: usize,
    pub(crate) peers: BTreeMap<Arc<str>, Peer>,
    /// Incarnations that fell silent, said goodbye or were replaced, and when. Their messages are ignored.
    pub(crate) departed: BTreeMap<Arc<str>, (Incarnation, u64)>,
    pub(crate) life: IncarnationState,
    pub(crate) pending: BTreeMap<Arc<str>, PendingCommand>,
    pub(crate) heartbeat_due_ms: u64,
    pub(crate) ticked_ms: u64,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) counters: Counters,
}

impl Replica {
    /// Creates a replica that knows no other node yet. `node` must differ from all other nodes' names. `birth` is a
    /// random number, new in every life of a node. `seed` is the seed of the hash tables. It must be secret if clients
    /// choose names.
    pub fn new(node: &str, birth: u64, settings: ReplicaSettings, seed: HashSeed, now_ms: u64) -> Self {
        Replica {
            node: node.into(),
            incarnation: Incarnation { order: now_ms, birth },
            clock: HybridClock::new(settings.timing.drift_max_ms),
            table: Table::new(settings.policy, settings.classify, node, seed),
            limits: settings.limits.clone(),
            message_max: usize::MAX,
            settings,
            last: 0,
            unsent: Vec::new(),
            unsent_count: 0,
            log: VecDeque::new(),
            log_bytes: 0,
            peers: BTreeMap::new(),
            departed: BTreeMap::new(),
            life: IncarnationState::default(),
            pending: BTreeMap::new(),
            heartbeat_due_ms: now_ms,
            ticked_ms: now_ms,
            outputs: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Gives a name to an owner on this node, or replaces its metadata if the owner has it already. With `take_over`
    /// the name is taken from its owner if the scope's policy is `Newest`, or if the owner's node is suspected to be
    /// dead ([`Replica::suspect`]).
    ///
    /// # Errors
    /// [`RegisterRefusal::Taken`], [`RegisterRefusal::TooLong`], [`RegisterRefusal::TooMany`].
    pub fn register(
        &mut self,
        owner: OwnerId,
        name: &str,
        meta: &[u8],
        take_over: bool,
        now_ms: u64,
    ) -> Result<Registered, RegisterRefusal> {
        self.check(name, meta)?;
        let counting = self.table.counting(name);
        let (mut seen, mut rank) = (None, 0);
        match &counting {
            Some((entry, SELF, rank)) if entry.owner() == owner => {
                if entry.meta() == meta {
                    return Ok(Registered::Updated(entry.clone()));
                }
                let entry = entry.revise(meta);
                self.claim(entry.clone(), *rank, Reason::Normal);
                return Ok(Registered::Updated(entry));
            }
            Some((_, authority, _)) if *authority != SELF && self.own(owner, name).is_ok() => {
                // It is not decided yet whether this owner keeps the name.
                return self.update_meta(owner, name, meta, None).map(Registered::Updated);
            }
            Some((entry, authority, other_rank)) if take_over && self.table.authority(*authority).is_suspected => {
                // The claim wins everywhere, even if the other's node is alive and returns.
                (seen, rank) = (Some(entry.stamp()), other_rank.saturating_add(1));
            }
            Some((entry, _, other_rank)) if take_over && self.table.policy() == ConflictPolicyKind::Newest => {
                (seen, rank) = (Some(entry.stamp()), *other_rank);
            }
            Some((entry, ..)) => return Err(RegisterRefusal::Taken(entry.clone())),
            None => {}
        }
        if self.table.entries_of(owner) >= self.settings.limits.entries_of_owner_max {
            return Err(RegisterRefusal::TooMany);
        }
        let loser = counting.as_ref().and_then(|_| self.table.own_claim(name));
        let stamp = self.clock.stamp(seen, now_ms);
        let reason = if counting.is_some() { Reason::TakenOver } else { Reason::Normal };
        let new = Entry::new(self.table.node(SELF), owner, stamp, 0, name, meta);
        self.claim(new.clone(), rank, reason);
        if let Some((entry, _)) = loser {
            self.tell_loser(entry, Reason::TakenOver);
        }
        Ok(Registered::New(new))
    }

    /// Removes a name from its owner on this node.
    ///
    /// # Errors
    /// [`RegisterRefusal::Undefined`] if the owner does not have it.
    pub fn unregister(&mut self, owner: OwnerId, name: &str) -> Result<(), RegisterRefusal> {
        self.own(owner, name)?;
        self.remove_registration(name, Reason::Normal);
        Ok(())
    }

    /// Replaces a name's metadata. With `expected`, only if the stamp and the revision are unchanged.
    ///
    /// # Errors
    /// [`RegisterRefusal::Undefined`], [`RegisterRefusal::Changed`], [`RegisterRefusal::TooLong`].
    pub fn update_meta(
        &mut self,
        owner: OwnerId,
        name: &str,
        meta: &[u8],
        expected: Option<(Stamp, u32)>,
    ) -> Result<Entry, RegisterRefusal> {
        self.check(name, meta)?;
        let (entry, rank) = self.own(owner, name)?;
        if expected.is_some_and(|expected| expected != (entry.stamp(), entry.revision())) {
            return Err(RegisterRefusal::Changed(entry));
        }
        if entry.meta() == meta {
            return Ok(entry);
        }
        let entry = entry.revise(meta);
        self.claim(entry.clone(), rank, Reason::Normal);
        Ok(entry)
    }

    /// Makes an owner on this node a member of a group. Joining again replaces its metadata. Returns whether the member
    /// is new in the group.
    ///
    /// # Errors
    /// [`RegisterRefusal::TooLong`], [`RegisterRefusal::TooMany`].
    pub fn join(&mut self, owner: OwnerId, group: &str, meta: &[u8], now_ms: u64) -> Result<bool, RegisterRefusal> {
        self.check(group, meta)?;
        let member = self.table.own_member(group, owner);
        if member.is_none() && self.table.entries_of(owner) >= self.settings.limits.entries_of_owner_max {
            return Err(RegisterRefusal::TooMany);
        }
        if member.as_ref().is_some_and(|member| member.meta() == meta) {
            return Ok(false);
        }
        let stamp = self.clock.stamp(None, now_ms);
        let entry = Entry::new(self.table.node(SELF), owner, stamp, 0, group, meta);
        self.table.put_member(SELF, entry.clone(), Reason::Normal);
        self.operate(ReplicatedOperation::Join { record: entry.bytes() });
        Ok(member.is_none())
    }

    /// Ends a membership in a group.
    ///
    /// # Errors
    /// [`RegisterRefusal::Undefined`] if the owner is not a member.
    pub fn leave(&mut self, owner: OwnerId, group: &str) -> Result<(), RegisterRefusal> {
        if !self.table.drop_member(SELF, group, owner, Reason::Normal) {
            return Err(RegisterRefusal::Undefined);
        }
        self.operate(ReplicatedOperation::Leave { group, owner, reason: Reason::Normal });
        Ok(())
    }

    /// Removes an owner on this node with everything that it held. The cost grows with the number of its entries.
    pub fn close(&mut self, owner: OwnerId) {
        if self.table.drop_owner(SELF, owner, Reason::Closed) {
            self.operate(ReplicatedOperation::Close { owner, reason: Reason::Closed });
        }
    }

    /// Applies the backend's answer to [`Output::Resolve`]: whether this node's claim stays. `None` = the backend
    /// failed, and the later claim stays.
    pub fn resolve(&mut self, name: &str, keep_mine: Option<bool>, now_ms: u64) {
        let Some((key, pending)) = self.pending.remove_entry(name) else { return };
        self.counters.hooks_failed += u64::from(keep_mine.is_none());
        let Some((mine, _)) = self.table.own_claim(&key) else { return };
        if self.table.lookup(&key).as_ref() == Some(&mine) {
            return;
        }
        if keep_mine != Some(true) {
            return self.withdraw(&key);
        }
        let stamp = self.clock.stamp(Some(mine.stamp()), now_ms);
        self.claim(mine.restamp(stamp), pending.other_rank.saturating_add(1), Reason::Conflict);
    }

    /// The entry of a name's owner. `None` = the name is free. [`Replica::view`] gives the same answer to any thread.
    pub fn lookup(&self, name: &str) -> Option<Entry> {
        self.table.lookup(name)
    }

    /// The members of a group, in no particular order.
    pub fn members(&self, group: &str) -> impl Iterator<Item = Entry> {
        self.table.members(group)
    }

    /// The number of members of a group.
    pub fn member_count(&self, group: &str) -> usize {
        self.table.member_count(group)
    }

    /// The number of a group's members that [`ReplicaSettings::classify`] counts, and of their kinds. Both are kept up
    /// to date, so a call costs one lookup.
    pub fn member_counts(&self, group: &str) -> (u64, u64) {
        self.table.tally(group)
    }

    /// Begins a walk through a group's members; [`Replica::walk`] performs it in steps. A scope has one walk at a time,
    /// and a walk in progress is abandoned. The group may change between steps. An owner that is a member during the
    /// whole walk is visited once, and an owner that joins meanwhile is not visited.
    pub fn begin_walk(&mut self, group: &str) {
        self.table.begin_walk(group);
    }

    /// Continues the walk: visits at most `most` members. Returns whether more members remain.
    pub fn walk(&mut self, most: usize, visit: impl FnMut(&Entry)) -> bool {
        self.table.walk(most, visit)
    }

    /// Visits what an owner on this node holds: first the names that it keeps, then its groups (with `true`), the
    /// latest first in each. It examines at most `most` entries, including names that another claim has won. Returns
    /// the number of entries that it has not examined.
    pub fn held(&self, owner: OwnerId, most: usize, visit: impl FnMut(&Entry, bool)) -> usize {
        self.table.held(owner, most, visit)
    }

    /// Whether an owner on this node is a member of a group.
    pub fn is_member(&self, owner: OwnerId, group: &str) -> bool {
        self.table.own_member(group, owner).is_some()
    }

    /// One page of the names that start with `prefix`, from `cursor` on (0 = the first), and the cursor of the next
    /// page (`None` = the end). A page may be short. A name that stays registered during the whole listing is listed
    /// exactly once.
    pub fn names(&self, prefix: &str, cursor: u32, limit: usize) -> (Vec<Entry>, Option<u32>) {
        self.table.names(prefix, cursor, limit)
    }

    /// Begins a walk over all names; [`Replica::walk_names`] performs it in steps. A scope has one such walk at a time,
    /// and a walk in progress is abandoned. Names may change between steps.
    pub fn begin_name_walk(&mut self) {
        self.table.begin_name_walk();
    }

    /// Continues the walk over all names: examines at most `most` slots, and visits the winning entries. Returns
    /// whether more remain. A name that exists during the whole walk is visited at least once, its latest entry last. A
    /// name that is registered or removed meanwhile may or may not be visited.
    pub fn walk_names(&mut self, most: usize, visit: impl FnMut(&Entry)) -> bool {
        self.table.walk_names(most, visit)
    }

    /// One page of the groups that start with `prefix`, with their sizes, and the cursor of the next page (`None` = the
    /// end).
    pub fn groups(&self, prefix: &str, cursor: u32, limit: usize) -> (Vec<(Arc<str>, u32)>, Option<u32>) {
        self.table.groups(prefix, cursor, limit)
    }

    /// A view for lookups. It may be cloned and used from any thread.
    pub fn view(&self) -> View {
        self.table.view().clone()
    }

    /// The name of this node.
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// The other nodes whose entries are here, each with the number of its entries.
    pub fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, u64)> + Clone {
        let up = self.peers.values().filter(|peer| peer.is_announced);
        up.map(|peer| (&peer.name, self.table.entries_by(peer.authority)))
    }

    /// Whether the entries of all other nodes in sight are here and up to date.
    pub fn is_settled(&self) -> bool {
        self.peers.values().all(|peer| peer.is_live)
    }

    /// Whether a node is suspected to be dead.
    pub fn is_suspected(&self, node: &str) -> bool {
        self.peers.get(node).is_some_and(|peer| self.table.authority(peer.authority).is_suspected)
    }

    /// The policy in effect: the strictest of all nodes in sight.
    pub fn policy(&self) -> ConflictPolicyKind {
        self.table.policy()
    }

    /// Sets the maximum size of a message in bytes, as the carrier allows. Entries that do not fit into one message are
    /// refused.
    pub fn set_message_max(&mut self, bytes: usize) {
        self.message_max = bytes;
    }

    /// The number of this node's own entries.
    pub fn local_entries(&self) -> u64 {
        self.table.entries_by(SELF)
    }

    /// The number of owners on all nodes that hold at least one entry.
    pub fn owners(&self) -> usize {
        self.table.owner_count()
    }

    /// Counts of events since the replica was created.
    pub fn counters(&self) -> Counters {
        Counters { drifted: self.clock.drifted, ..self.counters }
    }

    /// Takes the pending outputs, in order. The host must carry them out.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output> {
        self.collect();
        self.outputs.drain(..)
    }

    /// Moves events from the table to the outputs, and gives up claims that have lost.
    pub(crate) fn collect(&mut self) {
        self.outputs.extend(self.table.events.drain(..).map(Output::Event));
    }

    pub(crate) fn check(&self, key: &str, meta: &[u8]) -> Result<(), RegisterRefusal> {
        let fits = !key.is_empty() && key.len() <= self.limits.key_max && meta.len() <= self.limits.meta_max;
        let around = codec::HEAD_ROOM + self.node.len() + codec::ENTRY_OVERHEAD;
        let is_sendable = key.len().saturating_add(meta.len()).saturating_add(around) <= self.message_max;
        if fits && is_sendable { Ok(()) } else { Err(RegisterRefusal::TooLong) }
    }

    /// The entry of a name that this owner has, and its rank.
    pub(crate) fn own(&self, owner: OwnerId, name: &str) -> Result<(Entry, u8), RegisterRefusal> {
        let own = self.table.own_claim(name).filter(|(entry, _)| entry.owner() == owner);
        own.ok_or(RegisterRefusal::Undefined)
    }

    /// Claims a name for this node, locally and on other nodes.
    pub(crate) fn claim(&mut self, entry: Entry, rank: u8, reason: Reason) {
        self.operate(ReplicatedOperation::Claim { rank, record: entry.bytes() });
        self.table.put_claim(SELF, entry, rank, reason);
        self.concede();
    }

    /// Removes this node's claim, locally and on other nodes.
    pub(crate) fn remove_registration(&mut self, name: &str, reason: Reason) {
        if self.table.drop_claim(SELF, name, reason) {
            self.operate(ReplicatedOperation::Unclaim { name, reason });
        }
    }

    fn tell_loser(&mut self, lost: Entry, reason: Reason) {
        let Some(winner) = self.table.lookup(lost.key()) else { return };
        self.collect();
        self.outputs.push_back(Output::Lost { lost, winner, reason });
    }

    /// Gives up this node's claim, which has lost. The withdrawal is a numbered operation, so that the claim cannot
    /// come back, and its owner is notified.
    pub(crate) fn withdraw(&mut self, name: &str) {
        let Some((mine, _)) = self.table.own_claim(name) else { return };
        self.counters.conflicts_lost += 1;
        self.remove_registration(name, Reason::Conflict);
        self.tell_loser(mine, Reason::Conflict);
    }

    /// Queues an operation of this node, to be sent at the next flush.
    pub(crate) fn operate(&mut self, operation: ReplicatedOperation<'_>) {
        let before = self.unsent.len();
        codec::put_operation(&mut self.unsent, operation);
        if before > 0 && self.unsent.len() > self.operations_max() {
            let last = self.unsent.split_off(before);
            self.flush();
            self.unsent = last;
        }
        self.unsent_count += 1;
        self.last += 1;
    }

    /// The maximum size of the operations in one message, in bytes. A single larger operation is still sent.
    pub(crate) fn operations_max(&self) -> usize {
        self.message_max.min(self.settings.message_max).saturating_sub(codec::HEAD_ROOM + self.node.len())
    }
}
