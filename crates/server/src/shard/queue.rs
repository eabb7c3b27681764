//! The queue of a blocked connection: the frames that its socket did not take, in order, and their cost.
//!
//! Two kinds of output wait here: answers and pushes. The client requested *answers*. They are bounded before they are
//! made, and never end a connection. The client did not request *pushes*. Their full lengths and their entries are
//! added up, and beyond `client.queue_max_size` or `client.queue_max_entries` the connection ends. Publications that
//! may be *dropped* make room instead, and never end a connection. Of several pongs, only the newest is kept (RFC 6455
//! section 5.5.3).

use std::collections::VecDeque;
use std::io::{ErrorKind, Result, Write};

use bytes::Bytes;
use touchline_engine::session::ENTRY_SIZE;

/// How many bytes are written to one connection in one turn at most, so that a large answer delays no other connection.
pub(super) const WRITE_PER_TURN_BYTES_MAX: usize = 256 * 1024;
/// How many bytes are offered to a socket at once at most.
const SLICE: usize = 64 * 1024;
/// How many bytes are offered at once to a socket that has droppable publications waiting. The system takes a whole
/// offer, however much it has not sent yet.
const DROPPABLE_SLICE: usize = 4 * 1024;
/// How long frames may stay in a queue after they expire while the queue is not written, in microseconds. Each search
/// looks through the whole queue.
const SEARCH_INTERVAL_US: u64 = 100_000;
// In one turn, the socket is offered at least one whole slice.
const _: () = assert!(SLICE <= WRITE_PER_TURN_BYTES_MAX);
// The size that the session counts for a push includes its entry here.
const _: () = assert!(size_of::<QueuedFrame>() < ENTRY_SIZE);

/// The kind of a frame, which decides how the queue counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputKind {
    /// A publication, join, leave or message that the client has not requested.
    Push,
    /// A publication that is dropped if it has waited for too long or the queue is full.
    Droppable,
    /// The reply to a command.
    Answer,
    /// A ping. It goes before other output, because the client's time to answer it is already running.
    Ping,
    /// The pong that answers a ping of the client.
    Pong,
}

/// A frame in the queue.
#[derive(Debug)]
struct QueuedFrame {
    frame: Bytes,
    /// When the frame expires, in microseconds of the node's clock; `u64::MAX` = it does not expire.
    expires_us: u64,
    /// How many bytes the frame costs this connection: its share of a frame for which other connections wait too.
    share: u32,
    kind: OutputKind,
}

/// The result of writing a queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// All waiting output was written.
    All,
    /// The socket is full; some output still waits.
    Blocked,
    /// The share of a turn is written; the rest waits for the next turn.
    Sliced,
}

/// The queue of a blocked connection.
#[derive(Debug, Default)]
pub(super) struct Queue {
    frames: VecDeque<QueuedFrame>,
    /// The newest ping and the newest pong that wait to be placed in front; None = none waits.
    ping: Option<Bytes>,
    pong: Option<Bytes>,
    /// How many bytes of the first frame are written.
    written: usize,
    /// How many bytes wait, without those pings and pongs.
    bytes: usize,
    /// How many bytes of answers wait.
    answers: usize,
    /// How many bytes only this connection makes the node hold.
    charge: usize,
    /// The number of waiting frames that are not answers.
    pushes: usize,
    /// How many of `bytes` belong to droppable frames.
    droppable_bytes: usize,
    /// The number of droppable frames that wait.
    droppables: usize,
    /// No frame expires before this time, in microseconds of the node's clock; 0 = no frame expires.
    first_expiry_us: u64,
    /// Whether the socket would take more, and the rest waits only for the connection's next turn.
    pub(super) is_sliced: bool,
    /// When the socket last took bytes, in microseconds of the node's clock.
    moved_us: u64,
}

