//! The handle of a consumer that is about to begin.

use std::sync::Arc;

use async_nats::ServerAddr;
use tokio::sync::watch;

use super::connecting;
use super::pulling::Puller;
use super::types::{ConsumerError, MessageHandler, StreamConsumerOptions};
use crate::trial::{connect, say};

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

    /// Connects once, and changes nothing. Returns what the server says of itself.
    ///
    /// # Errors
    /// When no server answers or it refuses the consumer, or it has no JetStream. The text has no password.
    pub async fn try_connection(&self) -> Result<String, String> {
        let options = connecting::options(&self.options).map_err(|error| error.to_string())?;
        say(&connect(self.servers.clone(), options).await?, true).await
    }

    /// Serves until `stop` turns true. What is under way then is finished.
    pub async fn run(self, handler: Arc<dyn MessageHandler>, stop: watch::Receiver<bool>) {
        Puller { options: self.options, servers: self.servers, handler }.run(stop).await;
    }
}
