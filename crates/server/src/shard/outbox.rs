//! What connections are due, and how it gets to their sockets.
//!
//! Everything that a connection is sent, shared or its own, is a *frame* noted at the connection in order. A connection with notes waits in
//! one line; when its turn comes, all its frames leave in one write. So publications that arrive while a round is under way pile up and
//! leave together. Only a socket that would block gets a queue of its own.

use std::collections::VecDeque;
use std::io::Write;

use bytes::Bytes;

use super::connections::Connection;

const NONE: u32 = u32::MAX;
/// Notes kept for reuse while nothing is due.
const SPARE_NOTES: usize = 4_096;

struct Entry {
    /// Shared by all who are due it.
    frame: Bytes,
    /// Connections that are still due it.
    readers: u32,
    accepted_us: u64,
    /// From then on nobody is given it, microseconds of the node's clock.
    expires_us: u64,
}

/// What does not expire.
pub(super) const NEVER: u64 = u64::MAX;

/// A frame noted at a connection.
struct Note {
    frame: u32,
    next: u32,
}

/// The frames that a connection is due: a list in the outbox.
pub(super) struct Due {
    first: u32,
    last: u32,
    is_waiting: bool,
}

impl Default for Due {
    fn default() -> Self {
        Due { first: NONE, last: NONE, is_waiting: false }
    }
}

/// What a blocked socket has not taken yet.
#[derive(Default)]
pub(super) struct Queue {
    /// Each with the time from which it is not to be given any more.
    frames: VecDeque<(Bytes, u64)>,
    /// Bytes of the first frame that have been written.
    written: usize,
    pub(super) bytes: usize,
    /// The socket would take more: the rest waits for its next turn only.
    is_sliced: bool,
}

/// Most bytes that one connection is written in one turn, so that a large answer holds nobody up.
const TURN: usize = 256 * 1024;

/// What came of writing a queue.
enum Flushed {
    All,
    Blocked,
    /// A turn's share is written.
    Sliced,
}

impl Queue {
    fn push(&mut self, frame: Bytes, expires_us: u64) {
        self.bytes += frame.len();
        self.frames.push_back((frame, expires_us));
    }

    /// Drops what has expired and has not been begun.
    fn expire(&mut self, now_us: u64) {
        let begun = usize::from(self.written > 0);
        if self.frames.iter().skip(begun).all(|(_, expires_us)| *expires_us > now_us) {
            return;
        }
        let mut index = 0;
        self.frames.retain(|(_, expires_us)| {
            index += 1;
            index <= begun || *expires_us > now_us
        });
        self.bytes = self.frames.iter().map(|(frame, _)| frame.len()).sum::<usize>() - self.written;
    }

    /// Drops every frame of which nothing was written.
    pub(super) fn clear_unbegun(&mut self) {
        self.frames.truncate(usize::from(self.written > 0));
        self.bytes = self.frames.front().map_or(0, |(frame, _)| frame.len() - self.written);
    }

    /// Writes until the socket blocks, or a turn's share is written.
    fn flush(&mut self, socket: &mut impl Write, gathered: &mut Vec<u8>) -> std::io::Result<Flushed> {
        /// Bytes offered to a socket at once.
        const SLICE: usize = 64 * 1024;
        let enough = self.bytes.saturating_sub(TURN);
        while !self.frames.is_empty() {
            if self.bytes <= enough && self.bytes > 0 {
                return Ok(Flushed::Sliced);
            }
            gathered.clear();
            let mut skipped = self.written;
            for (frame, _) in &self.frames {
                // Of one very large frame no more than is offered.
                let part = &frame[skipped..];
                gathered.extend_from_slice(&part[..part.len().min(SLICE)]);
                skipped = 0;
                if gathered.len() >= SLICE {
                    break;
                }
            }
            let mut taken = match socket.write(gathered) {
                Ok(taken) => taken,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.bytes -= taken;
            while let Some((frame, _)) = self.frames.front() {
                let left = frame.len() - self.written;
                if taken < left {
                    self.written += taken;
                    break;
                }
                taken -= left;
                self.written = 0;
                self.frames.pop_front();
            }
        }
        Ok(Flushed::All)
    }
}

/// What came of writing what a connection is due.
pub(super) enum Written {
    /// All of it; so many bytes in one write.
    All(usize),
    /// Nothing was due.
    Nothing,
    /// The socket is full: the rest waits in the connection's queue, which has so many bytes now.
    Blocked { queued: usize },
    /// A turn's share is written, the rest waits for the next one. `is_new`: nobody knows of it yet.
    Sliced { queued: usize, is_new: bool },
    /// The socket is broken.
    Broken,
}

/// The frames and notes of a shard.
#[derive(Default)]
pub(super) struct Outbox {
    frames: VecDeque<Entry>,
    /// The number of the first of `frames`.
    base: u32,
    notes: Vec<Note>,
    free: Vec<u32>,
    /// Connections with something due, first come first served.
    waiting: VecDeque<u32>,
    /// The frames of the last write, one behind the other: subscribers of one channel are often due the same.
    gathered: Vec<u8>,
    gathered_frames: Vec<u32>,
    wanted: Vec<u32>,
    /// There has been a frame that expires.
    may_expire: bool,
    /// Ages of frames that their last reader has been written, microseconds.
    pub(super) finished_us: Vec<u64>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes in use.
    pub(super) fn notes(&self) -> usize {
        self.notes.len() - self.free.len()
    }

