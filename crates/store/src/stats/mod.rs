//! The stats database: connections, audiences and traffic by the minute, and events that clients report. It is large,
//! and its loss is acceptable.
//!
//! [`Stats::record`] never blocks: rows go to the database in batches, and rows that the queue has no room for are
//! dropped and counted.

mod curve;
mod postgres;
mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use touchline_protocol::stream::ChannelName;

pub use curve::{Curve, Point};

use crate::postgres::PostgresAddress;
use crate::sketch::Sketch;
use crate::{DatabaseUrl, OpenError, StoreRefusal};

/// Rows in one batch, at most.
const BATCH: usize = 10_000;
/// How long the first row of a batch waits for more.
const DELAY: Duration = Duration::from_millis(200);
/// Between two removals of old rows in SQLite.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// Minutes of a day.
const DAY: u64 = 1_440;

/// How to open the stats database.
#[derive(Clone)]
pub struct StatsOptions {
    /// Address of the database.
    pub url: DatabaseUrl,
    /// As in [`crate::PrimaryOptions::tls_ca`].
    pub tls_ca: String,
    /// How long PostgreSQL may take for a request.
    pub timeout: Duration,
    /// Whether to bring the schema up to date at the start.
    pub migrates: bool,
    /// Number of rows that may wait for a batch; more are dropped.
    pub queue_size: usize,
    /// Number of queries at a time.
    pub pool_size: usize,
    /// How long rows are kept; at least a minute. PostgreSQL removes whole days.
    pub retention: Duration,
}

/// A row of the statistics.
#[derive(Debug)]
pub enum Row {
    /// A connection has ended.
    Connection {
        /// When the connection began, Unix milliseconds.
        opened_ms: u64,
        /// When the connection ended, Unix milliseconds.
        closed_ms: u64,
        /// The transport of the connection.
        transport: &'static str,
        /// The kind of the client program.
        agent: &'static str,
        /// Why the connection ended: a WebSocket close code; 1006 = it broke off.
        code: u16,
    },
    /// An event that a client reports.
    Event {
        /// When it happened, Unix milliseconds.
        time_ms: u64,
        /// The name of the event.
        name: Box<str>,
        /// The id of the user; empty = anonymous.
        user: Box<str>,
        /// Properties of the event, a JSON object.
        props: Bytes,
    },
    /// Subscribers of a channel in a minute, as one part of the cluster counts them: the parts are added up. If one
    /// part sends several rows for a minute, the first one counts.
    Audience {
        /// Minutes since 1970.
        minute: u64,
        /// The channel.
        channel: ChannelName,
        /// The unique name of the part.
        part: Arc<str>,
        /// Number of subscribers at the end of the minute.
        current: u64,
        /// The most subscribers at a time within the minute.
        peak: u64,
        /// The different users.
        users: Sketch,
    },
    /// The traffic of a namespace in a minute.
    Traffic {
        /// Minutes since 1970.
        minute: u64,
        /// The namespace; empty = channels without one.
        namespace: Box<str>,
        /// As in an audience.
        part: Arc<str>,
        /// Number of publications accepted.
        publications: u64,
        /// Number of publications delivered to connections.
        deliveries: u64,
    },
}

/// A range of time in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first second.
    pub from_s: u64,
    /// The first second after the range.
    pub to_s: u64,
}

impl Range {
    /// The minutes that begin within the range: the first, and the one after the last.
    fn minutes(self) -> (i64, i64) {
        (self.from_s.div_ceil(60) as i64, self.to_s.div_ceil(60) as i64)
    }
}

/// A query of the statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsQuery {
    /// The audience of a channel.
    Audience {
        /// The channel.
        channel: String,
        /// The time that the curve covers.
        range: Range,
        /// Seconds of a point, a multiple of 60.
        step_s: u64,
    },
    /// The items with the highest counts.
    Top {
        /// The kind of the items.
        rank_by: RankBy,
        /// The time that is counted.
        range: Range,
        /// Number of items, at most.
        limit: usize,
    },
    /// Events by time.
    Events {
        /// The name of the event; empty = events of any name.
        name: String,
        /// The property by whose values events are counted separately; empty = together.
        by: String,
        /// The time that is counted.
        range: Range,
        /// Seconds of a point.
        step_s: u64,
        /// Number of rows in the result, at most.
        limit: usize,
    },
}

/// The kind of the items of a ranking, and the two figures of each item; the first one decides the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankBy {
    /// Channels: their greatest audience, and the sum of their audiences at the end of each minute.
    Channels,
    /// Namespaces: deliveries and publications.
    Namespaces,
    /// Events: how many, and of how many users.
    Events,
    /// Transports: connections, and how long they lasted on average (milliseconds).
    Transports,
    /// Kinds of programs: the same.
    Agents,
    /// Reasons why connections ended: the same.
    Codes,
}

/// An item of a ranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedItem {
    /// The item's name.
    pub name: String,
    /// The two figures that [`RankBy`] describes.
    pub figures: [u64; 2],
}

