//! Statistics in PostgreSQL: one thread with its own runtime. One connection writes in batches, and a few read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};
use touchline_lock::Lock;

use super::curve::{Seen, draw};
use super::metrics::StatsMetrics;
use super::queue::{BATCH, DAY, DELAY, ERASED_ROWS_MAX, PendingQuery, StatsCommand, StatsTask};
use super::types::{
    ErasedEvents, EventCount, EventErasure, RankBy, RankedItem, Row, StatsOptions, StatsQuery, StatsResult,
};
use crate::clock::now_ms;
use crate::errors::OpenError;
use crate::migrate::STATS;
use crate::postgres::{PostgresAddress, PostgresClient, PostgresError};
use crate::refusal::StoreRefusal;
use crate::sketch::Sketch;

/// The interval between two deletions of old days.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// A handle of the database thread.
pub(super) struct PostgresStats {
    commands: UnboundedSender<StatsCommand>,
    queries: UnboundedSender<PendingQuery>,
    thread: Lock<Option<JoinHandle<()>>>,
}

impl PostgresStats {
    /// Connects once to check the schema if the server can be reached, and starts the thread.
    pub(super) fn open(
        address: &PostgresAddress,
        settings: &StatsOptions,
        metrics: Arc<StatsMetrics>,
    ) -> Result<Self, OpenError> {
        let of_system = |source| OpenError::Thread { work: "PostgreSQL", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(of_system)?;
        let (commands, command_receiver) = unbounded_channel();
        let (queries, query_receiver) = unbounded_channel();
        let (check_sender, checked) = std::sync::mpsc::channel();
        let (address, settings) = (address.clone(), settings.clone());
        let work = move || {
            runtime.block_on(async {
                let mut writer = PostgresStatsWriter {
                    address: address.clone(),
                    settings: settings.clone(),
                    link: None,
                    days: BTreeSet::new(),
                    metrics: Arc::clone(&metrics),
                };
                // A server that cannot be reached now may be reachable later.
                let opened = match writer.link().await {
                    Ok(_) => Ok(()),
                    Err(failure) if failure.is_transient() => {
                        metrics.finish(0, Some(&failure));
                        Ok(())
                    }
                    Err(failure) => Err(OpenError::from(failure)),
                };
                let _ = check_sender.send(opened);
                let query_receiver = Arc::new(tokio::sync::Mutex::new(query_receiver));
                for _ in 0..settings.stats.pool_size.max(1) {
                    tokio::spawn(read_all(address.clone(), Arc::clone(&query_receiver), Arc::clone(&metrics)));
                }
                writer.serve(command_receiver).await;
            });
        };
        let thread = std::thread::Builder::new().name("stats".into()).spawn(work).map_err(of_system)?;
        checked.recv().unwrap_or(Ok(()))?;
        Ok(PostgresStats { commands, queries, thread: Lock::new(Some(thread)) })
    }

    pub(super) fn send(&self, command: StatsCommand) {
        let _ = self.commands.send(command);
    }

    pub(super) fn ask(&self, pending: PendingQuery) {
        let _ = self.queries.send(pending);
    }

    pub(super) fn close(&self) {
        self.send(StatsCommand::Close);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

struct PostgresStatsWriter {
    address: PostgresAddress,
    settings: StatsOptions,
    /// The connection. `None` at first and after a failure.
    link: Option<PostgresClient>,
    /// The days (since 1970) that already have partitions.
    days: BTreeSet<i64>,
    metrics: Arc<StatsMetrics>,
}

impl PostgresStatsWriter {
    async fn serve(mut self, mut command_receiver: UnboundedReceiver<StatsCommand>) {
        let mut trim_at = Instant::now();
        let mut is_over = false;
        while !is_over {
            let (mut rows, mut task) = (Vec::new(), None);
            let mut until = trim_at;
            while rows.len() < BATCH {
                match tokio::time::timeout_at(until, command_receiver.recv()).await {
                    Ok(Some(StatsCommand::Row(row))) => {
                        if rows.is_empty() {
                            until = Instant::now() + DELAY;
                        }
                        rows.push(row);
                    }
                    Ok(Some(StatsCommand::Task(asked))) => {
                        task = Some(asked);
                        break;
                    }
                    Err(_) => break,
                    Ok(Some(StatsCommand::Close) | None) => {
                        is_over = true;
                        break;
                    }
                }
            }
            if !rows.is_empty() {
                self.write_all(&rows).await;
            }
            if let Some(task) = task {
                self.carry_out(task).await;
            }
            if Instant::now() >= trim_at {
                trim_at = Instant::now() + TRIM_INTERVAL;
                if let Err(error) = self.trim().await {
                    tracing::warn!(%error, "old statistics could not be dropped");
                    self.link = None;
                }
            }
        }
    }

    /// Writes rows. If a part fails because of its values, it is tried again in halves, down to single rows. Bad single
    /// rows are dropped.
    async fn write_all(&mut self, rows: &[Row]) {
        // The last element is processed next.
        let mut parts = vec![rows];
        while let Some(part) = parts.pop() {
            let failure = match self.write_in_time(part).await {
                Err(failure) if failure.is_of_item() && self.roll_back().await => {
                    if part.len() == 1 {
                        self.metrics.refuse(&failure);
                    } else {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                    continue;
                }
                written => written.err(),
            };
            self.metrics.finish(part.len(), failure.as_ref().map(|failure| failure as _));
            self.link = self.link.take().filter(|_| failure.is_none());
        }
    }

    async fn carry_out(&mut self, task: StatsTask) {
        match task {
            StatsTask::Settle(done) => done(Ok(())),
            StatsTask::Erase(erasure, done) => {
                let timeout = self.address.timeout;
                let erased = tokio::time::timeout(timeout, self.erase(&erasure)).await;
                let erased = erased.map_err(PostgresError::from).and_then(|erased| erased);
                done(erased.map_err(|error| {
                    tracing::warn!(%error, "events of a user could not be deleted from the stats database");
                    self.link = None;
                    StoreRefusal::Failed
                }));
            }
        }
    }

    /// Deletes the events of a user within the next minutes. It takes as many minutes as fit into the rows of a step,
    /// at least one.
    async fn erase(&mut self, erasure: &EventErasure) -> Result<ErasedEvents, PostgresError> {
        let EventErasure { user, from } = erasure;
        let from = i64::try_from(*from).unwrap_or(i64::MAX);
        let client = self.link().await?;
        let behind = "SELECT minute FROM touchline_stats.event WHERE minute >= $1 ORDER BY minute OFFSET $2 LIMIT 1";
        let behind = client.query_opt(behind, &[&from, &(ERASED_ROWS_MAX as i64)]).await?;
        let behind = behind.map(|row| row.get::<_, i64>(0).max(from.saturating_add(1)));
        let delete = "DELETE FROM touchline_stats.event WHERE minute >= $1 AND minute < $2 AND \"user\" = $3";
        let count = client.execute(delete, &[&from, &behind.unwrap_or(i64::MAX), &&**user]).await?;
        Ok(ErasedEvents { count, next: behind.map(|minute| minute as u64) })
    }

    /// Ends the transaction of a failed write. Returns whether the connection can still be used.
    async fn roll_back(&self) -> bool {
        match &self.link {
            Some(link) => link.client.batch_execute("ROLLBACK").await.is_ok(),
            None => false,
        }
    }

    async fn write_in_time(&mut self, rows: &[Row]) -> Result<(), PostgresError> {
        tokio::time::timeout(self.address.timeout, self.write(rows)).await?
    }

    async fn link(&mut self) -> Result<&Client, PostgresError> {
        let link = match self.link.take() {
            Some(link) if !link.client.is_closed() => link,
            _ => {
                let mut link = PostgresClient::to(&self.address).await?;
                link.check(&STATS, self.settings.migrates).await?;
                link
            }
        };
        Ok(&self.link.insert(link).client)
    }

    async fn write(&mut self, rows: &[Row]) -> Result<(), PostgresError> {
        let mut batch = RowBatch::default();
        rows.iter().for_each(|row| batch.take(row));
        let days: Vec<i64> = batch.days.difference(&self.days).copied().collect();
        let client = self.link().await?;
        if !days.is_empty() {
            client.execute("SELECT touchline_stats.prepare($1)", &[&days]).await?;
        }
        batch.write(client).await?;
        self.days.extend(days);
        Ok(())
    }

    async fn trim(&mut self) -> Result<(), PostgresError> {
        let before_ms =
            now_ms().saturating_sub(u64::try_from(self.settings.stats.retention.as_millis()).unwrap_or(u64::MAX));
        let first = (before_ms / 60_000 / DAY) as i64;
        self.link().await?.execute("SELECT touchline_stats.drop_before($1)", &[&first]).await?;
        self.days.retain(|day| *day >= first);
        Ok(())
    }
}

/// The rows of one table by column.
struct Columns<'r, const N: usize, const T: usize> {
    numbers: [Vec<i64>; N],
    texts: [Vec<&'r str>; T],
}

impl<const N: usize, const T: usize> Default for Columns<'_, N, T> {
    fn default() -> Self {
        Columns { numbers: [const { Vec::new() }; N], texts: [const { Vec::new() }; T] }
    }
}

impl<'r, const N: usize, const T: usize> Columns<'r, N, T> {
    fn push(&mut self, numbers: [u64; N], texts: [&'r str; T]) {
        self.numbers.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number as i64));
        self.texts.iter_mut().zip(texts).for_each(|(column, text)| column.push(text));
    }

    /// Runs a statement with all columns, numbers before texts, and one more parameter.
    async fn write(&self, client: &Client, statement: &str, last: Option<&(dyn ToSql + Sync)>) -> Result<(), Error> {
        if self.numbers.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let numbers = self.numbers.iter().map(|column| column as &(dyn ToSql + Sync));
        let texts = self.texts.iter().map(|column| column as &(dyn ToSql + Sync));
        let parameters: Vec<_> = numbers.chain(texts).chain(last).collect();
        client.execute(statement, &parameters).await.map(drop)
    }
}

/// The rows of a batch by table.
#[derive(Default)]
struct RowBatch<'r> {
    days: BTreeSet<i64>,
    connections: Columns<'r, 4, 2>,
    events: Columns<'r, 2, 3>,
    audiences: Columns<'r, 3, 2>,
    sketches: Vec<Vec<u8>>,
    traffic: Columns<'r, 3, 2>,
}

const INTO_CONNECTION: &str = "INSERT INTO touchline_stats.connection \
     (minute, closed_ms, opened_ms, code, transport, agent) \
     SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[])";
const INTO_EVENT: &str = "INSERT INTO touchline_stats.event (minute, time_ms, name, \"user\", props) \
     SELECT * FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::text[])";
const INTO_AUDIENCE: &str = "INSERT INTO touchline_stats.audience (minute, current, peak, channel, part, users) \
     SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::text[], $5::text[], $6::bytea[]) \
     ON CONFLICT DO NOTHING";
const INTO_TRAFFIC: &str = "INSERT INTO touchline_stats.traffic AS known \
     (minute, publications, deliveries, namespace, part) SELECT m, sum(i)::int8, sum(o)::int8, n, p \
     FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::text[], $5::text[]) AS row (m, i, o, n, p) \
     GROUP BY m, n, p ON CONFLICT (minute, namespace, part) DO UPDATE SET \
     publications = known.publications + excluded.publications, deliveries = known.deliveries + excluded.deliveries";

impl<'r> RowBatch<'r> {
    fn take(&mut self, row: &'r Row) {
        let minute = match row {
            Row::Connection { closed_ms: time_ms, .. } | Row::Event { time_ms, .. } => *time_ms / 60_000,
            Row::Audience { minute, .. } | Row::Traffic { minute, .. } => *minute,
        };
        self.days.insert((minute / DAY) as i64);
        match row {
            Row::Connection { opened_ms, closed_ms, transport, agent, code } => {
                self.connections.push([minute, *closed_ms, *opened_ms, u64::from(*code)], [transport, agent]);
            }
            Row::Event { time_ms, name, user, props } => {
                self.events.push([minute, *time_ms], [name, user, std::str::from_utf8(props).unwrap_or_default()]);
            }
            Row::Audience { channel, part, current, peak, users, .. } => {
                self.audiences.push([minute, *current, *peak], [channel, part]);
                self.sketches.push(users.to_bytes());
            }
            Row::Traffic { namespace, part, publications, deliveries, .. } => {
                self.traffic.push([minute, *publications, *deliveries], [namespace, part]);
            }
        }
    }

