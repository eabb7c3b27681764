//! The one connection that writes. What has come while a commit was under way is the next batch: the more comes, the more one commit carries.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::connection::{Address, Failure, Link, PATIENCE};
use crate::batch::{Done, Load, Outcome, Write, now_ms};
use crate::{Append, Figures, HEAD, Hand, Settings};

/// Between two looks at what is too old, and between two attempts to write to a database that fails.
const REST: Duration = Duration::from_secs(1);
/// The same while there is more to trim.
const HURRY: Duration = Duration::from_millis(20);

const APPEND: &str = "SELECT place, \"offset\", epoch, is_new FROM touchline.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// The writer's task and all it owns.
pub(super) struct Writer {
    address: Address,
    /// None at first and after a failure.
    link: Option<(Link, Statement)>,
    /// The schema was looked at, now or at the start.
    is_checked: bool,
    migrates: bool,
    commit_delay: Duration,
    commit_size: usize,
    notifier: String,
    hand: Hand,
    figures: Arc<Figures>,
    trim_at: Instant,
    random: RandomState,
    serial: u64,
}

impl Writer {
    pub(super) fn new(address: Address, settings: &Settings, is_checked: bool, hand: Hand, figures: Arc<Figures>) -> Self {
        Writer {
            address,
            link: None,
            is_checked,
            migrates: settings.migrates,
            commit_delay: settings.commit_delay,
            commit_size: settings.commit_size.max(1),
            notifier: settings.notifier.clone(),
            hand,
            figures,
            trim_at: Instant::now(),
            random: RandomState::new(),
            serial: 0,
        }
    }

