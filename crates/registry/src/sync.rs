//! How replicas stay in sync. Each node numbers its operations. A receiver applies them without a gap, or asks for what
//! it lacks. A heartbeat carries the last number and a digest, so that no loss stays unnoticed. A claim that loses is
//! withdrawn by its own authority, as a numbered operation.
//!
//! A newly seen node is always read by a snapshot, never by its past operations. Operations count only after a snapshot
//! that was requested since the node was seen, or since this node stood still. Until then none of its changes are
//! reported or decided.

use std::sync::Arc;

use crate::clock::Stamp;
use crate::codec::{self, MessageBody, MessageHead, ReplicatedOperation};
use crate::entry::Entry;
use crate::event::{Output, Reason};
use crate::peer::Peer;
use crate::replica::{Batch, PendingCommand, Replica};
use crate::settings::{ConflictPolicyKind, Limits};
use crate::table::SELF;

/// The maximum number of departed nodes that are remembered.
const DEPARTED_MAX: usize = 1_024;

impl Replica {
    /// Processes a message of another node of the scope. A message that cannot be read is counted and ignored.
    pub fn receive(&mut self, message: &[u8], now_ms: u64) {
        let Some((head, body)) = codec::decode(message) else {
            self.counters.malformed += 1;
            return;
        };
        if *head.node == *self.node {
            return;
        }
        self.clock.observe(head.stamp, now_ms);
        self.wake(now_ms);
        if let MessageBody::Outdated { to, past, known } = body {
            if *to == *self.node && past == self.incarnation {
                self.purged_elsewhere(known, now_ms);
            }
            return;
        }
        if self.life.is_silent() {
            // Messages of other nodes are useless until this node knows which of its own entries are alive.
            return;
        }
        if let MessageBody::Goodbye = body {
            return self.take_goodbye(head, now_ms);
        }
        if !self.meet(head, now_ms) {
            return;
        }
        match body {
            MessageBody::Delta { first, count, operations } => {
                self.take_delta(head.node, first, count, operations, now_ms)
            }
            MessageBody::Heartbeat { last, digest, entries, limits, lives } => {
                self.take_options(head, limits);
                self.take_lives(head.node, lives);
                self.take_heartbeat(head.node, last, (digest, entries), now_ms);
            }
            MessageBody::Want { to, incarnation, first, nonce }
                if *to == *self.node && incarnation == self.incarnation =>
            {
                self.serve(head.node, (first, nonce), now_ms);
            }
            MessageBody::Want { .. } | MessageBody::Outdated { .. } | MessageBody::Goodbye => {}
            MessageBody::Snapshot { last, doubt, nonce, part, parts, operations } => {
                self.take_snapshot(head.node, (last, doubt, nonce), (part, parts), operations, now_ms);
            }
        }
        self.concede();
    }

    /// Sends what is due, and purges nodes that have been out of sync for too long: silent, or heard but not followed.
    /// Call it a few times per second, and [`Replica::flush`] more often.
    pub fn tick(&mut self, now_ms: u64) {
        let timing = self.settings.timing.clone();
        self.wake(now_ms);
        self.live_on(now_ms);
        self.flush();
        if now_ms >= self.heartbeat_due_ms {
            self.heartbeat_due_ms = now_ms + timing.heartbeat_ms;
            self.send_heartbeat(now_ms);
        }
        let is_silent = |peer: &&Peer| {
            !self.life.is_silent() && peer.in_step_ms + timing.timeout_ms + timing.heartbeat_ms <= now_ms
        };
        let silent: Vec<Arc<str>> = self.peers.values().filter(is_silent).map(|peer| Arc::clone(&peer.name)).collect();
        for name in silent {
            self.forget(&name, now_ms);
        }
        let overdue =
            self.pending.iter().filter(|(_, pending)| pending.until_ms <= now_ms).map(|(name, _)| Arc::clone(name));
        for name in overdue.collect::<Vec<Arc<str>>>() {
            self.resolve(&name, None, now_ms);
        }
        self.concede();
    }

    /// Marks a node as suspected to be dead, or removes the mark. Changes of a suspected node are not reported, and no
    /// claim yields to its claims. Soon it either returns, or it is gone ([`Replica::gone`]).
    pub fn suspect(&mut self, node: &str, is_suspected: bool, now_ms: u64) {
        self.wake(now_ms);
        let Some(authority) = self.peers.get(node).map(|peer| peer.authority) else { return };
        self.table.set_suspected(authority, is_suspected);
        if !self.life.is_silent() {
            self.table.reconsider();
            self.concede();
        }
    }

