//! The channels whose home is one shard. The home gives each publication its position, so a channel has one total
//! order. The home answers a subscribe in that same order. So no publication is lost between those that are recovered
//! and those that are delivered live.
//!
//! ```text
//! ChannelRequest ──submit──► replicated_log ──► local_log ──► delivery ──► Delivery to each shard
//!                               ▲    │ Submitted: done, or waits,             with subscribers
//! BackendEvent ────apply────────┘    │ or the log backend appends
//!                                    ▼
//!                              BackendCommand ──► the cluster, the store
//! ```
//!
//! The log of a channel is in memory (`local_log.rs`) or in a log backend: the cluster or the store
//! (`replicated_log.rs`). For a log backend the home keeps a cache of the log. The channel's sync state says how far
//! the cache follows the log. `sync.rs` decides in one table what each event does in each state:
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Idle
//!     Idle --> Subscribing: a request, or the link is back, and the log is in the cluster
//!     Idle --> Loading: a request, and the log is in the store
//!     Subscribing --> Loading: the cluster has subscribed the node, and there is a log
//!     Subscribing --> Live: the cluster has subscribed the node, and there is no log
//!     Loading --> Live: a load that continues the cache, or begins a new one
//!     Loading --> Idle: subscribers have to subscribe again
//!     Loading --> Failed: the load failed, or cannot be read or trusted
//!     Live --> Loading: a gap, a report, the link is back, or a load of another log
//!     Live --> Idle: subscribers have to subscribe again
//!     Live --> Failed: a publication cannot be read, or a load cannot be trusted
//!     Failed --> Idle: a request after a moment
//! ```
//!
//! What never happens:
//!
//! - A replicated channel that is not live delivers no publication of its log.
//! - No subscriber receives a publication of a log twice, or before an earlier one, unless it was asked to subscribe
//!   again in between.
//! - No request waits unless something is under way that ends its wait: a load, a subscription, or a time. A load that
//!   comes too late for its cache, and a channel that is forgotten, end the wait too: the request is judged again.
//! - No order of effects depends on the process: the table iterates in an order that only the past events determine.
//! - No code here reads a clock or waits: times are arguments.

mod backend;
mod cache;
mod catch_up;
mod delivery;
mod empties;
mod expiry;
mod loading;
mod local_log;
mod refit;
mod remembered_refusals;
mod replicated_log;
mod subscribers;
mod sync;
mod table;

pub use backend::{BackendCommand, DurablePublication, Submitted, clearing, removal};
pub use subscribers::ChannelFacts;
pub use table::Channels;
