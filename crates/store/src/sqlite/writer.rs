//! The one thread that writes. What has come while a commit was under way is the next batch: the more comes, the more
//! one commit carries.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use super::channel_rows::{ChannelRows, STEP};
use super::{connect, directory, inbox, note_damage, reader, refusal_of, unreadable};
use crate::batch::{Done, WriteRequest, WriteResult, now_ms};
use crate::panics::caught;
use crate::runs::KnownRuns;
use crate::{EventSink, Settings, StoreMetrics};

/// Between two looks at what is too old, and between two attempts to write to a database that fails.
const REST: Duration = Duration::from_secs(1);
/// The same while there is more to trim.
const HURRY: Duration = Duration::from_millis(20);

/// The writer's thread and all it owns.
pub(super) struct Writer {
    path: PathBuf,
    /// None after a failure, until the next attempt.
    connection: Option<Connection>,
    ledger: ChannelRows,
    commit_delay: Duration,
    commit_size: usize,
    hand: EventSink,
    figures: Arc<StoreMetrics>,
    /// The log has become too long.
    is_log_long: Arc<AtomicBool>,
    trim_at: Instant,
    /// Makes epochs, which must be unlike those of any earlier life: a fresh state of the standard hasher is random.
    random: RandomState,
    serial: u64,
    runs: KnownRuns,
}

impl Writer {
    pub(super) fn new(
        path: PathBuf,
        connection: Connection,
        settings: &Settings,
        hand: EventSink,
        figures: Arc<StoreMetrics>,
        is_log_long: Arc<AtomicBool>,
        runs: KnownRuns,
    ) -> Self {
        let (commit_delay, commit_size) = (settings.commit_delay, settings.commit_size.max(1));
        Writer {
            path,
            connection: Some(connection),
            ledger: ChannelRows::new(runs.last().copied().unwrap_or_default()),
            commit_delay,
            commit_size,
            hand,
            figures,
            is_log_long,
            trim_at: Instant::now(),
            random: RandomState::new(),
            serial: 0,
            runs,
        }
    }

    /// Serves until it is told to close.
    pub(super) fn serve(mut self, written: &Receiver<WriteRequest>) {
        let mut batch = Vec::new();
        loop {
            let patience = self.trim_at.saturating_duration_since(Instant::now());
            match written.recv_timeout(patience) {
                Ok(write) => batch.push(write),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !batch.is_empty() {
                self.fill(&mut batch, written);
            }
            let is_over = batch.iter().any(|write| matches!(write, WriteRequest::Close));
            if !batch.is_empty() {
                self.commit(&mut batch);
            }
            if is_over {
                return;
            }
            if Instant::now() >= self.trim_at {
                self.trim();
            }
        }
    }

    /// Takes what waits, and waits for more if it is to.
    fn fill(&self, batch: &mut Vec<WriteRequest>, written: &Receiver<WriteRequest>) {
        let until = Instant::now() + self.commit_delay;
        while batch.len() < self.commit_size {
            match written.try_recv() {
                Ok(write) => batch.push(write),
                Err(_) => match written.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(write) => batch.push(write),
                    Err(_) => return,
                },
            }
        }
    }

    /// Writes a batch in one transaction, then tells everybody.
    fn commit(&mut self, batch: &mut Vec<WriteRequest>) {
        let began = Instant::now();
        let outcome = caught(|| self.write(batch)).unwrap_or_else(|panicked| Err(unreadable(panicked)));
        self.figures.count(batch, began.elapsed());
        match outcome {
            Ok(outcomes) => {
                self.figures.succeed();
                let dones =
                    batch.drain(..).zip(outcomes).filter_map(|(write, outcome)| Done::of(write, outcome, &self.runs));
                Done::tell_all(dones.map(|done| self.read(done)), &self.hand, &self.figures);
                self.empty_log();
            }
            Err(error) => {
                self.fail(&error);
                WriteRequest::refuse_all(batch, &self.hand);
            }
        }
    }

    /// Reads what has to be read before it is told.
    fn read(&self, done: Done) -> Done {
        let (Done::Unread(load), Some(connection)) = (&done, &self.connection) else { return done };
        let read = caught(|| reader::history(connection, load, &self.runs))
            .unwrap_or_else(|panicked| Err(unreadable(panicked)));
        let history = read
            .inspect_err(|error| tracing::warn!(%error, "the primary database could not be read"))
            .unwrap_or_default();
        Done::Made { channel: load.channel.clone(), load: load.id, history }
    }

