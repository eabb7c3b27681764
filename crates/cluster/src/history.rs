//! Channels with history: one JetStream stream for each namespace, which republishes what it has stored.
//!
//! A stream's epoch, one life of it, is a token of its subjects. So nothing can be stored in, read from or acknowledged
//! by another life of the stream than the one that was meant: after a stream is deleted and made anew, nobody answers
//! to the old subjects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::context::{GetStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::{DirectGetErrorKind, LastRawMessageErrorKind, RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use futures_util::StreamExt;
use touchline_protocol::stream::{Offset, RunId, StreamPosition};

use crate::errors::StreamError;
use crate::incarnation::StreamIncarnation;
use crate::marks::Marks;
use crate::reading::{ReadRecords, ReadStep, StreamRead, StreamReadResult, StreamReader};
use crate::settings::JoinOptions;
use crate::storing::{self, AppendVerdict};
use crate::stream::{self, StreamDescription};
use crate::subject::Subjects;
use crate::types::{StoredPublication, StreamLoad};

/// How long a publisher waits for JetStream.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Before a publication is sent again whose first sending JetStream has not stored yet.
const STORE_PAUSE: Duration = Duration::from_millis(100);
// A publication can be sent again several times before its publisher gives up.
const _: () = assert!(10 * STORE_PAUSE.as_millis() <= STORE_TIMEOUT.as_millis());
/// How often a removal of a history is tried while the channel is published to.
const REMOVAL_TRIES: usize = 10;

/// After how long a read is asked again, and how often: what was on its way when a link broke is lost, and nobody says
/// so.
const READ_TIMEOUT: Duration = Duration::from_millis(1_500);
const READ_TRIES: usize = 3;
// A read that is lost ends before a publisher that waits for it gives up.
const _: () = assert!(READ_TRIES as u128 * READ_TIMEOUT.as_millis() < STORE_TIMEOUT.as_millis());

/// The pause before a replica is asked again that lags behind the leader.
const LAG_PAUSE: Duration = Duration::from_millis(50);

/// What is seen of a stream.
pub(crate) struct StreamState {
    /// Its last sequence.
    pub(crate) last: u64,
    /// The NATS server that leads it, if there are several.
    pub(crate) leader: Option<String>,
}

/// The result of an inspection of a stream.
pub(crate) enum StreamCheck {
    /// It is there.
    Present(StreamState),
    /// It is gone, another has its name, it is in another run, or was set back: it has to be opened anew.
    Changed,
    /// The state of the stream cannot be read now.
    Unknown,
}

/// The streams of a cluster.
#[derive(Clone)]
pub(crate) struct Streams {
    context: Context,
    subjects: Subjects,
    open: Arc<HashMap<String, (Stream, StreamDescription)>>,
    marks: Arc<Marks>,
}

impl Streams {
    /// Makes the streams that are missing, and the first time adapts those that differ from what is configured. One
    /// that lacks its mark begins a new run. `known`: the marks as they were before any stream could have been
    /// lost.
    ///
    /// # Errors
    /// NATS's reason.
    pub(crate) async fn open(
        client: async_nats::Client,
        settings: Arc<JoinOptions>,
        subjects: Subjects,
        (marks, known, is_first): (Arc<Marks>, &Marks, bool),
    ) -> Result<Self, StreamError> {
        let mut context = jetstream::new(client);
        context.set_timeout(STORE_TIMEOUT);
        let mut open = HashMap::new();
        for of_namespace in &settings.streams {
            let mut opened = stream::open(&context, &settings, &subjects, of_namespace, is_first).await?;
            if stream::was_set_back(&context, &opened, known).await? {
                stream::begin_run(&context, &subjects, &of_namespace.namespace, &opened).await?;
                opened = stream::open(&context, &settings, &subjects, of_namespace, is_first).await?;
            }
            marks.begin(opened.1.life);
            open.insert(of_namespace.namespace.clone(), opened);
        }
        marks.keep(&open.values().map(|(_, known)| known.life).collect::<Vec<_>>());
        Ok(Streams { context, subjects, open: Arc::new(open), marks })
    }

