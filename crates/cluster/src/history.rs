//! Channels with history: one JetStream stream for each namespace, which republishes what it has stored.
//!
//! The epoch of a stream identifies one life of it, and is a token of its subjects. So no request can reach another
//! life of the stream than the intended one. After a stream is deleted and created again, no stream answers to the old
//! subjects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::publish::PublishAck;
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use touchline_protocol::stream::{Offset, RunId, StreamPosition};

use crate::errors::StreamError;
use crate::incarnation::StreamIncarnation;
use crate::marks::Marks;
use crate::nats::{JetStream, NatsClient, NatsError, NatsStream};
use crate::reading::{ReadRecords, ReadStep, StreamRead, StreamReadResult, StreamReader};
use crate::settings::JoinOptions;
use crate::storing::{self, AppendVerdict};
use crate::stream::{self, StreamDescription};
use crate::subject::Subjects;
use crate::time::{now, sleep, timeout};
use crate::types::{StoredPublication, StreamLoad};

/// How long a publisher waits for JetStream.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many publications wait for the connection at a time, before their acknowledgements.
const SENDING_AT_A_TIME: usize = 32;
/// The pause before a publication is sent again if JetStream has not stored the first one yet.
const STORE_PAUSE: Duration = Duration::from_millis(100);
// A publication can be sent again several times before its publisher gives up.
const _: () = assert!(10 * STORE_PAUSE.as_millis() <= STORE_TIMEOUT.as_millis());
/// How many times the removal of a history is tried while the channel is published to.
const REMOVAL_TRIES: usize = 10;

/// The timeout after which a read is repeated, and the number of tries. A request in transit when a connection breaks
/// is lost without any report.
const READ_TIMEOUT: Duration = Duration::from_millis(1_500);
const READ_TRIES: usize = 3;
// A lost read ends before a publisher that waits for it gives up.
const _: () = assert!(READ_TRIES as u128 * READ_TIMEOUT.as_millis() < STORE_TIMEOUT.as_millis());

/// The pause before a replica that lags behind the leader is asked again.
const LAG_PAUSE: Duration = Duration::from_millis(50);

/// The observed state of a stream.
pub(crate) struct StreamState {
    /// The last sequence of the stream.
    pub(crate) last: u64,
    /// The NATS server that leads the stream. `None` = there is only one server.
    pub(crate) leader: Option<String>,
}

/// The result of an inspection of a stream.
pub(crate) enum StreamCheck {
    /// The stream is present and unchanged.
    Present(StreamState),
    /// The stream must be opened again: it is gone, was replaced, is in another run, or was set back.
    Changed,
    /// The state of the stream cannot be read now.
    Unknown,
}

/// The open streams of a cluster.
#[derive(Clone)]
pub(crate) struct Streams {
    jet_stream: JetStream,
    subjects: Subjects,
    open: Arc<BTreeMap<String, (NatsStream, StreamDescription)>>,
    marks: Arc<Marks>,
    /// Lets few publications wait for the connection at a time, so that the writer's hellos do not wait behind many.
    sending: Arc<Semaphore>,
}

impl Streams {
    /// Creates missing streams. The first time, it also changes streams that differ from the configuration. A stream
    /// that lacks its mark begins a new run. `known` contains the marks from before any stream could have been lost.
    /// Returns the streams that could be opened, and why another one could not.
    pub(crate) async fn open(
        client: NatsClient,
        settings: Arc<JoinOptions>,
        subjects: Subjects,
        (marks, known, is_first): (Arc<Marks>, &Marks, bool),
    ) -> (Self, Option<StreamError>) {
        let jet_stream = client.jet_stream(STORE_TIMEOUT);
        let (mut open, mut failed) = (BTreeMap::new(), None);
        // One stream without a leader delays or refuses no other.
        let opening = settings.streams.iter().map(|of_namespace| async {
            let mut opened = stream::open(&jet_stream, &settings, &subjects, of_namespace, is_first).await?;
            if stream::was_set_back(&jet_stream, &opened, known).await? {
                stream::begin_run(&jet_stream, &subjects, &of_namespace.namespace, &opened).await?;
                opened = stream::open(&jet_stream, &settings, &subjects, of_namespace, is_first).await?;
            }
            Ok((of_namespace.namespace.clone(), opened))
        });
        for opened in join_all(opening).await {
            match opened {
                Ok((namespace, opened)) => {
                    marks.begin(opened.1.life);
                    open.insert(namespace, opened);
                }
                Err(error) => failed = Some(error),
            }
        }
        if failed.is_none() {
            marks.keep(&open.values().map(|(_, known)| known.life).collect::<Vec<_>>());
        }
        let sending = Arc::new(Semaphore::new(SENDING_AT_A_TIME));
        (Streams { jet_stream, subjects, open: Arc::new(open), marks, sending }, failed)
    }

