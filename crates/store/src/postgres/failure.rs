//! Failures of PostgreSQL: the cause, whether it may end by itself, and what to do.

use std::io;

use crate::metrics::StoreMetrics;
use crate::migrate::SchemaError;
use crate::panics::Panicked;
use crate::refusal::StoreRefusal;
use crate::rows::NewerRow;

/// A failure of PostgreSQL. No text contains the user or the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The address cannot be parsed.
    #[error("the address can't be read: {}; expected postgres://USER:PASSWORD@HOST/DATABASE", reason(.0))]
    Address(#[source] tokio_postgres::Error),
    /// The address does not contain a host.
    #[error("the URL names no host: postgres://USER:PASSWORD@HOST/DATABASE")]
    NoHost,
    /// A certificate of an additional authority cannot be used.
    #[error("tls_ca holds an authority that can't be used: {0}; expected certificates in PEM")]
    Authority(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// TLS cannot be set up.
    #[error("TLS can't be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// PostgreSQL returned an error, or the connection broke.
    #[error("{}{}", reason(.0), remedy(.0))]
    Database(#[from] tokio_postgres::Error),
    /// PostgreSQL cannot be reached, or refuses the login.
    #[error("{address}: {}{}", reason(.source), remedy(.source))]
    Unreachable {
        /// The host, port and database.
        address: String,
        /// The error of the client library.
        source: tokio_postgres::Error,
    },
    /// The table does not exist, or the user cannot see it.
    #[error("there is no table {table} that this user can see: create it, or correct its name")]
    NoTable {
        /// The name of the table in the configuration.
        table: String,
    },
    /// The user may not read the table, or may not delete finished rows from it.
    #[error("this user may not read and delete rows of the table {table}: GRANT SELECT, DELETE on it")]
    NoRight {
        /// The name of the table in the configuration.
        table: String,
    },
    /// The user may not vacuum the table.
    #[error("this user may not vacuum {table}: make it the owner, or from PostgreSQL 17 on GRANT MAINTAIN on it")]
    NoVacuum {
        /// The table with its schema.
        table: String,
    },
    /// The statements of one transaction reach different database processes, so they are not a transaction.
    #[error(
        "a pooler gives the statements of one transaction to different connections: let it pool transactions or \
         sessions (pool_mode = transaction), or name the database itself"
    )]
    StatementPooler,
    /// PostgreSQL did not answer in time.
    #[error("no answer in time; check the server and the network, or raise the timeout of the database")]
    TimedOut(#[from] tokio::time::error::Elapsed),
    /// The schema's version differs from the one that this program needs.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A later version of this program wrote the row.
    #[error(transparent)]
    Newer(#[from] NewerRow),
    /// A bug in this program ended the request.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

impl PostgresError {
    /// Whether the failure may end by itself, because the server is unreachable, starting, stopping or full. PostgreSQL
    /// would repeat any other error.
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
            | PostgresError::NoVacuum { .. }
            | PostgresError::StatementPooler
            | PostgresError::Authority(_)
            | PostgresError::Tls(_)
            | PostgresError::Schema(_)
            | PostgresError::Newer(_)
            | PostgresError::Panicked(_) => false,
        }
    }

    /// Whether PostgreSQL cannot be reached: it is down, starting, stopping, or does not answer. Every user of the
    /// database gets this failure, each with a different error.
    pub(super) fn is_away(&self) -> bool {
        match self {
            PostgresError::Database(error) | PostgresError::Unreachable { source: error, .. } => {
                error.code().is_none_or(|code| code.code().starts_with("57P"))
            }
            PostgresError::TimedOut(_) => true,
            _ => false,
        }
    }

    /// Counts the failure of a write, and logs it unless its outage is already logged.
    pub(super) fn note(&self, metrics: &StoreMetrics) {
        if self.is_away() { metrics.fail_away(self) } else { metrics.fail(self) }
    }

    /// Whether the failure may concern only one item of a batch, so that the other items can be written.
    pub(crate) fn is_of_item(&self) -> bool {
        matches!(self, PostgresError::Database(error) if refusal_of(error).is_some())
    }
}

/// The error with its source, because the error alone only says "db error".
fn reason(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// What the operator can do, as text that begins with a semicolon, by the code of PostgreSQL or the error of the
/// operating system. Empty = no remedy is known.
fn remedy(error: &tokio_postgres::Error) -> &'static str {
    let Some(code) = error.code() else {
        let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
        return match source.map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => {
                "; check that PostgreSQL is running and listens there (listen_addresses, port)"
            }
            Some(io::ErrorKind::NotFound) => "; check that PostgreSQL is running: its socket does not exist",
            _ => "",
        };
    };
    match code.code() {
        "28P01" => "; set the user and the password in the URL of the database",
        "28000" => "; allow this user from this machine in pg_hba.conf of the server",
        "3D000" => "; create the database (createdb)",
        "42501" => {
            "; grant this user the missing right: on the database, to create schemas (GRANT CREATE ON DATABASE), on a \
             consumer's table (SELECT, DELETE), or on its table of dead rows (INSERT)"
        }
        "53300" => "; raise max_connections of the server, or lower pool_size",
        "53100" => "; free space on the disk of the server",
        "25006" => "; the server is a standby: configure the primary server",
        _ => "",
    }
}

/// The refusal of one item that an error stands for. `None` = the error concerns the whole batch.
pub(super) fn refusal_of(error: &tokio_postgres::Error) -> Option<StoreRefusal> {
    let code = error.code()?.code();
    match code.get(..2)? {
        // Data exceptions (a text with NUL, a number out of range), and texts that are too long for an index.
        "22" => Some(StoreRefusal::Invalid),
        _ if code == "54000" => Some(StoreRefusal::Invalid),
        // Constraint violations: the rows of this item's channel contradict each other.
        "23" => Some(StoreRefusal::Failed),
        _ => None,
    }
}
