//! Settings of bans: users and tokens that the nodes refuse, whatever else permits them.

use touchline_engine::setting::SOME;
use touchline_engine::{settings, words_of};

settings! {
    /// Bans: blocked users, and revoked or invalidated tokens.
    pub struct SecuritySettings {
        /// What a node does with new connections while it cannot reach the place where bans are kept. `allow` checks
        /// them against the bans that the node knows. `refuse_new` refuses new connections and refreshes with the
        /// temporary error 100.
        own when_cut_off: WhenCutOff = WhenCutOff::Allow;
        /// Bans are kept in the primary database (`store.primary`), which is opened for it. Off: bans are kept in
        /// PostgreSQL if that is the primary database, else in NATS if there is a cluster, else in SQLite if another
        /// setting uses it, else in memory.
        own use_primary: bool = false;
        /// Maximum number of bans. A further ban is refused with error 106. Bans that have ended do not count.
        own bans_max_entries: usize = 250_000, SOME;
    }
}

/// What a node does with new connections while it cannot reach the place where bans are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenCutOff {
    /// The node checks them against the bans that it knows.
    #[default]
    Allow,
    /// The node refuses them with a temporary error.
    RefuseNew,
}

words_of!(WhenCutOff { Allow = "allow", RefuseNew = "refuse_new" });
