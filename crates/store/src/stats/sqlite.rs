//! Statistics in one SQLite file: one thread writes in batches, and a few threads read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, params};
use touchline_lock::Lock;

use super::curve::{Seen, draw};
use super::metrics::StatsMetrics;
use super::queue::{BATCH, DELAY, ERASED_ROWS_MAX, PendingQuery, StatsCommand, StatsTask, TRIM_INTERVAL};
use super::types::{
    ErasedEvents, EventCount, EventErasure, Range, RankBy, RankedItem, Row, StatsOptions, StatsQuery, StatsResult,
};
use crate::clock::now_ms;
use crate::errors::OpenError;
use crate::migrate::STATS;
use crate::refusal::StoreRefusal;
use crate::sketch::Sketch;
use crate::sqlite::connection::{connect, open, thread};
use crate::sqlite::failure::refusal_of;
use crate::sqlite::queue::next;

/// The number of rows deleted from each table in one step.
const TRIM_STEP_ROWS: usize = 20_000;
/// The number of low bits of an id below its milliseconds.
const SERIAL_BITS: u32 = 20;

/// A handle of the database threads.
pub(super) struct SqliteStats {
    commands: Sender<StatsCommand>,
    /// The queue of queries. `None` once the database is closed.
    queries: Lock<Option<Sender<PendingQuery>>>,
    threads: Lock<Vec<JoinHandle<()>>>,
    /// Locked as long as the database is open.
    lock: File,
}

impl SqliteStats {
    pub(super) fn open(path: &Path, settings: &StatsOptions, metrics: Arc<StatsMetrics>) -> Result<Self, OpenError> {
        let (lock, _) = open(path, &STATS, settings.migrates)?;
        let (commands, command_receiver) = channel();
        let (queries, query_receiver) = channel();
        let query_receiver = Arc::new(Lock::new(query_receiver));
        let mut threads = Vec::new();
        for _ in 0..settings.stats.pool_size.max(1) {
            let (receiver, path_of_thread, metrics) =
                (Arc::clone(&query_receiver), path.to_owned(), Arc::clone(&metrics));
            threads.push(thread("stats-read", move || read_all(&path_of_thread, &receiver, &metrics))?);
        }
        let retention = settings.stats.retention.max(Duration::from_secs(60));
        let writer = SqliteStatsWriter { path: path.to_owned(), connection: None, metrics, retention, serial: 0 };
        threads.push(thread("stats-write", move || writer.serve(&command_receiver))?);
        Ok(SqliteStats { commands, queries: Lock::new(Some(queries)), threads: Lock::new(threads), lock })
    }

    pub(super) fn send(&self, command: StatsCommand) {
        let _ = self.commands.send(command);
    }

    pub(super) fn ask(&self, pending: PendingQuery) {
        if let Some(queries) = &*self.queries.lock() {
            let _ = queries.send(pending);
        }
    }

    pub(super) fn close(&self) {
        self.queries.lock().take();
        self.send(StatsCommand::Close);
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        let _ = self.lock.unlock();
    }
}

struct SqliteStatsWriter {
    path: PathBuf,
    /// The connection. `None` after a failure.
    connection: Option<Connection>,
    metrics: Arc<StatsMetrics>,
    retention: Duration,
    /// Makes ids within the same millisecond different.
    serial: u64,
}

