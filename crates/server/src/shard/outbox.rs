//! The output of connections, and how it is written to their sockets.
//!
//! Everything that a connection is sent, shared or its own, is a *frame*. Frames are noted at the connection in order.
//! Connections with notes wait in one queue. When the turn of a connection comes, the shard writes all its frames in
//! one write. So publications that arrive in the meantime are sent together. Only a socket that would block gets its
//! own queue.

use std::collections::VecDeque;
use std::io::Write;

use bytes::Bytes;

use super::connections::Connection;
use super::due::{Due, NONE};
use super::queue::{Flushed, OutputKind, Queue, WRITE_PER_TURN_BYTES_MAX};
use crate::runtime::clock::tenths;

/// How many bytes of the buffer that gathers frames stay allocated while no connection waits.
const GATHERED_MAX: usize = 1024 * 1024;
/// How many notes stay allocated while no connection waits.
const SPARE_NOTES: usize = 4_096;

/// A frame, and what the outbox knows of it.
struct SharedFrame {
    /// The bytes of the frame, shared by all its readers.
    frame: Bytes,
    /// How many connections the frame is still to be written to.
    readers: u32,
    /// When the home accepted the publication, in microseconds of the node's clock; 0 = the frame is not a publication.
    accepted_us: u64,
    /// When the frame expires, in microseconds of the node's clock; [`NEVER`] = it does not expire.
    expires_us: u64,
    kind: OutputKind,
}

/// The expiry of a frame that does not expire.
pub(super) const NEVER: u64 = u64::MAX;

/// An entry in the list of a connection: a frame to be written to it.
struct Note {
    frame: u32,
    next: u32,
}

/// The result of writing the output of a connection.
pub(super) enum Written {
    /// All output was written: this many bytes, in one write.
    All(usize),
    /// There was no output.
    Nothing,
    /// The socket is full. The rest waits in the connection's queue.
    Blocked,
    /// The share of a turn is written. The rest waits for the next turn. `is_new`: the shard does not know it yet.
    Sliced { is_new: bool },
    /// The socket is broken, so the connection ends.
    Broken,
}

/// The frames and notes of a shard.
#[derive(Default)]
pub(super) struct Outbox {
    frames: VecDeque<SharedFrame>,
    /// The number of the first frame in `frames`.
    base: u32,
    notes: Vec<Note>,
    free: Vec<u32>,
    /// Connections with notes, in the order in which they began to wait.
    waiting: VecDeque<u32>,
    /// The bytes of the last write. Subscribers of one channel often get the same frames, so they can be reused.
    gathered: Vec<u8>,
    gathered_frames: Vec<u32>,
    wanted: Vec<u32>,
    /// Whether there has been a frame that expires.
    may_expire: bool,
    /// Publications that were not written to connections because they had waited for too long.
    pub(super) dropped: u64,
    /// How many bytes the system took of output whose rest still waits, since this was last read.
    pub(super) partial: usize,
    /// Ages of the frames that were written to their last reader, in microseconds.
    pub(super) finished_us: Vec<u64>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of notes in use.
    pub(super) fn notes(&self) -> usize {
        self.notes.len() - self.free.len()
    }

    /// The number of frames in use.
    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Adds a frame that will be noted at connections. Returns its number.
    pub(super) fn add(&mut self, frame: Bytes, kind: OutputKind, accepted_us: u64, expires_us: u64) -> u32 {
        self.may_expire |= expires_us != NEVER;
        self.frames.push_back(SharedFrame { frame, readers: 0, accepted_us, expires_us, kind });
        self.base.wrapping_add(self.frames.len() as u32 - 1)
    }

    /// Drops the oldest frames, up to the first that has a reader.
    pub(super) fn drop_unread_frames(&mut self) {
        while self.frames.front().is_some_and(|entry| entry.readers == 0) {
            self.frames.pop_front();
            self.base = self.base.wrapping_add(1);
        }
    }

