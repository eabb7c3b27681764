//! The primary database: the history of durable channels, on disk before a publisher is acknowledged; the directory of
//! channels; messages in the inboxes of names that have no owner at the moment.
//!
//! [`Store::open`] returns a handle that takes requests, and calls one function with every event. The databases have
//! threads of their own: no call here blocks. A request that the queue has no room for is refused at once.
//!
//! | to … | see |
//! |---|---|
//! | append, load, remove | [`Store`], [`Append`], [`StoredHistory`] |
//! | describe and search channels | [`ChannelDescription`], [`Search`] |
//! | queue messages for a name that is away | [`InboxMessage`] |
//! | know why a database does not open, or refuses a request | [`OpenError`], [`StoreRefusal`] |
//! | change a schema, copy a database | [`Schema`], [`migrate`], [`copies`] |
//! | count audiences and events | [`stats`] |

mod batch;
mod clock;
pub mod copies;
mod description;
mod errors;
mod events;
mod inbox;
mod metrics;
pub mod migrate;
mod panics;
mod postgres;
mod primary;
mod publication;
mod refusal;
mod rows;
mod runs;
mod schema;
mod search;
mod settings;
pub mod sketch;
mod sqlite;
pub mod stats;
mod tfidf;

pub use batch::OnDone;
pub use description::{ChannelDescription, OnSearched, Search, SearchResult};
pub use errors::OpenError;
pub use events::StoreEvent;
pub use inbox::{InboxMessage, OnQueued};
pub use metrics::StoreMetrics;
pub use panics::Panicked;
pub use postgres::PostgresError;
pub use primary::Store;
pub use publication::{Append, KeptPublication, OnAppended, StoredHistory};
pub use refusal::StoreRefusal;
pub use rows::NewerRow;
pub use runs::KnownRuns;
pub use schema::Schema;
pub use settings::{DatabaseUrl, PrimaryOptions, RetentionOf, UrlError};
