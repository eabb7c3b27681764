//! The `reactions` part of the configuration.

use std::time::Duration;

use crate::setting::SOME;

settings! {
    /// How reactions are counted and told. What can be reacted with is an option of the namespace, `reactions`.
    pub struct ReactionSettings {
        /// How often a channel publishes its totals while they change: 100ms to 60s.
        own tick: Duration = Duration::from_millis(250);
        /// Channels with reactions that a node holds; in others reactions are refused with 106.
        own channel_limit: usize = 10_000, SOME;
        /// The totals of a channel are forgotten when nobody has reacted in it for so long.
        own ttl: Duration = Duration::from_hours(24);
    }
}
