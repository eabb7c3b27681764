//! The runs of a log backend, and the offsets that each run assigned in a channel.

use std::sync::Arc;

use super::letters::letters;
use super::offset::Offset;

/// The id of a run of a log backend, 40 bits; 0 = the log backend never began another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RunId(pub u64);

/// A run of a log backend: a time in which it was not set back to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// The number of the run. A later run has a higher number.
    pub number: u64,
    /// The id of the run.
    pub id: RunId,
}

/// The first offset of a run in one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStart {
    /// The number of the run.
    pub number: u64,
    /// The first offset that the run assigned in the channel.
    pub first: Offset,
}

/// The runs of a log backend. During a run, the backend assigned offsets without being restored to an earlier state. A
/// position is part of the present history if its run is known and did not end before its offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Runs {
    /// The runs that the backend knows, in ascending order of their numbers. The last one is the current run. Empty =
    /// the backend has no runs.
    pub known: Arc<[Run]>,
    /// The start of each run in the channel, in ascending order of their numbers.
    pub first: Vec<RunStart>,
}

impl Runs {
    /// The id of the current run; 0 = the log backend has no runs.
    pub fn current(&self) -> RunId {
        self.known.last().map(|run| run.id).unwrap_or_default()
    }

    /// The last offset of a run in a channel whose last offset is `top`; `None` = the run is not known. A run that
    /// assigned no offset ends where it began.
    pub fn end(&self, run: &str, top: Offset) -> Option<Offset> {
        let is_it = |id: u64| letters(id) == *run.as_bytes();
        let run = self.known.iter().rev().find(|run| is_it(run.id.0))?;
        let next = self.first.get(self.first.partition_point(|later| later.number <= run.number));
        Some(next.map_or(top, |next| next.first.previous()))
    }

    /// Records that a run did not assign the offsets of the present history from this one on. The next run did.
    pub fn end_before(&mut self, id: RunId, offset: Offset) {
        let Some(run) = self.known.iter().find(|run| run.id == id) else { return };
        let index = self.first.partition_point(|later| later.number <= run.number);
        match (self.first.get_mut(index), self.known.iter().find(|later| later.number > run.number)) {
            (Some(next), _) => next.first = next.first.min(offset),
            (None, Some(next)) => self.first.push(RunStart { number: next.number, first: offset }),
            (None, None) => {}
        }
    }

    /// Records that the current run has assigned an offset.
    pub fn note(&mut self, offset: Offset) {
        if let Some(current) = self.known.last()
            && self.first.last().is_none_or(|last| last.number < current.number)
        {
            self.first.push(RunStart { number: current.number, first: offset });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds `Runs` from the numbers and ids of runs, and their first offsets in the channel.
    fn runs(known: &[(u64, u64)], first: &[(u64, u64)]) -> Runs {
        let known = known.iter().map(|&(number, id)| Run { number, id: RunId(id) }).collect();
        let first = first.iter().map(|&(number, first)| RunStart { number, first: Offset(first) }).collect();
        Runs { known, first }
    }

    fn starts(runs: &Runs) -> Vec<(u64, u64)> {
        runs.first.iter().map(|start| (start.number, start.first.0)).collect()
    }

    #[test]
    fn a_run_ends_where_the_next_one_began() {
        let mut runs = runs(&[(1, 11), (2, 12), (5, 15)], &[(1, 1), (5, 8)]);
        let end = |runs: &Runs, id: u64| {
            let text = letters(id);
            runs.end(std::str::from_utf8(&text).expect("letters"), Offset(20)).map(|end| end.0)
        };
        assert_eq!(
            [end(&runs, 11), end(&runs, 12), end(&runs, 15), end(&runs, 16)],
            [Some(7), Some(7), Some(20), None]
        );
        // The current run records the first offset that it assigns, only once.
        runs.first.truncate(1);
        runs.note(Offset(8));
        runs.note(Offset(9));
        assert_eq!(starts(&runs), [(1, 1), (5, 8)]);
        let mut none = Runs::default();
        none.note(Offset(8));
        assert!(none.first.is_empty());
    }

    #[test]
    fn a_run_that_assigned_nothing_from_an_offset_on_ends_before_it() {
        let ended = |first: &[(u64, u64)], id: u64, offset: u64| {
            let mut runs = runs(&[(1, 11), (2, 12), (5, 15)], first);
            runs.end_before(RunId(id), Offset(offset));
            starts(&runs)
        };
        let two = [(1, 1), (5, 8)];
        for (id, offset, next) in [(11, 4, 4), (12, 3, 3), (11, 9, 8), (15, 2, 8), (99, 2, 8)] {
            assert_eq!(ended(&two, id, offset), [(1, 1), (5, next)], "run {id} before {offset}");
        }
        for (id, next) in [(11, &[(2, 6)][..]), (12, &[(5, 6)]), (15, &[])] {
            assert_eq!(
                ended(&two[..1], id, 6),
                [&two[..1], next].concat(),
                "run {id}, where no later one has assigned an offset"
            );
        }
    }
}
