//! Opens a database file: its lock, its schema and its settings.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::files;
use crate::errors::OpenError;
use crate::migrate::{self, Database};

/// How long a statement waits for a lock that another connection of this process holds.
pub(super) const BUSY: Duration = Duration::from_secs(10);

/// Opens a database that no other process has open, and checks its schema. If `migrates` is set, the schema is migrated
/// first.
pub(crate) fn open(path: &Path, database: &Database, migrates: bool) -> Result<(File, Connection), OpenError> {
    let lock = lock(path)?;
    if path.is_dir() {
        // SQLite would only report that it cannot open the file.
        return Err(OpenError::File { path: path.display().to_string(), source: ErrorKind::IsADirectory.into() });
    }
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

/// Starts a thread for a database.
pub(crate) fn thread(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map_err(|source| OpenError::Thread { work: name, source })
}

/// Creates the directory, and takes the lock that keeps other processes out.
pub(crate) fn lock(path: &Path) -> Result<File, OpenError> {
    let of_file = |path: &Path| {
        let path = path.display().to_string();
        move |source| OpenError::File { path, source }
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        files::make_directory(directory).map_err(of_file(directory))?;
    }
    let lock_path = path.with_extension("lock");
    let file = files::open_lock(&lock_path, path).map_err(of_file(&lock_path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.display().to_string())),
        Err(TryLockError::Error(source)) => Err(of_file(&lock_path)(source)),
    }
}

/// Opens a connection that writes. Every commit is on disk, in the log, when it returns. The connection does not move
/// pages from the log to the file.
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
