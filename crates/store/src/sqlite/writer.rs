//! The only thread that writes. Requests that arrive during a commit form the next batch. So one commit carries more
//! requests under load.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use super::channel_rows::{ChannelRows, TRIM_STEP_ROWS};
use super::connection::connect;
use super::failure::{note_damage, refusal_of, unreadable};
use super::{directory, facts, inbox, reactions, reader, seen, size};
use crate::admission::{admit, ordinary_bytes};
use crate::batch::{Committed, WriteRequest, WriteResult};
use crate::clock::now_ms;
use crate::events::{EventSink, StoreEvent};
use crate::growth::{GrowthBudget, GrowthClass, GrowthLimits};
use crate::metrics::StoreMetrics;
use crate::panics::caught;
use crate::runs::KnownRuns;
use crate::settings::PrimaryOptions;

/// The interval between two deletions of old rows, and between two attempts to write to a failing database.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two deletions of old rows while there are more to delete.
const TRIM_INTERVAL_BUSY: Duration = Duration::from_millis(20);

/// The interval between two attempts to empty the log while the database is full and a reader is active.
const EMPTY_INTERVAL: Duration = Duration::from_secs(1);

/// The writer's thread with its state.
pub(super) struct SqliteWriter {
    path: PathBuf,
    /// The connection. `None` after a failure, until the next attempt.
    connection: Option<Connection>,
    channels: ChannelRows,
    commit_delay: Duration,
    commit_size: usize,
    /// See [`PrimaryOptions::seen_expires_s`].
    seen_expires_s: u64,
    /// See [`PrimaryOptions::reactions_expire_ms`].
    reactions_expire_ms: u64,
    events: EventSink,
    metrics: Arc<StoreMetrics>,
    /// True if the log has become too long.
    is_log_long: Arc<AtomicBool>,
    trim_at: Instant,
    limits: GrowthLimits,
    budget: GrowthBudget,
    /// When the log may be emptied again to make room.
    empty_at: Instant,
    /// The source of epochs, which must differ from all earlier ones. A new state of the standard hasher is random.
    random: RandomState,
    serial: u64,
    runs: KnownRuns,
}

impl SqliteWriter {
    pub(super) fn new(
        path: PathBuf,
        connection: Connection,
        settings: &PrimaryOptions,
        events: EventSink,
        metrics: Arc<StoreMetrics>,
        is_log_long: Arc<AtomicBool>,
        runs: KnownRuns,
    ) -> Self {
        let limits = settings.growth_limits();
        metrics.size.limit_to(limits);
        let (commit_delay, commit_size) = (settings.store.commit_delay, settings.store.commit_size.max(1));
        SqliteWriter {
            path,
            connection: Some(connection),
            channels: ChannelRows::new(runs.last().copied().unwrap_or_default()),
            commit_delay,
            commit_size,
            seen_expires_s: settings.seen_expires_s,
            reactions_expire_ms: settings.reactions_expire_ms,
            events,
            metrics,
            is_log_long,
            trim_at: Instant::now(),
            limits,
            budget: GrowthBudget::new(limits),
            empty_at: Instant::now(),
            random: RandomState::new(),
            serial: 0,
            runs,
        }
    }