    /// Frames in use.
    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Takes a frame, to be noted at connections.
    pub(super) fn add(&mut self, frame: Bytes, accepted_us: u64, expires_us: u64) -> u32 {
        self.may_expire |= expires_us != NEVER;
        self.frames.push_back(Entry { frame, readers: 0, accepted_us, expires_us });
        self.base.wrapping_add(self.frames.len() as u32 - 1)
    }

    /// Forgets frames that nobody was noted for.
    pub(super) fn settle(&mut self) {
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

    /// The connection whose turn it is.
    pub(super) fn next_waiting(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front();
        if next.is_none() && self.notes.capacity() > SPARE_NOTES && self.notes() == 0 {
            self.notes = Vec::new();
            self.free = Vec::new();
            self.waiting = VecDeque::new();
            self.gathered = Vec::new();
            self.gathered_frames.clear();
        }
        next
    }

    /// Writes all that a connection is due.
    pub(super) fn write(&mut self, connection: &mut Connection, now_us: u64) -> Written {
        connection.due.is_waiting = false;
        self.collect(&mut connection.due);
        if self.may_expire {
            self.expire(now_us);
        }
        if self.wanted.is_empty() {
            self.settle();
            return Written::Nothing;
        }
        let written = if let Some(queue) = &mut connection.queue {
            for &frame in &self.wanted {
                let entry = &self.frames[frame.wrapping_sub(self.base) as usize];
                queue.push(entry.frame.clone(), entry.expires_us);
            }
            if queue.is_sliced { Written::Sliced { queued: queue.bytes, is_new: false } } else { Written::Blocked { queued: queue.bytes } }
        } else {
            self.write_wanted(connection)
        };
        self.release(now_us);
        written
    }

    /// Forgets all that a connection is due.
    pub(super) fn discard(&mut self, due: &mut Due) {
        self.collect(due);
        self.release(0);
    }

    /// Writes what waits in a blocked connection's queue. The queue is gone when it is empty.
    pub(super) fn flush(&mut self, connection: &mut Connection, now_us: u64) -> Written {
        let Some(queue) = &mut connection.queue else { return Written::Nothing };
        self.gathered_frames.clear();
        if self.may_expire {
            queue.expire(now_us);
        }
        let before = queue.bytes;
        match queue.flush(&mut connection.socket, &mut self.gathered) {
            Ok(Flushed::All) => {
                connection.queue = None;
                Written::All(before)
            }
            Ok(Flushed::Blocked) => {
                queue.is_sliced = false;
                Written::Blocked { queued: queue.bytes }
            }
            Ok(Flushed::Sliced) => {
                queue.is_sliced = true;
                Written::Sliced { queued: queue.bytes, is_new: true }
            }
            Err(_) => Written::Broken,
        }
    }

    /// Takes out of `wanted` what has expired.
    fn expire(&mut self, now_us: u64) {
        let Outbox { wanted, frames, base, .. } = self;
        wanted.retain(|frame| {
            let entry = &mut frames[frame.wrapping_sub(*base) as usize];
            let is_live = entry.expires_us > now_us;
            entry.readers -= u32::from(!is_live);
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
        (due.first, due.last) = (NONE, NONE);
    }

    fn write_wanted(&mut self, connection: &mut Connection) -> Written {
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
        let offered = &bytes[..bytes.len().min(TURN)];
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
        let mut queue = Box::<Queue>::default();
        let mut skipped = taken;
        for &frame in &self.wanted {
            let Entry { frame, expires_us, .. } = &self.frames[frame_at(frame)];
            if skipped >= frame.len() {
                skipped -= frame.len();
                continue;
            }
            queue.push(frame.clone(), *expires_us);
            if skipped > 0 {
                queue.written = skipped;
                queue.bytes -= skipped;
                skipped = 0;
            }
        }
        let queued = queue.bytes;
        queue.is_sliced = taken == TURN;
        let is_sliced = queue.is_sliced;
        connection.queue = Some(queue);
        if is_sliced { Written::Sliced { queued, is_new: true } } else { Written::Blocked { queued } }
    }

    /// Counts the wanted frames as read once, and forgets those that all have.
    fn release(&mut self, now_us: u64) {
        for index in 0..self.wanted.len() {
            let frame = self.wanted[index];
            let entry = self.entry(frame);
            debug_assert!(entry.readers > 0);
            entry.readers -= 1;
            let age_us = now_us.saturating_sub(entry.accepted_us);
            if entry.readers == 0 && entry.accepted_us > 0 && now_us > 0 {
                self.finished_us.push(age_us);
            }
        }
        self.settle();
    }

    fn entry(&mut self, frame: u32) -> &mut Entry {
        &mut self.frames[frame.wrapping_sub(self.base) as usize]
    }
}
