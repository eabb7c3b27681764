//! Statistics in one SQLite file: one thread writes, in batches; a few read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::curve::{Seen, draw};
use super::{
    BATCH, DELAY, EventCount, PendingQuery, REST, RankBy, RankedItem, Row, StatsCommand, StatsMetrics, StatsQuery,
    StatsResult, StatsSettings,
};
use crate::batch::now_ms;
use crate::migrate::STATS;
use crate::sketch::Sketch;
use crate::sqlite::{connect, next, open, refusal_of, thread};
use crate::{OpenError, StoreRefusal};

/// Rows deleted from each table in one step.
const STEP: usize = 20_000;
/// Bits of an id below its milliseconds.
const SERIAL_BITS: u32 = 20;

/// The way to the threads.
pub(super) struct Stats {
    orders: Sender<StatsCommand>,
    /// None once they are closed.
    questions: Mutex<Option<Sender<PendingQuery>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Locked as long as they are open.
    lock: File,
}

impl Stats {
    pub(super) fn open(path: &Path, settings: &StatsSettings, figures: Arc<StatsMetrics>) -> Result<Self, OpenError> {
        let (lock, _) = open(path, &STATS, settings.migrates)?;
        let (orders, ordered) = channel();
        let (questions, asked) = channel();
        let asked = Arc::new(Mutex::new(asked));
        let mut threads = Vec::new();
        for _ in 0..settings.pool_size.max(1) {
            let (asked, path_of_thread, figures) = (Arc::clone(&asked), path.to_owned(), Arc::clone(&figures));
            threads.push(thread("stats-read", path, move || read_all(&path_of_thread, &asked, &figures))?);
        }
        let retention = settings.retention.max(Duration::from_secs(60));
        let writer = Writer { path: path.to_owned(), connection: None, figures, retention, serial: 0 };
        threads.push(thread("stats-write", path, move || writer.serve(&ordered))?);
        Ok(Stats { orders, questions: Mutex::new(Some(questions)), threads: Mutex::new(threads), lock })
    }

    pub(super) fn order(&self, order: StatsCommand) {
        let _ = self.orders.send(order);
    }

    pub(super) fn ask(&self, asked: PendingQuery) {
        if let Some(questions) = &*self.questions.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = questions.send(asked);
        }
    }

    pub(super) fn close(&self) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.order(StatsCommand::Close);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
        let _ = self.lock.unlock();
    }
}

struct Writer {
    path: PathBuf,
    /// None after a failure.
    connection: Option<Connection>,
    figures: Arc<StatsMetrics>,
    retention: Duration,
    /// Makes ids different within a millisecond.
    serial: u64,
}

