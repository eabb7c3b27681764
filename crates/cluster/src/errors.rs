//! Why a node cannot join, and why NATS cannot serve a channel with history or shared facts.

use async_nats::jetstream::context::{CreateStreamError, GetStreamError, PublishError, UpdateStreamError};
use async_nats::jetstream::stream::{PurgeError, RawMessageError};
use touchline_protocol::fact::UnreadableFact;

/// Why a node can't join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No NATS server is named.
    #[error("cluster.nats_url: no address of NATS; set it to nats://HOST:4222")]
    NoServer,
    /// A setting can't be used. The text never has the value, which may be a secret.
    #[error("cluster.{key}: {cause}; expected {expected}")]
    Setting {
        /// The key of the section `cluster`.
        key: &'static str,
        /// What the value should be.
        expected: &'static str,
        /// What is wrong with it. It stands in the text, so it is not told again as a source.
        cause: std::io::Error,
    },
    /// The system refused a thread or a runtime.
    #[error("the thread of the cluster could not be started: {0}; raise the limit of threads (ulimit -u)")]
    System(#[from] std::io::Error),
}

/// Why NATS cannot serve a channel with history. The text says what was tried, why it failed, and what the operator can
/// do, as far as that is known. `stream` is the name of the stream in JetStream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// This node takes no part in the cluster now.
    #[error("this node is not part of the cluster: NATS can't be reached, or another node shares no version with it")]
    NotJoined,
    /// The streams are not open: the connection is new, or [`crate::ClusterEvent::StreamsUnavailable`] said why.
    #[error("the streams of the cluster are not open yet; the log says why if that lasts")]
    NotOpen,
    /// The stream can't be looked up.
    #[error("opening the stream {stream}: {source}{}", remedy(.source))]
    Open {
        /// Its name.
        stream: String,
        /// NATS's reason.
        source: GetStreamError,
    },
    /// The stream does not exist, and can't be made.
    #[error("making the stream {stream}: {source}{}", remedy(.source))]
    Create {
        /// Its name.
        stream: String,
        /// NATS's reason.
        source: CreateStreamError,
    },
    /// The stream can't be changed to what is configured, or to a new run.
    #[error("changing the stream {stream}: {source}{}", remedy(.source))]
    Update {
        /// Its name.
        stream: String,
        /// NATS's reason.
        source: UpdateStreamError,
    },
    /// Another program has made the stream, or a later version of this one.
    #[error("the stream {stream} can't be used: {reason}")]
    Foreign {
        /// Its name.
        stream: String,
        /// Who has made it, and what to do.
        reason: &'static str,
    },
    /// Whether the stream was set back to an earlier state can't be read.
    #[error("reading the last known publication of the stream {stream}: {source}{}", remedy(.source))]
    Verify {
        /// Its name.
        stream: String,
        /// NATS's reason.
        source: RawMessageError,
    },
    /// The publication was refused, or no acknowledgement came.
    #[error("storing a publication in the stream {stream}: {source}{}", remedy(.source))]
    Append {
        /// Its name.
        stream: String,
        /// NATS's reason.
        source: PublishError,
    },
    /// JetStream acknowledges the publication without a sequence: it is not known to be on all replicas.
    #[error(
        "storing a publication in the stream {stream}: JetStream has not replicated it in time; see that a majority of \
         its NATS servers runs"
    )]
    Unconfirmed {
        /// Its name.
        stream: String,
    },
    /// The channel was published to all the while.
    #[error("removing a history from the stream {stream}: the channel was published to all the while; try again")]
    Busy {
        /// Its name.
        stream: String,
    },
    /// The publications of a channel can't be removed.
    #[error("removing a history from the stream {stream}: {source}{}", remedy(.source))]
    Purge {
        /// Its name.
        stream: String,
        /// NATS's reason.
        source: PurgeError,
    },
    /// A history can't be read.
    #[error("reading a history from the stream {stream}: {source}{}", remedy(.source))]
    Read {
        /// Its name.
        stream: String,
        /// NATS's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No reply came to a read that was repeated.
    #[error("reading a history from the stream {stream}: no answer; see that a majority of its NATS servers runs")]
    NoAnswer {
        /// Its name.
        stream: String,
    },
    /// A history changed faster than it could be read.
    #[error("reading a history from the stream {stream}: what was read was gone each time; raise history_size")]
    Unstable {
        /// Its name.
        stream: String,
    },
}