    /// The clock was set ahead while this node was running. All stored times are moved with it.
    pub fn clock_set(&mut self, by_ms: u64) {
        self.ticked_ms += by_ms;
        self.heartbeat_due_ms += by_ms;
        for peer in self.peers.values_mut() {
            peer.in_step_ms += by_ms;
            for time in [&mut peer.asked_ms, &mut peer.served_ms].into_iter().flatten() {
                *time += by_ms;
            }
        }
        self.pending.values_mut().for_each(|pending| pending.until_ms += by_ms);
        self.life.clock_set(by_ms);
    }

    /// The connection to the other nodes is back. No node could be heard before, so none is late.
    pub fn joined(&mut self, now_ms: u64) {
        self.heartbeat_due_ms = now_ms;
        self.peers.values_mut().for_each(|peer| peer.in_step_ms = now_ms);
    }

    /// Purges the entries of a dead node at once. While this node is silent it does nothing. The dead node is then
    /// purged after it has not been heard for the timeout.
    pub fn gone(&mut self, node: &str, now_ms: u64) {
        self.wake(now_ms);
        if !self.life.is_silent() {
            self.forget(node, now_ms);
            self.concede();
        }
    }

    /// Detects whether this node stood still. Call it after each wait, before anything that arrived meanwhile is
    /// processed.
    pub fn wake(&mut self, now_ms: u64) {
        if now_ms < self.ticked_ms || now_ms > self.ticked_ms + self.settings.timing.timeout_ms / 2 {
            self.stood_still(now_ms);
        }
        self.ticked_ms = now_ms;
    }

    /// This node stood still, so the other nodes could not be heard. Or its clock jumped, so that old times mean
    /// nothing.
    fn stood_still(&mut self, now_ms: u64) {
        self.life.stood_still_ms = Some(now_ms);
        // If the clock went back, the length of the standstill is unknown.
        let was_away = now_ms < self.ticked_ms || now_ms > self.ticked_ms + self.settings.timing.timeout_ms;
        self.heartbeat_due_ms = now_ms;
        for peer in self.peers.values_mut() {
            (peer.in_step_ms, peer.asked_ms, peer.served_ms) = (now_ms, None, None);
            if was_away {
                // Incoming messages may have waited for long. Only a new snapshot shows the current state.
                peer.start_over();
                self.table.set_stale(peer.authority);
            }
        }
        if was_away {
            // The other nodes have purged this node, or the cluster has changed by now.
            self.probe(now_ms);
        }
        let until_ms = now_ms + self.settings.timing.hook_timeout_ms;
        self.pending.values_mut().for_each(|pending| pending.until_ms = until_ms);
    }

    /// Sends the queued operations.
    pub fn flush(&mut self) {
        if self.unsent_count == 0 {
            return;
        }
        let count = std::mem::take(&mut self.unsent_count);
        if self.life.is_silent() {
            // The snapshot of the next incarnation contains them all.
            self.unsent.clear();
            return;
        }
        let operations: Box<[u8]> = self.unsent.as_slice().into();
        self.unsent.clear();
        let first = self.last + 1 - count;
        self.send(None, MessageBody::Delta { first, count, operations: &operations });
        self.log_bytes += operations.len();
        self.log.push_back(Batch { first, count, operations });
        while self.log_bytes > self.settings.log_max
            && let Some(old) = self.log.pop_front()
        {
            self.log_bytes -= old.operations.len();
        }
    }

    /// Notifies all nodes that this node leaves. They remove its entries at once.
    pub fn goodbye(&mut self) {
        self.flush();
        self.send(None, MessageBody::Goodbye);
    }

    pub(crate) fn send_heartbeat(&mut self, now_ms: u64) {
        let own = self.table.authority(SELF);
        let (digest, entries) = (own.digest.wrapping_add(own.doubt.0), own.entries);
        let stamp = self.clock.latest(now_ms);
        let mut lives = Vec::new();
        self.peers
            .values()
            .filter(|peer| peer.is_live)
            .for_each(|peer| codec::put_life(&mut lives, &peer.name, peer.incarnation));
        let Limits { key_max, meta_max, .. } = self.settings.limits;
        let limits = (key_max as u64, meta_max as u64);
        let message = codec::encode(
            self.head(stamp),
            MessageBody::Heartbeat { last: self.last, digest, entries, limits, lives: &lives },
        );
        self.put_message(None, message);
    }

