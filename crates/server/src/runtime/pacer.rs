//! The rate of a command for many connections; all shards of the node share one rate.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::net::admission::Rate;

/// How many requests with a rate a node has under way at most.
const PACED_REQUESTS_MAX: usize = 16;
/// The highest rate, in connections a second.
pub(crate) const PACE_MAX: u32 = 100_000;
/// The burst, as time at the rate, in microseconds: two ticks of a shard.
const BURST_US: u64 = 200_000;

/// A request with a rate that is under way.
pub(crate) struct Pacer {
    each_second: usize,
    taken: Rate,
    under_way: Arc<AtomicUsize>,
}

impl Pacer {
    /// Begins a request. `each_second`: connections a second, from 1 to [`PACE_MAX`]. `under_way` counts the requests
    /// of the node. None = [`PACED_REQUESTS_MAX`] are already under way.
    pub(crate) fn begin(each_second: u32, under_way: &Arc<AtomicUsize>) -> Option<Arc<Self>> {
        let next = |count| (count < PACED_REQUESTS_MAX).then_some(count + 1);
        under_way.fetch_update(Relaxed, Relaxed, next).ok()?;
        let (taken, under_way) = (Rate::default(), Arc::clone(under_way));
        Some(Arc::new(Pacer { each_second: each_second as usize, taken, under_way }))
    }

    /// Takes the turn of one connection; false = its turn has not come. `now_us`: microseconds of the node's clock.
    pub(crate) fn admits(&self, now_us: u64) -> bool {
        self.taken.try_admit(self.each_second, BURST_US, now_us)
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_requests_are_under_way_and_one_that_ends_makes_room() {
        let under_way = Arc::default();
        let mut held: Vec<_> = (0..PACED_REQUESTS_MAX).map(|_| Pacer::begin(1, &under_way).expect("room")).collect();
        assert!(Pacer::begin(1, &under_way).is_none());
        let of_another_shard = held.pop().map(|pacer| (Arc::clone(&pacer), pacer));
        drop(of_another_shard);
        assert!(Pacer::begin(1, &under_way).is_some());
    }

    #[test]
    fn what_is_admitted_in_a_time_is_the_rate_and_a_fifth_of_a_second_more() {
        for each_second in [1, 3, 50, 1_000, PACE_MAX] {
            let pacer = Pacer::begin(each_second, &Arc::default()).expect("room");
            let mut admitted = 0;
            for tick in 0..100u64 {
                // Two shards ask in turn.
                let now_us = 5_000_000 + tick * 50_000;
                admitted += (0..200_000).take_while(|_| pacer.admits(now_us)).count();
            }
            let (seconds, burst) = (4.95, 0.2);
            let most = f64::from(each_second) * (seconds + burst) + 2.0;
            let least = f64::from(each_second) * (seconds - burst) - 1.0;
            assert!((least..most).contains(&(admitted as f64)), "{each_second}: {admitted}");
        }
    }
}
