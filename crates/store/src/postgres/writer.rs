//! The only connection that writes. Requests that arrive during a commit form the next batch. So one commit carries
//! more requests under load.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_postgres::Statement;
use touchline_protocol::stream::RunId;

use super::address::PostgresAddress;
use super::connection::{PostgresClient, with_timeout};
use super::failure::PostgresError;
use super::lease::Lease;
use super::parts::Items;
use super::size::SharedBudget;
use super::{facts, inbox, reactions, reader, seen};
use crate::admission::admit;
use crate::batch::{Committed, WriteRequest, WriteResult};
use crate::charges;
use crate::clock::now_ms;
use crate::events::{EventSink, StoreEvent};
use crate::growth::GrowthBudget;
use crate::metrics::StoreMetrics;
use crate::migrate::PRIMARY;
use crate::publication::Append;
use crate::runs::RunBook;
use crate::settings::{PrimaryOptions, RetentionOf};

/// The interval between two deletions of old rows, and between two attempts to write to a failing database.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two deletions of old rows while there are more to delete.
const TRIM_INTERVAL_BUSY: Duration = Duration::from_millis(20);

/// The maximum number of inbox messages, facts or user times that are deleted in one step.
const TRIM_STEP_ROWS: u64 = 512;

/// The advisory lock of the node that empties the outbox: "touchbox" as a number.
const OUTBOX_LOCK: i64 = 0x746f_7563_6862_6f78;
/// Begins a transaction during which no new run begins (`touchline.enter`).
pub(super) const BEGIN: &str = "BEGIN; SELECT pg_advisory_xact_lock_shared(8390891508474246766)";
const APPEND: &str =
    "SELECT place, \"offset\", epoch, run, is_new FROM touchline.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// Lets the current run begin in a channel at an offset that was assigned before the loss was noticed. If the channel
/// has not assigned that offset yet, the run begins with its next publication.
const BEGIN_AT: &str = "WITH begun AS (UPDATE touchline.channel SET run = (SELECT max(number) FROM touchline.run) \
         WHERE name = $1 AND top >= $2 RETURNING id, run) \
     INSERT INTO touchline.channel_run AS known (channel, run, first) SELECT id, run, $2 FROM begun \
     ON CONFLICT (channel, run) DO UPDATE SET first = least(known.first, excluded.first)";

/// The writer's task with its state.
pub(super) struct PostgresWriter {
    pub(super) address: PostgresAddress,
    /// The connection and the prepared append. `None` at first and after a failure.
    link: Option<(PostgresClient, Statement)>,
    /// True once the schema has been checked.
    is_checked: bool,
    migrates: bool,
    commit_delay: Duration,
    commit_size: usize,
    /// See [`PrimaryOptions::seen_expires_s`].
    seen_expires_s: u64,
    /// See [`PrimaryOptions::reactions_expire_ms`].
    reactions_expire_ms: u64,
    pub(super) notifier: String,
    retention: RetentionOf,
    /// Notified when an application has put publications into the outbox.
    outbox_filled: Arc<Notify>,
    pub(super) events: EventSink,
    pub(super) metrics: Arc<StoreMetrics>,
    trim_at: Instant,
    random: RandomState,
    serial: u64,
    lease: Lease,
    pub(super) runs: Arc<RunBook>,
    pub(super) budget: SharedBudget,
}

impl PostgresWriter {
    pub(super) fn new(
        address: PostgresAddress,
        settings: &PrimaryOptions,
        is_checked: bool,
        events: EventSink,
        metrics: Arc<StoreMetrics>,
        runs: Arc<RunBook>,
        budget: SharedBudget,
    ) -> Self {
        PostgresWriter {
            address,
            link: None,
            is_checked,
            migrates: settings.store.migrate,
            commit_delay: settings.store.commit_delay,
            commit_size: settings.store.commit_size.max(1),
            seen_expires_s: settings.seen_expires_s,
            reactions_expire_ms: settings.reactions_expire_ms,
            notifier: settings.notifier.clone(),
            retention: RetentionOf::clone(&settings.retention),
            outbox_filled: Arc::default(),
            events,
            metrics,
            trim_at: Instant::now(),
            random: RandomState::new(),
            serial: 0,
            lease: Lease::new(settings.notifier.clone()),
            runs,
            budget,
        }
    }

