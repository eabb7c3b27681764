//! Why a node cannot join, and why NATS cannot serve a channel with history or shared facts.

use async_nats::jetstream::context::{CreateStreamError, GetStreamError, PublishError, UpdateStreamError};
use touchline_protocol::fact::UnreadableFact;

use crate::nats::NatsError;

/// Why a node cannot join the cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No NATS server is configured.
    #[error("cluster.nats_url: no address of NATS; set it to nats://HOST:4222")]
    NoServer,
    /// A setting cannot be used. The text never contains the value, which may be a secret.
    #[error("cluster.{key}: {cause}; expected {expected}")]
    Setting {
        /// The key in the section `cluster`.
        key: &'static str,
        /// The expected value, in words.
        expected: &'static str,
        /// What is wrong with the value. It is a part of the text, so it is not repeated as a source.
        cause: std::io::Error,
    },
    /// The operating system could not start a thread or a runtime.
    #[error("the thread of the cluster could not be started: {0}; raise the limit of threads (ulimit -u)")]
    System(#[from] std::io::Error),
}

/// Why NATS cannot serve a channel with history. The text says what was tried, why it failed, and the remedy if one is
/// known. `stream` is the name of the stream in JetStream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// This node does not take part in the cluster now.
    #[error("this node is not part of the cluster: NATS can't be reached, or another node shares no version with it")]
    NotJoined,
    /// Too many messages wait to be written to NATS.
    #[error("too many messages wait for NATS: it is slow, or does not answer")]
    NoRoom,
    /// The streams are not open: the connection is new, or [`crate::ClusterEvent::StreamsUnavailable`] has said why.
    #[error("the streams of the cluster are not open yet; if that lasts, the log says why")]
    NotOpen,
    /// The stream cannot be looked up.
    #[error("opening the stream {stream}: {source}{}", remedy(.source))]
    Open {
        /// The name of the stream.
        stream: String,
        /// The reason that NATS gave.
        source: GetStreamError,
    },
    /// The stream was deleted a moment ago.
    #[error("opening the stream {stream}: it does not exist; it is created again")]
    Gone {
        /// The name of the stream.
        stream: String,
    },
    /// NATS does not answer for the stream.
    #[error(
        "opening the stream {stream}: no answer: it has no leader now, or NATS is overloaded; check that a majority of \
         its NATS servers is up"
    )]
    NoLeader {
        /// The name of the stream.
        stream: String,
    },
    /// The stream does not exist and cannot be created.
    #[error("creating the stream {stream}: {source}{}", remedy(.source))]
    Create {
        /// The name of the stream.
        stream: String,
        /// The reason that NATS gave.
        source: CreateStreamError,
    },
    /// The stream cannot be changed to the configured settings, or to a new run.
    #[error("changing the stream {stream}: {source}{}", remedy(.source))]
    Update {
        /// The name of the stream.
        stream: String,
        /// The reason that NATS gave.
        source: UpdateStreamError,
    },
    /// Another program, or a later version of this one, created the stream.
    #[error("the stream {stream} can't be used: {reason}")]
    Foreign {
        /// The name of the stream.
        stream: String,
        /// Which program created the stream, and what to do.
        reason: &'static str,
    },
    /// It cannot be read whether the stream was set back to an earlier state.
    #[error("reading the last known publication of the stream {stream}: {source}{}", remedy(.source))]
    Verify {
        /// The name of the stream.
        stream: String,
        /// The reason that NATS gave.
        source: NatsError,
    },
    /// The publication was refused, or no acknowledgement arrived.
    #[error("storing a publication in the stream {stream}: {source}{}", remedy(.source))]
    Append {
        /// The name of the stream.
        stream: String,
        /// The reason that NATS gave.
        source: PublishError,
    },
    /// JetStream acknowledges the publication without a sequence, so it is not known to be on all replicas.
    #[error(
        "storing a publication in the stream {stream}: JetStream has not replicated it in time; see that a majority of \
         its NATS servers runs"
    )]
    Unconfirmed {
        /// The name of the stream.
        stream: String,
    },
    /// The channel was published to during all attempts.
    #[error("removing a history from the stream {stream}: the channel was published to meanwhile; try again")]
    Busy {
        /// The name of the stream.
        stream: String,
    },
    /// The publications of a channel cannot be removed.
    #[error("removing a history from the stream {stream}: {source}{}", remedy(.source))]
    Purge {
        /// The name of the stream.
        stream: String,
        /// The reason that NATS gave.
        source: NatsError,
    },
    /// A history cannot be read.
    #[error("reading a history from the stream {stream}: {source}{}", remedy(.source))]
    Read {
        /// The name of the stream.
        stream: String,
        /// The reason that NATS gave.
        source: NatsError,
    },
    /// No reply arrived to a read that was repeated.
    #[error("reading a history from the stream {stream}: no answer; check that a majority of its NATS servers is up")]
    NoAnswer {
        /// The name of the stream.
        stream: String,
    },
    /// The removal of a history took too long. It may be done nevertheless.
    #[error("removing a history: no answer in time; check that a majority of its NATS servers is up")]
    TimedOut,
    /// A history changed faster than it could be read.
    #[error("reading a history from the stream {stream}: publications were removed meanwhile; raise history_size")]
    Unstable {
        /// The name of the stream.
        stream: String,
    },
}