    /// The namespaces with history.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.open.keys().map(String::as_str)
    }

    /// Adds the streams that only an earlier attempt could open.
    pub(crate) fn or_earlier(mut self, earlier: Option<&Streams>) -> Self {
        if let Some(earlier) = earlier {
            self.open = Arc::new(
                earlier.open.iter().chain(&*self.open).map(|(name, open)| (name.clone(), open.clone())).collect(),
            );
        }
        self
    }

    /// Whether the stream of a namespace is open.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        self.open.contains_key(namespace)
    }

    /// The lives of the streams.
    pub(crate) fn lives(&self) -> impl Iterator<Item = StreamIncarnation> {
        self.open.values().map(|(_, known)| known.life)
    }

    /// Inspects the stream of a namespace.
    pub(crate) async fn inspect(&self, namespace: &str) -> StreamCheck {
        let Some((stream, known)) = self.open.get(namespace) else { return StreamCheck::Unknown };
        // The mark is read before the stream's state: publications that arrive in between prove nothing.
        let mark = self.marks.of(known.life);
        let Some(Ok(now)) = with_retries(|| self.jet_stream.find(stream.name())).await else {
            return StreamCheck::Unknown;
        };
        match now.map(|now| now.info) {
            Some(info) if mark.is_some_and(|mark| mark.is_lost_at(info.last)) => StreamCheck::Changed,
            Some(info)
                if stream::Snapshot::of(&self.subjects, namespace, &info)
                    .is_some_and(|snapshot| snapshot.life == known.life) =>
            {
                let leader = info.cluster.and_then(|cluster| cluster.leader);
                StreamCheck::Present(StreamState { last: info.last, leader })
            }
            Some(_) | None => StreamCheck::Changed,
        }
    }

    /// Stores a publication. Returns its position once JetStream has certainly stored it.
    ///
    /// # Errors
    /// Why it is not stored, or not known to be stored.
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
            // The same key in another channel identifies another publication.
            headers.insert("Nats-Msg-Id", format!("{}/{id}", crate::subject::token(channel)).as_str());
        }
        let until = now() + STORE_TIMEOUT;
        loop {
            let acknowledged = self.publish(&subject, headers.clone(), payload.clone()).await;
            // A publication that was stored earlier may have had other content.
            let is_new = acknowledged.as_ref().is_ok_and(|acknowledged| !acknowledged.duplicate);
            let sequence = acknowledged.as_ref().ok().map(|acknowledged| acknowledged.sequence);
            match storing::verdict(sequence, !id.is_empty()) {
                AppendVerdict::Stored(sequence) => {
                    if is_new {
                        self.marks.note(life.epoch, sequence, &payload);
                    }
                    return Ok(StreamPosition { offset: Offset(sequence), epoch: life.epoch() });
                }
                AppendVerdict::SendAgain if now() + STORE_PAUSE < until => sleep(STORE_PAUSE).await,
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
        let acknowledged = async {
            // A closed semaphore would be an error; this one is never closed.
            let turn = self.sending.acquire().await;
            let sent = self.jet_stream.publish(subject.to_owned(), headers, payload).await;
            drop(turn);
            sent?.wait().await
        };
        // The client limits only the wait for the acknowledgement, and not the wait until it can send.
        let in_time = timeout(STORE_TIMEOUT, acknowledged).await;
        in_time.unwrap_or_else(|_| Err(PublishErrorKind::TimedOut.into()))
    }

    fn life(&self, namespace: &str) -> Option<StreamIncarnation> {
        self.open.get(namespace).map(|(_, known)| known.life)
    }

    /// Begins a new run of a stream that lost something in the run `lost`. Returns whether a run other than the known
    /// one has begun now.
    pub(crate) async fn begin_run(&self, namespace: &str, lost: RunId) -> bool {
        let Some(open) = self.open.get(namespace).filter(|(_, known)| known.life.run == lost) else { return false };
        match stream::begin_run(&self.jet_stream, &self.subjects, namespace, open).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, namespace, "a new run cannot be started");
                false
            }
        }
    }

    /// Whether `other` has the same streams, each in the same life.
    pub(crate) fn are(&self, other: &Streams) -> bool {
        self.open.len() == other.open.len()
            && self.open.iter().all(|(namespace, (_, known))| other.life(namespace) == Some(known.life))
    }

    /// Reads the stored publications of a channel after an offset.
    ///
    /// # Errors
    /// Why they cannot be read now.
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
                    sleep(LAG_PAUSE).await;
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

    /// A snapshot of a namespace's stream. `None` = it is in another life, or cannot be read.
    pub(crate) async fn snapshot(&self, namespace: &str) -> Option<stream::Snapshot> {
        let (stream, known) = self.open.get(namespace)?;
        let info = with_retries(|| stream.read_info()).await?.ok()?;
        let snapshot = stream::Snapshot::of(&self.subjects, namespace, &info)?;
        (snapshot.life == known.life).then_some(snapshot)
    }

    /// Removes the history of a channel. A marker is stored after it in the channel's order, then everything before the
    /// marker is deleted. `marker` makes the payload from the last offset that is removed.
    ///
    /// # Errors
    /// Why the history, or a part of it, still exists.
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
            // This ensures that nothing is published between the last removed publication and the marker.
            headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, last.to_string().as_str());
            match self.publish(&subject, headers, marker(Offset(last)).into()).await {
                Ok(PublishAck { sequence: sequence @ 1.., .. }) => {
                    let purged = stream.purge(&subject, sequence).await;
                    return purged.map_err(|source| StreamError::Purge { stream: name(), source });
                }
                Ok(_) => return Err(StreamError::Unconfirmed { stream: name() }),
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {}
                Err(source) => return Err(StreamError::Append { stream: name(), source }),
            }
        }
        Err(StreamError::Busy { stream: name() })
    }
}

