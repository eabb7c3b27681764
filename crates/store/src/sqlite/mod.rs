//! The primary database in one SQLite file. One thread writes in batches, a few threads read, and one moves pages from
//! the log to the file.

mod channel_rows;
pub(crate) mod connection;
mod directory;
pub(crate) mod facts;
pub(crate) mod failure;
pub(crate) mod files;
mod inbox;
pub(crate) mod ledger;
mod ledger_lanes;
mod log;
mod parameters;
pub(crate) mod queue;
mod reactions;
mod reader;
mod seen;
pub(crate) mod size;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior};
use touchline_lock::Lock;
use touchline_protocol::fact::FactsEvent;
use touchline_protocol::stream::{Run, RunId};

use self::connection::{open, thread};
use crate::batch::{ReadRequest, WriteRequest};
use crate::errors::OpenError;
use crate::events::{EventSink, StoreEvent};
use crate::metrics::StoreMetrics;
use crate::migrate::PRIMARY;
use crate::panics::caught;
use crate::refusal::StoreRefusal;
use crate::runs::{self, KnownRuns};
use crate::settings::PrimaryOptions;

/// A handle of the database threads.
pub(crate) struct SqlitePrimary {
    writes: SyncSender<WriteRequest>,
    /// The queue of reads. `None` once the store is closed.
    reads: Lock<Option<Sender<ReadRequest>>>,
    metrics: Arc<StoreMetrics>,
    threads: Lock<Vec<JoinHandle<()>>>,
    /// Locked as long as the store is open.
    lock: File,
}

impl SqlitePrimary {
    /// Opens the file, which is created if it does not exist, and starts the threads.
    pub(crate) fn open(
        path: &Path,
        settings: &PrimaryOptions,
        events: EventSink,
        metrics: Arc<StoreMetrics>,
    ) -> Result<Self, OpenError> {
        let (lock, mut connection) = open(path, &PRIMARY, settings.store.migrate)?;
        let in_sqlite = |source| OpenError::Sqlite { path: path.display().to_string(), source };
        // No other process writes to the file, so the run lasts as long as the process.
        let runs = begin_run(&mut connection).map_err(in_sqlite)?;
        if settings.has_facts {
            let facts = facts::load(&connection).map_err(in_sqlite)?;
            events(StoreEvent::Facts(FactsEvent::Loaded { facts, revision: 0 }));
        }
        let (writes, write_requests) = sync_channel(settings.store.commit_queue.max(1));
        let (reads, read_requests) = channel();
        let read_requests = Arc::new(Lock::new(read_requests));
        let mut threads = Vec::new();
        for _ in 0..settings.store.primary.pool_size.max(1) {
            let reader = reader::SqliteReader::new(
                path.to_owned(),
                Arc::clone(&events),
                writes.clone(),
                Arc::clone(&metrics),
                KnownRuns::clone(&runs),
            );
            let read_requests = Arc::clone(&read_requests);
            threads.push(thread("store-read", move || reader.serve(&read_requests))?);
        }
        let log = log::WalCheckpointer::new(path.to_owned(), Arc::clone(&metrics));
        let (thread_events, thread_metrics) = (EventSink::clone(&events), Arc::clone(&metrics));
        let writer = writer::SqliteWriter::new(
            path.to_owned(),
            connection,
            settings,
            events,
            Arc::clone(&metrics),
            log.is_long(),
            runs,
        );
        let write = move || {
            let Err(panicked) = caught(|| writer.serve(&write_requests)) else { return };
            thread_metrics.fail(&panicked);
            // The writer has ended. Every write is refused until the store is closed.
            while let Ok(write) = write_requests.recv()
                && !matches!(write, WriteRequest::Close)
            {
                write.reject(&thread_events, &thread_metrics, StoreRefusal::Failed);
            }
        };
        threads.push(thread("store-write", write)?);
        threads.push(thread("store-log", move || log.serve())?);
        Ok(SqlitePrimary { writes, reads: Lock::new(Some(reads)), metrics, threads: Lock::new(threads), lock })
    }

    /// Queues a write. Returns it if the queue has no room, or if the writer has ended.
    pub(crate) fn write(&self, write: WriteRequest) -> Option<(WriteRequest, StoreRefusal)> {
        match self.writes.try_send(write) {
            Ok(()) => None,
            Err(TrySendError::Full(write)) => Some((write, StoreRefusal::QueueFull)),
            Err(TrySendError::Disconnected(write)) => Some((write, StoreRefusal::Failed)),
        }
    }

    /// Queues a read. Returns it if the readers have ended.
    pub(crate) fn read(&self, read: ReadRequest) -> Option<ReadRequest> {
        match &*self.reads.lock() {
            Some(reads) => reads.send(read).err().map(|unread| unread.0),
            None => Some(read),
        }
    }

    pub(crate) fn close(&self) {
        self.metrics.is_closed.store(true, Relaxed);
        self.reads.lock().take();
        let _ = self.writes.send(WriteRequest::Close);
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        let _ = self.lock.unlock();
    }
}

/// Begins a run, because the file may have been replaced since it was last open. Returns all remembered runs, the new
/// one last.
fn begin_run(connection: &mut Connection) -> rusqlite::Result<KnownRuns> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction
        .execute("INSERT INTO run (number, id) SELECT coalesce(max(number), 0) + 1, ?1 FROM run", [runs::new_id().0])?;
    transaction.execute("DELETE FROM run WHERE number <= (SELECT max(number) FROM run) - ?1", [runs::KEPT])?;
    let known = transaction
        .prepare("SELECT number, id FROM run ORDER BY number")?
        .query_map([], |row| Ok(Run { number: row.get(0)?, id: RunId(row.get(1)?) }))?
        .collect::<rusqlite::Result<KnownRuns>>()?;
    transaction.commit()?;
    Ok(known)
}
