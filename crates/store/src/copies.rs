//! Copies of a SQLite database: one is made while a node writes to it, and put back while no node runs.

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

/// The files of a database, the log before what it belongs to.
const PARTS: [&str; 3] = ["-wal", "-shm", ""];

/// Copies a database into a new file that only this account can read. The copy does not delay writers, and holds all
/// that was committed before it began. Returns the size of the copy, bytes.
///
/// # Errors
/// See [`OpenError`]; no file is left behind.
pub fn backup(from: &Path, to: &Path) -> Result<u64, OpenError> {
    let source = open(from)?;
    copy(&source, from, to).inspect_err(|error| {
        // A file that existed before is not this function's to remove.
        if !matches!(error, OpenError::File { source, .. } if source.kind() == ErrorKind::AlreadyExists) {
            let _ = std::fs::remove_file(to);
        }
    })
}

/// Puts a copy in the place of a database that no node uses. The old database is kept beside it, under the returned
/// name; none = there was none.
///
/// # Errors
/// See [`OpenError`]: also when the copy is damaged, or is not of this database and of a schema that this program
/// knows.
pub fn restore(from: &Path, to: &Path, database: &Database) -> Result<Option<PathBuf>, OpenError> {
    if let (Ok(copy), Ok(current)) = (from.canonicalize(), to.canonicalize())
        && copy == current
    {
        let source = Error::new(ErrorKind::InvalidInput, "it is the database itself, not a copy of it");
        return Err(OpenError::File { path: from.display().to_string(), source });
    }
    let _lock = lock(to)?;
    let source = open(from)?;
    let of_copy = |source| OpenError::Sqlite { path: from.display().to_string(), source };
    let (found, known) = (migrate::version(&source).map_err(of_copy)?, migrate::newest(database.sqlite));
    if found == 0 || !is_of(&source, database).map_err(of_copy)? {
        let source = Error::new(ErrorKind::InvalidData, format!("it is not a copy of the {} database", database.name));
        return Err(OpenError::File { path: from.display().to_string(), source });
    }
    if found > known {
        return Err(SchemaError::Newer { database: database.name, found, known }.into());
    }
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

/// Opens a database that must be there.
fn open(path: &Path) -> Result<Connection, OpenError> {
    let of_file = |source| OpenError::File { path: path.display().to_string(), source };
    File::open(path).map_err(of_file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .map_err(|source| OpenError::Sqlite { path: path.display().to_string(), source })
}

/// Copies all pages in one reading transaction, checks the copy, and waits until it is on disk.
fn copy(source: &Connection, from: &Path, to: &Path) -> Result<u64, OpenError> {
    let of_file = |source| OpenError::File { path: to.display().to_string(), source };
    // These errors are of the copy; any other error while pages are copied is of their source.
    let while_copying = |source: rusqlite::Error| {
        let is_of_copy = matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen)
        );
        OpenError::Sqlite { path: if is_of_copy { to } else { from }.display().to_string(), source }
    };
    let in_copy = |source| OpenError::Sqlite { path: to.display().to_string(), source };
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(to).map_err(of_file)?;
    let mut target = Connection::open(to).map_err(in_copy)?;
    let step = Backup::new(source, &mut target).and_then(|backup| backup.step(-1)).map_err(while_copying)?;
    if step != StepResult::Done {
        return Err(of_file(Error::new(ErrorKind::ResourceBusy, "the database is locked")));
    }
    // One file, without a log beside it.
    target.query_row("PRAGMA journal_mode = delete", [], |_| Ok(())).map_err(in_copy)?;
    let verdict: String = target.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(in_copy)?;
    if verdict != "ok" {
        return Err(of_file(Error::new(ErrorKind::InvalidData, format!("the database is damaged: {verdict}"))));
    }
    target.close().map_err(|(_, source)| in_copy(source))?;
    file.sync_all().and_then(|()| sync_directory(to)).map_err(of_file)?;
    Ok(file.metadata().map_err(of_file)?.len())
}

/// Whether the tables are those of this database.
fn is_of(connection: &Connection, database: &Database) -> rusqlite::Result<bool> {
    let first = database.sqlite.first().map_or("", |migration| migration.up);
    let table = first.split("CREATE TABLE ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    let count = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    Ok(connection.query_row(count, [table.trim_end_matches('(')], |row| row.get::<_, u64>(0))? > 0)
}

/// Renames a database and the files beside it, the log first: a database must never stand beside a log that is not its
/// own. Files that were put aside before are not replaced; the caller holds the database's lock, so no other process
/// puts the database aside meanwhile.
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

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
