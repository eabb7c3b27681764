//! What a consumer is told, hands over and reports.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use async_nats::rustls::ClientConfig;
use bytes::Bytes;

/// How to read a stream.
#[derive(Default)]
pub struct StreamConsumerOptions {
    /// The consumer's name, by which NATS knows the connection.
    pub name: String,
    /// Addresses of servers, separated by commas.
    pub url: String,
    /// Text of a credentials file; empty = none. It comes before `user` and `token`.
    pub credentials: String,
    /// User and password; empty = none. They come before `token`.
    pub user: (String, String),
    /// Token; empty = none.
    pub token: String,
    /// TLS; None = where an address says `tls://`.
    pub tls: Option<ClientConfig>,
    /// The stream, which must exist.
    pub stream: String,
    /// The durable consumer.
    pub durable: String,
    /// Subjects that are read; empty = all.
    pub subjects: Vec<String>,
    /// Whether a new consumer begins with the oldest message; else with the next.
    pub delivers_all: bool,
    /// Most messages without an acknowledgement.
    pub max_ack_pending: usize,
    /// The consumer is there, and stays as it is.
    pub is_existing: bool,
}

/// A message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamMessage {
    /// Its number in the stream.
    pub sequence: u64,
    /// When the stream stored it, nanoseconds since 1970; the same however often it is delivered.
    pub stored_ns: i128,
    /// How often it was delivered, this time too.
    pub deliveries: u64,
    /// Its headers, each with its first value.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Bytes,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOutcome {
    /// It was carried out, or never can be: it is acknowledged.
    Done,
    /// The same, and its repetition could undo what comes behind it: nothing else is handed over before JetStream has
    /// confirmed its acknowledgement.
    DoneForCertain,
    /// It, or one before it, has to be tried again: it is handed over with the next messages.
    Kept,
}

/// What became of messages that were handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandledMessages {
    /// An outcome for each.
    pub outcomes: Vec<MessageOutcome>,
    /// How long none of those that are kept is due; None = none of them has failed.
    pub pause: Option<Duration>,
}

/// What a consumer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamReport {
    /// It does not get on. The text has neither a password nor a token.
    Failing(String),
    /// It waits for messages, or gets them.
    Working,
    /// What is known of the stream.
    Lag {
        /// Messages that wait or are under way.
        waiting: u64,
        /// How long the oldest of them has waited.
        oldest: Duration,
        /// The number up to which all messages are acknowledged.
        floor: u64,
        /// Messages behind it that were delivered and are not acknowledged, on all nodes.
        unsettled: u64,
    },
}

/// The future of [`MessageHandler::handle`].
pub type MessagesHandled<'a> = Pin<Box<dyn Future<Output = HandledMessages> + Send + 'a>>;

/// Carries messages out.
pub trait MessageHandler: Send + Sync {
    /// Carries out messages, which are in the order of their numbers.
    /// Those that were kept are among them again; none is tried before it is due.
    fn handle(&self, messages: Vec<StreamMessage>) -> MessagesHandled<'_>;

    /// How long to wait before what has failed so often is tried again.
    fn delay(&self, failures: u32) -> Duration;

    /// Takes a report.
    fn report(&self, report: StreamReport);
}

/// Why a consumer can't be begun. No text has a password or a token.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// An address can't be read.
    #[error("url: {0}; expected nats://HOST:PORT or tls://HOST:PORT, separated by commas")]
    Address(std::io::Error),
    /// The credentials can't be read.
    #[error("credentials_file: {0}; expected a credentials file of NATS")]
    Credentials(std::io::Error),
}
