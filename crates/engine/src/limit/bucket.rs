//! Token buckets by the generic cell rate algorithm (ITU-T I.371). A bucket is stored as one time: when it will be
//! full.
//!
//! It is written by hand because `governor` reads a clock of its own and keeps one rate for each key. Here the time is
//! an argument, a key has several buckets, and a full bucket takes no memory.

use std::time::Duration;

use super::value::RateBucket;

/// How far the clocks of two callers may differ before the buckets assume that a clock was set back. Shards read the
/// clock once in a turn. Nanoseconds.
const SKEW_NS: u64 = 1_000_000_000;

/// A bucket that is full with `burst` tokens and gets a new token after each `cost_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSpec {
    /// The time in which one token is added, nanoseconds; at least 1.
    cost_ns: u64,
    /// The time in which an empty bucket becomes full, nanoseconds.
    depth_ns: u64,
}

/// A token that was taken from a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TakenToken {
    /// When the bucket will be full, nanoseconds.
    due_ns: u64,
    /// How long to wait until the token is available, nanoseconds.
    wait_ns: u64,
}

impl BucketSpec {
    /// A bucket of `rate` tokens that gets the same number in each interval. A rate of 0 counts as 1.
    pub fn new(bucket: RateBucket) -> Self {
        Self::with_burst(bucket.interval, bucket.rate, bucket.rate.max(1))
    }

    /// A bucket of `burst` tokens that gets `rate` tokens in each interval; a burst of 0 = it never has a token.
    pub fn with_burst(interval: Duration, rate: u32, burst: u32) -> Self {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        // Rounded up, so that the rate is never exceeded.
        let cost_ns = interval_ns.div_ceil(rate.max(1).into()).max(1);
        BucketSpec { cost_ns, depth_ns: cost_ns.saturating_mul(burst.into()) }
    }

    /// Takes one token from a bucket that will be full at `due_ns`. A token that is not available yet is taken in
    /// advance if it becomes available within `patience_ns`.
    ///
    /// # Errors
    /// No token becomes available within that time. The error is the time when the bucket will be full. It is earlier
    /// than `due_ns` if the clock was set back: then the bucket is empty, and no caller waits longer than for an empty
    /// bucket.
    fn take(self, due_ns: u64, now_ns: u64, patience_ns: u64) -> Result<TakenToken, u64> {
        let last_ns = now_ns.saturating_add(self.depth_ns);
        let due_ns = self.corrected(due_ns, last_ns.saturating_add(patience_ns));
        let next_ns = due_ns.max(now_ns).saturating_add(self.cost_ns);
        let wait_ns = next_ns.saturating_sub(last_ns);
        if wait_ns <= patience_ns { Ok(TakenToken { due_ns: next_ns, wait_ns }) } else { Err(due_ns) }
    }

    /// The number of whole tokens in a bucket that will be full at `due_ns`, plus those that it gets within
    /// `patience_ns`.
    fn tokens(self, due_ns: u64, now_ns: u64, patience_ns: u64) -> u64 {
        let most_ns = now_ns.saturating_add(self.depth_ns).saturating_add(patience_ns);
        most_ns.saturating_sub(self.corrected(due_ns, most_ns).max(now_ns)) / self.cost_ns
    }

    /// When a bucket with this `due_ns` will be full: at `most_ns` at the latest, unless the clock was set back.
    fn corrected(self, due_ns: u64, most_ns: u64) -> u64 {
        if due_ns > most_ns.saturating_add(SKEW_NS) { most_ns } else { due_ns }
    }
}

/// How full the buckets of one connection, user or address are. A full bucket takes no memory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct BucketLevels {
    /// The numbers of buckets that are not full, in order, each with the time when it will be full.
    due: Vec<(u32, u64)>,
}

impl BucketLevels {
    /// When all buckets will be full, nanoseconds. From then on the levels can be forgotten without a loss.
    pub fn full_at_ns(&self) -> u64 {
        self.due.iter().map(|(_, due_ns)| *due_ns).max().unwrap_or(0)
    }

    /// The smallest number of tokens that a bucket of `specs` has, or can give within `patience_ns`.
    pub fn tokens(&self, specs: &[BucketSpec], first: u32, now_ns: u64, patience_ns: u64) -> u64 {
        let buckets = (first..).zip(specs);
        buckets.map(|(number, spec)| spec.tokens(self.due_of(number), now_ns, patience_ns)).min().unwrap_or(u64::MAX)
    }

    /// Returns an unused token to each bucket of `specs`, whose numbers begin at `first`.
    pub fn give_back(&mut self, specs: &[BucketSpec], first: u32, now_ns: u64) {
        for (number, spec) in (first..).zip(specs) {
            let due_ns = self.due_of(number);
            if due_ns > now_ns {
                self.set(number, due_ns.saturating_sub(spec.cost_ns), now_ns);
            }
        }
    }

