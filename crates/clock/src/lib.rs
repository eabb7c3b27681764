//! The time of a node: the system's clocks, or a clock that a test stops and moves.
//!
//! A part of the node that measures, waits or gives up gets a [`Clock`] and does not ask the system. So a test can let
//! an hour pass at once, and a pause of the machine is not mistaken for time.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use touchline_lock::Lock;

/// How often a part that waits looks at a clock that is moved by hand, in real time.
const LOOK: Duration = Duration::from_millis(2);

/// A clock. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    origin: Instant,
    /// None = the system's clocks.
    moved: Option<Arc<Moved>>,
}

/// The state of a clock with a hand.
#[derive(Debug)]
struct Moved {
    /// Unix time at the origin.
    unix: Duration,
    shown: Lock<Shown>,
}

/// What a clock with a hand shows.
#[derive(Debug)]
struct Shown {
    /// The time when it began to run or was stopped.
    elapsed: Duration,
    /// When it began to run with the system's clock; None = it stands still.
    runs_since: Option<Instant>,
}

impl Shown {
    fn elapsed(&self) -> Duration {
        self.elapsed + self.runs_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Moved {
    #[cold]
    fn elapsed(&self) -> Duration {
        self.shown.lock().elapsed()
    }
}

/// Stops and moves a clock. When the hand is dropped, the clock runs with the system's.
#[derive(Debug)]
pub struct ClockHand(Arc<Moved>);

impl ClockHand {
    /// Moves the clock forwards.
    pub fn advance(&self, by: Duration) {
        self.0.shown.lock().elapsed += by;
    }

    /// Stops the clock.
    pub fn stop(&self) {
        let mut shown = self.0.shown.lock();
        *shown = Shown { elapsed: shown.elapsed(), runs_since: None };
    }

    /// Lets the clock run with the system's.
    pub fn run(&self) {
        let mut shown = self.0.shown.lock();
        *shown = Shown { elapsed: shown.elapsed(), runs_since: Some(Instant::now()) };
    }
}

impl Drop for ClockHand {
    fn drop(&mut self) {
        self.run();
    }
}

/// The error of [`Clock::timeout`]: the time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOver;

impl fmt::Display for TimeOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time is over")
    }
}

impl std::error::Error for TimeOver {}

impl Default for Clock {
    fn default() -> Self {
        Clock::system()
    }
}

impl Clock {
    /// The system's clocks: the monotonic one for durations, and the one of Unix time.
    pub fn system() -> Self {
        Clock { origin: Instant::now(), moved: None }
    }

    /// A clock that runs with the system's until its hand moves or stops it.
    pub fn with_hand() -> (Self, ClockHand) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin = Instant::now();
        let shown = Shown { elapsed: Duration::ZERO, runs_since: Some(origin) };
        let moved = Arc::new(Moved { unix, shown: Lock::new(shown) });
        (Clock { origin, moved: Some(Arc::clone(&moved)) }, ClockHand(moved))
    }

    /// The time since this clock was made.
    #[inline]
    pub fn elapsed(&self) -> Duration {
        match &self.moved {
            None => self.origin.elapsed(),
            Some(moved) => moved.elapsed(),
        }
    }

    /// The moment that this clock shows. It is comparable only with moments of the same clock.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.moved {
            None => Instant::now(),
            Some(moved) => self.origin + moved.elapsed(),
        }
    }

    /// The time from a moment of this clock until now; zero if the moment is to come.
    pub fn since(&self, moment: Instant) -> Duration {
        self.now().saturating_duration_since(moment)
    }

    /// Unix time as the system's clock has it. It can go back, except by hand.
    pub fn unix(&self) -> Duration {
        match &self.moved {
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Some(moved) => moved.unix + moved.elapsed(),
        }
    }

    /// Waits for this long, from the call.
    pub fn sleep(&self, length: Duration) -> impl Future<Output = ()> {
        self.sleep_since(self.by_hand(), length)
    }

    /// Waits until a moment of this clock.
    pub fn sleep_until(&self, moment: Instant) -> impl Future<Output = ()> {
        self.sleep(moment.saturating_duration_since(self.now()))
    }

    /// Waits for a future, at most this long from the call.
    ///
    /// # Errors
    /// [`TimeOver`] if the future is not ready by then. The future is dropped.
    pub fn timeout<F: Future>(
        &self,
        longest: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, TimeOver>> {
        let began = self.by_hand();
        async move {
            let mut future = pin!(future);
            if began.is_none() {
                return tokio::time::timeout(longest, future).await.map_err(|_| TimeOver);
            }
            tokio::select! {
                biased;
                output = &mut future => Ok(output),
                () = self.sleep_since(began, longest) => Err(TimeOver),
            }
        }
    }

    /// The time of a clock with a hand; None = the system's clocks.
    fn by_hand(&self) -> Option<Duration> {
        self.moved.as_ref().map(|moved| moved.elapsed())
    }

    /// Waits for this long from a time of [`Clock::by_hand`].
    async fn sleep_since(&self, began: Option<Duration>, length: Duration) {
        let Some(began) = began else { return tokio::time::sleep(length).await };
        while self.elapsed().saturating_sub(began) < length {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How long a thread may wait before it looks at this clock again, if it has something to do after `length`.
    pub fn wait_max(&self, length: Duration) -> Duration {
        if self.moved.is_none() { length } else { length.min(LOOK) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn a_clock_moves_only_by_its_hand_and_all_its_times_move_alike() {
        let (clock, hand) = Clock::with_hand();
        hand.stop();
        let (elapsed, now, unix) = (clock.elapsed(), clock.now(), clock.unix());
        assert_eq!((clock.elapsed(), clock.now(), clock.unix()), (elapsed, now, unix), "it stands still");
        hand.advance(HOUR);
        assert_eq!((clock.elapsed() - elapsed, clock.since(now), clock.unix() - unix), (HOUR, HOUR, HOUR));
        assert_eq!(clock.clone().now(), clock.now(), "clones are the same clock");
        assert_eq!((clock.wait_max(HOUR), Clock::system().wait_max(HOUR)), (LOOK, HOUR));
    }

    #[test]
    fn waits_end_when_the_clock_was_moved_far_enough() {
        let (clock, hand) = Clock::with_hand();
        hand.stop();
        run(async {
            let never = std::future::pending::<()>();
            let (asleep, awake) = (clock.sleep(HOUR), clock.timeout(HOUR * 2, never));
            let (mut asleep, mut awake) = (pin!(asleep), pin!(awake));
            hand.advance(HOUR / 2);
            assert_eq!(clock.timeout(Duration::ZERO, &mut asleep).await, Err(TimeOver), "half of it is to come");
            assert_eq!(clock.timeout(HOUR, async { 7 }).await, Ok(7));
            let (mut first, mut second) = (false, false);
            hand.advance(HOUR / 2);
            while !first {
                tokio::select! { () = &mut asleep => first = true, _ = &mut awake => second = true }
            }
            assert!(!second);
            hand.advance(HOUR * 2);
            assert_eq!(awake.await, Err(TimeOver));
        });
    }

    #[test]
    fn a_clock_without_a_hand_runs_on() {
        let (clock, hand) = Clock::with_hand();
        hand.stop();
        drop(hand);
        run(clock.sleep(Duration::from_millis(1)));
        assert!(clock.elapsed() >= Duration::from_millis(1));
        run(clock.sleep_until(clock.now()));
    }
}
