//! The mailbox of the thread that asks backends, and what other threads see of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use touchline_engine::ConnectionId;
use touchline_engine::hook::{HookCall, HookKind, HooksSettings};
use touchline_registry::OwnerId;

use super::metrics::{Counter, Gauge, Latency};
use crate::net::forwarded::ForwardedHeaders;

/// What a call costs besides its payload and header fields, bytes.
const CALL_SIZE: usize = 512;

/// A message to the thread that asks backends.
pub(crate) enum HookMessage {
    /// Ask.
    Call(Box<HookJob>),
    /// The answer is not wanted any more.
    Cancel { connection: ConnectionId, serial: u32 },
    /// A backend has ended something of a user: forget the answers that would let it begin again. `channel`: None =
    /// in every channel.
    Forget { user: Box<str>, channel: Option<Box<str>> },
    /// The node stops.
    Stop,
}

/// A question of a session to a backend.
pub(crate) struct HookJob {
    pub(crate) connection: ConnectionId,
    pub(crate) client: OwnerId,
    /// The name of the client's transport.
    pub(crate) transport: &'static str,
    /// The encoding of the client's messages.
    pub(crate) protocol: &'static str,
    pub(crate) call: HookCall,
    /// Header fields of the client's request.
    pub(crate) forwarded: Option<ForwardedHeaders>,
}

impl HookJob {
    /// Bytes that it makes the node hold.
    pub(crate) fn size(&self) -> usize {
        let headers = self.forwarded.iter().flat_map(|headers| headers.iter());
        let emulated = self.call.emulated_headers.iter().flat_map(|headers| headers.iter());
        CALL_SIZE
            + self.call.request.data().map_or(0, |data| data.len())
            + headers.map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>()
            + emulated.map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// The outcomes of calls, in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The backend has answered with a result, or `{}`.
    Answered,
    /// The backend has refused.
    Refused,
    /// There was no answer, or none that can be used.
    Failed,
    /// Nothing was asked, because the backend has failed too often.
    Open,
    /// Nothing was asked, because too many calls wait.
    Busy,
    /// Nothing was asked, because an earlier answer holds.
    Cached,
    /// The client has gone.
    Cancelled,
}

impl CallOutcome {
    /// All outcomes, in the order of their numbers.
    pub(crate) const ALL: [CallOutcome; 7] = [
        CallOutcome::Answered,
        CallOutcome::Refused,
        CallOutcome::Failed,
        CallOutcome::Open,
        CallOutcome::Busy,
        CallOutcome::Cached,
        CallOutcome::Cancelled,
    ];

    /// The name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Answered => "answered",
            CallOutcome::Refused => "refused",
            CallOutcome::Failed => "failed",
            CallOutcome::Open => "open",
            CallOutcome::Busy => "busy",
            CallOutcome::Cached => "cached",
            CallOutcome::Cancelled => "cancelled",
        }
    }
}

/// The metrics of hooks.
#[derive(Debug, Default)]
pub(crate) struct HookMetrics {
    /// Calls by kind of hook and outcome.
    pub(crate) calls: [[Counter; CallOutcome::ALL.len()]; HookKind::ALL.len()],
    /// Time from the first byte of a call to the end of its answer, by kind of hook.
    pub(crate) latency: [Latency; HookKind::ALL.len()],
    /// Calls under way.
    pub(crate) under_way: Gauge,
    /// The backends, and whether each is not asked because it has failed too often.
    pub(crate) endpoints: Vec<(String, AtomicBool)>,
}

impl HookMetrics {
    /// Metrics that have counted nothing. `endpoints`: the names of the backends.
    pub(crate) fn of(endpoints: Vec<String>) -> Self {
        let endpoints = endpoints.into_iter().map(|name| (name, AtomicBool::new(false))).collect();
        HookMetrics { endpoints, ..HookMetrics::default() }
    }

    /// The backends that are not asked, because they have failed too often.
    pub(crate) fn open_backends(&self) -> Vec<&str> {
        let open = self.endpoints.iter().filter(|(_, is_open)| is_open.load(Relaxed));
        open.map(|(name, _)| name.as_str()).collect()
    }

    /// Counts a call. Any thread may call this.
    pub(crate) fn count(&self, kind: HookKind, outcome: CallOutcome) {
        self.calls[kind as usize][outcome as usize].add_shared(1);
    }
}

/// The mailbox of the thread that asks backends.
pub(crate) struct HookMailbox {
    sender: UnboundedSender<HookMessage>,
    pub(crate) metrics: Arc<HookMetrics>,
    /// Calls that wait or are under way.
    outstanding: AtomicUsize,
    /// Bytes of these calls.
    outstanding_size: AtomicUsize,
    calls_limit: usize,
    size_limit: usize,
}

impl HookMailbox {
    /// A mailbox, and its receiving end. `endpoints`: the names of the backends.
    pub(crate) fn new(settings: &HooksSettings, endpoints: Vec<String>) -> (Self, UnboundedReceiver<HookMessage>) {
        let (sender, receiver) = unbounded_channel();
        let mailbox = HookMailbox {
            sender,
            metrics: Arc::new(HookMetrics::of(endpoints)),
            outstanding: AtomicUsize::new(0),
            outstanding_size: AtomicUsize::new(0),
            calls_limit: settings.calls_max.saturating_add(settings.queue_max_entries),
            size_limit: settings.queue_max_size,
        };
        (mailbox, receiver)
    }

    /// Sends a call, unless too many wait. Returns whether it was sent.
    pub(crate) fn call(&self, job: HookJob) -> bool {
        let size = job.size();
        let calls = self.outstanding.fetch_add(1, Relaxed) + 1;
        let bytes = self.outstanding_size.fetch_add(size, Relaxed) + size;
        if calls > self.calls_limit || bytes > self.size_limit {
            self.end(size);
            self.metrics.count(job.call.request.kind(), CallOutcome::Busy);
            return false;
        }
        self.send(HookMessage::Call(Box::new(job)));
        true
    }

    /// A call of this size has its outcome, bytes.
    pub(crate) fn end(&self, size: usize) {
        self.outstanding.fetch_sub(1, Relaxed);
        self.outstanding_size.fetch_sub(size, Relaxed);
    }

    /// Calls that wait or are under way.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Relaxed)
    }

    /// Sends a message. If the thread has ended, the message is dropped; the node has ended then too.
    pub(crate) fn send(&self, message: HookMessage) {
        let _ = self.sender.send(message);
    }
}