    /// Serves until it is told to close.
    pub(super) async fn serve(mut self, mut written: Receiver<Write>) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                received = written.recv_many(&mut batch, self.commit_size) => if received == 0 { return },
                () = tokio::time::sleep_until(self.trim_at) => {}
            }
            let until = Instant::now() + self.commit_delay;
            while !batch.is_empty() && batch.len() < self.commit_size && Instant::now() < until {
                let room = self.commit_size - batch.len();
                let _ = tokio::time::timeout_at(until, written.recv_many(&mut batch, room)).await;
            }
            let is_over = batch.iter().any(|write| matches!(write, Write::Close));
            if !batch.is_empty() {
                self.commit(&mut batch).await;
            }
            if is_over {
                return;
            }
            if Instant::now() >= self.trim_at {
                self.trim().await;
            }
        }
    }

    async fn commit(&mut self, batch: &mut Vec<Write>) {
        let began = Instant::now();
        let outcome = tokio::time::timeout(PATIENCE, self.write(batch)).await.map_err(Failure::from).and_then(|written| written);
        self.figures.count(batch, began.elapsed());
        match outcome {
            Ok(outcomes) => {
                self.figures.succeed();
                batch
                    .drain(..)
                    .zip(outcomes)
                    .filter_map(|(write, outcome)| Done::of(write, outcome))
                    .for_each(|done| done.tell(&self.hand, &self.figures));
            }
            Err(error) => {
                self.fail(&error);
                batch.drain(..).for_each(|write| write.refuse(&self.hand));
            }
        }
    }

    async fn link(&mut self) -> Result<&(Link, Statement), Failure> {
        let both = match self.link.take() {
            Some(both) => both,
            None => {
                let mut link = Link::to(&self.address).await?;
                if !self.is_checked {
                    link.check(self.migrates).await?;
                    self.is_checked = true;
                }
                let append = link.client.prepare(APPEND).await?;
                (link, append)
            }
        };
        Ok(self.link.insert(both))
    }

    /// Writes a batch in one transaction: its publications in one statement, then what else there is.
    async fn write(&mut self, batch: &[Write]) -> Result<Vec<Outcome>, Failure> {
        let now_ms = now_ms();
        let epochs: Vec<i64> = batch.iter().map(|_| self.next_epoch()).collect();
        let notifier = self.notifier.clone();
        let (Link { client }, append) = self.link().await?;
        client.batch_execute("BEGIN").await?;
        let mut outcomes = vec![Outcome::Nothing; batch.len()];
        let mut appends = Vec::new();
        for (index, write) in batch.iter().enumerate() {
            match write {
                Write::Append(append) => appends.push((index, append)),
                Write::Make(Load { channel, meta_ttl_ms, .. }) => {
                    let due_ms = (now_ms + meta_ttl_ms) as i64;
                    let made = "SELECT epoch, top FROM touchline.channel_of($1, $2, $3)";
                    let row = client.query_one(made, &[&&**channel, &epochs[index], &due_ms]).await?;
                    outcomes[index] = Outcome::Made { epoch: row.get::<_, i64>(0) as u64, top: row.get::<_, i64>(1) as u64 };
                }
                Write::Remove { channel, .. } => {
                    client.execute("UPDATE touchline.channel SET oldest = top + 1, due_ms = 0 WHERE name = $1", &[&&**channel]).await?;
                    if !notifier.is_empty() {
                        client.execute("SELECT pg_notify('touchline', $1)", &[&format!("{notifier} 0 {channel}")]).await?;
                    }
                }
                Write::Close => {}
            }
        }
        if !appends.is_empty() {
            let of_appends: Vec<i64> = appends.iter().map(|(index, _)| epochs[*index]).collect();
            let all: Vec<&Append> = appends.iter().map(|(_, append)| *append).collect();
            for row in append_all(client, append, &all, &of_appends, now_ms, &notifier).await? {
                let (place, offset, epoch, is_new): (i64, i64, i64, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
                if let Some((index, _)) = appends.get(place as usize - 1) {
                    outcomes[*index] = Outcome::Placed { offset: offset as u64, epoch: epoch as u64, is_new };
                }
            }
        }
        client.batch_execute("COMMIT").await?;
        Ok(outcomes)
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

    /// Lets go of some of what is too old. It writes in any case: that is how a database that has failed is seen to work again.
    async fn trim(&mut self) {
        let trimmed = tokio::time::timeout(PATIENCE, self.try_trim()).await.map_err(Failure::from).and_then(|trimmed| trimmed);
        match trimmed {
            Ok(has_more) => {
                self.figures.succeed();
                self.trim_at = Instant::now() + if has_more { HURRY } else { REST };
            }
            Err(error) => self.fail(&error),
        }
    }

    async fn try_trim(&mut self) -> Result<bool, Failure> {
        let was_failing = !self.figures.is_healthy();
        let (Link { client }, _) = self.link().await?;
        if was_failing {
            client.execute("UPDATE touchline.migration SET title = title WHERE version = 1", &[]).await?;
        }
        Ok(client.query_one("SELECT touchline.trim($1)", &[&(now_ms() as i64)]).await?.get(0))
    }
}

/// Has all publications of a batch placed by one statement.
async fn append_all(
    client: &Client,
    statement: &Statement,
    all: &[&Append],
    epochs: &[i64],
    now_ms: u64,
    notifier: &str,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let texts = |of: fn(&Append) -> &str| all.iter().map(|append| of(append)).collect::<Vec<&str>>();
    let numbers = |of: fn(&Append) -> u64| all.iter().map(|append| of(append) as i64).collect::<Vec<i64>>();
    let parameters: [&(dyn ToSql + Sync); 12] = [
        &texts(|a| &a.channel),
        &numbers(|a| a.time_ms),
        &texts(|a| std::str::from_utf8(a.payload.get(HEAD..).unwrap_or_default()).unwrap_or_default()),
        &texts(|a| &a.key),
        &numbers(|a| a.version),
        &texts(|a| &a.version_epoch),
        &numbers(|a| a.size as u64),
        &numbers(|a| a.ttl_ms),
        &numbers(|a| a.meta_ttl_ms),
        &epochs,
        &(now_ms as i64),
        &notifier,
    ];
    client.query(statement, &parameters).await
}
