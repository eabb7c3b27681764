//! Where the databases are, and how they are used.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A database's address.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    /// A file.
    Sqlite(PathBuf),
    /// A database of a PostgreSQL server, as its own clients write it.
    Postgres(String),
}

/// An address that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")]
pub struct UrlError;

impl std::str::FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            // What its client can't read would fail at the start only, with less to say.
            return text.parse::<tokio_postgres::Config>().map(|_| Url::Postgres(text.to_owned())).map_err(|_| UrlError);
        }
        match text.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest)) {
            Some(path) if !path.is_empty() => Ok(Url::Sqlite(path.into())),
            _ => Err(UrlError),
        }
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Url::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            // It may hold a password.
            Url::Postgres(_) => f.write_str("postgres:…"),
        }
    }
}

/// How much of a channel is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Publications.
    pub size: usize,
    /// How long, milliseconds.
    pub ttl_ms: u64,
    /// How long the position of an empty channel is kept, milliseconds.
    pub meta_ttl_ms: u64,
}

/// Tells how much of a channel is kept, if it is durable.
pub type LimitsOf = Arc<dyn Fn(&str) -> Option<Limits> + Send + Sync>;

/// How to open a store.
#[derive(Clone)]
pub struct Settings {
    /// Where it is.
    pub primary: Url,
    /// Path of authorities (PEM) that PostgreSQL is trusted by besides the system's; empty = none.
    pub tls_ca: String,
    /// How long PostgreSQL may take to answer before what was asked for fails, and the connection is made anew.
    pub timeout: Duration,
    /// This node, where others write into the same PostgreSQL; empty = none do.
    pub notifier: String,
    /// How much of a channel is kept; none = it is not durable. Asked for publications that applications put into PostgreSQL themselves.
    pub limits: LimitsOf,
    /// Bring the schema up to date at the start.
    pub migrates: bool,
    /// How long a batch of publications waits for more before it is committed. Zero commits at once; what comes during a commit is one batch.
    pub commit_delay: Duration,
    /// Publications in one commit, at most.
    pub commit_size: usize,
    /// Publications that may wait for a commit.
    pub commit_queue: usize,
    /// Reads at a time.
    pub pool_size: usize,
    /// Questions that may wait for a read.
    pub read_queue: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let path = |text: &str| text.parse::<Url>().map(|url| format!("{url:?}"));
        assert_eq!(path("sqlite:a/b.db").as_deref(), Ok("sqlite:a/b.db"));
        assert_eq!(path("sqlite:///var/lib/touchline.db").as_deref(), Ok("sqlite:/var/lib/touchline.db"));
        assert_eq!(path("postgres://me:secret@db/touchline").as_deref(), Ok("postgres:…"), "no secret is shown");
        for bad in ["", "sqlite:", "mysql://x", "/var/lib/touchline.db", "postgres://db:port/x", "postgres://db/x?no_such=1"] {
            assert_eq!(path(bad), Err(UrlError), "{bad}");
        }
    }
}
