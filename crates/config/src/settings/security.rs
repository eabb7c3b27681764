//! Bans: who is not let in, whatever else permits it.

use touchline_engine::setting::SOME;
use touchline_engine::{settings, words_of};

settings! {
    /// Bans: users who are blocked, tokens that are revoked or invalidated.
    pub struct SecuritySettings {
        /// What a node does with new connections while it cannot reach what keeps the bans: `allow` judges them by the
        /// bans that it knows, `refuse_new` refuses them for the time being, and refreshes too (100).
        own when_cut_off: WhenCutOff = WhenCutOff::Allow;
        /// Bans are kept in the primary database (`store.primary`), which is opened for it. Without it they are kept
        /// in PostgreSQL if that is the primary database, else in NATS if there is a cluster, else in SQLite if
        /// another setting uses it, else in memory.
        own use_primary: bool = false;
        /// Bans that may be there at a time; one more is refused with error 106. What has ended does not count.
        own bans_max_entries: usize = 250_000, SOME;
    }
}

/// What a node does with new connections while it is cut off from the bans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenCutOff {
    /// It judges them by the bans that it knows.
    #[default]
    Allow,
    /// It refuses them for the time being.
    RefuseNew,
}

words_of!(WhenCutOff { Allow = "allow", RefuseNew = "refuse_new" });
