//! The handle of a consumer that is about to begin.

use std::sync::Arc;

use async_nats::ServerAddr;
use tokio::sync::watch;

use super::connecting;
use super::pulling::Puller;
use super::types::{ConsumerError, MessageHandler, StreamConsumerOptions};

/// A consumer that is about to begin.
pub struct StreamConsumer {
    options: StreamConsumerOptions,
    servers: Vec<ServerAddr>,
}

impl StreamConsumer {
    /// Checks the addresses and the credentials; connects to nothing.
    ///
    /// # Errors
    /// See [`ConsumerError`].
    pub fn new(options: StreamConsumerOptions) -> Result<Self, ConsumerError> {
        let servers = connecting::servers(&options.url)?;
        connecting::options(&options)?;
        Ok(StreamConsumer { options, servers })
    }

    /// Serves until `stop` turns true. What is under way then is finished.
    pub async fn run(self, handler: Arc<dyn MessageHandler>, stop: watch::Receiver<bool>) {
        Puller { options: self.options, servers: self.servers, handler }.run(stop).await;
    }
}
