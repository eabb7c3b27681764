//! Estimates the room inside the tables of the primary database, and vacuums deleted rows near the limit, because their
//! room counts only afterwards.
//!
//! Room that is not there must never count: it would let the files grow past their limit. So a table has no room until
//! this node has vacuumed it, and the room of rows that disappear counts only after the next vacuum. PostgreSQL's own
//! count of deleted rows is not enough: it is late, and a crash of the server sets it to zero.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::address::PostgresAddress;
use super::connection::{PostgresClient, with_timeout};
use super::failure::PostgresError;

/// The number of blocks of a table that are read for one estimate.
const SAMPLED_BLOCKS: i64 = 500;
/// The overhead of a row in addition to the measured values, bytes.
const ROW: i64 = 64;
/// Rows do not fill their pages. A table takes this fraction (7/6) of its content.
const FILL: (i64, i64) = (7, 6);
/// A table is vacuumed if PostgreSQL counts this number of deleted rows, and one for each [`DEAD_PART`] rows.
const DEAD_ROWS: i64 = 100;
const DEAD_PART: i64 = 50;
/// Rows that have disappeared are deleted rows, although PostgreSQL does not count them yet. A table is vacuumed if
/// more than its rows divided by this number have disappeared.
const VANISHED_PART: i64 = 16;
/// The same number for a table of which only some blocks are read. Such an estimate varies by a tenth.
const VANISHED_PART_OF_SAMPLE: i64 = 6;
/// A vacuum keeps deleted rows that an older transaction can still see. If it keeps more than the table's rows divided
/// by this number, it does not count.
const KEPT_PART: i64 = 4;
/// The maximum time that a vacuum waits for another one of the same table, milliseconds. Then it skips the table.
/// PostgreSQL ends its own vacuum when another one has waited for `deadlock_timeout` (one second).
const CLEAR_LOCK_TIMEOUT_MS: u32 = 200;
/// The maximum duration of a vacuum of all tables. A connection that has died silently must not end all vacuums.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(3_600);
/// The shortest and the longest pause between two vacuums. A pause is at least [`PAUSE_FACTOR`] times the duration of
/// the vacuum before it, and twice the last pause if that vacuum has freed nothing.
const PAUSE_SHORTEST: Duration = Duration::from_secs(2);
const PAUSE_LONGEST: Duration = Duration::from_secs(20);
const PAUSE_FACTOR: u32 = 4;

/// The size of a table with its large values in bytes, the number of its blocks, and the number of its deleted rows.
const TABLE: &str = "SELECT pg_table_size(of), pg_relation_size(of) / current_setting('block_size')::bigint, \
     pg_stat_get_dead_tuples(of) FROM (SELECT to_regclass($1)::oid AS of) named WHERE of IS NOT NULL";
/// The number of deleted rows that the last vacuum of a table had to keep.
const KEPT: &str = "SELECT coalesce(pg_stat_get_dead_tuples(to_regclass($1)), 0)";
/// A condition of SQL: the connected role may vacuum the table `c` (of `pg_class`) in the database `d` (of
/// `pg_database`). From version 17 on there is a privilege for it. PostgreSQL only warns if the role may not.
pub(crate) const MAY_VACUUM: &str = "(pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE') \
     OR CASE WHEN current_setting('server_version_num')::int >= 170000 \
         THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END)";

/// The tables that grow with what clients send, and the expression that measures their rows.
const TABLES: [(&str, &str); 4] = [
    ("touchline.publication", "pg_column_size(data)"),
    ("touchline.inbox_message", "pg_column_size(scope) + pg_column_size(name) + pg_column_size(message)"),
    ("touchline.outbox", "pg_column_size(channel) + pg_column_size(data) + pg_column_size(key)"),
    ("touchline.event_outbox", "pg_column_size(body)"),
];

/// The rows of a table that are not deleted, as estimated from a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TableContent {
    rows: i64,
    /// The bytes of the rows with their overhead.
    bytes: i64,
}

impl TableContent {
    /// The bytes of a row; 0 = there is none.
    fn mean(self) -> i64 {
        self.bytes.checked_div(self.rows).unwrap_or_default()
    }

    fn most(self, other: Self) -> Self {
        TableContent { rows: self.rows.max(other.rows), bytes: self.bytes.max(other.bytes) }
    }
}

/// What an estimate measures of one table.
#[derive(Debug, Clone, Copy)]
struct TableSample {
    /// The size of the table, bytes.
    size: i64,
    /// The deleted rows that PostgreSQL counts.
    dead: i64,
    content: TableContent,
    /// Whether all blocks were read.
    is_whole: bool,
}