    /// Takes a token from each bucket of `specs`, whose numbers begin at `first`, or none at all. Tokens that become
    /// available within `patience_ns` are taken in advance.
    ///
    /// Returns how long to wait until the last of them is available, nanoseconds; `None` = they are not available in
    /// time.
    pub fn take(&mut self, specs: &[BucketSpec], first: u32, now_ns: u64, patience_ns: u64) -> Option<u64> {
        let mut wait_ns = 0;
        for (number, spec) in (first..).zip(specs) {
            let due_ns = self.due_of(number);
            match spec.take(due_ns, now_ns, patience_ns) {
                Ok(taken) => wait_ns = wait_ns.max(taken.wait_ns),
                Err(corrected_ns) => {
                    if corrected_ns != due_ns {
                        self.set(number, corrected_ns, now_ns);
                    }
                    return None;
                }
            }
        }
        for (number, spec) in (first..).zip(specs) {
            if let Ok(taken) = spec.take(self.due_of(number), now_ns, patience_ns) {
                self.set(number, taken.due_ns, now_ns);
            }
        }
        Some(wait_ns)
    }

    fn due_of(&self, number: u32) -> u64 {
        self.due.binary_search_by_key(&number, |(number, _)| *number).map_or(0, |index| self.due[index].1)
    }

