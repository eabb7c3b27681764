//! What is big and may be lost: who was connected and how, audiences by the minute, traffic, and events that clients
//! report.
//!
//! [`Stats::record`] never waits: rows go to the database in batches, and those that there is no room for are dropped
//! and counted.

mod curve;
mod postgres;
mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use touchline_protocol::stream::ChannelName;

pub use curve::{Curve, Point};

use crate::postgres::Address;
use crate::sketch::Sketch;
use crate::{OpenError, StoreRefusal, Url};

/// Rows in one batch, at most.
const BATCH: usize = 10_000;
/// How long the first row of a batch waits for more.
const DELAY: Duration = Duration::from_millis(200);
/// Between two looks at what is too old.
const REST: Duration = Duration::from_secs(1);
/// Minutes of a day.
const DAY: u64 = 1_440;

/// How to open the statistics.
#[derive(Clone)]
pub struct StatsSettings {
    /// Where they are.
    pub url: Url,
    /// As in [`crate::Settings::tls_ca`].
    pub tls_ca: String,
    /// How long PostgreSQL may take to answer.
    pub timeout: Duration,
    /// Bring the schema up to date at the start.
    pub migrates: bool,
    /// Rows that may wait for a batch; more are dropped.
    pub queue_size: usize,
    /// Questions answered at a time.
    pub pool_size: usize,
    /// How long rows are kept. Below a minute: a minute. In PostgreSQL whole days go.
    pub retention: Duration,
}

/// Something that is remembered.
#[derive(Debug)]
pub enum Row {
    /// A connection has ended.
    Connection {
        /// When it began, Unix milliseconds.
        opened_ms: u64,
        /// When it ended, Unix milliseconds.
        closed_ms: u64,
        /// Over what.
        transport: &'static str,
        /// What kind of program it came from.
        agent: &'static str,
        /// Why it ended, as on a WebSocket; 1006 = it broke off.
        code: u16,
    },
    /// A client reports something.
    Event {
        /// When, Unix milliseconds.
        time_ms: u64,
        /// What.
        name: Box<str>,
        /// Who; empty = anonymous.
        user: Box<str>,
        /// A JSON object.
        props: Bytes,
    },
    /// Subscribers of a channel in a minute, as one part of the cluster has seen them: the parts are added up. Of one
    /// part the first row counts.
    Audience {
        /// Minutes since 1970.
        minute: u64,
        /// The channel.
        channel: ChannelName,
        /// The part; no two have the same name.
        part: Arc<str>,
        /// At the minute's end.
        current: u64,
        /// At most.
        peak: u64,
        /// Different users.
        users: Sketch,
    },
    /// What went through a namespace in a minute.
    Traffic {
        /// Minutes since 1970.
        minute: u64,
        /// The namespace; empty = channels without one.
        namespace: Box<str>,
        /// As in an audience.
        part: Arc<str>,
        /// Publications accepted.
        publications: u64,
        /// Publications handed to connections.
        deliveries: u64,
    },
}

/// A time: from a second on, before another (Unix).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first second.
    pub from_s: u64,
    /// The first one that is not meant any more.
    pub to_s: u64,
}

impl Range {
    /// Minutes that begin within it: the first, and the one behind the last.
    fn minutes(self) -> (i64, i64) {
        (self.from_s.div_ceil(60) as i64, self.to_s.div_ceil(60) as i64)
    }
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsQuery {
    /// The audience of a channel.
    Audience {
        /// The channel.
        channel: String,
        /// When.
        range: Range,
        /// Seconds of a point: a number of minutes.
        step_s: u64,
    },
    /// What there was most of.
    Top {
        /// What.
        rank_by: RankBy,
        /// When.
        range: Range,
        /// At most so many.
        limit: usize,
    },
    /// Events by time.
    Events {
        /// This one only; empty = any.
        name: String,
        /// Apart by the value of this property; empty = together.
        by: String,
        /// When.
        range: Range,
        /// Seconds of a point.
        step_s: u64,
        /// Rows of the answer, at most.
        limit: usize,
    },
}

/// What tops are of, and the two figures of each; the first decides.
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

/// One of a top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedItem {
    /// Its name.
    pub name: String,
    /// As [`SchemaConnection`] tells.
    pub figures: [u64; 2],
}

/// Events of one kind within one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    /// When the step begins, Unix seconds.
    pub time_s: u64,
    /// The event.
    pub name: String,
    /// The value of the property that was asked for, as JSON; empty = it has none.
    pub value: String,
    /// How many.
    pub count: u64,
}