    /// Namespaces with history.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.open.keys().map(String::as_str)
    }

    /// Inspects a namespace's stream.
    pub(crate) async fn inspect(&self, namespace: &str) -> StreamCheck {
        let Some((stream, known)) = self.open.get(namespace) else { return StreamCheck::Unknown };
        // Before the stream is asked: what comes meanwhile says nothing.
        let mark = self.marks.of(known.life);
        let now = with_retries(|| self.context.get_stream(&stream.cached_info().config.name)).await;
        match now.as_ref().map(|now| now.as_ref().map(Stream::cached_info)) {
            Some(Ok(info)) if mark.is_some_and(|mark| mark.is_lost_at(info.state.last_sequence)) => {
                StreamCheck::Changed
            }
            Some(Ok(info))
                if stream::Snapshot::of(&self.subjects, namespace, info)
                    .is_some_and(|snapshot| snapshot.life == known.life) =>
            {
                let leader = info.cluster.as_ref().and_then(|cluster| cluster.leader.clone());
                StreamCheck::Present(StreamState { last: info.state.last_sequence, leader })
            }
            Some(Ok(_)) => StreamCheck::Changed,
            Some(Err(error)) => match error.kind() {
                GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    StreamCheck::Changed
                }
                _ => StreamCheck::Unknown,
            },
            None => StreamCheck::Unknown,
        }
    }

    /// Stores a publication; the answer is its position, if JetStream has it for certain.
    ///
    /// # Errors
    /// Why it is not stored, or not known to be.
    pub(crate) async fn store(
        &self,
        channel: &str,
        namespace: &str,
        payload: Bytes,
        id: &str,
    ) -> Result<StreamPosition, StreamError> {
        let life = self.life(namespace).ok_or(StreamError::NotOpen)?;
        let subject = self.subjects.stored(namespace, life.epoch, channel);
        let mut headers = HeaderMap::new();
        if !id.is_empty() {
            // One key means another publication in another channel.
            headers.insert("Nats-Msg-Id", format!("{}/{id}", crate::subject::token(channel)).as_str());
        }
        let until = Instant::now() + STORE_TIMEOUT;
        loop {
            let acknowledged = self.publish(&subject, headers.clone(), payload.clone()).await;
            // What was stored before may not have been the same.
            let is_new = acknowledged.as_ref().is_ok_and(|acknowledged| !acknowledged.duplicate);
            let sequence = acknowledged.as_ref().ok().map(|acknowledged| acknowledged.sequence);
            match storing::verdict(sequence, !id.is_empty()) {
                AppendVerdict::Stored(sequence) => {
                    if is_new {
                        self.marks.note(life.epoch, sequence, &payload);
                    }
                    return Ok(StreamPosition { offset: Offset(sequence), epoch: life.epoch() });
                }
                AppendVerdict::SendAgain if Instant::now() + STORE_PAUSE < until => {
                    tokio::time::sleep(STORE_PAUSE).await
                }
                AppendVerdict::SendAgain | AppendVerdict::Unknown => {
                    let stream = self.subjects.stream(namespace);
                    return Err(match acknowledged {
                        Ok(_) => StreamError::Unconfirmed { stream },
                        Err(source) => StreamError::Append { stream, source },
                    });
                }
            }
        }
    }

    /// Sends a publication and waits for its acknowledgement.
    async fn publish(&self, subject: &str, headers: HeaderMap, payload: Bytes) -> Result<PublishAck, PublishError> {
        self.context.publish_with_headers(subject.to_owned(), headers, payload).await?.await
    }

    fn life(&self, namespace: &str) -> Option<StreamIncarnation> {
        self.open.get(namespace).map(|(_, known)| known.life)
    }

    /// Begins a new run of a stream in whose run `lost` something is lost; whether another than the known one has begun
    /// now.
    pub(crate) async fn begin_run(&self, namespace: &str, lost: RunId) -> bool {
        let Some(open) = self.open.get(namespace).filter(|(_, known)| known.life.run == lost) else { return false };
        match stream::begin_run(&self.context, &self.subjects, namespace, open).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, namespace, "a new run can't be begun");
                false
            }
        }
    }

    /// Whether the other's streams are the same, each in the same life.
    pub(crate) fn are(&self, other: &Streams) -> bool {
        self.open.len() == other.open.len()
            && self.open.iter().all(|(namespace, (_, known))| other.life(namespace) == Some(known.life))
    }

    /// Reads what is kept of a channel behind an offset.
    ///
    /// # Errors
    /// Why it can't be had now.
    pub(crate) async fn read(
        &self,
        StreamLoad { channel, namespace, id: load, .. }: &StreamLoad,
    ) -> Result<ReadRecords, StreamError> {
        let (stream, known) = self.open.get(&**namespace).ok_or(StreamError::NotOpen)?;
        let subject = self.subjects.stored(namespace, known.life.epoch, channel);
        let mut reading = StreamReader::new(load.behind.0);
        let mut next = ReadStep::Request(reading.begin());
        loop {
            let next_read = match next {
                ReadStep::Request(read) => read,
                ReadStep::RequestLater(read) => {
                    tokio::time::sleep(LAG_PAUSE).await;
                    read
                }
                ReadStep::Done(kept) => {
                    match kept.publications.last() {
                        Some(last) => self.marks.note(known.life.epoch, last.offset.0, &last.payload),
                        None if kept.has_nothing() => self.marks.note_end(known.life.epoch, kept.last),
                        None => {}
                    }
                    return Ok(kept);
                }
                ReadStep::Failed => {
                    return Err(StreamError::Unstable { stream: self.subjects.stream(namespace) });
                }
            };
            let result = request(stream, &subject, next_read).await?;
            next = reading.take(next_read, result);
        }
    }

    /// What is seen of a namespace's stream, if it is in the same life still.
    pub(crate) async fn snapshot(&self, namespace: &str) -> Option<stream::Snapshot> {
        let (stream, known) = self.open.get(namespace)?;
        let info = with_retries(|| stream.get_info()).await?.ok()?;
        let snapshot = stream::Snapshot::of(&self.subjects, namespace, &info)?;
        (snapshot.life == known.life).then_some(snapshot)
    }

    /// Removes what is kept of a channel: what says so is stored behind it, in the channel's order, then what is before
    /// that goes. `marker` makes the payload out of the last offset that is removed.
    ///
    /// # Errors
    /// Why the history is there still, or a part of it.
    pub(crate) async fn purge(
        &self,
        channel: &str,
        namespace: &str,
        marker: fn(Offset) -> Vec<u8>,
    ) -> Result<(), StreamError> {
        let (stream, known) = self.open.get(namespace).ok_or(StreamError::NotOpen)?;
        let name = || self.subjects.stream(namespace);
        let subject = self.subjects.stored(namespace, known.life.epoch, channel);
        for _ in 0..REMOVAL_TRIES {
            let StreamReadResult::Sequence(last) = request(stream, &subject, StreamRead::Last).await? else {
                return Ok(());
            };
            let mut headers = HeaderMap::new();
            // So nothing is published between what is said to be removed and this.
            headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, last.to_string().as_str());
            match self.publish(&subject, headers, marker(Offset(last)).into()).await {
                Ok(PublishAck { sequence: sequence @ 1.., .. }) => {
                    let purged = stream.purge().sequence(sequence).filter(subject).await;
                    return purged.map(drop).map_err(|source| StreamError::Purge { stream: name(), source });
                }
                Ok(_) => return Err(StreamError::Unconfirmed { stream: name() }),
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {}
                Err(source) => return Err(StreamError::Append { stream: name(), source }),
            }
        }
        Err(StreamError::Busy { stream: name() })
    }
}

