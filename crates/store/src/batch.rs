//! The requests to the writers and readers of both databases, and how their results are reported.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use touchline_protocol::fact::{Fact, FactChange, FactsEvent};
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset, RunId, Runs, StreamPosition};

use crate::description::{ChannelDescription, OnSearched, Search, SearchResult};
use crate::events::{EventSink, StoreEvent};
use crate::facts::{FactListing, OnFacts};
use crate::inbox::{
    DroppedMessages, InboxDrop, InboxListing, InboxMessage, InboxNames, InboxPage, InboxSearch, OnDropped,
    OnInboxNames, OnInboxPage, OnQueued,
};
use crate::metrics::StoreMetrics;
use crate::publication::{Append, OnAppended, StoredHistory};
use crate::reactions::{OnReactions, ReactionPlace, ReactionRow};
use crate::refusal::StoreRefusal;
use crate::row_appends::RowAppends;
use crate::runs::KnownRuns;
use crate::seen::{OnSeen, OnSeenForgotten, SeenForgotten, SeenUser};
use crate::tfidf::Weights;

/// A callback for a write whose only result is success or refusal.
pub type OnDone = Box<dyn FnOnce(Result<(), StoreRefusal>) + Send>;

/// A request to a writer.
pub(crate) enum WriteRequest {
    Append(Append),
    Remove {
        channel: ChannelName,
        done: OnDone,
    },
    /// Creates the row of a channel that was loaded and does not exist, so that its epoch is kept.
    Make(HistoryLoad),
    Describe {
        description: ChannelDescription,
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
    DropMessages(InboxDrop, OnDropped),
    ChangeFact {
        change: FactChange,
        done: OnDone,
    },
    /// Appends publications and deletes each one's row in an outbox, all in one separate transaction.
    AppendRows(RowAppends),
    /// Records when users were connected. Each user occurs once.
    NoteSeen {
        rows: Vec<SeenUser>,
        done: OnDone,
    },
    /// Deletes the record of when a user was last connected.
    ForgetSeen {
        user: Box<str>,
        done: OnSeenForgotten,
    },
    /// Writes totals of reactions.
    KeepReactions {
        rows: Vec<ReactionRow>,
        done: OnDone,
    },
    /// Begins a new run if `lost` is still the current one. The new run assigns the channel's offsets from `first` on.
    BeginRun {
        channel: ChannelName,
        lost: RunId,
        first: Offset,
    },
    Close,
}

/// A request to a reader.
pub(crate) enum ReadRequest {
    History(HistoryLoad),
    Search(Search, OnSearched),
    InboxMessages {
        scope: Arc<str>,
        name: Box<str>,
        behind: u64,
        limit: usize,
    },
    /// Reads when these users were last connected, if that was after a given time, Unix seconds.
    Seen {
        users: Vec<Box<str>>,
        after_s: u64,
        done: OnSeen,
    },
    /// Reads totals of reactions after a given place.
    Reactions {
        after: ReactionPlace,
        limit: usize,
        done: OnReactions,
    },
    /// Reads names that have messages.
    InboxNames(InboxSearch, OnInboxNames),
    /// Reads the messages of a name.
    InboxPage(InboxListing, OnInboxPage),
    /// Reads shared facts.
    Facts(FactListing, OnFacts),
}

/// The result of a [`ReadRequest`].
pub(crate) enum ReadResult {
    /// The history. `None` = the channel does not exist and must be created.
    History(Option<StoredHistory>),
    Search(Result<Vec<SearchResult>, StoreRefusal>),
    InboxMessages(Vec<(u64, Bytes)>),
    Seen(Vec<SeenUser>),
    Reactions(Vec<ReactionRow>),
    InboxNames(InboxNames),
    InboxPage(InboxPage),
    Facts(Vec<Fact>),
}

impl ReadRequest {
    /// Counts the request as finished, whatever its result.
    pub(crate) fn finish(self, metrics: &StoreMetrics) -> Self {
        metrics.reading.fetch_sub(1, Relaxed);
        self
    }