/// Events of one kind within one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    /// When the step begins, Unix seconds.
    pub time_s: u64,
    /// The name of the event.
    pub name: String,
    /// The value of the query's property, as JSON; empty = the events do not have the property.
    pub value: String,
    /// Number of events.
    pub count: u64,
}

/// The result of a query, of the query's kind.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsResult {
    /// Result of [`StatsQuery::Audience`].
    Audience(Curve),
    /// Result of [`StatsQuery::Top`], the highest first.
    Top(Vec<RankedItem>),
    /// Result of [`StatsQuery::Events`]: by time, event and value.
    Events(Vec<EventCount>),
}

/// Takes the result of a query.
pub type OnStatsResult = Box<dyn FnOnce(Result<StatsResult, StoreRefusal>) + Send + Sync>;

/// Counters of the statistics.
#[derive(Debug, Default)]
pub struct StatsMetrics {
    /// Rows written.
    pub written: AtomicU64,
    /// Rows dropped, because the queue had no room or the database failed.
    pub dropped: AtomicU64,
    /// Rows that wait for a batch.
    pub waiting: AtomicU64,
    /// Batches that failed.
    pub failures: AtomicU64,
    /// Queries that wait or are under way.
    pub reading: AtomicU64,
    is_failing: AtomicBool,
}

impl StatsMetrics {
    /// Whether the last batch was written.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing.load(Relaxed)
    }

    /// Counts the rows of a batch that was written, or that failed.
    fn finish(&self, rows: usize, failure: Option<&dyn std::fmt::Display>) {
        self.waiting.fetch_sub(rows as u64, Relaxed);
        match failure {
            None => {
                self.written.fetch_add(rows as u64, Relaxed);
                if self.is_failing.swap(false, Relaxed) {
                    tracing::info!("the stats database works again");
                }
            }
            Some(error) => {
                self.failures.fetch_add(1, Relaxed);
                self.dropped.fetch_add(rows as u64, Relaxed);
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::warn!(%error, "the stats database fails: rows are dropped until it works again");
                }
            }
        }
    }

    /// Counts a row that the database refuses for its values.
    fn refuse(&self, error: &dyn std::fmt::Display) {
        tracing::debug!(%error, "the stats database refuses a row");
        self.waiting.fetch_sub(1, Relaxed);
        self.dropped.fetch_add(1, Relaxed);
    }
}

/// A command to a writer.
enum StatsCommand {
    Row(Row),
    Close,
}

/// A query that waits for a reader.
struct PendingQuery {
    query: StatsQuery,
    done: OnStatsResult,
}

/// Number of queries that may wait or be under way.
const QUERIES_MAX: u64 = 256;

/// A handle of the stats database.
pub struct Stats {
    backend: StatsBackend,
    metrics: Arc<StatsMetrics>,
    queue_size: u64,
}

enum StatsBackend {
    Sqlite(sqlite::SqliteStats),
    Postgres(postgres::PostgresStats),
}

impl Stats {
    /// Opens the database, and brings its schema up to date if the settings want that.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(settings: &StatsOptions) -> Result<Self, OpenError> {
        let metrics = Arc::<StatsMetrics>::default();
        let backend = match &settings.url {
            DatabaseUrl::Sqlite(path) => {
                StatsBackend::Sqlite(sqlite::SqliteStats::open(path, settings, Arc::clone(&metrics))?)
            }
            DatabaseUrl::Postgres(url) => {
                let address = PostgresAddress::new(url, &settings.tls_ca, settings.timeout)?;
                StatsBackend::Postgres(postgres::PostgresStats::open(&address, settings, Arc::clone(&metrics))?)
            }
        };
        Ok(Stats { backend, metrics, queue_size: settings.queue_size as u64 })
    }

    /// Queues a row, or drops it if the queue has no room.
    pub fn record(&self, row: Row) {
        if self.metrics.waiting.fetch_add(1, Relaxed) >= self.queue_size {
            self.metrics.waiting.fetch_sub(1, Relaxed);
            self.metrics.dropped.fetch_add(1, Relaxed);
            return;
        }
        match &self.backend {
            StatsBackend::Sqlite(stats) => stats.send(StatsCommand::Row(row)),
            StatsBackend::Postgres(stats) => stats.send(StatsCommand::Row(row)),
        }
    }

    /// Queues a query; `done` takes its result.
    pub fn query(&self, query: StatsQuery, done: OnStatsResult) {
        if self.metrics.reading.fetch_add(1, Relaxed) >= QUERIES_MAX {
            self.metrics.reading.fetch_sub(1, Relaxed);
            return done(Err(StoreRefusal::QueueFull));
        }
        let pending = PendingQuery { query, done };
        match &self.backend {
            StatsBackend::Sqlite(stats) => stats.ask(pending),
            StatsBackend::Postgres(stats) => stats.ask(pending),
        }
    }

    /// The counters of the statistics.
    pub fn metrics(&self) -> &Arc<StatsMetrics> {
        &self.metrics
    }

    /// Writes the waiting rows and closes the database. Blocks until that is done.
    pub fn close(&self) {
        match &self.backend {
            StatsBackend::Sqlite(stats) => stats.close(),
            StatsBackend::Postgres(stats) => stats.close(),
        }
    }
}
