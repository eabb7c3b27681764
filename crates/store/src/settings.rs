//! The addresses and settings of the databases.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use touchline_config::StoreSettings;
use touchline_protocol::stream::Retention;

use crate::errors::OpenError;
use crate::growth::GrowthLimits;
use crate::sqlite::{facts, files};

/// The address of a database.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// The path of an SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database, in the form that PostgreSQL clients use.
    Postgres(String),
}

/// The error for a text that is not the address of a database.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")]
pub struct UrlError;

impl std::str::FromStr for DatabaseUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            // Otherwise an address that the client cannot parse would fail only at the start, with a shorter message.
            return text
                .parse::<tokio_postgres::Config>()
                .map(|_| DatabaseUrl::Postgres(text.to_owned()))
                .map_err(|_| UrlError);
        }
        match text.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest)) {
            Some(path) if !path.is_empty() => Ok(DatabaseUrl::Sqlite(path.into())),
            _ => Err(UrlError),
        }
    }
}

impl DatabaseUrl {
    /// Checks whether a database could be at this address, without creating, locking or connecting to anything.
    ///
    /// # Errors
    /// [`OpenError::File`] if no database can be there.
    pub fn inspect(&self) -> Result<(), OpenError> {
        let DatabaseUrl::Sqlite(path) = self else { return Ok(()) };
        files::inspect(path).map_err(|source| OpenError::File { path: path.display().to_string(), source })
    }

    /// The number of shared facts in the file. 0 = there are none, the file does not exist or cannot be read, or the
    /// address is not a file.
    pub fn facts_in_file(&self) -> u64 {
        match self {
            DatabaseUrl::Sqlite(path) if path.is_file() => facts::count(path).unwrap_or_default(),
            _ => 0,
        }
    }

    /// Whether both addresses mean the same file, however each is written.
    pub fn is_same_file(&self, other: &DatabaseUrl) -> bool {
        match (self, other) {
            (DatabaseUrl::Sqlite(one), DatabaseUrl::Sqlite(two)) => canonical(one) == canonical(two),
            _ => false,
        }
    }
}

/// The path without links and `..`, as far as it exists.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let above = path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    match (above, path.file_name()) {
        (Some(above), Some(name)) => canonical(above).join(name),
        _ => path.to_owned(),
    }
}

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatabaseUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            // The address may contain a password.
            DatabaseUrl::Postgres(_) => f.write_str("postgres:…"),
        }
    }
}

/// A function that returns the retention of a channel by its name. `None` = the channel is not durable.
pub type RetentionOf = Arc<dyn Fn(&str) -> Option<Retention> + Send + Sync>;

/// How to open a store.
#[derive(Clone)]
pub struct PrimaryOptions {
    /// The `store` part of the configuration.
    pub store: StoreSettings,
    /// The address of the primary database, from `store`.
    pub url: DatabaseUrl,
    /// Certificates (PEM) of authorities that may sign PostgreSQL's certificate, in addition to the system's. Empty =
    /// none.
    pub tls_ca: String,
    /// The id of this node if other nodes write into the same PostgreSQL database. Empty = no other node does.
    pub notifier: String,
    /// The retention of a channel. `None` = it is not durable. It is used for publications that applications put into
    /// the outbox in PostgreSQL.
    pub retention: RetentionOf,
    /// True if the shared facts are kept in this database: they are loaded and followed. In PostgreSQL this needs a
    /// `notifier`.
    pub has_facts: bool,
    /// How long the record of a user's last connection is kept, seconds. 0 = no records are written or deleted.
    pub seen_expires_s: u64,
    /// Totals of reactions are deleted when nothing in their channel has changed for this time, milliseconds. 0 =
    /// never.
    pub reactions_expire_ms: u64,
}

impl PrimaryOptions {
    /// The size limits of the database.
    pub(crate) fn growth_limits(&self) -> GrowthLimits {
        let primary = &self.store.primary;
        let is_file = matches!(self.url, DatabaseUrl::Sqlite(_));
        // The disk of a PostgreSQL server is not visible to the node.
        GrowthLimits { max_size: primary.max_size, disk_reserve: if is_file { primary.disk_reserve } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let path = |text: &str| text.parse::<DatabaseUrl>().map(|url| format!("{url:?}"));
        assert_eq!(path("sqlite:a/b.db").as_deref(), Ok("sqlite:a/b.db"));
        assert_eq!(path("sqlite:///var/lib/touchline.db").as_deref(), Ok("sqlite:/var/lib/touchline.db"));
        assert_eq!(path("postgres://me:secret@db/touchline").as_deref(), Ok("postgres:…"), "no secret is shown");
        for bad in
            ["", "sqlite:", "mysql://x", "/var/lib/touchline.db", "postgres://db:port/x", "postgres://db/x?no_such=1"]
        {
            assert_eq!(path(bad), Err(UrlError), "{bad}");
        }
    }

    fn url(text: &str) -> DatabaseUrl {
        text.parse().expect("it is an address")
    }

    #[test]
    fn one_file_is_known_by_all_its_names() {
        for (one, two, expected) in [
            ("sqlite:a.db", "sqlite:./a.db", true),
            ("sqlite:no_such/a.db", "sqlite:./no_such//a.db", true),
            ("sqlite:src/a.db", "sqlite:src/sqlite/../a.db", true),
            ("sqlite:a.db", "sqlite:b.db", false),
            ("sqlite:a.db", "postgres://localhost/a.db", false),
        ] {
            assert_eq!(url(one).is_same_file(&url(two)), expected, "{one} {two}");
        }
    }

    #[test]
    fn a_path_that_cannot_hold_a_database_is_refused_before_it_is_opened() {
        let directory = std::env::temp_dir().join(format!("touchline-inspect-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let file = |name: &str, text: &[u8]| std::fs::write(directory.join(name), text).expect("it is ours");
        file("junk.db", b"a file of something else, longer than a head");
        file("empty.db", b"");
        rusqlite::Connection::open(directory.join("good.db"))
            .and_then(|good| good.execute_batch("CREATE TABLE t (c)"))
            .expect("it is made");
        for (name, is_one) in [
            ("good.db", true),
            ("empty.db", true),
            ("new/and/deep.db", true),
            ("junk.db", false),
            ("", false),
            ("junk.db/below.db", false),
        ] {
            let inspected = url(&format!("sqlite:{}", directory.join(name).display())).inspect();
            assert_eq!(inspected.is_ok(), is_one, "{name}: {inspected:?}");
        }
        assert!(!directory.join("new").exists(), "nothing is made");
        let _ = std::fs::remove_dir_all(&directory);
    }
}
