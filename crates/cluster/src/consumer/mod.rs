//! A durable consumer of a stream of JetStream: its messages are handed over in small batches, and acknowledged once
//! they have been carried out. What has to be tried again is kept meanwhile, in its order.
//!
//! It has a connection of its own, which is not the cluster's: the stream may be on other servers. While NATS is away
//! it waits; the node serves its clients meanwhile.

mod connecting;
mod kept;
mod pull_failure;
mod pulling;
mod stream_consumer;
mod types;

pub use async_nats::rustls::ClientConfig;

pub use self::stream_consumer::StreamConsumer;
pub use self::types::{
    ConsumerError, HandledMessages, MessageHandler, MessageOutcome, MessagesHandled, StreamConsumerOptions,
    StreamMessage, StreamReport,
};
