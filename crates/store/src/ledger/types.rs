//! The inputs and outputs of the ledger.

use std::sync::Arc;
use std::time::Duration;

use touchline_engine::events::StateKey;
use touchline_engine::ledger::{EndpointWish, EventRoute, KeyChange, WishList};

use crate::postgres::failure::PostgresError;
use crate::settings::DatabaseUrl;

/// A function that returns the current time, Unix milliseconds.
pub type LedgerClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How to open a [`super::EventLedger`].
#[derive(Clone)]
pub struct LedgerOptions {
    /// The address of the primary database.
    pub url: DatabaseUrl,
    /// Additional certificate authorities, as in [`crate::PrimaryOptions::tls_ca`].
    pub tls_ca: String,
    /// The time limit for a request to PostgreSQL.
    pub timeout: Duration,
    /// Whether the schema is brought up to date.
    pub migrates: bool,
    /// The id of this node.
    pub node: String,
    /// How long a life lasts after a renewal, by the database's clock.
    pub lease: Duration,
    /// How long a key must be held by no client before the change is reported.
    pub delay: Duration,
    /// Additional time, beside `delay`, for keys that a node finds when it starts and no other node is present. A
    /// client that returns at once is then never reported as gone.
    pub grace: Duration,
    /// How long the generation of a vacated key is remembered.
    pub remember: Duration,
    /// The maximum number of unheld keys whose generation is remembered. Keys that were reported first are forgotten
    /// first.
    pub keys_max: u64,
    /// The events that this node wants for its endpoints.
    pub wishes: Vec<EndpointWish>,
    /// The maximum number of events in one lane of the outbox. Beyond it the oldest are dropped and replaced by
    /// `state.reset`.
    pub lane_max: u64,
    /// The maximum number of dead letters. Beyond it the oldest are dropped.
    pub dead_max: u64,
    /// How long a dead letter is kept.
    pub dead_ttl: Duration,
    /// Writes the events about changes that the ledger finds.
    pub narrator: Arc<dyn Narrator>,
    /// The clock for SQLite. PostgreSQL uses its own clock.
    pub clock: LedgerClock,
}

/// Writes the events about changes that the ledger finds, within the same transaction. Equal input must give equal
/// output.
pub trait Narrator: Send + Sync {
    /// Writes the events for a key that gets a new generation.
    fn tell_key(&self, told: &ToldKey, outbox: &mut Vec<OutboxEvent>);
    /// Writes the events for a client that was lost with its node.
    fn tell_lost(&self, lost: &GoneClient, outbox: &mut Vec<OutboxEvent>);
    /// Returns the event, as JSON, which says that some events may be missing. `why` is a word for the receiver.
    fn tell_reset(&self, why: &'static str) -> String;
}

/// Why no client holds a key, or why a client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerCause {
    /// The last client left.
    Left,
    /// The lease of a node ended.
    NodeDown,
    /// The node started again, or entered again after its lease had ended.
    Restart,
}

/// A reported change of a channel or a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldKey {
    /// The channel or user that changed.
    pub key: StateKey,
    /// The number of the change. Odd = occupied or online, even = vacated or offline. It grows by one with each report.
    pub generation: u64,
    /// When the change is reported, Unix milliseconds.
    pub time_ms: u64,
    /// Since when no client holds the key, Unix milliseconds, and why. `None` = a client holds it.
    pub empty: Option<(u64, LedgerCause)>,
}

/// A client whose node reported it as connected and cannot report its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneClient {
    /// The client id.
    pub client: String,
    /// The data that [`LedgerBatch::connected`] contained for the client.
    pub about: String,
    /// The id of the client's node.
    pub node: String,
    /// The incarnation of the node's life in the ledger.
    pub incarnation: u64,
    /// When the loss was found, Unix milliseconds.
    pub time_ms: u64,
    /// Why the client is gone.
    pub cause: LedgerCause,
}

/// An event before its receivers are known. The rows determine them within its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEvent {
    /// The word for the event's kind. `None` = the event goes to every lane of every endpoint.
    pub word: Option<&'static str>,
    /// The namespace of the event's channel. `None` = the event does not concern a channel.
    pub namespace: Option<Arc<str>>,
    /// The place of the event's key, which selects the lane.
    pub place: u64,
    /// The event as JSON.
    pub body: String,
}

impl OutboxEvent {
    /// The properties that determine the event's endpoints and lanes.
    pub(crate) fn route(&self) -> EventRoute<'_> {
        EventRoute { word: self.word, namespace: self.namespace.as_deref(), place: self.place }
    }
}

/// A life of a node that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerLife {
    /// The number of the life.
    pub incarnation: u64,
    /// The wishes of all endpoints when the life begins. A wish that is added later waits until all lives write events
    /// by it.
    pub wishes: WishList,
}

/// The content that a life of a node writes in one transaction.
#[derive(Debug, Clone, Default)]
pub struct LedgerBatch {
    /// The number of the batch in the life, from 1 on. A batch with the previous number only renews the lease.
    pub number: u64,
    /// The version of the wishes by which the life writes events.
    pub knows: u64,
    /// The changes of keys. Each key occurs once.
    pub keys: Vec<KeyChange>,
    /// Clients whose end must be reported if the node cannot do so: client id, and JSON for [`Narrator::tell_lost`].
    pub connected: Vec<(String, String)>,
    /// Clients whose end this batch reports.
    pub disconnected: Vec<String>,
    /// The events about everything except the keys, in their order.
    pub events: Vec<OutboxEvent>,
}

