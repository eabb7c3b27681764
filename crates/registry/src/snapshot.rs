//! How a node gets what it lacks: it asks, and receives the operations after a number, or a snapshot in parts.

use std::sync::Arc;

use crate::clock::Stamp;
use crate::codec::{self, MessageBody, ReplicatedOperation};
use crate::event::{Output, Reason};
use crate::peer::SnapshotAssembly;
use crate::replica::Replica;
use crate::table::SELF;

impl Replica {
    /// Asks a node for operations from a number on, or for a snapshot (0). It asks at most once per `retry_ms`.
    pub(crate) fn ask(&mut self, node: &str, first: u64, now_ms: u64) {
        let retry_ms = self.settings.timing.retry_ms;
        let Some(peer) = self.peers.get_mut(node) else { return };
        if peer.asked_ms.is_some_and(|asked| now_ms < asked + retry_ms) {
            return;
        }
        self.counters.gaps += 1;
        peer.asked_ms = Some(now_ms);
        if first == 0 && peer.nonce == 0 {
            self.life.nonces += 1;
            peer.nonce = self.incarnation.birth.wrapping_add(self.life.nonces).max(1);
        }
        let (name, incarnation, nonce) =
            (Arc::clone(&peer.name), peer.incarnation, if first == 0 { peer.nonce } else { 0 });
        self.send(Some(Arc::clone(&name)), MessageBody::Want { to: &name, incarnation, first, nonce });
    }

    /// Sends a node what it lacks: from the log if that reaches back far enough, otherwise as a snapshot.
    pub(crate) fn serve(&mut self, node: &str, (first, nonce): (u64, u64), now_ms: u64) {
        self.flush();
        let Some(to) = self.peers.get(node).map(|peer| Arc::clone(&peer.name)) else { return };
        let from = self.log.partition_point(|batch| batch.first + batch.count <= first);
        let is_logged = first > 0 && first <= self.last && self.log.front().is_some_and(|oldest| oldest.first <= first);
        if !is_logged
            || self.log.range(from..).any(|batch| batch.count > 1 && batch.operations.len() > self.operations_max())
        {
            return self.send_snapshot(&to, nonce, now_ms);
        }
        for index in from..self.log.len() {
            let batch = &self.log[index];
            let body = MessageBody::Delta { first: batch.first, count: batch.count, operations: &batch.operations };
            let message = codec::encode(self.head(self.clock.latest(0)), body);
            self.put_message(Some(Arc::clone(&to)), message);
        }
    }

    fn send_snapshot(&mut self, to: &Arc<str>, nonce: u64, now_ms: u64) {
        let interval_ms = self.settings.timing.snapshot_interval_ms;
        let Some(peer) = self.peers.get_mut(to) else { return };
        if peer.served_ms.is_some_and(|served| now_ms < served + interval_ms) || self.life.is_silent() {
            return;
        }
        peer.served_ms = Some(now_ms);
        self.counters.snapshots_sent += 1;
        let piece_max = self.operations_max();
        let pieces = std::cell::RefCell::new(vec![Vec::new()]);
        let put = |operation: ReplicatedOperation<'_>| {
            let mut pieces = pieces.borrow_mut();
            let Some(piece) = pieces.last_mut() else { return };
            let before = piece.len();
            codec::put_operation(piece, operation);
            if before > 0 && piece.len() > piece_max {
                let last = piece.split_off(before);
                pieces.push(last);
            }
        };
        self.table.own_entries(
            |claim, rank| put(ReplicatedOperation::Claim { rank, record: claim.bytes() }),
            |member| put(ReplicatedOperation::Join { record: member.bytes() }),
        );
        let pieces = pieces.into_inner();
        let (parts, doubt) = (pieces.len() as u64, self.table.authority(SELF).doubt);
        for (part, operations) in (0..).zip(&pieces) {
            self.send(
                Some(Arc::clone(to)),
                MessageBody::Snapshot { last: self.last, doubt, nonce, part, parts, operations },
            );
        }
    }

    /// Stores a part of a requested snapshot. With the last part, the node's entries become those of the snapshot.
    pub(crate) fn take_snapshot(
        &mut self,
        node: &str,
        (last, doubt, nonce): (u64, Stamp, u64),
        (part, parts): (u64, u64),
        operations: &[u8],
        now_ms: u64,
    ) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        // An answer to a request for operations has no nonce. It is valid only for a node that is live.
        let is_asked = if nonce == 0 { peer.is_live } else { nonce == peer.nonce };
        if !is_asked || last < peer.applied {
            return;
        }
        // While parts arrive, there is no need to ask again.
        (peer.asked_ms, peer.in_step_ms) = (Some(now_ms), now_ms);
        if !peer.assembly.as_ref().is_some_and(|assembly| assembly.fits(last, parts)) {
            if peer.assembly.as_ref().is_some_and(|assembly| assembly.last > last) {
                return;
            }
            peer.assembly = SnapshotAssembly::new(last, parts);
        }
        if !peer.assembly.as_mut().is_some_and(|assembly| assembly.put(part, operations)) {
            return;
        }
        let Some(assembly) = peer.assembly.take() else { return };
        (peer.applied, peer.asked_ms, peer.nonce, peer.is_live) = (last, None, 0, true);
        let is_new = !std::mem::replace(&mut peer.is_announced, true);
        let (authority, name) = (peer.authority, Arc::clone(&peer.name));
        self.counters.snapshots_installed += 1;
        if is_new {
            self.collect();
            self.outputs.push_back(Output::Node { node: name, is_up: true, heard_ms: now_ms });
        }
        self.table.set_doubt(authority, doubt);
        self.table.begin_sweep(authority);
        for operation in assembly.pieces().flat_map(codec::operations) {
            let Ok(operation) = operation else {
                self.counters.malformed += 1;
                continue;
            };
            self.apply(authority, operation, Some(Reason::NodeUp), now_ms);
        }
        self.table.end_sweep(authority, Reason::Normal);
        self.table.set_settled(authority, true);
        // The node learns at once that its entries are here.
        self.send_heartbeat(now_ms);
    }
}
