//! What must not be lost: the history of durable channels, on disk before a publisher is acknowledged; what is known of
//! channels; letters to names that nobody has now.
//!
//! [`Store::open`] gives a handle to ask with, and hands what comes of it to one function. The databases have threads
//! of their own: nothing here makes a caller wait. What is asked beyond the room of the queue is refused at once.

mod batch;
pub mod copies;
pub mod migrate;
mod panics;
mod postgres;
mod runs;
mod schema;
mod search;
mod settings;
pub mod sketch;
mod sqlite;
pub mod stats;
mod tfidf;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use batch::{HistoryLoad, ReadRequest, WriteRequest};
use bytes::Bytes;
use serde::de::IgnoredAny;
use touchline_protocol::stream::{ChannelName, LoadId, Offset, Retention};

pub use runs::{KnownRuns, Runs};
pub use schema::Schema;
pub use search::{Description, OnSearched, Search, SearchResult};
pub use settings::{RetentionOf, Settings, Url, UrlError};

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
pub enum StoreRefusal {
    /// Too much waits already.
    QueueFull,
    /// The database failed; it may work again later. Nothing was delivered, and it is likely that nothing was stored.
    Failed,
    /// There are as many letters for that name as there may be.
    InboxFull,
    /// Nothing is said of that channel.
    NotFound,
    /// The database can't keep what it holds, and never will: a text with NUL, one that is too long for an index, a
    /// number out of range.
    Invalid,
}

/// Takes all that comes of it.
type EventSink = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// Where a publication stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedAt {
    /// Its offset in its channel: 1, 2, 3 …
    pub offset: Offset,
    /// The channel's epoch.
    pub epoch: u64,
    /// The id of the current run: 40 bits.
    pub run: u64,
}

/// Takes what came of an append.
pub type OnAppended = Box<dyn FnOnce(Result<AppendedAt, StoreRefusal>) + Send>;
/// Takes what came of anything else.
pub type OnDone = Box<dyn FnOnce(Result<(), StoreRefusal>) + Send>;
/// Takes the id of a letter that is on disk.
pub type OnQueued = Box<dyn FnOnce(Result<u64, StoreRefusal>) + Send>;

/// A publication to be stored.
pub struct Append {
    /// The channel.
    pub channel: ChannelName,
    /// Handed back as it is by [`StoreEvent::StoredPublication`]: a head of [`HEAD`] bytes and the publication's JSON object, which
    /// is what is stored.
    pub payload: Bytes,
    /// When it was published, Unix milliseconds.
    pub time_ms: u64,
    /// The same key again within five minutes gives the first place and stores nothing; empty = none.
    pub key: Box<str>,
    /// A version at or below the channel's stores nothing; 0 = none.
    pub version: u64,
    /// Versions compare within one epoch of the application.
    pub version_epoch: Box<str>,
    /// How much of its log the channel keeps.
    pub retention: Retention,
    /// Is told once it is safe on disk, or can't be.
    pub done: OnAppended,
}

/// A message to a name, kept until its owner acknowledges it.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    /// The name's scope.
    pub scope: Arc<str>,
    /// The name.
    pub name: Box<str>,
    /// A JSON object.
    pub message: Bytes,
    /// It is thrown away then, Unix milliseconds.
    pub expires_ms: u64,
    /// Letters that may wait for the name.
    pub limit: usize,
}

/// Bytes before the JSON object in a payload: format, kind, and length of the rest, which is the time as eight bytes,
/// little-endian.
pub const PAYLOAD_HEAD_SIZE: usize = 12;

/// The format of rows that hold what applications or clients have said. A row of a higher one is not read.
const ROW_FORMAT: i64 = 1;

/// A row that a later version has written.
#[derive(Debug, thiserror::Error)]
#[error("a row has format {0}, and this program reads formats up to {ROW_FORMAT}: run the newer program")]
struct NewerRow(i64);

/// Whether a row of a format can be read.
fn readable(format: i64) -> Result<(), NewerRow> {
    if format > ROW_FORMAT { Err(NewerRow(format)) } else { Ok(()) }
}

/// A row that is not what was written.
#[derive(Debug, thiserror::Error)]
#[error("the row of {place} is damaged: it does not hold a JSON object")]
struct DamagedRow {
    place: String,
}