/// Repeats a request until there is a reply of any kind; none = no reply came.
async fn with_retries<A: Future>(request: impl Fn() -> A) -> Option<A::Output> {
    for _ in 0..READ_TRIES {
        if let Ok(result) = tokio::time::timeout(READ_TIMEOUT, request()).await {
            return Some(result);
        }
    }
    None
}

/// Sends a read to NATS.
async fn request(stream: &Stream, subject: &str, read: StreamRead) -> Result<StreamReadResult, StreamError> {
    let name = || stream.cached_info().config.name.clone();
    let no_answer = || StreamError::NoAnswer { stream: name() };
    match read {
        // Any replica answers.
        StreamRead::Next(sequence) => {
            let found = with_retries(|| stream.direct_get_next_for_subject(subject, Some(sequence))).await;
            match found.ok_or_else(no_answer)? {
                Ok(message) => Ok(StreamReadResult::Publication(StoredPublication {
                    offset: Offset(message.sequence),
                    payload: message.payload,
                })),
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(StreamReadResult::Nothing),
                Err(error) => Err(StreamError::Read { stream: name(), source: error.into() }),
            }
        }
        // The leader answers.
        StreamRead::Last => {
            let found = with_retries(|| stream.get_last_raw_message_by_subject(subject)).await;
            match found.ok_or_else(no_answer)? {
                Ok(message) => Ok(StreamReadResult::Sequence(message.sequence)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(StreamReadResult::Nothing),
                Err(error) => Err(StreamError::Read { stream: name(), source: error.into() }),
            }
        }
        // What it has of the channel is counted after its state is taken.
        StreamRead::End => match with_retries(|| stream.info_with_subjects(subject)).await.ok_or_else(no_answer)? {
            Ok(mut subjects) => match subjects.next().await {
                None => Ok(StreamReadResult::Sequence(subjects.info.state.last_sequence)),
                Some(Ok(_)) => Ok(StreamReadResult::Nothing),
                Some(Err(error)) => Err(StreamError::Read { stream: name(), source: error.into() }),
            },
            Err(error) => Err(StreamError::Read { stream: name(), source: error.into() }),
        },
        StreamRead::First(sequence) => {
            let found = with_retries(|| stream.get_first_raw_message_by_subject(subject, sequence)).await;
            match found.ok_or_else(no_answer)? {
                Ok(message) => Ok(StreamReadResult::Sequence(message.sequence)),
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(StreamReadResult::Nothing),
                Err(error) => Err(StreamError::Read { stream: name(), source: error.into() }),
            }
        }
    }
}
