//! Frame traces: the frames from and to one client or user, or the publications into one channel, kept for a reader.
//!
//! A trace lasts for a minute at most. It ends earlier if nobody has read it for [`LEASE_MS`]. Clients do not notice
//! that they are traced, and no metric counts a trace as a subscriber. While there is no trace, a shard reads one
//! number for each write, each message and each publication.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_lock::Lock;
use touchline_registry::OwnerId;

/// How many traces a node has at a time.
pub(crate) const TRACES_MAX: usize = 16;
/// The longest duration of a trace, in seconds.
pub(crate) const TRACE_SECONDS_MAX: u64 = 60;
/// How many frames wait for the reader. Later frames are counted and left out.
const FRAMES_MAX: usize = 1_000;
/// How many bytes of payloads and names wait for the reader.
const WAITING_SIZE_MAX: usize = 256 * 1_024;
/// The longest payload that is shown whole, in bytes. Of a longer one, only the beginning is shown.
pub(crate) const PAYLOAD_SHOWN_MAX: usize = 8 * 1_024;
/// A trace that nobody has read for this time ends, in milliseconds.
const LEASE_MS: u64 = 5_000;
/// What a frame takes in addition to its texts, in bytes.
const FRAME_OVERHEAD: usize = 160;

/// What is traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TraceTarget {
    /// The publications that this node is asked to make in a channel.
    Channel(Box<str>),
    /// The frames of the connection with this client id.
    Client(OwnerId),
    /// The frames of all connections of a user.
    User(Box<str>),
}

/// A frame of a connection, or a publication into a traced channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TracedFrame {
    /// When the node saw it, in Unix milliseconds.
    pub(crate) at_ms: u64,
    /// The name of the node that saw it.
    #[serde(default)]
    pub(crate) node: String,
    /// The client id; empty for a publication into a traced channel.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) client: String,
    /// The user of the client; empty = anonymous, or not known yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) user: String,
    /// `in`: from the client; `out`: to the client; empty for a publication into a traced channel.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) direction: String,
    /// `publication`, `command`, `reply`, `join`, `leave`, `push`, `ping`, `pong`, `close`.
    pub(crate) kind: String,
    /// The channel; empty = the frame concerns no channel, or the channel cannot be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) channel: String,
    /// The offset of a publication; 0 = it has none, or the log backend assigns it later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) offset: u64,
    /// Bytes of the payload, or of the frame without its framing.
    pub(crate) size: u64,
    /// The payload, or the beginning of a long payload; absent = payloads are not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    /// Whether the payload is in base64.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) binary: bool,
    /// The code of an error that the client gets; 0 = there is no error.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) error: u32,
}

fn is_none(code: &u32) -> bool {
    *code == 0
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl TracedFrame {
    fn size_in_memory(&self) -> usize {
        let texts = [&self.client, &self.user, &self.channel, &self.kind];
        let payload = self.payload.as_ref().map_or(0, String::len);
        FRAME_OVERHEAD + payload + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

/// What a trace has recorded since the last question.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenFrames {
    /// The recorded frames, in their order.
    pub(crate) frames: Vec<TracedFrame>,
    /// Frames that were not kept because too many waited.
    pub(crate) left_out: u64,
    /// Whether the trace is over.
    pub(crate) has_ended: bool,
}

/// A question for the frames of a trace. The first question with an id begins the trace.
#[derive(Debug)]
pub(crate) struct TraceQuestion<'q> {
    /// The id that the reader has given the trace.
    pub(crate) id: &'q str,
    pub(crate) target: TraceTarget,
    pub(crate) seconds: u64,
    /// Whether payloads are shown.
    pub(crate) has_payloads: bool,
    /// Whether the trace ends with this question.
    pub(crate) is_last: bool,
}

/// Why a trace was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceRefusal {
    /// The node has [`TRACES_MAX`] traces already.
    TooMany,
    /// The id belongs to a trace of another target, or to a trace with other rights to payloads.
    OtherTarget,
}

#[derive(Debug)]
struct FrameTrace {
    id: Box<str>,
    target: TraceTarget,
    has_payloads: bool,
    ends_ms: u64,
    asked_ms: u64,
    frames: VecDeque<TracedFrame>,
    waiting_size: usize,
    left_out: u64,
}