impl Writer {
    fn serve(mut self, ordered: &Receiver<StatsCommand>) {
        let mut trim_at = Instant::now();
        let mut is_over = false;
        while !is_over {
            let mut rows = Vec::new();
            let mut until = trim_at;
            while rows.len() < BATCH {
                match ordered.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(StatsCommand::Row(row)) => {
                        if rows.is_empty() {
                            until = Instant::now() + DELAY;
                        }
                        rows.push(row);
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
            if Instant::now() >= trim_at {
                let has_more = self.trim().unwrap_or(false);
                trim_at = Instant::now() + if has_more { Duration::ZERO } else { REST };
            }
        }
    }

    /// Writes rows. A part that fails by what is in it is tried again in halves, down to the rows that fail alone:
    /// these are dropped.
    fn write_all(&mut self, rows: &[Row]) {
        // The last is the next.
        let mut parts = vec![rows];
        while let Some(part) = parts.pop() {
            let failure = match self.write(part) {
                Err(error) if refusal_of(&error).is_some() => {
                    if part.len() == 1 {
                        self.figures.refused(&error);
                    } else {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                    continue;
                }
                written => written.err(),
            };
            self.figures.took(part.len(), failure.as_ref().map(|failure| failure as _));
            self.connection = self.connection.take().filter(|_| failure.is_none());
        }
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
                    let insert = "INSERT OR IGNORE INTO audience (minute, channel, part, current, peak, users) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                    let users = users.to_bytes();
                    transaction
                        .prepare_cached(insert)?
                        .execute(params![minute, &**channel, &**part, current, peak, users])?;
                }
                Row::Traffic { minute, namespace, part, publications, deliveries } => {
                    let insert = "INSERT INTO traffic (minute, namespace, part, publications, deliveries) VALUES (?1, ?2, ?3, ?4, ?5) \
                         ON CONFLICT DO UPDATE SET publications = publications + excluded.publications, deliveries = deliveries + excluded.deliveries";
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

    /// Deletes some of what is too old, from the old end of each table. Whether there is more.
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
                 (SELECT minute, channel, part FROM audience WHERE minute < ?1 ORDER BY minute, channel, part LIMIT ?2)",
                before_minute,
            ),
            (
                "DELETE FROM traffic WHERE (minute, namespace, part) IN \
                 (SELECT minute, namespace, part FROM traffic WHERE minute < ?1 ORDER BY minute, namespace, part LIMIT ?2)",
                before_minute,
            ),
        ] {
            has_more |= transaction.prepare_cached(delete)?.execute(params![before, STEP])? == STEP;
        }
        transaction.commit()?;
        Ok(has_more)
    }
}

/// What is lost with the power is no loss here: commits don't wait for the disk, and the log is moved on by whoever
/// writes.
fn relaxed(connection: Connection) -> rusqlite::Result<Connection> {
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    Ok(connection)
}

/// Time above, a serial below: rows stand in the order of time.
fn id(time_ms: u64, serial: &mut u64) -> u64 {
    *serial = serial.wrapping_add(1);
    time_ms << SERIAL_BITS | *serial & ((1 << SERIAL_BITS) - 1)
}

/// Answers until nobody can ask any more.
fn read_all(path: &Path, asked: &Mutex<Receiver<PendingQuery>>, figures: &StatsMetrics) {
    let mut connection = None;
    while let Some(PendingQuery { question, done }) = next(asked) {
        let answered = match connection.take() {
            Some(connection) => Ok(connection),
            None => connect(path),
        };
        let answered = answered.and_then(|of| answer(connection.insert(of), &question));
        figures.reading.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        done(answered.map_err(|error| {
            tracing::warn!(%error, "the stats database could not be read");
            connection = None;
            StoreRefusal::Failed
        }));
    }
}

fn answer(connection: &Connection, question: &StatsQuery) -> rusqlite::Result<StatsResult> {
    match question {
        StatsQuery::Audience { channel, range, step_s } => {
            let (first, behind) = range.minutes();
            // Minute by minute, so that other channels are not looked at.
            let select = "WITH RECURSIVE minutes (m) AS (SELECT ?2 WHERE ?2 < ?3 UNION ALL SELECT m + 1 FROM minutes WHERE m + 1 < ?3) \
                 SELECT a.minute, a.current, a.peak, a.users FROM minutes CROSS JOIN audience a ON a.minute = m AND a.channel = ?1 ORDER BY a.minute, a.part";
            let mut select = connection.prepare_cached(select)?;
            let seen = |row: &rusqlite::Row<'_>| {
                let users = Sketch::from_bytes(&row.get::<_, Vec<u8>>(3)?);
                Ok(Seen { minute: row.get(0)?, current: row.get(1)?, peak: row.get(2)?, users })
            };
            let rows =
                select.query_map(params![channel, first, behind], seen)?.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(StatsResult::Audience(draw(rows, *step_s)))
        }
        StatsQuery::Top { rank_by: of, range, limit } => {
            let (first, behind) = match of {
                RankBy::Channels | RankBy::Namespaces => range.minutes(),
                _ => ids(*range),
            };
            let mut select = connection.prepare_cached(top(*of))?;
            let ranked =
                |row: &rusqlite::Row<'_>| Ok(RankedItem { name: row.get(0)?, figures: [row.get(1)?, row.get(2)?] });
            Ok(StatsResult::Top(
                select.query_map(params![first, behind, limit], ranked)?.collect::<rusqlite::Result<_>>()?,
            ))
        }
        StatsQuery::Events { name, by, range, step_s, limit } => {
            let select = "SELECT (id >> 20) / 1000 / ?1 * ?1 AS step, name, iif(?2 = '', '', coalesce(props -> ?2, '')) AS value, count(*) FROM event \
                 WHERE id >= ?3 AND id < ?4 AND (?5 = '' OR name = ?5) GROUP BY step, name, value ORDER BY step, name, value LIMIT ?6";
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

/// Ids of a time.
fn ids(range: super::Range) -> (i64, i64) {
    let id = |second: u64| ((second * 1_000) << SERIAL_BITS) as i64;
    (id(range.from_s), id(range.to_s))
}

/// Connections by one of their columns.
macro_rules! of_connections {
    ($column:literal) => {
        concat!(
            "SELECT ",
            $column,
            " AS name, count(*) AS n, sum((id >> 20) - opened_ms) / count(*) FROM connection WHERE id >= ?1 AND id < ?2 \
             GROUP BY name ORDER BY n DESC, name LIMIT ?3"
        )
    };
}

fn top(of: RankBy) -> &'static str {
    match of {
        RankBy::Channels => {
            "SELECT channel, max(peak) AS most, sum(current) AS all_of FROM (SELECT minute, channel, sum(current) AS current, sum(peak) AS peak \
             FROM audience WHERE minute >= ?1 AND minute < ?2 GROUP BY minute, channel) GROUP BY channel ORDER BY most DESC, all_of DESC, channel LIMIT ?3"
        }
        RankBy::Namespaces => {
            "SELECT namespace, sum(deliveries) AS out, sum(publications) FROM traffic WHERE minute >= ?1 AND minute < ?2 \
             GROUP BY namespace ORDER BY out DESC, namespace LIMIT ?3"
        }
        RankBy::Events => {
            "SELECT name, count(*) AS n, count(DISTINCT user) FROM event WHERE id >= ?1 AND id < ?2 GROUP BY name ORDER BY n DESC, name LIMIT ?3"
        }
        RankBy::Transports => of_connections!("transport"),
        RankBy::Agents => of_connections!("agent"),
        RankBy::Codes => of_connections!("CAST(code AS TEXT)"),
    }
}
