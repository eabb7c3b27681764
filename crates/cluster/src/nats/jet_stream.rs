//! JetStream, as far as histories and shared facts need it.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, PublishAckFuture, PublishError,
    UpdateStreamError,
};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::{
    ClusterInfo, Config, DirectGetErrorKind, Info, LastRawMessageErrorKind, RawMessageError, RawMessageErrorKind,
    Stream,
};
use async_nats::jetstream::{Context, ErrorCode};
use bytes::Bytes;
use futures_util::StreamExt as _;

#[cfg(test)]
use crate::tests::simulation::nats::{SimulatedAcknowledgement, SimulatedClient};

/// The number of messages that are requested from a consumer at a time.
const FETCHED: usize = 1_000;
/// How long JetStream keeps an unused consumer.
const CONSUMER_REST: Duration = Duration::from_secs(30);
/// The time limit for the next message of a consumer.
const NEXT_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason that NATS gave, or why no reply arrived.
pub(crate) type NatsError = Box<dyn std::error::Error + Send + Sync>;

/// JetStream. Clones share the connection.
#[derive(Clone)]
pub(crate) enum JetStream {
    Server(Context),
    #[cfg(test)]
    Simulated(SimulatedClient, Duration),
}

/// A publication that was sent, and not acknowledged yet.
pub(crate) enum Acknowledgement {
    Server(PublishAckFuture),
    #[cfg(test)]
    Simulated(SimulatedAcknowledgement),
}

impl Acknowledgement {
    /// Waits for the acknowledgement. Without a sequence, the publication is not known to be stored.
    ///
    /// # Errors
    /// The reason that NATS gave, or that no acknowledgement arrived in time.
    pub(crate) async fn wait(self) -> Result<PublishAck, PublishError> {
        match self {
            Acknowledgement::Server(acknowledgement) => acknowledgement.await,
            #[cfg(test)]
            Acknowledgement::Simulated(acknowledgement) => acknowledgement.wait().await,
        }
    }
}

impl JetStream {
    /// Looks a stream up. `None` = it does not exist.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<NatsStream>, GetStreamError> {
        match self {
            JetStream::Server(context) => match context.get_stream(name).await {
                Ok(stream) => Ok(Some(NatsStream {
                    info: StreamInfo::of(stream.cached_info()),
                    at: StreamHandle::Server(Box::new(stream)),
                })),
                Err(error) => match error.kind() {
                    GetStreamErrorKind::JetStream(refusal) if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                        Ok(None)
                    }
                    _ => Err(error),
                },
            },
            #[cfg(test)]
            JetStream::Simulated(client, timeout) => {
                let found = client.stream_info(name, *timeout).await.ok_or(GetStreamErrorKind::Request)?;
                Ok(found.map(|info| NatsStream { info, at: StreamHandle::Simulated(client.clone(), *timeout) }))
            }
        }
    }

    /// Creates a stream, unless another node has created it first.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn create(&self, config: Config) -> Result<(), CreateStreamError> {
        match self {
            JetStream::Server(context) => match context.create_stream(config).await {
                Ok(_) => Ok(()),
                Err(error) => match error.kind() {
                    CreateStreamErrorKind::JetStream(refusal)
                        if refusal.error_code() == ErrorCode::STREAM_NAME_EXIST =>
                    {
                        Ok(())
                    }
                    _ => Err(error),
                },
            },
            #[cfg(test)]
            JetStream::Simulated(client, timeout) => {
                Ok(client.create_stream(config, *timeout).await.ok_or(CreateStreamErrorKind::TimedOut)?)
            }
        }
    }

    /// Changes the settings of a stream.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn update(&self, config: &Config) -> Result<(), UpdateStreamError> {
        match self {
            JetStream::Server(context) => context.update_stream(config).await.map(drop),
            #[cfg(test)]
            JetStream::Simulated(client, timeout) => {
                Ok(client.update_stream(config.clone(), *timeout).await.ok_or(CreateStreamErrorKind::TimedOut)?)
            }
        }
    }

    /// Sends a publication to the stream that has its subject.
    ///
    /// # Errors
    /// Fails if the client is closed, or too many publications wait.
    pub(crate) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Acknowledgement, PublishError> {
        match self {
            JetStream::Server(context) => {
                context.publish_with_headers(subject, headers, payload).await.map(Acknowledgement::Server)
            }
            #[cfg(test)]
            JetStream::Simulated(client, timeout) => {
                Ok(Acknowledgement::Simulated(client.append(subject, headers, payload, *timeout).await))
            }
        }
    }
}

/// The description and the state of a stream at one moment.
#[derive(Debug, Clone)]
pub(crate) struct StreamInfo {
    pub(crate) config: Config,
    /// When the stream was created, Unix nanoseconds. Another stream has another time.
    pub(crate) created_ns: i128,
    /// The first sequence that the stream still has. For an empty stream, the first sequence that it will have.
    pub(crate) first: u64,
    /// The last sequence that the stream has assigned.
    pub(crate) last: u64,
    /// The number of messages.
    pub(crate) messages: u64,
    /// The replicas; `None` = there is only one server.
    pub(crate) cluster: Option<ClusterInfo>,
}

impl StreamInfo {
    fn of(info: &Info) -> Self {
        StreamInfo {
            config: info.config.clone(),
            created_ns: info.created.unix_timestamp_nanos(),
            first: info.state.first_sequence,
            last: info.state.last_sequence,
            messages: info.state.messages,
            cluster: info.cluster.clone(),
        }
    }
}

