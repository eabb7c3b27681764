//! The stats database: connections, audiences and traffic for each minute, and events that clients report. It is large,
//! and its loss is acceptable.
//!
//! [`Stats::record`] never blocks. Rows are written in batches, and rows beyond the queue's capacity are dropped and
//! counted.

mod curve;
mod metrics;
mod postgres;
mod queue;
mod sqlite;
mod types;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub use curve::{Curve, Point};
pub use metrics::StatsMetrics;
pub use types::{
    ErasedEvents, EventCount, EventErasure, OnErased, OnStatsResult, Range, RankBy, RankedItem, Row, StatsOptions,
    StatsQuery, StatsResult,
};

use self::queue::{PendingQuery, StatsCommand, StatsTask};
use crate::batch::OnDone;
use crate::errors::OpenError;
use crate::postgres::PostgresAddress;
use crate::refusal::StoreRefusal;
use crate::settings::DatabaseUrl;

/// The maximum number of queries that wait or are in progress.
const QUERIES_MAX: u64 = 256;

/// A callback for the result of a writer's task.
type OnTaskDone<T> = Box<dyn FnOnce(Result<T, StoreRefusal>) + Send>;

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
    /// Opens the database. If the settings ask for it, the schema is migrated first.
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
                let address = PostgresAddress::new(url, &settings.tls_ca, settings.stats.timeout)?;
                StatsBackend::Postgres(postgres::PostgresStats::open(&address, settings, Arc::clone(&metrics))?)
            }
        };
        Ok(Stats { backend, metrics, queue_size: settings.stats.queue_size as u64 })
    }

    /// Queues a row, or drops it if the queue is full.
    pub fn record(&self, row: Row) {
        if self.metrics.waiting.fetch_add(1, Relaxed) >= self.queue_size {
            self.metrics.waiting.fetch_sub(1, Relaxed);
            self.metrics.dropped.fetch_add(1, Relaxed);
            return;
        }
        self.send(StatsCommand::Row(row));
    }

    fn send(&self, command: StatsCommand) {
        match &self.backend {
            StatsBackend::Sqlite(stats) => stats.send(command),
            StatsBackend::Postgres(stats) => stats.send(command),
        }
    }

    /// Calls `done` when all earlier recorded rows are written, or dropped because the database fails. Refused with
    /// [`StoreRefusal::QueueFull`] while too many queries wait.
    pub fn settle(&self, done: OnDone) {
        if let Some(done) = self.counted(done) {
            self.send(StatsCommand::Task(StatsTask::Settle(done)));
        }
    }

    /// Deletes events of a user in one step, after the rows that this node recorded earlier. Refused like
    /// [`Stats::settle`]. [`StoreRefusal::Failed`] means that nothing was deleted, and the step can be repeated.
    pub fn erase(&self, erasure: EventErasure, done: OnErased) {
        if let Some(done) = self.counted(done) {
            self.send(StatsCommand::Task(StatsTask::Erase(erasure, done)));
        }
    }

    /// Counts a task as a query until it is done. `None` = too many queries wait, and the task is refused.
    fn counted<T: 'static>(&self, done: OnTaskDone<T>) -> Option<OnTaskDone<T>> {
        let metrics = Arc::clone(&self.metrics);
        if metrics.reading.fetch_add(1, Relaxed) >= QUERIES_MAX {
            metrics.reading.fetch_sub(1, Relaxed);
            done(Err(StoreRefusal::QueueFull));
            return None;
        }
        Some(Box::new(move |result| {
            metrics.reading.fetch_sub(1, Relaxed);
            done(result);
        }))
    }

    /// Queues a query. `done` receives its result.
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
