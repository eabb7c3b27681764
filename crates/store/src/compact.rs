//! Returns the room of deleted rows to the disk.
//!
//! A SQLite file is rewritten beside itself, synced to disk, and renamed over the old one. If the program is killed,
//! one of the two files is left, complete. PostgreSQL does the same by itself, table by table.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::copies::{beside, check_copy, check_kind, open, sync_directory};
use crate::errors::OpenError;
use crate::migrate::{self, Database, SchemaError};
use crate::postgres::{MAY_VACUUM, PostgresAddress, PostgresClient, PostgresError};
use crate::schema::Schema;
use crate::settings::DatabaseUrl;
use crate::sqlite::connection::{connect, lock};
use crate::sqlite::size::{disk_free, log_of};

/// The time limit for PostgreSQL to answer any statement except VACUUM.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The space that stays free on the disk beside the new file, bytes.
const SPARE: u64 = 1_024 * 1_024;

/// Why a database is not compacted.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The database cannot be opened, or fails.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database file does not exist.
    #[error("{0}: there is no database; check store.primary.url, and the directory that it is relative to")]
    Missing(String),
    /// A running node uses the file.
    #[error("{0}: a node uses this database: stop the node, compact the database, then start the node again")]
    NodeRuns(String),
    /// Running nodes are connected to the PostgreSQL database.
    #[error("{0} connections of running nodes use this database: stop the nodes, or compact it without --full")]
    NodesConnected(u64),
    /// PostgreSQL would skip a table with only a warning.
    #[error(
        "the role {role} does not own {table}, so PostgreSQL would skip that table: use the role {owner} in the url, \
         or grant its rights to this one (GRANT {owner} TO {role})"
    )]
    NotOwner {
        /// The role of the connection.
        role: String,
        /// A table of the database that the role does not own.
        table: String,
        /// The role that owns the table.
        owner: String,
    },
    /// The disk has no room for the new file.
    #[error(
        "{path}: the new file needs {needed} bytes beside the old one, and the disk has {free}: free space on the disk"
    )]
    NoRoom {
        /// The path of the database file.
        path: String,
        /// The number of bytes that are needed.
        needed: u64,
        /// The number of bytes that are free.
        free: u64,
    },
}

/// The sizes before and after a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// The size on the disk before, bytes: of the file and its log, or of all tables.
    pub before: u64,
    /// The size on the disk afterwards, bytes.
    pub after: u64,
}

/// Returns the room of deleted rows to the disk. With `is_full`, PostgreSQL rewrites its tables and locks each one
/// meanwhile. Otherwise it only frees the room for new rows, and returns the free space at the ends of the tables. A
/// SQLite file is always rewritten. `tls_ca` is as in [`crate::PrimaryOptions::tls_ca`].
///
/// # Errors
/// See [`CompactError`]. The database is unchanged, but in PostgreSQL some tables may already be compacted.
pub fn compact(
    database: &'static Database,
    url: &DatabaseUrl,
    tls_ca: &str,
    is_full: bool,
) -> Result<Compacted, CompactError> {
    match url {
        DatabaseUrl::Sqlite(path) => compact_file(path, database),
        DatabaseUrl::Postgres(address) => compact_tables(database, url, (address, tls_ca), is_full),
    }
}

fn compact_file(path: &Path, database: &Database) -> Result<Compacted, CompactError> {
    let shown = path.display().to_string();
    // A symbolic link stays, and its target is replaced.
    let path = &match path.canonicalize() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(CompactError::Missing(shown)),
        Err(source) => return Err(OpenError::File { path: shown, source }.into()),
    };
    // This check comes before any file is created or changed.
    check_kind(&open(path)?, path, database, "")?;
    let _lock = lock(path).map_err(|error| match error {
        OpenError::InUse(_) => CompactError::NodeRuns(shown.clone()),
        error => error.into(),
    })?;
    let of_file = |source| OpenError::File { path: shown.clone(), source };
    let in_sqlite = |source| OpenError::Sqlite { path: shown.clone(), source };
    // The permissions are checked first, because SQLite would silently open the file read-only.
    OpenOptions::new().read(true).write(true).open(path).map_err(of_file)?;
    let before = size_of(path).map_err(of_file)?;
    let connection = connect(path).map_err(in_sqlite)?;
    empty_log(&connection, &shown)?;
    let needed = pages_in_use(&connection).map_err(in_sqlite)?.saturating_add(SPARE);
    if let Some(free) = disk_free(path).filter(|free| *free < needed) {
        return Err(CompactError::NoRoom { path: shown, needed, free });
    }
    let fresh = beside(path, ".compacting");
    let written = write_anew(connection, path, &fresh);
    if let Err(error) = written {
        let _ = std::fs::remove_file(&fresh);
        return Err(error.into());
    }
    let after = size_of(path).map_err(of_file)?;
    Ok(Compacted { before, after })
}

/// Moves the content of the log to the file. No other process has the file open.
fn empty_log(connection: &Connection, shown: &str) -> Result<(), OpenError> {
    let emptied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match emptied.map_err(|source| OpenError::Sqlite { path: shown.to_owned(), source })? {
        0 => Ok(()),
        _ => Err(OpenError::InUse(shown.to_owned())),
    }
}

/// The number of bytes in pages that are not free.
fn pages_in_use(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, u64>(0));
    let pages = number("PRAGMA page_count")?.saturating_sub(number("PRAGMA freelist_count")?);
    Ok(pages.saturating_mul(number("PRAGMA page_size")?))
}

