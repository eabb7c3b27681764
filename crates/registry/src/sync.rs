//! How replicas keep up with each other. Each node numbers its operations; a receiver applies them without a gap or asks for what it
//! lacks; a heartbeat tells the last number and a digest, so that nothing stays lost. A claim that loses is taken back by its own
//! authority, as a numbered operation.

use std::sync::Arc;

use crate::clock::Stamp;
use crate::codec::{self, Body, Head, Operation};
use crate::entry::Entry;
use crate::event::{Output, Reason};
use crate::peer::{Assembly, Incarnation, Peer};
use crate::replica::{Batch, Pending, Replica};
use crate::settings::Policy;
use crate::table::SELF;

/// Nodes whose departure is remembered.
const DEPARTED_MAX: usize = 1_024;

impl Replica {
    /// Takes a message of another node of the scope. Whatever is no message of ours is counted and left alone.
    pub fn receive(&mut self, message: &[u8], now_ms: u64) {
        let Some((head, body)) = codec::decode(message) else {
            self.counters.malformed += 1;
            return;
        };
        if *head.node == *self.node {
            // Our own words; or those of a life of ours that began later by its clock, which only a newer incarnation can overrule.
            if head.incarnation > self.incarnation {
                self.reincarnate(head.incarnation);
            }
            return;
        }
        self.clock.observe(head.stamp, now_ms);
        if let Body::Outdated { to, known } = body {
            if *to == *self.node && known >= self.incarnation {
                self.reincarnate(known);
            }
            return;
        }
        if !self.meet(head, now_ms) {
            return;
        }
        match body {
            Body::Delta { first, count, operations } => self.take_delta(head.node, first, count, operations, now_ms),
            Body::Heartbeat { last, digest, entries } => self.take_heartbeat(head.node, last, (digest, entries), now_ms),
            Body::Want { to, incarnation, first } if *to == *self.node && incarnation == self.incarnation => {
                self.serve(head.node, first, now_ms);
            }
            Body::Want { .. } | Body::Outdated { .. } => {}
            Body::Snapshot { last, part, parts, operations } => self.take_snapshot(head.node, (last, part, parts), operations, now_ms),
            Body::Goodbye => self.forget(head.node, true),
        }
        self.concede();
    }

    /// Sends what is due, and purges who has been silent for too long. Call it a few times a second, and [`Replica::flush`] more often.
    pub fn tick(&mut self, now_ms: u64) {
        let timing = self.settings.timing.clone();
        if now_ms < self.ticked_ms || now_ms > self.ticked_ms + timing.timeout_ms / 2 {
            self.restart_timers(now_ms);
        }
        self.ticked_ms = now_ms;
        self.flush();
        if now_ms >= self.heartbeat_due_ms {
            self.heartbeat_due_ms = now_ms + timing.heartbeat_ms;
            self.send_heartbeat(now_ms);
        }
        let is_silent = |peer: &&Peer| peer.heard_ms + timing.timeout_ms <= now_ms;
        let silent: Vec<Arc<str>> = self.peers.values().filter(is_silent).map(|peer| Arc::clone(&peer.name)).collect();
        for name in silent {
            self.forget(&name, false);
        }
        let overdue = self.pending.iter().filter(|(_, pending)| pending.until_ms <= now_ms).map(|(name, _)| Arc::clone(name));
        for name in overdue.collect::<Vec<_>>() {
            self.resolve(&name, None, now_ms);
        }
        self.concede();
    }

    /// This node stood still, so the others had no chance to be heard; or its clock jumped, so that old times mean nothing.
    fn restart_timers(&mut self, now_ms: u64) {
        self.heartbeat_due_ms = now_ms;
        for peer in self.peers.values_mut() {
            (peer.heard_ms, peer.asked_ms, peer.served_ms) = (now_ms, None, None);
        }
        let until_ms = now_ms + self.settings.timing.hook_timeout_ms;
        self.pending.values_mut().for_each(|pending| pending.until_ms = until_ms);
    }

