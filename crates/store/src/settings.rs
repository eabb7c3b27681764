//! Where the databases are, and how they are used.

use std::path::PathBuf;
use std::time::Duration;

/// A database's address.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    /// A file.
    Sqlite(PathBuf),
}

/// An address that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected sqlite:PATH")]
pub struct UrlError;

impl std::str::FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
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
        }
    }
}

/// How to open a store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is.
    pub primary: Url,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let path = |text: &str| text.parse().map(|Url::Sqlite(path)| path.display().to_string());
        assert_eq!(path("sqlite:a/b.db").as_deref(), Ok("a/b.db"));
        assert_eq!(path("sqlite:///var/lib/touchline.db").as_deref(), Ok("/var/lib/touchline.db"));
        for bad in ["", "sqlite:", "mysql://x", "/var/lib/touchline.db"] {
            assert_eq!(path(bad), Err(UrlError), "{bad}");
        }
    }
}
