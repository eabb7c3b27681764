//! When pings are due, and their answers.

use super::{Context, Phase, Session};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heartbeat {
    /// The next ping is due at this time; before the connect: the end of patience.
    Due(u64),
    /// A ping was sent; its answer is due at this time, and the next ping so many milliseconds later, or earlier.
    Awaited(u64, i32),
}

impl Heartbeat {
    /// A pong is due at the first time, the next ping at the second.
    pub(super) fn awaited(pong_ms: u64, ping_ms: u64) -> Self {
        let later = ping_ms.cast_signed().saturating_sub(pong_ms.cast_signed());
        Heartbeat::Awaited(pong_ms, later.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
    }
}

/// When the next ping is due, of what [`Heartbeat::Awaited`] holds.
pub(super) fn next_ping_ms(pong_ms: u64, later: i32) -> u64 {
    pong_ms.saturating_add_signed(later.into())
}

impl Session {
    /// Sends a ping now, unless the answer to one is awaited: the node has stood still and wants to know who is there.
    pub fn probe(&mut self, context: &mut Context<'_>) {
        if let (Phase::Connected, Heartbeat::Due(_)) = (&self.phase, self.heartbeat) {
            self.heartbeat = Heartbeat::Due(context.now_ms);
            self.tick(context);
        }
    }

    /// Whether the answer to a ping is awaited.
    pub fn awaits_pong(&self) -> bool {
        matches!(self.heartbeat, Heartbeat::Awaited(..))
    }
}
