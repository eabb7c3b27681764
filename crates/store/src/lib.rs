//! The primary database: the history of durable channels, on disk before a publisher is acknowledged; the directory of
//! channels; messages in the inboxes of names that have no owner at the moment.
//!
//! [`Store::open`] returns a handle that takes requests, and calls one function with every event. The databases have
//! threads of their own: no call here blocks. A request that the queue has no room for is refused at once.

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
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset, Retention, RunId, Runs, StreamPosition};

pub use runs::KnownRuns;
pub use schema::Schema;
pub use search::{ChannelDescription, OnSearched, Search, SearchResult};
pub use settings::{DatabaseUrl, PrimaryOptions, RetentionOf, UrlError};

/// Why a database cannot be opened.
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
    #[error("{path}: {source}")]
    Sqlite {
        /// Path of the file.
        path: String,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// PostgreSQL cannot be reached, or refuses the login or a migration; the text is its reason.
    #[error("PostgreSQL: {0}")]
    Postgres(String),
    /// The schema has another version than this program.
    #[error(transparent)]
    Schema(#[from] migrate::SchemaError),
}

/// Why a request to the store failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRefusal {
    /// Too many requests wait already.
    QueueFull,
    /// The database failed; it may work again later. Nothing was delivered, and it is likely that nothing was stored.
    Failed,
    /// The inbox of the name holds as many messages as it may.
    InboxFull,
    /// The directory has no description of the channel.
    NotFound,
    /// The database cannot store the values of the request, and never will: a text with NUL, a text that is too long
    /// for an index, a number out of range.
    Invalid,
}

/// Takes every event of the store.
type EventSink = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// Takes the result of an append.
pub type OnAppended = Box<dyn FnOnce(Result<StreamPosition, StoreRefusal>) + Send>;
/// Takes the result of any other write.
pub type OnDone = Box<dyn FnOnce(Result<(), StoreRefusal>) + Send>;
/// Takes the id of an inbox message that is on disk.
pub type OnQueued = Box<dyn FnOnce(Result<u64, StoreRefusal>) + Send>;

/// A publication to be stored.
pub struct Append {
    /// The channel.
    pub channel: ChannelName,
    /// A head of [`PAYLOAD_HEAD_SIZE`] bytes, then the publication's JSON object. Only the object is stored;
    /// [`StoreEvent::Appended`] returns the payload unchanged.
    pub payload: Bytes,
    /// When it was published, Unix milliseconds.
    pub time_ms: u64,
    /// Idempotency key. The same key again within five minutes returns the first position and stores nothing; empty =
    /// no key.
    pub key: Box<str>,
    /// The application's version of the data. A version at or below the channel's stores nothing; 0 = no version.
    pub version: u64,
    /// The application's epoch of `version`: versions are compared within one epoch only.
    pub version_epoch: Box<str>,
    /// How much of its log the channel keeps.
    pub retention: Retention,
    /// Called once the publication is on disk, or was refused.
    pub done: OnAppended,
}

/// A message to a registered name, kept until the owner of the name acknowledges it.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    /// The name's scope.
    pub scope: Arc<str>,
    /// The name.
    pub name: Box<str>,
    /// The message, a JSON object.
    pub message: Bytes,
    /// When the message is deleted, Unix milliseconds.
    pub expires_ms: u64,
    /// Number of messages that the inbox of the name may hold.
    pub limit: usize,
}

/// Bytes before the JSON object in a payload: a format byte, a kind byte, the length of the rest of the head in two
/// bytes, and the time in eight bytes, little-endian.
pub const PAYLOAD_HEAD_SIZE: usize = 12;

/// The format of rows that hold data of applications or clients. A row with a higher format is not read.
const ROW_FORMAT: i64 = 1;

/// A row that a later version of this program wrote.
#[derive(Debug, thiserror::Error)]
#[error("a row has format {0}, and this program reads formats up to {ROW_FORMAT}: run the newer program")]
struct NewerRow(i64);

/// Checks that this program can read rows of a format.
fn readable(format: i64) -> Result<(), NewerRow> {
    if format > ROW_FORMAT { Err(NewerRow(format)) } else { Ok(()) }
}

/// A row that does not hold what was written.
#[derive(Debug, thiserror::Error)]
#[error("the row of {place} is damaged: it does not hold a JSON object")]
struct DamagedRow {
    place: String,
}

