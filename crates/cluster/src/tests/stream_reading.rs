//! A simulated JetStream. Between any two requests it is published to, trimmed by number, by age and by hand,
//! reconfigured and created again. Replicas lag, answers come late, and leaders are lost with data that only they had.
//! The claims of a reading and the meaning of an acknowledgement must hold nevertheless.
//!
//! There are 10,000 days by default; `touchline_testkit::seeds` has the variables that change this.

use std::collections::BTreeMap;

use touchline_protocol::stream::{Offset, RunId};
use touchline_testkit::seeds::{SeededRandom, Trace, compare, seeds, simulate};

use crate::incarnation::StreamIncarnation;
use crate::reading::{ReadRecords, ReadStep, StreamRead, StreamReadResult, StreamReader};
use crate::storing::{AppendVerdict, verdict};
use crate::stream::Snapshot;
use crate::types::StoredPublication;

/// The state of one replica at one moment.
#[derive(Clone, Default)]
struct SimulatedState {
    /// The sequences and channels, in order.
    kept: Vec<(u64, u8)>,
    first: u64,
    last: u64,
    size: usize,
    life: u64,
}

impl SimulatedState {
    fn of(&self, channel: u8) -> impl DoubleEndedIterator<Item = u64> {
        self.kept.iter().filter(move |(_, of)| *of == channel).map(|(sequence, _)| *sequence)
    }

    fn trim(&mut self, channel: u8) {
        let many = self.of(channel).count().saturating_sub(self.size);
        let until = self.of(channel).nth(many).unwrap_or(u64::MAX);
        self.kept.retain(|(sequence, of)| *of != channel || *sequence >= until);
    }
}

/// The stream. The last state is the leader's, and replicas have earlier states.
struct SimulatedStream {
    states: Vec<SimulatedState>,
    last: u64,
    size_min: usize,
    /// Everything that was ever stored in the read channel in this life: the sequence, and the sequence up to which a
    /// removal applies.
    all: Vec<(u64, Option<u64>)>,
}

const READ: u8 = 0;

impl SimulatedStream {
    fn new(size: usize) -> Self {
        SimulatedStream {
            states: vec![SimulatedState { first: 1, size, life: 1, ..SimulatedState::default() }],
            last: 0,
            size_min: size,
            all: Vec::new(),
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut SimulatedState)) {
        let mut next = self.states.last().cloned().unwrap_or_default();
        change(&mut next);
        let last = self.last;
        next.last = last;
        next.first = next.kept.first().map_or(last + 1, |(sequence, _)| *sequence);
        self.states.push(next);
    }

    fn publish(&mut self, channel: u8) {
        self.last += 1;
        let sequence = self.last;
        if channel == READ {
            self.all.push((sequence, None));
        }
        self.change(|state| {
            state.kept.push((sequence, channel));
            state.trim(channel);
        });
    }

    /// Changes a stream at random.
    fn disturb(&mut self, random: &mut SeededRandom) {
        match random.below(100) {
            0..70 => self.publish(READ),
            70..85 => self.publish(1),
            85..92 => {
                let many = random.below(4) as usize;
                self.change(|state| drop(state.kept.drain(..many.min(state.kept.len()))));
            }
            92..95 => {
                let size = 1 + random.below(8) as usize;
                self.size_min = self.size_min.min(size);
                self.change(|state| {
                    state.size = size;
                    state.trim(READ);
                });
            }
            95..98 => self.remove(),
            98..99 => self.change(|state| {
                *state = SimulatedState { size: state.size, life: state.life + 1, ..SimulatedState::default() }
            }),
            _ => {}
        }
    }

    fn remove(&mut self) {
        let Some(until) = self.states.last().and_then(|leader| leader.of(READ).next_back()) else { return };
        self.last += 1;
        let marker = self.last;
        self.all.push((marker, Some(until)));
        self.change(|state| {
            state.kept.push((marker, READ));
            state.trim(READ);
        });
        self.change(|state| state.kept.retain(|(sequence, of)| *of != READ || *sequence >= marker));
    }

