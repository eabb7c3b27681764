//! Consumers of an outbox in PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use touchline_lock::Lock;
use touchline_store::outbox::{
    ClaimedRows, HandledRows, OutboxLag, OutboxReport, OutboxRow, RowHandler, RowOutcome, RowsHandled,
};

use super::command::AskedCommand;
use super::exact::{ExactMode, ExactRows};
use super::execution::carry_out;
use super::outcome::EntryOutcome;
use super::retried::RetriedHeads;
use super::told::Told;
use super::{backoff, entry_key};
use crate::node::Node;

/// Carries out the rows of one consumer.
pub(super) struct OutboxConsumer {
    node: Arc<Node>,
    told: Told,
    /// One state for each partition.
    partitions: Vec<PartitionState>,
}

/// What is known of one partition.
#[derive(Default)]
struct PartitionState {
    mode: ExactMode,
    /// The rows that have failed. Only the loop of the partition uses them.
    retried: Lock<RetriedHeads>,
}

impl OutboxConsumer {
    pub(super) fn new(node: Arc<Node>, told: Told, partitions: usize) -> Self {
        let partitions = std::iter::repeat_with(PartitionState::default).take(partitions).collect();
        OutboxConsumer { node, told, partitions }
    }

    async fn carry_out(&self, claimed: ClaimedRows) -> HandledRows {
        let ClaimedRows { partition, rows, claim } = claimed;
        let name = self.told.metrics.name();
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let entries = rows.iter().map(asked).collect();
        let longest = self.node.generation().session.namespaces.settings().idempotency_key_max_length;
        let key_of = |index: usize| entry_key::of_row(name, &rows[index], longest);
        let Some(PartitionState { mode, retried }) = self.partitions.get(partition as usize) else {
            return HandledRows { outcomes: vec![RowOutcome::Kept; rows.len()], pause: None };
        };
        let exact = ExactRows { consumer: name, mode, claim, ids };
        let resting: Vec<bool> = {
            let (retried, now) = (retried.lock(), self.node.clock.time().now());
            rows.iter().map(|row| retried.rests(row.id as u64, now)).collect()
        };
        let outcomes = carry_out(&self.node, entries, |index| resting[index], &key_of, Some(&exact)).await;
        let mut retried = retried.lock();
        let (now, turn) = (self.node.clock.time().now(), rows.iter().map(|row| row.id as u64).zip(&outcomes));
        retried.settle(turn, now, || fastrand::u64(..));
        self.told.retrying(Some(partition), retried.told());
        let outcomes = rows.iter().zip(outcomes).map(|(row, outcome)| self.tell(row.id as u64, outcome)).collect();
        HandledRows { outcomes, pause: retried.pause(now) }
    }

    /// Forgets which rows of a partition have failed: they are gone, or they belong to another node.
    fn forget(&self, partition: u32) {
        if let Some(state) = self.partitions.get(partition as usize) {
            *state.retried.lock() = RetriedHeads::default();
            self.told.retrying(Some(partition), None);
        }
    }

    fn tell(&self, entry: u64, outcome: EntryOutcome) -> RowOutcome {
        match outcome {
            EntryOutcome::Done => {
                self.told.processed();
                RowOutcome::Done
            }
            EntryOutcome::Gone => {
                self.told.processed();
                RowOutcome::Gone
            }
            EntryOutcome::PassedOver(why) => {
                self.told.passed_over(entry, &why);
                RowOutcome::Done
            }
            EntryOutcome::Failed(why) => {
                self.told.failed(entry, &why);
                RowOutcome::Failed(why)
            }
            EntryOutcome::Retry(_) => {
                self.told.retried();
                RowOutcome::Kept
            }
            EntryOutcome::Waiting => RowOutcome::Kept,
        }
    }

    fn note_lag(&self, lag: OutboxLag) {
        let metrics = &self.told.metrics;
        metrics.waiting.store(lag.rows, Relaxed);
        metrics.oldest_ms.store(lag.oldest.as_millis() as u64, Relaxed);
        if metrics.unread.swap(lag.unread, Relaxed) == 0 && lag.unread > 0 {
            let (consumer, rows) = (metrics.name(), lag.unread);
            tracing::warn!(consumer, rows, "rows are in partitions that nobody reads: raise num_partitions");
        }
    }
}

/// Reads the command of a row. A row is the only copy of its command, so a misspelt method makes it a dead row.
fn asked(row: &OutboxRow) -> AskedCommand {
    match (&row.method, &row.payload) {
        (Some(method), Some(payload)) => match AskedCommand::read(method, payload) {
            AskedCommand::Nothing(why) => AskedCommand::Unreadable(why),
            command => command,
        },
        (None, _) => AskedCommand::Unreadable("the method is NULL".to_owned()),
        (_, None) => AskedCommand::Unreadable("the payload is NULL, or larger than 10 MiB".to_owned()),
    }
}

impl RowHandler for OutboxConsumer {
    fn handle(&self, rows: ClaimedRows) -> RowsHandled<'_> {
        Box::pin(self.carry_out(rows))
    }

    fn delay(&self, failures: u32) -> Duration {
        backoff::delay(failures, fastrand::u64(..))
    }

    fn report(&self, report: OutboxReport) {
        let consumer = self.told.metrics.name();
        match report {
            OutboxReport::Failing(part, cause) => self.told.failing(part, &cause),
            OutboxReport::Working(part) => {
                self.told.working(part);
                if let Some(partition) = part {
                    self.told.metrics.hold(partition, true);
                }
            }
            OutboxReport::Idle(partition, is_held) => {
                self.told.working(Some(partition));
                self.told.metrics.hold(partition, is_held);
                self.forget(partition);
            }
            OutboxReport::PutAside(true) => {}
            OutboxReport::PutAside(false) => {
                tracing::error!(consumer, "rows that cannot be carried out are gone: there is no table for them");
            }
            OutboxReport::Lag(lag) => self.note_lag(lag),
            OutboxReport::StrangeNotification => {
                tracing::debug!(consumer, "a notification does not contain the number of a partition");
            }
            OutboxReport::NoNotifications => {
                tracing::warn!(
                    consumer,
                    "a pooler gives the listening connection to other clients, so notifications do not arrive: set \
                     partition_notification_dsn to the address of the database itself"
                );
            }
            OutboxReport::NoDeadTable(cause) => {
                tracing::warn!(
                    consumer,
                    "rows that cannot be carried out will be logged and deleted: dead_table_name cannot be created or \
                     written to: {cause}"
                );
            }
        }
    }
}
