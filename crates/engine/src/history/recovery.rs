//! What a client or a caller can read of a history: missed publications, pages, and which positions the history knows.

use std::sync::Arc;

use touchline_protocol::Publication;
use touchline_protocol::stream::Offset;

use super::ring::{HistoryRing, RingSlot};
use crate::namespace::RecoveryMode;
use crate::request::Recover;

impl HistoryRing {
    /// The publications that a client at `from` missed; `None` = some of them are not kept here, or they exceed the
    /// limits.
    pub(crate) fn recover(&self, from: &Recover) -> Option<Vec<Arc<Publication>>> {
        let is_same_epoch = self.is_position(from.offset, &from.epoch);
        match from.mode {
            RecoveryMode::Cache => self.recover_latest(is_same_epoch && from.offset == self.top),
            RecoveryMode::Stream if !is_same_epoch || from.offset > self.top || from.offset < self.floor => None,
            RecoveryMode::Stream => {
                let start = self.up_to(from.offset);
                if self.kept.len() - start > from.limit {
                    return None;
                }
                let missed: Vec<_> = self.kept.range(start..).map(|kept| Arc::clone(&kept.publication)).collect();
                let size = missed.iter().map(|publication| publication.size()).sum::<usize>();
                (size <= from.size_max).then_some(missed)
            }
        }
    }

    fn recover_latest(&self, is_unmoved: bool) -> Option<Vec<Arc<Publication>>> {
        match self.kept.back() {
            _ if is_unmoved => Some(Vec::new()),
            Some(latest) => Some(vec![Arc::clone(&latest.publication)]),
            None => None,
        }
    }

    /// Publications after an offset, or before it if reversed (`None` = all). The result has at most `limit` of them
    /// and at most `size_max` bytes, but at least one publication if there is any.
    pub(crate) fn read(
        &self,
        since: Option<Offset>,
        reverse: bool,
        limit: usize,
        size_max: usize,
    ) -> Vec<Arc<Publication>> {
        let mut results = self.range(since, reverse, limit);
        let mut size = 0;
        let fits = results.iter().take_while(|publication| {
            size += publication.size();
            size <= size_max
        });
        let fitting = fits.count().max(1);
        results.truncate(fitting);
        results
    }

    fn range(&self, since: Option<Offset>, reverse: bool, limit: usize) -> Vec<Arc<Publication>> {
        let clone = |kept: &RingSlot| Arc::clone(&kept.publication);
        if reverse {
            let end = since.map_or(self.kept.len(), |offset| self.up_to(offset.previous()));
            self.kept.range(..end).rev().take(limit).map(clone).collect()
        } else {
            let start = since.map_or(0, |offset| self.up_to(offset));
            self.kept.range(start..).take(limit).map(clone).collect()
        }
    }

    /// The number of kept publications with offsets at or below `offset`.
    fn up_to(&self, offset: Offset) -> usize {
        self.kept.partition_point(|kept| kept.publication.offset <= offset)
    }

    /// Whether all publications after a position are kept here. A read in reverse or from the beginning is always
    /// possible.
    pub(crate) fn can_read(&self, offset: Offset, epoch: &str, reverse: bool) -> bool {
        self.is_position(offset, epoch)
            && (reverse || offset == Offset::START || offset <= self.top && offset >= self.floor)
    }

    /// Whether an offset and an epoch are a position of this history, or can become one. An empty epoch means the
    /// current epoch.
    pub(crate) fn is_position(&self, offset: Offset, epoch: &str) -> bool {
        if epoch.is_empty() || epoch == self.epoch.as_str() {
            return true;
        }
        self.epoch.run_of(epoch).and_then(|run| self.runs.end(run, self.top)).is_some_and(|end| offset <= end)
    }