    fn read(&self, read: StreamRead, life: u64, random: &mut SeededRandom) -> StreamReadResult {
        let leader = self.states.len() - 1;
        let lag = if random.chance(30) { random.below(6) as usize } else { 0 };
        let state = match read {
            StreamRead::Next(_) => &self.states[leader.saturating_sub(lag)],
            StreamRead::Last | StreamRead::First(_) | StreamRead::End => &self.states[leader],
        };
        if state.life != life {
            return StreamReadResult::Nothing;
        }
        let found = match read {
            StreamRead::Next(sequence) | StreamRead::First(sequence) => state.of(READ).find(|kept| *kept >= sequence),
            StreamRead::Last => state.of(READ).next_back(),
            StreamRead::End if state.of(READ).next().is_none() => Some(state.last),
            StreamRead::End => None,
        };
        match (read, found) {
            (_, None) => StreamReadResult::Nothing,
            (StreamRead::Next(_), Some(offset)) => StreamReadResult::Publication(StoredPublication {
                offset: Offset(offset),
                payload: bytes::Bytes::new(),
            }),
            (_, Some(sequence)) => StreamReadResult::Sequence(sequence),
        }
    }
}

/// A reader: its first request, and the step after each answer.
trait SimulatedReader {
    fn begin(&self) -> StreamRead;
    fn take(&mut self, read: StreamRead, result: StreamReadResult) -> ReadStep;
}

impl SimulatedReader for StreamReader {
    fn begin(&self) -> StreamRead {
        StreamReader::begin(self)
    }

    fn take(&mut self, read: StreamRead, result: StreamReadResult) -> ReadStep {
        StreamReader::take(self, read, result)
    }
}

/// The first reader of version 0.1. It counted the publications that it had read to find out whether any was pushed
/// out.
struct Counting {
    behind: u64,
    publications: Vec<StoredPublication>,
    last: u64,
}

impl SimulatedReader for Counting {
    fn begin(&self) -> StreamRead {
        StreamRead::Last
    }

    fn take(&mut self, _: StreamRead, result: StreamReadResult) -> ReadStep {
        match result {
            StreamReadResult::Sequence(last) => self.last = last,
            StreamReadResult::Publication(publication) => self.publications.push(publication),
            StreamReadResult::Nothing if self.last == 0 => {}
            StreamReadResult::Nothing => return ReadStep::Failed,
        }
        let next = self.publications.last().map_or(self.behind, |last| last.offset.0) + 1;
        if next <= self.last {
            return ReadStep::Request(StreamRead::Next(next));
        }
        let publications = std::mem::take(&mut self.publications);
        ReadStep::Done(ReadRecords { publications, last: self.last, floor: None })
    }
}

/// One reading of a busy stream. An error says what is wrong with the claim. True = nothing after the requested offset
/// is missing. False = the history cannot be read, or begins later.
fn read(seed: u64, reader: impl Fn(u64) -> Box<dyn SimulatedReader>, trace: &mut Trace) -> Result<bool, String> {
    let mut random = SeededRandom::new(seed);
    let mut stream = SimulatedStream::new(1 + random.below(8) as usize);
    let before = random.below(40);
    (0..before).for_each(|_| stream.disturb(&mut random));
    let life = stream.states.last().map_or(0, |leader| leader.life);
    if life > 1 {
        // Further requests would concern another life.
        return Ok(false);
    }
    let behind = if random.chance(50) { 0 } else { random.below(stream.last + 1) };
    let is_busy = random.chance(90);
    trace.note(|| format!("a reading of {} behind {behind}", stream.last));
    let mut reader = reader(behind);
    let mut next_read = reader.begin();
    for _ in 0..500 {
        let pass = |stream: &mut SimulatedStream, random: &mut SeededRandom| {
            let many = if is_busy && random.chance(40) { random.below(12) } else { 0 };
            (0..many).for_each(|_| stream.disturb(random));
        };
        pass(&mut stream, &mut random);
        let result = stream.read(next_read, life, &mut random);
        trace.note(|| format!("{next_read:?} of {} gives {result:?}", stream.last));
        pass(&mut stream, &mut random);
        match reader.take(next_read, result) {
            ReadStep::Request(next) | ReadStep::RequestLater(next) => next_read = next,
            ReadStep::Failed => return Ok(false),
            ReadStep::Done(kept) => {
                pass(&mut stream, &mut random);
                let judged = judge(&stream, life, behind, kept);
                trace.note(|| format!("{:?} was stored: {judged:?}", stream.all));
                return judged;
            }
        }
    }
    Err("it never ends".to_owned())
}