    /// Serves requests until it gets a close.
    pub(super) async fn serve(mut self, requests: &mut Receiver<WriteRequest>) {
        let mut batch = Vec::new();
        let outbox_filled = Arc::clone(&self.outbox_filled);
        loop {
            tokio::select! {
                received = requests.recv_many(&mut batch, self.commit_size) => if received == 0 { return },
                () = tokio::time::sleep_until(self.trim_at) => {}
                () = outbox_filled.notified() => self.publish_outbox().await,
            }
            let until = Instant::now() + self.commit_delay;
            while !batch.is_empty() && batch.len() < self.commit_size && Instant::now() < until {
                let room = self.commit_size - batch.len();
                let _ = tokio::time::timeout_at(until, requests.recv_many(&mut batch, room)).await;
            }
            let is_over = batch.iter().any(|write| matches!(write, WriteRequest::Close));
            let rows = PostgresWriter::rows_of(&mut batch);
            if self.budget.is_limited() {
                self.budget.with(|budget| admit(&mut batch, budget, &self.events, &self.metrics));
            }
            if !batch.is_empty() {
                self.commit(&mut batch).await;
            }
            for rows in rows {
                self.append_rows(rows).await;
            }
            if is_over {
                return self.leave().await;
            }
            if Instant::now() >= self.trim_at {
                self.trim().await;
            }
        }
    }

    async fn leave(&mut self) {
        if let Some((PostgresClient { client }, _)) = &self.link
            && let Err(error) = with_timeout(self.address.timeout, self.lease.leave(client)).await
        {
            tracing::warn!(%error, "the lease in PostgreSQL could not be released: it expires by itself");
        }
    }

    async fn commit(&mut self, batch: &mut Vec<WriteRequest>) {
        let began = Instant::now();
        let result = with_timeout(self.address.timeout, self.write(batch)).await;
        self.metrics.count(WriteRequest::appends(batch), began.elapsed());
        match result {
            Ok(results) => {
                self.metrics.succeed();
                self.budget.with(GrowthBudget::settle);
                let known = self.runs.known();
                let dones =
                    batch.drain(..).zip(results).filter_map(|(write, result)| Committed::of(write, result, &known));
                let mut dones: Vec<Committed> = dones.collect();
                self.read(&mut dones).await;
                Committed::tell_all(dones, &self.events, &self.metrics);
            }
            Err(error) => {
                // It is unknown whether the batch was committed. The next look will show it.
                self.budget.with(GrowthBudget::settle);
                self.fail(&error);
                WriteRequest::refuse_all(batch, &self.events);
            }
        }
    }

    /// Reads the histories that must be reported.
    async fn read(&self, dones: &mut [Committed]) {
        let Some((PostgresClient { client }, _)) = &self.link else { return };
        for done in dones {
            let Committed::Unread(load) = done else { continue };
            let read = with_timeout(self.address.timeout, reader::history(client, load, &self.runs)).await;
            let history = read
                .inspect_err(|error| tracing::warn!(%error, "the primary database could not be read"))
                .unwrap_or_default();
            *done = Committed::Made { channel: load.channel.clone(), load: load.id, history };
        }
    }

    pub(super) async fn link(&mut self) -> Result<&(PostgresClient, Statement), PostgresError> {
        let both = match self.link.take() {
            Some(both) if !both.0.client.is_closed() => both,
            _ => {
                let outbox_filled = Arc::clone(&self.outbox_filled);
                let mut link = PostgresClient::listening(&self.address, move |_| outbox_filled.notify_one()).await?;
                if !self.is_checked {
                    link.check(&PRIMARY, self.migrates).await?;
                    self.is_checked = true;
                }
                self.runs.set(self.lease.enter(&link.client, RunId::default()).await?);
                // Without the lease, other nodes did not notify this one. After a change of the run, this node's caches
                // may contain lost publications.
                (self.events)(StoreEvent::Missed);
                let append = link.client.prepare(APPEND).await?;
                link.client.batch_execute("LISTEN touchline_outbox").await?;
                // The outbox may have been filled while this node did not listen.
                self.outbox_filled.notify_one();
                (link, append)
            }
        };
        Ok(self.link.insert(both))
    }

