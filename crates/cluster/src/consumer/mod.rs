//! A durable consumer of a JetStream stream. Its messages are passed to a handler in small batches, and acknowledged
//! once they have been executed. Messages that must be tried again are kept meanwhile, in their order.
//!
//! It does not use the cluster's connection, because the stream may be on other servers. While NATS is down, it waits,
//! and the node continues to serve its clients.

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
