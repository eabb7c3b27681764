//! The ledger of durable lifecycle events. It records which channels are occupied, which users are online, which
//! clients are connected, which changes were reported, and which events wait for their endpoints. The rows are the only
//! source of truth; no node's memory is.
//!
//! - A node writes in *lives*. [`EventLedger::enter`] begins a life. [`EventLedger::write`] writes a batch and renews
//!   its lease. A node that finds an ended lease ([`EventLedger::sweep`]) reports what the life has left behind.
//! - A key is reported as vacated or offline when no client has held it for a while ([`EventLedger::sweep`], on every
//!   node).
//! - Each change and its events are one transaction. So each change is reported once, whichever node dies at any time.
//! - Rows also record which endpoints get events. Every node registers its endpoints there. An event goes to all
//!   endpoints that want it when it is written, whichever node writes it. A newly registered wish is complete once
//!   every life writes events by it ([`EventLedger::settle`]).
//! - The outbox is read by lane: [`EventLedger::share`], [`EventLedger::fetch`], then [`EventLedger::finish`] or
//!   [`EventLedger::bury`].
//!
//! In PostgreSQL a life, the sweeper and the lanes have one connection each, so a slow request of one does not delay
//! the others. In SQLite all share one connection. A request that fails has changed nothing, or its result is unknown.
//! Every request may be repeated unchanged.

mod handle;
pub(crate) mod types;

pub use handle::EventLedger;
pub use types::{
    Burial, DeadLetter, GoneClient, LedgerBatch, LedgerCause, LedgerClock, LedgerError, LedgerLife, LedgerOptions,
    LedgerShare, LedgerTidying, LedgerWrite, MEASURED_ROWS, Narrator, OutboxEvent, OutboxLane, OwnLane, SweepReport,
    ToldKey, WaitingEvent,
};
