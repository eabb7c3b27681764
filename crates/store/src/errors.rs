//! Why a database cannot be opened.

use rusqlite::ErrorCode;

use crate::migrate::SchemaError;
use crate::postgres::failure::PostgresError;

/// Why a database cannot be opened. The text names the database without its password, the cause, and what to do, as far
/// as that is known.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the files.
    #[error("another process uses {0}: a data directory belongs to one node")]
    InUse(String),
    /// The directory cannot be made, or a file in it cannot be opened.
    #[error("{path} can't be used: {source}")]
    File {
        /// Path of the directory or the file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// SQLite refuses the file, or a migration.
    #[error("{path}: {source}{}", remedy(.source))]
    Sqlite {
        /// Path of the file.
        path: String,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// PostgreSQL cannot be reached, or refuses the login or a migration.
    #[error("PostgreSQL: {0}")]
    Postgres(#[source] PostgresError),
    /// The system refused a thread.
    #[error("the system refused a thread for {work}: {source}; raise the limit of threads (ulimit -u, TasksMax)")]
    Thread {
        /// What the thread is for.
        work: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The schema has another version than this program.
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

/// What the operator can do about an error of SQLite, behind a semicolon. Empty = nothing is known.
fn remedy(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "; it is a file of something else: move it away, or name another file",
        Some(ErrorCode::DatabaseCorrupt) => "; it is damaged: restore it from a backup (touchline restore)",
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            "; give the file and its directory to this account (chown), and see that the disk is mounted to be written"
        }
        Some(ErrorCode::DiskFull) => "; make room on its disk",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "; another program holds it: end that program",
        _ => "",
    }
}
