//! When users were connected last.

use std::time::Duration;

use touchline_engine::settings;

settings! {
    /// When users were connected last, for `get_user_status`.
    pub struct UserStatusSettings {
        /// The nodes keep when each user was connected last, for `online` of `get_user_status`: in the primary database
        /// (`store.primary`) if it is PostgreSQL, or SQLite that something uses and there is no cluster; else each node
        /// keeps its own in memory, until it stops.
        key enabled: bool = false;
        /// How long that is kept.
        key expire_interval: Duration = Duration::from_secs(30 * 86_400);
        /// It is kept in the primary database, which is opened for it.
        own use_primary: bool = false;
    }
}