    /// Writes a batch in one transaction. An item that the database refuses because of its values is skipped, and the
    /// others are written.
    async fn write(&mut self, batch: &[WriteRequest]) -> Result<Vec<WriteResult>, PostgresError> {
        for write in batch {
            if let WriteRequest::BeginRun { channel, lost, first } = write {
                self.begin_run(*lost, Some((channel, first.0))).await?;
            }
        }
        match self.try_write(batch, false).await {
            Err(failure) if failure.is_of_item() => {
                self.roll_back().await?;
                self.try_write(batch, true).await
            }
            written => written,
        }
    }

    async fn try_write(&mut self, batch: &[WriteRequest], in_parts: bool) -> Result<Vec<WriteResult>, PostgresError> {
        let epochs: Vec<i64> = batch.iter().map(|_| self.next_epoch()).collect();
        let (notifier, metrics) = (self.notifier.clone(), Arc::clone(&self.metrics));
        let (PostgresClient { client }, append) = self.link().await?;
        client.batch_execute(BEGIN).await?;
        let items =
            Items { client, append, batch, epochs: &epochs, now_ms: now_ms(), notifier: &notifier, metrics: &metrics };
        let results = if in_parts { items.write_in_parts().await? } else { items.write().await? };
        client.batch_execute("COMMIT").await?;
        Ok(results)
    }

    /// Begins a new run if `bad_run` is still the current one. 0 = the database decides whether a new run is needed.
    /// The caches of this node may be of the previous run, or out of date.
    async fn begin_run(&mut self, bad_run: RunId, at: Option<(&str, u64)>) -> Result<(), PostgresError> {
        self.link().await?;
        let Some((PostgresClient { client }, _)) = &self.link else { return Ok(()) };
        client.batch_execute("BEGIN").await?;
        let known = self.lease.enter(client, bad_run).await?;
        if let Some((channel, first)) = at {
            client.execute(BEGIN_AT, &[&channel, &(first as i64)]).await?;
        }
        client.batch_execute("COMMIT").await?;
        if self.runs.set(known) {
            tracing::warn!("PostgreSQL was set back to an earlier state: clients that saw lost data start again");
        }
        (self.events)(StoreEvent::Missed);
        Ok(())
    }

    async fn roll_back(&self) -> Result<(), PostgresError> {
        if let Some((PostgresClient { client }, _)) = &self.link {
            client.batch_execute("ROLLBACK").await?;
        }
        Ok(())
    }

