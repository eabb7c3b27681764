//! Why a database cannot be opened.

use rusqlite::ErrorCode;

use crate::migrate::SchemaError;
use crate::postgres::failure::PostgresError;

/// Why a database cannot be opened. The text names the database without its password, the cause, and a remedy if one is
/// known.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the files.
    #[error("another process uses {0}: stop that server first (a data directory belongs to one node)")]
    InUse(String),
    /// The directory cannot be created, or a file in it cannot be opened.
    #[error("{path} can't be used: {source}")]
    File {
        /// The path of the directory or the file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// SQLite refuses the file, or a migration.
    #[error("{path}: {source}{}", remedy(.source))]
    Sqlite {
        /// The path of the database file.
        path: String,
        /// The error that SQLite returned.
        source: rusqlite::Error,
    },
    /// PostgreSQL cannot be reached, or refuses the login or a migration.
    #[error("PostgreSQL: {0}")]
    Postgres(#[source] PostgresError),
    /// The operating system could not start a thread.
    #[error("a thread for {work} could not be started: {source}; raise the limit of threads (ulimit -u, TasksMax)")]
    Thread {
        /// What the thread is for.
        work: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The schema's version differs from the one that this program needs.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl From<PostgresError> for OpenError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Schema(error) => OpenError::Schema(error),
            other => OpenError::Postgres(other),
        }
    }
}

/// What the operator can do about an SQLite error, as text that begins with a semicolon. Empty = no remedy is known.
fn remedy(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "; move this file away, or configure another path",
        Some(ErrorCode::DatabaseCorrupt) => "; it is damaged: restore it from a backup (touchline restore)",
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            "; give the file and its directory to this account (chown), and check that the disk is mounted writable"
        }
        Some(ErrorCode::DiskFull) => "; free space on its disk",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "; another program locks it: end that program",
        _ => "",
    }
}
