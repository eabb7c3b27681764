//! What writers are told and what they tell, whichever database they write to.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use touchline_protocol::stream::{ChannelName, LoadId, Offset, Retention};

use crate::runs::{KnownRuns, Runs};
use crate::tfidf::Weights;
use crate::{
    Append, Description, EventSink, InboxMessage, PAYLOAD_HEAD_SIZE, Search, SearchResult, StoreEvent, StoreMetrics,
    StoredHistory,
};
use crate::{AppendedAt, OnAppended, OnDone, OnQueued, OnSearched, StoreRefusal};

/// What a writer is told.
pub(crate) enum WriteRequest {
    Append(Append),
    Remove {
        channel: ChannelName,
        done: OnDone,
    },
    /// A channel that was asked for and is not there: it is made, so that its epoch lasts.
    Make(HistoryLoad),
    Describe {
        description: Description,
        weights: Weights,
        done: OnDone,
    },
    Forget {
        channel: String,
        done: OnDone,
    },
    QueueMessage(InboxMessage, OnQueued),
    DiscardMessages {
        ids: Vec<u64>,
        done: OnDone,
    },
    /// Begins a new run, unless the current one is not this any more. Offsets of a channel from one on are not those of
    /// the runs before.
    BeginRun {
        channel: ChannelName,
        lost: u64,
        first: Offset,
    },
    Close,
}

/// What a reader is told.
pub(crate) enum ReadRequest {
    History(HistoryLoad),
    Find(Search, OnSearched),
    InboxMessages { scope: Arc<str>, name: Box<str>, behind: u64, limit: usize },
}

/// What a reader has read.
pub(crate) enum ReadResult {
    /// None: the channel has to be made.
    History(Option<StoredHistory>),
    Find(Result<Vec<SearchResult>, StoreRefusal>),
    InboxMessages(Vec<(u64, Bytes)>),
}

impl ReadRequest {
    /// It is not waited for any more, whatever comes of it.
    pub(crate) fn finish(self, figures: &StoreMetrics) -> Self {
        figures.reading.fetch_sub(1, Relaxed);
        self
    }

    /// Tells what was read. A channel that has to be made is given back.
    pub(crate) fn tell(self, answer: ReadResult, hand: &EventSink) -> Option<HistoryLoad> {
        match (self, answer) {
            (ReadRequest::History(load), ReadResult::History(None)) => return Some(load),
            (ReadRequest::History(HistoryLoad { channel, id: load, .. }), ReadResult::History(history)) => {
                hand(StoreEvent::Loaded { channel, load, history })
            }
            (ReadRequest::Find(_, done), ReadResult::Find(found)) => done(found),
            (ReadRequest::InboxMessages { scope, name, .. }, ReadResult::InboxMessages(letters)) => {
                hand(StoreEvent::InboxMessages { scope, name, letters: Some(letters) })
            }
            (read, _) => read.refuse(hand, StoreRefusal::Failed),
        }
        None
    }

    /// Tells that it can't be read.
    pub(crate) fn refuse(self, hand: &EventSink, refusal: StoreRefusal) {
        match self {
            ReadRequest::History(HistoryLoad { channel, id: load, .. }) => {
                hand(StoreEvent::Loaded { channel, load, history: None })
            }
            ReadRequest::Find(_, done) => done(Err(refusal)),
            ReadRequest::InboxMessages { scope, name, .. } => {
                hand(StoreEvent::InboxMessages { scope, name, letters: None })
            }
        }
    }
}

/// A channel whose history is asked for.
pub(crate) struct HistoryLoad {
    pub(crate) channel: ChannelName,
    /// The offset, and the number of the load.
    pub(crate) id: LoadId,
    pub(crate) size: usize,
    pub(crate) meta_ttl_ms: u64,
}

/// What a write came to within its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// A publication has its place; it is new, or its key or version was there before.
    Appended { offset: Offset, epoch: u64, run: u64, is_new: bool },
    /// A channel is there.
    Made { epoch: u64, top: Offset },
    /// A letter is kept under this id; none = there is no room for it.
    Queued(Option<u64>),
    /// There is nothing to say of it.
    Nothing,
    /// It is not written, and the others of its transaction are.
    Refused(StoreRefusal),
}

/// What is told once the transaction is on disk.
pub(crate) enum Done {
    Placed {
        placed: AppendedAt,
        is_new: bool,
        channel: ChannelName,
        payload: Bytes,
        done: OnAppended,
    },
    Made {
        channel: ChannelName,
        load: LoadId,
        history: Option<StoredHistory>,
    },
    /// A channel is there, and somebody has published in it meanwhile: it has to be read.
    Unread(HistoryLoad),
    Posted {
        letter: InboxMessage,
        id: Option<u64>,
        done: OnQueued,
    },
    Plain(OnDone),
    Refused(WriteRequest, StoreRefusal),
}

impl Done {
    /// What is to be told of a write.
    pub(crate) fn of(write: WriteRequest, outcome: WriteResult, known: &KnownRuns) -> Option<Self> {
        Some(match (write, outcome) {
            (write, WriteResult::Refused(refusal)) => Done::Refused(write, refusal),
            (
                WriteRequest::Append(Append { channel, payload, done, .. }),
                WriteResult::Appended { offset, epoch, run, is_new },
            ) => Done::Placed { placed: AppendedAt { offset, epoch, run }, is_new, channel, payload, done },
            (
                WriteRequest::Make(HistoryLoad { channel, id: load, .. }),
                WriteResult::Made { epoch, top: Offset::START },
            ) => {
                let runs = Runs { known: KnownRuns::clone(known), first: Vec::new() };
                Done::Made {
                    channel,
                    load,
                    history: Some(StoredHistory {
                        epoch,
                        top: Offset::START,
                        floor: Offset::START,
                        kept: Vec::new(),
                        runs,
                    }),
                }
            }
            (WriteRequest::Make(load), WriteResult::Made { .. }) => Done::Unread(load),
            (WriteRequest::QueueMessage(letter, done), WriteResult::Queued(id)) => Done::Posted { letter, id, done },
            (
                WriteRequest::Remove { done, .. }
                | WriteRequest::Describe { done, .. }
                | WriteRequest::Forget { done, .. }
                | WriteRequest::DiscardMessages { done, .. },
                _,
            ) => Done::Plain(done),
            _ => return None,
        })
    }

