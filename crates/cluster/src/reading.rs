//! How a channel's history is read from a stream that is published to, trimmed and replicated meanwhile. This is the
//! logic alone: it says what to ask and takes the answers, so that a test can put anything between two of them.
//!
//! What is claimed in the end: *of all publications behind the floor, up to the last one, none is missing*. How many
//! were read says nothing of that by itself, since between two answers some go and others come. What is relied on
//! instead:
//!
//! - A stream that is full for a channel stays full while nothing but new publications push old ones out. So if a
//!   channel was ever trimmed by their number, then at any later moment it holds as many as it may, or age or size have
//!   taken the oldest of the *stream*, in order.
//! - The first publication is read, *then* the leader is asked for the last, then what is between is read, and last the
//!   leader is asked for the first. If that still is the one read first, nothing in between can have gone. Fewer than
//!   there may be were then fewer at one moment, and nothing was pushed out before it. Else only what the leader still
//!   has counts, and the floor is the first of that.
//! - How many there may be is the least number that was ever configured, and it is asked for behind all this.

use touchline_protocol::stream::Offset;

use crate::stream::Snapshot;
use crate::types::{StoredPublication, StreamHistory};

/// How often a replica is asked again that lags behind the leader.
const LAG_RETRIES: u32 = 40;
/// How often reading begins anew because what was read is gone.
const ROUNDS: u32 = 5;

/// What was read of a channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadRecords {
    /// Oldest first, without a gap.
    pub(crate) publications: Vec<StoredPublication>,
    /// The channel's last sequence; the stream's last sequence if the stream has no publication of the channel.
    pub(crate) last: u64,
    /// Nothing behind it, up to the last, is missing, and what was before it is gone. None = nothing has gone while it
    /// was read.
    pub(crate) floor: Option<u64>,
}

impl ReadRecords {
    /// Whether nothing of the channel was there behind where it was read.
    pub(crate) fn has_nothing(&self) -> bool {
        self.publications.is_empty() && self.floor.is_none()
    }

    /// What was read behind a sequence, as a history, by what was seen of the stream after all was read.
    pub(crate) fn history(self, behind: u64, snapshot: &Snapshot) -> StreamHistory {
        let is_aged = self.has_nothing() && !snapshot.is_bounded;
        let ReadRecords { publications, last, floor } = self;
        let dropped = snapshot.first.saturating_sub(1);
        let top = publications.last().map_or(last.max(behind).max(dropped), |latest| latest.offset.0);
        // Where nothing is left, all is gone that the stream has dropped since.
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

/// What has to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamRead {
    /// Of any replica: the channel's first publication at or behind a sequence.
    Next(u64),
    /// Of the leader: the sequence of the channel's last publication.
    Last,
    /// Of the leader: the sequence of the channel's first publication at or behind one.
    First(u64),
    /// Of the leader: the last sequence of the stream, if up to it nothing of the channel is there.
    End,
}

/// What is answered.
#[derive(Debug)]
pub(crate) enum StreamReadResult {
    /// To [`StreamRead::Next`].
    Publication(StoredPublication),
    /// To the others.
    Sequence(u64),
    /// There is none.
    Nothing,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum ReadStep {
    /// To ask.
    Request(StreamRead),
    /// To wait a moment, then to ask.
    RequestLater(StreamRead),
    /// It is read.
    Done(ReadRecords),
    /// It can't be had now.
    Failed,
}

/// A reading under way.
#[derive(Debug)]
pub(crate) struct StreamReader {
    behind: u64,
    publications: Vec<StoredPublication>,
    last: u64,
    lags: u32,
    rounds: u32,
}

impl StreamReader {
    /// Reads what is kept behind a sequence.
    pub(crate) fn new(behind: u64) -> Self {
        StreamReader { behind, publications: Vec::new(), last: 0, lags: LAG_RETRIES, rounds: ROUNDS }
    }

    /// What to ask first.
    pub(crate) fn begin(&self) -> StreamRead {
        StreamRead::Next(self.next())
    }

    /// Takes the answer to what was asked.
    pub(crate) fn take(&mut self, read: StreamRead, result: StreamReadResult) -> ReadStep {
        match (read, result) {
            (StreamRead::Next(_), StreamReadResult::Publication(publication)) => {
                let is_first = self.publications.is_empty();
                self.publications.push(publication);
                // Only now: what the channel holds from here on counts.
                if is_first { ReadStep::Request(StreamRead::Last) } else { self.go_on() }
            }
            (StreamRead::Next(_), _) if self.last == 0 => ReadStep::Request(StreamRead::Last),
            // The replica lags behind, or what there was is gone: the leader knows.
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
            // All that was there is gone, by age or because somebody has removed it.
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
            // It was not there for the replicas that were asked, or nothing of what was read is there any more.
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
