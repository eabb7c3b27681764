//! The channels whose home is one shard. The home gives each publication its position, so a channel has one total
//! order, and it replies to a subscribe in that same order: no publication is lost between what is recovered and what
//! is delivered live.
//!
//! ```text
//! ChannelRequest ──submit──► replicated_log ──► local_log ──► delivery ──► Delivery to each shard
//!                               ▲    │ Submitted: done, or waits,             with subscribers
//! BackendEvent ────apply────────┘    │ or the log backend appends
//!                                    ▼
//!                              BackendCommand ──► the cluster, the store
//! ```
//!
//! The log of a channel is in memory (`local_log.rs`), or in a log backend, the cluster or the
//! store (`replicated_log.rs`); then the home keeps a cache of it. How far the cache follows the log is the channel's
//! sync state. `sync.rs` decides in one table what each event does in each state:
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Idle
//!     Idle --> Subscribing: a request, or the link, and the log is the cluster's
//!     Idle --> Loading: a request, and the log is the store's
//!     Subscribing --> Loading: the cluster has subscribed the node, and there is a log
//!     Subscribing --> Live: the cluster has subscribed the node, and there is no log
//!     Loading --> Live: a load that continues the cache, or begins a new one
//!     Loading --> Idle: subscribers have to subscribe anew
//!     Loading --> Failed: the load failed, or cannot be read or trusted
//!     Live --> Loading: a gap, a report, the link, or a load of another log
//!     Live --> Idle: subscribers have to subscribe anew
//!     Live --> Failed: a publication cannot be read, or a load cannot be trusted
//!     Failed --> Idle: a request after a moment
//! ```
//!
//! What never happens:
//!
//! - A replicated channel that is not live delivers no publication of its log.
//! - No publication of a log is delivered twice, or before an earlier one, to a subscriber that was not told to
//!   subscribe anew in between.
//! - No request waits while nothing is under way that ends its wait: a load, a subscription, or a time. A load that
//!   comes too late for its cache, and a channel that is forgotten, end the wait too: the request is judged anew.
//! - No order of effects depends on the process: the table iterates in an order that only the past events give.
//! - Nothing here reads a clock or waits: times come in as arguments.

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