    /// Notes a frame at a connection.
    pub(super) fn note(&mut self, slot: u32, due: &mut Due, frame: u32) {
        let note = Note { frame, next: NONE };
        let index = match self.free.pop() {
            Some(index) => {
                self.notes[index as usize] = note;
                index
            }
            None => {
                self.notes.push(note);
                self.notes.len() as u32 - 1
            }
        };
        self.entry(frame).readers += 1;
        if due.first == NONE {
            due.first = index;
        } else {
            self.notes[due.last as usize].next = index;
        }
        due.last = index;
        if !due.is_waiting {
            due.is_waiting = true;
            self.waiting.push_back(slot);
        }
    }

    /// Whether a frame with these bytes is noted at a connection and not yet written.
    pub(super) fn holds(&self, due: &Due, bytes: &[u8]) -> bool {
        let mut is_held = false;
        self.noted(due, |frame, _| is_held |= frame == bytes);
        is_held
    }

    /// Calls `show` for the frames that are noted at a connection and not yet written, in order.
    pub(super) fn noted(&self, due: &Due, mut show: impl FnMut(&Bytes, OutputKind)) {
        let mut next = due.first;
        while let Some(note) = self.notes.get(next as usize).filter(|_| next != NONE) {
            let frame = self.frames.get(note.frame.wrapping_sub(self.base) as usize);
            frame.into_iter().for_each(|shared| show(&shared.frame, shared.kind));
            next = note.next;
        }
    }

    /// Notes an answer, which is a frame for one connection only.
    pub(super) fn note_answer(&mut self, slot: u32, due: &mut Due, frame: Bytes) {
        due.answers = due.answers.saturating_add(frame.len() as u32);
        let number = self.add(frame, OutputKind::Answer, 0, NEVER);
        self.note(slot, due, number);
    }

    /// Takes the connection whose turn it is; None = no connection waits.
    pub(super) fn next_waiting(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front();
        if next.is_none() && self.notes.capacity() > SPARE_NOTES && self.notes() == 0 {
            self.notes = Vec::new();
            self.free = Vec::new();
            self.waiting = VecDeque::new();
            self.gathered = Vec::new();
            self.gathered_frames.clear();
        }
        if next.is_none() && self.gathered.capacity() > GATHERED_MAX {
            self.gathered = Vec::new();
            self.gathered_frames.clear();
        }
        next
    }

    /// Writes all output of a connection.
    pub(super) fn write(&mut self, connection: &mut Connection, now_us: u64) -> Written {
        connection.due.is_waiting = false;
        self.collect(&mut connection.due);
        if self.may_expire {
            self.expire(now_us);
        }
        if self.wanted.is_empty() {
            self.drop_unread_frames();
            return Written::Nothing;
        }
        let written = if let Some(queue) = &mut connection.queue {
            self.dropped += queue.expire_in_time(now_us);
            for &frame in &self.wanted {
                let entry = &self.frames[frame.wrapping_sub(self.base) as usize];
                queue.push(entry.frame.clone(), entry.kind, entry.readers, entry.expires_us);
            }
            if queue.is_sliced { Written::Sliced { is_new: false } } else { Written::Blocked }
        } else {
            self.write_wanted(connection, now_us)
        };
        self.release(now_us);
        written
    }

    /// Drops all output of a connection that is not in its queue.
    pub(super) fn discard(&mut self, due: &mut Due) {
        self.collect(due);
        self.release(0);
    }

    /// Writes the output in a blocked connection's queue. The queue is removed when it is empty.
    pub(super) fn flush(&mut self, connection: &mut Connection, now_us: u64) -> Written {
        let Some(queue) = &mut connection.queue else { return Written::Nothing };
        self.gathered_frames.clear();
        self.dropped += queue.expire(now_us);
        let before = queue.bytes();
        let flushed = queue.flush(&mut connection.socket, &mut self.gathered);
        if queue.bytes() < before {
            queue.note_moved(now_us);
        }
        match flushed {
            Ok(Flushed::All) => {
                connection.queue = None;
                connection.drained = tenths(now_us);
                Written::All(before)
            }
            Ok(Flushed::Blocked) => {
                self.partial += before - queue.bytes();
                queue.is_sliced = false;
                Written::Blocked
            }
            Ok(Flushed::Sliced) => {
                self.partial += before - queue.bytes();
                queue.is_sliced = true;
                Written::Sliced { is_new: true }
            }
            Err(_) => Written::Broken,
        }
    }

