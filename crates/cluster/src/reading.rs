//! How a channel's history is read from a stream that is published to, trimmed and replicated meanwhile. This module is
//! only the logic: it says what to ask and takes the answers. So a test can change anything between two of them.
//!
//! The result claims: *of all publications after the floor, up to the last one, none is missing*. The number of
//! publications that were read does not prove that, because some are removed and added between two answers. The proof
//! relies on these facts instead:
//!
//! - A stream that is full for a channel stays full while only new publications push out old ones. Suppose that a
//!   channel was ever trimmed by number. At any later moment it then holds its maximum, or age or size have removed the
//!   oldest publications of the *stream*, in order.
//! - The first publication is read, *then* the leader is asked for the last one. Then the publications between are
//!   read, and finally the leader is asked for the first one. If that is still the same, no publication in between can
//!   have been removed. If there were then fewer publications than the maximum, none was pushed out before. If it is
//!   not the same, only the publications that the leader still has count, and the floor is the first of them.
//! - The maximum is the smallest number that was ever configured, and it is requested after all this.

use touchline_protocol::stream::Offset;

use crate::stream::Snapshot;
use crate::types::{StoredPublication, StreamHistory};

/// How many times a replica that lags behind the leader is asked again.
const LAG_RETRIES: u32 = 40;
/// How many times reading starts again because the publications that were read have been removed.
const ROUNDS: u32 = 5;

/// What was read of a channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadRecords {
    /// The publications, oldest first, without a gap.
    pub(crate) publications: Vec<StoredPublication>,
    /// The channel's last sequence, or the stream's last sequence if the stream has no publication of the channel.
    pub(crate) last: u64,
    /// No publication after the floor is missing, up to the last, and those before it were removed. `None` = nothing
    /// was removed while it was read.
    pub(crate) floor: Option<u64>,
}

impl ReadRecords {
    /// Whether the channel had no publication after the position where the read began.
    pub(crate) fn has_nothing(&self) -> bool {
        self.publications.is_empty() && self.floor.is_none()
    }

    /// Converts what was read after a sequence to a history. `snapshot` is the state of the stream after everything was
    /// read.
    pub(crate) fn history(self, behind: u64, snapshot: &Snapshot) -> StreamHistory {
        let is_aged = self.has_nothing() && !snapshot.is_bounded;
        let ReadRecords { publications, last, floor } = self;
        let dropped = snapshot.first.saturating_sub(1);
        let top = publications.last().map_or(last.max(behind).max(dropped), |latest| latest.offset.0);
        // If nothing is left, the stream has dropped everything up to the top since.
        let floor = floor.map(|floor| if publications.is_empty() { top } else { floor });
        let floor = floor.unwrap_or_else(|| match publications.first() {
            Some(first) if publications.len() >= snapshot.size_min => first.offset.0,
            _ => dropped,
        });
        StreamHistory {
            epoch: snapshot.life.epoch(),
            kept: publications,
            top: Offset(top),
            floor: Offset(floor.min(top).max(behind)),
            is_aged,
        }
    }
}

/// A request that the reader makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamRead {
    /// To any replica: the channel's first publication at or after a sequence.
    Next(u64),
    /// To the leader: the sequence of the channel's last publication.
    Last,
    /// To the leader: the sequence of the channel's first publication at or after one.
    First(u64),
    /// To the leader: the last sequence of the stream, if the stream has no publication of the channel up to it.
    End,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum StreamReadResult {
    /// The answer to [`StreamRead::Next`].
    Publication(StoredPublication),
    /// The answer to the other requests.
    Sequence(u64),
    /// There is no such publication or sequence.
    Nothing,
}

/// The next step of a reading.
#[derive(Debug)]
pub(crate) enum ReadStep {
    /// Send this request.
    Request(StreamRead),
    /// Wait a moment, then send this request.
    RequestLater(StreamRead),
    /// The history has been read.
    Done(ReadRecords),
    /// The history cannot be read now.
    Failed,
}