    /// Publishes what applications have put into the outbox, in its order. A row leaves the outbox in the transaction
    /// that stores its publication.
    async fn publish_outbox(&mut self) {
        match with_timeout(self.address.timeout, self.publish_outbox_batch()).await {
            Ok((dones, has_more)) => {
                Committed::tell_all(dones, &self.events, &self.metrics);
                if has_more {
                    self.outbox_filled.notify_one();
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    async fn publish_outbox_batch(&mut self) -> Result<(Vec<Committed>, bool), PostgresError> {
        match self.try_publish_outbox(false).await {
            Err(failure) if failure.is_of_item() => {
                self.roll_back().await?;
                self.try_publish_outbox(true).await
            }
            published => published,
        }
    }

    /// Publishes one batch of the outbox. Returns the results to report, and whether there may be more rows.
    async fn try_publish_outbox(&mut self, in_parts: bool) -> Result<(Vec<Committed>, bool), PostgresError> {
        let (now_ms, limit) = (now_ms(), i64::try_from(self.commit_size).unwrap_or(i64::MAX));
        let (retention, notifier, known) =
            (RetentionOf::clone(&self.retention), self.notifier.clone(), self.runs.known());
        let epochs: Vec<i64> = (0..self.commit_size).map(|_| self.next_epoch()).collect();
        let metrics = Arc::clone(&self.metrics);
        let (PostgresClient { client }, append) = self.link().await?;
        client.batch_execute(BEGIN).await?;
        // Only one node does this at a time, so that the order of the outbox is the order in its channels.
        let mut rows = Vec::new();
        if client.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&OUTBOX_LOCK]).await?.get(0) {
            let waiting =
                "SELECT id, channel, data, key FROM touchline.outbox WHERE refused IS NULL ORDER BY id LIMIT $1";
            rows = client.query(waiting, &[&limit]).await?;
        }
        let refuse = "UPDATE touchline.outbox SET refused = $2 WHERE id = $1";
        let (mut ids, mut batch) = (Vec::new(), Vec::new());
        for row in &rows {
            let (id, channel, data, key): (i64, &str, &str, &str) = (row.get(0), row.get(1), row.get(2), row.get(3));
            let Some(retention) = retention(channel) else {
                tracing::warn!(channel, "touchline_publish was called for a channel that is not durable");
                client.execute(refuse, &[&id, &"not durable"]).await?;
                continue;
            };
            let append = Append::from_outbox(channel, data, key, retention, now_ms);
            if append.checked_object().is_none() {
                tracing::warn!(channel, "a row of touchline.outbox does not hold a JSON object");
                client.execute(refuse, &[&id, &"not an object"]).await?;
                continue;
            }
            ids.push(id);
            batch.push(WriteRequest::Append(append));
        }
        let items =
            Items { client, append, batch: &batch, epochs: &epochs, now_ms, notifier: &notifier, metrics: &metrics };
        let results = if in_parts { items.write_in_parts().await? } else { items.write().await? };
        let (mut published, mut dones, mut spent) = (Vec::new(), Vec::new(), 0_u64);
        for ((id, write), result) in ids.into_iter().zip(batch).zip(results) {
            if matches!(result, WriteResult::Refused(_)) {
                tracing::warn!(id, "touchline_publish was called with a key or a channel that the database can't keep");
                client.execute(refuse, &[&id, &"not valid"]).await?;
                continue;
            }
            published.push(id);
            spent = spent.saturating_add(charges::of_write(&write).bytes);
            dones.extend(Committed::of(write, result, &known));
        }
        client.execute("DELETE FROM touchline.outbox WHERE id = ANY($1)", &[&published]).await?;
        client.batch_execute("COMMIT").await?;
        // The application has committed these rows, so they can no longer be refused.
        self.budget.with(|budget| budget.spend(spent));
        Ok((dones, rows.len() as i64 == limit))
    }

    pub(super) fn next_epoch(&mut self) -> i64 {
        self.serial += 1;
        self.random.hash_one(self.serial) as i64
    }

    /// Records a failure and drops the connection, because it may be unusable.
    pub(super) fn fail(&mut self, error: &PostgresError) {
        error.note(&self.metrics);
        self.link = None;
        self.trim_at = Instant::now() + TRIM_INTERVAL;
    }

    /// Deletes some of the old rows. It always writes, and so notices when a failed database works again.
    async fn trim(&mut self) {
        match with_timeout(self.address.timeout, self.try_trim()).await {
            Ok(has_more) => {
                self.metrics.succeed();
                self.outbox_filled.notify_one();
                self.trim_at = Instant::now() + if has_more { TRIM_INTERVAL_BUSY } else { TRIM_INTERVAL };
            }
            Err(error) => self.fail(&error),
        }
    }

    async fn try_trim(&mut self) -> Result<bool, PostgresError> {
        let was_failing = self.metrics.is_failing();
        self.link().await?;
        if let Some((PostgresClient { client }, _)) = &self.link
            && !self.lease.renew(client).await?
        {
            // A publication in progress may not have notified this node. `enter` waits until that publication is
            // committed, so this node reads it afterwards.
            self.begin_run(RunId::default(), None).await?;
        }
        let (seen_expires_s, reactions_expire_ms) = (self.seen_expires_s, self.reactions_expire_ms);
        let (PostgresClient { client }, _) = self.link().await?;
        if was_failing {
            client.execute("UPDATE touchline.migration SET title = title WHERE version = 1", &[]).await?;
        }
        let has_more: bool = client.query_one("SELECT touchline.trim()", &[]).await?.get(0);
        let expired = inbox::expire(client, TRIM_STEP_ROWS).await?;
        let facts = facts::expire(client, TRIM_STEP_ROWS).await?;
        let seen = match seen_expires_s {
            0 => 0,
            kept_s => seen::expire(client, (now_ms() / 1_000).saturating_sub(kept_s), TRIM_STEP_ROWS).await?,
        };
        let reactions = match reactions_expire_ms {
            0 => 0,
            kept_ms => reactions::expire(client, now_ms().saturating_sub(kept_ms), TRIM_STEP_ROWS).await?,
        };
        let count = expired.len() as u64;
        self.metrics.inbox_messages_expired.fetch_add(count, Relaxed);
        if count > 0 {
            (self.events)(StoreEvent::MessagesExpired(expired));
        }
        Ok(has_more || [count, facts, seen, reactions].contains(&TRIM_STEP_ROWS))
    }
}
