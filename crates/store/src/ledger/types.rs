//! What goes into the ledger, and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use touchline_engine::events::StateKey;
use touchline_engine::ledger::{EndpointWish, EventRoute, KeyChange, WishList};

use crate::postgres::failure::PostgresError;
use crate::settings::DatabaseUrl;

/// Gives the time, Unix milliseconds.
pub type LedgerClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How to open a [`super::EventLedger`].
#[derive(Clone)]
pub struct LedgerOptions {
    /// Address of the primary database.
    pub url: DatabaseUrl,
    /// As in [`crate::PrimaryOptions::tls_ca`].
    pub tls_ca: String,
    /// How long PostgreSQL may take for a request.
    pub timeout: Duration,
    /// Whether the schema is brought up to date.
    pub migrates: bool,
    /// The id of this node.
    pub node: String,
    /// How long a life lasts after it was renewed, by the database's clock.
    pub lease: Duration,
    /// How long nobody must have held a key before that is told.
    pub delay: Duration,
    /// The same time for what a node finds that starts while no other is there, in addition to `delay`: who comes back
    /// at once is never told as gone.
    pub grace: Duration,
    /// How long the generation of a vacated key is remembered.
    pub remember: Duration,
    /// Keys that nobody holds and whose generation is remembered; those are forgotten first that were told first.
    pub keys_max: u64,
    /// What this node wants its endpoints to be told.
    pub wishes: Vec<EndpointWish>,
    /// Events in one lane of the outbox; the oldest are dropped beyond, and `state.reset` comes in their place.
    pub lane_max: u64,
    /// Dead letters that are kept; the oldest are dropped beyond.
    pub dead_max: u64,
    /// How long a dead letter is kept.
    pub dead_ttl: Duration,
    /// Writes the events of what the ledger finds.
    pub narrator: Arc<dyn Narrator>,
    /// The clock of SQLite. PostgreSQL has its own.
    pub clock: LedgerClock,
}

/// Writes the events of what the ledger finds, within the transaction that finds it. It gives the same for the same.
pub trait Narrator: Send + Sync {
    /// A key is told in a new generation.
    fn tell_key(&self, told: &ToldKey, outbox: &mut Vec<OutboxEvent>);
    /// A client went with its node.
    fn tell_lost(&self, lost: &GoneClient, outbox: &mut Vec<OutboxEvent>);
    /// The event that tells that something may not have been told, as JSON. `why`: a word for the receiver.
    fn tell_reset(&self, why: &'static str) -> String;
}

/// Why nobody holds a key, or why a client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerCause {
    /// The last one left.
    Left,
    /// The lease of a node was over.
    NodeDown,
    /// The node started again, or entered again after its lease was over.
    Restart,
}

/// A change of a channel or a user that is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldKey {
    /// Which one.
    pub key: StateKey,
    /// Odd = occupied or online, even = vacated or offline; one more than the one told before.
    pub generation: u64,
    /// When it is told, Unix milliseconds.
    pub time_ms: u64,
    /// Since when nobody holds it, Unix milliseconds, and why; none = somebody does.
    pub empty: Option<(u64, LedgerCause)>,
}

/// A client whose node told that it is connected, and cannot tell its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneClient {
    /// The client id.
    pub client: String,
    /// What [`LedgerBatch::connected`] said of it.
    pub about: String,
    /// The node.
    pub node: String,
    /// The incarnation of the node's life in the ledger.
    pub incarnation: u64,
    /// When it was found, Unix milliseconds.
    pub time_ms: u64,
    /// Why it is gone.
    pub cause: LedgerCause,
}

/// An event before it is known who is told of it: the rows say that, within its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEvent {
    /// The word of its kind; `None` = every lane of every endpoint is told.
    pub word: Option<&'static str>,
    /// The namespace of the channel that it is about; `None` = it is about none.
    pub namespace: Option<Arc<str>>,
    /// The place of its key.
    pub place: u64,
    /// The event as JSON.
    pub body: String,
}

impl OutboxEvent {
    /// What is needed to find its endpoints and lanes.
    pub(crate) fn route(&self) -> EventRoute<'_> {
        EventRoute { word: self.word, namespace: self.namespace.as_deref(), place: self.place }
    }
}

/// A life that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerLife {
    /// The number of the life.
    pub incarnation: u64,
    /// What endpoints are told when it begins. Whatever is added later waits until all lives tell by it.
    pub wishes: WishList,
}

/// What a life of a node writes in one transaction.
#[derive(Debug, Clone, Default)]
pub struct LedgerBatch {
    /// Number of the batch in the life, from 1 on. The number of the batch before = it only renews the lease.
    pub number: u64,
    /// The version of the wishes by which the life tells.
    pub knows: u64,
    /// Changes of keys, each key once.
    pub keys: Vec<KeyChange>,
    /// Clients whose end has to be told if the node cannot: client id, and JSON for [`Narrator::tell_lost`].
    pub connected: Vec<(String, String)>,
    /// Clients whose end this batch tells.
    pub disconnected: Vec<String>,
    /// Events of all this but the keys, in their order.
    pub events: Vec<OutboxEvent>,
}