impl Queue {
    /// Adds a frame for which `readers` connections wait, this one included.
    pub(super) fn push(&mut self, frame: Bytes, kind: OutputKind, readers: u32, expires_us: u64) {
        match kind {
            OutputKind::Ping => return self.ping = Some(frame),
            OutputKind::Pong => return self.pong = Some(frame),
            OutputKind::Push | OutputKind::Droppable | OutputKind::Answer => {}
        }
        let share = (frame.len().div_ceil(readers.max(1) as usize) + ENTRY_SIZE) as u32;
        self.bytes += frame.len();
        self.charge += share as usize;
        self.account(kind, frame.len());
        self.note_expiry(expires_us);
        self.frames.push_back(QueuedFrame { frame, expires_us, share, kind });
    }

    /// Counts a frame by its kind. `left`: how many of its bytes wait.
    fn account(&mut self, kind: OutputKind, left: usize) {
        match kind {
            OutputKind::Answer => self.answers += left,
            OutputKind::Push | OutputKind::Ping | OutputKind::Pong => self.pushes += 1,
            OutputKind::Droppable => {
                self.pushes += 1;
                self.droppables += 1;
                self.droppable_bytes += left;
            }
        }
    }

    fn note_expiry(&mut self, expires_us: u64) {
        if expires_us != u64::MAX && (self.first_expiry_us == 0 || expires_us < self.first_expiry_us) {
            self.first_expiry_us = expires_us.max(1);
        }
    }

    /// Records that the first bytes of the first frame are already written.
    pub(super) fn skip(&mut self, written: usize) {
        debug_assert!(self.written == 0 && self.frames.front().is_some_and(|first| written < first.frame.len()));
        self.written = written;
        self.take(written);
    }

    /// How many bytes wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes of answers wait.
    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    /// How many bytes only this connection makes the node hold.
    pub(super) fn charge(&self) -> usize {
        self.charge
    }

    /// Whether more pushes wait than the limits allow (`size_max` bytes, `entries_max` frames). A frame that is partly
    /// written does not count.
    fn is_beyond(&self, size_max: usize, entries_max: usize) -> bool {
        let begun = self.frames.front().filter(|first| self.written > 0 && first.kind != OutputKind::Answer);
        let (begun, begun_bytes) = begun.map_or((0, 0), |first| (1, first.frame.len() - self.written));
        let (pushes, bytes) = (self.pushes - begun, self.bytes - self.answers - begun_bytes);
        pushes > entries_max || bytes + pushes * ENTRY_SIZE > size_max
    }

    /// Whether more pushes wait that can't be dropped than the limits allow: `size_max` bytes, `entries_max` frames.
    pub(super) fn is_overrun(&self, size_max: usize, entries_max: usize) -> bool {
        let pushes = self.pushes - self.droppables;
        let bytes = self.bytes - self.answers - self.droppable_bytes;
        pushes > entries_max || bytes + pushes * ENTRY_SIZE > size_max
    }

    /// Records that the socket has taken bytes now.
    pub(super) fn note_moved(&mut self, now_us: u64) {
        self.moved_us = now_us;
    }

