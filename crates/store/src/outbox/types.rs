//! What an outbox is told, hands over and reports.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::watch;
use touchline_config::TableName;

/// How long PostgreSQL may take for any statement, and to accept a connection.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The table, and how it is read.
pub struct OutboxOptions {
    /// The consumer's name, a part of the key of its locks.
    pub name: String,
    /// Address of the database.
    pub dsn: String,
    /// Address of the database for notifications; empty = `dsn`.
    pub notification_dsn: String,
    /// TLS to the database, with the name that its certificate must have (empty = the host); None = as `dsn` says.
    pub tls: Option<(ClientConfig, String)>,
    /// The table.
    pub table: TableName,
    /// The table for rows that can't be carried out.
    pub dead_table: TableName,
    /// Partitions, from 0 on.
    pub partitions: u32,
    /// Most rows of one transaction, without those that are kept from the one before.
    pub select_limit: u32,
    /// Between two looks at a partition in which nothing was found.
    pub poll_interval: Duration,
    /// The channel of `NOTIFY`; empty = none.
    pub notification_channel: String,
    /// Whether the lock is tried; else it is waited for.
    pub tries_lock: bool,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its id, which gives the order.
    pub id: i64,
    /// The method; None = it is NULL.
    pub method: Option<String>,
    /// The payload, JSON; None = it is NULL, or larger than a payload may be.
    pub payload: Option<String>,
    /// Tells it from any other row that had, or will have, the same id: its table, the file of that table, and the
    /// transaction that wrote it.
    pub incarnation: String,
}

/// Proves that rows belong to this node: the transaction that holds the lock of their partition.
#[derive(Debug, Clone)]
pub struct RowClaim {
    /// The table as it stands in a statement, with its schema.
    pub(crate) table: String,
    /// The process of the database that holds the lock.
    pub(crate) backend: i32,
    /// The lock.
    pub(crate) lock: i64,
}

/// Rows of one partition, in their order.
pub struct ClaimedRows {
    /// The partition.
    pub partition: u32,
    /// The rows.
    pub rows: Vec<OutboxRow>,
    /// Proves that they belong to this node until they are answered.
    pub claim: RowClaim,
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowOutcome {
    /// It was carried out, and may be deleted.
    Done,
    /// It was carried out and deleted by [`crate::Store::append_rows`], or another node has done so.
    Gone,
    /// It can't be carried out, ever: it moves into the table of dead rows.
    Failed(String),
    /// It stays: it, or one before it, has to be tried again.
    Kept,
}

/// What became of rows that were handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandledRows {
    /// An outcome for each.
    pub outcomes: Vec<RowOutcome>,
    /// How long none of those that are kept is due; None = none of them has failed. A partition is looked at earlier
    /// when other rows come.
    pub pause: Option<Duration>,
}

/// What is known of a table as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutboxLag {
    /// Rows that wait, counted up to [`COUNTED_MAX`].
    pub rows: u64,
    /// How long the oldest has waited, by its `created_at`; zero = none waits, or the table has no such column.
    pub oldest: Duration,
    /// Rows in partitions that nobody reads, counted up to [`COUNTED_MAX`].
    pub unread: u64,
}

/// Rows that may be kept, because they or others before them have to be tried again, while those behind them in other
/// channels are carried out. Each transaction reads them again.
pub const LOOK_AHEAD_MAX: usize = 10_000;

/// Rows that are counted: a table may hold more than a count could go through every few seconds.
pub const COUNTED_MAX: i64 = 100_000;

/// What an outbox reports.
#[derive(Debug)]
pub enum OutboxReport {
    /// A partition, or with None the watch over the table, could not be served. The text has neither user nor password.
    Failing(Option<u32>, String),
    /// A partition, or with None the watch, was served without a failure. Single rows may have to be tried again.
    Working(Option<u32>),
    /// A partition has no row for this node; `true` = this node holds it, and it is empty.
    Idle(u32, bool),
    /// Rows that could not be carried out were put aside; `false` = there is no table for them that may be written
    /// to, so they are gone.
    PutAside(bool),
    /// What is known of the table.
    Lag(OutboxLag),
    /// A notification came that names no partition.
    StrangeNotification,
    /// A pooler gives the connection that listens to others: notifications do not come through it.
    NoNotifications,
    /// The table for dead rows can't be made or written to, and why.
    NoDeadTable(String),
}

/// The future of [`RowHandler::handle`].
pub type RowsHandled<'a> = Pin<Box<dyn Future<Output = HandledRows> + Send + 'a>>;

/// Carries rows out.
pub trait RowHandler: Send + Sync {
    /// Carries out rows. Those that were kept are handed over again, in front of others, and are not tried before they
    /// are due. It is dropped if this node loses the partition.
    fn handle(&self, rows: ClaimedRows) -> RowsHandled<'_>;

    /// How long to wait before what has failed so often is tried again.
    fn delay(&self, failures: u32) -> Duration;

    /// Takes a report.
    fn report(&self, report: OutboxReport);
}

/// Waits until a stop is asked for.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone asks for it too.
    let _ = stop.wait_for(|is_over| *is_over).await;
}
