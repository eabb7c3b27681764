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
//! It is not a consensus protocol: during a split two nodes may own one name, and one of them loses it when the split
//! heals. It is not a transport either: the host carries the messages.
//!
//! The model is that of Syn (Roberto Ostinelli, 2015–): a process registry for Erlang, versions 1 to 3.
//!
//! ```
//! use touchline_registry::{HashSeed, OwnerId, RegisterRefusal, Replica, ReplicaSettings};
//!
//! let now_ms = 1_700_000_000_000;
//! let (alice, bob) = (OwnerId([1; 16]), OwnerId([2; 16]));
//! // A node that clients reach takes a secret seed: HashSeed::new.
//! let seed = HashSeed::repeatable(7);
//! let mut replica = Replica::new("node-a", 1, ReplicaSettings::default(), seed, now_ms);
//! replica.register(alice, "printer", b"first floor", false, now_ms).expect("the name is free");
//! replica.register(bob, "scanner", b"", false, now_ms).expect("the name is free");
//!
//! let view = replica.view();
//! assert_eq!(view.names(), 2);
//! assert_eq!(view.lookup("scanner").map(|entry| entry.owner()), Some(bob));
//! assert_eq!(view.read("printer", |entry| entry.meta().to_vec()).as_deref(), Some(&b"first floor"[..]));
//! assert!(matches!(replica.register(bob, "printer", b"", false, now_ms), Err(RegisterRefusal::Taken(_))));
//! ```
//!
//! # Where to begin
//!
//! 1. `replica.rs`: the state of a replica, and the commands of its owners.
//! 2. `event.rs`: all that comes out of a replica.
//! 3. `sync.rs`: how replicas keep up with each other; `snapshot.rs` and `rebirth.rs` follow from it.
//! 4. `conflict.rs`: which of two claims of a name counts.
//!
//! # What never happens
//!
//! - Nothing here reads a clock, opens a socket or starts a thread: the time, the birth number and the seed of
//!   hashes are arguments.
//! - No lookup waits for a lock, for the writer or for another node.
//! - No node changes what another node says of its owners: a conflict is decided, and the loser withdraws its claim.
//! - No change is told twice: the events, replayed, give the table.
//! - No `unsafe` code stands outside `entry.rs` and `view/index.rs`.

mod clock;
mod codec;
mod conflict;
mod digest;
mod entry;
mod event;
mod groups;
mod hash_seed;
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
pub use hash_seed::{FoldState, HashSeed, SipState};
pub use owners::OwnerId;
pub use replica::{Counters, RegisterRefusal, Registered, Replica};
pub use settings::{Classify, ConflictPolicyKind, Limits, ReplicaSettings, ReplicaTiming};
pub use view::View;
