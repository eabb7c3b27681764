//! The node's clock. It measures durations with the monotonic clock. It also keeps Unix time with the monotonic clock,
//! and follows the system's clock. It jumps forwards at once, and goes backwards by running slower, so that its time
//! never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::atomic::{Ordering, fence};

use touchline_clock::Clock;

/// A tenth of a second, in microseconds.
pub(crate) const TENTH_US: u64 = 100_000;
/// How often the system's clock is read, in microseconds.
const LOOK_US: u64 = 1_000_000;
/// How far the system's clock may differ before the node's clock follows it, in microseconds.
const TOLERANCE_US: u64 = 10_000;
/// A slower clock loses one part in this many. Other nodes and clients must not miss heartbeats and pings meanwhile.
const SLOWER: u64 = 10;
/// A slower stretch begins this long after the decision, in microseconds; by then every thread knows of it.
const NOTICE_US: u64 = 1_000_000;
/// How much time is lost during that notice.
const SOON_US: u64 = NOTICE_US / SLOWER;

/// Converts a time of the node's clock from microseconds to tenths of a second, for values that need few bytes and last
/// for seconds. It is good for 13 years.
pub(crate) fn tenths(elapsed_us: u64) -> u32 {
    (elapsed_us / TENTH_US) as u32
}

/// Unix time as a function of the time since the node started, all in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockLine {
    /// Where the line begins, since the node started.
    from: u64,
    /// The Unix time at `from`.
    unix: u64,
    /// How much time is lost after `from` by running slower.
    loss: u64,
}

impl ClockLine {
    fn unix_at(&self, elapsed: u64) -> u64 {
        match elapsed.checked_sub(self.from) {
            Some(since) => self.unix + since - self.lost(elapsed),
            None => self.unix.saturating_sub(self.from - elapsed),
        }
    }

    /// How much of `loss` is lost at this time.
    fn lost(&self, elapsed: u64) -> u64 {
        (elapsed.saturating_sub(self.from) / SLOWER).min(self.loss)
    }

    /// The line to use from now on, when the system's clock says `system`.
    fn follow(&self, elapsed: u64, system: u64) -> ClockLine {
        let (now, lost) = (self.unix_at(elapsed), self.lost(elapsed));
        let to_lose = self.loss - lost;
        if now.saturating_add(TOLERANCE_US) < system {
            return ClockLine { from: elapsed, unix: system, loss: 0 };
        }
        let ahead = now.saturating_sub(system);
        match (ahead.abs_diff(to_lose) <= TOLERANCE_US, to_lose) {
            (true, _) => *self,
            (false, 0) => ClockLine { from: elapsed + NOTICE_US, unix: now + NOTICE_US, loss: ahead },
            // The slower stretch is over before every thread would know of a longer one.
            (false, ..=SOON_US) if ahead > to_lose => *self,
            // The part of the stretch that is over stays as it was.
            (false, _) => ClockLine { loss: lost + ahead, ..*self },
        }
    }
}

/// A line that many threads read and one thread writes, without a lock.
#[derive(Debug)]
struct ClockState {
    /// A counter of writes; it is odd while the line is written.
    version: AtomicU64,
    from: AtomicU64,
    unix: AtomicU64,
    loss: AtomicU64,
    /// When the system's clock is read next.
    look_at: AtomicU64,
}

impl ClockState {
    fn new(line: ClockLine) -> Self {
        let ClockLine { from, unix, loss } = line;
        ClockState {
            version: AtomicU64::new(0),
            from: from.into(),
            unix: unix.into(),
            loss: loss.into(),
            look_at: AtomicU64::new(LOOK_US),
        }
    }

    fn read(&self) -> ClockLine {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let line = ClockLine {
                from: self.from.load(Relaxed),
                unix: self.unix.load(Relaxed),
                loss: self.loss.load(Relaxed),
            };
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Relaxed) == before {
                return line;
            }
            std::hint::spin_loop();
        }
    }

    /// Writes a line. Only one thread at a time may call this.
    fn write(&self, line: ClockLine) {
        let version = self.version.load(Relaxed);
        self.version.store(version + 1, Relaxed);
        fence(Ordering::Release);
        self.from.store(line.from, Relaxed);
        self.unix.store(line.unix, Relaxed);
        self.loss.store(line.loss, Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

/// Measures the time since it was made, and gives the Unix time. Clones are the same clock.
#[derive(Debug, Clone)]
pub(crate) struct NodeClock {
    time: Clock,
    line: Arc<ClockState>,
    /// The time of `time` when this clock was made, in microseconds.
    began_us: u64,
}

impl NodeClock {
    pub(crate) fn start(time: Clock) -> Self {
        let line = ClockLine { from: 0, unix: unix_us(&time), loss: 0 };
        let began_us = time.elapsed().as_micros() as u64;
        NodeClock { time, line: Arc::new(ClockState::new(line)), began_us }
    }

    /// Reads the system's clock from time to time, and follows it. Only one thread at a time may call this: the first
    /// shard calls it in its tick.
    pub(crate) fn follow(&self, elapsed_us: u64) {
        if elapsed_us < self.line.look_at.load(Relaxed) {
            return;
        }
        self.line.look_at.store(elapsed_us + LOOK_US, Relaxed);
        let (line, system) = (self.line.read(), unix_us(&self.time));
        // This takes the time of now, not that of the turn, because a turn may have lasted.
        let elapsed_us = self.elapsed_us();
        let next = line.follow(elapsed_us, system);
        if next != line {
            let off_ms = (system as i64).saturating_sub(line.unix_at(elapsed_us) as i64) / 1_000;
            tracing::warn!(
                off_ms,
                "the system's clock was set; this node follows it, forwards at once, backwards slowly"
            );
            self.line.write(next);
        }
    }

    /// The clock below, with which parts of the node wait and give up.
    pub(crate) fn time(&self) -> &Clock {
        &self.time
    }

    /// The Unix time in milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.unix_ms(self.elapsed_us())
    }

    /// Converts microseconds since the node started to Unix milliseconds.
    pub(crate) fn unix_ms(&self, elapsed_us: u64) -> u64 {
        self.line.read().unix_at(elapsed_us) / 1_000
    }

    /// Converts tenths of a second since the node started to Unix milliseconds.
    pub(crate) fn at(&self, tenths: u32) -> u64 {
        self.unix_ms(u64::from(tenths) * TENTH_US)
    }

    /// Microseconds since the node started.
    pub(crate) fn elapsed_us(&self) -> u64 {
        let elapsed = self.time.elapsed();
        elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros()) - self.began_us
    }
}

