//! Lifecycle events: the thread that tells backends what happens.
//!
//! Shards, the registry actor and the store put what they have seen into the mailbox and go on. The thread
//! (`worker.rs`) makes events of it (`writing.rs`) and gives them to the endpoints (`endpoint.rs`) that are told of
//! them. Each endpoint has lanes (`lane.rs`), which take batches from a source (`source.rs`) and send them, signed
//! (`signature.rs`). What other nodes can't tell any more waits in `lost.rs`.

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