    /// Reports the result. Returns the load if its channel must be created.
    pub(crate) fn tell(self, result: ReadResult, events: &EventSink) -> Option<HistoryLoad> {
        match (self, result) {
            (ReadRequest::History(load), ReadResult::History(None)) => return Some(load),
            (ReadRequest::History(HistoryLoad { channel, id: load, .. }), ReadResult::History(history)) => {
                events(StoreEvent::Loaded { channel, load, history })
            }
            (ReadRequest::Search(_, done), ReadResult::Search(results)) => done(results),
            (ReadRequest::InboxMessages { scope, name, .. }, ReadResult::InboxMessages(messages)) => {
                events(StoreEvent::InboxMessages { scope, name, messages: Some(messages) })
            }
            (ReadRequest::Seen { done, .. }, ReadResult::Seen(seen)) => done(Ok(seen)),
            (ReadRequest::Reactions { done, .. }, ReadResult::Reactions(rows)) => done(Ok(rows)),
            (ReadRequest::InboxNames(_, done), ReadResult::InboxNames(names)) => done(Ok(names)),
            (ReadRequest::InboxPage(_, done), ReadResult::InboxPage(page)) => done(Ok(page)),
            (ReadRequest::Facts(_, done), ReadResult::Facts(facts)) => done(Ok(facts)),
            (read, _) => read.refuse(events, StoreRefusal::Failed),
        }
        None
    }

    /// Reports that the read failed.
    pub(crate) fn refuse(self, events: &EventSink, refusal: StoreRefusal) {
        match self {
            ReadRequest::History(HistoryLoad { channel, id: load, .. }) => {
                events(StoreEvent::Loaded { channel, load, history: None })
            }
            ReadRequest::Search(_, done) => done(Err(refusal)),
            ReadRequest::InboxMessages { scope, name, .. } => {
                events(StoreEvent::InboxMessages { scope, name, messages: None })
            }
            ReadRequest::Seen { done, .. } => done(Err(refusal)),
            ReadRequest::Reactions { done, .. } => done(Err(refusal)),
            ReadRequest::InboxNames(_, done) => done(Err(refusal)),
            ReadRequest::InboxPage(_, done) => done(Err(refusal)),
            ReadRequest::Facts(_, done) => done(Err(refusal)),
        }
    }
}

/// A request for the history of a channel.
pub(crate) struct HistoryLoad {
    pub(crate) channel: ChannelName,
    /// The offset after which the history is read, and the number of the load.
    pub(crate) id: LoadId,
    pub(crate) size: usize,
    pub(crate) meta_ttl_ms: u64,
}

/// The result of a write within its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// A publication has its position. `is_new` is false if its key or its version was stored before.
    Appended { position: StreamPosition, is_new: bool },
    /// A channel exists.
    Made { epoch: u64, top: Offset },
    /// The id of the inbox message that was written. `None` = the inbox is full.
    Queued(Option<u64>),
    /// Messages of an inbox were deleted.
    Dropped(DroppedMessages),
    /// The record of when a user was last connected was deleted.
    SeenForgotten(SeenForgotten),
    /// A fact has changed; this is its revision.
    FactChanged(u64),
    /// The write has no result to report.
    Nothing,
    /// The item was not written, but the other items of its transaction were.
    Refused(StoreRefusal),
}

/// A result that is reported once the transaction is on disk.
pub(crate) enum Committed {
    Appended {
        appended: StreamPosition,
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
    /// The channel exists and has received publications meanwhile, so its history must be read.
    Unread(HistoryLoad),
    Queued {
        message: InboxMessage,
        id: Option<u64>,
        done: OnQueued,
    },
    FactChanged {
        change: FactChange,
        revision: u64,
        done: OnDone,
    },
    Dropped(DroppedMessages, OnDropped),
    SeenForgotten(SeenForgotten, OnSeenForgotten),
    Plain(OnDone),
    Refused(WriteRequest, StoreRefusal),
}

impl Committed {
    /// The result to report for a write. `None` = nothing is reported.
    pub(crate) fn of(write: WriteRequest, result: WriteResult, known: &KnownRuns) -> Option<Self> {
        Some(match (write, result) {
            (write, WriteResult::Refused(refusal)) => Committed::Refused(write, refusal),
            (
                WriteRequest::Append(Append { channel, payload, done, .. }),
                WriteResult::Appended { position, is_new },
            ) => Committed::Appended { appended: position, is_new, channel, payload, done },
            (
                WriteRequest::Make(HistoryLoad { channel, id: load, .. }),
                WriteResult::Made { epoch, top: Offset::START },
            ) => {
                let runs = Runs { known: KnownRuns::clone(known), first: Vec::new() };
                Committed::Made {
                    channel,
                    load,
                    history: Some(StoredHistory {
                        epoch: Epoch::from_bits(epoch).in_run(runs.current()),
                        top: Offset::START,
                        floor: Offset::START,
                        kept: Vec::new(),
                        runs,
                    }),
                }
            }
            (WriteRequest::Make(load), WriteResult::Made { .. }) => Committed::Unread(load),
            (WriteRequest::QueueMessage(message, done), WriteResult::Queued(id)) => {
                Committed::Queued { message, id, done }
            }
            (WriteRequest::ChangeFact { change, done }, WriteResult::FactChanged(revision)) => {
                Committed::FactChanged { change, revision, done }
            }
            (WriteRequest::DropMessages(_, done), WriteResult::Dropped(dropped)) => Committed::Dropped(dropped, done),
            (WriteRequest::ForgetSeen { done, .. }, WriteResult::SeenForgotten(forgotten)) => {
                Committed::SeenForgotten(forgotten, done)
            }
            (
                WriteRequest::Remove { done, .. }
                | WriteRequest::Describe { done, .. }
                | WriteRequest::Forget { done, .. }
                | WriteRequest::NoteSeen { done, .. }
                | WriteRequest::KeepReactions { done, .. }
                | WriteRequest::DiscardMessages { done, .. },
                _,
            ) => Committed::Plain(done),
            _ => return None,
        })
    }

