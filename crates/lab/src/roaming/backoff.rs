//! How long a client waits before it reconnects: full jitter, as in the official SDKs.

use std::time::Duration;

/// The shortest wait: `minReconnectDelay` of the official JavaScript SDK.
const DELAY_MIN_MS: u64 = 500;
/// The longest wait: its `maxReconnectDelay`.
const DELAY_MAX_MS: u64 = 20_000;

/// The wait before the next try. `failed` is the number of failed tries since the client was connected, and `random` is
/// any number. The first wait is 500 to 1,000 ms; the random part doubles with each failure.
pub(super) fn delay(failed: u32, random: u64) -> Duration {
    let most_ms = (DELAY_MIN_MS << failed.min(31)).min(DELAY_MAX_MS);
    Duration::from_millis((DELAY_MIN_MS + random % (most_ms + 1)).min(DELAY_MAX_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_random_and_doubles_up_to_a_limit() {
        let range = |failed| (delay(failed, 0), longest(failed));
        assert_eq!(range(0), (Duration::from_millis(500), Duration::from_millis(1_000)));
        assert_eq!(range(1), (Duration::from_millis(500), Duration::from_millis(1_500)));
        assert_eq!(range(3), (Duration::from_millis(500), Duration::from_millis(4_500)));
        assert_eq!(range(40), (Duration::from_millis(500), Duration::from_secs(20)));
    }

    fn longest(failed: u32) -> Duration {
        (0..=DELAY_MAX_MS).map(|random| delay(failed, random)).max().unwrap_or_default()
    }
}