/// What a row holds, if it can be a JSON object that was stored. A database finds damage in its own pages only where it
/// breaks their structure.
fn intact(object: Vec<u8>, place: impl FnOnce() -> String) -> Result<Bytes, DamagedRow> {
    let text = std::str::from_utf8(&object).ok().filter(|text| text.starts_with('{'));
    match text.map(serde_json::from_str::<IgnoredAny>) {
        Some(Ok(_)) => Ok(object.into()),
        _ => Err(DamagedRow { place: place() }),
    }
}

/// Lengths of time beyond it are for ever: the databases add them to times, in 63 bits.
const DURATION_MAX_MS: u64 = i64::MAX as u64 / 4;

/// A publication that the store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPublication {
    /// Its offset.
    pub offset: Offset,
    /// When it was published, Unix milliseconds.
    pub time_ms: u64,
    /// The publication as a JSON object.
    pub object: Bytes,
}

/// What the store keeps of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHistory {
    /// The channel's epoch.
    pub epoch: u64,
    /// Its last offset; 0 = nothing was ever published.
    pub top: Offset,
    /// Nothing behind this offset is missing in `kept`.
    pub floor: Offset,
    /// The publications, oldest first.
    pub kept: Vec<KeptPublication>,
    /// Which runs gave its offsets.
    pub runs: Runs,
}

impl StoredHistory {
    /// The same without what is before a hole: a history has none.
    fn whole(mut self) -> Self {
        let expected = (1..=self.top.0).rev();
        let whole =
            self.kept.iter().rev().zip(expected).take_while(|(kept, expected)| kept.offset.0 == *expected).count();
        if (whole as u64) < self.top.0.saturating_sub(self.floor.0) {
            self.kept.drain(..self.kept.len() - whole);
            self.floor = Offset(self.top.0 - whole as u64);
        }
        self
    }
}

/// What comes of it.
#[derive(Debug)]
pub enum StoreEvent {
    /// A publication is on disk. Those of one channel come in the order of their offsets.
    Stored {
        /// The channel.
        channel: ChannelName,
        /// Where.
        placed: AppendedAt,
        /// As in [`Append::payload`].
        payload: Bytes,
    },
    /// All that one commit came to has been told, or that something was refused: whoever gathers [`StoreEvent::StoredPublication`]
    /// and what the [`OnAppended`] say may act on it. It comes after every one of them.
    Settled,
    /// An answer to [`Store::load`]; none = it can't be had now.
    Loaded {
        /// The channel.
        channel: ChannelName,
        /// The load that this answers.
        load: LoadId,
        /// Its history.
        history: Option<StoredHistory>,
    },
    /// Another node has stored something.
    Grown {
        /// The channel.
        channel: ChannelName,
        /// Its last offset, or one before it, and in which life and run of the channel.
        placed: AppendedAt,
    },
    /// Another node has removed what was kept of a channel.
    Cleared {
        /// The channel.
        channel: ChannelName,
    },
    /// What other nodes have stored could not be heard of for a while: any channel may have grown.
    Missed,
    /// There is a letter for a name.
    MessageQueued {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
    },
    /// An answer to [`Store::letters`]; none = they can't be had now.
    InboxMessages {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
        /// Ids and messages, oldest first.
        letters: Option<Vec<(u64, Bytes)>>,
    },
}

/// What a store has done.
#[derive(Debug, Default)]
pub struct StoreMetrics {
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
    /// Questions that wait for a reader, and those that are read now.
    pub reading: AtomicU64,
    /// Letters kept.
    pub inbox_messages: AtomicU64,
    /// Letters that nobody came for in time.
    pub inbox_messages_expired: AtomicU64,
    is_failing: AtomicBool,
    is_damaged: AtomicBool,
    is_closed: AtomicBool,
}

impl StoreMetrics {
    /// Whether the last write succeeded, and the database was never found damaged.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing() && !self.is_damaged.load(Relaxed)
    }

    /// Whether the last write failed: it is tried again. A damaged database is written to all the same, where that
    /// succeeds.
    fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }
}