    /// Reports all results of one commit.
    pub(crate) fn tell_all(dones: impl IntoIterator<Item = Committed>, events: &EventSink, metrics: &StoreMetrics) {
        dones.into_iter().for_each(|done| done.tell(events, metrics));
        events(StoreEvent::BatchReported);
    }

    fn tell(self, events: &EventSink, metrics: &StoreMetrics) {
        match self {
            Committed::Appended { appended, is_new, channel, payload, done } => {
                if is_new {
                    metrics.stored.fetch_add(1, Relaxed);
                    events(StoreEvent::Appended { channel, position: appended, payload });
                }
                done(Ok(appended));
            }
            Committed::Made { channel, load, history } => events(StoreEvent::Loaded { channel, load, history }),
            Committed::Unread(load) => {
                events(StoreEvent::Loaded { channel: load.channel, load: load.id, history: None })
            }
            Committed::Queued { message: InboxMessage { scope, name, .. }, id: Some(id), done } => {
                metrics.inbox_messages.fetch_add(1, Relaxed);
                events(StoreEvent::MessageQueued { scope, name });
                done(Ok(id));
            }
            Committed::Queued { id: None, done, .. } => done(Err(StoreRefusal::InboxFull)),
            Committed::FactChanged { change, revision, done } => {
                events(StoreEvent::Facts(FactsEvent::Written { change, revision }));
                done(Ok(()));
            }
            Committed::Dropped(dropped, done) => done(Ok(dropped)),
            Committed::SeenForgotten(forgotten, done) => done(Ok(forgotten)),
            Committed::Plain(done) => done(Ok(())),
            Committed::Refused(write, refusal) => write.refuse(events, refusal),
        }
    }
}

impl WriteRequest {
    /// The number of publications in a batch.
    pub(crate) fn appends(batch: &[WriteRequest]) -> u64 {
        batch.iter().filter(|write| matches!(write, WriteRequest::Append(_))).count() as u64
    }

    /// Reports that the queue has no room for the write, or that the writer has ended.
    pub(crate) fn reject(self, events: &EventSink, metrics: &StoreMetrics, refusal: StoreRefusal) {
        if matches!(self, WriteRequest::Append(_)) {
            metrics.waiting.fetch_sub(1, Relaxed);
            metrics.refused.fetch_add(1, Relaxed);
        }
        self.refuse(events, refusal);
        events(StoreEvent::BatchReported);
    }

    /// Reports that a commit failed.
    pub(crate) fn refuse_all(batch: &mut Vec<WriteRequest>, events: &EventSink) {
        batch.drain(..).for_each(|write| write.refuse(events, StoreRefusal::Failed));
        events(StoreEvent::BatchReported);
    }

    /// Reports that the item was not written.
    pub(crate) fn refuse(self, events: &EventSink, refusal: StoreRefusal) {
        match self {
            WriteRequest::Append(append) => (append.done)(Err(refusal)),
            WriteRequest::QueueMessage(_, done) => done(Err(refusal)),
            WriteRequest::DropMessages(_, done) => done(Err(refusal)),
            WriteRequest::ForgetSeen { done, .. } => done(Err(refusal)),
            WriteRequest::Remove { done, .. }
            | WriteRequest::Describe { done, .. }
            | WriteRequest::Forget { done, .. }
            | WriteRequest::ChangeFact { done, .. }
            | WriteRequest::NoteSeen { done, .. }
            | WriteRequest::KeepReactions { done, .. }
            | WriteRequest::DiscardMessages { done, .. } => {
                done(Err(refusal));
            }
            WriteRequest::Make(HistoryLoad { channel, id: load, .. }) => {
                events(StoreEvent::Loaded { channel, load, history: None })
            }
            WriteRequest::AppendRows(rows) => (rows.done)(Err(refusal.into())),
            WriteRequest::BeginRun { .. } | WriteRequest::Close => {}
        }
    }
}