/// The result of an estimate for one table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TableRoom {
    /// The bytes that new rows can take before the table grows.
    reusable: u64,
    /// True if many rows are deleted and not vacuumed yet.
    needs_clearing: bool,
}

/// Estimates the room inside a table. `most`: the most content that the table has had since a vacuum of this node.
/// `None` = this node has not vacuumed it yet, so it has no room that counts.
fn room_of(sample: &TableSample, most: Option<TableContent>) -> TableRoom {
    let Some(most) = most else { return TableRoom { reusable: 0, needs_clearing: true } };
    let live = sample.content;
    let vanished = most.rows.saturating_sub(live.rows);
    let part = if sample.is_whole { VANISHED_PART } else { VANISHED_PART_OF_SAMPLE };
    let is_dead = sample.dead >= DEAD_ROWS.max(live.rows / DEAD_PART);
    let needs_clearing = is_dead || vanished >= DEAD_ROWS.max(most.rows / part);
    let mean = live.mean().max(most.mean());
    if mean == 0 && sample.dead >= DEAD_ROWS {
        // The size of the deleted rows is unknown.
        return TableRoom { reusable: 0, needs_clearing };
    }
    // What has disappeared may have been larger than what is left.
    let gone = most.bytes.saturating_sub(live.bytes).max(sample.dead.saturating_mul(mean)).max(0);
    let taken = (live.bytes.saturating_add(gone) / FILL.1).saturating_mul(FILL.0);
    TableRoom { reusable: sample.size.saturating_sub(taken).max(0) as u64, needs_clearing }
}

/// What a node remembers of one table between two estimates.
#[derive(Debug, Clone, Copy, Default)]
struct TableHistory {
    /// The most content since the last vacuum of this node. `None` = there was none.
    most: Option<TableContent>,
    /// The most content since the vacuum in progress began.
    at_clearing: TableContent,
}

impl TableHistory {
    /// Notes the content. `is_clearing`: a vacuum began before, and has not ended.
    fn note(&mut self, content: TableContent, is_clearing: bool) {
        self.most = self.most.map(|most| most.most(content));
        // Rows that are deleted during the vacuum may keep their room.
        self.at_clearing = if is_clearing { self.at_clearing.most(content) } else { content };
    }

    /// A vacuum has ended. It has freed the room of the rows that were deleted before it began, apart from `kept` rows.
    /// Returns whether it counts.
    fn end_clearing(&mut self, kept: i64) -> bool {
        let at = self.at_clearing;
        if kept > DEAD_ROWS.max(at.rows / KEPT_PART) {
            return false;
        }
        let mean = at.mean().max(self.most.unwrap_or_default().mean());
        let bytes = at.bytes.saturating_add(kept.saturating_mul(mean));
        self.most = Some(TableContent { rows: at.rows.saturating_add(kept), bytes });
        true
    }
}

/// The result of a vacuum of several tables.
struct VacuumResult {
    /// The tables that were vacuumed, as indexes of [`TABLES`], each with the number of deleted rows that were kept.
    cleared: Vec<(usize, i64)>,
    /// The first failure.
    failure: Option<PostgresError>,
    duration: Duration,
}

/// The vacuums of this node, and what it remembers between them.
#[derive(Default)]
pub(super) struct Vacuum {
    histories: [TableHistory; TABLES.len()],
    /// The vacuum in progress.
    task: Option<JoinHandle<VacuumResult>>,
    /// The last pause between two vacuums, and when it ends.
    pause: Duration,
    next_at: Option<Instant>,
    /// True after a failed vacuum. Only the first one in a row is logged, because the next one begins in seconds.
    has_failed: bool,
}

impl Vacuum {
    /// Forgets all tables, because the server may have lost its counts of deleted rows: no room counts until the next
    /// vacuum of this node.
    pub(super) fn forget(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.histories = Default::default();
    }

    /// The room inside the tables in bytes, and the tables whose deleted rows need a vacuum, for [`Vacuum::start`].
    pub(super) async fn estimate(&mut self, client: &Client) -> Result<(u64, Vec<usize>), PostgresError> {
        self.collect().await;
        let is_clearing = self.task.is_some();
        let (mut reusable, mut uncleared) = (0_u64, Vec::new());
        for (index, (table, value)) in TABLES.into_iter().enumerate() {
            let Some(sample) = sample(client, table, value).await? else { continue };
            let history = &mut self.histories[index];
            let room = room_of(&sample, history.most);
            history.note(sample.content, is_clearing);
            reusable = reusable.saturating_add(room.reusable);
            if room.needs_clearing {
                uncleared.push(index);
            }
        }
        Ok((reusable, uncleared))
    }

