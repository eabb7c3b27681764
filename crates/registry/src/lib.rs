//! A registry of names and groups for a cluster. Every node is the authority for its own owners, and every node holds
//! the whole replica. Availability takes precedence over consistency. Every node resolves conflicts in the same way.
//!
//! One [`Replica`] is one node's part in one *scope*. It is a pure state machine. Its inputs are the commands of local
//! owners, the messages of other nodes, and the time. Its outputs are messages to send, events, and notices to owners
//! that lost a name. The carrier of the messages may lose, duplicate, delay and reorder them: authorities number
//! their operations, heartbeats carry the last number and a digest, and a node asks for what it lacks.
//!
//! Lookups go to a [`View`], from any thread and without a lock. The wire format and the rules are in
//! `docs/internals/replication.md`.
//!
//! It is not a consensus protocol. During a split two nodes may own one name, and one of them loses it when the split
//! heals. It does not carry messages either: the host sends and receives them.
//!
//! The model is that of Syn (Roberto Ostinelli, 2015–): a process registry for Erlang, versions 1 to 3.
//!
//! ```
//! use touchline_registry::{HashSeed, OwnerId, RegisterRefusal, Replica, ReplicaSettings};
//!
//! let now_ms = 1_700_000_000_000;
//! let (alice, bob) = (OwnerId([1; 16]), OwnerId([2; 16]));
//! // A node that serves clients uses a secret seed: HashSeed::new.
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
//! 2. `event.rs`: all outputs of a replica.
//! 3. `sync.rs`: how replicas stay in sync. `snapshot.rs` and `rebirth.rs` follow from it.
//! 4. `conflict.rs`: which of two claims of a name wins.
//!
//! # What never happens
//!
//! - Nothing here reads a clock, opens a socket or starts a thread: the time, the birth number and the hash seed are
//!   arguments.
//! - No lookup waits for a lock, for the writer or for another node.
//! - No node changes another node's entries. A conflict is decided, and the loser withdraws its claim.
//! - No change is reported twice: the events, replayed, result in the table.
//! - There is no `unsafe` code outside `entry.rs` and `view/index.rs`.

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
mod memberships;
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
mod spare;
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
pub use slab::Slab;
pub use spare::spare_capacity;
pub use view::View;