impl FrameTrace {
    fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.ends_ms
    }

    /// Whether nobody has read the trace for too long.
    fn is_forgotten(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.asked_ms) >= LEASE_MS
    }

    fn keep(&mut self, frame: TracedFrame) {
        let size = frame.size_in_memory();
        if self.frames.len() == FRAMES_MAX || self.waiting_size + size > WAITING_SIZE_MAX {
            self.left_out += 1;
            return;
        }
        self.waiting_size += size;
        self.frames.push_back(frame);
    }
}

/// The frame traces of a node.
#[derive(Debug, Default)]
pub(crate) struct FrameTraces {
    all: Lock<Vec<FrameTrace>>,
    channels: AtomicUsize,
    clients: AtomicUsize,
}

impl FrameTraces {
    /// Whether at least one channel is traced.
    pub(crate) fn follow_channels(&self) -> bool {
        self.channels.load(Relaxed) > 0
    }

    /// Whether at least one client or user is traced.
    pub(crate) fn follow_clients(&self) -> bool {
        self.clients.load(Relaxed) > 0
    }

    /// Returns what a trace has recorded since the last question. A new id begins a trace. `now_ms`: Unix milliseconds.
    ///
    /// # Errors
    /// [`TraceRefusal`] if there are too many traces, or the id belongs to another trace.
    pub(crate) fn ask(&self, question: TraceQuestion<'_>, now_ms: u64) -> Result<SeenFrames, TraceRefusal> {
        let mut all = self.all.lock();
        self.forget_old(&mut all, now_ms);
        if let Some(place) = all.iter().position(|trace| *trace.id == *question.id) {
            let trace = &mut all[place];
            if trace.target != question.target || trace.has_payloads != question.has_payloads {
                return Err(TraceRefusal::OtherTarget);
            }
            trace.asked_ms = now_ms;
            trace.waiting_size = 0;
            let (frames, left_out) = (trace.frames.drain(..).collect(), std::mem::take(&mut trace.left_out));
            let has_ended = question.is_last || trace.is_over(now_ms);
            if has_ended {
                all.remove(place);
                self.count(&all);
            }
            return Ok(SeenFrames { frames, left_out, has_ended });
        }
        if question.is_last {
            return Ok(SeenFrames { has_ended: true, ..SeenFrames::default() });
        }
        if all.len() >= TRACES_MAX {
            return Err(TraceRefusal::TooMany);
        }
        all.push(FrameTrace {
            id: question.id.into(),
            target: question.target,
            has_payloads: question.has_payloads,
            ends_ms: now_ms.saturating_add(question.seconds.saturating_mul(1_000)),
            asked_ms: now_ms,
            frames: VecDeque::new(),
            waiting_size: 0,
            left_out: 0,
        });
        self.count(&all);
        Ok(SeenFrames::default())
    }

    /// Keeps a frame in the traces that `follows` selects. `frame`: makes the frame, with its payload (true) or
    /// without.
    pub(crate) fn keep(
        &self,
        now_ms: u64,
        follows: impl Fn(&TraceTarget) -> bool,
        frame: impl Fn(bool) -> TracedFrame,
    ) {
        let mut all = self.all.lock();
        self.forget_old(&mut all, now_ms);
        for trace in all.iter_mut().filter(|trace| !trace.is_over(now_ms) && follows(&trace.target)) {
            let has_payloads = trace.has_payloads;
            trace.keep(frame(has_payloads));
        }
    }

    /// Whether a running trace has a target that `follows` selects.
    pub(crate) fn follow(&self, now_ms: u64, follows: impl Fn(&TraceTarget) -> bool) -> bool {
        let mut all = self.all.lock();
        self.forget_old(&mut all, now_ms);
        all.iter().any(|trace| !trace.is_over(now_ms) && follows(&trace.target))
    }

    fn forget_old(&self, all: &mut Vec<FrameTrace>, now_ms: u64) {
        let before = all.len();
        all.retain(|trace| !trace.is_forgotten(now_ms));
        if all.len() != before {
            self.count(all);
        }
    }