    pub(crate) fn head(&self, stamp: Stamp) -> MessageHead<'_> {
        MessageHead { node: &self.node, incarnation: self.incarnation, stamp, policy: self.settings.policy }
    }

    pub(crate) fn send(&mut self, to: Option<Arc<str>>, body: MessageBody<'_>) {
        let message = codec::encode(self.head(self.clock.latest(0)), body);
        self.put_message(to, message);
    }

    pub(crate) fn put_message(&mut self, to: Option<Arc<str>>, message: Arc<[u8]>) {
        if !self.life.is_silent() {
            self.collect();
            self.outputs.push_back(Output::Send { to, message });
        }
    }

    /// Adds or updates the sender. Returns false if the message is of an incarnation that is over.
    fn meet(&mut self, head: MessageHead<'_>, now_ms: u64) -> bool {
        let departed = self.departed.get_key_value(head.node).map(|(name, (known, _))| (name, *known));
        let present = self.peers.get_key_value(head.node).map(|(name, peer)| (name, peer.incarnation));
        let outdated = departed.filter(|(_, known)| *known >= head.incarnation);
        if let Some((name, known)) = outdated.or(present.filter(|(_, known)| *known > head.incarnation)) {
            // It was purged here, or the message is late. If the node is alive, it must begin a new incarnation.
            let name = Arc::clone(name);
            self.send(Some(Arc::clone(&name)), MessageBody::Outdated { to: &name, past: head.incarnation, known });
            return false;
        }
        if let Some(peer) = self.peers.get_mut(head.node) {
            if peer.incarnation == head.incarnation {
                return true;
            }
            (peer.in_step_ms, peer.heard_ms) = (now_ms, now_ms);
            if peer.incarnation.birth == head.incarnation.birth {
                // It is the same process. Its entries stay until the snapshot shows the current ones.
                (peer.incarnation, peer.has_ours) = (head.incarnation, false);
                peer.start_over();
                self.table.set_settled(peer.authority, false);
                return true;
            }
            self.forget(head.node, now_ms);
        }
        let name: Arc<str> = head.node.into();
        let authority = self.table.add_authority(&name);
        self.peers.insert(Arc::clone(&name), Peer::new(name, head.incarnation, authority, head.policy, now_ms));
        self.follow_strictest();
        // The node learns of this one at once, not only at the next heartbeat.
        self.send_heartbeat(now_ms);
        true
    }

    fn take_goodbye(&mut self, head: MessageHead<'_>, now_ms: u64) {
        if self.peers.get(head.node).is_some_and(|peer| peer.incarnation <= head.incarnation) {
            self.forget(head.node, now_ms);
        }
        self.depart(head.node.into(), head.incarnation, now_ms);
        self.concede();
    }

    /// Purges a node. This incarnation of it does not return.
    fn forget(&mut self, name: &str, now_ms: u64) {
        let Some((name, peer)) = self.peers.remove_entry(name) else { return };
        self.counters.purges += 1;
        self.table.remove_authority(peer.authority, Reason::NodeDown);
        self.depart(Arc::clone(&name), peer.incarnation, now_ms);
        self.follow_strictest();
        if peer.is_announced {
            self.collect();
            self.outputs.push_back(Output::Node { node: name, is_up: false, heard_ms: peer.heard_ms });
        }
    }

    fn depart(&mut self, name: Arc<str>, incarnation: crate::peer::Incarnation, now_ms: u64) {
        if self.departed.len() >= DEPARTED_MAX
            && let Some(oldest) =
                self.departed.iter().min_by_key(|(_, (_, at_ms))| *at_ms).map(|(name, _)| Arc::clone(name))
        {
            self.departed.remove(&oldest);
        }
        let (known, at_ms) = self.departed.entry(name).or_insert((incarnation, now_ms));
        (*known, *at_ms) = ((*known).max(incarnation), now_ms);
    }

    /// Records another node's options for the scope.
    fn take_options(&mut self, head: MessageHead<'_>, limits: (u64, u64)) {
        let Some(peer) = self.peers.get_mut(head.node) else { return };
        if (peer.policy, peer.limits) == (head.policy, limits) {
            return;
        }
        (peer.policy, peer.limits) = (head.policy, limits);
        let Limits { key_max, meta_max, .. } = self.settings.limits;
        if (head.policy, limits) != (self.settings.policy, (key_max as u64, meta_max as u64)) {
            self.counters.differences += 1;
            let node = Arc::clone(&peer.name);
            self.collect();
            self.outputs.push_back(Output::Differs { node });
        }
        self.follow_strictest();
    }

    /// All nodes follow the strictest policy and the smallest limits of the nodes in sight.
    fn follow_strictest(&mut self) {
        let own = &self.settings;
        let policies = self.peers.values().map(|peer| peer.policy);
        let policy = policies.fold(own.policy, |a, b| if b.strictness() > a.strictness() { b } else { a });
        let (key_max, meta_max) = self
            .peers
            .values()
            .fold((u64::MAX, u64::MAX), |(key, meta), peer| (key.min(peer.limits.0), meta.min(peer.limits.1)));
        let fit = |own: usize, others: u64| own.min(usize::try_from(others).unwrap_or(usize::MAX));
        (self.limits.key_max, self.limits.meta_max) =
            (fit(own.limits.key_max, key_max), fit(own.limits.meta_max, meta_max));
        self.table.set_policy(policy);
    }

    fn take_delta(&mut self, node: &str, first: u64, count: u64, operations: &[u8], now_ms: u64) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        if !peer.is_live {
            return self.ask(node, 0, now_ms);
        }
        let next = peer.applied + 1;
        if first > next {
            return self.ask(node, next, now_ms);
        }
        let Some(last) = first.checked_add(count).map(|end| end - 1).filter(|last| *last >= next) else { return };
        (peer.applied, peer.asked_ms, peer.in_step_ms, peer.heard_ms) = (last, None, now_ms, now_ms);
        let authority = peer.authority;
        let known = usize::try_from(next - first).unwrap_or(usize::MAX);
        let mut read = 0;
        for operation in codec::operations(operations).skip(known) {
            let Ok(operation) = operation else { break };
            self.apply(authority, operation, None, now_ms);
            read += 1;
        }
        if read != last - next + 1 {
            // The data was damaged in transit. Only a snapshot shows the node's entries now.
            self.counters.malformed += 1;
            self.ask(node, 0, now_ms);
        }
    }

    fn take_heartbeat(&mut self, node: &str, last: u64, sum: (u64, u64), now_ms: u64) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        if !peer.is_live {
            return self.ask(node, 0, now_ms);
        }
        if last > peer.applied {
            let next = peer.applied + 1;
            return self.ask(node, next, now_ms);
        }
        (peer.in_step_ms, peer.heard_ms) = (now_ms, now_ms);
        let seen = self.table.authority(peer.authority);
        if last == peer.applied && (seen.digest.wrapping_add(seen.doubt.0), seen.entries) != sum {
            self.counters.digests_wrong += 1;
            self.ask(node, 0, now_ms);
        }
    }

    /// Applies another node's operation. `reason` overrides the operation's own reason.
    pub(crate) fn apply(
        &mut self,
        authority: u32,
        operation: ReplicatedOperation<'_>,
        reason: Option<Reason>,
        now_ms: u64,
    ) {
        let why = |own: Reason| reason.unwrap_or(own);
        match operation {
            ReplicatedOperation::Claim { rank, record } => {
                let Some(entry) = Entry::parse(self.table.node(authority), record) else {
                    return self.counters.malformed += 1;
                };
                self.clock.observe(entry.stamp(), now_ms);
                self.table.put_claim(authority, entry, rank, why(Reason::Normal));
            }
            ReplicatedOperation::Unclaim { name, reason } => {
                self.table.drop_claim(authority, name, why(reason));
            }
            ReplicatedOperation::Join { record } => {
                let Some(entry) = Entry::parse(self.table.node(authority), record) else {
                    return self.counters.malformed += 1;
                };
                self.table.put_member(authority, entry, why(Reason::Normal));
            }
            ReplicatedOperation::Leave { group, owner, reason } => {
                self.table.drop_member(authority, group, owner, why(reason));
            }
            ReplicatedOperation::Close { owner, reason } => {
                self.table.drop_owner(authority, owner, why(reason));
            }
            ReplicatedOperation::Trust => self.table.set_doubt(authority, Stamp(0)),
        }
    }

    /// Gives up this node's claims that have lost, or asks the backend first if the scope's policy says so. A claim
    /// does not yield to a node that is incomplete here or may be dead. Nor does it yield while this node does not know
    /// which of its own connections are alive. These names are elected again when that has changed.
    pub(crate) fn concede(&mut self) {
        if self.life.is_silent() {
            self.table.beaten.clear();
            return;
        }
        while let Some(beaten) = self.table.beaten.pop() {
            let name = beaten.key();
            let (Some((mine, rank)), Some((other, authority, other_rank))) =
                (self.table.own_claim(name), self.table.counting(name))
            else {
                continue;
            };
            let winner = self.table.authority(authority);
            let is_doubtful = |authority, entry: &Entry| self.table.is_doubtful(authority, entry.stamp());
            if mine == other || !winner.is_settled || winner.is_suspected {
                continue;
            }
            if self.table.policy() != ConflictPolicyKind::Hook
                || other_rank > rank
                || is_doubtful(SELF, &mine) && !is_doubtful(authority, &other)
            {
                self.pending.remove(name);
                self.withdraw(name);
            } else if !self.pending.contains_key(name) {
                let until_ms = self.ticked_ms + self.settings.timing.hook_timeout_ms;
                self.pending.insert(name.into(), PendingCommand { until_ms, other_rank });
                self.collect();
                self.outputs.push_back(Output::Resolve { mine, other });
            }
        }
    }
}