/// A stream that exists, or did when it was looked up.
#[derive(Clone)]
pub(crate) struct NatsStream {
    /// The stream when it was looked up.
    pub(crate) info: StreamInfo,
    at: StreamHandle,
}

#[derive(Clone)]
enum StreamHandle {
    Server(Box<Stream>),
    #[cfg(test)]
    Simulated(SimulatedClient, Duration),
}

impl NatsStream {
    /// The name of the stream.
    pub(crate) fn name(&self) -> &str {
        &self.info.config.name
    }

    /// Reads the description and the state again.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn read_info(&self) -> Result<StreamInfo, NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => Ok(StreamInfo::of(&stream.get_info().await?)),
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                let found = client.stream_info(self.name(), *timeout).await.ok_or("no reply")?;
                Ok(found.ok_or("the stream does not exist")?)
            }
        }
    }

    /// The first message of a subject from a sequence on, as any replica knows it.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn next(&self, subject: &str, sequence: u64) -> Result<Option<StreamMessage>, NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => match stream.direct_get_next_for_subject(subject, Some(sequence)).await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            },
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                Ok(client.read_replica(self.name(), subject, sequence, *timeout).await.ok_or("no reply")?)
            }
        }
    }

    /// The first message of a subject from a sequence on, as the leader knows it.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn first(&self, subject: &str, sequence: u64) -> Result<Option<StreamMessage>, NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => found(stream.get_first_raw_message_by_subject(subject, sequence).await),
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                Ok(client.read_first(self.name(), subject, sequence, *timeout).await.ok_or("no reply")?)
            }
        }
    }

    /// The last message of a subject, as the leader knows it.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn last(&self, subject: &str) -> Result<Option<StreamMessage>, NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => match stream.get_last_raw_message_by_subject(subject).await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error.into()),
            },
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                Ok(client.read_last(self.name(), subject, *timeout).await.ok_or("no reply")?)
            }
        }
    }

    /// The message at a sequence, as the leader knows it.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn at(&self, sequence: u64) -> Result<Option<StreamMessage>, NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => found(stream.get_raw_message(sequence).await),
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                Ok(client.read_at(self.name(), sequence, *timeout).await.ok_or("no reply")?)
            }
        }
    }

    /// The last sequence of the stream, if a subject has no message after that state was taken. `None` = it has.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn end_without(&self, subject: &str) -> Result<Option<u64>, NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => {
                let mut subjects = stream.info_with_subjects(subject).await?;
                match subjects.next().await {
                    None => Ok(Some(subjects.info.state.last_sequence)),
                    Some(Ok(_)) => Ok(None),
                    Some(Err(error)) => Err(error.into()),
                }
            }
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                Ok(client.read_end(self.name(), subject, *timeout).await.ok_or("no reply")?)
            }
        }
    }

    /// All messages after a sequence, by a consumer.
    ///
    /// # Errors
    /// The reason that NATS gave, or a message that was lost on the way.
    pub(crate) async fn after(&self, sequence: u64) -> Result<Vec<StreamMessage>, NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => consume(stream, sequence).await,
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                Ok(client.read_after(self.name(), sequence, *timeout).await.ok_or("no reply")?)
            }
        }
    }

    /// Deletes the messages of a subject before a sequence.
    ///
    /// # Errors
    /// The reason that NATS gave, or why no reply arrived.
    pub(crate) async fn purge(&self, subject: &str, before: u64) -> Result<(), NatsError> {
        match &self.at {
            StreamHandle::Server(stream) => Ok(stream.purge().sequence(before).filter(subject).await.map(drop)?),
            #[cfg(test)]
            StreamHandle::Simulated(client, timeout) => {
                Ok(client.purge(self.name(), subject, before, *timeout).await.ok_or("no reply")?)
            }
        }
    }
}

/// The result of a read from the leader: what is missing is not an error.
fn found(read: Result<StreamMessage, RawMessageError>) -> Result<Option<StreamMessage>, NatsError> {
    match read {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn consume(stream: &Stream, sequence: u64) -> Result<Vec<StreamMessage>, NatsError> {
    let config = pull::Config {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: sequence + 1 },
        ack_policy: AckPolicy::None,
        replay_policy: ReplayPolicy::Instant,
        inactive_threshold: CONSUMER_REST,
        memory_storage: true,
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(config).await?;
    let (name, mut left) = (consumer.cached_info().name.clone(), consumer.cached_info().num_pending);
    let (mut messages, mut received) = (Vec::new(), 0);
    while left > 0 {
        let mut fetched = consumer.fetch().max_messages(FETCHED).messages().await?;
        let before = received;
        while let Ok(Some(message)) = tokio::time::timeout(NEXT_TIMEOUT, fetched.next()).await {
            let message = message?;
            let info = message.info()?;
            received += 1;
            if info.consumer_sequence != received {
                return Err("a message on the way from JetStream was lost".into());
            }
            let (sequence, time) = (info.stream_sequence, info.published);
            left = info.pending;
            let async_nats::Message { subject, headers, payload, .. } = message.message;
            messages.push(StreamMessage { subject, sequence, headers: headers.unwrap_or_default(), payload, time });
        }
        if received == before {
            return Err("no answer; check that a majority of its NATS servers is up".into());
        }
    }
    // A consumer that could not be deleted expires by itself.
    let _ = stream.delete_consumer(&name).await;
    Ok(messages)
}
