//! The bucket of shared facts: a key-value bucket of JetStream in the usual format (`nats kv`). It is created when the
//! first fact is written, so a cluster without facts does not need JetStream.
//!
//! A bucket is a stream that keeps the last message of each subject. A removal is a message too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind, RequestError, RequestErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, LastRawMessageErrorKind, RawMessageErrorKind, StorageType};
use async_nats::jetstream::stream::{RawMessageError, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use futures_util::StreamExt as _;
use touchline_protocol::fact::{Fact, FactChange, FactKey};

use crate::errors::FactError;
use crate::settings::{JoinOptions, Storage};
use crate::subject::Subjects;

/// The time limit for JetStream to answer one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a change that JetStream has not stored on a majority is sent again.
const AGAIN: Duration = Duration::from_millis(100);
/// The maximum number of times that a change is sent.
const TRIES: u32 = 20;
/// Up to this number, messages are read one by one; more are read by a consumer.
const FEW: u64 = 16;
/// The number of messages that are requested from a consumer at a time.
const FETCHED: usize = 1_000;
/// How long JetStream keeps an unused consumer.
const CONSUMER_REST: Duration = Duration::from_secs(30);

/// The header that says what was done, and its values for a removal.
const OPERATION: &str = "KV-Operation";
const REMOVALS: [&str; 2] = ["DEL", "PURGE"];

/// The bucket of one cluster.
#[derive(Clone)]
pub(crate) struct FactBucket {
    context: Context,
    subjects: Subjects,
    settings: Arc<JoinOptions>,
    /// True if the bucket was seen, and nothing has failed since.
    is_made: Arc<AtomicBool>,
}

/// The observed state of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketState {
    /// When the bucket was created. Another bucket has another time.
    pub(crate) made_ns: i128,
    /// The sequence of the last change.
    pub(crate) last: u64,
    /// The number of messages in the bucket. Each fact that was ever written has one until it is cleaned.
    pub(crate) messages: u64,
}

/// One message of the bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BucketMessage {
    pub(crate) sequence: u64,
    pub(crate) subject: String,
    /// When the message was stored, Unix seconds.
    pub(crate) at_s: u64,
    pub(crate) change: FactChange,
}

impl FactBucket {
    pub(crate) fn new(client: async_nats::Client, subjects: Subjects, settings: Arc<JoinOptions>) -> Self {
        let mut context = jetstream::new(client);
        context.set_timeout(ANSWER_TIMEOUT);
        FactBucket { context, subjects, settings, is_made: Arc::default() }
    }

    /// The subjects of all facts.
    pub(crate) fn subject(&self) -> String {
        self.subjects.facts()
    }

    /// The name of the bucket.
    pub(crate) fn name(&self) -> String {
        self.subjects.fact_bucket()
    }

    fn stream_name(&self) -> String {
        format!("KV_{}", self.name())
    }

