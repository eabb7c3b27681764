//! A registry of names and groups for a cluster. Every node is the authority for what lives on it, every node holds the
//! whole replica, availability comes before consistency, and conflicts are resolved the same way everywhere.
//!
//! One [`Replica`] is one node's part in one *scope*. It is a pure state machine: commands of local owners, messages of
//! other nodes and the time go in; messages to send, events and the words to losers come out. Whatever carries the
//! messages may lose, double, delay and reorder them: authorities number their operations, heartbeats tell the number
//! and a digest, and what is missing is asked for.
//!
//! Lookups go to a [`View`], from any thread and without a lock. The wire format and the rules are in
//! `docs/registry.md`.
//!
//! The model is that of Syn (Roberto Ostinelli, 2015–): a process registry for Erlang, versions 1 to 3.

mod clock;
mod codec;
mod conflict;
mod digest;
mod entry;
mod event;
mod groups;
mod incarnation;
mod member;
mod member_counts;
#[cfg(test)]
mod model;
mod names;
mod owners;
mod peer;
mod preflight;
mod rebirth;
mod replica;
mod settings;
mod slab;
mod snapshot;
mod sync;
mod table;
mod view;

pub use clock::{HybridClock, Stamp};
pub use entry::Entry;
pub use event::{EntryChange, Output, Reason, RegistryEvent};
pub use owners::OwnerId;
pub use replica::{Counters, RegisterRefusal, Registered, Replica};
pub use settings::{Classify, ConflictPolicyKind, Limits, ReplicaSettings, ReplicaTiming};
pub use view::View;
