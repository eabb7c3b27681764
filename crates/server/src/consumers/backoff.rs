//! How long to wait before a failed entry is retried. The code is pure.

use std::time::Duration;

/// The first delay, without the random part.
const FIRST_MS: u64 = 10;
/// The longest delay.
const LONGEST_MS: u64 = 5_000;
/// After this many doublings every delay is the longest.
const DOUBLINGS: u32 = 10;
const _: () = assert!(FIRST_MS << DOUBLINGS > LONGEST_MS);

/// Returns the delay: 10 ms plus a random part below 10 ms, doubled with each failure, at most 5 s. `failures`: the
/// number of failures, from 1. `random`: any number.
pub(super) fn delay(failures: u32, random: u64) -> Duration {
    let base = FIRST_MS + random % FIRST_MS;
    Duration::from_millis((base << failures.saturating_sub(1).min(DOUBLINGS)).min(LONGEST_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_the_longest() {
        let ms = |failures, random| delay(failures, random).as_millis();
        assert_eq!([0, 1, 2, 3].map(|failures| ms(failures, 0)), [10, 10, 20, 40]);
        assert_eq!((ms(1, 9), ms(1, 10), ms(2, 19)), (19, 10, 38));
        assert_eq!((ms(10, 0), ms(11, 0), ms(u32::MAX, 9)), (5_000, 5_000, 5_000));
    }
}
