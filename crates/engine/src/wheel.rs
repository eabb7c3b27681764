//! A coarse timing wheel: many deadlines, few ticks. Keys are never cancelled; a key that is due too early is booked
//! again.
//!
//! It is written by hand because `tokio_util::time::DelayQueue` reads a clock and needs its runtime. Here the time is
//! an argument, and a key takes four bytes.

/// Deadlines of one shard, in ticks of fixed length.
#[derive(Debug)]
pub struct Wheel {
    tick_ms: u64,
    /// The last tick that was handled.
    handled: u64,
    buckets: Vec<Vec<u32>>,
}

impl Wheel {
    /// A wheel that reaches `buckets` ticks ahead.
    pub fn new(tick_ms: u64, buckets: usize, now_ms: u64) -> Self {
        assert!(tick_ms > 0 && buckets > 1, "a wheel needs a tick length and at least two buckets");
        Wheel { tick_ms, handled: now_ms / tick_ms, buckets: vec![Vec::new(); buckets] }
    }

    /// Books a key for the first tick at or after `at_ms`, or for the last tick of the wheel if that is earlier.
    /// Returns the booked time, Unix milliseconds.
    pub fn book(&mut self, key: u32, at_ms: u64) -> u64 {
        let furthest = self.handled + self.buckets.len() as u64 - 1;
        let tick = at_ms.div_ceil(self.tick_ms).clamp(self.handled + 1, furthest);
        let index = (tick % self.buckets.len() as u64) as usize;
        self.buckets[index].push(key);
        tick * self.tick_ms
    }

    /// Whether a tick has passed that has not been handled.
    pub fn is_behind(&self, now_ms: u64) -> bool {
        now_ms / self.tick_ms > self.handled
    }

    /// Handles the ticks that have passed: adds each booked key to `due`, with the time for which it was booked.
    pub fn advance(&mut self, now_ms: u64, due: &mut Vec<(u32, u64)>) {
        let now = now_ms / self.tick_ms;
        // After a long pause each bucket is handled only once.
        let last = now.min(self.handled + self.buckets.len() as u64);
        while self.handled < last {
            self.handled += 1;
            let index = (self.handled % self.buckets.len() as u64) as usize;
            let at_ms = self.handled * self.tick_ms;
            due.extend(self.buckets[index].drain(..).map(|key| (key, at_ms)));
            if self.buckets[index].capacity() > 1_024 {
                self.buckets[index] = Vec::new();
            }
        }
        self.handled = self.handled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each booked key is due once, at its tick or at the wheel's last tick.
        #[test]
        fn a_key_is_served_once_and_not_before_its_tick(
            bookings in prop::collection::vec((0u64..5_000, 1u64..300), 1..100),
        ) {
            let mut wheel = Wheel::new(100, 16, 0);
            let mut now = 0;
            let mut due = Vec::new();
            let mut booked = Vec::new();
            for (key, (ahead, step)) in bookings.iter().enumerate() {
                booked.push((key as u32, wheel.book(key as u32, now + ahead)));
                now += step;
                wheel.advance(now, &mut due);
                for (key, at) in &due {
                    prop_assert!(*at <= now);
                    prop_assert!(booked.contains(&(*key, *at)));
                }
            }
            wheel.advance(now + 100_000, &mut due);
            due.sort_unstable();
            booked.sort_unstable();
            let keys = |list: &[(u32, u64)]| list.iter().map(|(key, _)| *key).collect::<Vec<_>>();
            prop_assert_eq!(keys(&due), keys(&booked));
        }
    }

    #[test]
    fn a_far_deadline_is_booked_at_the_end_and_a_past_one_for_the_next_tick() {
        let mut wheel = Wheel::new(100, 16, 1_000);
        assert_eq!(wheel.book(1, 1_000_000), 2_500);
        assert_eq!(wheel.book(2, 0), 1_100);
        assert_eq!(wheel.book(3, 1_101), 1_200);
    }

    #[test]
    fn a_deadline_is_served_at_its_tick_wherever_the_wheel_stands() {
        let mut wheel = Wheel::new(100, 4, 1_050);
        let (mut due, mut now_ms) = (Vec::new(), 1_050);
        for key in 0..10u32 {
            // The next tick at the earliest, the last tick but one of a full turn at the latest.
            let tick_ms = now_ms / 100 * 100;
            let booked = [0, 100, 101, 200, 300, 301].map(|ahead| wheel.book(key, tick_ms + ahead) - tick_ms);
            assert_eq!(booked, [100, 100, 200, 200, 300, 300]);
            assert!(!wheel.is_behind(tick_ms + 99));
            wheel.advance(tick_ms + 99, &mut due);
            assert!(due.is_empty() && wheel.is_behind(tick_ms + 100));
            wheel.advance(tick_ms + 100, &mut due);
            assert_eq!(std::mem::take(&mut due), [(key, tick_ms + 100); 2]);
            wheel.advance(tick_ms + 299, &mut due);
            assert_eq!(std::mem::take(&mut due), [(key, tick_ms + 200); 2]);
            wheel.advance(tick_ms + 300, &mut due);
            assert_eq!(std::mem::take(&mut due), [(key, tick_ms + 300); 2]);
            assert!(!wheel.is_behind(tick_ms + 300));
            now_ms = tick_ms + 300;
        }
    }

    #[test]
    fn after_a_long_pause_everything_is_served_and_time_is_what_it_is() {
        let mut wheel = Wheel::new(100, 4, 0);
        let mut due = Vec::new();
        assert_eq!([wheel.book(1, 100), wheel.book(2, 300)], [100, 300]);
        wheel.advance(100_000, &mut due);
        assert_eq!(std::mem::take(&mut due), [(1, 100), (2, 300)]);
        assert!(!wheel.is_behind(100_099) && wheel.is_behind(100_100));
        assert_eq!(wheel.book(3, 0), 100_100);
        // If a clock is set back, no key is due twice.
        wheel.advance(0, &mut due);
        assert!(due.is_empty() && !wheel.is_behind(100_099));
        wheel.advance(100_100, &mut due);
        assert_eq!(due, [(3, 100_100)]);
    }

    #[test]
    #[should_panic(expected = "a wheel needs a tick length and at least two buckets")]
    fn a_wheel_of_one_bucket_is_not_valid() {
        Wheel::new(100, 1, 0);
    }

    #[test]
    #[should_panic(expected = "a wheel needs a tick length and at least two buckets")]
    fn a_wheel_without_a_tick_length_is_not_valid() {
        Wheel::new(0, 2, 0);
    }

    #[test]
    fn a_bucket_that_was_large_frees_its_memory() {
        for (keys, is_kept) in [(1_024, true), (1_025, false)] {
            let mut wheel = Wheel::new(100, 2, 0);
            wheel.buckets[1].reserve_exact(keys);
            assert_eq!(wheel.buckets[1].capacity(), keys);
            (0..keys).for_each(|key| assert_eq!(wheel.book(key as u32, 100), 100));
            let mut due = Vec::new();
            wheel.advance(100, &mut due);
            assert_eq!((due.len(), wheel.buckets[1].capacity()), (keys, if is_kept { keys } else { 0 }));
        }
    }
}