/// An answer, of the question's kind.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsResult {
    /// To [`StatsQuery::Audience`].
    Audience(Curve),
    /// To [`StatsQuery::Top`].
    Top(Vec<RankedItem>),
    /// To [`StatsQuery::Events`]: by time, event and value.
    Events(Vec<EventCount>),
}

/// Takes an answer.
pub type OnStatsResult = Box<dyn FnOnce(Result<StatsResult, StoreRefusal>) + Send + Sync>;

/// What was done.
#[derive(Debug, Default)]
pub struct StatsMetrics {
    /// Rows written.
    pub written: AtomicU64,
    /// Rows dropped, because there was no room or the database failed.
    pub dropped: AtomicU64,
    /// Rows that wait.
    pub waiting: AtomicU64,
    /// Batches that failed.
    pub failures: AtomicU64,
    /// Questions that wait or are being answered.
    pub reading: AtomicU64,
    is_failing: AtomicBool,
}

impl StatsMetrics {
    /// Whether the last batch was written.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing.load(Relaxed)
    }

    fn took(&self, rows: usize, failure: Option<&dyn std::fmt::Display>) {
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
                    tracing::warn!(%error, "the stats database fails: what there is to remember is dropped until it works again");
                }
            }
        }
    }
}

impl StatsMetrics {
    /// One row can't be written, by what it holds.
    fn refused(&self, error: &dyn std::fmt::Display) {
        tracing::debug!(%error, "the stats database refuses a row");
        self.waiting.fetch_sub(1, Relaxed);
        self.dropped.fetch_add(1, Relaxed);
    }
}

/// What a writer is told.
enum StatsCommand {
    Row(Row),
    Close,
}

/// A question on its way.
struct PendingQuery {
    question: StatsQuery,
    done: OnStatsResult,
}

/// Questions that may wait.
const QUESTIONS_MAX: u64 = 256;

/// The way to the statistics.
pub struct Stats {
    way: StatsBackend,
    figures: Arc<StatsMetrics>,
    queue_size: u64,
}

enum StatsBackend {
    Sqlite(sqlite::Stats),
    Postgres(postgres::Stats),
}

impl Stats {
    /// Opens the database, and brings its schema up to date if the settings want that.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(settings: &StatsSettings) -> Result<Self, OpenError> {
        let figures = Arc::<StatsMetrics>::default();
        let way = match &settings.url {
            Url::Sqlite(path) => StatsBackend::Sqlite(sqlite::Stats::open(path, settings, Arc::clone(&figures))?),
            Url::Postgres(url) => {
                let address = Address::new(url, &settings.tls_ca, settings.timeout)?;
                StatsBackend::Postgres(postgres::Stats::open(&address, settings, Arc::clone(&figures))?)
            }
        };
        Ok(Stats { way, figures, queue_size: settings.queue_size as u64 })
    }

    /// Remembers something, if there is room.
    pub fn record(&self, row: Row) {
        if self.figures.waiting.fetch_add(1, Relaxed) >= self.queue_size {
            self.figures.waiting.fetch_sub(1, Relaxed);
            self.figures.dropped.fetch_add(1, Relaxed);
            return;
        }
        match &self.way {
            StatsBackend::Sqlite(stats) => stats.order(StatsCommand::Row(row)),
            StatsBackend::Postgres(stats) => stats.order(StatsCommand::Row(row)),
        }
    }

    /// Asks; what comes of it is told to `done`.
    pub fn ask(&self, question: StatsQuery, done: OnStatsResult) {
        if self.figures.reading.fetch_add(1, Relaxed) >= QUESTIONS_MAX {
            self.figures.reading.fetch_sub(1, Relaxed);
            return done(Err(StoreRefusal::QueueFull));
        }
        let asked = PendingQuery { question, done };
        match &self.way {
            StatsBackend::Sqlite(stats) => stats.ask(asked),
            StatsBackend::Postgres(stats) => stats.ask(asked),
        }
    }

    /// What was done.
    pub fn figures(&self) -> &Arc<StatsMetrics> {
        &self.figures
    }

    /// Writes what waits, and closes the database. Blocks until that is done.
    pub fn close(&self) {
        match &self.way {
            StatsBackend::Sqlite(stats) => stats.close(),
            StatsBackend::Postgres(stats) => stats.close(),
        }
    }
}
