//! Lifecycle events: the thread that sends events to backends.
//!
//! Shards, the registry actor and the store put what they have seen into the mailbox and continue. The thread
//! (`worker.rs`) makes events from it (`writing.rs`) and passes them to the endpoints (`endpoint.rs`) that ask for
//! them. Each endpoint has lanes (`lane.rs`), which take batches from a source (`source.rs`) and send them, signed
//! (`signature.rs`). What lost nodes can no longer report waits in `lost.rs`.

mod durable;
mod endpoint;
mod exchange;
mod lane;
mod lost;
mod signature;
mod source;
mod worker;
mod working;
mod writing;

pub(crate) use endpoint::{EventEndpoint, endpoints, wants};
pub(crate) use worker::{EventsStart, start};
