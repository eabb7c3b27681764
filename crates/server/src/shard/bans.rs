//! Ends connections that bans concern, when bans have changed. The connections of named users end at once. All others
//! are judged by a sweep, a part in each turn.

use touchline_engine::Session;

use super::state::{BanSweep, Shard};

/// How many connections a sweep judges in one turn, and so how many it ends at most.
const SWEEP_STEP: u32 = 4_096;
const ENDED_IN_TURN: usize = 256;
/// The least time between the beginnings of two sweeps, in milliseconds. Bans that arrive faster share one sweep.
const SWEEP_PAUSE_MS: u64 = 200;
/// Up to this many users, their connections are looked up one by one. For more users a sweep costs less.
const FEW_USERS: usize = 64;

impl Shard {
    /// Ends the connections of these users that bans concern.
    pub(super) fn judge_users(&mut self, users: &[Box<str>]) {
        if users.len() > FEW_USERS {
            return self.judge_all();
        }
        for user in users {
            for slot in self.users.connections_of(user, &self.connections) {
                self.judge(slot);
            }
        }
    }

    /// Requests a sweep that judges all connections.
    pub(super) fn judge_all(&mut self) {
        self.ban_sweep.is_wanted = true;
        self.begin_sweep();
    }

    /// Begins a sweep, if one is wanted and the pause is over.
    pub(super) fn begin_sweep(&mut self) {
        let sweep = &mut self.ban_sweep;
        if sweep.is_wanted && sweep.next.is_none() && sweep.not_before_ms <= self.now_ms {
            *sweep = BanSweep { next: Some(0), is_wanted: false, not_before_ms: self.now_ms + SWEEP_PAUSE_MS };
        }
    }

    /// Judges the next connections, if a sweep is under way.
    pub(super) fn continue_sweep(&mut self) {
        let Some(first) = self.ban_sweep.next else { return };
        let end = first.saturating_add(SWEEP_STEP).min(self.connections.slot_count());
        let (mut next, mut ended) = (first, 0);
        while next < end && ended < ENDED_IN_TURN {
            ended += usize::from(self.judge(next));
            next += 1;
        }
        self.ban_sweep.next = (next < self.connections.slot_count()).then_some(next);
    }

    /// Ends a connection if a ban concerns it. Returns whether a ban does.
    fn judge(&mut self, slot: u32) -> bool {
        let (bans, now_s) = (&self.generation.session.bans, self.now_ms / 1_000);
        let is_banned = |session: &Session| session.ban(bans, now_s).is_some();
        let is_banned = self.connections.get(slot).is_some_and(|connection| is_banned(&connection.session));
        if is_banned {
            self.guarded(slot, |shard, slot| {
                shard.with_session(slot, |session, context| {
                    session.end_if_banned(context);
                });
            });
        }
        is_banned
    }
}