    fn set(&mut self, number: u32, due_ns: u64, now_ns: u64) {
        if self.due.len() == self.due.capacity() {
            self.due.retain(|(_, due_ns)| *due_ns > now_ns);
        }
        match self.due.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => self.due[index].1 = due_ns,
            Err(index) => self.due.insert(index, (number, due_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn spec(interval_ms: u64, rate: u32) -> BucketSpec {
        BucketSpec::new(RateBucket { interval: Duration::from_millis(interval_ms), rate })
    }

    fn is_taken(levels: &mut BucketLevels, specs: &[BucketSpec], now_ns: u64) -> bool {
        levels.take(specs, 0, now_ns, 0).is_some()
    }

    #[test]
    fn a_bucket_gives_its_rate_at_once_and_then_its_share() {
        for rate in [1, 2, 3, 7, 60, 4_000] {
            let (specs, mut levels) = ([spec(1_000, rate)], BucketLevels::default());
            let mut at = |now_ns: u64| (0..9_000).take_while(|_| is_taken(&mut levels, &specs, now_ns)).count();
            assert_eq!(at(5 * SECOND_NS), rate as usize);
            assert_eq!(at(5 * SECOND_NS + SECOND_NS / 1_000), rate as usize / 1_000);
            assert_eq!(at(90 * SECOND_NS), rate as usize, "what was not used is not saved up");
        }
    }

    #[test]
    fn of_several_buckets_all_are_charged_or_none() {
        let (specs, mut levels) = ([spec(1_000, 5), spec(60_000, 7)], BucketLevels::default());
        let at = |levels: &mut BucketLevels, s: u64| {
            (0..100).take_while(|_| is_taken(levels, &specs, s * SECOND_NS)).count()
        };
        assert_eq!((at(&mut levels, 1), at(&mut levels, 2), at(&mut levels, 3)), (5, 2, 0));
        let before = levels.clone();
        assert!(!is_taken(&mut levels, &specs, 4 * SECOND_NS));
        assert_eq!(levels, before, "a refusal costs nothing");
    }

    #[test]
    fn full_buckets_take_no_room() {
        let specs: Vec<BucketSpec> = (0..1_000).map(|_| spec(1_000, 1)).collect();
        let mut levels = BucketLevels::default();
        for (number, spec) in (0_u32..).zip(&specs) {
            assert!(levels.take(&[*spec], number, u64::from(number) * SECOND_NS, 0).is_some());
        }
        assert!(levels.due.capacity() <= 8, "{} are kept", levels.due.capacity());
        assert_eq!(levels.full_at_ns(), 1_000 * SECOND_NS);
    }

    #[test]
    fn a_bucket_without_tokens_never_has_one() {
        let specs = [BucketSpec::with_burst(Duration::from_secs(1), 1, 0)];
        assert!((0..100).all(|s| !is_taken(&mut BucketLevels::default(), &specs, s * SECOND_NS)));
    }

    proptest! {
        /// No time window has more calls than the burst plus the rate allow, whatever the pattern of calls. And a
        /// caller that asks often enough gets the full rate.
        #[test]
        fn no_window_has_more_than_the_rate_and_nobody_starves(
            rate in 1_u32..50, interval_ms in 1_u64..5_000, gaps in prop::collection::vec(0_u64..400_000_000, 1..300),
        ) {
            let specs = [spec(interval_ms, rate)];
            let (mut levels, mut now_ns, mut taken) = (BucketLevels::default(), 7, Vec::new());
            for gap_ns in &gaps {
                now_ns += gap_ns;
                if is_taken(&mut levels, &specs, now_ns) {
                    taken.push(now_ns);
                }
            }
            let interval_ns = u128::from(interval_ms) * 1_000_000;
            for (first, from_ns) in taken.iter().enumerate() {
                for (last, to_ns) in taken.iter().enumerate().skip(first) {
                    let share = u128::from(to_ns - from_ns) * u128::from(rate) / interval_ns;
                    prop_assert!((last - first + 1) as u128 <= u128::from(rate) + share);
                }
            }
            // An interval later the bucket is full, whatever happened before.
            now_ns += interval_ms * 1_000_000 + u64::from(rate);
            let at_once = (0..2 * rate).take_while(|_| is_taken(&mut levels, &specs, now_ns)).count();
            prop_assert_eq!(at_once, rate as usize);
        }

        /// A command whose token is taken in advance is executed when the token is available. The same bound holds,
        /// waits are limited, and commands are executed in the order in which they came.
        #[test]
        fn tokens_in_advance_keep_the_rate_and_the_order(
            rate in 1_u32..20, patience_ms in 1_u64..5_000, gaps in prop::collection::vec(0_u64..50_000_000, 1..300),
        ) {
            let specs = [spec(1_000, rate)];
            let patience_ns = patience_ms * 1_000_000;
            let (mut levels, mut now_ns, mut carried_out) = (BucketLevels::default(), 7, Vec::new());
            for gap_ns in gaps {
                now_ns += gap_ns;
                if let Some(wait_ns) = levels.take(&specs, 0, now_ns, patience_ns) {
                    prop_assert!(wait_ns <= patience_ns);
                    carried_out.push(now_ns + wait_ns);
                }
            }
            prop_assert!(carried_out.is_sorted());
            for (first, from_ns) in carried_out.iter().enumerate() {
                for (last, to_ns) in carried_out.iter().enumerate().skip(first) {
                    let share = (to_ns - from_ns) * u64::from(rate) / SECOND_NS;
                    prop_assert!((last - first + 1) as u64 <= u64::from(rate) + share);
                }
            }
        }

        /// The counted tokens are those that can be taken, and a token that is given back can be taken again.
        #[test]
        fn a_look_tells_what_can_be_taken_and_what_is_given_back_can_be_taken_again(
            rate in 1_u32..20, patience_ms in 0_u64..3_000, gaps in prop::collection::vec(0_u64..90_000_000, 1..99),
        ) {
            let specs = [spec(1_000, rate), spec(3_000, rate)];
            let patience_ns = patience_ms * 1_000_000;
            let (mut levels, mut now_ns) = (BucketLevels::default(), 7);
            for gap_ns in gaps {
                now_ns += gap_ns;
                let tokens = levels.tokens(&specs, 0, now_ns, patience_ns);
                let before = levels.clone();
                let is_taken = levels.take(&specs, 0, now_ns, patience_ns).is_some();
                prop_assert_eq!(is_taken, tokens > 0);
                if is_taken {
                    prop_assert_eq!(levels.tokens(&specs, 0, now_ns, patience_ns), tokens - 1);
                    let mut returned = levels.clone();
                    returned.give_back(&specs, 0, now_ns);
                    prop_assert_eq!(returned.tokens(&specs, 0, now_ns, patience_ns), tokens);
                } else {
                    prop_assert_eq!(&levels.due, &before.due, "a refusal costs nothing");
                }
            }
        }

        /// After a clock was set back, no caller waits longer than for an empty bucket.
        #[test]
        fn a_clock_that_goes_back_makes_nobody_wait_long(
            rate in 1_u32..50, interval_ms in 1_u64..5_000, back_ns in 0_u64..1_000_000_000_000, used in 0_u32..60,
        ) {
            let specs = [spec(interval_ms, rate)];
            let (mut levels, now_ns) = (BucketLevels::default(), 2_000_000_000_000);
            for _ in 0..used {
                is_taken(&mut levels, &specs, now_ns);
            }
            let now_ns = now_ns - back_ns;
            let at_once = (0..2 * rate).take_while(|_| is_taken(&mut levels, &specs, now_ns)).count();
            prop_assert!(at_once <= rate as usize);
            let later_ns = now_ns + interval_ms * 1_000_000 + u64::from(rate) + SKEW_NS;
            prop_assert!(is_taken(&mut levels, &specs, later_ns));
        }

        /// No interval, rate or time overflows.
        #[test]
        fn nothing_overflows(
            interval in any::<u64>(), rate in any::<u32>(), times in prop::collection::vec(any::<u64>(), 1..20),
            patience_ns in any::<u64>(),
        ) {
            let specs = [BucketSpec::new(RateBucket { interval: Duration::from_secs(interval), rate })];
            let mut levels = BucketLevels::default();
            for now_ns in times {
                let wait_ns = levels.take(&specs, 0, now_ns, patience_ns);
                prop_assert!(wait_ns.is_none_or(|wait_ns| wait_ns <= patience_ns));
            }
        }
    }
}