/// The way to the database.
pub struct Store {
    primary: Primary,
    figures: Arc<StoreMetrics>,
    hand: EventSink,
    read_queue: u64,
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
    pub fn open(settings: &Settings, hand: impl Fn(StoreEvent) + Send + Sync + 'static) -> Result<Self, OpenError> {
        let (figures, hand): (_, EventSink) = (Arc::<StoreMetrics>::default(), Arc::new(hand));
        let primary = match &settings.primary {
            Url::Sqlite(path) => {
                Primary::Sqlite(sqlite::Primary::open(path, settings, EventSink::clone(&hand), Arc::clone(&figures))?)
            }
            Url::Postgres(url) => {
                let address = postgres::Address::new(url, &settings.tls_ca, settings.timeout)?;
                Primary::Postgres(postgres::Primary::open(
                    &address,
                    settings,
                    EventSink::clone(&hand),
                    Arc::clone(&figures),
                )?)
            }
        };
        Ok(Store { primary, figures, hand, read_queue: settings.read_queue as u64 })
    }

    /// Stores a publication; what came of it is told to its `done`.
    pub fn append(&self, mut append: Append) {
        append.retention.ttl_ms = append.retention.ttl_ms.min(DURATION_MAX_MS);
        append.retention.meta_ttl_ms = append.retention.meta_ttl_ms.min(DURATION_MAX_MS);
        self.figures.waiting.fetch_add(1, Relaxed);
        self.write(WriteRequest::Append(append));
    }

    /// Reads what is kept of a channel behind an offset, at most the last `size`; [`StoreEvent::Loaded`] tells it.
    /// `behind` is the offset, and a number that the answer carries. A channel that is not there yet gets its
    /// epoch, and is forgotten after `meta_ttl_ms` milliseconds if nothing is published.
    pub fn load(&self, channel: ChannelName, load: LoadId, size: usize, meta_ttl_ms: u64) {
        self.read(ReadRequest::History(HistoryLoad {
            channel,
            id: load,
            size,
            meta_ttl_ms: meta_ttl_ms.min(DURATION_MAX_MS),
        }));
    }

    /// Removes what is kept of a channel. Its position stays.
    pub fn remove(&self, channel: ChannelName, done: OnDone) {
        self.write(WriteRequest::Remove { channel, done });
    }

    /// Replaces what is said of a channel.
    pub fn describe(&self, description: Description, done: OnDone) {
        self.write(WriteRequest::Describe {
            weights: tfidf::weights(&description).into_iter().collect(),
            description,
            done,
        });
    }

    /// Lets go of what is said of a channel.
    pub fn forget(&self, channel: String, done: OnDone) {
        self.write(WriteRequest::Forget { channel, done });
    }

    /// Asks the directory of channels.
    pub fn search(&self, find: Search, done: OnSearched) {
        self.read(ReadRequest::Find(find, done));
    }

    /// Keeps a letter; [`StoreEvent::Mail`] tells of it on every node.
    pub fn queue_message(&self, letter: InboxMessage, done: OnQueued) {
        self.write(WriteRequest::QueueMessage(letter, done));
    }

    /// Asks for letters to a name behind an id, at most `limit`; [`StoreEvent::Letters`] tells them.
    pub fn inbox_messages(&self, scope: Arc<str>, name: Box<str>, behind: u64, limit: usize) {
        self.read(ReadRequest::InboxMessages { scope, name, behind, limit });
    }

    /// Throws letters away that have arrived.
    pub fn discard_messages(&self, ids: Vec<u64>, done: OnDone) {
        self.write(WriteRequest::DiscardMessages { ids, done });
    }

    /// Begins a new run if the current run is `lost`, an id as in [`AppendedAt::run`]. The caller knows of a publication
    /// that the database lacks: offsets of the channel from `first` on are of the new run.
    pub fn begin_run(&self, channel: ChannelName, lost: u64, first: Offset) {
        self.write(WriteRequest::BeginRun { channel, lost, first });
    }

    fn write(&self, write: WriteRequest) {
        let refused = match &self.primary {
            Primary::Sqlite(primary) => primary.write(write),
            Primary::Postgres(primary) => primary.write(write),
        };
        if let Some((write, refusal)) = refused {
            write.turn_back(&self.hand, &self.figures, refusal);
        }
    }

    fn read(&self, read: ReadRequest) {
        if self.figures.reading.fetch_add(1, Relaxed) >= self.read_queue {
            return read.finish(&self.figures).refuse(&self.hand, StoreRefusal::QueueFull);
        }
        let refused = match &self.primary {
            Primary::Sqlite(primary) => primary.read(read),
            Primary::Postgres(primary) => primary.read(read),
        };
        if let Some(read) = refused {
            read.finish(&self.figures).refuse(&self.hand, StoreRefusal::Failed);
        }
    }

    /// What it has done.
    pub fn metrics(&self) -> &Arc<StoreMetrics> {
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