/// The time of the system's clock, in Unix microseconds.
fn unix_us(time: &Clock) -> u64 {
    time.unix().as_micros() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_700_000_000_000_000;
    const HOUR: u64 = 3_600_000_000;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// No thread sees the time go back, whatever the system's clock does and whenever threads read it. If the
        /// system's clock is left alone, the node's clock reaches its time.
        #[test]
        fn it_never_goes_back_and_comes_to_the_systems_time(
            jumps in prop::collection::vec((-600_000_000i64..600_000_000, 1u64..40_000_000), 1..6), written in 1u64..20,
        ) {
            let mut line = ClockLine { from: 0, unix: START, loss: 0 };
            let (mut elapsed, mut off, mut seen) = (0u64, 0i64, 0u64);
            let mut run = |line: &mut ClockLine, elapsed: &mut u64, off: i64, us: u64| -> Result<(), TestCaseError> {
                let end = *elapsed + us;
                while *elapsed < end {
                    let next = line.follow(*elapsed, (START + *elapsed).saturating_add_signed(off));
                    // Other threads read the line of before until this one is written.
                    for moment in 0..2 * written {
                        let known = if moment < written { &*line } else { &next };
                        let now = known.unix_at(*elapsed + moment);
                        prop_assert!(now >= seen, "{} after {}", now, seen);
                        seen = now;
                    }
                    *line = next;
                    *elapsed += LOOK_US;
                }
                Ok(())
            };
            for (jump, us) in jumps {
                off += jump;
                run(&mut line, &mut elapsed, off, us)?;
            }
            run(&mut line, &mut elapsed, off, 12 * HOUR)?;
            let (now, system) = (line.unix_at(elapsed), (START + elapsed).saturating_add_signed(off));
            prop_assert!(now.abs_diff(system) <= TOLERANCE_US, "{} of {}", now, system);
        }
    }

    #[test]
    fn forwards_at_once_and_backwards_by_a_tenth() {
        let line = ClockLine { from: 0, unix: START, loss: 0 };
        assert_eq!(line.follow(HOUR, START + HOUR + TOLERANCE_US / 2), line, "nobody follows every microsecond");
        let ahead = line.follow(HOUR, START + 2 * HOUR);
        assert_eq!((ahead.unix_at(HOUR), ahead.unix_at(2 * HOUR)), (START + 2 * HOUR, START + 3 * HOUR));
        let slower = line.follow(HOUR, START);
        let begun = HOUR + NOTICE_US;
        assert_eq!(slower.unix_at(begun), START + begun, "it begins later");
        assert_eq!(slower.unix_at(begun + HOUR), START + begun + HOUR - HOUR / SLOWER);
        assert_eq!(
            slower.unix_at(begun + 20 * HOUR),
            START + begun + 19 * HOUR,
            "and ends when the system's time is met"
        );
        let back = slower.follow(begun + HOUR, START + begun + HOUR - HOUR / SLOWER);
        assert_eq!(
            back.unix_at(begun + 2 * HOUR),
            START + begun + 2 * HOUR - HOUR / SLOWER,
            "set right again meanwhile"
        );
    }

    #[test]
    fn a_line_that_is_read_is_one_that_was_written() {
        let shared = ClockState::new(ClockLine { from: 0, unix: 0, loss: 0 });
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = 0;
                while last < 100_000 {
                    let ClockLine { from, unix, loss } = shared.read();
                    assert!(from == unix && unix == loss && from >= last);
                    last = from;
                }
            });
            (1..=100_000).for_each(|number| shared.write(ClockLine { from: number, unix: number, loss: number }));
            assert!(reader.join().is_ok());
        });
    }
}
