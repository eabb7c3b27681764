//! A coarse timing wheel: many deadlines, few ticks. Keys are never cancelled; who is called too early books again.

/// Deadlines of one shard, in ticks of fixed length.
#[derive(Debug)]
pub struct Wheel {
    tick_ms: u64,
    /// The tick that was served last.
    served: u64,
    buckets: Vec<Vec<u32>>,
}

impl Wheel {
    /// A wheel that reaches `buckets` ticks ahead.
    pub fn new(tick_ms: u64, buckets: usize, now_ms: u64) -> Self {
        assert!(tick_ms > 0 && buckets > 1, "a wheel turns");
        Wheel { tick_ms, served: now_ms / tick_ms, buckets: vec![Vec::new(); buckets] }
    }

    /// Books a key for the first tick at or after `at_ms`, or for the far end of the wheel. Gives the time booked.
    pub fn book(&mut self, key: u32, at_ms: u64) -> u64 {
        let furthest = self.served + self.buckets.len() as u64 - 1;
        let tick = at_ms.div_ceil(self.tick_ms).clamp(self.served + 1, furthest);
        let index = (tick % self.buckets.len() as u64) as usize;
        self.buckets[index].push(key);
        tick * self.tick_ms
    }

    /// Whether a tick has passed that was not served.
    pub fn is_behind(&self, now_ms: u64) -> bool {
        now_ms / self.tick_ms > self.served
    }

    /// Serves the ticks that have passed: each booked key, with the time for which it was booked.
    pub fn advance(&mut self, now_ms: u64, due: &mut Vec<(u32, u64)>) {
        let now = now_ms / self.tick_ms;
        // After a long pause every bucket is due once.
        let last = now.min(self.served + self.buckets.len() as u64);
        while self.served < last {
            self.served += 1;
            let index = (self.served % self.buckets.len() as u64) as usize;
            let at_ms = self.served * self.tick_ms;
            due.extend(self.buckets[index].drain(..).map(|key| (key, at_ms)));
            if self.buckets[index].capacity() > 1_024 {
                self.buckets[index] = Vec::new();
            }
        }
        self.served = self.served.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is booked is served once, at its tick or at the wheel's far end, never early by more than that end.
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
}
