//! The options, inputs and reports of an outbox reader.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::watch;
use touchline_config::TableName;

/// The time limit for any PostgreSQL statement, and for connecting.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The table and how it is read.
pub struct OutboxOptions {
    /// The name of the consumer, which is a part of its lock keys.
    pub name: String,
    /// The address of the database.
    pub dsn: String,
    /// The address of the database for notifications. Empty = `dsn`.
    pub notification_dsn: String,
    /// The TLS configuration, with the name that the server's certificate must have (empty = the host). `None` = as
    /// `dsn` says.
    pub tls: Option<(ClientConfig, String)>,
    /// The table that is read.
    pub table: TableName,
    /// The table for rows that cannot be executed.
    pub dead_table: TableName,
    /// The number of partitions, which are numbered from 0 on.
    pub partitions: u32,
    /// The maximum number of rows in one transaction, without the rows kept by the previous one.
    pub select_limit: u32,
    /// The interval between two checks of an empty partition.
    pub poll_interval: Duration,
    /// The channel for `NOTIFY`. Empty = no notifications are used.
    pub notification_channel: String,
    /// True if the lock is only tried. False = the reader waits for the lock.
    pub tries_lock: bool,
}

/// A row of the outbox table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// The id of the row, which determines the order.
    pub id: i64,
    /// The method of the command. `None` = the column is NULL.
    pub method: Option<String>,
    /// The payload, JSON. `None` = it is NULL, or exceeds the maximum size.
    pub payload: Option<String>,
    /// Distinguishes the row from any other row that had or will have the same id. It consists of its table, the file
    /// of that table, and the transaction that wrote it.
    pub incarnation: String,
}

/// The proof that rows belong to this node: the transaction that holds the lock of their partition.
#[derive(Debug, Clone)]
pub struct RowClaim {
    /// The name of the table for SQL, with its schema.
    pub(crate) table: String,
    /// The process of the database that holds the lock.
    pub(crate) backend: i32,
    /// The number of the lock.
    pub(crate) lock: i64,
}

/// Rows of one partition, in their order.
pub struct ClaimedRows {
    /// The number of the partition.
    pub partition: u32,
    /// The rows to execute.
    pub rows: Vec<OutboxRow>,
    /// The proof that the rows belong to this node until they are answered.
    pub claim: RowClaim,
}

/// The outcome of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowOutcome {
    /// The row was executed and may be deleted.
    Done,
    /// The row was executed and deleted by [`crate::Store::append_rows`], by this node or another one.
    Gone,
    /// The row can never be executed. It moves to the table of dead rows, with this reason.
    Failed(String),
    /// The row stays, because it or an earlier row must be tried again.
    Kept,
}

/// The outcome of rows that were passed to the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandledRows {
    /// The outcome of each row, in the order of the rows.
    pub outcomes: Vec<RowOutcome>,
    /// How long until the first kept row is due. `None` = none of them has failed. The partition is checked earlier
    /// when other rows arrive.
    pub pause: Option<Duration>,
}

/// Measurements of a whole table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutboxLag {
    /// The number of waiting rows, counted up to [`COUNTED_MAX`].
    pub rows: u64,
    /// How long the oldest row has waited, by its `created_at`. Zero = no row waits, or the table does not have this
    /// column.
    pub oldest: Duration,
    /// The number of rows in partitions that no node reads, counted up to [`COUNTED_MAX`].
    pub unread: u64,
}

/// The maximum number of rows that are kept because they or earlier rows must be tried again, while later rows of other
/// channels are executed. Each transaction reads them again.
pub const LOOK_AHEAD_MAX: usize = 10_000;

/// The maximum number of rows that are counted. A larger table cannot be counted every few seconds.
pub const COUNTED_MAX: i64 = 100_000;

/// A report of an outbox reader.
#[derive(Debug)]
pub enum OutboxReport {
    /// A partition (`Some`) or the watcher of the table (`None`) could not be served. The text contains neither the
    /// user nor the password.
    Failing(Option<u32>, String),
    /// A partition (`Some`) or the watcher (`None`) was served without a failure. Single rows may still be tried again.
    Working(Option<u32>),
    /// A partition has no row for this node. `true` = this node holds it, and it is empty.
    Idle(u32, bool),
    /// Rows that could not be executed were put aside. `false` = they are lost, because there is no table for them to
    /// which this user may write.
    PutAside(bool),
    /// New measurements of the table.
    Lag(OutboxLag),
    /// A notification arrived that does not name a partition.
    StrangeNotification,
    /// A pooler shares the listening connection with other clients, so notifications do not arrive.
    NoNotifications,
    /// The table for dead rows cannot be created or written to, for this reason.
    NoDeadTable(String),
}

/// The future that [`RowHandler::handle`] returns.
pub type RowsHandled<'a> = Pin<Box<dyn Future<Output = HandledRows> + Send + 'a>>;

/// Executes the rows of an outbox.
pub trait RowHandler: Send + Sync {
    /// Executes rows. Rows that were kept are passed again, before the others, and must not be tried before they are
    /// due. The future is dropped if this node loses the partition.
    fn handle(&self, rows: ClaimedRows) -> RowsHandled<'_>;

    /// How long to wait after this number of failures before the next attempt.
    fn delay(&self, failures: u32) -> Duration;

    /// Receives a report.
    fn report(&self, report: OutboxReport);
}

/// Waits until a stop is requested.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender also means a stop.
    let _ = stop.wait_for(|is_over| *is_over).await;
}
