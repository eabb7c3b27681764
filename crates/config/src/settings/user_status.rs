//! Settings of the last connection times of users.

use std::time::Duration;

use touchline_engine::settings;

settings! {
    /// The last connection times of users, for `get_user_status`.
    pub struct UserStatusSettings {
        /// The nodes record when each user was last connected, for `online` of `get_user_status`. They store it in the
        /// primary database (`store.primary`) if that is PostgreSQL. They also store it there if it is an SQLite
        /// database that another setting uses, and there is no cluster. Otherwise each node keeps its own times in
        /// memory until it stops.
        key enabled: bool = false;
        /// How long the time of a user is kept.
        key expire_interval: Duration = Duration::from_secs(30 * 86_400);
        /// The times are stored in the primary database, which is opened for them.
        own use_primary: bool = false;
    }
}