    /// The offset of a position that may become one of this history but has not arrived here yet; 0 = its run is not
    /// known here. `None` = the history has everything up to it, or the position never arrives.
    pub(crate) fn ahead(&self, offset: Offset, epoch: &str) -> Option<Offset> {
        let may_come = match self.epoch.run_of(epoch) {
            Some(run) if epoch != self.epoch.as_str() => match self.runs.end(run, self.top) {
                Some(end) => end == self.top,
                None => return Some(Offset::START),
            },
            _ => epoch.is_empty() || epoch == self.epoch.as_str(),
        };
        (may_come && offset > self.top).then_some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use touchline_protocol::publication::{Content, LogPosition};
    use touchline_protocol::stream::{Epoch, Run, RunId, RunStart, Runs};

    /// Builds runs from their numbers and ids, and from where they begin in the channel.
    fn runs(known: &[(u64, u64)], first: &[(u64, u64)]) -> Runs {
        let known = known.iter().map(|&(number, id)| Run { number, id: RunId(id) }).collect();
        let first = first.iter().map(|&(number, first)| RunStart { number, first: Offset(first) }).collect();
        Runs { known, first }
    }

    fn ring(published: u64, size: usize) -> HistoryRing {
        let mut ring = HistoryRing::new(Epoch::from_bits(1));
        for offset in 1..=published {
            let place = LogPosition { offset: Offset(offset), epoch: "e", time_ms: 1 };
            let content = Content { data: "1".into(), ..Content::default() };
            ring.append(Arc::new(Publication::encode("c", &content, Some(place))), size, 100 + offset);
        }
        ring
    }

    fn offsets(results: &[Arc<Publication>]) -> Vec<u64> {
        results.iter().map(|p| p.offset.0).collect()
    }

    fn recover(ring: &HistoryRing, offset: u64, mode: RecoveryMode) -> Option<Vec<u64>> {
        let from = Recover {
            offset: Offset(offset),
            epoch: ring.epoch.as_str().into(),
            mode,
            limit: 300,
            size_max: usize::MAX,
        };
        ring.recover(&from).map(|results| offsets(&results))
    }

    #[test]
    fn a_client_gets_exactly_what_it_missed_or_nothing() {
        let ring = ring(10, 5);
        let cases = [
            (10, Some(vec![])),
            (9, Some(vec![10])),
            (5, Some(vec![6, 7, 8, 9, 10])),
            (4, None),
            (0, None),
            (11, None),
        ];
        for (offset, expected) in cases {
            assert_eq!(recover(&ring, offset, RecoveryMode::Stream), expected, "from {offset}");
        }
    }

    #[test]
    fn another_epoch_is_not_recovered_and_an_empty_one_is() {
        let ring = ring(3, 5);
        let from = |epoch: &str| Recover {
            offset: Offset(1),
            epoch: epoch.into(),
            mode: RecoveryMode::Stream,
            limit: 300,
            size_max: usize::MAX,
        };
        assert!(ring.recover(&from("other")).is_none());
        assert_eq!(ring.recover(&from("")).map(|f| f.len()), Some(2));
    }

    #[test]
    fn a_position_is_good_within_the_run_that_gave_it() {
        // Runs 1, 2 and 4 assigned offsets from 1, 4 and 8 on, run 3 assigned none. Run 9 belongs to a state that is
        // lost.
        let channel = Epoch::from_bits(1);
        let mut ring = ring(10, 20);
        ring.epoch = channel.in_run(RunId(4));
        ring.set_runs(runs(&[1, 2, 3, 4].map(|number| (number, number)), &[(1, 1), (2, 4), (4, 8)]));
        let ends = [(1, Some(3)), (2, Some(7)), (3, Some(7)), (4, Some(10)), (9, None)];
        for (run, end) in ends {
            for offset in 0..=11 {
                let from = Recover {
                    offset: Offset(offset),
                    epoch: channel.in_run(RunId(run)).as_str().into(),
                    mode: RecoveryMode::Stream,
                    limit: 300,
                    size_max: usize::MAX,
                };
                let expected = end.filter(|end| offset <= *end).map(|_| (offset + 1..=10).collect::<Vec<_>>());
                assert_eq!(
                    ring.recover(&from).map(|results| offsets(&results)),
                    expected,
                    "offset {offset} of run {run}"
                );
                let ahead = match run {
                    9 => Some(0),
                    4 if offset == 11 => Some(11),
                    _ => None,
                };
                assert_eq!(ring.ahead(Offset(offset), &from.epoch), ahead.map(Offset), "offset {offset} of run {run}");
            }
        }
        assert!(
            !ring.is_position(Offset(1), channel.as_str()),
            "a position without a run is of another kind of channel"
        );
        assert!(
            !ring.is_position(Offset(1), Epoch::from_bits(2).in_run(RunId(4)).as_str()),
            "another epoch of the channel"
        );
    }

    #[test]
    fn more_than_the_limit_is_not_recovered() {
        let ring = ring(10, 10);
        let from = |limit| Recover {
            offset: Offset(5),
            epoch: "".into(),
            mode: RecoveryMode::Stream,
            limit,
            size_max: usize::MAX,
        };
        assert!(ring.recover(&from(4)).is_none());
        assert!(ring.recover(&from(5)).is_some());
    }

    #[test]
    fn cache_mode_gives_the_latest_unless_the_client_has_it() {
        let mut ring = ring(3, 5);
        assert_eq!(recover(&ring, 0, RecoveryMode::Cache), Some(vec![3]));
        assert_eq!(recover(&ring, 3, RecoveryMode::Cache), Some(vec![]));
        ring.clear();
        assert_eq!(recover(&ring, 3, RecoveryMode::Cache), Some(vec![]));
        assert_eq!(recover(&ring, 2, RecoveryMode::Cache), None);
    }

    #[test]
    fn history_is_read_forward_and_backward_from_any_offset() {
        let ring = ring(10, 5);
        let cases: &[(Option<u64>, bool, usize, &[u64])] = &[
            (None, false, 100, &[6, 7, 8, 9, 10]),
            (None, false, 2, &[6, 7]),
            (None, true, 2, &[10, 9]),
            (Some(8), false, 100, &[9, 10]),
            (Some(8), true, 100, &[7, 6]),
            (Some(0), false, 1, &[6]),
            (Some(99), false, 9, &[]),
            (Some(99), true, 1, &[10]),
            (Some(6), true, 9, &[]),
        ];
        for (since, reverse, limit, expected) in cases {
            assert_eq!(
                offsets(&ring.read(since.map(Offset), *reverse, *limit, usize::MAX)),
                *expected,
                "{since:?} {reverse} {limit}"
            );
        }
    }

    #[test]
    fn what_expires_goes_and_the_top_stays() {
        let mut ring = ring(4, 5);
        ring.trim(102);
        assert_eq!(offsets(&ring.read(None, false, 9, usize::MAX)), [3, 4]);
        ring.trim(1_000);
        assert_eq!(ring.position().offset, Offset(4));
        assert_eq!(recover(&ring, 4, RecoveryMode::Stream), Some(vec![]));
        assert_eq!(recover(&ring, 3, RecoveryMode::Stream), None);
    }

    #[test]
    fn a_ring_holds_its_size_and_knows_what_is_missing() {
        let full = ring(5, 5);
        assert_eq!((full.floor.0, offsets(&full.read(None, false, 9, usize::MAX))), (0, vec![1, 2, 3, 4, 5]));
        let over = ring(6, 5);
        assert_eq!((over.floor.0, offsets(&over.read(None, false, 9, usize::MAX))), (1, vec![2, 3, 4, 5, 6]));
        let none = ring(3, 0);
        assert_eq!(offsets(&none.read(None, false, 9, usize::MAX)), [3], "the last one is always there");
        assert_eq!(over.next_offset(), Offset(7));
    }

    #[test]
    fn a_publication_goes_at_its_time() {
        // The publications expire at 101, 102 and 103.
        let mut ring = ring(3, 5);
        assert_eq!(ring.next_expiry_ms(), Some(101));
        for (now_ms, next_ms, floor) in [(100, Some(101), 0), (101, Some(102), 1), (102, Some(103), 2), (103, None, 3)]
        {
            ring.trim(now_ms);
            assert_eq!(
                (ring.next_expiry_ms(), ring.floor.0, ring.position().offset.0),
                (next_ms, floor, 3),
                "{now_ms}"
            );
        }
    }

    #[test]
    fn a_top_is_raised_and_never_lowered() {
        let mut ring = ring(3, 5);
        for (top, expected) in [(2, 3), (3, 3), (9, 9), (4, 9)] {
            ring.raise(Offset(top));
            assert_eq!(ring.position().offset, Offset(expected));
        }
        ring.clear();
        assert_eq!((ring.floor.0, ring.position().offset.0, ring.next_expiry_ms()), (9, 9, None));
        for (until, offset, floor, top) in [(5, 8, 9, 9), (9, 11, 9, 11), (10, 11, 10, 11)] {
            ring.clear_at(Offset(until), Offset(offset));
            assert_eq!((ring.floor.0, ring.position().offset.0), (floor, top));
        }
    }

    #[test]
    fn bytes_of_what_is_recovered_or_read_are_bounded() {
        let ring = ring(4, 5);
        let size = ring.kept[0].publication.size();
        let recover = |size_max| {
            ring.recover(&Recover {
                offset: Offset(1),
                epoch: "".into(),
                mode: RecoveryMode::Stream,
                limit: 3,
                size_max,
            })
            .map(|results| results.len())
        };
        let (all, last) = (
            ring.kept.iter().skip(1).map(|kept| kept.publication.size()).sum::<usize>(),
            ring.kept[3].publication.size(),
        );
        assert_eq!((recover(all), recover(all - 1)), (Some(3), None));
        assert!(last <= size, "the first one carries the epoch");
        let read = |size_max| offsets(&ring.read(Some(Offset(1)), false, 9, size_max));
        assert_eq!((read(2 * last), read(2 * last - 1), read(0)), (vec![2, 3], vec![2], vec![2]));
        assert_eq!(offsets(&ring.read(Some(Offset(4)), false, 9, 0)), [0; 0], "there is none");
    }

    #[test]
    fn dropped_publications_end_at_the_floor() {
        let ring = ring(8, 5);
        for (offset, has_dropped) in [(0, true), (2, true), (3, true), (4, false), (8, false)] {
            assert_eq!(ring.has_dropped(Offset(offset)), has_dropped, "{offset}");
            assert_eq!(
                ring.get(Offset(offset)).map(|publication| publication.offset.0),
                Some(offset).filter(|offset| *offset > 3),
                "{offset}"
            );
        }
        assert_eq!((ring.newest(), ring.proof()), (Some(Offset(8)), Offset(7)));
        let mut empty = ring;
        empty.clear();
        assert_eq!((empty.newest(), empty.proof()), (None, Offset(8)));
    }

    #[test]
    fn what_is_ahead_may_come_and_anything_else_never_does() {
        let ring = ring(3, 5);
        let epoch = ring.epoch.as_str().to_owned();
        for (offset, of, expected) in
            [(3, "", None), (4, "", Some(4)), (3, &*epoch, None), (4, &*epoch, Some(4)), (4, "other", None)]
        {
            assert_eq!(ring.ahead(Offset(offset), of), expected.map(Offset), "{offset} of {of}");
        }
        // A run that is not known here may have begun a moment ago, at any offset.
        assert_eq!(ring.ahead(Offset(1), Epoch::from_bits(1).in_run(RunId(9)).as_str()), Some(Offset(0)));
        let mut ring = ring;
        ring.epoch = Epoch::from_bits(1).in_run(RunId(4));
        for (run, offset, expected) in [(4, 3, None), (4, 4, Some(4)), (9, 4, Some(0))] {
            let ahead = ring.ahead(Offset(offset), Epoch::from_bits(1).in_run(RunId(run)).as_str());
            assert_eq!(ahead, expected.map(Offset), "{offset} of run {run}");
        }
    }
}