/// Why NATS cannot serve shared facts, such as bans. The text says what was tried, why it failed, and what the operator
/// can do, as far as that is known. `bucket` is the name of the bucket in JetStream.
#[derive(Debug, thiserror::Error)]
pub enum FactError {
    /// There is no connection to NATS now.
    #[error("NATS can't be reached")]
    NotConnected,
    /// NATS has no JetStream.
    #[error(
        "NATS has no JetStream, where shared facts such as bans are kept: switch it on (jetstream {{}} in its \
         configuration, or --jetstream), or let store.primary.url be PostgreSQL"
    )]
    NoJetStream,
    /// The bucket does not exist, and can't be made.
    #[error("making the bucket {bucket}: {source}{}", remedy(.source))]
    Make {
        /// Its name.
        bucket: String,
        /// NATS's reason.
        source: CreateStreamError,
    },
    /// The change was refused, or no acknowledgement came.
    #[error("writing into the bucket {bucket}: {source}{}", remedy(.source))]
    Write {
        /// Its name.
        bucket: String,
        /// NATS's reason.
        source: PublishError,
    },
    /// JetStream acknowledges the change without a sequence: it is not known to be on all replicas.
    #[error(
        "writing into the bucket {bucket}: JetStream has not replicated it in time; see that a majority of its NATS \
         servers runs"
    )]
    Unconfirmed {
        /// Its name.
        bucket: String,
    },
    /// The bucket can't be read.
    #[error("reading the bucket {bucket}: {source}{}", remedy(.source))]
    Read {
        /// Its name.
        bucket: String,
        /// NATS's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The leader of the bucket does not know whether it leads still.
    #[error(
        "reading the bucket {bucket}: its leader has not heard from a majority of its replicas lately; see that a \
         majority of its NATS servers runs"
    )]
    NoMajority {
        /// Its name.
        bucket: String,
    },
    /// A fact can't be read.
    #[error("reading the bucket {bucket}: {reason}")]
    Unreadable {
        /// Its name.
        bucket: String,
        /// Which, and what to do.
        reason: UnreadableFact,
    },
    /// The bucket was not read in time.
    #[error("reading the bucket of shared facts: no answer in time; see that a majority of its NATS servers runs")]
    TimedOut,
}

impl StreamError {
    /// Whether something else has reported the cause already: the connection, or the opening of the streams.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, StreamError::NotJoined | StreamError::NotOpen)
    }
}

/// What the operator can do about a refusal of JetStream, behind a colon, by its text: the client has no numbers for
/// all of them. Empty = nothing is known.
fn remedy(refusal: &dyn std::fmt::Display) -> String {
    let known = [
        (
            "replicas > 1 not supported",
            "set cluster.stream_replicas to 1, or let NATS be a cluster of that many servers",
        ),
        ("no suitable peers", "set cluster.stream_replicas to no more than there are NATS servers"),
        ("resource does not exist", "switch JetStream on in NATS (jetstream {} in its configuration, or --jetstream)"),
        ("jetstream not enabled", "switch JetStream on in NATS (jetstream {} in its configuration, or --jetstream)"),
        ("insufficient", "give JetStream more room, or set cluster.stream_max_bytes"),
        ("maximum bytes exceeded", "raise cluster.stream_max_bytes, or let the stream discard old messages"),
        ("maximum messages", "let the stream discard old messages, which is how this program makes it"),
        ("resource limits exceeded", "give JetStream more room (max_file, max_mem, or the limits of the account)"),
        ("no stream found", "the stream was deleted: it is made again when it is missed"),
        ("didn't receive ack", "see that a majority of the stream's NATS servers runs and keeps up"),
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
            "storing a publication in the stream touchline_test_-: timed out: didn't receive ack in time: see that a \
             majority of the stream's NATS servers runs and keeps up"
        );
        let unknown = StreamError::Append { stream: stream(), source: PublishErrorKind::BrokenPipe.into() };
        assert!(unknown.to_string().ends_with(": broken pipe"), "{unknown}");
        let read = StreamError::Read { stream: stream(), source: "JetStream not enabled for account".into() };
        assert!(read.to_string().contains("switch JetStream on"), "{read}");
    }
}