/// A reading in progress.
#[derive(Debug)]
pub(crate) struct StreamReader {
    behind: u64,
    publications: Vec<StoredPublication>,
    last: u64,
    lags: u32,
    rounds: u32,
}

impl StreamReader {
    /// Creates a reader of the publications after a sequence.
    pub(crate) fn new(behind: u64) -> Self {
        StreamReader { behind, publications: Vec::new(), last: 0, lags: LAG_RETRIES, rounds: ROUNDS }
    }

    /// The first request.
    pub(crate) fn begin(&self) -> StreamRead {
        StreamRead::Next(self.next())
    }

    /// Takes the answer to a request, and returns the next step.
    pub(crate) fn take(&mut self, read: StreamRead, result: StreamReadResult) -> ReadStep {
        match (read, result) {
            (StreamRead::Next(_), StreamReadResult::Publication(publication)) => {
                let is_first = self.publications.is_empty();
                self.publications.push(publication);
                // The claim concerns what the channel holds from this moment on.
                if is_first { ReadStep::Request(StreamRead::Last) } else { self.go_on() }
            }
            (StreamRead::Next(_), _) if self.last == 0 => ReadStep::Request(StreamRead::Last),
            // The replica lags behind, or the publications were removed. The leader knows which.
            (StreamRead::Next(_), _) if self.lags > 0 => {
                self.lags -= 1;
                ReadStep::RequestLater(StreamRead::Last)
            }
            (StreamRead::Next(_), _) => ReadStep::Failed,
            (StreamRead::Last, StreamReadResult::Sequence(last)) if last > self.behind => {
                self.last = self.last.max(last);
                self.go_on()
            }
            (StreamRead::Last, StreamReadResult::Sequence(last)) if self.publications.is_empty() && self.last == 0 => {
                ReadStep::Done(ReadRecords { publications: Vec::new(), last, floor: None })
            }
            (StreamRead::Last, StreamReadResult::Nothing) if self.publications.is_empty() && self.last == 0 => {
                ReadStep::Request(StreamRead::End)
            }
            (StreamRead::End, StreamReadResult::Sequence(end)) => {
                ReadStep::Done(ReadRecords { publications: Vec::new(), last: end, floor: None })
            }
            (StreamRead::End, _) => self.begin_anew(),
            // All publications are gone, by age or by a removal.
            (StreamRead::Last, _) => self.all_gone(),
            (StreamRead::First(_), StreamReadResult::Sequence(first)) => self.finish(first),
            (StreamRead::First(_), _) => self.all_gone(),
        }
    }

    fn next(&self) -> u64 {
        self.publications.last().map_or(self.behind, |last| last.offset.0).saturating_add(1)
    }

    fn go_on(&self) -> ReadStep {
        let next = self.next();
        ReadStep::Request(if next <= self.last {
            StreamRead::Next(next)
        } else {
            StreamRead::First(self.behind.saturating_add(1))
        })
    }

    fn finish(&mut self, first: u64) -> ReadStep {
        match self.publications.iter().position(|publication| publication.offset == Offset(first)) {
            Some(0) => self.done(None),
            Some(index) => {
                self.publications.drain(..index);
                self.done(Some(first))
            }
            // The replicas did not have it yet, or none of the publications that were read exists any more.
            None => self.begin_anew(),
        }
    }

    fn all_gone(&mut self) -> ReadStep {
        let last = self.next().saturating_sub(1).max(self.last);
        self.publications.clear();
        ReadStep::Done(ReadRecords { publications: Vec::new(), last, floor: Some(last) })
    }

    fn begin_anew(&mut self) -> ReadStep {
        let Some(rounds) = self.rounds.checked_sub(1) else { return ReadStep::Failed };
        *self = StreamReader { lags: self.lags, rounds, ..StreamReader::new(self.behind) };
        ReadStep::Request(self.begin())
    }

    fn done(&mut self, floor: Option<u64>) -> ReadStep {
        let publications = std::mem::take(&mut self.publications);
        let last = publications.last().map_or(self.last, |last| last.offset.0);
        ReadStep::Done(ReadRecords { publications, last, floor })
    }
}
