//! The primary database. It stores the history of durable channels (on disk before the publisher gets its reply), the
//! directory of channels, and the inbox messages of names that have no owner at the moment. It is SQLite or PostgreSQL,
//! and both behave alike. Statistics are in a separate database ([`stats`]).
//!
//! [`Store::open`] returns a handle for requests, and calls one function with every event. The databases have their own
//! threads. So no call of the handle blocks, except [`Store::open`] and [`Store::close`]. A request beyond the queue's
//! capacity is refused at once.
//!
//! It is not a general layer over SQL: no other crate contains or sends a query. It does not deliver publications
//! either. The home of a channel delivers a publication once the store has reported it.
//!
//! | to … | see |
//! |---|---|
//! | append, load, remove | [`Store`], [`Append`], [`StoredHistory`] |
//! | describe and search channels | [`ChannelDescription`], [`Search`] |
//! | queue messages for a name without an owner | [`InboxMessage`] |
//! | share facts between nodes, such as bans | [`Store::change_fact`], [`StoreEvent::Facts`] |
//! | find out why a database does not open, or refuses a request | [`OpenError`], [`StoreRefusal`] |
//! | change a schema, copy a database, free its unused space | [`Schema`], [`migrate`], [`copies`], [`mod@compact`] |
//! | see how large the database is, and whether it may grow | [`SizeMetrics`] |
//! | count audiences and events | [`stats`] |
//! | execute commands that applications leave in a table | [`outbox`], [`Store::append_rows`] |
//!
//! ```
//! use std::sync::{Arc, mpsc};
//!
//! use touchline_config::StoreSettings;
//! use touchline_protocol::stored::encode_publication;
//! use touchline_protocol::stream::{Offset, Retention};
//! use touchline_store::{Append, DatabaseUrl, PrimaryOptions, Store};
//!
//! let directory = std::env::temp_dir().join(format!("touchline-store-page-{}", std::process::id()));
//! std::fs::create_dir_all(&directory)?;
//! let store = Store::open(
//!     &PrimaryOptions {
//!         store: StoreSettings::default(),
//!         url: DatabaseUrl::Sqlite(directory.join("primary.db")),
//!         tls_ca: String::new(),
//!         notifier: String::new(),
//!         has_facts: false,
//!         seen_expires_s: 0,
//!         reactions_expire_ms: 0,
//!         retention: Arc::new(|_| None),
//!     },
//!     |_event| (),
//! )?;
//!
//! let (time_ms, object) = (1_700_000_000_000, br#"{"data":1}"#);
//! let (done, results) = mpsc::channel();
//! store.append(Append {
//!     channel: "news".into(),
//!     payload: encode_publication(time_ms, object.len(), |out| out.extend_from_slice(object)).into(),
//!     time_ms,
//!     key: "".into(),
//!     version: 0,
//!     version_epoch: "".into(),
//!     retention: Retention { size: 10, ttl_ms: 60_000, meta_ttl_ms: 60_000 },
//!     done: Box::new(move |result| drop(done.send(result))),
//! });
//! // It is on disk.
//! assert_eq!(results.recv()??.offset, Offset(1));
//!
//! store.close();
//! std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. `primary.rs`: the handle, with all its requests.
//! 2. `events.rs`: the events that the store reports.
//! 3. `batch.rs`: requests and their results, the same for both databases.
//! 4. `sqlite/writer.rs`, then `postgres/writer.rs`: how a batch becomes one transaction.
//!
//! # What never happens
//!
//! - No publication is acknowledged or delivered before it is on disk.
//! - No offset of a channel is assigned twice in one run of the database, and none without its publication.
//! - No request waits in an unlimited queue.
//! - No password of an address is shown: the debug form of a [`DatabaseUrl`] omits it.

mod admission;
mod batch;
mod charges;
mod clock;
mod compact;
pub mod copies;
mod description;
mod errors;
mod events;
mod facts;
mod growth;
mod inbox;
pub mod ledger;
mod metrics;
pub mod migrate;
pub mod outbox;
mod panics;
mod postgres;
mod primary;
mod publication;
mod reactions;
mod refusal;
mod row_appends;
mod rows;
mod runs;
mod schema;
mod search;
mod seen;
mod settings;
mod size_metrics;
pub mod sketch;
mod sqlite;
pub mod stats;
mod tfidf;

pub use batch::OnDone;
pub use compact::{CompactError, Compacted, compact};
pub use description::{ChannelDescription, OnSearched, Search, SearchResult};
pub use errors::OpenError;
pub use events::StoreEvent;
pub use facts::{FactListing, OnFacts};
pub use inbox::{
    DroppedMessages, ExpiredMessage, InboxDrop, InboxListing, InboxMessage, InboxNames, InboxPage, InboxPlace,
    InboxSearch, InboxSummary, OnDropped, OnInboxNames, OnInboxPage, OnQueued, WaitingMessage,
};
pub use metrics::{CommitTimes, StoreMetrics};
pub use panics::Panicked;
pub use postgres::PostgresError;
pub use primary::Store;
pub use publication::{Append, KeptPublication, OnAppended, StoredHistory};
pub use reactions::{OnReactions, ReactionPlace, ReactionRow};
pub use refusal::StoreRefusal;
pub use row_appends::{OnRowsAppended, RowAppends, RowsRefusal};
pub use rows::NewerRow;
pub use runs::KnownRuns;
pub use schema::Schema;
pub use seen::{OnSeen, OnSeenForgotten, SeenForgotten, SeenUser};
pub use settings::{DatabaseUrl, PrimaryOptions, RetentionOf, UrlError};
pub use size_metrics::SizeMetrics;
