//! Publications together with the outbox rows that they come from. One transaction of the writer deletes the rows and
//! assigns the positions of the publications.
//!
//! The writer checks that the consumer's transaction holds the lock of the partition *in this database*. So rows of an
//! outbox elsewhere, or of a node that was frozen and has lost its lock, are not touched. A row that is deleted in the
//! same transaction is stored once, even if another node also tries.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connection::{PostgresClient, with_timeout};
use super::failure::PostgresError;
use super::parts::Items;
use super::writer::{BEGIN, PostgresWriter};
use crate::batch::{Committed, WriteRequest, WriteResult};
use crate::charges;
use crate::clock::now_ms;
use crate::growth::{GrowthBudget, GrowthCharge, GrowthClass};
use crate::outbox::types::RowClaim;
use crate::publication::Append;
use crate::refusal::StoreRefusal;
use crate::row_appends::{RowAppends, RowsRefusal};

/// Whether a process of this database holds an advisory lock of 64 bits.
const IS_HELD: &str = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1 \
     AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = $2 \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// The result of one transaction.
type RowsTaken = Result<Vec<Committed>, RowsRefusal>;

impl PostgresWriter {
    /// Removes the appends of rows from a batch.
    pub(super) fn rows_of(batch: &mut Vec<WriteRequest>) -> Vec<RowAppends> {
        let is_of_rows = |write: &WriteRequest| matches!(write, WriteRequest::AppendRows(_));
        if !batch.iter().any(is_of_rows) {
            return Vec::new();
        }
        let taken = batch.extract_if(.., |write| is_of_rows(write));
        taken.filter_map(|write| if let WriteRequest::AppendRows(rows) = write { Some(rows) } else { None }).collect()
    }

    /// Deletes rows and stores their publications: all of them or none.
    pub(super) async fn append_rows(&mut self, rows: RowAppends) {
        let RowAppends { claim, rows, done } = rows;
        let bytes = rows.iter().map(|(_, append)| charges::of_append(append)).sum();
        if self.budget.is_limited()
            && self.budget.with(|budget| budget.charge(GrowthCharge { class: GrowthClass::Ordinary, bytes })).is_err()
        {
            self.metrics.size.refused.fetch_add(rows.len() as u64, Relaxed);
            self.budget.with(|budget| self.metrics.size.note(budget));
            return done(Err(StoreRefusal::DatabaseFull.into()));
        }
        let (ids, appends): (Vec<i64>, Vec<Append>) = rows.into_iter().unzip();
        let batch = appends.into_iter().map(WriteRequest::Append).collect();
        let appended = with_timeout(self.address.timeout, self.try_append_rows(&claim, &ids, batch)).await;
        self.budget.with(GrowthBudget::settle);
        match appended {
            Ok(Ok(committed)) => {
                self.metrics.succeed();
                Committed::tell_all(committed, &self.events, &self.metrics);
                done(Ok(()));
            }
            Ok(Err(refusal)) => done(Err(refusal)),
            Err(error) => {
                self.fail(&error);
                done(Err(StoreRefusal::Failed.into()));
            }
        }
    }

    async fn try_append_rows(
        &mut self,
        claim: &RowClaim,
        ids: &[i64],
        batch: Vec<WriteRequest>,
    ) -> Result<RowsTaken, PostgresError> {
        let epochs: Vec<i64> = batch.iter().map(|_| self.next_epoch()).collect();
        let (notifier, metrics, known) = (self.notifier.clone(), Arc::clone(&self.metrics), self.runs.known());
        let (PostgresClient { client }, append) = self.link().await?;
        client.batch_execute(BEGIN).await?;
        let there = match take(client, claim, ids).await? {
            Ok(there) => there,
            Err(refusal) => {
                client.batch_execute("ROLLBACK").await?;
                return Ok(Err(refusal));
            }
        };
        let (ids, batch): (Vec<i64>, Vec<WriteRequest>) =
            ids.iter().copied().zip(batch).filter(|(id, _)| there.contains(id)).unzip();
        let items = Items {
            client,
            append,
            batch: &batch,
            epochs: &epochs[..batch.len()],
            now_ms: now_ms(),
            notifier: &notifier,
            metrics: &metrics,
        };
        match items.write().await.map_err(PostgresError::from) {
            Ok(results) => {
                client.batch_execute("COMMIT").await?;
                let committed = batch.into_iter().zip(results);
                Ok(Ok(committed.filter_map(|(write, result)| Committed::of(write, result, &known)).collect()))
            }
            Err(error) if error.is_of_item() => {
                // The second transaction is always rolled back. It only finds out which rows are bad.
                client.batch_execute("ROLLBACK").await?;
                client.batch_execute(BEGIN).await?;
                let results = items.write_in_parts().await?;
                client.batch_execute("ROLLBACK").await?;
                let is_bad = |result: &WriteResult| matches!(result, WriteResult::Refused(_));
                let bad = ids.into_iter().zip(results).filter(|(_, result)| is_bad(result)).map(|(id, _)| id);
                Ok(Err(RowsRefusal::Invalid(bad.collect())))
            }
            Err(error) => Err(error),
        }
    }
}

/// Deletes rows within a transaction. Returns the ids of those that existed.
async fn take(
    client: &Client,
    claim: &RowClaim,
    ids: &[i64],
) -> Result<Result<HashSet<i64>, RowsRefusal>, PostgresError> {
    let held = client.query_typed(IS_HELD, &[(&claim.backend, Type::INT4), (&claim.lock, Type::INT8)]).await?;
    if !held.first().is_some_and(|row| row.get(0)) {
        return Ok(Err(RowsRefusal::OtherDatabase));
    }
    let delete = format!("DELETE FROM {} WHERE id = ANY($1) RETURNING id::bigint", claim.table);
    match client.query_typed(&delete, &[(&ids, Type::INT8_ARRAY)]).await {
        Ok(rows) => Ok(Ok(rows.iter().map(|row| row.get(0)).collect())),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let told = error.as_db_error().map_or_else(String::new, |error| error.message().to_owned());
            Ok(Err(RowsRefusal::NotPermitted(told)))
        }
        Err(error) => Err(error.into()),
    }
}