fn judge(stream: &SimulatedStream, life: u64, behind: u64, kept: ReadRecords) -> Result<bool, String> {
    let leader = stream.states.last().cloned().unwrap_or_default();
    if leader.life != life {
        return Ok(false);
    }
    let history = kept.history(
        behind,
        &Snapshot {
            first: leader.first,
            life: StreamIncarnation { epoch: 7, run: RunId(0) },
            size_min: stream.size_min,
            is_bounded: false,
        },
    );
    let found: Vec<u64> = history.kept.iter().map(|stored| stored.offset.0).collect();
    // As a channel does it: a removal says up to which sequence everything is gone.
    let removed =
        stream.all.iter().filter(|(sequence, _)| found.contains(sequence)).filter_map(|(_, until)| *until).max();
    let floor = history.floor.max(Offset(removed.unwrap_or_default()));
    let is_due = |sequence: u64| sequence > floor.0 && sequence <= history.top.0;
    let missing: Vec<u64> =
        stream.all.iter().map(|(sequence, _)| *sequence).filter(|s| is_due(*s) && !found.contains(s)).collect();
    if !missing.is_empty() {
        return Err(format!("behind {floor} up to {} {missing:?} are missing in {found:?}", history.top));
    }
    if let Some(foreign) = found.iter().find(|offset| !stream.all.iter().any(|(sequence, _)| sequence == *offset)) {
        return Err(format!("{foreign} was never stored"));
    }
    Ok(history.floor <= Offset(behind))
}

#[test]
fn a_seed_gives_the_same_events_in_every_process() {
    compare("tests::stream_reading::a_seed_gives_the_same_events_in_every_process", |seed, mut trace| {
        let read = read(seed, |behind| Box::new(StreamReader::new(behind)), &mut trace);
        trace.note(|| format!("the reading: {read:?}"));
        let is_there = publish_all(seed, |answer| verdict(answer, true), &mut trace);
        trace.note(|| format!("all that was acknowledged is there: {is_there}"));
        trace
    });
}

#[test]
fn what_a_reading_claims_was_really_not_trimmed() {
    simulate(seeds(10_000), [("a claim", 50)], |seed| {
        let outcome = read(seed, |behind| Box::new(StreamReader::new(behind)), &mut Trace::Off);
        [outcome.unwrap_or_else(|wrong| panic!("{wrong}")).into()]
    });
}

#[test]
fn a_reader_that_counts_is_found_out() {
    let counting =
        |behind| -> Box<dyn SimulatedReader> { Box::new(Counting { behind, publications: Vec::new(), last: 0 }) };
    let wrong = (0..2_000).filter(|seed| read(*seed, counting, &mut Trace::Off).is_err()).count();
    assert!(wrong > 20, "the simulation would not have found the mistake: {wrong} of 2,000");
}

