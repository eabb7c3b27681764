//! The databases.

use std::time::Duration;

use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

settings! {
    /// The databases.
    pub struct StoreSettings {
        /// The database of what must not be lost. It is opened when a setting needs it.
        section primary: PrimarySettings = PrimarySettings::default();
        /// The database of statistics: large, and it may be lost.
        section stats: StatsSettings = StatsSettings::default();
        /// A directory of channels, in the primary database (`store.primary`), which is opened for it: `channel_set`,
        /// `channel_get`, `channel_remove`, `channels_search`, `channels_similar`.
        own directory: bool = false;
        /// Schemas are brought up to date at the start; else `touchline migrate up` does.
        own migrate: bool = true;
        /// How long a batch of durable publications waits for more before it is committed. At 0s, what comes during a
        /// commit is the next batch.
        own commit_delay: Duration = Duration::ZERO;
        /// Durable publications in one commit, at most.
        own commit_size: usize = 1_000, SOME;
        /// Durable publications that may wait for a commit; more are refused with error 111.
        own commit_queue: usize = 65_536, SOME;
    }
}

settings! {
    /// The database of what must not be lost.
    pub struct PrimarySettings {
        /// The database of what must not be lost: `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE` with TLS
        /// unless it is on this machine or says `?sslmode=disable`. PostgreSQL is opened in any case, for the bans;
        /// SQLite when something needs it: a namespace with `durable`, a scope with `inbox_size`, `store.directory`,
        /// `security.use_primary`, or `user_status.use_primary`.
        own url: String = "sqlite:data/primary.db", ValueKind::Secret;
        /// Authorities that PostgreSQL is trusted by, besides the system's: PEM, base64 of it, or the path of a file.
        own tls_ca: String = "";
        /// How long PostgreSQL may take to answer; then what was asked for fails (4010), and the connection is made
        /// anew.
        own timeout: Duration = Duration::from_secs(10);
        /// Reads from the primary database at a time.
        own pool_size: usize = 4, ValueKind::Integer(1, 64);
        /// Reads from the primary database that may wait for their turn; more are refused with error 111, or 4010 where
        /// they are for a channel's history.
        own read_queue: usize = 65_536, SOME;
    }
}

impl PrimarySettings {
    /// Whether several nodes may share it: it is PostgreSQL.
    pub fn is_shared(&self) -> bool {
        self.url.starts_with("postgres://") || self.url.starts_with("postgresql://")
    }
}

settings! {
    /// The database of statistics: large, and it may be lost.
    pub struct StatsSettings {
        /// Statistics: connections, audiences, traffic, and events that clients report (`stats.track`). Losing them
        /// stops nothing.
        own enabled: bool = false;
        /// The database of statistics, as `store.primary.url`; never the same file.
        own url: String = "sqlite:data/stats.db", ValueKind::Secret;
        /// As `store.primary.tls_ca`.
        own tls_ca: String = "";
        /// How long the PostgreSQL of the statistics may take to answer.
        own timeout: Duration = Duration::from_secs(30);
        /// Questions about statistics that are answered at a time.
        own pool_size: usize = 2, ValueKind::Integer(1, 64);
        /// Rows of statistics that may wait to be written; more are dropped and counted.
        own queue_size: usize = 131_072, SOME;
        /// How long statistics are kept; in PostgreSQL by whole days.
        own retention: Duration = Duration::from_hours(720);
        /// Events that one connection may report in a second; more are refused with error 111. 0 = none may be
        /// reported.
        own track_rate: u32 = 10;
        /// Largest properties of an event that a client reports, bytes of JSON.
        own track_size: usize = 1_024, SOME;
    }
}
