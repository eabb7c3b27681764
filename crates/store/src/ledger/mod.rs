//! The ledger of lifecycle events that are told for certain: which channels are occupied, which users are online, which
//! clients are connected, what was told of all that, and the events that wait for their endpoints. Rows are the truth;
//! nobody's memory is.
//!
//! - A node writes in *lives*: [`EventLedger::enter`] begins one, [`EventLedger::write`] writes a batch and renews its
//!   lease. Whoever finds a lease over ([`EventLedger::sweep`]) tells what the life has left behind.
//! - A key is told as vacated or offline when nobody has held it for a while: [`EventLedger::sweep`], on every node.
//! - Each change and its events are one transaction, so each is told once, whoever dies when.
//! - Who is told, rows say too: every node names its endpoints there, and an event goes to all that want it when it is
//!   written, whichever node writes it. What a node adds is whole once every life tells by it
//!   ([`EventLedger::settle`]).
//! - The outbox is read by lane: [`EventLedger::share`], [`EventLedger::fetch`], then [`EventLedger::finish`] or
//!   [`EventLedger::bury`].
//!
//! In PostgreSQL a life, the sweeper and the lanes have a connection each, so that a slow request of one makes no other
//! wait. In SQLite all share one. A request that fails has changed nothing, or its result is unknown: each may be sent
//! again as it was.

mod handle;
pub(crate) mod types;

pub use handle::EventLedger;
pub use types::{
    Burial, DeadLetter, GoneClient, LedgerBatch, LedgerCause, LedgerClock, LedgerError, LedgerLife, LedgerOptions,
    LedgerShare, LedgerTidying, LedgerWrite, MEASURED_ROWS, Narrator, OutboxEvent, OutboxLane, OwnLane, SweepReport,
    ToldKey, WaitingEvent,
};
