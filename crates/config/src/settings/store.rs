//! Settings of the databases.

use std::time::Duration;

use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

/// A number of bytes on a disk.
const DISK: ValueKind = ValueKind::Integer(0, 1 << 60);

settings! {
    /// Settings of the databases.
    pub struct StoreSettings {
        /// The primary database, for data that must not be lost. It is opened if a setting needs it.
        section primary: PrimarySettings = PrimarySettings::default();
        /// The database of statistics. It can be large, and it may be lost.
        section stats: StatsSettings = StatsSettings::default();
        /// The directory of channels is available: `channel_set`, `channel_get`, `channel_remove`, `channels_search`,
        /// `channels_similar`. It is in the primary database (`store.primary`), which is opened for it.
        own directory: bool = false;
        /// The node migrates the database schemas at its start. Off: run `touchline migrate up`.
        own migrate: bool = true;
        /// How long a batch of durable publications waits for more before it is committed. At 0s, the publications that
        /// arrive during a commit are the next batch.
        own commit_delay: Duration = Duration::ZERO;
        /// Maximum number of durable publications in one commit.
        own commit_size: usize = 1_000, SOME;
        /// Durable publications that may wait for a commit. Further ones are refused with error 111.
        own commit_queue: usize = 65_536, SOME;
    }
}

settings! {
    /// The primary database, for data that must not be lost.
    pub struct PrimarySettings {
        /// Address of the primary database, for data that must not be lost: `sqlite:PATH`, or
        /// `postgres://USER:PASSWORD@HOST/DATABASE`. PostgreSQL uses TLS unless it is on this machine or the address
        /// says `?sslmode=disable`. PostgreSQL is always opened, for the bans. SQLite is opened if a setting needs it:
        /// a namespace with `durable`, a scope with `inbox_size`, `store.directory`, `security.use_primary`, or
        /// `user_status.use_primary`.
        own url: String = "sqlite:data/primary.db", ValueKind::Secret;
        /// CA certificates that verify the PostgreSQL server, in addition to the system's: PEM, base64 of it, or the
        /// path of a file.
        own tls_ca: String = "";
        /// How long PostgreSQL may take to answer. After that the request fails (4010), and the node opens a new
        /// connection.
        own timeout: Duration = Duration::from_secs(10);
        /// How many reads from the primary database may run at the same time.
        own pool_size: usize = 4, ValueKind::Integer(1, 64);
        /// Reads from the primary database that may wait for their turn. Further reads are refused with error 111, or
        /// with 4010 if they are for the history of a channel.
        own read_queue: usize = 65_536, SOME;
        /// Maximum size of the primary database, bytes. Beyond it, writes that would make the database larger are
        /// refused with error 111; deletions are still possible. Nodes that share one PostgreSQL share its size. 0: no
        /// limit.
        own max_size: u64 = 0, DISK;
        /// Bytes that must stay free on the file system of an SQLite primary. With less free space, writes that would
        /// make the database larger are refused with error 111. 0: free space is not checked.
        own disk_reserve: u64 = 67_108_864, DISK;
    }
}

impl PrimarySettings {
    /// Whether several nodes may share the database, which is so for PostgreSQL.
    pub fn is_shared(&self) -> bool {
        self.url.starts_with("postgres://") || self.url.starts_with("postgresql://")
    }
}

settings! {
    /// The database of statistics. It can be large, and it may be lost.
    pub struct StatsSettings {
        /// The node keeps statistics: connections, audiences, traffic, and events that clients report (`stats.track`).
        /// The node keeps working if they are lost.
        own enabled: bool = false;
        /// Address of the database of statistics, written as `store.primary.url`. It must not be the same file.
        own url: String = "sqlite:data/stats.db", ValueKind::Secret;
        /// CA certificates that verify the PostgreSQL server of the statistics, written as `store.primary.tls_ca`.
        own tls_ca: String = "";
        /// How long the PostgreSQL server of the statistics may take to answer.
        own timeout: Duration = Duration::from_secs(30);
        /// Statistics queries that run at the same time.
        own pool_size: usize = 2, ValueKind::Integer(1, 64);
        /// Rows of statistics that may wait to be written. Further rows are dropped and counted.
        own queue_size: usize = 131_072, SOME;
        /// How long statistics are kept. PostgreSQL keeps whole days.
        own retention: Duration = Duration::from_hours(720);
        /// Events that one connection may report per second. Further events are refused with error 111. 0: clients may
        /// not report events.
        own track_rate: u32 = 10;
        /// Maximum size of the properties of an event that a client reports, bytes of JSON.
        own track_size: usize = 1_024, SOME;
    }
}