    /// Notes the result of a vacuum that has ended.
    async fn collect(&mut self) {
        let Some(task) = self.task.take_if(|task| task.is_finished()) else { return };
        // A task that the runtime has cancelled has no result.
        let Ok(VacuumResult { cleared, failure, duration }) = task.await else { return };
        let counted = cleared.iter().filter(|(table, kept)| self.histories[*table].end_clearing(*kept)).count();
        let least = if counted == 0 { self.pause * 2 } else { PAUSE_SHORTEST };
        self.pause = least.max(duration * PAUSE_FACTOR).clamp(PAUSE_SHORTEST, PAUSE_LONGEST);
        self.next_at = Some(Instant::now() + self.pause);
        if let Some(error) = &failure
            && !self.has_failed
        {
            tracing::warn!(%error, "deleted rows of the primary database could not be vacuumed");
        }
        // A round that has skipped all tables says nothing about the failure.
        self.has_failed = failure.is_some() || self.has_failed && cleared.is_empty();
    }

    /// Vacuums tables, given as indexes of [`TABLES`], unless a vacuum is in progress or has just ended.
    pub(super) fn start(&mut self, address: &PostgresAddress, tables: Vec<usize>) {
        let is_early = self.next_at.is_some_and(|at| Instant::now() < at);
        if tables.is_empty() || self.task.is_some() || is_early {
            return;
        }
        let address = address.clone();
        self.task = Some(tokio::spawn(async move {
            let began = Instant::now();
            let (cleared, failure) = match with_timeout(CLEAR_TIMEOUT, clear(&address, tables)).await {
                Ok(done) => done,
                Err(error) => (Vec::new(), Some(error)),
            };
            VacuumResult { cleared, failure, duration: began.elapsed() }
        }));
    }
}

/// Measures a table. `value`: the expression that measures its rows. `None` = the table does not exist.
async fn sample(client: &Client, table: &str, value: &str) -> Result<Option<TableSample>, PostgresError> {
    let Some(found) = client.query_opt(TABLE, &[&table]).await? else { return Ok(None) };
    let (size, blocks, dead): (i64, i64, i64) = (found.get(0), found.get(1), found.get(2));
    let is_whole = blocks <= SAMPLED_BLOCKS;
    let percent = if is_whole { 100.0 } else { SAMPLED_BLOCKS as f64 * 100.0 / blocks as f64 };
    // The number of blocks that a sample reads is random. Those with rows are counted.
    let read = if is_whole { "0" } else { "count(DISTINCT (ctid::text::point)[0])" };
    let sampled = format!(
        "SELECT count(*), coalesce(sum({value}), 0)::bigint, {read}::bigint \
         FROM {table} TABLESAMPLE SYSTEM ({percent:.6})"
    );
    let row = client.query_one(&sampled, &[]).await?;
    let (rows, bytes, read): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let scale = if is_whole { 1.0 } else { blocks as f64 / read.max(SAMPLED_BLOCKS) as f64 };
    let bytes = bytes.saturating_add(rows.saturating_mul(ROW));
    let content = TableContent { rows: (rows as f64 * scale) as i64, bytes: (bytes as f64 * scale) as i64 };
    Ok(Some(TableSample { size, dead, content, is_whole }))
}