    /// The bucket and its observed state. `None` = nothing was ever written.
    ///
    /// # Errors
    /// The reason that NATS gave.
    pub(crate) async fn look(&self) -> Result<Option<(Stream, BucketState)>, FactError> {
        match self.context.get_stream(self.stream_name()).await {
            Ok(stream) => {
                let info = stream.cached_info();
                let state = BucketState {
                    made_ns: info.created.unix_timestamp_nanos(),
                    last: info.state.last_sequence,
                    messages: info.state.messages,
                };
                Ok(Some((stream, state)))
            }
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(refusal) if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    Ok(None)
                }
                GetStreamErrorKind::JetStream(refusal) if is_switched_off(&refusal) => Err(FactError::NoJetStream),
                GetStreamErrorKind::Request if has_no_responders(&error) => Err(FactError::NoJetStream),
                _ => Err(FactError::Read { bucket: self.name(), source: error.into() }),
            },
        }
    }

    /// Warns of facts in this bucket, for a node that keeps its facts elsewhere.
    pub(crate) async fn warn_of_what_is_left(&self) {
        if let Ok(Some((_, state))) = self.look().await
            && state.messages > 0
        {
            tracing::warn!(
                messages = state.messages,
                bucket = self.name(),
                "there are bans in NATS, and this node keeps bans in another place: those in NATS do not count"
            );
        }
    }

    async fn make(&self) -> Result<(), FactError> {
        let config = Config {
            name: self.stream_name(),
            description: Some("facts that the nodes of Touchline share, such as bans".to_owned()),
            subjects: vec![self.subject()],
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            storage: match self.settings.storage() {
                Storage::File => StorageType::File,
                Storage::Memory => StorageType::Memory,
            },
            num_replicas: self.settings.cluster.stream_replicas.max(1),
            // The same settings as in every key-value bucket.
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            ..Config::default()
        };
        match self.context.create_stream(config).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                // Another node created the bucket first.
                CreateStreamErrorKind::JetStream(refusal) if refusal.error_code() == ErrorCode::STREAM_NAME_EXIST => {
                    Ok(())
                }
                CreateStreamErrorKind::JetStream(refusal) if is_switched_off(&refusal) => Err(FactError::NoJetStream),
                CreateStreamErrorKind::JetStreamUnavailable => Err(FactError::NoJetStream),
                _ => Err(FactError::Make { bucket: self.name(), source: error }),
            },
        }
    }

    /// Changes a fact. Returns the revision. `None` = there was nothing to remove.
    ///
    /// # Errors
    /// Why the change is not stored, or not known to be stored.
    pub(crate) async fn change(&self, change: &FactChange) -> Result<Option<u64>, FactError> {
        let (mut headers, payload) = (HeaderMap::new(), payload_of(change));
        headers.insert(async_nats::header::NATS_EXPECTED_STREAM, self.stream_name().as_str());
        if matches!(change, FactChange::Remove(_)) {
            if !self.has(change.key()).await? {
                return Ok(None);
            }
            headers.insert(OPERATION, REMOVALS[0]);
        }
        // Without a bucket NATS would report no error, and the nodes that follow the bucket would receive the change.
        if !self.is_made.load(Relaxed) && self.look().await?.is_none() {
            self.make().await?;
        }
        self.is_made.store(true, Relaxed);
        let subject = self.subjects.fact(change.key());
        for _ in 0..TRIES {
            let published = self.context.publish_with_headers(subject.clone(), headers.clone(), payload.clone()).await;
            let acknowledged = match published {
                Ok(published) => published.await,
                Err(error) => Err(error),
            };
            match acknowledged {
                // Without a sequence the change is not known to be on a majority of the replicas.
                Ok(acknowledged) if acknowledged.sequence > 0 => return Ok(Some(acknowledged.sequence)),
                Ok(_) => tokio::time::sleep(AGAIN).await,
                Err(source) => {
                    self.is_made.store(false, Relaxed);
                    return Err(FactError::Write { bucket: self.name(), source });
                }
            }
        }
        Err(FactError::Unconfirmed { bucket: self.name() })
    }

    /// Whether the bucket's leader has a fact of this key.
    async fn has(&self, key: &FactKey) -> Result<bool, FactError> {
        let Some((stream, _)) = self.look().await? else { return Ok(false) };
        match stream.get_last_raw_message_by_subject(&self.subjects.fact(key)).await {
            Ok(message) => Ok(!is_removal(&message.headers)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(false),
            Err(error) => Err(FactError::Read { bucket: self.name(), source: error.into() }),
        }
    }

    /// Reads the messages after a sequence in their order, at least up to the sequence of `seen`.
    ///
    /// # Errors
    /// The reason that NATS gave, or a message that cannot be decoded.
    pub(crate) async fn read(
        &self,
        stream: &Stream,
        seen: BucketState,
        behind: u64,
    ) -> Result<Vec<BucketMessage>, FactError> {
        if seen.last.saturating_sub(behind) > FEW {
            return self.read_many(stream, behind).await;
        }
        let mut messages: Vec<BucketMessage> = Vec::new();
        let mut at = behind;
        while at < seen.last {
            match stream.get_first_raw_message_by_subject(self.subject(), at + 1).await {
                Ok(message) => {
                    at = message.sequence;
                    let at_s = message.time.unix_timestamp();
                    messages.extend(self.message(at, &message.subject, at_s, &message.headers, &message.payload)?);
                }
                Err(error) if is_the_end(&error) => break,
                Err(error) => return Err(FactError::Read { bucket: self.name(), source: error.into() }),
            }
        }
        Ok(messages)
    }

    async fn read_many(&self, stream: &Stream, behind: u64) -> Result<Vec<BucketMessage>, FactError> {
        let failed = |source| FactError::Read { bucket: self.name(), source };
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: behind + 1 },
            ack_policy: AckPolicy::None,
            replay_policy: ReplayPolicy::Instant,
            inactive_threshold: CONSUMER_REST,
            memory_storage: true,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| failed(error.into()))?;
        let (name, mut left) = (consumer.cached_info().name.clone(), consumer.cached_info().num_pending);
        let (mut messages, mut received) = (Vec::new(), 0);
        while left > 0 {
            let fetch = consumer.fetch().max_messages(FETCHED).messages();
            let mut fetched = fetch.await.map_err(|error| failed(error.into()))?;
            let before = received;
            while let Ok(Some(message)) = tokio::time::timeout(ANSWER_TIMEOUT, fetched.next()).await {
                let message = message.map_err(failed)?;
                let info = message.info().map_err(failed)?;
                received += 1;
                if info.consumer_sequence != received {
                    return Err(failed("a message on the way from JetStream was lost".into()));
                }
                let (sequence, at_s) = (info.stream_sequence, info.published.unix_timestamp());
                left = info.pending;
                let none = HeaderMap::new();
                let headers = message.headers.as_ref().unwrap_or(&none);
                messages.extend(self.message(sequence, &message.subject, at_s, headers, &message.payload)?);
            }
            if received == before {
                return Err(failed("no answer; check that a majority of its NATS servers is up".into()));
            }
        }
        // A consumer that could not be deleted expires by itself.
        let _ = stream.delete_consumer(&name).await;
        Ok(messages)
    }

    /// Decodes a message. `None` = its subject is not that of a fact.
    fn message(
        &self,
        sequence: u64,
        subject: &str,
        at_s: i64,
        headers: &HeaderMap,
        payload: &[u8],
    ) -> Result<Option<BucketMessage>, FactError> {
        let Some(key) = self.subjects.fact_key(subject) else { return Ok(None) };
        let change = if is_removal(headers) {
            FactChange::Remove(key)
        } else {
            let unreadable = |reason| FactError::Unreadable { bucket: self.name(), reason };
            FactChange::Put(Fact::decode(key, payload).map_err(unreadable)?)
        };
        let at_s = u64::try_from(at_s).unwrap_or_default();
        Ok(Some(BucketMessage { sequence, subject: subject.to_owned(), at_s, change }))
    }

    /// Deletes the messages of one subject up to a sequence.
    pub(crate) async fn purge(&self, stream: &Stream, subject: &str, sequence: u64) -> Result<(), FactError> {
        let purged = stream.purge().sequence(sequence + 1).filter(subject).await;
        purged.map(drop).map_err(|error| FactError::Read { bucket: self.name(), source: error.into() })
    }
}

fn payload_of(change: &FactChange) -> Bytes {
    match change {
        FactChange::Put(fact) => fact.encode().into(),
        FactChange::Remove(_) => Bytes::new(),
    }
}

fn is_removal(headers: &HeaderMap) -> bool {
    headers.get(OPERATION).is_some_and(|operation| REMOVALS.contains(&operation.as_str()))
}

fn is_the_end(error: &RawMessageError) -> bool {
    error.kind() == RawMessageErrorKind::NoMessageFound
}

fn is_switched_off(refusal: &jetstream::Error) -> bool {
    let codes = [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT];
    codes.contains(&refusal.error_code())
}

/// Whether no one answered a request to JetStream because there is no JetStream.
fn has_no_responders(error: &(dyn std::error::Error + 'static)) -> bool {
    let request = error.source().and_then(|source| source.downcast_ref::<RequestError>());
    request.is_some_and(|request| request.kind() == RequestErrorKind::NoResponders)
}