/// Writes the database into a new file, checks it, and replaces the old file with it.
fn write_anew(connection: Connection, path: &Path, fresh: &PathBuf) -> Result<(), OpenError> {
    let of_file = |source| OpenError::File { path: fresh.display().to_string(), source };
    let in_sqlite = |source| OpenError::Sqlite { path: path.display().to_string(), source };
    // The file that a killed compaction has left.
    match std::fs::remove_file(fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(of_file(error)),
        _ => {}
    }
    let old = std::fs::metadata(path).map_err(of_file)?;
    let mode = old.permissions().mode() & 0o777;
    let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(fresh).map_err(of_file)?;
    let new = file.metadata().map_err(of_file)?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // Otherwise the account of the node could not open the file.
        std::os::unix::fs::chown(fresh, Some(old.uid()), Some(old.gid())).map_err(of_file)?;
    }
    let name = fresh.to_str().ok_or_else(|| of_file(Error::new(ErrorKind::InvalidInput, "its path is not UTF-8")))?;
    connection.execute("VACUUM INTO ?1", [name]).map_err(in_sqlite)?;
    check_copy(fresh)?;
    file.sync_all().map_err(of_file)?;
    // The last connection removes the log when it closes. A new file must never be beside the log of another one.
    connection.close().map_err(|(_, source)| in_sqlite(source))?;
    for part in [log_of(path), beside(path, "-shm")] {
        match std::fs::remove_file(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(of_file(error)),
            _ => {}
        }
    }
    sync_directory(path)
        .and_then(|()| std::fs::rename(fresh, path))
        .and_then(|()| sync_directory(path))
        .map_err(of_file)
}

/// The size of a file and its log, bytes.
fn size_of(path: &Path) -> std::io::Result<u64> {
    let log = std::fs::metadata(log_of(path)).map_or(0, |log| log.len());
    Ok(File::open(path)?.metadata()?.len().saturating_add(log))
}

fn compact_tables(
    database: &'static Database,
    url: &DatabaseUrl,
    (address, tls_ca): (&str, &str),
    is_full: bool,
) -> Result<Compacted, CompactError> {
    let schema = Schema::inspect(database, url, tls_ca)?;
    let (found, known) = (schema.version()?, migrate::newest(database.postgres));
    if found == 0 {
        return Err(CompactError::Missing(format!("the schema {}", database.schema)));
    }
    if found > known {
        return Err(OpenError::from(SchemaError::Newer { database: database.name, found, known }).into());
    }
    let nodes = schema.others()?;
    if is_full && nodes > 0 {
        return Err(CompactError::NodesConnected(nodes));
    }
    drop(schema);
    let of_system = |source| OpenError::Thread { work: "PostgreSQL", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(of_system)?;
    let address = PostgresAddress::new(address, tls_ca, TIMEOUT).map_err(OpenError::from)?;
    runtime.block_on(vacuum(&address, database.schema, is_full))
}

/// Reads the size of a schema's tables with their indexes and large values, bytes.
const SIZE: &str = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'm')";
/// Lists the tables of a schema, the smallest first: the space that it returns makes room for the next one.
const TABLES: &str = "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c \
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'm') \
     ORDER BY pg_total_relation_size(c.oid), c.relname";

async fn vacuum(address: &PostgresAddress, schema: &str, is_full: bool) -> Result<Compacted, CompactError> {
    let link = PostgresClient::to(address).await.map_err(OpenError::from)?;
    // A table that the connected role may not vacuum, and its owner.
    let not_owned = format!(
        "SELECT current_user::text, format('%I.%I', n.nspname, c.relname), pg_get_userbyid(c.relowner)::text \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         JOIN pg_database d ON d.datname = current_database() \
         WHERE n.nspname = $1 AND c.relkind IN ('r', 'm') AND NOT {MAY_VACUUM} ORDER BY c.relname LIMIT 1"
    );
    let kept = link.client.query_opt(&not_owned, &[&schema]).await;
    let kept = kept.map_err(PostgresError::from).map_err(OpenError::from)?;
    if let Some(kept) = kept {
        return Err(CompactError::NotOwner { role: kept.get(0), table: kept.get(1), owner: kept.get(2) });
    }
    let compacted = vacuum_all(&link, schema, is_full).await;
    Ok(compacted.map_err(OpenError::from)?)
}

async fn vacuum_all(link: &PostgresClient, schema: &str, is_full: bool) -> Result<Compacted, PostgresError> {
    let size = async || {
        Ok::<u64, PostgresError>(link.client.query_one(SIZE, &[&schema]).await?.get::<_, i64>(0).max(0) as u64)
    };
    let before = size().await?;
    let tables = link.client.query(TABLES, &[&schema]).await?;
    // A VACUUM has no time limit. Its wait for a lock has one, because other transactions queue behind it.
    link.client
        .batch_execute(&format!("SET statement_timeout = 0; SET lock_timeout = {}", TIMEOUT.as_millis()))
        .await?;
    let options = if is_full { "FULL, ANALYZE" } else { "ANALYZE" };
    for table in tables {
        link.client.batch_execute(&format!("VACUUM ({options}) {}", table.get::<_, String>(0))).await?;
    }
    Ok(Compacted { before, after: size().await? })
}