    /// Serves requests until it gets a close.
    pub(super) fn serve(mut self, requests: &Receiver<WriteRequest>) {
        let mut batch = Vec::new();
        loop {
            let timeout = self.trim_at.saturating_duration_since(Instant::now());
            match requests.recv_timeout(timeout) {
                Ok(write) => batch.push(write),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !batch.is_empty() {
                self.fill(&mut batch, requests);
            }
            let is_over = batch.iter().any(|write| matches!(write, WriteRequest::Close));
            if self.limits.are_set() && !batch.is_empty() {
                self.make_room(&batch);
                admit(&mut batch, &mut self.budget, &self.events, &self.metrics);
            }
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

    /// Adds the waiting requests to a batch, and waits for more during the commit delay.
    fn fill(&self, batch: &mut Vec<WriteRequest>, requests: &Receiver<WriteRequest>) {
        let until = Instant::now() + self.commit_delay;
        while batch.len() < self.commit_size {
            match requests.try_recv() {
                Ok(write) => batch.push(write),
                Err(_) => match requests.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(write) => batch.push(write),
                    Err(_) => return,
                },
            }
        }
    }

    /// Looks at the size of the database, and empties the log if a batch has no room beside it.
    fn make_room(&mut self, batch: &[WriteRequest]) {
        let Some(log) = self.look() else { return };
        let is_wanted = log > 0 && ordinary_bytes(batch) > self.budget.room(GrowthClass::Ordinary).0;
        if is_wanted || self.is_log_in_the_way(log) {
            self.give_log_back();
        }
    }

    /// Whether a log takes too much of a short disk: removals, bans and the next start need its space.
    fn is_log_in_the_way(&self, log: u64) -> bool {
        log >= size::LOG_WORTH && self.budget.is_disk_near()
    }

    /// Empties the log, and looks again.
    fn give_log_back(&mut self) {
        if self.empty_at > Instant::now() {
            return;
        }
        self.empty_at = Instant::now() + EMPTY_INTERVAL;
        if let Some(connection) = &self.connection {
            match size::empty_log(connection) {
                Ok(true) => self.empty_at = Instant::now(),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the log of the primary database could not be emptied"),
            }
        }
        self.look();
    }

    /// Looks at the size of the database. Returns the size of its log in bytes. `None` = the look failed, and the next
    /// write reports the reason.
    fn look(&mut self) -> Option<u64> {
        if self.connection.is_none() {
            self.connection = connect(&self.path).ok();
        }
        let (reading, log) = size::look(self.connection.as_ref()?, &self.path).ok()?;
        self.budget.begin_look();
        self.budget.end_look(reading);
        self.metrics.size.note(&self.budget);
        Some(log)
    }

    /// Writes a batch in one transaction, then reports all results.
    fn commit(&mut self, batch: &mut Vec<WriteRequest>) {
        let began = Instant::now();
        let result = caught(|| self.write(batch)).unwrap_or_else(|panicked| Err(unreadable(panicked)));
        self.metrics.count(WriteRequest::appends(batch), began.elapsed());
        match result {
            Ok(results) => {
                self.metrics.succeed();
                self.budget.settle();
                let dones =
                    batch.drain(..).zip(results).filter_map(|(write, result)| Committed::of(write, result, &self.runs));
                Committed::tell_all(dones.map(|done| self.read(done)), &self.events, &self.metrics);
                self.empty_log();
            }
            Err(error) => {
                self.budget.give_back();
                self.fail(&error);
                WriteRequest::refuse_all(batch, &self.events);
            }
        }
    }

    /// Reads a history that must be reported.
    fn read(&self, done: Committed) -> Committed {
        let (Committed::Unread(load), Some(connection)) = (&done, &self.connection) else { return done };
        let read = caught(|| reader::history(connection, load, &self.runs))
            .unwrap_or_else(|panicked| Err(unreadable(panicked)));
        let history = read
            .inspect_err(|error| tracing::warn!(%error, "the primary database could not be read"))
            .unwrap_or_default();
        Committed::Made { channel: load.channel.clone(), load: load.id, history }
    }

    /// Writes a batch in one transaction. An item that the database refuses because of its values is skipped, and the
    /// others are written.
    fn write(&mut self, batch: &[WriteRequest]) -> rusqlite::Result<Vec<WriteResult>> {
        let mut results = vec![WriteResult::Nothing; batch.len()];
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.path)?,
        };
        let written = self.write_all(&mut connection, batch, &mut results);
        self.connection = Some(connection);
        written.map(|()| results)
    }

    fn write_all(
        &mut self,
        connection: &mut Connection,
        batch: &[WriteRequest],
        results: &mut [WriteResult],
    ) -> rusqlite::Result<()> {
        let now_ms = now_ms();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        match self.write_part(&transaction, batch, results, now_ms) {
            Err(error) if refusal_of(&error).is_some() => {
                transaction.rollback()?;
                self.channels.forget();
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                self.write_in_parts(&transaction, batch, results, now_ms)?;
                transaction.commit()
            }
            written => written.and_then(|()| transaction.commit()),
        }
    }

    /// Writes the items that can be written. If a part fails because of its values, it is undone and tried again in
    /// halves, down to single items.
    fn write_in_parts(
        &mut self,
        connection: &Connection,
        batch: &[WriteRequest],
        results: &mut [WriteResult],
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        // The last element is processed next.
        let mut parts = vec![(batch, results)];
        while let Some((part, results)) = parts.pop() {
            connection.execute_batch("SAVEPOINT part")?;
            let Err(error) = self.write_part(connection, part, results, now_ms) else {
                connection.execute_batch("RELEASE part")?;
                continue;
            };
            let Some(refusal) = refusal_of(&error) else { return Err(error) };
            connection.execute_batch("ROLLBACK TO part; RELEASE part")?;
            self.channels.forget();
            if part.len() == 1 {
                tracing::debug!(%error, "the primary database refuses an item of a batch");
                results.fill(WriteResult::Refused(refusal));
            } else {
                let (first, second) = part.split_at(part.len() / 2);
                let (of_first, of_second) = results.split_at_mut(first.len());
                parts.extend([(second, of_second), (first, of_first)]);
            }
        }
        Ok(())
    }