/// Why NATS cannot serve shared facts, such as bans. The text says what was tried, why it failed, and the remedy if one
/// is known. `bucket` is the name of the bucket in JetStream.
#[derive(Debug, thiserror::Error)]
pub enum FactError {
    /// There is no connection to NATS now.
    #[error("NATS can't be reached")]
    NotConnected,
    /// NATS does not have JetStream.
    #[error(
        "NATS has no JetStream, where shared facts such as bans are kept: switch it on (jetstream {{}} in its \
         configuration, or --jetstream), or let store.primary.url be PostgreSQL"
    )]
    NoJetStream,
    /// The bucket does not exist and cannot be created.
    #[error("creating the bucket {bucket}: {source}{}", remedy(.source))]
    Make {
        /// The name of the bucket.
        bucket: String,
        /// The reason that NATS gave.
        source: CreateStreamError,
    },
    /// The change was refused, or no acknowledgement arrived.
    #[error("writing into the bucket {bucket}: {source}{}", remedy(.source))]
    Write {
        /// The name of the bucket.
        bucket: String,
        /// The reason that NATS gave.
        source: PublishError,
    },
    /// JetStream acknowledges the change without a sequence, so it is not known to be on all replicas.
    #[error(
        "writing into the bucket {bucket}: JetStream has not replicated it in time; see that a majority of its NATS \
         servers runs"
    )]
    Unconfirmed {
        /// The name of the bucket.
        bucket: String,
    },
    /// The bucket cannot be read.
    #[error("reading the bucket {bucket}: {source}{}", remedy(.source))]
    Read {
        /// The name of the bucket.
        bucket: String,
        /// The reason that NATS gave.
        source: NatsError,
    },
    /// The leader of the bucket does not know whether it is still the leader.
    #[error(
        "reading the bucket {bucket}: its leader has not heard from a majority of its replicas lately; see that a \
         majority of its NATS servers runs"
    )]
    NoMajority {
        /// The name of the bucket.
        bucket: String,
    },
    /// A fact cannot be decoded.
    #[error("reading the bucket {bucket}: {reason}")]
    Unreadable {
        /// The name of the bucket.
        bucket: String,
        /// Why the fact cannot be decoded, and what to do.
        reason: UnreadableFact,
    },
    /// The bucket was not read or changed in time.
    #[error(
        "reading or changing the bucket of shared facts: no answer in time; check that a majority of its NATS servers \
         is up"
    )]
    TimedOut,
}

impl StreamError {
    /// Whether the cause has already been reported, by the connection or by the opening of the streams.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, StreamError::NotJoined | StreamError::NotOpen | StreamError::NoRoom)
    }
}

/// What the operator can do when one NATS server alone cannot replicate a stream.
pub(crate) const TOO_MANY_REPLICAS: &str =
    "set cluster.stream_replicas to 1, or run NATS as a cluster of that many servers";

/// What the operator can do about a refusal of JetStream, as text that begins with a colon. It is found by the
/// refusal's text, because the client does not have numbers for all refusals. Empty = no remedy is known.
fn remedy(refusal: &dyn std::fmt::Display) -> String {
    let known = [
        ("replicas > 1 not supported", TOO_MANY_REPLICAS),
        (
            "no suitable peers",
            "too few of the NATS servers have joined the JetStream group (nats server report jetstream): start them, \
             check their logs and disks, or set cluster.stream_replicas to no more than there are NATS servers",
        ),
        ("resource does not exist", "switch JetStream on in NATS (jetstream {} in its configuration, or --jetstream)"),
        ("jetstream not enabled", "switch JetStream on in NATS (jetstream {} in its configuration, or --jetstream)"),
        ("insufficient", "give JetStream more room, or set cluster.stream_max_bytes"),
        ("maximum bytes exceeded", "raise cluster.stream_max_bytes, or let the stream discard old messages"),
        ("maximum messages", "let the stream discard old messages, as this program configures it"),
        ("resource limits exceeded", "give JetStream more room (max_file, max_mem, or the limits of the account)"),
        ("no stream found", "the stream was deleted: it is created again when a node notices"),
        ("didn't receive ack", "check that a majority of the stream's NATS servers is running and not overloaded"),
        ("max payload size exceeded", "raise max_payload of NATS"),
        ("permissions violation", "let the account of cluster.nats_user use JetStream"),
    ];
    let refusal = refusal.to_string().to_lowercase();
    let found = known.iter().find(|(part, _)| refusal.contains(&part.to_lowercase()));
    found.map_or_else(String::new, |(_, remedy)| format!(": {remedy}"))
}

#[cfg(test)]
mod tests {
    use async_nats::jetstream::context::PublishErrorKind;

    use super::*;

    #[test]
    fn an_error_says_what_was_tried_why_it_failed_and_what_to_do() {
        let stream = || "touchline_test_-".to_owned();
        let appended = StreamError::Append { stream: stream(), source: PublishErrorKind::TimedOut.into() };
        assert_eq!(
            appended.to_string(),
            "storing a publication in the stream touchline_test_-: timed out: didn't receive ack in time: check that \
             a majority of the stream's NATS servers is running and not overloaded"
        );
        let unknown = StreamError::Append { stream: stream(), source: PublishErrorKind::BrokenPipe.into() };
        assert!(unknown.to_string().ends_with(": broken pipe"), "{unknown}");
        let read = StreamError::Read { stream: stream(), source: "JetStream not enabled for account".into() };
        assert!(read.to_string().contains("switch JetStream on"), "{read}");
    }
}