impl SqliteStatsWriter {
    fn serve(mut self, command_receiver: &Receiver<StatsCommand>) {
        let mut trim_at = Instant::now();
        let mut is_over = false;
        while !is_over {
            let (mut rows, mut task) = (Vec::new(), None);
            let mut until = trim_at;
            while rows.len() < BATCH {
                match command_receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(StatsCommand::Row(row)) => {
                        if rows.is_empty() {
                            until = Instant::now() + DELAY;
                        }
                        rows.push(row);
                    }
                    Ok(StatsCommand::Task(asked)) => {
                        task = Some(asked);
                        break;
                    }
                    Err(RecvTimeoutError::Timeout) => break,
                    Ok(StatsCommand::Close) | Err(RecvTimeoutError::Disconnected) => {
                        is_over = true;
                        break;
                    }
                }
            }
            if !rows.is_empty() {
                self.write_all(&rows);
            }
            if let Some(task) = task {
                self.carry_out(task);
            }
            if Instant::now() >= trim_at {
                let has_more = self.trim().unwrap_or(false);
                trim_at = Instant::now() + if has_more { Duration::ZERO } else { TRIM_INTERVAL };
            }
        }
    }

    /// Writes rows. If a part fails because of its values, it is tried again in halves, down to single rows. Bad single
    /// rows are dropped.
    fn write_all(&mut self, rows: &[Row]) {
        // The last element is processed next.
        let mut parts = vec![rows];
        while let Some(part) = parts.pop() {
            let failure = match self.write(part) {
                Err(error) if refusal_of(&error).is_some() => {
                    if part.len() == 1 {
                        self.metrics.refuse(&error);
                    } else {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                    continue;
                }
                written => written.err(),
            };
            self.metrics.finish(part.len(), failure.as_ref().map(|failure| failure as _));
            self.connection = self.connection.take().filter(|_| failure.is_none());
        }
    }

    fn carry_out(&mut self, task: StatsTask) {
        match task {
            StatsTask::Settle(done) => done(Ok(())),
            StatsTask::Erase(erasure, done) => done(self.erase(&erasure).map_err(|error| {
                tracing::warn!(%error, "events of a user could not be deleted from the stats database");
                self.connection = None;
                StoreRefusal::Failed
            })),
        }
    }

    /// Deletes the events of a user among the next events in the order of time.
    fn erase(&mut self, erasure: &EventErasure) -> rusqlite::Result<ErasedEvents> {
        let EventErasure { user, from } = erasure;
        let transaction = self.connection()?.transaction()?;
        let last = "SELECT id FROM event WHERE id > ?1 ORDER BY id LIMIT 1 OFFSET ?2";
        let last: Option<u64> = transaction
            .prepare_cached(last)?
            .query_row(params![from, ERASED_ROWS_MAX - 1], |row| row.get(0))
            .optional()?;
        let delete = "DELETE FROM event WHERE id > ?1 AND id <= ?2 AND user = ?3";
        let count =
            transaction.prepare_cached(delete)?.execute(params![from, last.unwrap_or(i64::MAX as u64), user])?;
        transaction.commit()?;
        Ok(ErasedEvents { count: count as u64, next: last })
    }

    fn connection(&mut self) -> rusqlite::Result<&mut Connection> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => relaxed(connect(&self.path)?)?,
        };
        Ok(self.connection.insert(connection))
    }

    fn write(&mut self, rows: &[Row]) -> rusqlite::Result<()> {
        let mut serial = self.serial;
        let transaction = self.connection()?.transaction()?;
        for row in rows {
            match row {
                Row::Connection { opened_ms, closed_ms, transport, agent, code } => {
                    let insert =
                        "INSERT INTO connection (id, opened_ms, transport, agent, code) VALUES (?1, ?2, ?3, ?4, ?5)";
                    let id = id(*closed_ms, &mut serial);
                    transaction.prepare_cached(insert)?.execute(params![id, opened_ms, transport, agent, code])?;
                }
                Row::Event { time_ms, name, user, props } => {
                    let insert = "INSERT INTO event (id, name, user, props) VALUES (?1, ?2, ?3, ?4)";
                    let props = std::str::from_utf8(props).unwrap_or_default();
                    transaction.prepare_cached(insert)?.execute(params![
                        id(*time_ms, &mut serial),
                        name,
                        user,
                        props
                    ])?;
                }
                Row::Audience { minute, channel, part, current, peak, users } => {
                    let insert = "INSERT OR IGNORE INTO audience (minute, channel, part, current, peak, users) \
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                    let users = users.to_bytes();
                    transaction
                        .prepare_cached(insert)?
                        .execute(params![minute, &**channel, &**part, current, peak, users])?;
                }
                Row::Traffic { minute, namespace, part, publications, deliveries } => {
                    let insert = "INSERT INTO traffic (minute, namespace, part, publications, deliveries) \
                         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET \
                         publications = publications + excluded.publications, \
                         deliveries = deliveries + excluded.deliveries";
                    transaction.prepare_cached(insert)?.execute(params![
                        minute,
                        namespace,
                        &**part,
                        publications,
                        deliveries
                    ])?;
                }
            }
        }
        transaction.commit()?;
        self.serial = serial;
        Ok(())
    }

    /// Deletes some of the oldest rows of each table. Returns whether there may be more.
    fn trim(&mut self) -> rusqlite::Result<bool> {
        let before_ms = now_ms().saturating_sub(u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX));
        let (before_id, before_minute) = (before_ms << SERIAL_BITS, before_ms / 60_000);
        let transaction = self.connection()?.transaction()?;
        let mut has_more = false;
        for (delete, before) in [
            (
                "DELETE FROM connection WHERE id IN (SELECT id FROM connection WHERE id < ?1 ORDER BY id LIMIT ?2)",
                before_id,
            ),
            ("DELETE FROM event WHERE id IN (SELECT id FROM event WHERE id < ?1 ORDER BY id LIMIT ?2)", before_id),
            (
                "DELETE FROM audience WHERE (minute, channel, part) IN \
                 (SELECT minute, channel, part FROM audience WHERE minute < ?1 \
                 ORDER BY minute, channel, part LIMIT ?2)",
                before_minute,
            ),
            (
                "DELETE FROM traffic WHERE (minute, namespace, part) IN \
                 (SELECT minute, namespace, part FROM traffic WHERE minute < ?1 \
                 ORDER BY minute, namespace, part LIMIT ?2)",
                before_minute,
            ),
        ] {
            has_more |= transaction.prepare_cached(delete)?.execute(params![before, TRIM_STEP_ROWS])? == TRIM_STEP_ROWS;
        }
        transaction.commit()?;
        Ok(has_more)
    }
}

