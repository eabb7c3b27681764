//! The deadlines of pings and pongs.

/// The latency of a client that has not answered a ping yet.
const UNKNOWN: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heartbeat {
    /// The next ping is due at this time, Unix milliseconds; before the connect, the connection ends at this time. The
    /// second field is how long the client took to answer the last ping, milliseconds, or [`UNKNOWN`].
    Due(u64, u32),
    /// A ping was sent. The first field is when its pong is due, Unix milliseconds. The second field is how much later
    /// the next ping is due, milliseconds (negative: earlier).
    Awaited(u64, i32),
}

// The measured latency fits into space that was unused before.
const _: () = assert!(size_of::<Heartbeat>() == 16);

impl Heartbeat {
    /// A heartbeat whose next ping, or end of the connection, is due at this time, Unix milliseconds.
    pub(super) fn due(at_ms: u64) -> Self {
        Heartbeat::Due(at_ms, UNKNOWN)
    }

    /// The state after the client answered a ping that was sent one interval before the next one. Unix milliseconds.
    pub(super) fn answered(next_ms: u64, interval_ms: u64, now_ms: u64) -> Self {
        let took_ms = now_ms.saturating_sub(next_ms.saturating_sub(interval_ms));
        Heartbeat::Due(next_ms, took_ms.min(u64::from(UNKNOWN - 1)) as u32)
    }

    /// The state after a ping: its pong is due at `pong_ms`, the next ping at `ping_ms`, Unix milliseconds.
    pub(super) fn awaited(pong_ms: u64, ping_ms: u64) -> Self {
        let later = ping_ms.cast_signed().saturating_sub(pong_ms.cast_signed());
        Heartbeat::Awaited(pong_ms, later.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
    }

    /// How long the client took to answer the last ping, milliseconds; `None` = it has not answered a ping yet, or a
    /// pong is awaited.
    pub(super) fn latency_ms(self) -> Option<u32> {
        match self {
            Heartbeat::Due(_, latency_ms) => Some(latency_ms).filter(|latency_ms| *latency_ms != UNKNOWN),
            Heartbeat::Awaited(..) => None,
        }
    }
}

/// When the next ping is due, from the fields of [`Heartbeat::Awaited`].
pub(super) fn next_ping_ms(pong_ms: u64, later: i32) -> u64 {
    pong_ms.saturating_add_signed(later.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pong_tells_how_long_it_took_whatever_became_of_its_deadline() {
        // The ping was sent at 1,000. Its pong is due 8 seconds later, the next ping 25 seconds later.
        for awaited in [Heartbeat::awaited(9_000, 26_000), Heartbeat::awaited(17_000, 26_000)] {
            let Heartbeat::Awaited(at, later) = awaited else { panic!("a pong is awaited") };
            let answered = Heartbeat::answered(next_ping_ms(at, later), 25_000, 1_037);
            assert_eq!((answered, answered.latency_ms()), (Heartbeat::Due(26_000, 37), Some(37)));
        }
        assert_eq!(Heartbeat::due(5).latency_ms(), None);
        assert_eq!(Heartbeat::awaited(5, 6).latency_ms(), None);
        assert_eq!(Heartbeat::answered(26_000, 25_000, 7).latency_ms(), Some(0), "a clock that was set back");
    }
}
