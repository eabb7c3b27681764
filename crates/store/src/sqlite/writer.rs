//! The one thread that writes. What has come while a commit was under way is the next batch: the more comes, the more one commit carries.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{Connection, TransactionBehavior};

use super::ledger::{Appended, Ledger};
use super::{Hand, Load, Write, connect};
use crate::{Figures, History, Incoming, OnPlaced, Refusal, Settings};

/// Between two looks at what is too old, and between two attempts to write to a database that fails.
const REST: Duration = Duration::from_secs(1);
/// The same while there is more to trim.
const HURRY: Duration = Duration::from_millis(20);

/// The writer's thread and all it owns.
pub(super) struct Writer {
    path: PathBuf,
    /// None after a failure, until the next attempt.
    connection: Option<Connection>,
    ledger: Ledger,
    commit_delay: Duration,
    commit_size: usize,
    hand: Hand,
    figures: Arc<Figures>,
    /// The log has become too long.
    is_log_long: Arc<AtomicBool>,
    trim_at: Instant,
    random: u64,
}

/// What a write came to, told when it is on disk.
enum Done {
    Append(Appended, OnPlaced, Arc<str>, bytes::Bytes),
    Remove(crate::OnDone),
    Made { channel: Arc<str>, behind: u64, epoch: u64, top: u64 },
}

impl Writer {
    pub(super) fn new(
        path: PathBuf,
        connection: Connection,
        settings: &Settings,
        hand: Hand,
        figures: Arc<Figures>,
        is_log_long: Arc<AtomicBool>,
    ) -> Self {
        let (commit_delay, commit_size) = (settings.commit_delay, settings.commit_size.max(1));
        // Epochs must be unlike those of any earlier life: a fresh state of the standard hasher is random.
        let random = RandomState::new().hash_one(now_ms());
        Writer {
            path,
            connection: Some(connection),
            ledger: Ledger::default(),
            commit_delay,
            commit_size,
            hand,
            figures,
            is_log_long,
            trim_at: Instant::now(),
            random,
        }
    }

    /// Serves until it is told to close.
    pub(super) fn serve(mut self, written: &Receiver<Write>) {
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
            let is_over = batch.iter().any(|write| matches!(write, Write::Close));
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
    fn fill(&self, batch: &mut Vec<Write>, written: &Receiver<Write>) {
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
    fn commit(&mut self, batch: &mut Vec<Write>) {
        let began = Instant::now();
        let appends = batch.iter().filter(|write| matches!(write, Write::Append(_))).count() as u64;
        let outcome = self.write(batch);
        self.figures.waiting.fetch_sub(appends, Relaxed);
        self.figures.commits.fetch_add(1, Relaxed);
        self.figures.commit_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        match outcome {
            Ok(dones) => {
                self.succeed();
                batch.clear();
                dones.into_iter().for_each(|done| self.tell(done));
                self.empty_log();
            }
            Err(error) => {
                self.fail(&error);
                batch.drain(..).for_each(|write| self.refuse(write));
            }
        }
    }

    fn write(&mut self, batch: &mut Vec<Write>) -> rusqlite::Result<Vec<Done>> {
        if self.connection.is_none() {
            self.connection = Some(connect(&self.path)?);
        }
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now_ms = now_ms();
        let mut outcomes = Vec::with_capacity(batch.len());
        for write in batch.iter() {
            let epoch = next_random(&mut self.random);
            outcomes.push(match write {
                Write::Append(append) => Some(Ok(self.ledger.append(&transaction, append, now_ms, epoch)?)),
                Write::Make(load) => Some(Err(self.ledger.make(&transaction, &load.channel, epoch, now_ms + load.meta_ttl_ms)?)),
                Write::Remove { channel, .. } => {
                    self.ledger.remove(&transaction, channel)?;
                    None
                }
                Write::Close => None,
            });
        }
        self.ledger.settle(&transaction)?;
        transaction.commit()?;
        let done = |(write, outcome)| match (write, outcome) {
            (Write::Append(append), Some(Ok(appended))) => Some(Done::Append(appended, append.done, append.channel, append.payload)),
            (Write::Make(load), Some(Err((epoch, top)))) => Some(Done::Made { channel: load.channel, behind: load.behind, epoch, top }),
            (Write::Remove { done, .. }, _) => Some(Done::Remove(done)),
            _ => None,
        };
        Ok(batch.drain(..).zip(outcomes).filter_map(done).collect())
    }

    fn tell(&self, done: Done) {
        match done {
            Done::Append(Appended { placed, is_new }, done, channel, payload) => {
                if is_new {
                    self.figures.stored.fetch_add(1, Relaxed);
                    (self.hand)(Incoming::Stored { channel, placed, payload });
                }
                done(Ok(placed));
            }
            Done::Remove(done) => done(Ok(())),
            Done::Made { channel, behind, epoch, top } => {
                // Somebody may have published meanwhile: then it has to be asked for again.
                let history = (top == 0).then_some(History { epoch, top, floor: 0, kept: Vec::new() });
                (self.hand)(Incoming::Loaded { channel, behind, history });
            }
        }
    }

    fn refuse(&self, write: Write) {
        match write {
            Write::Append(append) => (append.done)(Err(Refusal::Failed)),
            Write::Remove { done, .. } => done(Err(Refusal::Failed)),
            Write::Make(Load { channel, behind, .. }) => (self.hand)(Incoming::Loaded { channel, behind, history: None }),
            Write::Close => {}
        }
    }

    fn succeed(&self) {
        if self.figures.is_failing.swap(false, Relaxed) {
            tracing::info!("the primary database works again");
        }
    }

    /// What the connection and the ledger believe is worth nothing after a failure: both begin anew.
    fn fail(&mut self, error: &rusqlite::Error) {
        self.figures.failures.fetch_add(1, Relaxed);
        if !self.figures.is_failing.swap(true, Relaxed) {
            tracing::error!(%error, "the primary database fails: durable publications are refused until it works again");
        }
        self.connection = None;
        self.ledger.forget();
        self.trim_at = Instant::now() + REST;
    }

    /// Lets go of some of what is too old. It writes something in any case: that is how a database that has failed is seen to work again.
    fn trim(&mut self) {
        let trimmed = self.try_trim();
        match trimmed {
            Ok(has_more) => {
                self.succeed();
                self.trim_at = Instant::now() + if has_more { HURRY } else { REST };
            }
            Err(error) => self.fail(&error),
        }
    }

    fn try_trim(&mut self) -> rusqlite::Result<bool> {
        let was_failing = !self.figures.is_healthy();
        if self.connection.is_none() {
            self.connection = Some(connect(&self.path)?);
        }
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let has_more = self.ledger.trim(&transaction, now_ms())?;
        if was_failing {
            transaction.execute("UPDATE touchline_migration SET title = title WHERE version = 1", [])?;
        }
        transaction.commit()?;
        Ok(has_more)
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

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