    /// Tells all that one commit came to.
    pub(crate) fn tell_all(dones: impl IntoIterator<Item = Done>, hand: &EventSink, figures: &StoreMetrics) {
        dones.into_iter().for_each(|done| done.tell(hand, figures));
        hand(StoreEvent::Settled);
    }

    fn tell(self, hand: &EventSink, figures: &StoreMetrics) {
        match self {
            Done::Placed { placed, is_new, channel, payload, done } => {
                if is_new {
                    figures.stored.fetch_add(1, Relaxed);
                    hand(StoreEvent::Stored { channel, placed, payload });
                }
                done(Ok(placed));
            }
            Done::Made { channel, load, history } => hand(StoreEvent::Loaded { channel, load, history }),
            Done::Unread(load) => hand(StoreEvent::Loaded { channel: load.channel, load: load.id, history: None }),
            Done::Posted { letter: InboxMessage { scope, name, .. }, id: Some(id), done } => {
                figures.inbox_messages.fetch_add(1, Relaxed);
                hand(StoreEvent::MessageQueued { scope, name });
                done(Ok(id));
            }
            Done::Posted { id: None, done, .. } => done(Err(StoreRefusal::InboxFull)),
            Done::Plain(done) => done(Ok(())),
            Done::Refused(write, refusal) => write.refuse(hand, refusal),
        }
    }
}

impl Append {
    /// What an application has put into the outbox: nobody waits to be told.
    pub(crate) fn posted(channel: &str, data: &str, key: &str, retention: Retention, time_ms: u64) -> Self {
        let mut payload = Vec::with_capacity(PAYLOAD_HEAD_SIZE + data.len());
        // As the engine begins the payload of a publication: format, kind, length of what follows before the object.
        payload.extend_from_slice(&[1, b'P', 8, 0]);
        payload.extend_from_slice(&time_ms.to_le_bytes());
        payload.extend_from_slice(data.as_bytes());
        Append {
            channel: channel.into(),
            payload: payload.into(),
            time_ms,
            key: key.into(),
            version: 0,
            version_epoch: Box::default(),
            retention,
            done: Box::new(|_| ()),
        }
    }
}

impl WriteRequest {
    /// Tells that there is no room for it, or nobody who writes it.
    pub(crate) fn turn_back(self, hand: &EventSink, figures: &StoreMetrics, refusal: StoreRefusal) {
        if matches!(self, WriteRequest::Append(_)) {
            figures.waiting.fetch_sub(1, Relaxed);
            figures.refused.fetch_add(1, Relaxed);
        }
        self.refuse(hand, refusal);
        hand(StoreEvent::Settled);
    }

    /// Tells that a commit failed.
    pub(crate) fn refuse_all(batch: &mut Vec<WriteRequest>, hand: &EventSink) {
        batch.drain(..).for_each(|write| write.refuse(hand, StoreRefusal::Failed));
        hand(StoreEvent::Settled);
    }

    /// Tells that it was not written.
    pub(crate) fn refuse(self, hand: &EventSink, refusal: StoreRefusal) {
        match self {
            WriteRequest::Append(append) => (append.done)(Err(refusal)),
            WriteRequest::QueueMessage(_, done) => done(Err(refusal)),
            WriteRequest::Remove { done, .. }
            | WriteRequest::Describe { done, .. }
            | WriteRequest::Forget { done, .. }
            | WriteRequest::DiscardMessages { done, .. } => {
                done(Err(refusal));
            }
            WriteRequest::Make(HistoryLoad { channel, id: load, .. }) => {
                hand(StoreEvent::Loaded { channel, load, history: None })
            }
            WriteRequest::BeginRun { .. } | WriteRequest::Close => {}
        }
    }
}

impl StoreMetrics {
    /// Counts a batch that was tried, whatever came of it.
    pub(crate) fn count(&self, batch: &[WriteRequest], took: Duration) {
        let appends = batch.iter().filter(|write| matches!(write, WriteRequest::Append(_))).count() as u64;
        self.waiting.fetch_sub(appends, Relaxed);
        self.commits.fetch_add(1, Relaxed);
        self.commit_us.fetch_add(took.as_micros() as u64, Relaxed);
    }

    /// The database has taken a write.
    pub(crate) fn succeed(&self) {
        if self.is_failing.swap(false, Relaxed) && self.is_healthy() {
            tracing::info!("the primary database works again");
        }
    }

    /// It is damaged. That some of it can still be written says nothing: only who restores it makes it whole.
    pub(crate) fn condemn(&self, error: &dyn Display) {
        if !self.is_damaged.swap(true, Relaxed) {
            tracing::error!(%error, "the primary database is damaged: restore it from a backup, then start the node again");
        }
    }

    /// It has not.
    pub(crate) fn fail(&self, error: &dyn Display) {
        self.failures.fetch_add(1, Relaxed);
        if !self.is_failing.swap(true, Relaxed) && !self.is_damaged.load(Relaxed) {
            tracing::error!(%error, "the primary database fails: durable publications are refused until it works again");
        }
    }
}

/// Unix time, milliseconds.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
