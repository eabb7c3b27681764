//! The deadlines of pings and pongs.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heartbeat {
    /// The next ping is due at this time; before the connect: the connection ends at this time. Unix milliseconds.
    Due(u64),
    /// A ping was sent. Its pong is due at this time, Unix milliseconds, and the next ping so many milliseconds later
    /// (negative: earlier).
    Awaited(u64, i32),
}

impl Heartbeat {
    /// A pong is due at `pong_ms`, the next ping at `ping_ms`.
    pub(super) fn awaited(pong_ms: u64, ping_ms: u64) -> Self {
        let later = ping_ms.cast_signed().saturating_sub(pong_ms.cast_signed());
        Heartbeat::Awaited(pong_ms, later.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
    }
}

/// When the next ping is due, from the fields of [`Heartbeat::Awaited`].
pub(super) fn next_ping_ms(pong_ms: u64, later: i32) -> u64 {
    pong_ms.saturating_add_signed(later.into())
}
