//! The stats database: connections, audiences and traffic by the minute, and events that clients report. It is large,
//! and its loss is acceptable.
//!
//! [`Stats::record`] never blocks: rows go to the database in batches, and rows that the queue has no room for are
//! dropped and counted.

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
pub use types::{EventCount, OnStatsResult, Range, RankBy, RankedItem, Row, StatsOptions, StatsQuery, StatsResult};

use self::queue::{PendingQuery, StatsCommand};
use crate::errors::OpenError;
use crate::postgres::PostgresAddress;
use crate::refusal::StoreRefusal;
use crate::settings::DatabaseUrl;

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
                let address = PostgresAddress::new(url, &settings.tls_ca, settings.stats.timeout)?;
                StatsBackend::Postgres(postgres::PostgresStats::open(&address, settings, Arc::clone(&metrics))?)
            }
        };
        Ok(Stats { backend, metrics, queue_size: settings.stats.queue_size as u64 })
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
