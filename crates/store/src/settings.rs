//! Where the databases are, and how they are used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use touchline_protocol::stream::Retention;

use crate::OpenError;
use crate::sqlite::files;

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
            return text
                .parse::<tokio_postgres::Config>()
                .map(|_| Url::Postgres(text.to_owned()))
                .map_err(|_| UrlError);
        }
        match text.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest)) {
            Some(path) if !path.is_empty() => Ok(Url::Sqlite(path.into())),
            _ => Err(UrlError),
        }
    }
}

impl Url {
    /// Whether a database could be here, as far as that is seen without making, locking or asking anything.
    ///
    /// # Errors
    /// [`OpenError::File`].
    pub fn inspect(&self) -> Result<(), OpenError> {
        let Url::Sqlite(path) = self else { return Ok(()) };
        files::inspect(path).map_err(|source| OpenError::File { path: path.display().to_string(), source })
    }

    /// Whether both are one file, however each is written.
    pub fn is_same_file(&self, other: &Url) -> bool {
        match (self, other) {
            (Url::Sqlite(one), Url::Sqlite(two)) => canonical(one) == canonical(two),
            _ => false,
        }
    }
}

/// The path without links and detours, as far as it is there.
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

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Url::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            // It may hold a password.
            Url::Postgres(_) => f.write_str("postgres:…"),
        }
    }
}

/// Gives the retention of a channel by its name; none = the channel is not durable.
pub type RetentionOf = Arc<dyn Fn(&str) -> Option<Retention> + Send + Sync>;

/// How to open a store.
#[derive(Clone)]
pub struct Settings {
    /// Where it is.
    pub primary: Url,
    /// Authorities (PEM) that PostgreSQL is trusted by besides the system's; empty = none.
    pub tls_ca: String,
    /// How long PostgreSQL may take to answer before what was asked for fails, and the connection is made anew.
    pub timeout: Duration,
    /// This node, where others write into the same PostgreSQL; empty = none do.
    pub notifier: String,
    /// How much of a channel is kept; none = it is not durable. Asked for publications that applications put into
    /// PostgreSQL themselves.
    pub retention: RetentionOf,
    /// Bring the schema up to date at the start.
    pub migrates: bool,
    /// How long a batch of publications waits for more before it is committed. Zero commits at once; what comes during
    /// a commit is one batch.
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
        for bad in
            ["", "sqlite:", "mysql://x", "/var/lib/touchline.db", "postgres://db:port/x", "postgres://db/x?no_such=1"]
        {
            assert_eq!(path(bad), Err(UrlError), "{bad}");
        }
    }

    fn url(text: &str) -> Url {
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
    fn what_can_be_no_database_is_known_before_it_is_opened() {
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
            let found = url(&format!("sqlite:{}", directory.join(name).display())).inspect();
            assert_eq!(found.is_ok(), is_one, "{name}: {found:?}");
        }
        assert!(!directory.join("new").exists(), "nothing is made");
        let _ = std::fs::remove_dir_all(&directory);
    }
}