/// The result of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerWrite {
    /// It is written, once, and the lease is renewed.
    Written,
    /// The lease of the life is over. Nothing was written.
    Lapsed,
}

/// What a step of the sweeper did. Each figure at its limit means that there may be more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Clients and keys taken from lives that were over.
    pub taken: u64,
    /// Keys told as vacated or offline.
    pub told: u64,
    /// Keys that were forgotten.
    pub forgotten: u64,
    /// Whether another step has something to do at once.
    pub has_more: bool,
    /// When the next step has something to do, as far as is known now, milliseconds from now on.
    pub next_ms: Option<u64>,
}

/// What a node knows of the others, and which lanes it delivers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerShare {
    /// The lanes of this life, and what waits there.
    pub lanes: Vec<OwnLane>,
    /// The wishes, if they are not those that the caller knows.
    pub wishes: Option<WishList>,
    /// Endpoints of this node that other nodes describe otherwise.
    pub differing: Vec<String>,
    /// The ids of the nodes whose lives last.
    pub nodes: Vec<String>,
    /// All lives tell by wishes that were new, and their endpoints have not been told so.
    pub is_settling: bool,
}

/// A lane that this life delivers, with what waits there: the first [`MEASURED_ROWS`] are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLane {
    /// Which one.
    pub lane: OutboxLane,
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub size: u64,
    /// Age of the oldest, milliseconds; 0 = there is none.
    pub oldest_ms: u64,
}

/// What was removed because it is kept no longer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerTidying {
    /// Events that were too many for their lane, by endpoint.
    pub dropped: Vec<(String, u64)>,
    /// Events of endpoints that no node has known for a week.
    pub retired: u64,
    /// Keys whose generation is forgotten.
    pub forgotten: u64,
    /// Whether another step has something to do at once.
    pub has_more: bool,
}

/// A lane of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboxLane {
    /// The name of the endpoint.
    pub endpoint: String,
    /// The lane, from 0 on.
    pub lane: u32,
}

/// An event that waits in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingEvent {
    /// Its place.
    pub id: u64,
    /// When it was written, Unix milliseconds.
    pub made_ms: u64,
    /// The event as JSON.
    pub body: String,
}

/// An event that is put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burial {
    /// Its place in the outbox.
    pub id: u64,
    /// How often it was sent.
    pub tries: u32,
    /// Why it could not be delivered.
    pub error: String,
}

/// An event that could not be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its number.
    pub id: u64,
    /// The name of the endpoint.
    pub endpoint: String,
    /// When the event was written, Unix milliseconds.
    pub made_ms: u64,
    /// When it was put aside, Unix milliseconds.
    pub died_ms: u64,
    /// How often it was sent.
    pub tries: u32,
    /// Why it could not be delivered.
    pub last_error: String,
    /// The event as JSON.
    pub body: String,
}

/// Why the ledger could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// PostgreSQL.
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] PostgresError),
    /// SQLite.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The thread of a request to SQLite ended.
    #[error("a defect of this program has ended a request")]
    Ended,
}

impl LedgerCause {
    /// How the cause is written in the database.
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

/// How the kind of a key is written in the database.
pub(crate) fn kind_number(key: &StateKey) -> i16 {
    match key {
        StateKey::Channel(_) => 1,
        StateKey::User(_) => 2,
    }
}

/// A key as the database has it.
pub(crate) fn key_of(kind: i16, name: &str) -> StateKey {
    if kind == 2 { StateKey::User(name.into()) } else { StateKey::Channel(name.into()) }
}

/// A duration for the database.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

/// Clients, and keys, that one transaction takes, tells or forgets, so that a large node that dies makes nobody wait.
pub(crate) const STEP_ROWS: i64 = 1_000;
/// How long no node may have known an endpoint before what waits for it is dropped, milliseconds.
pub(crate) const LANE_IDLE_MS: i64 = 7 * 24 * 3_600_000;
/// How long a node may not have named a wish before it counts no more, if others name another one of the endpoint,
/// milliseconds.
pub(crate) const WISH_IDLE_MS: i64 = 60_000;
/// How long an endpoint is told that no node has, milliseconds.
pub(crate) const ENDPOINT_IDLE_MS: i64 = 24 * 3_600_000;
/// A wish is noted as seen again after this time, milliseconds.
pub(crate) const WISH_SEEN_MS: i64 = 10_000;
/// Events of a lane that are counted each time that lanes are shared.
pub const MEASURED_ROWS: u64 = 10_000;
