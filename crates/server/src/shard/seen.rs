//! Notes when users are connected: at the end of a user's last connection to this shard, and from time to time before
//! that. So little is lost if a node dies.

use super::connections::NONE;
use super::state::{SeenSweep, Shard};
use crate::backend::seen;

/// How long a shard takes to look at all its connections, in milliseconds. The times of users on a node that dies may
/// be this old. It takes longer while too many times wait to be written.
const SWEEP_INTERVAL_MS: u64 = 300_000;
/// How many connections the shard looks at in one tick at most.
const VISITS_MAX: u32 = 2_048;
/// The time between two writes, in milliseconds.
const WRITE_INTERVAL_MS: u64 = 1_000;

impl Shard {
    /// Notes the user of a connection that was the user's last one here.
    pub(super) fn note_leaving(&self, slot: u32) {
        if let (Some(seen), Some(connection)) = (&self.node.seen, self.connections.get(slot)) {
            seen.note([connection.session.user()], self.now_ms / 1_000);
        }
    }

    /// Notes some of the connected users, and writes the times that wait.
    pub(super) fn tick_seen(&mut self) {
        let Some(seen) = &self.node.seen else { return };
        let sweep = &mut self.seen_sweep;
        if self.id == 0 && self.now_ms >= sweep.write_at_ms {
            sweep.write_at_ms = self.now_ms + WRITE_INTERVAL_MS;
            seen::tick(&self.node, seen);
        }
        if !seen.is_written {
            return;
        }
        let slots = self.connections.slot_count();
        let elapsed_ms = self.now_ms.saturating_sub(sweep.began_ms);
        if elapsed_ms >= SWEEP_INTERVAL_MS && sweep.next >= slots {
            *sweep = SeenSweep { began_ms: self.now_ms, next: 0, ..*sweep };
            return;
        }
        let due = u64::from(slots) * elapsed_ms.min(SWEEP_INTERVAL_MS) / SWEEP_INTERVAL_MS;
        let end = (due as u32).min(sweep.next.saturating_add(VISITS_MAX));
        if sweep.next >= end || !seen.has_room_for_staying() {
            return;
        }
        let connections = &self.connections;
        let is_first = |slot| connections.get(slot).filter(|c| c.is_listed && c.previous_of_user == NONE);
        let users = (sweep.next..end).filter_map(is_first).map(|connection| connection.session.user());
        seen.note(users, self.now_ms / 1_000);
        sweep.next = end;
    }
}
