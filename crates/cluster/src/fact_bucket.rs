//! The bucket of shared facts: a key-value bucket of JetStream in the usual format (`nats kv`). It is created when the
//! first fact is written, so a cluster without facts does not need JetStream.
//!
//! A bucket is a stream that keeps the last message of each subject. A removal is a message too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind, RequestError, RequestErrorKind};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, ErrorCode};
use bytes::Bytes;
use touchline_protocol::fact::{Fact, FactChange, FactKey};

use crate::errors::FactError;
use crate::nats::{JetStream, NatsClient, NatsError, NatsStream};
use crate::settings::{JoinOptions, Storage};
use crate::subject::Subjects;
use crate::time::sleep;

/// The time limit for JetStream to answer one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a change that JetStream has not stored on a majority is sent again.
const AGAIN: Duration = Duration::from_millis(100);
/// The maximum number of times that a change is sent.
const TRIES: u32 = 20;
/// Up to this number, messages are read one by one; more are read by a consumer.
const FEW: u64 = 16;

/// The header that says what was done, and its values for a removal.
const OPERATION: &str = "KV-Operation";
const REMOVALS: [&str; 2] = ["DEL", "PURGE"];

/// The bucket of one cluster.
#[derive(Clone)]
pub(crate) struct FactBucket {
    jet_stream: JetStream,
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
    pub(crate) fn new(client: NatsClient, subjects: Subjects, settings: Arc<JoinOptions>) -> Self {
        let jet_stream = client.jet_stream(ANSWER_TIMEOUT);
        FactBucket { jet_stream, subjects, settings, is_made: Arc::default() }
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
    pub(crate) async fn look(&self) -> Result<Option<(NatsStream, BucketState)>, FactError> {
        match self.jet_stream.find(&self.stream_name()).await {
            Ok(None) => Ok(None),
            Ok(Some(stream)) => {
                let info = &stream.info;
                let state = BucketState { made_ns: info.created_ns, last: info.last, messages: info.messages };
                Ok(Some((stream, state)))
            }
            Err(error) => match error.kind() {
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
        match self.jet_stream.create(config).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
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
            let published = self.jet_stream.publish(subject.clone(), headers.clone(), payload.clone()).await;
            let acknowledged = match published {
                Ok(published) => published.wait().await,
                Err(error) => Err(error),
            };
            match acknowledged {
                // Without a sequence the change is not known to be on a majority of the replicas.
                Ok(acknowledged) if acknowledged.sequence > 0 => return Ok(Some(acknowledged.sequence)),
                Ok(_) => sleep(AGAIN).await,
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
        let last = stream.last(&self.subjects.fact(key)).await.map_err(|source| self.unread(source))?;
        Ok(last.is_some_and(|message| !is_removal(&message.headers)))
    }

    /// Reads the messages after a sequence in their order, at least up to the sequence of `seen`.
    ///
    /// # Errors
    /// The reason that NATS gave, or a message that cannot be decoded.
    pub(crate) async fn read(
        &self,
        stream: &NatsStream,
        seen: BucketState,
        behind: u64,
    ) -> Result<Vec<BucketMessage>, FactError> {
        if seen.last.saturating_sub(behind) > FEW {
            let found = stream.after(behind).await.map_err(|source| self.unread(source))?;
            return found.iter().filter_map(|message| self.message(message).transpose()).collect();
        }
        let mut messages: Vec<BucketMessage> = Vec::new();
        let mut at = behind;
        while at < seen.last {
            let found = stream.first(&self.subject(), at + 1).await.map_err(|source| self.unread(source))?;
            let Some(message) = found else { break };
            at = message.sequence;
            messages.extend(self.message(&message)?);
        }
        Ok(messages)
    }

    fn unread(&self, source: NatsError) -> FactError {
        FactError::Read { bucket: self.name(), source }
    }

    /// Decodes a message. `None` = its subject is not that of a fact.
    fn message(&self, message: &StreamMessage) -> Result<Option<BucketMessage>, FactError> {
        let StreamMessage { subject, sequence, headers, payload, time } = message;
        let Some(key) = self.subjects.fact_key(subject) else { return Ok(None) };
        let change = if is_removal(headers) {
            FactChange::Remove(key)
        } else {
            let unreadable = |reason| FactError::Unreadable { bucket: self.name(), reason };
            FactChange::Put(Fact::decode(key, payload).map_err(unreadable)?)
        };
        let at_s = u64::try_from(time.unix_timestamp()).unwrap_or_default();
        Ok(Some(BucketMessage { sequence: *sequence, subject: subject.to_string(), at_s, change }))
    }

    /// Deletes the messages of one subject up to a sequence.
    pub(crate) async fn purge(&self, stream: &NatsStream, subject: &str, sequence: u64) -> Result<(), FactError> {
        stream.purge(subject, sequence + 1).await.map_err(|source| self.unread(source))
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

fn is_switched_off(refusal: &jetstream::Error) -> bool {
    let codes = [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT];
    codes.contains(&refusal.error_code())
}

/// Whether no one answered a request to JetStream because there is no JetStream.
fn has_no_responders(error: &(dyn std::error::Error + 'static)) -> bool {
    let request = error.source().and_then(|source| source.downcast_ref::<RequestError>());
    request.is_some_and(|request| request.kind() == RequestErrorKind::NoResponders)
}
