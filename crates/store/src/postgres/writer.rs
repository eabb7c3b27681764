//! The one connection that writes. What has come while a commit was under way is the next batch: the more comes, the
//! more one commit carries.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_postgres::Statement;

use super::connection::{Address, Failure, PostgresClient, in_time};
use super::lease::Lease;
use super::parts::Items;
use super::{inbox, reader};
use crate::batch::{Done, WriteRequest, WriteResult, now_ms};
use crate::migrate::PRIMARY;
use crate::runs::RunBook;
use crate::{Append, EventSink, RetentionOf, Settings, StoreEvent, StoreMetrics};

/// Between two looks at what is too old, and between two attempts to write to a database that fails.
const REST: Duration = Duration::from_secs(1);
/// The same while there is more to trim.
const HURRY: Duration = Duration::from_millis(20);

/// Letters thrown away in one step.
const STEP: u64 = 512;

/// Whoever empties the outbox has this advisory lock: "touchbox" as a number.
const POSTMAN: i64 = 0x746f_7563_6862_6f78;
/// Begins a transaction in which no new run begins (`touchline.enter`).
const BEGIN: &str = "BEGIN; SELECT pg_advisory_xact_lock_shared(8390891508474246766)";
const APPEND: &str =
    "SELECT place, \"offset\", epoch, run, is_new FROM touchline.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// Has the current run begun in a channel at an offset that was given before anybody saw that a new one was needed. One
/// that the channel has not given yet begins with what it gives next.
const BEGIN_AT: &str = "WITH begun AS (UPDATE touchline.channel SET run = (SELECT max(number) FROM touchline.run) \
         WHERE name = $1 AND top >= $2 RETURNING id, run) \
     INSERT INTO touchline.channel_run AS known (channel, run, first) SELECT id, run, $2 FROM begun \
     ON CONFLICT (channel, run) DO UPDATE SET first = least(known.first, excluded.first)";

/// The writer's task and all it owns.
pub(super) struct Writer {
    address: Address,
    /// None at first and after a failure.
    link: Option<(PostgresClient, Statement)>,
    /// The schema was looked at, now or at the start.
    is_checked: bool,
    migrates: bool,
    commit_delay: Duration,
    commit_size: usize,
    notifier: String,
    retention: RetentionOf,
    /// Somebody has put something into the outbox.
    mail: Arc<Notify>,
    hand: EventSink,
    figures: Arc<StoreMetrics>,
    trim_at: Instant,
    random: RandomState,
    serial: u64,
    lease: Lease,
    runs: Arc<RunBook>,
}

impl Writer {
    pub(super) fn new(
        address: Address,
        settings: &Settings,
        is_checked: bool,
        hand: EventSink,
        figures: Arc<StoreMetrics>,
        runs: Arc<RunBook>,
    ) -> Self {
        Writer {
            address,
            link: None,
            is_checked,
            migrates: settings.migrates,
            commit_delay: settings.commit_delay,
            commit_size: settings.commit_size.max(1),
            notifier: settings.notifier.clone(),
            retention: RetentionOf::clone(&settings.retention),
            mail: Arc::default(),
            hand,
            figures,
            trim_at: Instant::now(),
            random: RandomState::new(),
            serial: 0,
            lease: Lease::new(settings.notifier.clone()),
            runs,
        }
    }

