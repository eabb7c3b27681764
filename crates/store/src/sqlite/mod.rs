//! The primary database in one SQLite file: one thread writes in batches, a few read, one moves pages from the log to
//! the file.

mod channel_rows;
mod directory;
pub(crate) mod files;
mod inbox;
mod log;
mod reader;
mod writer;

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use serde::Serialize;
use touchline_protocol::stream::{Run, RunId};

pub(crate) use self::files::make_database;
use crate::batch::{ReadRequest, WriteRequest};
use crate::migrate::{self, Database, PRIMARY};
use crate::panics::caught;
use crate::runs::{self, KnownRuns};
use crate::{DamagedRow, EventSink, OpenError, PrimaryOptions, StoreMetrics, StoreRefusal};

/// How long a statement waits for a lock that another connection of this process holds.
const BUSY: Duration = Duration::from_secs(10);

/// A handle of the threads.
pub(crate) struct SqlitePrimary {
    writes: SyncSender<WriteRequest>,
    /// None once the store is closed.
    reads: Mutex<Option<Sender<ReadRequest>>>,
    metrics: Arc<StoreMetrics>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Locked as long as the store is open.
    lock: File,
}

impl SqlitePrimary {
    /// Opens the file, which is made if it does not exist, and starts the threads.
    pub(crate) fn open(
        path: &Path,
        settings: &PrimaryOptions,
        events: EventSink,
        metrics: Arc<StoreMetrics>,
    ) -> Result<Self, OpenError> {
        let (lock, mut connection) = open(path, &PRIMARY, settings.migrates)?;
        let in_sqlite = |source| OpenError::Sqlite { path: path.display().to_string(), source };
        // No other process writes to the file, so the run lasts as long as the process.
        let runs = begin_run(&mut connection).map_err(in_sqlite)?;
        let (writes, write_requests) = sync_channel(settings.commit_queue.max(1));
        let (reads, read_requests) = channel();
        let read_requests = Arc::new(Mutex::new(read_requests));
        let mut threads = Vec::new();
        for _ in 0..settings.pool_size.max(1) {
            let reader = reader::SqliteReader::new(
                path.to_owned(),
                Arc::clone(&events),
                writes.clone(),
                Arc::clone(&metrics),
                KnownRuns::clone(&runs),
            );
            let read_requests = Arc::clone(&read_requests);
            threads.push(thread("store-read", path, move || reader.serve(&read_requests))?);
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
            // The writer has ended: every write is refused until the store is closed.
            while let Ok(write) = write_requests.recv()
                && !matches!(write, WriteRequest::Close)
            {
                write.reject(&thread_events, &thread_metrics, StoreRefusal::Failed);
            }
        };
        threads.push(thread("store-write", path, write)?);
        threads.push(thread("store-log", path, move || log.serve())?);
        Ok(SqlitePrimary { writes, reads: Mutex::new(Some(reads)), metrics, threads: Mutex::new(threads), lock })
    }

    /// Queues a write. It is returned if the queue has no room for it, or if the writer has ended.
    pub(crate) fn write(&self, write: WriteRequest) -> Option<(WriteRequest, StoreRefusal)> {
        match self.writes.try_send(write) {
            Ok(()) => None,
            Err(TrySendError::Full(write)) => Some((write, StoreRefusal::QueueFull)),
            Err(TrySendError::Disconnected(write)) => Some((write, StoreRefusal::Failed)),
        }
    }

    /// Queues a read. It is returned if the readers have ended.
    pub(crate) fn read(&self, read: ReadRequest) -> Option<ReadRequest> {
        match &*self.reads.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reads) => reads.send(read).err().map(|unread| unread.0),
            None => Some(read),
        }
    }

    pub(crate) fn close(&self) {
        self.metrics.is_closed.store(true, Relaxed);
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.writes.send(WriteRequest::Close);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
        let _ = self.lock.unlock();
    }
}

/// Begins a run, because the file may have been replaced since it was opened last. Returns all remembered runs, the
/// new one last.
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

/// A cause why a result cannot be read (a row that is not valid, a panic), as an error of SQLite.
fn unreadable(reason: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(reason))
}

/// Opens a database that no other process has open, and checks its schema, after bringing it up to date if `migrates`
/// is set.
pub(crate) fn open(path: &Path, database: &Database, migrates: bool) -> Result<(File, Connection), OpenError> {
    let lock = lock(path)?;
    files::make_database(path).map_err(|source| OpenError::File { path: path.display().to_string(), source })?;
    let in_sqlite = |source| OpenError::Sqlite { path: path.display().to_string(), source };
    let mut connection = connect(path).map_err(in_sqlite)?;
    let newest = migrate::newest(database.sqlite);
    if migrates && migrate::version(&connection).map_err(in_sqlite)? <= newest {
        migrate::go_to(&mut connection, database.sqlite, newest).map_err(in_sqlite)?;
    }
    migrate::check(database.name, database.sqlite, migrate::version(&connection).map_err(in_sqlite)?)?;
    Ok((lock, connection))
}

pub(crate) fn thread(
    name: &str,
    path: &Path,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OpenError> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map_err(|source| OpenError::File { path: path.display().to_string(), source })
}

/// Makes the directory, and takes the lock that keeps other processes out.
pub(crate) fn lock(path: &Path) -> Result<File, OpenError> {
    let of_file = |path: &Path| {
        let path = path.display().to_string();
        move |source| OpenError::File { path, source }
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        files::make_directory(directory).map_err(of_file(directory))?;
    }
    let lock_path = path.with_extension("lock");
    let file = files::open_lock(&lock_path).map_err(of_file(&lock_path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.display().to_string())),
        Err(TryLockError::Error(source)) => Err(of_file(&lock_path)(source)),
    }
}

/// A connection that writes: every commit is on disk, in the log, when it returns. The connection does not move pages
/// from the log to the file.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -64 * 1024)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// The refusal of one item that an error stands for; none = the error is of the whole batch.
pub(crate) fn refusal_of(error: &rusqlite::Error) -> Option<StoreRefusal> {
    match error {
        // A number beyond 63 bits, a text that the interface does not take.
        rusqlite::Error::ToSqlConversionFailure(_) | rusqlite::Error::NulError(_) => Some(StoreRefusal::Invalid),
        error => match error.sqlite_error_code()? {
            ErrorCode::TooBig | ErrorCode::TypeMismatch => Some(StoreRefusal::Invalid),
            // The rows of this item's channel contradict each other.
            ErrorCode::ConstraintViolation => Some(StoreRefusal::Failed),
            _ => None,
        },
    }
}

/// Marks the database as damaged if an error means that the file does not hold what was written to it.
fn note_damage(error: &rusqlite::Error, metrics: &StoreMetrics) {
    match error {
        rusqlite::Error::FromSqlConversionFailure(_, _, reason) => {
            if let Some(damaged) = reason.downcast_ref::<DamagedRow>() {
                metrics.mark_damaged(damaged);
            }
        }
        error if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) => {
            metrics.mark_damaged(error)
        }
        _ => {}
    }
}

/// A list as one parameter of a statement.
pub(crate) fn json<T: Serialize + ?Sized>(list: &T) -> String {
    serde_json::to_string(list).unwrap_or_default()
}

/// Takes the next request of a queue that several threads share; none = all its senders are dropped.
pub(crate) fn next<T>(queue: &Mutex<Receiver<T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