/// Vacuums deleted rows, as PostgreSQL would do by itself later. No request waits for it. It rests between its steps.
/// Returns the tables with the rows that were kept, and the first failure. It skips a table that another vacuum holds.
async fn clear(
    address: &PostgresAddress,
    tables: Vec<usize>,
) -> Result<(Vec<(usize, i64)>, Option<PostgresError>), PostgresError> {
    let link = PostgresClient::to(address).await?;
    let settings =
        format!("SET statement_timeout = 0; SET vacuum_cost_delay = 2; SET lock_timeout = {CLEAR_LOCK_TIMEOUT_MS}");
    link.client.batch_execute(&settings).await?;
    let (mut cleared, mut failure) = (Vec::new(), None);
    for index in tables {
        match clear_table(&link.client, TABLES[index].0).await {
            Ok(Some(kept)) => cleared.push((index, kept)),
            Ok(None) => {}
            // The other tables need their vacuum all the same.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Ok((cleared, failure))
}

/// Vacuums a table. Returns the number of deleted rows that were kept; `None` = another vacuum holds the table, or the
/// table does not exist.
async fn clear_table(client: &Client, table: &str) -> Result<Option<i64>, PostgresError> {
    let may_vacuum = format!(
        "SELECT {MAY_VACUUM} FROM pg_class c JOIN pg_database d ON d.datname = current_database() \
         WHERE c.oid = to_regclass($1)"
    );
    let Some(found) = client.query_opt(&may_vacuum, &[&table]).await? else { return Ok(None) };
    if !found.get::<_, bool>(0) {
        return Err(PostgresError::NoVacuum { table: table.to_owned() });
    }
    match client.batch_execute(&format!("VACUUM {table}")).await {
        Ok(()) => Ok(Some(client.query_one(KEPT, &[&table]).await?.get(0))),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: TableContent = TableContent { rows: 0, bytes: 0 };
    const FULL: TableContent = TableContent { rows: 10_000, bytes: 10_000_000 };

    fn sample(size: i64, dead: i64, content: TableContent) -> TableSample {
        TableSample { size, dead, content, is_whole: true }
    }

    #[test]
    fn room_inside_a_table_is_what_its_rows_leave() {
        let room = |size, dead| room_of(&sample(size, dead, FULL), Some(FULL));
        assert_eq!(room(10_000_000, 0), TableRoom { reusable: 0, needs_clearing: false });
        assert!(room(30_000_000, 0).reusable > 15_000_000, "two of three rows are gone");
        assert_eq!(room(30_000_000, 20_000), TableRoom { reusable: 0, needs_clearing: true }, "it is not free yet");
        assert!(!room(30_000_000, 199).needs_clearing, "a fiftieth of the rows");
    }

    #[test]
    fn an_empty_table_is_all_room_once_it_is_cleared() {
        let room = |size, dead, most| room_of(&sample(size, dead, NOTHING), Some(most));
        let few = TableContent { rows: 500, bytes: 500_000 };
        assert_eq!(room(8_000, 0, NOTHING), TableRoom { reusable: 8_000, needs_clearing: false });
        assert_eq!(room(8_000, 500, NOTHING), TableRoom { reusable: 0, needs_clearing: true });
        assert_eq!(room(8_000, 0, few), TableRoom { reusable: 0, needs_clearing: true }, "PostgreSQL counts late");
        assert_eq!(room(0, 0, NOTHING), TableRoom::default());
    }

    #[test]
    fn a_table_has_no_room_before_the_first_vacuum_of_the_node() {
        let room = room_of(&sample(30_000_000, 0, NOTHING), None);
        assert_eq!(room, TableRoom { reusable: 0, needs_clearing: true });
    }

    #[test]
    fn deleted_rows_that_were_larger_than_the_others_take_their_own_room() {
        // A thousand rows of 20 kB are deleted, five thousand rows of 60 bytes stay.
        let most = TableContent { rows: 6_000, bytes: 20_700_000 };
        let left = TableContent { rows: 5_000, bytes: 620_000 };
        let room = room_of(&sample(22_760_000, 1_000, left), Some(most));
        assert_eq!(room, TableRoom { reusable: 0, needs_clearing: true });
    }

    #[test]
    fn a_vacuum_that_had_to_keep_the_deleted_rows_does_not_count() {
        let mut history = TableHistory::default();
        history.note(FULL, false);
        assert!(!history.end_clearing(2_501), "an old transaction still sees them");
        assert_eq!(history.most, None);
        assert!(history.end_clearing(1_000), "some were deleted meanwhile");
        assert_eq!(history.most, Some(TableContent { rows: 11_000, bytes: 11_000_000 }));
        assert!(!history.end_clearing(9_000));
        assert_eq!(history.most, Some(TableContent { rows: 11_000, bytes: 11_000_000 }), "as it was");
    }

    #[test]
    fn rows_that_disappear_keep_their_room_until_a_vacuum_ends() {
        let mut history = TableHistory::default();
        let full = TableContent { rows: 20_000, bytes: 20_000_000 };
        history.note(full, false);
        assert!(history.end_clearing(0));
        let half = sample(30_000_000, 0, FULL);
        for _ in 0..3 {
            let room = room_of(&half, history.most);
            history.note(half.content, false);
            assert!(room.needs_clearing && room.reusable < 7_500_000, "{room:?}");
        }
        // Rows that come and disappear during the vacuum have no room that is free.
        let more = TableContent { rows: 15_000, bytes: 15_000_000 };
        history.note(more, true);
        history.note(half.content, true);
        assert!(history.end_clearing(0));
        assert_eq!(history.most, Some(more));
        history.note(half.content, false);
        assert!(history.end_clearing(0));
        let room = room_of(&half, history.most);
        assert!(!room.needs_clearing && room.reusable > 15_000_000, "{room:?}");
    }
}
