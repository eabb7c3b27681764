//! The statements of one transaction of the writer. An item that the database refuses does not make the others fail.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use touchline_protocol::stream::{Epoch, Offset, RunId, StreamPosition};

use super::failure::{PostgresError, refusal_of};
use super::numbers::signed;
use super::{directory, facts, inbox, reactions, seen};
use crate::batch::{HistoryLoad, WriteRequest, WriteResult};
use crate::metrics::StoreMetrics;
use crate::publication::Append;

/// The items of a transaction that has begun.
pub(super) struct Items<'a> {
    pub(super) client: &'a Client,
    /// The statement that stores publications and assigns their positions.
    pub(super) append: &'a Statement,
    pub(super) batch: &'a [WriteRequest],
    /// A new epoch for each item, which is used if the item creates its channel.
    pub(super) epochs: &'a [i64],
    /// The current time, Unix milliseconds.
    pub(super) now_ms: u64,
    /// The id of this node in notifications. Empty = no other node writes into the database.
    pub(super) notifier: &'a str,
    pub(super) metrics: &'a StoreMetrics,
}

impl Items<'_> {
    /// Writes all items. First, one by one, the items that are not publications, then all publications in one
    /// statement.
    ///
    /// # Errors
    /// If one item fails, all fail.
    pub(super) async fn write(&self) -> Result<Vec<WriteResult>, tokio_postgres::Error> {
        let mut results = vec![WriteResult::Nothing; self.batch.len()];
        self.write_part(&self.order(), &mut results).await?;
        Ok(results)
    }

    /// Writes the items that can be written. If a part fails because of its values, it is undone and tried again in
    /// halves, down to single items. One bad item of n costs approximately 2 log n statements.
    ///
    /// # Errors
    /// Fails if the failure does not concern an item.
    pub(super) async fn write_in_parts(&self) -> Result<Vec<WriteResult>, tokio_postgres::Error> {
        let order = self.order();
        let mut results = vec![WriteResult::Nothing; self.batch.len()];
        // The last element is processed next.
        let mut parts = vec![&*order];
        while let Some(part) = parts.pop() {
            self.client.batch_execute("SAVEPOINT part").await?;
            let Err(error) = self.write_part(part, &mut results).await else {
                self.client.batch_execute("RELEASE part").await?;
                continue;
            };
            let Some(refusal) = refusal_of(&error) else { return Err(error) };
            self.client.batch_execute("ROLLBACK TO part; RELEASE part").await?;
            if let [item] = part {
                self.metrics.refuse_item(&PostgresError::from(error));
                results[*item] = WriteResult::Refused(refusal);
            } else {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
        }
        Ok(results)
    }

    /// The indices of the items, in the order in which they are written.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.batch.len()).collect();
        order.sort_by_key(|item| lock_rank(&self.batch[*item]));
        order
    }

    async fn write_part(&self, part: &[usize], results: &mut [WriteResult]) -> Result<(), tokio_postgres::Error> {
        let (mut items, mut appends) = (Vec::new(), Vec::new());
        for &item in part {
            match &self.batch[item] {
                WriteRequest::Append(append) => {
                    items.push(item);
                    appends.push(append);
                }
                other => results[item] = self.write_one(item, other).await?,
            }
        }
        if appends.is_empty() {
            return Ok(());
        }
        let epochs: Vec<i64> = items.iter().map(|item| self.epochs[*item]).collect();
        for row in self.append_all(&appends, &epochs).await? {
            let (number, offset, epoch, run): (i64, i64, i64, i64) = (row.get(0), row.get(1), row.get(2), row.get(3));
            if let Some(item) = items.get(number as usize - 1) {
                let (offset, epoch, run) = (offset as u64, epoch as u64, run as u64);
                results[*item] = {
                    let epoch = Epoch::from_bits(epoch).in_run(RunId(run));
                    WriteResult::Appended {
                        position: StreamPosition { offset: Offset(offset), epoch },
                        is_new: row.get(4),
                    }
                };
            }
        }
        Ok(())
    }

    /// Writes an item that is not a publication.
    async fn write_one(&self, item: usize, write: &WriteRequest) -> Result<WriteResult, tokio_postgres::Error> {
        let client = self.client;
        match write {
            WriteRequest::Make(HistoryLoad { channel, meta_ttl_ms, .. }) => {
                let made = "SELECT epoch, top FROM touchline.channel_of($1, $2, touchline.now_ms() + $3)";
                let row = client.query_one(made, &[&&**channel, &self.epochs[item], &signed(*meta_ttl_ms)]).await?;
                return Ok(WriteResult::Made {
                    epoch: row.get::<_, i64>(0) as u64,
                    top: Offset(row.get::<_, i64>(1) as u64),
                });
            }
            WriteRequest::Remove { channel, .. } => {
                client
                    .execute(
                        "UPDATE touchline.channel SET oldest = top + 1, cut = top + 1, due_ms = 0 WHERE name = $1",
                        &[&&**channel],
                    )
                    .await?;
                if !self.notifier.is_empty() {
                    client
                        .execute("SELECT pg_notify('touchline', $1)", &[&format!("{} 0 {channel}", self.notifier)])
                        .await?;
                }
            }
            WriteRequest::Describe { description, weights, .. } => {
                directory::describe(client, description, weights).await?
            }
            WriteRequest::Forget { channel, .. } => directory::forget(client, channel).await?,
            WriteRequest::QueueMessage(message, _) => {
                return inbox::queue(client, message, self.now_ms, self.notifier).await.map(WriteResult::Queued);
            }
            WriteRequest::DiscardMessages { ids, .. } => inbox::discard(client, ids).await?,
            WriteRequest::DropMessages(dropped, _) => {
                return inbox::drop_messages(client, dropped).await.map(WriteResult::Dropped);
            }
            WriteRequest::ChangeFact { change, .. } => {
                return facts::change(client, change).await.map(WriteResult::FactChanged);
            }
            WriteRequest::NoteSeen { rows, .. } => seen::note(client, rows).await?,
            WriteRequest::ForgetSeen { user, .. } => {
                return seen::forget(client, user).await.map(WriteResult::SeenForgotten);
            }
            WriteRequest::KeepReactions { rows, .. } => reactions::keep(client, rows).await?,
            // A run begins before the transaction, and rows of outboxes have separate transactions.
            WriteRequest::Append(_)
            | WriteRequest::AppendRows(_)
            | WriteRequest::BeginRun { .. }
            | WriteRequest::Close => {}
        }
        Ok(WriteResult::Nothing)
    }

    /// Stores publications with one statement. Each result row contains the index of a publication and its position.
    async fn append_all(&self, all: &[&Append], epochs: &[i64]) -> Result<Vec<Row>, tokio_postgres::Error> {
        let texts = |of: fn(&Append) -> &str| all.iter().map(|append| of(append)).collect::<Vec<&str>>();
        let numbers = |of: fn(&Append) -> u64| all.iter().map(|append| signed(of(append))).collect::<Vec<i64>>();
        let objects: Vec<_> = all.iter().map(|append| append.object()).collect();
        let parameters: [&(dyn ToSql + Sync); 11] = [
            &texts(|a| &a.channel),
            &numbers(|a| a.time_ms),
            &objects.iter().map(|object| std::str::from_utf8(object).unwrap_or_default()).collect::<Vec<&str>>(),
            &texts(|a| &a.key),
            // The version is stored as a signed number; a version beyond 63 bits counts as no version.
            &all.iter().map(|append| append.version as i64).collect::<Vec<i64>>(),
            &texts(|a| &a.version_epoch),
            &numbers(|a| a.retention.size as u64),
            &numbers(|a| a.retention.ttl_ms),
            &numbers(|a| a.retention.meta_ttl_ms),
            &epochs,
            &self.notifier,
        ];
        self.client.query(self.append, &parameters).await
    }
}

/// The order for items that take locks. It is the same on every node, so that two nodes never wait for each other.
/// Publications come last, by channel.
fn lock_rank(write: &WriteRequest) -> (u8, &str, &str) {
    match write {
        WriteRequest::Describe { .. } | WriteRequest::Forget { .. } => (0, "", ""),
        WriteRequest::QueueMessage(message, _) => (1, &message.scope, &message.name),
        WriteRequest::DiscardMessages { .. }
        | WriteRequest::DropMessages(..)
        | WriteRequest::AppendRows(_)
        | WriteRequest::BeginRun { .. }
        | WriteRequest::Close => (2, "", ""),
        // All of them take the same lock.
        WriteRequest::ChangeFact { .. } => (3, "", ""),
        WriteRequest::NoteSeen { .. } => (3, "seen", ""),
        // After the records of the same node, which may concern this user.
        WriteRequest::ForgetSeen { .. } => (3, "seen", "forget"),
        WriteRequest::KeepReactions { .. } => (3, "reactions", ""),
        WriteRequest::Make(HistoryLoad { channel, .. }) | WriteRequest::Remove { channel, .. } => (4, channel, ""),
        WriteRequest::Append(append) => (5, &append.channel, ""),
    }
}