    /// Serves until it is told to close.
    pub(super) async fn serve(mut self, written: &mut Receiver<WriteRequest>) {
        let mut batch = Vec::new();
        let mail = Arc::clone(&self.mail);
        loop {
            tokio::select! {
                received = written.recv_many(&mut batch, self.commit_size) => if received == 0 { return },
                () = tokio::time::sleep_until(self.trim_at) => {}
                () = mail.notified() => self.post().await,
            }
            let until = Instant::now() + self.commit_delay;
            while !batch.is_empty() && batch.len() < self.commit_size && Instant::now() < until {
                let room = self.commit_size - batch.len();
                let _ = tokio::time::timeout_at(until, written.recv_many(&mut batch, room)).await;
            }
            let is_over = batch.iter().any(|write| matches!(write, WriteRequest::Close));
            if !batch.is_empty() {
                self.commit(&mut batch).await;
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
            && let Err(error) = in_time(self.address.patience, self.lease.leave(client)).await
        {
            tracing::warn!(%error, "the lease in PostgreSQL could not be given up: it runs out by itself");
        }
    }

    async fn commit(&mut self, batch: &mut Vec<WriteRequest>) {
        let began = Instant::now();
        let outcome = in_time(self.address.patience, self.write(batch)).await;
        self.figures.count(batch, began.elapsed());
        match outcome {
            Ok(outcomes) => {
                self.figures.succeed();
                let known = self.runs.known();
                let dones =
                    batch.drain(..).zip(outcomes).filter_map(|(write, outcome)| Done::of(write, outcome, &known));
                let mut dones: Vec<Done> = dones.collect();
                self.read(&mut dones).await;
                Done::tell_all(dones, &self.hand, &self.figures);
            }
            Err(error) => {
                self.fail(&error);
                WriteRequest::refuse_all(batch, &self.hand);
            }
        }
    }

    /// Reads what has to be read before it is told.
    async fn read(&self, dones: &mut [Done]) {
        let Some((PostgresClient { client }, _)) = &self.link else { return };
        for done in dones {
            let Done::Unread(load) = done else { continue };
            let read = in_time(self.address.patience, reader::history(client, load, &self.runs)).await;
            let history = read
                .inspect_err(|error| tracing::warn!(%error, "the primary database could not be read"))
                .unwrap_or_default();
            *done = Done::Made { channel: load.channel.clone(), load: load.id, history };
        }
    }

    async fn link(&mut self) -> Result<&(PostgresClient, Statement), Failure> {
        let both = match self.link.take() {
            Some(both) if !both.0.client.is_closed() => both,
            _ => {
                let mail = Arc::clone(&self.mail);
                let mut link = PostgresClient::hearing(&self.address, move |_| mail.notify_one()).await?;
                if !self.is_checked {
                    link.check(&PRIMARY, self.migrates).await?;
                    self.is_checked = true;
                }
                self.runs.set(self.lease.enter(&link.client, 0).await?);
                // Before, nobody told this node what they wrote; and if there is another run, what it has in memory may
                // be of a state that is lost.
                (self.hand)(StoreEvent::Missed);
                let append = link.client.prepare(APPEND).await?;
                link.client.batch_execute("LISTEN touchline_outbox").await?;
                // What was put there while nobody listened.
                self.mail.notify_one();
                (link, append)
            }
        };
        Ok(self.link.insert(both))
    }

    /// Writes a batch in one transaction. An item that the database refuses for what it holds is left out, and the
    /// others are written.
    async fn write(&mut self, batch: &[WriteRequest]) -> Result<Vec<WriteResult>, Failure> {
        for write in batch {
            if let WriteRequest::BeginRun { channel, lost, first } = write {
                self.begin_run(*lost, Some((channel, (*first).0))).await?;
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

    async fn try_write(&mut self, batch: &[WriteRequest], in_parts: bool) -> Result<Vec<WriteResult>, Failure> {
        let epochs: Vec<i64> = batch.iter().map(|_| self.next_epoch()).collect();
        let notifier = self.notifier.clone();
        let (PostgresClient { client }, append) = self.link().await?;
        client.batch_execute(BEGIN).await?;
        let items = Items { client, append, batch, epochs: &epochs, now_ms: now_ms(), notifier: &notifier };
        let outcomes = if in_parts { items.write_in_parts().await? } else { items.write().await? };
        client.batch_execute("COMMIT").await?;
        Ok(outcomes)
    }

    /// Begins a new run, unless another has begun since the one that is known to be bad (0 = whether one is needed is
    /// to be seen). What is in memory may be of the run before, or behind.
    async fn begin_run(&mut self, bad_run: u64, at: Option<(&str, u64)>) -> Result<(), Failure> {
        self.link().await?;
        let Some((PostgresClient { client }, _)) = &self.link else { return Ok(()) };
        client.batch_execute("BEGIN").await?;
        let known = self.lease.enter(client, bad_run).await?;
        if let Some((channel, first)) = at {
            client.execute(BEGIN_AT, &[&channel, &(first as i64)]).await?;
        }
        client.batch_execute("COMMIT").await?;
        if self.runs.set(known) {
            tracing::warn!("PostgreSQL was set back to an earlier state: clients that saw what is lost begin anew");
        }
        (self.hand)(StoreEvent::Missed);
        Ok(())
    }

    async fn roll_back(&self) -> Result<(), Failure> {
        if let Some((PostgresClient { client }, _)) = &self.link {
            client.batch_execute("ROLLBACK").await?;
        }
        Ok(())
    }

    /// Publishes what applications have put into the outbox, in its order; a row leaves it in the transaction that
    /// gives it its place.
    async fn post(&mut self) {
        match in_time(self.address.patience, self.post_all()).await {
            Ok((dones, has_more)) => {
                Done::tell_all(dones, &self.hand, &self.figures);
                if has_more {
                    self.mail.notify_one();
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    async fn post_all(&mut self) -> Result<(Vec<Done>, bool), Failure> {
        match self.try_post(false).await {
            Err(failure) if failure.is_of_item() => {
                self.roll_back().await?;
                self.try_post(true).await
            }
            posted => posted,
        }
    }

    async fn try_post(&mut self, in_parts: bool) -> Result<(Vec<Done>, bool), Failure> {
        let (now_ms, most) = (now_ms(), i64::try_from(self.commit_size).unwrap_or(i64::MAX));
        let (retention, notifier, known) =
            (RetentionOf::clone(&self.retention), self.notifier.clone(), self.runs.known());
        let epochs: Vec<i64> = (0..self.commit_size).map(|_| self.next_epoch()).collect();
        let (PostgresClient { client }, append) = self.link().await?;
        client.batch_execute(BEGIN).await?;
        // One node at a time, so that the order of the outbox is the order of its channels.
        let mut rows = Vec::new();
        if client.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&POSTMAN]).await?.get(0) {
            let waiting =
                "SELECT id, channel, data, key FROM touchline.outbox WHERE refused IS NULL ORDER BY id LIMIT $1";
            rows = client.query(waiting, &[&most]).await?;
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
            ids.push(id);
            batch.push(WriteRequest::Append(Append::posted(channel, data, key, retention, now_ms)));
        }
        let items = Items { client, append, batch: &batch, epochs: &epochs, now_ms, notifier: &notifier };
        let outcomes = if in_parts { items.write_in_parts().await? } else { items.write().await? };
        let (mut posted, mut dones) = (Vec::new(), Vec::new());
        for ((id, write), outcome) in ids.into_iter().zip(batch).zip(outcomes) {
            if matches!(outcome, WriteResult::Refused(_)) {
                tracing::warn!(id, "touchline_publish was called with a key or a channel that the database can't keep");
                client.execute(refuse, &[&id, &"not valid"]).await?;
                continue;
            }
            posted.push(id);
            dones.extend(Done::of(write, outcome, &known));
        }
        client.execute("DELETE FROM touchline.outbox WHERE id = ANY($1)", &[&posted]).await?;
        client.batch_execute("COMMIT").await?;
        Ok((dones, rows.len() as i64 == most))
    }

    fn next_epoch(&mut self) -> i64 {
        self.serial += 1;
        self.random.hash_one(self.serial) as i64
    }

    /// Whether the connection is still good is not known after a failure: it is made anew.
    fn fail(&mut self, error: &Failure) {
        self.figures.fail(error);
        self.link = None;
        self.trim_at = Instant::now() + REST;
    }

    /// Lets go of some of what is too old. It writes in any case: that is how a database that has failed is seen to
    /// work again.
    async fn trim(&mut self) {
        match in_time(self.address.patience, self.try_trim()).await {
            Ok(has_more) => {
                self.figures.succeed();
                self.mail.notify_one();
                self.trim_at = Instant::now() + if has_more { HURRY } else { REST };
            }
            Err(error) => self.fail(&error),
        }
    }

    async fn try_trim(&mut self) -> Result<bool, Failure> {
        let was_failing = self.figures.is_failing();
        self.link().await?;
        if let Some((PostgresClient { client }, _)) = &self.link
            && !self.lease.renew(client).await?
        {
            // A publication that is under way may have found this node gone. Who enters waits until it is committed,
            // and only then looks.
            self.begin_run(0, None).await?;
        }
        let (PostgresClient { client }, _) = self.link().await?;
        if was_failing {
            client.execute("UPDATE touchline.migration SET title = title WHERE version = 1", &[]).await?;
        }
        let has_more: bool = client.query_one("SELECT touchline.trim()", &[]).await?.get(0);
        let expired = inbox::expire(client, STEP).await?;
        self.figures.inbox_messages_expired.fetch_add(expired, Relaxed);
        Ok(has_more || expired == STEP)
    }
}