    /// Writes a batch in one transaction. An item that the database refuses for what it holds is left out, and the
    /// others are written.
    fn write(&mut self, batch: &[WriteRequest]) -> rusqlite::Result<Vec<WriteResult>> {
        let mut outcomes = vec![WriteResult::Nothing; batch.len()];
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.path)?,
        };
        let written = self.write_all(&mut connection, batch, &mut outcomes);
        self.connection = Some(connection);
        written.map(|()| outcomes)
    }

    fn write_all(
        &mut self,
        connection: &mut Connection,
        batch: &[WriteRequest],
        outcomes: &mut [WriteResult],
    ) -> rusqlite::Result<()> {
        let now_ms = now_ms();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        match self.write_part(&transaction, batch, outcomes, now_ms) {
            Err(error) if refusal_of(&error).is_some() => {
                transaction.rollback()?;
                self.ledger.forget();
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                self.write_in_parts(&transaction, batch, outcomes, now_ms)?;
                transaction.commit()
            }
            written => written.and_then(|()| transaction.commit()),
        }
    }

    /// Does what can be done: a part that fails by what is in it is undone and tried again in halves, down to the items
    /// that fail alone.
    fn write_in_parts(
        &mut self,
        connection: &Connection,
        batch: &[WriteRequest],
        outcomes: &mut [WriteResult],
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        // The last is the next.
        let mut parts = vec![(batch, outcomes)];
        while let Some((part, outcomes)) = parts.pop() {
            connection.execute_batch("SAVEPOINT part")?;
            let Err(error) = self.write_part(connection, part, outcomes, now_ms) else {
                connection.execute_batch("RELEASE part")?;
                continue;
            };
            let Some(refusal) = refusal_of(&error) else { return Err(error) };
            connection.execute_batch("ROLLBACK TO part; RELEASE part")?;
            self.ledger.forget();
            if part.len() == 1 {
                tracing::debug!(%error, "the primary database refuses an item of a batch");
                outcomes.fill(WriteResult::Refused(refusal));
            } else {
                let (first, second) = part.split_at(part.len() / 2);
                let (of_first, of_second) = outcomes.split_at_mut(first.len());
                parts.extend([(second, of_second), (first, of_first)]);
            }
        }
        Ok(())
    }

    /// Does all of it; when one item fails, all do.
    fn write_part(
        &mut self,
        connection: &Connection,
        part: &[WriteRequest],
        outcomes: &mut [WriteResult],
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        for (write, outcome) in part.iter().zip(outcomes) {
            self.serial += 1;
            let epoch = self.random.hash_one(self.serial);
            *outcome = match write {
                WriteRequest::Append(append) => self.ledger.append(connection, append, now_ms, epoch)?,
                WriteRequest::Make(load) => {
                    self.ledger.make(connection, &load.channel, epoch, now_ms.saturating_add(load.meta_ttl_ms))?
                }
                WriteRequest::Remove { channel, .. } => self.ledger.remove(connection, channel)?,
                WriteRequest::Describe { description, weights, .. } => {
                    directory::describe(connection, description, weights)?;
                    WriteResult::Nothing
                }
                WriteRequest::Forget { channel, .. } => {
                    directory::forget(connection, channel)?;
                    WriteResult::Nothing
                }
                WriteRequest::QueueMessage(letter, _) => WriteResult::Queued(inbox::post(connection, letter)?),
                WriteRequest::DiscardMessages { ids, .. } => {
                    inbox::discard(connection, ids)?;
                    WriteResult::Nothing
                }
                // Nobody but this process writes to the file.
                WriteRequest::BeginRun { .. } | WriteRequest::Close => WriteResult::Nothing,
            };
        }
        self.ledger.settle(connection)
    }

    /// What the connection and the ledger believe is worth nothing after a failure: both begin anew.
    fn fail(&mut self, error: &rusqlite::Error) {
        note_damage(error, &self.figures);
        self.figures.fail(error);
        self.connection = None;
        self.ledger.forget();
        self.trim_at = Instant::now() + REST;
    }

    /// Lets go of some of what is too old. It writes something in any case: that is how a database that has failed is
    /// seen to work again.
    fn trim(&mut self) {
        let trimmed = caught(|| self.try_trim()).unwrap_or_else(|panicked| Err(unreadable(panicked)));
        match trimmed {
            Ok(has_more) => {
                self.figures.succeed();
                self.trim_at = Instant::now() + if has_more { HURRY } else { REST };
            }
            Err(error) => self.fail(&error),
        }
    }

    fn try_trim(&mut self) -> rusqlite::Result<bool> {
        let was_failing = self.figures.is_failing();
        if self.connection.is_none() {
            self.connection = Some(connect(&self.path)?);
        }
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let has_more = self.ledger.trim(&transaction, now_ms())?;
        let expired = inbox::expire(&transaction, now_ms(), STEP)?;
        if was_failing {
            transaction.execute("UPDATE touchline_migration SET title = title WHERE version = 1", [])?;
        }
        transaction.commit()?;
        self.figures.inbox_messages_expired.fetch_add(expired, Relaxed);
        Ok(has_more || expired == STEP)
    }

    /// Empties the log if it has become too long: the one time that publishers wait for that.
    fn empty_log(&mut self) {
        if let Some(connection) = &self.connection
            && self.is_log_long.swap(false, Relaxed)
            && let Err(error) = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
        {
            tracing::warn!(%error, "the log of the primary database could not be emptied");
        }
    }
}
