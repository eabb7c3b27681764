//! The handle of the primary database.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use touchline_protocol::fact::FactChange;
use touchline_protocol::stream::{ChannelName, LoadId, Offset, RunId};

use crate::batch::{HistoryLoad, OnDone, ReadRequest, WriteRequest};
use crate::description::{ChannelDescription, OnSearched, Search};
use crate::errors::OpenError;
use crate::events::{EventSink, StoreEvent};
use crate::facts::{FactListing, OnFacts};
use crate::inbox::{
    InboxDrop, InboxListing, InboxMessage, InboxSearch, OnDropped, OnInboxNames, OnInboxPage, OnQueued,
};
use crate::metrics::StoreMetrics;
use crate::postgres::{PostgresAddress, PostgresPrimary};
use crate::publication::{Append, DURATION_MAX_MS};
use crate::reactions::{OnReactions, ReactionPlace, ReactionRow};
use crate::refusal::StoreRefusal;
use crate::row_appends::{RowAppends, RowsRefusal};
use crate::seen::{OnSeen, OnSeenForgotten, SeenUser};
use crate::settings::{DatabaseUrl, PrimaryOptions};
use crate::sqlite::SqlitePrimary;
use crate::tfidf;

/// A handle of the primary database.
pub struct Store {
    primary: Primary,
    metrics: Arc<StoreMetrics>,
    events: EventSink,
    read_queue: u64,
}

enum Primary {
    Sqlite(SqlitePrimary),
    Postgres(PostgresPrimary),
}

