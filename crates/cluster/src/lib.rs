//! Nodes joined by NATS: links between registries, messages between nodes, channels across them. It is the only user of
//! the NATS client.
//!
//! [`join()`] returns a [`Cluster`], the handle that sends, and [`Joining::start`] calls one function with every event.
//! The connection has a thread of its own: no call here blocks, except [`Cluster::leave`]. The subjects and their
//! messages are in `docs/cluster.md`.
//!
//! It is not the registry: it carries the registry's messages and does not read them. It does not order a channel
//! either: the stream of a namespace does, in JetStream.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use touchline_cluster::{ClusterEvent, JoinOptions, join};
//!
//! // The address of NATS is that of the default settings: nats://127.0.0.1:4222.
//! let check_delay = Duration::from_secs(30);
//! let (cluster, joining) = join(JoinOptions { node: "node-a".into(), check_delay, ..JoinOptions::default() })?;
//! joining.start(|event| {
//!     if let ClusterEvent::Joined(others) = event {
//!         println!("joined, beside {} others", others.len());
//!     }
//! })?;
//! cluster.broadcast(b"hello".to_vec());
//! cluster.leave();
//! # Ok::<(), touchline_cluster::JoinError>(())
//! ```
//!
//! # Where to begin
//!
//! 1. `handle.rs`: what a node can ask of the cluster.
//! 2. `events.rs`: what the cluster reports to its node.
//! 3. `connection.rs`: the thread between the two: commands, the state of the connection, streams.
//! 4. `consumer/`: a stream that applications publish commands into, on a connection of its own.
//! 5. `members.rs`: which nodes there are and which of them live; pure. Histories begin in `history.rs`, shared
//!    facts in `fact_bucket.rs`.
//!
//! # What never happens
//!
//! - No call waits for NATS: a message that cannot be sent now is lost, or its callback reports the failure.
//! - No repeated failure fills the log: each cause stands there once in an outage.
//! - No cause that goes to the log holds a password or a token.
//! - Nothing here delivers to a client: events go to the node.

mod bucket_follower;
mod command;
mod connection;
pub mod consumer;
mod errors;
mod events;
mod fact_bucket;
mod gather;
mod handle;
mod hello;
mod history;
mod incarnation;
mod join;
mod known_bucket;
mod link_log;
mod loader;
mod marks;
mod members;
mod open_streams;
mod options;
mod outage;
mod outcome;
mod pieces;
mod reading;
mod settings;
#[cfg(test)]
mod simulated;
mod storing;
mod stream;
mod subject;
mod subscriptions;
mod telling;
mod trial;
mod types;
mod versions;
mod watch;

pub use command::{IsEnough, OnFactChanged, OnGathered, OnPurged, OnStreamAppended, OnStreamsSet};
pub use errors::{FactError, JoinError, StreamError};
pub use events::ClusterEvent;
pub use handle::{Cluster, LinkTraffic};
pub use join::{Joining, check, join};
pub use settings::{JoinOptions, StreamSettings};
pub use telling::{OnMessagesTold, OutsideMessage};
pub use trial::try_connection;
pub use types::{StoredPublication, StreamHistory};
