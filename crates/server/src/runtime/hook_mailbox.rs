//! The mailbox of the thread that asks backends, and what other threads see of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use touchline_engine::ConnectionId;
use touchline_engine::hook::{HookCall, HookKind, HooksSettings};
use touchline_registry::{Entry, OwnerId};

use super::hook_metrics::{CallOutcome, HookCounts, HookMetrics};
use crate::net::forwarded::ForwardedHeaders;

/// What a call takes besides its texts, payload and header fields, in bytes.
const CALL_SIZE: usize = 512;

/// A message to the thread that asks backends.
pub(crate) enum HookMessage {
    /// Asks a backend about an action of a client.
    Call(Box<HookJob>),
    /// Asks a backend which of two clients keeps a name.
    Conflict(Box<NameConflict>),
    /// The session does not want the answer any more.
    Cancel { connection: ConnectionId, serial: u32 },
    /// A backend has ended something of a user: forget the answers that would let it begin again. `channel`: None = in
    /// every channel. `is_shared`: also forget answers that apply to every connection of the user.
    Forget { user: Box<str>, channel: Option<Box<str>>, is_shared: bool },
    /// No more calls will follow. The thread ends when the calls that it has are done.
    Finish,
    /// The node stops.
    Stop,
}

/// Two claims of the same name.
pub(crate) struct NameConflict {
    pub(crate) scope: Arc<str>,
    /// The claim of a client of this node.
    pub(crate) mine: Entry,
    /// The later claim, of another client.
    pub(crate) other: Entry,
}

impl NameConflict {
    /// Bytes that the conflict makes the node hold. The question that is made from it holds the same texts.
    pub(crate) fn size(&self) -> usize {
        let claims = [&self.mine, &self.other];
        CALL_SIZE + claims.into_iter().map(|claim| claim.key().len() + claim.meta().len()).sum::<usize>()
    }
}

/// Which part of the node asks a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// The session of this connection.
    Session(ConnectionId),
    /// The registry, about a conflict of names.
    Registry,
}

/// A question to a backend, with what it says about the client.
pub(crate) struct HookJob {
    pub(crate) asker: Asker,
    /// The client that the question concerns; zeros = it concerns two clients.
    pub(crate) client: OwnerId,
    /// The name of the client's transport.
    pub(crate) transport: &'static str,
    /// The encoding of the client's messages.
    pub(crate) protocol: &'static str,
    pub(crate) call: HookCall,
    /// Header fields of the client's request; None = none are forwarded.
    pub(crate) forwarded: Option<ForwardedHeaders>,
    /// How many bytes the mailbox has counted for the question.
    pub(crate) counted: usize,
}

impl HookJob {
    /// Bytes that the question makes the node hold.
    fn size(&self) -> usize {
        let headers = self.forwarded.iter().flat_map(|headers| headers.iter());
        let HookCall { user, meta, labels, emulated_headers, request, .. } = &self.call;
        let emulated = emulated_headers.iter().flat_map(|headers| headers.iter());
        let facts = [meta, labels].into_iter().flatten().map(bytes::Bytes::len).sum::<usize>();
        CALL_SIZE
            + request.size()
            + user.len()
            + facts
            + headers.map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>()
            + emulated.map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// The mailbox of the thread that asks backends.
pub(crate) struct HookMailbox {
    sender: UnboundedSender<HookMessage>,
    pub(crate) metrics: Arc<HookMetrics>,
    /// The number of calls that wait or are under way.
    outstanding: AtomicUsize,
    /// The bytes of these calls.
    outstanding_size: AtomicUsize,
    calls_limit: usize,
    size_limit: usize,
}

impl HookMailbox {
    /// Makes a mailbox and its receiving end. `endpoints`: the names of the backends. `counts`: what was counted
    /// before.
    pub(crate) fn new(
        settings: &HooksSettings,
        endpoints: Vec<String>,
        counts: Arc<HookCounts>,
    ) -> (Self, UnboundedReceiver<HookMessage>) {
        let (sender, receiver) = unbounded_channel();
        let mailbox = HookMailbox {
            sender,
            metrics: Arc::new(HookMetrics::of(endpoints, counts)),
            outstanding: AtomicUsize::new(0),
            outstanding_size: AtomicUsize::new(0),
            calls_limit: settings.calls_max.saturating_add(settings.queue_max_entries),
            size_limit: settings.queue_max_size,
        };
        (mailbox, receiver)
    }

    /// Sends a call, unless too many wait. Returns whether it was sent.
    pub(crate) fn call(&self, mut job: HookJob) -> bool {
        job.counted = job.size();
        let is_free = self.begin(job.counted, job.call.request.kind());
        if is_free {
            self.send(HookMessage::Call(Box::new(job)));
        }
        is_free
    }

    /// Asks a backend which of two clients keeps a name, unless too many calls wait. Returns whether it is asked.
    pub(crate) fn conflict(&self, conflict: NameConflict) -> bool {
        let is_free = self.begin(conflict.size(), HookKind::Conflict);
        if is_free {
            self.send(HookMessage::Conflict(Box::new(conflict)));
        }
        is_free
    }

    /// Counts a call of `size` bytes, unless too many wait. Returns whether the call may be made.
    fn begin(&self, size: usize, kind: HookKind) -> bool {
        let calls = self.outstanding.fetch_add(1, Relaxed) + 1;
        let bytes = self.outstanding_size.fetch_add(size, Relaxed) + size;
        if calls > self.calls_limit || bytes > self.size_limit {
            self.end(size);
            self.metrics.count(kind, CallOutcome::Busy);
            return false;
        }
        true
    }

    /// Notes that a call of `size` bytes has its outcome.
    pub(crate) fn end(&self, size: usize) {
        self.outstanding.fetch_sub(1, Relaxed);
        self.outstanding_size.fetch_sub(size, Relaxed);
    }

    /// The number of calls that wait or are under way.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Relaxed)
    }

    /// Sends a message. If the thread has ended, the node has ended too, and the message is dropped.
    pub(crate) fn send(&self, message: HookMessage) {
        let _ = self.sender.send(message);
    }
}
