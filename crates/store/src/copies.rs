//! Copies of a SQLite database. A backup is made while a node writes to it, and restored while no node runs.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::errors::OpenError;
use crate::migrate::{self, Database, SchemaError};
use crate::sqlite::connection::lock;

/// The files of a database. The log comes before the database that it belongs to.
const PARTS: [&str; 3] = ["-wal", "-shm", ""];

/// Copies a database into a new file that only this account can read. The copy does not delay writers. It contains
/// everything that was committed before it began. Returns the size of the copy in bytes.
///
/// # Errors
/// See [`OpenError`]. No partial file is left behind.
pub fn backup(from: &Path, to: &Path) -> Result<u64, OpenError> {
    let source = open(from)?;
    copy(&source, from, to).inspect_err(|error| {
        // This function must not remove a file that existed before.
        if !matches!(error, OpenError::File { source, .. } if source.kind() == ErrorKind::AlreadyExists) {
            let _ = std::fs::remove_file(to);
        }
    })
}

/// Replaces a database that no node uses with a copy. The old database is kept beside it under the returned name.
/// `None` = there was no old database.
///
/// # Errors
/// See [`OpenError`]. It also fails if the copy is damaged, belongs to another database, or has a schema that this
/// program does not know.
pub fn restore(from: &Path, to: &Path, database: &Database) -> Result<Option<PathBuf>, OpenError> {
    if let (Ok(copy), Ok(current)) = (from.canonicalize(), to.canonicalize())
        && copy == current
    {
        let source = Error::new(ErrorKind::InvalidInput, "it is the database itself, not a copy of it");
        return Err(OpenError::File { path: from.display().to_string(), source });
    }
    let _lock = lock(to)?;
    let source = open(from)?;
    check_kind(&source, from, database, "a copy of ")?;
    let fresh = beside(to, ".restoring");
    let _ = std::fs::remove_file(&fresh);
    copy(&source, from, &fresh).inspect_err(|_| {
        let _ = std::fs::remove_file(&fresh);
    })?;
    let of_file = |source| OpenError::File { path: to.display().to_string(), source };
    let kept = put_aside(to).map_err(of_file)?;
    std::fs::rename(&fresh, to).and_then(|()| sync_directory(to)).map_err(of_file)?;
    Ok(kept)
}

/// Opens a database that must exist.
pub(crate) fn open(path: &Path) -> Result<Connection, OpenError> {
    let of_file = |source| OpenError::File { path: path.display().to_string(), source };
    File::open(path).map_err(of_file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .map_err(|source| OpenError::Sqlite { path: path.display().to_string(), source })
}

/// Copies all pages in one read transaction, checks the copy, and waits until it is on disk.
fn copy(source: &Connection, from: &Path, to: &Path) -> Result<u64, OpenError> {
    let of_file = |source| OpenError::File { path: to.display().to_string(), source };
    // These errors concern the copy; all other errors while pages are copied concern the source.
    let while_copying = |source: rusqlite::Error| {
        let is_of_copy = matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen)
        );
        OpenError::Sqlite { path: if is_of_copy { to } else { from }.display().to_string(), source }
    };
    let in_copy = |source| OpenError::Sqlite { path: to.display().to_string(), source };
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(to).map_err(|error| {
        let is_there = error.kind() == ErrorKind::AlreadyExists;
        of_file(if is_there { Error::new(error.kind(), "it exists, and no copy overwrites a file") } else { error })
    })?;
    let mut target = Connection::open(to).map_err(in_copy)?;
    let step = Backup::new(source, &mut target).and_then(|backup| backup.step(-1)).map_err(while_copying)?;
    if step != StepResult::Done {
        return Err(of_file(Error::new(ErrorKind::ResourceBusy, "the database is locked")));
    }
    // The copy is one file without a log beside it.
    target.query_row("PRAGMA journal_mode = delete", [], |_| Ok(())).map_err(in_copy)?;
    let verdict: String = target.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(in_copy)?;
    if verdict != "ok" {
        return Err(of_file(Error::new(ErrorKind::InvalidData, format!("the database is damaged: {verdict}"))));
    }
    target.close().map_err(|(_, source)| in_copy(source))?;
    file.sync_all().and_then(|()| sync_directory(to)).map_err(of_file)?;
    Ok(file.metadata().map_err(of_file)?.len())
}

/// Checks a database that is a single file without a log.
pub(crate) fn check_copy(path: &Path) -> Result<(), OpenError> {
    let in_copy = |source| OpenError::Sqlite { path: path.display().to_string(), source };
    let copy = open(path)?;
    let verdict: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(in_copy)?;
    if verdict != "ok" {
        let source = Error::new(ErrorKind::InvalidData, format!("the database is damaged: {verdict}"));
        return Err(OpenError::File { path: path.display().to_string(), source });
    }
    Ok(())
}

/// Checks that a file is this database, and that this program knows its schema. `what` is inserted into the error text.
pub(crate) fn check_kind(found: &Connection, path: &Path, database: &Database, what: &str) -> Result<(), OpenError> {
    let in_file = |source| OpenError::Sqlite { path: path.display().to_string(), source };
    let (version, known) = (migrate::version(found).map_err(in_file)?, migrate::newest(database.sqlite));
    if version == 0 || !is_of(found, database).map_err(in_file)? {
        let text = format!("it is not {what}the {} database", database.name);
        let source = Error::new(ErrorKind::InvalidData, text);
        return Err(OpenError::File { path: path.display().to_string(), source });
    }
    if version > known {
        return Err(SchemaError::Newer { database: database.name, found: version, known }.into());
    }
    Ok(())
}

/// Whether the tables are those of this database.
fn is_of(connection: &Connection, database: &Database) -> rusqlite::Result<bool> {
    let first = database.sqlite.first().map_or("", |migration| migration.up);
    let table = first.split("CREATE TABLE ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    let count = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    Ok(connection.query_row(count, [table.trim_end_matches('(')], |row| row.get::<_, u64>(0))? > 0)
}

/// Renames a database and the files beside it, the log first: a database must never be beside a log that is not its
/// own. Files that were put aside earlier are not replaced. The caller holds the database's lock, so no other process
/// does the same meanwhile.
fn put_aside(path: &Path) -> std::io::Result<Option<PathBuf>> {
    if !path.exists() {
        return Ok(None);
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let is_free = |kept: &PathBuf| PARTS.iter().all(|suffix| !beside(kept, suffix).exists());
    let kept = (seconds..).map(|number| beside(path, &format!(".before-{number}"))).find(is_free);
    let kept =
        kept.ok_or_else(|| Error::new(ErrorKind::AlreadyExists, "no name is left for the database that was there"))?;
    for suffix in PARTS {
        let from = beside(path, suffix);
        if from.exists() {
            std::fs::rename(&from, beside(&kept, suffix))?;
        }
    }
    Ok(Some(kept))
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
