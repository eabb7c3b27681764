//! A mark is the last sequence of a stream that this node knows, with its publication. If the stream lacks it, the
//! stream was set back to an earlier state: its server lost unsynced data, or was restored. NATS does not report that,
//! and assigns the same sequences again.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use touchline_lock::{Lock, LockGuard};
use touchline_protocol::stream::RunId;

use crate::incarnation::StreamIncarnation;

/// The maximum number of remembered runs of one stream.
const LEFT_MAX: usize = 1_000;

/// A sequence that a stream has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    sequence: u64,
    /// The payload of the publication at that sequence. `None` = this node does not know it.
    payload: Option<Bytes>,
}

impl Mark {
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the stream ends before the mark.
    pub(crate) fn is_lost_at(&self, last: u64) -> bool {
        last < self.sequence
    }

    /// Whether the stream has another publication at the mark's sequence. `found` = `None` means that the stream has
    /// nothing there. That proves nothing, because every publication is removed in time.
    pub(crate) fn is_replaced(&self, found: Option<&[u8]>) -> bool {
        found.zip(self.payload.as_deref()).is_some_and(|(found, known)| found != known)
    }
}

/// What is known of the stream with one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    run: RunId,
    mark: Option<Mark>,
    /// The earlier runs of the stream, the newest last.
    left: VecDeque<RunId>,
}

/// The marks of all open streams, by their epochs.
#[derive(Debug, Default)]
pub(crate) struct Marks(Lock<BTreeMap<u64, Known>>);

impl Marks {
    /// Records the life in which a stream is opened. The mark of another run is dropped.
    pub(crate) fn begin(&self, life: StreamIncarnation) {
        let mut known = self.known();
        let of_epoch = known.entry(life.epoch).or_insert(Known { run: life.run, mark: None, left: VecDeque::new() });
        if of_epoch.run != life.run {
            of_epoch.left.push_back(std::mem::replace(&mut of_epoch.run, life.run));
            of_epoch.mark = None;
            if of_epoch.left.len() > LEFT_MAX {
                of_epoch.left.pop_front();
            }
        }
    }

    /// Whether this node has seen the stream leave this run. If so, the stream's description was set back with it.
    pub(crate) fn has_left(&self, life: StreamIncarnation) -> bool {
        self.known().get(&life.epoch).is_some_and(|known| known.run != life.run && known.left.contains(&life.run))
    }

    /// Forgets all streams except these.
    pub(crate) fn keep(&self, lives: &[StreamIncarnation]) {
        self.known().retain(|epoch, _| lives.iter().any(|life| life.epoch == *epoch));
    }

    /// Records a publication that an open stream has, or had.
    pub(crate) fn note(&self, epoch: u64, sequence: u64, payload: &Bytes) {
        self.note_sequence(epoch, sequence, || Some(payload.clone()));
    }

    /// Records that an open stream has reached a sequence.
    pub(crate) fn note_end(&self, epoch: u64, sequence: u64) {
        self.note_sequence(epoch, sequence, || None);
    }

    fn note_sequence(&self, epoch: u64, sequence: u64, payload: impl FnOnce() -> Option<Bytes>) {
        if let Some(Known { mark, .. }) = self.known().get_mut(&epoch)
            && mark.as_ref().is_none_or(|mark| mark.sequence < sequence)
        {
            *mark = Some(Mark { sequence, payload: payload() });
        }
    }

    /// A copy of the current marks.
    pub(crate) fn copy(&self) -> Self {
        Marks(Lock::new(self.known().clone()))
    }

    /// A copy of these marks, with those of `newer` for streams that were opened since.
    pub(crate) fn with(&self, newer: &Marks, lives: impl Iterator<Item = StreamIncarnation>) -> Self {
        let (mut all, newer) = (self.known().clone(), newer.known());
        all.extend(lives.filter_map(|life| Some((life.epoch, newer.get(&life.epoch)?.clone()))));
        Marks(Lock::new(all))
    }

    /// The mark of a stream in a life.
    pub(crate) fn of(&self, life: StreamIncarnation) -> Option<Mark> {
        self.known().get(&life.epoch).filter(|known| known.run == life.run)?.mark.clone()
    }

    fn known(&self) -> LockGuard<'_, BTreeMap<u64, Known>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: StreamIncarnation = StreamIncarnation { epoch: 7, run: RunId(0) };

    fn marks(noted: &[(u64, &'static str)]) -> Marks {
        let marks = Marks::default();
        marks.begin(LIFE);
        noted.iter().for_each(|(sequence, payload)| marks.note(7, *sequence, &Bytes::from_static(payload.as_bytes())));
        marks
    }

    #[test]
    fn the_newest_of_a_life_counts() {
        let marks = marks(&[(3, "three"), (5, "five"), (4, "four")]);
        let five = Mark { sequence: 5, payload: Some("five".into()) };
        assert_eq!(marks.of(LIFE), Some(five.clone()));
        marks.begin(LIFE);
        assert_eq!(marks.of(LIFE), Some(five), "opened again");
        assert_eq!(marks.of(StreamIncarnation { run: RunId(2), ..LIFE }), None);
        marks.begin(StreamIncarnation { run: RunId(2), ..LIFE });
        assert_eq!(marks.of(StreamIncarnation { run: RunId(2), ..LIFE }), None, "another run began");
        assert_eq!(marks.of(LIFE), None);
        assert!(marks.has_left(LIFE), "the stream was restored with its description");
        assert!(
            !marks.has_left(StreamIncarnation { run: RunId(2), ..LIFE })
                && !marks.has_left(StreamIncarnation { run: RunId(3), ..LIFE })
        );
        marks.note(8, 1, &"one".into());
        assert_eq!(marks.of(StreamIncarnation { epoch: 8, run: RunId(0) }), None, "that stream is not open");
        marks.keep(&[]);
        marks.note(7, 9, &"nine".into());
        assert_eq!(marks.of(StreamIncarnation { run: RunId(2), ..LIFE }), None, "nor is this any more");
    }

    #[test]
    fn a_stream_lacks_it_if_it_ends_before_or_has_another_in_its_place() {
        let Some(mark) = marks(&[(5, "five")]).of(LIFE) else { panic!("it was noted") };
        assert!([0, 4].iter().all(|last| mark.is_lost_at(*last)) && [5, 6].iter().all(|last| !mark.is_lost_at(*last)));
        let found = [Some("five"), Some("other"), Some(""), None];
        assert_eq!(found.map(|found| mark.is_replaced(found.map(str::as_bytes))), [false, true, true, false]);
        let marks = marks(&[(5, "five")]);
        marks.note_end(7, 5);
        assert_eq!(marks.of(LIFE), Some(mark), "what is there is known already");
        marks.note_end(7, 6);
        let Some(end) = marks.of(LIFE) else { panic!("it was noted") };
        assert!(end.is_lost_at(5) && !end.is_lost_at(6) && !end.is_replaced(Some(b"six")));
    }
}