#[test]
fn a_channel_that_was_never_trimmed_is_had_from_the_beginning() {
    for published in 0..6 {
        let mut stream = SimulatedStream::new(8);
        stream.publish(1);
        (0..published).for_each(|_| stream.publish(READ));
        let mut reading = StreamReader::new(0);
        let mut next_read = reading.begin();
        let kept = loop {
            match reading.take(next_read, stream.read(next_read, 1, &mut SeededRandom::new(1))) {
                ReadStep::Request(next) | ReadStep::RequestLater(next) => next_read = next,
                ReadStep::Done(kept) => break kept,
                ReadStep::Failed => panic!("it is all there"),
            }
        };
        let history = kept.history(
            0,
            &Snapshot { first: 1, life: StreamIncarnation { epoch: 7, run: RunId(0) }, size_min: 8, is_bounded: false },
        );
        assert_eq!((history.floor.0, history.kept.len()), (0, published), "{published}");
    }
}

/// A leader, its proposals, and the data that is stored permanently.
#[derive(Default)]
struct Leader {
    /// The ids by sequence, from 1 on.
    stored: Vec<u32>,
    proposed: Vec<u32>,
    known: BTreeMap<u32, u64>,
}

impl Leader {
    fn commit(&mut self, many: usize) {
        for id in self.proposed.drain(..many.min(self.proposed.len())) {
            self.stored.push(id);
            self.known.insert(id, self.stored.len() as u64);
        }
    }

    /// The server is lost with all data that only it had.
    fn is_lost(&mut self) {
        self.proposed.clear();
        self.known = self.stored.iter().enumerate().map(|(index, id)| (*id, index as u64 + 1)).collect();
    }

    /// Everything that the real server may answer to a publication. `None` = an error, or no answer in time.
    fn publish(&mut self, id: u32, random: &mut SeededRandom) -> Option<u64> {
        if random.chance(10) {
            return None;
        }
        if !self.known.contains_key(&id) && !self.proposed.contains(&id) {
            self.proposed.push(id);
        } else if self.proposed.contains(&id) {
            // In transit: a duplicate of a publication that has no sequence yet.
            return Some(0);
        }
        match random.below(10) {
            0..5 => self.commit(usize::MAX),
            5 => self.is_lost(),
            6 => {
                self.commit(usize::MAX);
                return None;
            }
            _ => return None,
        }
        self.known.get(&id).copied()
    }
}

/// Publishes with keys until each publication is acknowledged or given up. Returns whether every acknowledged
/// publication exists exactly once, at its acknowledged sequence.
fn publish_all(seed: u64, judge: impl Fn(Option<u64>) -> AppendVerdict, trace: &mut Trace) -> bool {
    let mut random = SeededRandom::new(seed);
    let mut leader = Leader::default();
    let mut acknowledged = Vec::new();
    for id in 0..20 {
        for _ in 0..6 {
            let answer = leader.publish(id, &mut random);
            trace.note(|| format!("{id} is answered {answer:?}: {:?} {:?}", leader.proposed, leader.known));
            if let AppendVerdict::Stored(sequence) = judge(answer) {
                acknowledged.push((id, sequence));
                break;
            }
            match random.below(10) {
                0..2 => leader.is_lost(),
                2..5 => leader.commit(random.below(3) as usize),
                _ => {}
            }
        }
    }
    leader.is_lost();
    acknowledged.iter().all(|(id, sequence)| {
        leader.stored.iter().filter(|stored| *stored == id).count() == 1
            && leader.stored.get(*sequence as usize - 1) == Some(id)
    })
}

#[test]
fn what_is_acknowledged_is_there_once_at_its_position() {
    simulate(seeds(10_000), [], |seed| {
        assert!(publish_all(seed, |answer| verdict(answer, true), &mut Trace::Off));
        []
    });
    let believes_all =
        |answer: Option<u64>| answer.map_or(AppendVerdict::Unknown, |sequence| AppendVerdict::Stored(sequence.max(1)));
    assert!(
        (0..100).any(|seed| !publish_all(seed, believes_all, &mut Trace::Off)),
        "the simulation would not have found the mistake"
    );
}