    /// Writes all items of a part. If one item fails, all fail.
    fn write_part(
        &mut self,
        connection: &Connection,
        part: &[WriteRequest],
        results: &mut [WriteResult],
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        for (write, result) in part.iter().zip(results) {
            self.serial += 1;
            let epoch = self.random.hash_one(self.serial);
            *result = match write {
                WriteRequest::Append(append) => self.channels.append(connection, append, now_ms, epoch)?,
                WriteRequest::Make(load) => {
                    self.channels.make(connection, &load.channel, epoch, now_ms.saturating_add(load.meta_ttl_ms))?
                }
                WriteRequest::Remove { channel, .. } => self.channels.remove(connection, channel)?,
                WriteRequest::Describe { description, weights, .. } => {
                    directory::describe(connection, description, weights)?;
                    WriteResult::Nothing
                }
                WriteRequest::Forget { channel, .. } => {
                    directory::forget(connection, channel)?;
                    WriteResult::Nothing
                }
                WriteRequest::QueueMessage(message, _) => WriteResult::Queued(inbox::queue(connection, message)?),
                WriteRequest::DiscardMessages { ids, .. } => {
                    inbox::discard(connection, ids)?;
                    WriteResult::Nothing
                }
                WriteRequest::DropMessages(dropped, _) => {
                    WriteResult::Dropped(inbox::drop_messages(connection, dropped)?)
                }
                WriteRequest::ChangeFact { change, .. } => {
                    facts::change(connection, change)?;
                    WriteResult::FactChanged(self.serial)
                }
                WriteRequest::NoteSeen { rows, .. } => {
                    seen::note(connection, rows)?;
                    WriteResult::Nothing
                }
                WriteRequest::ForgetSeen { user, .. } => WriteResult::SeenForgotten(seen::forget(connection, user)?),
                WriteRequest::KeepReactions { rows, .. } => {
                    reactions::keep(connection, rows)?;
                    WriteResult::Nothing
                }
                // No other process writes to the file, so the run does not change. There is no outbox in this file.
                WriteRequest::AppendRows(_) | WriteRequest::BeginRun { .. } | WriteRequest::Close => {
                    WriteResult::Nothing
                }
            };
        }
        self.channels.write_changed(connection)
    }

    /// Records a failure. The connection and the cache of channels may be wrong afterwards, so both are dropped.
    fn fail(&mut self, error: &rusqlite::Error) {
        note_damage(error, &self.metrics);
        self.metrics.fail(error);
        self.connection = None;
        self.channels.forget();
        self.trim_at = Instant::now() + TRIM_INTERVAL;
    }

    /// Deletes some of the old rows. It always writes, and so notices when a failed database works again.
    fn trim(&mut self) {
        // This also runs after a failure: a full disk may have room once the log is empty.
        if let Some(log) = self.look()
            && self.is_log_in_the_way(log)
        {
            self.give_log_back();
        }
        let trimmed = caught(|| self.try_trim()).unwrap_or_else(|panicked| Err(unreadable(panicked)));
        match trimmed {
            Ok(has_more) => {
                self.metrics.succeed();
                self.look();
                self.trim_at = Instant::now() + if has_more { TRIM_INTERVAL_BUSY } else { TRIM_INTERVAL };
            }
            Err(error) => self.fail(&error),
        }
    }

    fn try_trim(&mut self) -> rusqlite::Result<bool> {
        let was_failing = self.metrics.is_failing();
        if self.connection.is_none() {
            self.connection = Some(connect(&self.path)?);
        }
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let has_more = self.channels.trim(&transaction, now_ms())?;
        let expired = inbox::expire(&transaction, now_ms(), TRIM_STEP_ROWS)?;
        let facts = facts::expire(&transaction, now_ms() / 1_000, TRIM_STEP_ROWS)?;
        let seen = match self.seen_expires_s {
            0 => 0,
            kept_s => seen::expire(&transaction, (now_ms() / 1_000).saturating_sub(kept_s), TRIM_STEP_ROWS)?,
        };
        let reactions = match self.reactions_expire_ms {
            0 => 0,
            kept_ms => reactions::expire(&transaction, now_ms().saturating_sub(kept_ms), TRIM_STEP_ROWS)?,
        };
        if was_failing {
            transaction.execute("UPDATE touchline_migration SET title = title WHERE version = 1", [])?;
        }
        transaction.commit()?;
        let count = expired.len() as u64;
        self.metrics.inbox_messages_expired.fetch_add(count, Relaxed);
        if count > 0 {
            (self.events)(StoreEvent::MessagesExpired(expired));
        }
        Ok(has_more || [count, facts, seen, reactions].contains(&TRIM_STEP_ROWS))
    }

    /// Empties the log if it has become too long. Publishers wait meanwhile.
    fn empty_log(&mut self) {
        if let Some(connection) = &self.connection
            && self.is_log_long.swap(false, Relaxed)
            && let Err(error) = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
        {
            tracing::warn!(%error, "the log of the primary database could not be emptied");
        }
    }
}