/// Makes commits faster and less durable. They do not wait for the disk, so a power failure loses the last ones. The
/// writing connection itself moves pages from the log to the file.
fn relaxed(connection: Connection) -> rusqlite::Result<Connection> {
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    Ok(connection)
}

/// The id of a row: milliseconds in the high bits and a serial number in the low bits, so that ids order rows by time.
fn id(time_ms: u64, serial: &mut u64) -> u64 {
    *serial = serial.wrapping_add(1);
    time_ms << SERIAL_BITS | *serial & ((1 << SERIAL_BITS) - 1)
}

/// Runs queries until all senders are dropped.
fn read_all(path: &Path, query_receiver: &Lock<Receiver<PendingQuery>>, metrics: &StatsMetrics) {
    let mut connection = None;
    while let Some(PendingQuery { query, done }) = next(query_receiver) {
        let result = match connection.take() {
            Some(connection) => Ok(connection),
            None => connect(path),
        };
        let result = result.and_then(|opened| run_query(connection.insert(opened), &query));
        metrics.reading.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        done(result.map_err(|error| {
            tracing::warn!(%error, "the stats database could not be read");
            connection = None;
            StoreRefusal::Failed
        }));
    }
}

fn run_query(connection: &Connection, query: &StatsQuery) -> rusqlite::Result<StatsResult> {
    match query {
        StatsQuery::Audience { channel, range, step_s } => {
            let (first, behind) = range.minutes();
            // Reads minute by minute, so that rows of other channels are not read.
            let select = "WITH RECURSIVE minutes (m) AS \
                 (SELECT ?2 WHERE ?2 < ?3 UNION ALL SELECT m + 1 FROM minutes WHERE m + 1 < ?3) \
                 SELECT a.minute, a.current, a.peak, a.users \
                 FROM minutes CROSS JOIN audience a ON a.minute = m AND a.channel = ?1 ORDER BY a.minute, a.part";
            let mut select = connection.prepare_cached(select)?;
            let seen = |row: &rusqlite::Row<'_>| {
                let users = Sketch::from_bytes(&row.get::<_, Vec<u8>>(3)?);
                Ok(Seen { minute: row.get(0)?, current: row.get(1)?, peak: row.get(2)?, users })
            };
            let rows =
                select.query_map(params![channel, first, behind], seen)?.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(StatsResult::Audience(draw(rows, *step_s)))
        }
        StatsQuery::Top { rank_by, range, limit } => {
            let (first, behind) = match rank_by {
                RankBy::Channels | RankBy::Namespaces => range.minutes(),
                _ => ids(*range),
            };
            let mut select = connection.prepare_cached(top(*rank_by))?;
            let ranked =
                |row: &rusqlite::Row<'_>| Ok(RankedItem { name: row.get(0)?, figures: [row.get(1)?, row.get(2)?] });
            Ok(StatsResult::Top(
                select.query_map(params![first, behind, limit], ranked)?.collect::<rusqlite::Result<_>>()?,
            ))
        }
        StatsQuery::Events { name, by, range, step_s, limit } => {
            let select = "SELECT (id >> 20) / 1000 / ?1 * ?1 AS step, name, \
                 iif(?2 = '', '', coalesce(props -> ?2, '')) AS value, count(*) FROM event \
                 WHERE id >= ?3 AND id < ?4 AND (?5 = '' OR name = ?5) \
                 GROUP BY step, name, value ORDER BY step, name, value LIMIT ?6";
            let mut select = connection.prepare_cached(select)?;
            let (first, behind) = ids(*range);
            let counted = |row: &rusqlite::Row<'_>| {
                Ok(EventCount { time_s: row.get(0)?, name: row.get(1)?, value: row.get(2)?, count: row.get(3)? })
            };
            let rows = select.query_map(params![step_s, by, first, behind, name, limit], counted)?;
            Ok(StatsResult::Events(rows.collect::<rusqlite::Result<_>>()?))
        }
    }
}