/// The result of writing a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerWrite {
    /// The batch was written exactly once, and the lease is renewed.
    Written,
    /// The lease of the life had ended. Nothing was written.
    Lapsed,
}

/// The result of one step of the sweeper. If a number equals its limit, there may be more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The number of clients and keys taken from lives that were over.
    pub taken: u64,
    /// The number of keys reported as vacated or offline.
    pub told: u64,
    /// The number of keys that were forgotten.
    pub forgotten: u64,
    /// Whether another step has something to do at once.
    pub has_more: bool,
    /// Milliseconds until the next step has something to do, as far as is known now. `None` = unknown.
    pub next_ms: Option<u64>,
}

/// What a node knows about the other nodes, and which lanes it delivers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerShare {
    /// The lanes of this life, with what waits in them.
    pub lanes: Vec<OwnLane>,
    /// The wishes of all endpoints. `None` = they are those that the caller knows.
    pub wishes: Option<WishList>,
    /// Endpoints of this node that other nodes describe differently.
    pub differing: Vec<String>,
    /// The ids of the nodes that have a current life.
    pub nodes: Vec<String>,
    /// True if all lives write events by new wishes, and the endpoints have not been notified of it yet.
    pub is_settling: bool,
}

/// A lane that this life delivers, with what waits in it. Only the first [`MEASURED_ROWS`] events are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLane {
    /// The endpoint and the number of the lane.
    pub lane: OutboxLane,
    /// The number of waiting events.
    pub events: u64,
    /// The total size of the waiting events, bytes.
    pub size: u64,
    /// The age of the oldest event, milliseconds. 0 = the lane is empty.
    pub oldest_ms: u64,
}

/// What was removed because it is no longer kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerTidying {
    /// The number of events beyond the maximum of their lanes, by endpoint.
    pub dropped: Vec<(String, u64)>,
    /// The number of events of endpoints that no node has had for a week.
    pub retired: u64,
    /// The number of keys whose generation was forgotten.
    pub forgotten: u64,
    /// Whether another step has something to do at once.
    pub has_more: bool,
}

/// A lane of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboxLane {
    /// The name of the endpoint.
    pub endpoint: String,
    /// The number of the lane, from 0 on.
    pub lane: u32,
}

/// An event that waits in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingEvent {
    /// The event's id, which gives its place in the lane.
    pub id: u64,
    /// When the event was written, Unix milliseconds.
    pub made_ms: u64,
    /// The event as JSON.
    pub body: String,
}

/// An event that becomes a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burial {
    /// The event's id in the outbox.
    pub id: u64,
    /// How many times it was sent.
    pub tries: u32,
    /// Why it could not be delivered.
    pub error: String,
}

/// An event that could not be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The number of the dead letter.
    pub id: u64,
    /// The name of the endpoint.
    pub endpoint: String,
    /// When the event was written, Unix milliseconds.
    pub made_ms: u64,
    /// When it was put aside, Unix milliseconds.
    pub died_ms: u64,
    /// How many times it was sent.
    pub tries: u32,
    /// Why it could not be delivered.
    pub last_error: String,
    /// The event as JSON.
    pub body: String,
}

/// Why the ledger could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// PostgreSQL returned an error.
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] PostgresError),
    /// SQLite returned an error.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The thread of a request to SQLite ended because of a bug.
    #[error("a defect of this program has ended a request")]
    Ended,
}

impl LedgerCause {
    /// The number of the cause in the database.
    pub(crate) fn number(self) -> i16 {
        match self {
            LedgerCause::Left => 1,
            LedgerCause::NodeDown => 2,
            LedgerCause::Restart => 3,
        }
    }

    pub(crate) fn of_number(number: i16) -> Self {
        match number {
            2 => LedgerCause::NodeDown,
            3 => LedgerCause::Restart,
            _ => LedgerCause::Left,
        }
    }
}

/// The number of a key's kind in the database.
pub(crate) fn kind_number(key: &StateKey) -> i16 {
    match key {
        StateKey::Channel(_) => 1,
        StateKey::User(_) => 2,
    }
}

/// Reads a key from the database.
pub(crate) fn key_of(kind: i16, name: &str) -> StateKey {
    if kind == 2 { StateKey::User(name.into()) } else { StateKey::Channel(name.into()) }
}

/// Converts a duration to milliseconds for the database.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

/// The maximum number of clients or keys that one transaction takes, reports or forgets. So the death of a large node
/// does not delay other nodes.
pub(crate) const STEP_ROWS: i64 = 1_000;
/// How long no node may have had an endpoint before its waiting events are dropped, milliseconds.
pub(crate) const LANE_IDLE_MS: i64 = 7 * 24 * 3_600_000;
/// How long a node may not have renewed a wish before it no longer counts, if other nodes register another wish for the
/// endpoint, milliseconds.
pub(crate) const WISH_IDLE_MS: i64 = 60_000;
/// How long an endpoint that no node has still gets events, milliseconds.
pub(crate) const ENDPOINT_IDLE_MS: i64 = 24 * 3_600_000;
/// After this time a wish is recorded as seen again, milliseconds.
pub(crate) const WISH_SEEN_MS: i64 = 10_000;
/// The maximum number of events of a lane that are counted each time lanes are shared.
pub const MEASURED_ROWS: u64 = 10_000;
