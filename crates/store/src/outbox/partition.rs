//! Serves one partition. It takes the lock, passes the oldest rows to the handler, and deletes the finished rows, all
//! in one transaction.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use touchline_config::TableName;

use super::statements::{ALIVE_EVERY_MS, Statements, lock_text};
use super::types::{
    ClaimedRows, HandledRows, LOOK_AHEAD_MAX, OutboxOptions, OutboxReport, OutboxRow, RowClaim, RowHandler, RowOutcome,
    TIMEOUT, stopped,
};
use crate::panics::caught_in;
use crate::postgres::{PostgresAddress, PostgresClient, PostgresError, with_timeout};

/// The error codes when another process creates a table at the same time.
const IS_THERE: [SqlState; 3] = [SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT, SqlState::UNIQUE_VIOLATION];
/// The error codes when this user can never create a table.
const CANNOT_BE_MADE: [SqlState; 2] = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::INVALID_SCHEMA_NAME];
/// The error codes when the table of dead rows does not exist, or this user may not write to it. Only then is a row
/// deleted without a copy.
const HAS_NO_TABLE: [SqlState; 2] = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_TABLE];

/// The result of one transaction on the partition.
enum Look {
    /// Another node holds the partition.
    Held,
    /// There was nothing to do.
    Nothing,
    /// There may be more: rows were finished, or rows were kept for the first time.
    Some,
    /// All visible rows are kept; the first of them is due after this time. `None` = none of them has failed.
    Kept(Option<Duration>),
    /// Bad rows cannot be put aside. It contains the reason, and whether other rows were finished.
    NotPutAside(String, bool),
}

/// The database connection of a partition.
struct PartitionLink {
    client: PostgresClient,
    /// The name of the table for SQL, with its schema.
    table: String,
    /// True if the table of dead rows existed when it was last used. If false, this has been reported.
    has_dead_table: bool,
}

/// The loop that serves one partition.
pub(super) struct PartitionLoop {
    partition: u32,
    options: Arc<OutboxOptions>,
    address: PostgresAddress,
    statements: Arc<Statements>,
    handler: Arc<dyn RowHandler>,
    lock_text: String,
    /// The connection. `None` at first and after a failure.
    link: Option<PartitionLink>,
    /// The ids of the rows that the last transaction kept, in their order.
    kept: Vec<i64>,
}

impl PartitionLoop {
    pub(super) fn new(
        partition: u32,
        options: Arc<OutboxOptions>,
        address: PostgresAddress,
        statements: Arc<Statements>,
        handler: Arc<dyn RowHandler>,
    ) -> Self {
        let lock_text = lock_text(&options.name, partition);
        PartitionLoop { partition, options, address, statements, handler, lock_text, link: None, kept: Vec::new() }
    }