/// Returns the object of a row if it is a JSON object, as every stored one is. A database itself detects damage in its
/// pages only where the damage breaks their structure.
fn intact(object: Vec<u8>, place: impl FnOnce() -> String) -> Result<Bytes, DamagedRow> {
    let text = std::str::from_utf8(&object).ok().filter(|text| text.starts_with('{'));
    match text.map(serde_json::from_str::<IgnoredAny>) {
        Some(Ok(_)) => Ok(object.into()),
        _ => Err(DamagedRow { place: place() }),
    }
}

/// The longest duration, milliseconds; longer ones are cut to it. The databases add durations to times in 63 bits.
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
    /// The channel's epoch, in the current run.
    pub epoch: Epoch,
    /// The channel's last offset; 0 = nothing was ever published.
    pub top: Offset,
    /// `kept` holds every publication after this offset.
    pub floor: Offset,
    /// The publications, oldest first.
    pub kept: Vec<KeptPublication>,
    /// The runs of the database that assigned the channel's offsets.
    pub runs: Runs,
}

impl StoredHistory {
    /// Drops the publications before a gap: a history never has one.
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

/// What the store reports to its owner.
#[derive(Debug)]
pub enum StoreEvent {
    /// A publication is on disk. The publications of one channel come in the order of their offsets.
    Appended {
        /// The channel.
        channel: ChannelName,
        /// The publication's position.
        position: StreamPosition,
        /// The payload of the [`Append`].
        payload: Bytes,
    },
    /// All results of one commit, or of one refused request, have been reported. An owner that batches
    /// [`StoreEvent::Appended`] and the results of [`OnAppended`] acts on the batch now.
    BatchReported,
    /// The result of [`Store::load`].
    Loaded {
        /// The channel.
        channel: ChannelName,
        /// The load that this answers.
        load: LoadId,
        /// The channel's history; none = it cannot be read now.
        history: Option<StoredHistory>,
    },
    /// Another node has stored publications.
    Advanced {
        /// The channel.
        channel: ChannelName,
        /// The channel's last offset, or an earlier one, with the channel's epoch and the run.
        position: StreamPosition,
    },
    /// Another node has removed the history of a channel.
    Cleared {
        /// The channel.
        channel: ChannelName,
    },
    /// Notifications of other nodes may have been missed: any channel may have new publications.
    Missed,
    /// A message was put into the inbox of a name.
    MessageQueued {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
    },
    /// The result of [`Store::inbox_messages`].
    InboxMessages {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
        /// Ids and messages, oldest first; none = they cannot be read now.
        messages: Option<Vec<(u64, Bytes)>>,
    },
}

/// Counters of a store.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    /// Publications written.
    pub stored: AtomicU64,
    /// Commits that were tried.
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
    /// Reads that wait or are under way.
    pub reading: AtomicU64,
    /// Inbox messages written.
    pub inbox_messages: AtomicU64,
    /// Inbox messages that expired before their owner acknowledged them.
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

    /// Whether the last write failed; writes are tried again. A store also writes to a damaged database, as far as that
    /// succeeds.
    fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }
}

/// A handle of the primary database.
pub struct Store {
    primary: Primary,
    metrics: Arc<StoreMetrics>,
    events: EventSink,
    read_queue: u64,
}

enum Primary {
    Sqlite(sqlite::SqlitePrimary),
    Postgres(postgres::PostgresPrimary),
}