/// The ids of the rows of a range of time: the first id, and the one after the last.
fn ids(range: Range) -> (i64, i64) {
    let id = |second: u64| ((second * 1_000) << SERIAL_BITS) as i64;
    (id(range.from_s), id(range.to_s))
}

/// The statement that ranks connections by one of their columns.
macro_rules! of_connections {
    ($column:literal) => {
        concat!(
            "SELECT ",
            $column,
            " AS name, count(*) AS n, sum((id >> 20) - opened_ms) / count(*) FROM connection \
             WHERE id >= ?1 AND id < ?2 GROUP BY name ORDER BY n DESC, name LIMIT ?3"
        )
    };
}

fn top(rank_by: RankBy) -> &'static str {
    match rank_by {
        RankBy::Channels => {
            "SELECT channel, max(peak) AS most, sum(current) AS all_of \
             FROM (SELECT minute, channel, sum(current) AS current, sum(peak) AS peak \
             FROM audience WHERE minute >= ?1 AND minute < ?2 GROUP BY minute, channel) \
             GROUP BY channel ORDER BY most DESC, all_of DESC, channel LIMIT ?3"
        }
        RankBy::Namespaces => {
            "SELECT namespace, sum(deliveries) AS out, sum(publications) FROM traffic \
             WHERE minute >= ?1 AND minute < ?2 GROUP BY namespace ORDER BY out DESC, namespace LIMIT ?3"
        }
        RankBy::Events => {
            "SELECT name, count(*) AS n, count(DISTINCT user) FROM event WHERE id >= ?1 AND id < ?2 \
             GROUP BY name ORDER BY n DESC, name LIMIT ?3"
        }
        RankBy::Transports => of_connections!("transport"),
        RankBy::Agents => of_connections!("agent"),
        RankBy::Codes => of_connections!("CAST(code AS TEXT)"),
    }
}