    /// Serves the partition until `stop` becomes true.
    pub(super) async fn run(mut self, bells: Arc<[Notify]>, mut stop: watch::Receiver<bool>) {
        let bell = &bells[self.partition as usize];
        let mut failures = 0;
        while !*stop.borrow() {
            let looked = match caught_in(self.look()).await {
                Ok(looked) => looked,
                Err(panicked) => Err(panicked.into()),
            };
            let partition = self.partition;
            let pause = match looked {
                Ok(Look::Some) => {
                    failures = 0;
                    self.handler.report(OutboxReport::Working(Some(partition)));
                    continue;
                }
                Ok(Look::Kept(pause)) => {
                    failures = 0;
                    self.handler.report(OutboxReport::Working(Some(partition)));
                    pause.map_or(self.options.poll_interval, |pause| pause.min(self.options.poll_interval))
                }
                Ok(look @ (Look::Held | Look::Nothing)) => {
                    failures = 0;
                    self.handler.report(OutboxReport::Idle(partition, matches!(look, Look::Nothing)));
                    self.options.poll_interval
                }
                Ok(Look::NotPutAside(why, has_done_some)) => {
                    failures = if has_done_some { 1 } else { failures + 1 };
                    self.handler.report(OutboxReport::Failing(Some(partition), why));
                    self.handler.delay(failures)
                }
                Err(error) => {
                    failures += 1;
                    self.link = None;
                    self.handler.report(OutboxReport::Failing(Some(partition), error.to_string()));
                    self.handler.delay(failures)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // New rows do not make a failing partition retry sooner.
                () = bell.notified(), if failures == 0 => {}
                () = stopped(&mut stop) => {}
            }
        }
    }

    async fn look(&mut self) -> Result<Look, PostgresError> {
        let mut link = match self.link.take() {
            Some(link) if !link.client.client.is_closed() => link,
            _ => self.connect().await?,
        };
        let looked = self.serve(&mut link).await?;
        self.link = Some(link);
        Ok(looked)
    }

    async fn connect(&self) -> Result<PartitionLink, PostgresError> {
        let client = PostgresClient::bare(&self.address, |_| ()).await?;
        let described = describe(&client, &self.options.table, &self.statements).await?;
        let Some(Description { name: table, may_take, .. }) = described else {
            return Err(PostgresError::NoTable { table: self.options.table.to_string() });
        };
        if !may_take {
            return Err(PostgresError::NoRight { table: self.options.table.to_string() });
        }
        let has_dead_table = self.make_dead_table(&client).await?;
        Ok(PartitionLink { client, table, has_dead_table })
    }

    /// Creates the table of dead rows if it does not exist. Returns whether it exists afterwards.
    async fn make_dead_table(&self, client: &PostgresClient) -> Result<bool, PostgresError> {
        if describe(client, &self.options.dead_table, &self.statements).await?.is_some() {
            return Ok(true);
        }
        let made = with_timeout(TIMEOUT, async { Ok(client.client.batch_execute(&self.statements.make_dead).await) });
        match made.await? {
            Ok(()) => Ok(true),
            // Another partition or another node creates the table at the same time.
            Err(error) if error.code().is_some_and(|code| IS_THERE.contains(code)) => Ok(true),
            Err(error) if error.code().is_some_and(|code| CANNOT_BE_MADE.contains(code)) => {
                self.handler.report(OutboxReport::NoDeadTable(PostgresError::from(error).to_string()));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Runs one transaction.
    async fn serve(&mut self, link: &mut PartitionLink) -> Result<Look, PostgresError> {
        let begun = with_timeout(TIMEOUT, self.claim(link)).await?;
        let before = std::mem::take(&mut self.kept);
        let Some((rows, claim)) = begun else { return Ok(Look::Held) };
        if rows.is_empty() {
            with_timeout(TIMEOUT, execute(link, "COMMIT")).await?;
            return Ok(Look::Nothing);
        }
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let HandledRows { outcomes, pause } = self.handle(link, rows, claim).await?;
        let (mut done, mut bad, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_any_gone = false;
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            match outcome {
                RowOutcome::Done => done.push(id),
                RowOutcome::Failed(why) => {
                    bad.push(id);
                    reasons.push(why.replace('\0', ""));
                }
                RowOutcome::Gone => is_any_gone = true,
                RowOutcome::Kept => self.kept.push(id),
            }
        }
        let staying = with_timeout(TIMEOUT, self.settle(link, &done, (&bad, &reasons))).await?;
        let has_done_some = is_any_gone || !done.is_empty() || (!bad.is_empty() && staying.is_none());
        let is_further = has_done_some || self.kept.iter().any(|id| before.binary_search(id).is_err());
        Ok(match staying {
            Some(why) => Look::NotPutAside(why, has_done_some),
            None if is_further => Look::Some,
            None => Look::Kept(pause),
        })
    }

    /// Begins the transaction, takes the lock and reads the oldest rows. `None` = another node has the lock.
    async fn claim(&self, link: &PartitionLink) -> Result<Option<(Vec<OutboxRow>, RowClaim)>, PostgresError> {
        let client = &link.client.client;
        client.batch_execute(&self.statements.begin).await?;
        let taken = client.query_typed(self.statements.lock, &[(&self.lock_text, Type::TEXT)]).await;
        let taken = match taken {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Vec::new(),
            taken => taken?,
        };
        let Some(held) = taken.first().filter(|row| row.get(0)) else {
            client.batch_execute("ROLLBACK").await?;
            return Ok(None);
        };
        let claim = RowClaim { table: link.table.clone(), lock: held.get(1), backend: held.get(2) };
        let (partition, kept) = (self.partition as i32, self.kept.len().min(LOOK_AHEAD_MAX) as i64);
        let limit = i64::from(self.options.select_limit) + kept;
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&partition, Type::INT4), (&limit, Type::INT8), (&self.kept, Type::INT8_ARRAY)];
        let rows = client.query_typed(&self.statements.select, &parameters).await?;
        if rows.iter().any(|row| row.get::<_, i32>(4) != claim.backend) {
            return Err(PostgresError::StatementPooler);
        }
        let row = |row: &tokio_postgres::Row| OutboxRow {
            id: row.get(0),
            method: row.get(1),
            payload: row.get(2),
            incarnation: row.get(3),
        };
        Ok(Some((rows.iter().map(row).collect(), claim)))
    }

    /// Passes rows to the handler. Meanwhile it regularly sends a statement, or the database would end the transaction.
    /// If the transaction has ended, the rows may belong to another node, so the work in progress is abandoned.
    async fn handle(
        &self,
        link: &PartitionLink,
        rows: Vec<OutboxRow>,
        claim: RowClaim,
    ) -> Result<HandledRows, PostgresError> {
        let mut handled = self.handler.handle(ClaimedRows { partition: self.partition, rows, claim });
        loop {
            match tokio::time::timeout(Duration::from_millis(ALIVE_EVERY_MS), &mut handled).await {
                Ok(handled) => return Ok(handled),
                Err(_) => with_timeout(TIMEOUT, execute(link, "SELECT 1")).await?,
            }
        }
    }

    /// Deletes finished rows, puts aside rows that cannot be executed, and commits. Returns why bad rows stay. `None` =
    /// no bad rows are left.
    async fn settle(
        &self,
        link: &mut PartitionLink,
        done: &[i64],
        (bad, reasons): (&[i64], &[String]),
    ) -> Result<Option<String>, PostgresError> {
        let client = &link.client.client;
        if !done.is_empty() {
            client.execute_typed(&self.statements.delete, &[(&done, Type::INT8_ARRAY)]).await?;
        }
        if bad.is_empty() {
            client.batch_execute("COMMIT").await?;
            return Ok(None);
        }
        client.batch_execute("SAVEPOINT bury").await?;
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&bad, Type::INT8_ARRAY), (&reasons, Type::TEXT_ARRAY)];
        let buried = client.execute_typed(&self.statements.bury, &parameters).await;
        let had_table = std::mem::replace(&mut link.has_dead_table, true);
        match buried {
            Ok(_) => {
                client.batch_execute("COMMIT").await?;
                self.handler.report(OutboxReport::PutAside(true));
                Ok(None)
            }
            Err(error) if error.code().is_some_and(|code| HAS_NO_TABLE.contains(code)) => {
                link.has_dead_table = false;
                if had_table {
                    self.handler.report(OutboxReport::NoDeadTable(PostgresError::from(error).to_string()));
                }
                client.batch_execute("ROLLBACK TO bury").await?;
                client.execute_typed(&self.statements.delete, &[(&bad, Type::INT8_ARRAY)]).await?;
                client.batch_execute("COMMIT").await?;
                self.handler.report(OutboxReport::PutAside(false));
                Ok(None)
            }
            Err(error) if error.code().is_none() => Err(error.into()),
            Err(error) => {
                // The finished rows stay deleted. The bad rows stay in the table, and are put aside later.
                client.batch_execute("ROLLBACK TO bury; COMMIT").await?;
                Ok(Some(format!("rows can't be put aside: {}", PostgresError::from(error))))
            }
        }
    }
}

async fn execute(link: &PartitionLink, statement: &str) -> Result<(), PostgresError> {
    Ok(link.client.client.batch_execute(statement).await?)
}

/// The properties of a table.
pub(super) struct Description {
    /// The full name of the table for SQL.
    pub(super) name: String,
    /// True if the table has the column `created_at`.
    pub(super) has_time: bool,
    /// True if the user may read the table and delete from it.
    pub(super) may_take: bool,
}

/// Looks up a table. `None` = it does not exist.
pub(super) async fn describe(
    client: &PostgresClient,
    table: &TableName,
    statements: &Statements,
) -> Result<Option<Description>, PostgresError> {
    let quoted = table.quoted();
    let described = async { Ok(client.client.query_typed(statements.describe, &[(&quoted, Type::TEXT)]).await?) };
    let rows = with_timeout(TIMEOUT, described).await?;
    Ok(rows.first().map(|row| Description { name: row.get(0), has_time: row.get(1), may_take: row.get(2) }))
}
