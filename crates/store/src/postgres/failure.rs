//! What goes wrong with PostgreSQL: the cause, whether it may end by itself, and what to do.

use std::io;

use crate::metrics::StoreMetrics;
use crate::migrate::SchemaError;
use crate::panics::Panicked;
use crate::refusal::StoreRefusal;
use crate::rows::NewerRow;

/// What went wrong with PostgreSQL. No text has the user or the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The address can't be read.
    #[error("the address can't be read: {}; expected postgres://USER:PASSWORD@HOST/DATABASE", reason(.0))]
    Address(#[source] tokio_postgres::Error),
    /// The address names no server.
    #[error("the URL names no host: postgres://USER:PASSWORD@HOST/DATABASE")]
    NoHost,
    /// A certificate of the authorities that the server is trusted by can't be used.
    #[error("tls_ca holds an authority that can't be used: {0}; expected certificates in PEM")]
    Authority(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// TLS can't be set up.
    #[error("TLS can't be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// PostgreSQL returned an error, or the connection broke.
    #[error("{}{}", reason(.0), remedy(.0))]
    Database(#[from] tokio_postgres::Error),
    /// PostgreSQL cannot be reached, or refuses the login.
    #[error("{address}: {}{}", reason(.source), remedy(.source))]
    Unreachable {
        /// Host, port and database.
        address: String,
        /// The client's error.
        source: tokio_postgres::Error,
    },
    /// The table is not there.
    #[error("there is no table {table} that this user may see: create it, or name it right")]
    NoTable {
        /// Its name in the configuration.
        table: String,
    },
    /// The table can't be read, or what is done can't be deleted from it.
    #[error("this user may not take rows out of the table {table}: GRANT SELECT, DELETE on it")]
    NoRight {
        /// Its name in the configuration.
        table: String,
    },
    /// The statements of a transaction reach different processes of the database, so it is none.
    #[error(
        "a pooler gives the statements of one transaction to different connections: let it pool transactions or \
         sessions (pool_mode = transaction), or name the database itself"
    )]
    StatementPooler,
    /// PostgreSQL did not answer in time.
    #[error("no answer in time; see that the server and the network keep up, or raise the timeout of the database")]
    TimedOut(#[from] tokio::time::error::Elapsed),
    /// The schema has another version than this program.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A later version of this program wrote the row.
    #[error(transparent)]
    Newer(#[from] NewerRow),
    /// A defect of this program.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

impl PostgresError {
    /// Whether the failure may end by itself: the server is away, starts, stops or is full. PostgreSQL would repeat any
    /// other refusal.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            PostgresError::Database(error) | PostgresError::Unreachable { source: error, .. } => {
                error.code().is_none_or(|code| code.code().starts_with("57") || code.code().starts_with("53"))
            }
            PostgresError::TimedOut(_) => true,
            PostgresError::Address(_)
            | PostgresError::NoHost
            | PostgresError::NoTable { .. }
            | PostgresError::NoRight { .. }
            | PostgresError::StatementPooler
            | PostgresError::Authority(_)
            | PostgresError::Tls(_)
            | PostgresError::Schema(_)
            | PostgresError::Newer(_)
            | PostgresError::Panicked(_) => false,
        }
    }

    /// Whether PostgreSQL can't be reached: it is away, starts, stops, or does not answer. Everybody who uses it meets
    /// this, each with an error of its own.
    pub(super) fn is_away(&self) -> bool {
        match self {
            PostgresError::Database(error) | PostgresError::Unreachable { source: error, .. } => {
                error.code().is_none_or(|code| code.code().starts_with("57P"))
            }
            PostgresError::TimedOut(_) => true,
            _ => false,
        }
    }

    /// Counts the failure of a write, and logs it as far as its outage is not logged.
    pub(super) fn note(&self, metrics: &StoreMetrics) {
        if self.is_away() { metrics.fail_away(self) } else { metrics.fail(self) }
    }

    /// Whether the failure may be of one item of a batch only: without that item the others can be written.
    pub(crate) fn is_of_item(&self) -> bool {
        matches!(self, PostgresError::Database(error) if refusal_of(error).is_some())
    }
}

/// The error with its source: the error alone says no more than "db error".
fn reason(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// What the operator can do, behind a semicolon, by the code of PostgreSQL or the error of the system. Empty = nothing
/// is known.
fn remedy(error: &tokio_postgres::Error) -> &'static str {
    let Some(code) = error.code() else {
        let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
        return match source.map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => {
                "; see that PostgreSQL runs and listens there (listen_addresses, port)"
            }
            Some(io::ErrorKind::NotFound) => "; see that PostgreSQL runs: its socket is not there",
            _ => "",
        };
    };
    match code.code() {
        "28P01" => "; set the user and the password in the URL of the database",
        "28000" => "; let pg_hba.conf of the server admit this user from this machine",
        "3D000" => "; make the database (createdb)",
        "42501" => {
            "; grant this user what is denied: the database itself to make schemas (GRANT CREATE ON DATABASE), a \
             consumer's table (SELECT, DELETE), or its table of dead rows (INSERT)"
        }
        "53300" => "; raise max_connections of the server, or lower pool_size",
        "53100" => "; make room on the disk of the server",
        "25006" => "; the server is a standby: name the one that is written to",
        _ => "",
    }
}

/// The refusal of one item that an error stands for; none = the error is of the whole batch.
pub(super) fn refusal_of(error: &tokio_postgres::Error) -> Option<StoreRefusal> {
    let code = error.code()?.code();
    match code.get(..2)? {
        // Data exceptions (a text with NUL, a number out of range), and texts that are too long for an index.
        "22" => Some(StoreRefusal::Invalid),
        _ if code == "54000" => Some(StoreRefusal::Invalid),
        // Constraints: the rows of this item's channel contradict each other.
        "23" => Some(StoreRefusal::Failed),
        _ => None,
    }
}
