//! What must not be lost: the history of durable channels, on disk before a publisher is acknowledged.
//!
//! [`Store::open`] gives a handle to ask with, and hands what comes of it to one function. The databases have threads of their own: nothing
//! here makes a caller wait. What is asked beyond the room of the queue is refused at once.

mod batch;
pub mod migrate;
mod postgres;
mod schema;
mod settings;
mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

pub use schema::Schema;
pub use settings::{Limits, LimitsOf, Settings, Url, UrlError};

/// Why a database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the files.
    #[error("another process uses {0}: a data directory belongs to one node")]
    InUse(String),
    /// The directory can't be made, or a file in it can't be opened.
    #[error("{path} can't be used: {source}")]
    File {
        /// Which one.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// SQLite refuses the file, or a migration.
    #[error("{path}: {source}")]
    Sqlite {
        /// Which file.
        path: String,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// PostgreSQL can't be reached, refuses us, or a migration.
    #[error("PostgreSQL: {0}")]
    Postgres(String),
    /// The schema does not fit.
    #[error(transparent)]
    Schema(#[from] migrate::SchemaError),
}

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Too much waits already.
    Full,
    /// The database failed; it may work again later. Nothing was delivered, and it is likely that nothing was stored.
    Failed,
}

/// Takes all that comes of it.
type Hand = Arc<dyn Fn(Incoming) + Send + Sync>;

/// Where a publication stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its offset in its channel: 1, 2, 3 …
    pub offset: u64,
    /// The channel's epoch.
    pub epoch: u64,
}

/// Takes what came of an append.
pub type OnPlaced = Box<dyn FnOnce(Result<Placed, Refusal>) + Send>;
/// Takes what came of anything else.
pub type OnDone = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

/// A publication to be stored.
pub struct Append {
    /// The channel.
    pub channel: Arc<str>,
    /// Handed back as it is by [`Incoming::Stored`]: a head of [`HEAD`] bytes and the publication's JSON object, which is what is stored.
    pub payload: Bytes,
    /// When it was published, Unix milliseconds.
    pub time_ms: u64,
    /// The same key again within five minutes gives the first place and stores nothing; empty = none.
    pub key: Box<str>,
    /// A version at or below the channel's stores nothing; 0 = none.
    pub version: u64,
    /// Versions compare within one epoch of the application.
    pub version_epoch: Box<str>,
    /// Publications that the channel keeps.
    pub size: usize,
    /// How long it keeps them, milliseconds.
    pub ttl_ms: u64,
    /// How long the position of an empty channel is kept, milliseconds.
    pub meta_ttl_ms: u64,
    /// Is told once it is safe on disk, or can't be.
    pub done: OnPlaced,
}

/// Bytes before the JSON object in a payload: a letter, and the time as eight bytes, little-endian.
pub const HEAD: usize = 9;

/// What is kept of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The channel's epoch.
    pub epoch: u64,
    /// Its last offset; 0 = nothing was ever published.
    pub top: u64,
    /// Nothing behind this offset is missing in `kept`.
    pub floor: u64,
    /// Offset, time (Unix milliseconds) and JSON object, oldest first.
    pub kept: Vec<(u64, u64, Bytes)>,
}

/// What comes of it.
#[derive(Debug)]
pub enum Incoming {
    /// A publication is on disk. Those of one channel come in the order of their offsets.
    Stored {
        /// The channel.
        channel: Arc<str>,
        /// Where.
        placed: Placed,
        /// As in [`Append::payload`].
        payload: Bytes,
    },
    /// An answer to [`Store::load`]; none = it can't be had now.
    Loaded {
        /// The channel.
        channel: Arc<str>,
        /// The offset that was asked behind.
        behind: u64,
        /// Its history.
        history: Option<History>,
    },
    /// Another node has stored something: the channel's last offset is this or higher.
    Grown {
        /// The channel.
        channel: Arc<str>,
        /// The offset.
        top: u64,
    },
    /// Another node has removed what was kept of a channel.
    Cleared {
        /// The channel.
        channel: Arc<str>,
    },
    /// What other nodes have stored could not be heard of for a while: any channel may have grown.
    Missed,
}

/// What a store has done.
#[derive(Debug, Default)]
pub struct Figures {
    /// Publications on disk.
    pub stored: AtomicU64,
    /// Commits.
    pub commits: AtomicU64,
    /// Commits that failed.
    pub failures: AtomicU64,
    /// Publications refused because the queue was full.
    pub refused: AtomicU64,
    /// Publications that wait for a commit.
    pub waiting: AtomicU64,
    /// Time spent in commits, microseconds.
    pub commit_us: AtomicU64,
    /// Histories read.
    pub loads: AtomicU64,
    is_failing: AtomicBool,
    is_closed: AtomicBool,
}

impl Figures {
    /// Whether the last write succeeded.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing.load(Relaxed)
    }
}

/// The way to the database.
pub struct Store {
    primary: Primary,
    figures: Arc<Figures>,
}

enum Primary {
    Sqlite(sqlite::Primary),
    Postgres(postgres::Primary),
}

impl Store {
    /// Opens the database, and brings its schema up to date if the settings want that.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(settings: &Settings, hand: impl Fn(Incoming) + Send + Sync + 'static) -> Result<Self, OpenError> {
        let (figures, hand) = (Arc::<Figures>::default(), Arc::new(hand));
        let primary = match &settings.primary {
            Url::Sqlite(path) => Primary::Sqlite(sqlite::Primary::open(path, settings, hand, Arc::clone(&figures))?),
            Url::Postgres(url) => {
                let address = postgres::Address::new(url, &settings.tls_ca, settings.timeout)?;
                Primary::Postgres(postgres::Primary::open(&address, settings, hand, Arc::clone(&figures))?)
            }
        };
        Ok(Store { primary, figures })
    }

    /// Stores a publication; what came of it is told to its `done`.
    pub fn append(&self, append: Append) {
        match &self.primary {
            Primary::Sqlite(primary) => primary.append(append),
            Primary::Postgres(primary) => primary.append(append),
        }
    }

    /// Asks for what is kept of a channel behind an offset, at most the last `size`; [`Incoming::Loaded`] tells it. One that is not there yet
    /// gets its epoch, and is forgotten after `meta_ttl_ms` milliseconds if nothing is published.
    pub fn load(&self, channel: Arc<str>, behind: u64, size: usize, meta_ttl_ms: u64) {
        let load = batch::Load { channel, behind, size, meta_ttl_ms };
        match &self.primary {
            Primary::Sqlite(primary) => primary.load(load),
            Primary::Postgres(primary) => primary.load(load),
        }
    }

    /// Removes what is kept of a channel. Its position stays.
    pub fn remove(&self, channel: Arc<str>, done: OnDone) {
        match &self.primary {
            Primary::Sqlite(primary) => primary.remove(channel, done),
            Primary::Postgres(primary) => primary.remove(channel, done),
        }
    }

    /// What it has done.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Commits what waits, and closes the database. Blocks until that is done.
    pub fn close(&self) {
        match &self.primary {
            Primary::Sqlite(primary) => primary.close(),
            Primary::Postgres(primary) => primary.close(),
        }
    }
}
