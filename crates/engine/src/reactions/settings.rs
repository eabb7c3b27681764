//! The `reactions` part of the configuration.

use std::time::Duration;

use crate::setting::SOME;

settings! {
    /// How reactions are counted and published. The options to react with are set in the namespace (`reactions`).
    pub struct ReactionSettings {
        /// How often a channel publishes its totals while they change: 100ms to 60s.
        own tick: Duration = Duration::from_millis(250);
        /// How many channels with reactions a node can have. Reactions in further channels are refused with 106.
        own channel_limit: usize = 10_000, SOME;
        /// The totals of a channel are forgotten when it has had no reactions for this long.
        own ttl: Duration = Duration::from_hours(24);
    }
}