impl Store {
    /// Opens the database. If the settings ask for it, the schema is migrated first.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        settings: &PrimaryOptions,
        events: impl Fn(StoreEvent) + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let (metrics, events): (_, EventSink) = (Arc::<StoreMetrics>::default(), Arc::new(events));
        let primary = match &settings.url {
            DatabaseUrl::Sqlite(path) => {
                Primary::Sqlite(SqlitePrimary::open(path, settings, EventSink::clone(&events), Arc::clone(&metrics))?)
            }
            DatabaseUrl::Postgres(url) => {
                let address = PostgresAddress::new(url, &settings.tls_ca, settings.store.primary.timeout)?;
                Primary::Postgres(PostgresPrimary::open(
                    &address,
                    settings,
                    EventSink::clone(&events),
                    Arc::clone(&metrics),
                )?)
            }
        };
        Ok(Store { primary, metrics, events, read_queue: settings.store.primary.read_queue as u64 })
    }

    /// Stores a publication. Its `done` receives the result.
    pub fn append(&self, mut append: Append) {
        append.retention.ttl_ms = append.retention.ttl_ms.min(DURATION_MAX_MS);
        append.retention.meta_ttl_ms = append.retention.meta_ttl_ms.min(DURATION_MAX_MS);
        if append.checked_object().is_none() {
            WriteRequest::Append(append).refuse(&self.events, StoreRefusal::Invalid);
            return (self.events)(StoreEvent::BatchReported);
        }
        self.metrics.waiting.fetch_add(1, Relaxed);
        self.write(WriteRequest::Append(append));
    }

    /// Whether [`Store::append_rows`] can succeed. It can if the database is PostgreSQL.
    pub fn takes_rows(&self) -> bool {
        matches!(self.primary, Primary::Postgres(_))
    }

    /// Stores publications, each in the transaction that deletes its outbox row. If the row exists, it is deleted, and
    /// its publication is stored once. If it does not exist, nothing is stored. The appends' own `done` is not called.
    pub fn append_rows(&self, rows: RowAppends) {
        if let Primary::Sqlite(_) = &self.primary {
            return (rows.done)(Err(RowsRefusal::OtherDatabase));
        }
        let bad: Vec<i64> =
            rows.rows.iter().filter(|(_, append)| append.checked_object().is_none()).map(|(id, _)| *id).collect();
        if !bad.is_empty() {
            return (rows.done)(Err(RowsRefusal::Invalid(bad)));
        }
        self.write(WriteRequest::AppendRows(rows));
    }

    /// Reads at most the last `size` publications of a channel after an offset. [`StoreEvent::Loaded`] reports them.
    /// `load` contains the offset, and a number that the event repeats. A channel that does not exist yet gets an
    /// epoch. It is deleted after `meta_ttl_ms` milliseconds if nothing is published.
    pub fn load(&self, channel: ChannelName, load: LoadId, size: usize, meta_ttl_ms: u64) {
        self.read(ReadRequest::History(HistoryLoad {
            channel,
            id: load,
            size,
            meta_ttl_ms: meta_ttl_ms.min(DURATION_MAX_MS),
        }));
    }

    /// Removes the history of a channel. Its position is kept.
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

    /// Puts a message into an inbox. [`StoreEvent::MessageQueued`] reports it on every node.
    pub fn queue_message(&self, message: InboxMessage, done: OnQueued) {
        self.write(WriteRequest::QueueMessage(message, done));
    }

    /// Reads at most `limit` messages of a name after an id. [`StoreEvent::InboxMessages`] reports them.
    pub fn inbox_messages(&self, scope: Arc<str>, name: Box<str>, behind: u64, limit: usize) {
        self.read(ReadRequest::InboxMessages { scope, name, behind, limit });
    }

    /// Deletes inbox messages that their owners have acknowledged.
    pub fn discard_messages(&self, ids: Vec<u64>, done: OnDone) {
        self.write(WriteRequest::DiscardMessages { ids, done });
    }

    /// Reads a page of the names that have messages.
    pub fn inbox_names(&self, search: InboxSearch, done: OnInboxNames) {
        self.read(ReadRequest::InboxNames(search, done));
    }

    /// Reads a page of a name's messages, without any effect on their delivery.
    pub fn inbox_page(&self, listing: InboxListing, done: OnInboxPage) {
        self.read(ReadRequest::InboxPage(listing, done));
    }

    /// Deletes messages of a name that have not been acknowledged.
    pub fn drop_messages(&self, dropped: InboxDrop, done: OnDropped) {
        self.write(WriteRequest::DropMessages(dropped, done));
    }

    /// Reads a page of the shared facts that hold.
    pub fn facts(&self, listing: FactListing, done: OnFacts) {
        self.read(ReadRequest::Facts(listing, done));
    }

    /// Changes a shared fact. [`StoreEvent::Facts`] reports the change before `done` receives the result.
    pub fn change_fact(&self, change: FactChange, done: OnDone) {
        self.write(WriteRequest::ChangeFact { change, done });
    }

    /// Records when users were connected; a later recorded time is kept. Each user must occur only once. Only one such
    /// request may be in progress: the caller sends the next one after `done`.
    pub fn note_seen(&self, rows: Vec<SeenUser>, done: OnDone) {
        self.write(WriteRequest::NoteSeen { rows, done });
    }

    /// Deletes the record of when a user was last connected, after the records that this node requested earlier.
    pub fn forget_seen(&self, user: Box<str>, done: OnSeenForgotten) {
        self.write(WriteRequest::ForgetSeen { user, done });
    }

    /// Reads when these users were last connected. Users without a time after `after_s`, Unix seconds, are omitted.
    pub fn seen(&self, users: Vec<Box<str>>, after_s: u64, done: OnSeen) {
        self.read(ReadRequest::Seen { users, after_s, done });
    }

    /// Writes totals of reactions. Each replaces the earlier total of the same node start for its channel.
    pub fn keep_reactions(&self, rows: Vec<ReactionRow>, done: OnDone) {
        self.write(WriteRequest::KeepReactions { rows, done });
    }

    /// Reads at most `limit` totals of reactions of all nodes after a place.
    pub fn reactions(&self, after: ReactionPlace, limit: usize, done: OnReactions) {
        self.read(ReadRequest::Reactions { after, limit, done });
    }

    /// Begins a new run if the current run is `lost`. The caller knows of a publication that the database lacks. The
    /// new run assigns the channel's offsets from `first` on.
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
