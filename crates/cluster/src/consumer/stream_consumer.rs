//! The handle of a consumer before it starts.

use std::sync::Arc;

use async_nats::ServerAddr;
use tokio::sync::watch;

use super::connecting;
use super::pulling::Puller;
use super::types::{ConsumerError, MessageHandler, StreamConsumerOptions};
use crate::trial::{connect, say};

/// A consumer that has not started yet.
pub struct StreamConsumer {
    options: StreamConsumerOptions,
    servers: Vec<ServerAddr>,
}

impl StreamConsumer {
    /// Checks the addresses and the credentials without connecting.
    ///
    /// # Errors
    /// See [`ConsumerError`].
    pub fn new(options: StreamConsumerOptions) -> Result<Self, ConsumerError> {
        let servers = connecting::servers(&options.url)?;
        connecting::options(&options, &servers)?;
        Ok(StreamConsumer { options, servers })
    }

    /// Connects once, and changes nothing. Returns a description of the server.
    ///
    /// # Errors
    /// Fails if no server answers, the server refuses the consumer, or it does not have JetStream. The text contains no
    /// password.
    pub async fn try_connection(&self) -> Result<String, String> {
        let options = connecting::options(&self.options, &self.servers).map_err(|error| error.to_string())?;
        say(&connect(self.servers.clone(), options).await?, true).await
    }

    /// Serves until `stop` becomes true. Work in progress is finished first.
    pub async fn run(self, handler: Arc<dyn MessageHandler>, stop: watch::Receiver<bool>) {
        Puller { options: self.options, servers: self.servers, handler }.run(stop).await;
    }
}
