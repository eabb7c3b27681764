//! NATS as the link uses it: a connection to a server, with core messages and JetStream. In tests the connection may
//! lead to a simulated server.
//!
//! Only what the link needs is here, in its own terms: what does not exist is `None`, not an error.

mod client;
mod jet_stream;

pub(crate) use client::{NatsClient, NatsServers, NatsSubscription};
pub(crate) use jet_stream::{JetStream, NatsError, NatsStream, StreamInfo};