    /// Writes the rows with one statement for each table, in one transaction.
    async fn write(&self, client: &Client) -> Result<(), Error> {
        client.batch_execute("BEGIN").await?;
        self.connections.write(client, INTO_CONNECTION, None).await?;
        self.events.write(client, INTO_EVENT, None).await?;
        self.audiences.write(client, INTO_AUDIENCE, Some(&self.sketches)).await?;
        self.traffic.write(client, INTO_TRAFFIC, None).await?;
        client.batch_execute("COMMIT").await
    }
}

/// Runs queries until all senders are dropped.
async fn read_all(
    address: PostgresAddress,
    query_receiver: Arc<tokio::sync::Mutex<UnboundedReceiver<PendingQuery>>>,
    metrics: Arc<StatsMetrics>,
) {
    let mut kept: Option<PostgresClient> = None;
    loop {
        let Some(PendingQuery { query, done }) = query_receiver.lock().await.recv().await else { return };
        let result = tokio::time::timeout(address.timeout, async {
            let link = match kept.take() {
                Some(link) if !link.client.is_closed() => link,
                _ => PostgresClient::to(&address).await?,
            };
            Ok::<_, PostgresError>(run_query(&kept.insert(link).client, &query).await?)
        });
        let result = result.await.map_err(PostgresError::from).and_then(|result| result);
        metrics.reading.fetch_sub(1, Relaxed);
        done(result.map_err(|error| {
            tracing::warn!(%error, "the stats database could not be read");
            kept = None;
            StoreRefusal::Failed
        }));
    }
}

async fn run_query(client: &Client, query: &StatsQuery) -> Result<StatsResult, Error> {
    let number = |row: &tokio_postgres::Row, column: usize| row.get::<_, i64>(column) as u64;
    match query {
        StatsQuery::Audience { channel, range, step_s } => {
            let (first, behind) = range.minutes();
            let select = "SELECT minute, current, peak, users FROM touchline_stats.audience \
                 WHERE minute = ANY (ARRAY(SELECT generate_series($2::int8, $3::int8 - 1))) AND channel = $1 \
                 ORDER BY minute, part";
            let rows = client.query(select, &[channel, &first, &behind]).await?;
            let seen = |row: &tokio_postgres::Row| {
                let users = Sketch::from_bytes(row.get(3));
                Seen { minute: number(row, 0), current: number(row, 1), peak: number(row, 2), users }
            };
            Ok(StatsResult::Audience(draw(rows.iter().map(seen), *step_s)))
        }
        StatsQuery::Top { rank_by, range, limit } => {
            let (first, behind) = match rank_by {
                RankBy::Channels | RankBy::Namespaces => range.minutes(),
                _ => ((range.from_s * 1_000) as i64, (range.to_s * 1_000) as i64),
            };
            let rows = client.query(top(*rank_by), &[&first, &behind, &(*limit as i64)]).await?;
            Ok(StatsResult::Top(
                rows.iter()
                    .map(|row| RankedItem { name: row.get(0), figures: [number(row, 1), number(row, 2)] })
                    .collect(),
            ))
        }
        StatsQuery::Events { name, by, range, step_s, limit } => {
            let select = "SELECT time_ms / 1000 / $1::int8 * $1::int8 AS step, name, \
                 CASE WHEN $2 = '' THEN '' ELSE coalesce((props::json -> $2)::text, '') END COLLATE \"C\" AS value, \
                 count(*) FROM touchline_stats.event WHERE minute BETWEEN $3::int8 / 60000 AND $4::int8 / 60000 \
                 AND time_ms >= $3 AND time_ms < $4 AND ($5 = '' OR name = $5) \
                 GROUP BY step, name, value ORDER BY step, name COLLATE \"C\", value LIMIT $6";
            let (first, behind) = ((range.from_s * 1_000) as i64, (range.to_s * 1_000) as i64);
            let rows = client.query(select, &[&(*step_s as i64), by, &first, &behind, name, &(*limit as i64)]).await?;
            let counted = |row: &tokio_postgres::Row| EventCount {
                time_s: number(row, 0),
                name: row.get(1),
                value: row.get(2),
                count: number(row, 3),
            };
            Ok(StatsResult::Events(rows.iter().map(counted).collect()))
        }
    }
}

/// The statement that ranks connections by one of their columns.
macro_rules! of_connections {
    ($column:literal) => {
        concat!(
            "SELECT ",
            $column,
            " COLLATE \"C\" AS name, count(*) AS n, sum(closed_ms - opened_ms)::int8 / count(*) \
             FROM touchline_stats.connection WHERE minute BETWEEN $1::int8 / 60000 AND $2::int8 / 60000 \
             AND closed_ms >= $1 AND closed_ms < $2 \
             GROUP BY 1 ORDER BY n DESC, 1 LIMIT $3"
        )
    };
}

fn top(rank_by: RankBy) -> &'static str {
    match rank_by {
        RankBy::Channels => {
            "SELECT channel, max(peak)::int8 AS most, sum(current)::int8 AS all_of \
             FROM (SELECT minute, channel, sum(current) AS current, sum(peak) AS peak \
             FROM touchline_stats.audience WHERE minute >= $1 AND minute < $2 GROUP BY minute, channel) each \
             GROUP BY channel ORDER BY most DESC, all_of DESC, channel COLLATE \"C\" LIMIT $3"
        }
        RankBy::Namespaces => {
            "SELECT namespace, sum(deliveries)::int8 AS out, sum(publications)::int8 FROM touchline_stats.traffic \
             WHERE minute >= $1 AND minute < $2 GROUP BY namespace ORDER BY out DESC, namespace COLLATE \"C\" LIMIT $3"
        }
        RankBy::Events => {
            "SELECT name, count(*) AS n, count(DISTINCT \"user\") FROM touchline_stats.event \
             WHERE minute BETWEEN $1::int8 / 60000 AND $2::int8 / 60000 AND time_ms >= $1 AND time_ms < $2 \
             GROUP BY name ORDER BY n DESC, name COLLATE \"C\" LIMIT $3"
        }
        RankBy::Transports => of_connections!("transport"),
        RankBy::Agents => of_connections!("agent"),
        RankBy::Codes => of_connections!("code::text"),
    }
}