    /// Sends the operations that wait.
    pub fn flush(&mut self) {
        if self.unsent_count == 0 {
            return;
        }
        let count = std::mem::take(&mut self.unsent_count);
        let operations: Box<[u8]> = self.unsent.as_slice().into();
        self.unsent.clear();
        let first = self.last + 1 - count;
        self.send(None, Body::Delta { first, count, operations: &operations });
        self.log_bytes += operations.len();
        self.log.push_back(Batch { first, count, operations });
        while self.log_bytes > self.settings.log_max
            && let Some(old) = self.log.pop_front()
        {
            self.log_bytes -= old.operations.len();
        }
    }

    /// Tells everybody that this node leaves: they forget it at once.
    pub fn goodbye(&mut self) {
        self.flush();
        self.send(None, Body::Goodbye);
    }

    fn send_heartbeat(&mut self, now_ms: u64) {
        let own = self.table.authority(SELF);
        let (digest, entries) = (own.digest, own.entries);
        let stamp = self.clock.latest(now_ms);
        let message = codec::encode(self.head(stamp), Body::Heartbeat { last: self.last, digest, entries });
        self.collect();
        self.outputs.push_back(Output::Send { to: None, message });
    }

    fn head(&self, stamp: Stamp) -> Head<'_> {
        Head { node: &self.node, incarnation: self.incarnation, stamp }
    }

    fn send(&mut self, to: Option<Arc<str>>, body: Body<'_>) {
        let message = codec::encode(self.head(self.clock.latest(0)), body);
        self.collect();
        self.outputs.push_back(Output::Send { to, message });
    }

    /// Knows the sender from now on. False if it is of a life that is over.
    fn meet(&mut self, head: Head<'_>, now_ms: u64) -> bool {
        if let Some((name, known)) = self.departed.get_key_value(head.node).filter(|(_, known)| **known >= head.incarnation) {
            // A late word of a life that is over, or a new life whose clock is behind: that one must know.
            let (name, known) = (Arc::clone(name), *known);
            self.send(Some(Arc::clone(&name)), Body::Outdated { to: &name, known });
            return false;
        }
        if let Some(peer) = self.peers.get_mut(head.node) {
            if peer.incarnation == head.incarnation {
                peer.heard_ms = now_ms;
                return true;
            }
            let (known, name) = (peer.incarnation, Arc::clone(&peer.name));
            if known > head.incarnation {
                self.send(Some(Arc::clone(&name)), Body::Outdated { to: &name, known });
                return false;
            }
            self.forget(&name, true);
        }
        let name: Arc<str> = head.node.into();
        let authority = self.table.add_authority(&name);
        let peer = Peer {
            name: Arc::clone(&name),
            incarnation: head.incarnation,
            authority,
            applied: 0,
            heard_ms: now_ms,
            asked_ms: None,
            served_ms: None,
            assembly: None,
        };
        self.peers.insert(Arc::clone(&name), peer);
        self.collect();
        self.outputs.push_back(Output::Node { node: name, is_up: true });
        // It learns of us at once, not at our next heartbeat.
        self.send_heartbeat(now_ms);
        true
    }

    /// Purges a node. `for_good`: this incarnation of it won't come back.
    fn forget(&mut self, name: &str, for_good: bool) {
        let Some((name, peer)) = self.peers.remove_entry(name) else { return };
        self.counters.purges += 1;
        self.table.remove_authority(peer.authority, Reason::NodeDown);
        if for_good {
            if self.departed.len() >= DEPARTED_MAX {
                self.departed.clear();
            }
            self.departed.insert(Arc::clone(&name), peer.incarnation);
        }
        self.collect();
        self.outputs.push_back(Output::Node { node: name, is_up: false });
    }

    /// Somebody knows a later life of this node than it lives: it must be later still to be heard.
    fn reincarnate(&mut self, known: Incarnation) {
        self.counters.reincarnations += 1;
        self.incarnation.order = known.order.saturating_add(1);
        self.log.clear();
        self.log_bytes = 0;
        // What waits to be sent goes out under the new number; who has not seen what was before asks for a snapshot.
        self.heartbeat_due_ms = 0;
    }

    fn take_delta(&mut self, node: &str, first: u64, count: u64, operations: &[u8], now_ms: u64) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        let next = peer.applied + 1;
        if first > next {
            return self.ask(node, next, now_ms);
        }
        let Some(last) = first.checked_add(count).map(|end| end - 1).filter(|last| *last >= next) else { return };
        (peer.applied, peer.asked_ms) = (last, None);
        let authority = peer.authority;
        let known = usize::try_from(next - first).unwrap_or(usize::MAX);
        let mut read = 0;
        for operation in codec::operations(operations).skip(known) {
            let Ok(operation) = operation else { break };
            self.apply(authority, operation, None, now_ms);
            read += 1;
        }
        if read != last - next + 1 {
            // Broken on the way: what is known of it is whatever a snapshot says.
            self.counters.malformed += 1;
            self.ask(node, 0, now_ms);
        }
    }

    fn take_heartbeat(&mut self, node: &str, last: u64, sum: (u64, u64), now_ms: u64) {
        let Some(peer) = self.peers.get(node) else { return };
        if last > peer.applied {
            let next = peer.applied + 1;
            return self.ask(node, next, now_ms);
        }
        let seen = self.table.authority(peer.authority);
        if last == peer.applied && (seen.digest, seen.entries) != sum {
            self.counters.digests_wrong += 1;
            self.ask(node, 0, now_ms);
        }
    }

    /// Asks a node for operations from a number on, not more often than `retry_ms`.
    fn ask(&mut self, node: &str, first: u64, now_ms: u64) {
        let retry_ms = self.settings.timing.retry_ms;
        let Some(peer) = self.peers.get_mut(node) else { return };
        if peer.asked_ms.is_some_and(|asked| now_ms < asked + retry_ms) {
            return;
        }
        self.counters.gaps += 1;
        peer.asked_ms = Some(now_ms);
        let (name, incarnation) = (Arc::clone(&peer.name), peer.incarnation);
        self.send(Some(Arc::clone(&name)), Body::Want { to: &name, incarnation, first });
    }

    /// Sends a node what it lacks: from the log if that reaches back far enough, else a snapshot.
    fn serve(&mut self, node: &str, first: u64, now_ms: u64) {
        self.flush();
        let Some(to) = self.peers.get(node).map(|peer| Arc::clone(&peer.name)) else { return };
        let is_logged = first > 0 && first <= self.last && self.log.front().is_some_and(|oldest| oldest.first <= first);
        if !is_logged {
            return self.send_snapshot(&to, now_ms);
        }
        let from = self.log.partition_point(|batch| batch.first + batch.count <= first);
        for index in from..self.log.len() {
            let batch = &self.log[index];
            let body = Body::Delta { first: batch.first, count: batch.count, operations: &batch.operations };
            let message = codec::encode(self.head(self.clock.latest(0)), body);
            self.outputs.push_back(Output::Send { to: Some(Arc::clone(&to)), message });
        }
    }

    fn send_snapshot(&mut self, to: &Arc<str>, now_ms: u64) {
        let interval_ms = self.settings.timing.snapshot_interval_ms;
        let Some(peer) = self.peers.get_mut(to) else { return };
        if peer.served_ms.is_some_and(|served| now_ms < served + interval_ms) {
            return;
        }
        peer.served_ms = Some(now_ms);
        self.counters.snapshots_sent += 1;
        let pieces = std::cell::RefCell::new(vec![Vec::new()]);
        let put = |operation: Operation<'_>| {
            let mut pieces = pieces.borrow_mut();
            if pieces.last().is_some_and(|piece: &Vec<u8>| piece.len() >= self.settings.message_max) {
                pieces.push(Vec::with_capacity(self.settings.message_max));
            }
            if let Some(piece) = pieces.last_mut() {
                codec::put_operation(piece, operation);
            }
        };
        self.table.own_entries(
            |claim, rank| put(Operation::Claim { rank, record: claim.bytes() }),
            |member| put(Operation::Join { record: member.bytes() }),
        );
        let pieces = pieces.into_inner();
        let parts = pieces.len() as u64;
        for (part, operations) in (0..).zip(&pieces) {
            self.send(Some(Arc::clone(to)), Body::Snapshot { last: self.last, part, parts, operations });
        }
    }

    fn take_snapshot(&mut self, node: &str, (last, part, parts): (u64, u64, u64), operations: &[u8], now_ms: u64) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        if last < peer.applied {
            return;
        }
        // While pieces come, there is no need to ask again.
        peer.asked_ms = Some(now_ms);
        if !peer.assembly.as_ref().is_some_and(|assembly| assembly.fits(last, parts)) {
            if peer.assembly.as_ref().is_some_and(|assembly| assembly.last > last) {
                return;
            }
            peer.assembly = Assembly::new(last, parts);
        }
        if !peer.assembly.as_mut().is_some_and(|assembly| assembly.put(part, operations)) {
            return;
        }
        let Some(assembly) = peer.assembly.take() else { return };
        (peer.applied, peer.asked_ms) = (last, None);
        let authority = peer.authority;
        self.counters.snapshots_installed += 1;
        self.table.begin_sweep(authority);
        for operation in assembly.pieces().flat_map(codec::operations) {
            let Ok(operation) = operation else {
                self.counters.malformed += 1;
                continue;
            };
            self.apply(authority, operation, Some(Reason::NodeUp), now_ms);
        }
        self.table.end_sweep(authority, Reason::Normal);
    }

    /// Carries out another node's operation. `reason` overrides the operation's own.
    fn apply(&mut self, authority: u32, operation: Operation<'_>, reason: Option<Reason>, now_ms: u64) {
        let why = |own: Reason| reason.unwrap_or(own);
        match operation {
            Operation::Claim { rank, record } => {
                let Some(entry) = Entry::parse(self.table.node(authority), record) else { return self.counters.malformed += 1 };
                self.clock.observe(entry.stamp(), now_ms);
                self.table.put_claim(authority, entry, rank, why(Reason::Normal));
            }
            Operation::Unclaim { name, reason } => {
                self.table.drop_claim(authority, name, why(reason));
            }
            Operation::Join { record } => {
                let Some(entry) = Entry::parse(self.table.node(authority), record) else { return self.counters.malformed += 1 };
                self.table.put_member(authority, entry, why(Reason::Normal));
            }
            Operation::Leave { group, owner, reason } => {
                self.table.drop_member(authority, group, owner, why(reason));
            }
            Operation::Close { owner, reason } => {
                self.table.drop_owner(authority, owner, why(reason));
            }
        }
    }

    /// Lets go of this node's claims that have lost; or asks the backend first, where the scope wants that.
    pub(crate) fn concede(&mut self) {
        while let Some(beaten) = self.table.beaten.pop() {
            let name = beaten.key();
            let (Some((mine, rank)), Some((other, _, other_rank))) = (self.table.own_claim(name), self.table.counting(name)) else {
                continue;
            };
            if mine == other {
                continue;
            }
            if self.settings.policy != Policy::Hook || other_rank > rank {
                self.pending.remove(name);
                self.withdraw(name);
            } else if !self.pending.contains_key(name) {
                let until_ms = self.ticked_ms + self.settings.timing.hook_timeout_ms;
                self.pending.insert(name.into(), Pending { until_ms, other_rank });
                self.collect();
                self.outputs.push_back(Output::Resolve { mine, other });
            }
        }
    }
}
