//! Notes when users are connected: at the end of a user's last connection to this shard, and from time to time while
//! there is one, so that the death of a node loses little.

use super::connections::NONE;
use super::state::{SeenSweep, Shard};
use crate::backend::seen;

/// Time in which a shard looks at all its connections: so old may be what is known of the users of a node that died.
/// Longer while more wait to be written than can be.
const SWEEP_INTERVAL_MS: u64 = 300_000;
/// The most connections that are looked at in one tick.
const VISITS_MAX: u32 = 2_048;
/// Between two writes.
const WRITE_INTERVAL_MS: u64 = 1_000;

impl Shard {
    /// Notes the user of a connection that was its last one here.
    pub(super) fn note_leaving(&self, slot: u32) {
        if let (Some(seen), Some(connection)) = (&self.node.seen, self.connections.get(slot)) {
            seen.note([connection.session.user()], self.now_ms / 1_000);
        }
    }

    /// Notes some of the users that are connected, and writes what waits.
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
