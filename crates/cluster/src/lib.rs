//! Connects nodes by NATS: it carries the messages of registries and nodes, and the publications of channels across
//! nodes. No other crate uses the NATS client.
//!
//! [`join()`] returns a [`Cluster`], the handle for sending. [`Joining::start`] calls one function with every event.
//! The connection has a separate thread, so no call here blocks, except [`Cluster::leave`]. The subjects and their
//! messages are in `docs/guides/cluster.md`.
//!
//! It is not the registry: it carries the registry's messages without reading them. It does not order the publications
//! of a channel either; the JetStream stream of the namespace does.
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
//! 1. `handle.rs`: the requests of a node to the cluster.
//! 2. `events.rs`: the events that the cluster reports to its node.
//! 3. `connection.rs`: the thread between the two, with commands, the state of the connection, and streams.
//! 4. `consumer/`: reads a stream into which applications publish commands, on a separate connection.
//! 5. `members.rs`: which nodes there are and which of them live; it is pure.
//! 6. `history.rs`: histories of channels. `fact_bucket.rs`: shared facts.
//!
//! # What never happens
//!
//! - No call waits for NATS: a message that cannot be sent now is lost, or its callback reports the failure.
//! - No task that reads waits for NATS: `writer.rs` alone writes for it. Other tasks that send have a time limit.
//! - Messages that wait for NATS have a limit in bytes (`room.rs`).
//! - No repeated failure fills the log: each cause is logged once in an outage.
//! - No logged cause contains a password or a token.
//! - Nothing here delivers to a client: the node gets the events.

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
mod link;
mod link_log;
mod loader;
mod marks;
mod members;
mod nats;
mod neighbours;
mod open_streams;
mod options;
mod outage;
mod outcome;
mod pieces;
mod reading;
mod returned;
mod room;
mod settings;
mod storing;
mod stream;
mod subject;
mod subscriptions;
mod telling;
#[cfg(test)]
mod tests;
mod time;
mod trial;
mod types;
mod url_credentials;
mod versions;
mod watch;
mod writer;

pub use command::{IsEnough, OnFactChanged, OnGathered, OnPurged, OnStreamAppended, OnStreamsSet};
pub use errors::{FactError, JoinError, StreamError};
pub use events::ClusterEvent;
pub use handle::{Cluster, LinkTraffic};
pub use join::{Joining, check, join};
pub use settings::{JoinOptions, StreamSettings};
pub use telling::{OnMessagesTold, OutsideMessage};
pub use trial::try_connection;
pub use types::{ClusterRoom, StoredPublication, StreamHistory};
