//! A connection to NATS, which connects again by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::message::OutboundMessage;
use async_nats::{ConnectError, ConnectOptions, Event, Message, RequestErrorKind, ServerAddr, ServerInfo, Statistics};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc::UnboundedSender;

use super::jet_stream::JetStream;
use crate::telling::{OutsideBatch, tell};
#[cfg(test)]
use crate::tests::simulation::nats::{SimulatedClient, SimulatedSubscription};

/// The servers to which a node connects.
pub(crate) enum NatsServers {
    Servers(Box<(Vec<ServerAddr>, ConnectOptions)>),
    #[cfg(test)]
    Simulated(SimulatedClient),
}

impl NatsServers {
    /// Connects. `events` receives what happens to the connection.
    ///
    /// # Errors
    /// Fails if the client stops trying.
    pub(crate) async fn connect(self, events: UnboundedSender<Event>) -> Result<NatsClient, ConnectError> {
        match self {
            NatsServers::Servers(connecting) => {
                let (servers, options) = *connecting;
                let options = options.event_callback(move |event| {
                    let _ = events.send(event);
                    std::future::ready(())
                });
                options.connect(servers).await.map(NatsClient::Server)
            }
            #[cfg(test)]
            NatsServers::Simulated(client) => {
                client.connect(events);
                Ok(NatsClient::Simulated(client))
            }
        }
    }
}

/// A handle of the connection. Clones share it.
#[derive(Clone)]
pub(crate) enum NatsClient {
    Server(async_nats::Client),
    #[cfg(test)]
    Simulated(SimulatedClient),
}

/// The messages of one subject. The server stops sending them when this is dropped.
pub(crate) enum NatsSubscription {
    Server(async_nats::Subscriber),
    #[cfg(test)]
    Simulated(SimulatedSubscription),
}

impl NatsSubscription {
    /// The next message; `None` = the client is closed.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        match self {
            NatsSubscription::Server(subscriber) => subscriber.next().await,
            #[cfg(test)]
            NatsSubscription::Simulated(subscription) => subscription.next().await,
        }
    }
}

impl NatsClient {
    /// Whether the connection is up.
    pub(crate) fn is_up(&self) -> bool {
        match self {
            NatsClient::Server(client) => client.connection_state() == State::Connected,
            #[cfg(test)]
            NatsClient::Simulated(client) => client.is_up(),
        }
    }

    /// The number of connections that were made.
    pub(crate) fn connects(&self) -> u64 {
        self.statistics().connects.load(Relaxed)
    }

    /// The counters of the connection.
    pub(crate) fn statistics(&self) -> Arc<Statistics> {
        match self {
            NatsClient::Server(client) => client.statistics(),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.statistics(),
        }
    }

    /// The server's last description of itself.
    pub(crate) fn server_info(&self) -> ServerInfo {
        match self {
            NatsClient::Server(client) => client.server_info(),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.server_info(),
        }
    }

    /// The size limit of one message, bytes. It changes with the server.
    pub(crate) fn max_payload(&self) -> usize {
        match self {
            NatsClient::Server(client) => client.max_payload(),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.server_info().max_payload,
        }
    }

    /// Subscribes to a subject. It waits for room in the queue of the client; `None` = the client is closed.
    pub(crate) async fn subscribe(&self, subject: String) -> Option<NatsSubscription> {
        match self {
            NatsClient::Server(client) => client.subscribe(subject).await.ok().map(NatsSubscription::Server),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.subscribe(subject).await.map(NatsSubscription::Simulated),
        }
    }

    /// Waits until the queue of the client takes one message, and keeps the place.
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            // An error is reported again when the message is written.
            NatsClient::Server(client) => client.poll_ready_unpin(context).map(drop),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.poll_ready(context),
        }
    }

    /// Writes a message into the place that [`NatsClient::poll_ready`] has kept.
    pub(crate) fn start_send(&mut self, message: OutboundMessage) {
        match self {
            // It fails only if the message is too large, or the client is closed.
            NatsClient::Server(client) => {
                if let Err(error) = client.start_send_unpin(message) {
                    tracing::warn!(%error, "a message to other nodes could not be sent");
                }
            }
            #[cfg(test)]
            NatsClient::Simulated(client) => client.start_send(message),
        }
    }

    /// Waits until everything that was written is sent. Returns whether it was.
    pub(crate) async fn flush(&self) -> bool {
        match self {
            NatsClient::Server(client) => client.flush().await.is_ok(),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.flush().await,
        }
    }

    /// Requests a reply to an empty message. False = no client is subscribed to the subject. `None` = no reply in time.
    pub(crate) async fn probe(&self, subject: String, timeout: Duration) -> Option<bool> {
        match self {
            NatsClient::Server(client) => {
                let request = async_nats::Request::new().timeout(Some(timeout));
                match client.send_request(subject, request).await {
                    Ok(_) => Some(true),
                    Err(error) if error.kind() == RequestErrorKind::NoResponders => Some(false),
                    Err(_) => None,
                }
            }
            #[cfg(test)]
            NatsClient::Simulated(client) => client.probe(subject, timeout).await,
        }
    }

    /// A subject for replies that no other client has.
    pub(crate) fn new_inbox(&self) -> String {
        match self {
            NatsClient::Server(client) => client.new_inbox(),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.new_inbox(),
        }
    }

    /// Sends a message with a subject for replies. Returns whether the client took it.
    pub(crate) async fn publish_with_reply(&self, subject: String, reply: String, payload: Bytes) -> bool {
        match self {
            NatsClient::Server(client) => client.publish_with_reply(subject, reply, payload).await.is_ok(),
            #[cfg(test)]
            NatsClient::Simulated(client) => client.publish_with_reply(subject, reply, payload).await,
        }
    }

    /// JetStream, with a time limit of each request.
    pub(crate) fn jet_stream(&self, timeout: Duration) -> JetStream {
        match self {
            NatsClient::Server(client) => {
                let mut context = async_nats::jetstream::new(client.clone());
                context.set_timeout(timeout);
                JetStream::Server(context)
            }
            #[cfg(test)]
            NatsClient::Simulated(client) => JetStream::Simulated(client.clone(), timeout),
        }
    }

    /// Sends messages to receivers outside the cluster, and reports whether they have arrived.
    pub(crate) async fn tell(self, batch: OutsideBatch) {
        match self {
            NatsClient::Server(client) => tell(client, batch).await,
            #[cfg(test)]
            NatsClient::Simulated(_) => (batch.done)(false),
        }
    }
}
