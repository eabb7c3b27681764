//! Lifecycle events: what a backend learns about clients, channels, users and names.
//!
//! The module is pure. It defines what is reported ([`EventKind`]), its bytes ([`EventDraft`], [`WrittenEvent`]), the
//! queue of one endpoint ([`EventQueue`]), and what happens after its answers ([`BatchDelivery`]). The host sends
//! events, reads the clock and provides random numbers.

mod delivery;
mod draft;
mod held_changes;
mod holding;
mod kind;
mod lives;
mod queue;
mod report;
mod state_key;
mod teller;
mod telling;
mod timestamp;

pub use delivery::{BatchDelivery, BatchPace, DeadReason, EndpointReply, Follow};
pub use draft::{
    EVENT_ID_SIZE_MAX, EVENT_SIZE_MAX, EVENT_TEXT_SIZE_MAX, EventDraft, EventOrigin, EventSources, EventValue,
    WrittenEvent, place_of,
};
pub use held_changes::HeldChanges;
pub use holding::NodeHolding;
pub use kind::{EventKind, EventKinds};
pub use lives::TellingLives;
pub use queue::{BATCH_SIZE_MAX, EventLoss, EventQueue, EventQueueLimits};
pub use report::{EndpointOutage, GivenUp, GivenUpLog};
pub use state_key::StateKey;
pub use teller::StateTeller;
pub use telling::{StateChange, TellerOptions, TellerOutput};
pub use timestamp::rfc3339;