    /// Removes expired frames from `wanted`.
    fn expire(&mut self, now_us: u64) {
        let Outbox { wanted, frames, base, dropped, .. } = self;
        wanted.retain(|frame| {
            let entry = &mut frames[frame.wrapping_sub(*base) as usize];
            let is_live = entry.expires_us > now_us;
            entry.readers -= u32::from(!is_live);
            *dropped += u64::from(!is_live && entry.kind == OutputKind::Droppable);
            is_live
        });
    }

    /// Moves a connection's notes into `wanted`.
    fn collect(&mut self, due: &mut Due) {
        self.wanted.clear();
        let mut index = due.first;
        while index != NONE {
            let note = &self.notes[index as usize];
            self.wanted.push(note.frame);
            self.free.push(index);
            index = note.next;
        }
        (due.first, due.last, due.answers) = (NONE, NONE, 0);
    }

    fn write_wanted(&mut self, connection: &mut Connection, now_us: u64) -> Written {
        let frame_at = |frame: u32| frame.wrapping_sub(self.base) as usize;
        let bytes: &[u8] = if let [only] = self.wanted[..] {
            &self.frames[frame_at(only)].frame
        } else {
            if self.wanted != self.gathered_frames {
                self.gathered.clear();
                for &frame in &self.wanted {
                    self.gathered.extend_from_slice(&self.frames[frame_at(frame)].frame);
                }
                self.gathered_frames.clone_from(&self.wanted);
            }
            &self.gathered
        };
        let offered = &bytes[..bytes.len().min(WRITE_PER_TURN_BYTES_MAX)];
        let taken = loop {
            match connection.socket.write(offered) {
                Ok(taken) => break taken,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break 0,
                Err(_) => return Written::Broken,
            }
        };
        if taken == bytes.len() {
            return Written::All(taken);
        }
        self.partial += taken;
        let mut queue = Box::<Queue>::default();
        queue.note_moved(now_us);
        let mut skipped = taken;
        for &frame in &self.wanted {
            let SharedFrame { frame, expires_us, readers, kind, .. } = &self.frames[frame_at(frame)];
            if skipped >= frame.len() {
                skipped -= frame.len();
                continue;
            }
            // A ping or a pong that is partly written can't be replaced any more.
            let is_urgent = matches!(kind, OutputKind::Ping | OutputKind::Pong);
            let kind = if skipped > 0 && is_urgent { OutputKind::Push } else { *kind };
            queue.push(frame.clone(), kind, *readers, *expires_us);
            if skipped > 0 {
                queue.skip(skipped);
                skipped = 0;
            }
        }
        queue.is_sliced = taken == WRITE_PER_TURN_BYTES_MAX;
        let is_sliced = queue.is_sliced;
        connection.queue = Some(queue);
        if is_sliced { Written::Sliced { is_new: true } } else { Written::Blocked }
    }

    /// Counts each wanted frame as read once, and drops frames that have no more readers.
    fn release(&mut self, now_us: u64) {
        let Outbox { wanted, frames, base, finished_us, .. } = self;
        let mut is_unread = false;
        for frame in wanted.iter() {
            let entry = &mut frames[frame.wrapping_sub(*base) as usize];
            debug_assert!(entry.readers > 0);
            entry.readers -= 1;
            if entry.readers == 0 {
                is_unread = true;
                if entry.accepted_us > 0 && now_us > 0 {
                    finished_us.push(now_us.saturating_sub(entry.accepted_us));
                }
            }
        }
        if is_unread {
            self.drop_unread_frames();
        }
    }

    fn entry(&mut self, frame: u32) -> &mut SharedFrame {
        &mut self.frames[frame.wrapping_sub(self.base) as usize]
    }
}