impl Store {
    /// Opens the database, and brings its schema up to date if the settings want that.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        settings: &PrimaryOptions,
        events: impl Fn(StoreEvent) + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let (metrics, events): (_, EventSink) = (Arc::<StoreMetrics>::default(), Arc::new(events));
        let primary = match &settings.primary {
            DatabaseUrl::Sqlite(path) => Primary::Sqlite(sqlite::SqlitePrimary::open(
                path,
                settings,
                EventSink::clone(&events),
                Arc::clone(&metrics),
            )?),
            DatabaseUrl::Postgres(url) => {
                let address = postgres::PostgresAddress::new(url, &settings.tls_ca, settings.timeout)?;
                Primary::Postgres(postgres::PostgresPrimary::open(
                    &address,
                    settings,
                    EventSink::clone(&events),
                    Arc::clone(&metrics),
                )?)
            }
        };
        Ok(Store { primary, metrics, events, read_queue: settings.read_queue as u64 })
    }

    /// Stores a publication; its `done` takes the result.
    pub fn append(&self, mut append: Append) {
        append.retention.ttl_ms = append.retention.ttl_ms.min(DURATION_MAX_MS);
        append.retention.meta_ttl_ms = append.retention.meta_ttl_ms.min(DURATION_MAX_MS);
        self.metrics.waiting.fetch_add(1, Relaxed);
        self.write(WriteRequest::Append(append));
    }

    /// Reads the history of a channel after an offset, at most the last `size` publications; [`StoreEvent::Loaded`]
    /// reports it. `behind` is the offset, and a number that the event repeats. A channel that does not exist yet gets
    /// its epoch, and is forgotten after `meta_ttl_ms` milliseconds if nothing is published.
    pub fn load(&self, channel: ChannelName, load: LoadId, size: usize, meta_ttl_ms: u64) {
        self.read(ReadRequest::History(HistoryLoad {
            channel,
            id: load,
            size,
            meta_ttl_ms: meta_ttl_ms.min(DURATION_MAX_MS),
        }));
    }

    /// Removes the history of a channel. Its position stays.
    pub fn remove(&self, channel: ChannelName, done: OnDone) {
        self.write(WriteRequest::Remove { channel, done });
    }

    /// Replaces the description of a channel.
    pub fn describe(&self, description: ChannelDescription, done: OnDone) {
        self.write(WriteRequest::Describe {
            weights: tfidf::weights(&description).into_iter().collect(),
            description,
            done,
        });
    }

    /// Deletes the description of a channel.
    pub fn forget(&self, channel: String, done: OnDone) {
        self.write(WriteRequest::Forget { channel, done });
    }

    /// Searches the directory of channels.
    pub fn search(&self, search: Search, done: OnSearched) {
        self.read(ReadRequest::Search(search, done));
    }

    /// Puts a message into an inbox; [`StoreEvent::MessageQueued`] reports it on every node.
    pub fn queue_message(&self, message: InboxMessage, done: OnQueued) {
        self.write(WriteRequest::QueueMessage(message, done));
    }

    /// Reads the inbox of a name after an id, at most `limit` messages; [`StoreEvent::InboxMessages`] reports them.
    pub fn inbox_messages(&self, scope: Arc<str>, name: Box<str>, behind: u64, limit: usize) {
        self.read(ReadRequest::InboxMessages { scope, name, behind, limit });
    }

    /// Deletes inbox messages that their owners have acknowledged.
    pub fn discard_messages(&self, ids: Vec<u64>, done: OnDone) {
        self.write(WriteRequest::DiscardMessages { ids, done });
    }

    /// Begins a new run if the current run is `lost`. The caller knows of a
    /// publication that the database lacks: offsets of the channel from `first` on are of the new run.
    pub fn begin_run(&self, channel: ChannelName, lost: RunId, first: Offset) {
        self.write(WriteRequest::BeginRun { channel, lost, first });
    }

    fn write(&self, write: WriteRequest) {
        let refused = match &self.primary {
            Primary::Sqlite(primary) => primary.write(write),
            Primary::Postgres(primary) => primary.write(write),
        };
        if let Some((write, refusal)) = refused {
            write.reject(&self.events, &self.metrics, refusal);
        }
    }

    fn read(&self, read: ReadRequest) {
        if self.metrics.reading.fetch_add(1, Relaxed) >= self.read_queue {
            return read.finish(&self.metrics).refuse(&self.events, StoreRefusal::QueueFull);
        }
        let refused = match &self.primary {
            Primary::Sqlite(primary) => primary.read(read),
            Primary::Postgres(primary) => primary.read(read),
        };
        if let Some(read) = refused {
            read.finish(&self.metrics).refuse(&self.events, StoreRefusal::Failed);
        }
    }

    /// The store's counters.
    pub fn metrics(&self) -> &Arc<StoreMetrics> {
        &self.metrics
    }

    /// Commits the waiting writes and closes the database. Blocks until that is done.
    pub fn close(&self) {
        match &self.primary {
            Primary::Sqlite(primary) => primary.close(),
            Primary::Postgres(primary) => primary.close(),
        }
    }
}
