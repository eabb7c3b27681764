//! The options, inputs and reports of a consumer.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use async_nats::rustls::ClientConfig;
use bytes::Bytes;

/// How to read a stream.
#[derive(Default)]
pub struct StreamConsumerOptions {
    /// The name of the consumer, by which NATS identifies the connection.
    pub name: String,
    /// The addresses of the servers, separated by commas.
    pub url: String,
    /// The text of a credentials file. Empty = none. It takes precedence over `user` and `token`.
    pub credentials: String,
    /// The user and the password. Empty = none. They take precedence over `token`.
    pub user: (String, String),
    /// The token for NATS. Empty = none.
    pub token: String,
    /// The TLS configuration. `None` = TLS is used only if an address begins with `tls://`.
    pub tls: Option<ClientConfig>,
    /// The name of the stream, which must exist.
    pub stream: String,
    /// The name of the durable consumer.
    pub durable: String,
    /// The subjects to read. Empty = all subjects of the stream.
    pub subjects: Vec<String>,
    /// True if a new consumer begins with the oldest message. False = it begins with the next one.
    pub delivers_all: bool,
    /// The maximum number of messages without an acknowledgement.
    pub max_ack_pending: usize,
    /// True if the consumer must exist already, and is not changed.
    pub is_existing: bool,
}

/// A message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamMessage {
    /// The sequence number of the message in the stream.
    pub sequence: u64,
    /// When the stream stored the message, nanoseconds since 1970. It is the same for every delivery.
    pub stored_ns: i128,
    /// The number of deliveries, including this one.
    pub deliveries: u64,
    /// The headers, each with its first value.
    pub headers: Vec<(String, String)>,
    /// The payload of the message.
    pub payload: Bytes,
}

/// The outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOutcome {
    /// The message was executed, or can never be executed. It is acknowledged.
    Done,
    /// Like `Done`, but a repetition could undo what later messages did. No other message is passed to the handler
    /// before JetStream has confirmed the acknowledgement.
    DoneForCertain,
    /// The message or an earlier one must be tried again. It is passed to the handler again with the next messages.
    Kept,
}

/// The outcome of messages that were passed to the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandledMessages {
    /// The outcome of each message, in their order.
    pub outcomes: Vec<MessageOutcome>,
    /// How long until the first kept message is due. `None` = none of them has failed.
    pub pause: Option<Duration>,
}

/// A report of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamReport {
    /// The consumer makes no progress. The text contains neither a password nor a token.
    Failing(String),
    /// The consumer waits for messages, or receives them.
    Working,
    /// New measurements of the stream.
    Lag {
        /// The number of messages that wait or are in progress.
        waiting: u64,
        /// How long the oldest of these messages has waited.
        oldest: Duration,
        /// The sequence number up to which all messages are acknowledged.
        floor: u64,
        /// The number of later messages that were delivered and are not acknowledged, on all nodes.
        unsettled: u64,
    },
}

/// The future that [`MessageHandler::handle`] returns.
pub type MessagesHandled<'a> = Pin<Box<dyn Future<Output = HandledMessages> + Send + 'a>>;

/// Executes the messages of a stream.
pub trait MessageHandler: Send + Sync {
    /// Executes messages, which are in the order of their sequence numbers. Kept messages are among them again. None
    /// may be tried before it is due.
    fn handle(&self, messages: Vec<StreamMessage>) -> MessagesHandled<'_>;

    /// How long to wait after this number of failures before the next attempt.
    fn delay(&self, failures: u32) -> Duration;

    /// Receives a report.
    fn report(&self, report: StreamReport);
}

/// Why a consumer cannot start. No text contains a password or a token.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// An address cannot be parsed.
    #[error("url: {0}; expected nats://HOST:PORT or tls://HOST:PORT, separated by commas")]
    Address(std::io::Error),
    /// The credentials cannot be parsed.
    #[error("credentials_file: {0}; expected a credentials file of NATS")]
    Credentials(std::io::Error),
}
