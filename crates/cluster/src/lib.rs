//! Nodes joined by NATS: links between registries, messages between nodes, channels across them.
//!
//! [`join()`] returns a [`Cluster`], the handle that sends, and [`Joining::start`] calls one function with every event.
//! The connection has a thread of its own: no call here blocks, except [`Cluster::leave`]. The subjects and their
//! messages are in `docs/cluster.md`.

mod command;
mod connection;
mod errors;
mod events;
mod gather;
mod handle;
mod history;
mod incarnation;
mod join;
mod link_log;
mod loader;
mod marks;
mod members;
mod options;
mod outage;
mod pieces;
mod reading;
mod settings;
#[cfg(test)]
mod simulated;
mod storing;
mod stream;
mod subject;
mod subscriptions;
mod types;
mod versions;
mod watch;

pub use command::{IsEnough, OnGathered, OnPurged, OnStreamAppended};
pub use errors::{JoinError, StreamError};
pub use events::ClusterEvent;
pub use handle::Cluster;
pub use join::{Joining, check, join};
pub use settings::{JoinOptions, StreamSettings};
pub use types::{StoredPublication, StreamHistory};