/// Repeats a request until any reply arrives. `None` = no reply arrived.
async fn with_retries<A: Future>(request: impl Fn() -> A) -> Option<A::Output> {
    for _ in 0..READ_TRIES {
        if let Ok(result) = timeout(READ_TIMEOUT, request()).await {
            return Some(result);
        }
    }
    None
}

/// Sends a read to NATS.
async fn request(stream: &NatsStream, subject: &str, read: StreamRead) -> Result<StreamReadResult, StreamError> {
    let name = || stream.name().to_owned();
    let read = match read {
        StreamRead::Next(sequence) => with_retries(|| stream.next(subject, sequence)).await.map(|found| {
            let stored = |offset, payload| StoredPublication { offset: Offset(offset), payload };
            let publication = |message: StreamMessage| stored(message.sequence, message.payload);
            found.map(|found| found.map(|message| StreamReadResult::Publication(publication(message))))
        }),
        StreamRead::Last => with_retries(|| stream.last(subject)).await.map(sequence_of),
        // The channel's publications are counted after the stream's state is taken.
        StreamRead::End => {
            let end = with_retries(|| stream.end_without(subject)).await;
            end.map(|end| end.map(|end| end.map(StreamReadResult::Sequence)))
        }
        StreamRead::First(sequence) => with_retries(|| stream.first(subject, sequence)).await.map(sequence_of),
    };
    match read {
        None => Err(StreamError::NoAnswer { stream: name() }),
        Some(Ok(found)) => Ok(found.unwrap_or(StreamReadResult::Nothing)),
        Some(Err(source)) => Err(StreamError::Read { stream: name(), source }),
    }
}

fn sequence_of(found: Result<Option<StreamMessage>, NatsError>) -> Result<Option<StreamReadResult>, NatsError> {
    found.map(|found| found.map(|message| StreamReadResult::Sequence(message.sequence)))
}