    /// For how long the socket has taken no bytes, in microseconds.
    pub(super) fn stalled_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.moved_us)
    }

    /// The same as [`Queue::expire`], for a queue that is not written now. Some frames may stay for
    /// [`SEARCH_INTERVAL_US`].
    pub(super) fn expire_in_time(&mut self, now_us: u64) -> u64 {
        if self.first_expiry_us.saturating_add(SEARCH_INTERVAL_US) > now_us {
            return 0;
        }
        self.expire(now_us)
    }

    /// Drops expired frames, except one that is partly written. Returns how many of them were droppable.
    pub(super) fn expire(&mut self, now_us: u64) -> u64 {
        if self.first_expiry_us == 0 || self.first_expiry_us > now_us {
            return 0;
        }
        let before = self.droppables;
        self.retain(self.begun(), |queued| queued.expires_us > now_us);
        (before - self.droppables) as u64
    }

    /// Drops the oldest droppable frames until the queue is within its limits. Returns how many. The newest one stays,
    /// and a partly written frame does not count. Otherwise a frame larger than the limits would be the last one that
    /// the client gets.
    pub(super) fn drop_oldest(&mut self, size_max: usize, entries_max: usize) -> u64 {
        if !self.is_beyond(size_max, entries_max) {
            return 0;
        }
        let Some(mut newest) = self.frames.iter().rposition(|queued| queued.kind == OutputKind::Droppable) else {
            return 0;
        };
        let (mut place, mut dropped) = (self.begun(), 0);
        while place < newest && self.is_beyond(size_max, entries_max) {
            if self.frames[place].kind != OutputKind::Droppable {
                place += 1;
            } else if let Some(queued) = self.frames.remove(place) {
                self.bytes -= queued.frame.len();
                self.charge -= queued.share as usize;
                self.pushes -= 1;
                self.droppables -= 1;
                self.droppable_bytes -= queued.frame.len();
                newest -= 1;
                dropped += 1;
            }
        }
        dropped
    }

    /// Drops every droppable frame, except one that is partly written. Returns how many.
    pub(super) fn drop_droppable(&mut self) -> u64 {
        let before = self.droppables;
        self.retain(self.begun(), |queued| queued.kind != OutputKind::Droppable);
        (before - self.droppables) as u64
    }

    /// How many frames are partly written: 0 or 1.
    fn begun(&self) -> usize {
        usize::from(self.written > 0)
    }

    /// Drops every frame of which no byte is written.
    pub(super) fn clear_unbegun(&mut self) {
        (self.ping, self.pong) = (None, None);
        self.retain(self.begun(), |_| false);
    }

    fn retain(&mut self, begun: usize, keep: impl Fn(&QueuedFrame) -> bool) {
        let all = std::mem::take(&mut self.frames);
        let written = self.written;
        (self.bytes, self.answers, self.charge, self.pushes) = (0, 0, 0, 0);
        (self.droppable_bytes, self.droppables, self.first_expiry_us) = (0, 0, 0);
        for (index, queued) in all.into_iter().enumerate() {
            if index < begun || keep(&queued) {
                let left = queued.frame.len() - if index == 0 { written } else { 0 };
                self.bytes += left;
                self.charge += queued.share as usize;
                self.account(queued.kind, left);
                self.note_expiry(queued.expires_us);
                self.frames.push_back(queued);
            }
        }
    }

    /// Counts `taken` bytes of the first frame as written.
    fn take(&mut self, taken: usize) {
        self.bytes -= taken;
        match self.frames.front().map(|first| first.kind) {
            Some(OutputKind::Answer) => self.answers -= taken,
            Some(OutputKind::Droppable) => self.droppable_bytes -= taken,
            _ => {}
        }
    }

    /// Removes the first frame, which is written.
    fn pop(&mut self) {
        let Some(first) = self.frames.pop_front() else { return };
        self.charge -= first.share as usize;
        self.pushes -= usize::from(first.kind != OutputKind::Answer);
        self.droppables -= usize::from(first.kind == OutputKind::Droppable);
        self.written = 0;
    }

    /// Writes until the socket blocks, or until the share of a turn is written.
    ///
    /// # Errors
    /// The error of the socket, if it is broken.
    pub(super) fn flush(&mut self, socket: &mut impl Write, gathered: &mut Vec<u8>) -> Result<Flushed> {
        let enough = self.bytes.saturating_sub(WRITE_PER_TURN_BYTES_MAX);
        loop {
            self.place_urgent();
            if self.frames.is_empty() {
                return Ok(Flushed::All);
            }
            if self.bytes <= enough && self.bytes > 0 {
                return Ok(Flushed::Sliced);
            }
            gathered.clear();
            let mut skipped = self.written;
            let slice = if self.droppables > 0 { DROPPABLE_SLICE } else { SLICE };
            for queued in &self.frames {
                // Only as much of one very large frame is copied as is offered.
                let part = &queued.frame[skipped..];
                gathered.extend_from_slice(&part[..part.len().min(slice - gathered.len())]);
                skipped = 0;
                if gathered.len() >= slice {
                    break;
                }
            }
            match socket.write(gathered) {
                Ok(taken) => self.advance(taken),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts the newest ping and the newest pong in front of the queue, between two frames. Each replaces an older one
    /// there.
    fn place_urgent(&mut self) {
        if self.written > 0 {
            return;
        }
        for (kind, frame) in [(OutputKind::Ping, self.ping.take()), (OutputKind::Pong, self.pong.take())] {
            let Some(frame) = frame else { continue };
            // The front holds at most one of each kind.
            let older = self.frames.iter().take(2).position(|queued| queued.kind == kind);
            if let Some(older) = older.and_then(|place| self.frames.remove(place)) {
                self.bytes -= older.frame.len();
                self.charge -= older.share as usize;
                self.pushes -= 1;
            }
            let share = frame.len() + ENTRY_SIZE;
            self.bytes += frame.len();
            self.charge += share;
            self.pushes += 1;
            self.frames.push_front(QueuedFrame { frame, expires_us: u64::MAX, share: share as u32, kind });
        }
    }

    fn advance(&mut self, mut taken: usize) {
        while let Some(first) = self.frames.front() {
            let left = first.frame.len() - self.written;
            if taken < left {
                self.written += taken;
                return self.take(taken);
            }
            taken -= left;
            self.take(left);
            self.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that takes this many bytes and then blocks.
    struct Narrow(usize, Vec<u8>);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            let taken = self.0.min(bytes.len());
            self.0 -= taken;
            self.1.extend_from_slice(&bytes[..taken]);
            if taken == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn check(queue: &Queue) {
        let left = |index: usize, queued: &QueuedFrame| queued.frame.len() - if index == 0 { queue.written } else { 0 };
        let all = || queue.frames.iter().enumerate();
        assert_eq!(queue.bytes, all().map(|(i, w)| left(i, w)).sum::<usize>());
        assert_eq!(
            queue.answers,
            all().filter(|(_, w)| w.kind == OutputKind::Answer).map(|(i, w)| left(i, w)).sum::<usize>()
        );
        assert_eq!(queue.charge, all().map(|(_, w)| w.share as usize).sum::<usize>());
        assert_eq!(queue.pushes, all().filter(|(_, w)| w.kind != OutputKind::Answer).count());
        let droppable = || all().filter(|(_, w)| w.kind == OutputKind::Droppable);
        assert_eq!(queue.droppables, droppable().count());
        assert_eq!(queue.droppable_bytes, droppable().map(|(i, w)| left(i, w)).sum::<usize>());
        let expiries = all().map(|(_, w)| w.expires_us).filter(|expires_us| *expires_us != u64::MAX);
        assert!(expiries.min().is_none_or(|first| queue.first_expiry_us > 0 && queue.first_expiry_us <= first));
    }

    #[test]
    fn whatever_happens_the_account_is_what_is_queued_and_the_order_is_kept() {
        for seed in 1..500u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut queue, mut socket, mut gathered) = (Queue::default(), Narrow(0, Vec::new()), Vec::new());
            let mut expected = Vec::new();
            for number in 0..60u8 {
                match random.u8(..6) {
                    0 | 1 => {
                        let frame = vec![number; 1 + random.usize(..3_000)];
                        expected.extend_from_slice(&frame);
                        queue.push(frame.into(), OutputKind::Push, 1 + random.u32(..9), u64::MAX);
                    }
                    2 => {
                        let frame = vec![number; 1 + random.usize(..90_000)];
                        expected.extend_from_slice(&frame);
                        queue.push(frame.into(), OutputKind::Answer, 1, u64::MAX);
                    }
                    _ => {
                        socket.0 += random.usize(..60_000);
                        let _ = queue.flush(&mut socket, &mut gathered).expect("the socket is not broken");
                    }
                }
                check(&queue);
            }
            socket.0 = usize::MAX / 2;
            while queue.flush(&mut socket, &mut gathered).expect("the socket is not broken") != Flushed::All {
                check(&queue);
            }
            assert_eq!(socket.1, expected, "seed {seed}");
            assert_eq!((queue.bytes, queue.answers, queue.charge, queue.pushes), (0, 0, 0, 0));
        }
    }

    #[test]
    fn whatever_is_dropped_the_rest_is_whole_and_in_order() {
        for seed in 1..500u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut queue, mut socket, mut gathered) = (Queue::default(), Narrow(0, Vec::new()), Vec::new());
            let (mut lengths, mut dropped) = (Vec::new(), 0);
            for number in 0..60u8 {
                match random.u8(..6) {
                    0..3 => {
                        let expires_us = u64::from(number) + random.u64(1..20);
                        let (kind, expires_us) = match random.u8(..4) {
                            0 => (OutputKind::Push, u64::MAX),
                            1 => (OutputKind::Answer, u64::MAX),
                            2 => (OutputKind::Droppable, u64::MAX),
                            _ => (OutputKind::Droppable, expires_us),
                        };
                        let frame = vec![lengths.len() as u8; 1 + random.usize(..3_000)];
                        lengths.push((frame.len(), kind));
                        queue.push(frame.into(), kind, 1 + random.u32(..9), expires_us);
                        check(&queue);
                        dropped += queue.drop_oldest(8_000, 6);
                        assert!(
                            queue.is_overrun(4_900, 5) || !queue.is_beyond(8_000, 6),
                            "what may be dropped makes room for the newest"
                        );
                    }
                    3 => dropped += queue.expire(number.into()),
                    _ => {
                        socket.0 += random.usize(..3_000);
                        let _ = queue.flush(&mut socket, &mut gathered).expect("the socket is not broken");
                    }
                }
                check(&queue);
            }
            socket.0 = usize::MAX / 2;
            while queue.flush(&mut socket, &mut gathered).expect("the socket is not broken") != Flushed::All {}
            let written: Vec<&[u8]> = socket.1.chunk_by(|a, b| a == b).collect();
            assert!(written.is_sorted_by(|a, b| a[0] < b[0]), "seed {seed}");
            assert!(written.iter().all(|run| run.len() == lengths[usize::from(run[0])].0), "seed {seed}");
            assert_eq!(written.len() + dropped as usize, lengths.len(), "what is not written is counted, seed {seed}");
            let kept = lengths.iter().filter(|(_, kind)| *kind != OutputKind::Droppable).count();
            let is_kept = |run: &&&[u8]| lengths[usize::from(run[0])].1 != OutputKind::Droppable;
            assert_eq!(written.iter().filter(is_kept).count(), kept, "nothing else is dropped, seed {seed}");
            check(&queue);
        }
    }

    #[test]
    fn of_pongs_the_newest_is_kept_and_written() {
        let (mut queue, mut socket, mut gathered) = (Queue::default(), Narrow(2, Vec::new()), Vec::new());
        queue.push(Bytes::from_static(b"answer"), OutputKind::Answer, 1, u64::MAX);
        for _ in 0..100_000 {
            queue.push(Bytes::from_static(b"old"), OutputKind::Pong, 1, u64::MAX);
        }
        queue.push(Bytes::from_static(b"new"), OutputKind::Pong, 1, u64::MAX);
        assert_eq!(queue.flush(&mut socket, &mut gathered).ok(), Some(Flushed::Blocked));
        check(&queue);
        queue.push(Bytes::from_static(b"last"), OutputKind::Pong, 1, u64::MAX);
        socket.0 = 100;
        assert_eq!(queue.flush(&mut socket, &mut gathered).ok(), Some(Flushed::All));
        assert_eq!(socket.1, b"newanswerlast");
    }

    #[test]
    fn a_ping_stands_before_all_that_waits_and_behind_a_pong() {
        let (mut queue, mut socket, mut gathered) = (Queue::default(), Narrow(2, Vec::new()), Vec::new());
        queue.push(Bytes::from_static(b"begun"), OutputKind::Droppable, 1, u64::MAX);
        assert_eq!(queue.flush(&mut socket, &mut gathered).ok(), Some(Flushed::Blocked));
        queue.push(Bytes::from_static(b"next"), OutputKind::Droppable, 1, u64::MAX);
        for text in ["ping", "PING"] {
            queue.push(Bytes::from_static(text.as_bytes()), OutputKind::Ping, 1, u64::MAX);
        }
        socket.0 = 3;
        assert_eq!(queue.flush(&mut socket, &mut gathered).ok(), Some(Flushed::Blocked));
        check(&queue);
        queue.push(Bytes::from_static(b"pong"), OutputKind::Pong, 1, u64::MAX);
        queue.push(Bytes::from_static(b"Ping"), OutputKind::Ping, 1, u64::MAX);
        queue.drop_droppable();
        socket.0 = 100;
        assert_eq!(queue.flush(&mut socket, &mut gathered).ok(), Some(Flushed::All));
        check(&queue);
        assert_eq!(socket.1, b"begunpongPing", "the newest of each, and only publications are dropped");
    }

    #[test]
    fn answers_never_count_against_the_limit_of_pushes() {
        let mut queue = Queue::default();
        queue.push(vec![0; 10_000_000].into(), OutputKind::Answer, 1, u64::MAX);
        assert!(!queue.is_overrun(1_000, 10));
        for _ in 0..10 {
            queue.push(Bytes::from_static(b"x"), OutputKind::Push, 1_000, u64::MAX);
        }
        assert!(!queue.is_overrun(1_000, 10) && queue.is_overrun(649, 10));
        queue.push(Bytes::from_static(b"x"), OutputKind::Push, 1_000, u64::MAX);
        assert!(queue.is_overrun(1_000_000, 10), "entries have a limit of their own");
        queue.clear_unbegun();
        assert_eq!((queue.bytes, queue.charge), (0, 0));
    }

    #[test]
    fn of_droppable_frames_the_oldest_go_until_the_queue_is_within_its_limits() {
        let (mut queue, mut socket, mut gathered) = (Queue::default(), Narrow(1, Vec::new()), Vec::new());
        for text in ["begun", "d1", "d2", "d3"] {
            queue.push(Bytes::from_static(text.as_bytes()), OutputKind::Droppable, 1, u64::MAX);
        }
        queue.push(Bytes::from_static(b"join"), OutputKind::Push, 1, u64::MAX);
        queue.push(Bytes::from_static(b"reply"), OutputKind::Answer, 1, u64::MAX);
        let _ = queue.flush(&mut socket, &mut gathered);
        assert_eq!(queue.drop_oldest(usize::MAX, 4), 0, "it is within its limits");
        assert_eq!(queue.drop_oldest(usize::MAX, 3), 1);
        check(&queue);
        assert_eq!(queue.drop_oldest(0, 0), 1, "the newest one stays");
        check(&queue);
        assert_eq!(queue.drop_droppable(), 1, "what was begun, pushes and answers stay");
        assert!(queue.is_overrun(0, 0) && !queue.is_overrun(4 + ENTRY_SIZE, 1), "only the push counts");
        socket.0 = 100;
        let _ = queue.flush(&mut socket, &mut gathered);
        assert_eq!(socket.1, b"begunjoinreply");
        assert_eq!((queue.bytes, queue.charge, queue.pushes), (0, 0, 0));
    }

    #[test]
    fn droppable_frames_that_expire_are_counted() {
        let mut queue = Queue::default();
        for (kind, expires_us) in [(OutputKind::Droppable, 10), (OutputKind::Droppable, 30), (OutputKind::Push, 10)] {
            queue.push(Bytes::from_static(b"x"), kind, 1, expires_us);
        }
        assert_eq!((queue.expire(9), queue.frames.len()), (0, 3));
        assert_eq!((queue.expire_in_time(9 + SEARCH_INTERVAL_US), queue.frames.len()), (0, 3));
        assert_eq!((queue.expire(10), queue.frames.len()), (1, 1));
        check(&queue);
        assert_eq!((queue.expire(31), queue.frames.len()), (1, 0));
    }

    #[test]
    fn what_expires_goes_unless_it_was_begun() {
        let (mut queue, mut socket, mut gathered) = (Queue::default(), Narrow(2, Vec::new()), Vec::new());
        for (text, expires_us) in [("begun", 10), ("late", 10), ("live", u64::MAX)] {
            queue.push(Bytes::from_static(text.as_bytes()), OutputKind::Push, 1, expires_us);
        }
        let _ = queue.flush(&mut socket, &mut gathered);
        queue.expire(20);
        check(&queue);
        socket.0 = 100;
        let _ = queue.flush(&mut socket, &mut gathered);
        assert_eq!(socket.1, b"begunlive");
    }
}