    fn count(&self, all: &[FrameTrace]) {
        let channels = all.iter().filter(|trace| matches!(trace.target, TraceTarget::Channel(_))).count();
        self.channels.store(channels, Relaxed);
        self.clients.store(all.len() - channels, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str) -> TraceQuestion<'_> {
        TraceQuestion { id, target: TraceTarget::User("ana".into()), seconds: 10, has_payloads: true, is_last: false }
    }

    fn follows(target: &TraceTarget) -> bool {
        *target == TraceTarget::User("ana".into())
    }

    fn frame(size: usize) -> TracedFrame {
        TracedFrame { kind: "reply".into(), payload: Some("p".repeat(size)), ..TracedFrame::default() }
    }

    #[test]
    fn the_first_question_begins_a_trace_and_the_next_one_has_what_it_has_seen() {
        let traces = FrameTraces::default();
        assert!(!traces.follow_clients());
        assert_eq!(traces.ask(question("a"), 0), Ok(SeenFrames::default()));
        assert!(traces.follow_clients() && !traces.follow_channels());
        traces.keep(1, follows, |_| frame(1));
        traces.keep(1, |_| false, |_| frame(2));
        let seen = SeenFrames { frames: vec![frame(1)], ..SeenFrames::default() };
        assert_eq!(traces.ask(question("a"), 2), Ok(seen));
        assert_eq!(traces.ask(question("a"), 3), Ok(SeenFrames::default()));
        let other = TraceQuestion { target: TraceTarget::Channel("ana".into()), ..question("a") };
        assert_eq!(traces.ask(other, 4), Err(TraceRefusal::OtherTarget));
        let less = TraceQuestion { has_payloads: false, ..question("a") };
        assert_eq!(traces.ask(less, 4), Err(TraceRefusal::OtherTarget));
        let last = || TraceQuestion { is_last: true, ..question("a") };
        assert!(traces.ask(last(), 4).is_ok_and(|seen| seen.has_ended) && !traces.follow_clients());
        assert!(traces.ask(last(), 5).is_ok_and(|seen| seen.has_ended) && !traces.follow_clients());
    }

    #[test]
    fn what_is_too_much_is_counted_and_left_out() {
        let traces = FrameTraces::default();
        let _ = traces.ask(question("a"), 0);
        (0..FRAMES_MAX + 3).for_each(|_| traces.keep(1, follows, |_| frame(1)));
        let seen = traces.ask(question("a"), 2).expect("it continues");
        assert_eq!((seen.frames.len(), seen.left_out), (FRAMES_MAX, 3));
        (0..3).for_each(|_| traces.keep(3, follows, |_| frame(WAITING_SIZE_MAX / 2)));
        let seen = traces.ask(question("a"), 4).expect("it continues");
        assert_eq!((seen.frames.len(), seen.left_out), (1, 2));
    }

    #[test]
    fn a_trace_ends_by_its_time_and_when_nobody_asks() {
        let traces = FrameTraces::default();
        let _ = traces.ask(question("a"), 0);
        for at_ms in [4_000, 8_000] {
            assert!(traces.ask(question("a"), at_ms).is_ok_and(|seen| !seen.has_ended));
        }
        traces.keep(10_000, follows, |_| frame(1));
        let seen = traces.ask(question("a"), 12_000).expect("its end is reported");
        assert!(seen.has_ended && seen.frames.is_empty() && !traces.follow_clients());
        let _ = traces.ask(question("b"), 13_000);
        assert!(!traces.follow(18_000, follows) && !traces.follow_clients());
    }

    #[test]
    fn a_node_has_only_so_many_traces() {
        let traces = FrameTraces::default();
        let ids: Vec<String> = (0..=TRACES_MAX).map(|id| id.to_string()).collect();
        let begun = ids.iter().filter(|id| traces.ask(question(id), 0).is_ok()).count();
        assert_eq!(begun, TRACES_MAX);
        assert_eq!(traces.ask(question("more"), 1), Err(TraceRefusal::TooMany));
        assert!(traces.ask(question("more"), LEASE_MS).is_ok(), "the others are forgotten");
    }
}
