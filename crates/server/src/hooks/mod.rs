//! Hooks: the thread that asks backends before an action of a client, or instead of it.
//!
//! A session requests a hook by an effect. Its shard puts a [`HookJob`] into the mailbox and continues. The thread
//! (`worker.rs`) has a queue (`queue.rs`) for each backend (`endpoint.rs`). It asks the backend over HTTP
//! (`request.rs`), over gRPC (`grpc_request.rs`), or by a handler of the program that embeds the server, and sends the
//! answer to the shard. `queue.rs`, `breaker.rs` and `cache.rs` are pure.

mod breaker;
mod cache;
mod endpoint;
#[cfg(feature = "grpc")]
mod grpc_backend;
#[cfg(feature = "grpc")]
mod grpc_request;
mod handler;
mod queue;
mod request;
mod worker;

pub(crate) use endpoint::Endpoints;
pub use handler::{HookAnswer, HookClient, HookFuture, HookHandler};
pub(crate) use worker::{WorkerStart, start};

#[cfg(doc)]
use crate::runtime::hook_mailbox::HookJob;
