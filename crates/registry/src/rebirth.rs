//! What a node does after other nodes purged it. It finds out which of its connections are alive, begins a new
//! incarnation, and marks its earlier entries.
//!
//! An entry that other nodes had purged never wins against one that they had not: its name may have been given to
//! another owner meanwhile.

use crate::clock::Stamp;
use crate::codec::{self, ReplicatedOperation};
use crate::event::Output;
use crate::peer::Incarnation;
use crate::replica::Replica;
use crate::table::SELF;

impl Replica {
    /// Another node has purged this incarnation, or knows a later one of the same name.
    pub(crate) fn purged_elsewhere(&mut self, known: Incarnation, now_ms: u64) {
        self.life.purged = self.life.purged.max(Some(known));
        if self.life.is_silent() {
            return;
        }
        let timing = &self.settings.timing;
        // A node that ran all the time knows its connections. A node that stood still must check them.
        let has_slept = self.life.stood_still_ms.is_some_and(|at_ms| now_ms < at_ms + 2 * timing.timeout_ms);
        if has_slept { self.probe(now_ms) } else { self.begin_incarnation(now_ms) }
    }

    /// Makes the node silent until the host has checked its connections.
    pub(crate) fn probe(&mut self, now_ms: u64) {
        if self.life.silent_until_ms.replace(now_ms + self.settings.timing.probe_timeout_ms).is_none() {
            // These conflicts are decided again afterwards.
            self.pending.clear();
            self.collect();
            self.outputs.push_back(Output::Probe);
        }
    }

    /// The host reports that it has closed its dead connections ([`Output::Probe`]).
    pub fn probed(&mut self, now_ms: u64) {
        if self.life.is_silent() {
            self.begin_incarnation(now_ms);
        }
    }

    fn begin_incarnation(&mut self, now_ms: u64) {
        self.counters.reincarnations += 1;
        let above = self.life.purged.take().map_or(0, |purged| purged.order).max(self.incarnation.order);
        self.incarnation.order = above.saturating_add(1);
        (self.life.silent_until_ms, self.life.stood_still_ms, self.life.began_ms) = (None, None, now_ms);
        self.log.clear();
        self.unsent.clear();
        (self.log_bytes, self.unsent_count) = (0, 0);
        let latest = std::cell::Cell::new(Stamp(0));
        self.table.own_entries(|claim, _| latest.set(latest.get().max(claim.stamp())), |_| {});
        self.peers.values_mut().for_each(|peer| (peer.has_ours, peer.in_step_ms) = (false, now_ms));
        self.table.set_doubt(SELF, latest.get());
        self.table.reconsider();
        self.heartbeat_due_ms = now_ms + self.settings.timing.heartbeat_ms;
        self.send_heartbeat(now_ms);
    }

    /// Ends a silence that took too long. Also trusts this node's entries again once all other nodes know them.
    pub(crate) fn live_on(&mut self, now_ms: u64) {
        if self.life.silent_until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
            self.begin_incarnation(now_ms);
        }
        let is_doubted = self.table.authority(SELF).doubt != Stamp(0);
        if is_doubted
            && !self.life.is_silent()
            && now_ms >= self.life.began_ms + self.settings.timing.timeout_ms
            && self.peers.values().all(|peer| peer.is_live && peer.has_ours)
            && self.pending.is_empty()
            && !self.table.is_own_contested()
        {
            self.operate(ReplicatedOperation::Trust);
            self.table.set_doubt(SELF, Stamp(0));
        }
    }

    /// Whether all nodes in sight have this node's entries in its current incarnation. If no node is in sight, it is
    /// true after the timeout: no node is left that could mistake it for an earlier incarnation.
    pub fn is_known(&self, now_ms: u64) -> bool {
        let is_alone = self.peers.is_empty();
        !self.life.is_silent()
            && self.peers.values().all(|peer| peer.is_live && peer.has_ours)
            && (!is_alone || now_ms >= self.life.began_ms + self.settings.timing.timeout_ms)
    }

    /// Processes another node's report of whose entries it has.
    pub(crate) fn take_lives(&mut self, node: &str, lives: &[u8]) {
        let has_ours =
            codec::lives(lives).any(|(name, incarnation)| *name == *self.node && incarnation == self.incarnation);
        if let Some(peer) = self.peers.get_mut(node) {
            peer.has_ours = has_ours;
        }
    }
}
