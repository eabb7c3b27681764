//! The failed entries of one source that are retried: since when they fail, and when each is due. The code is pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::backoff;
use super::outcome::EntryOutcome;
use crate::runtime::consumer_metrics::RetriedEntries;

/// An entry that has failed.
#[derive(Debug)]
struct FailedEntry {
    failures: u32,
    since: Instant,
    due: Instant,
    cause: String,
}

/// The failed entries of a partition or a stream, by their numbers. There are at most as many as the source delivers in
/// one turn.
#[derive(Debug, Default)]
pub(super) struct RetriedHeads(BTreeMap<u64, FailedEntry>);

impl RetriedHeads {
    /// Whether an entry has failed and is not due yet.
    pub(super) fn rests(&self, entry: u64, now: Instant) -> bool {
        self.0.get(&entry).is_some_and(|failed| now < failed.due)
    }

    /// Takes the outcomes of all entries of a turn, and forgets all other entries. `random`: any numbers.
    pub(super) fn settle<'a>(
        &mut self,
        turn: impl Iterator<Item = (u64, &'a EntryOutcome)>,
        now: Instant,
        mut random: impl FnMut() -> u64,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for (entry, outcome) in turn {
            let known = before.remove(&entry);
            let failed = match (outcome, known) {
                (EntryOutcome::Retry(cause), known) => {
                    let failures = known.as_ref().map_or(0, |known| known.failures).saturating_add(1);
                    let since = known.map_or(now, |known| known.since);
                    FailedEntry { failures, since, due: now + backoff::delay(failures, random()), cause: cause.clone() }
                }
                (EntryOutcome::Waiting, Some(known)) => known,
                _ => continue,
            };
            self.0.insert(entry, failed);
        }
    }

    /// Returns how long no entry is due; None = no entry has failed.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        self.0.values().map(|failed| failed.due.saturating_duration_since(now)).min()
    }

    /// Returns what the metrics show; None = no entry has failed.
    pub(super) fn told(&self) -> Option<RetriedEntries> {
        let oldest = self.0.values().min_by_key(|failed| failed.since)?;
        Some(RetriedEntries { number: self.0.len(), since: oldest.since, cause: oldest.cause.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_rests_longer_each_time_and_keeps_the_time_of_its_first_failure() {
        let (mut heads, began) = (RetriedHeads::default(), Instant::now());
        let retry = EntryOutcome::Retry("later".to_owned());
        let ms = |number| began + Duration::from_millis(number);
        heads.settle([(1, &retry), (2, &EntryOutcome::Waiting), (3, &retry)].into_iter(), began, || 0);
        assert_eq!([1, 2, 3].map(|entry| heads.rests(entry, ms(9))), [true, false, true]);
        assert!(!heads.rests(1, ms(10)));
        heads.settle([(1, &retry), (2, &EntryOutcome::Waiting), (3, &EntryOutcome::Done)].into_iter(), ms(10), || 0);
        heads.settle([(1, &retry)].into_iter(), ms(30), || 0);
        assert_eq!(heads.pause(ms(30)), Some(Duration::from_millis(40)));
        // An entry that waits, because it is not due or follows another one, does not change.
        heads.settle([(1, &EntryOutcome::Waiting)].into_iter(), ms(35), || 0);
        assert_eq!(heads.pause(ms(35)), Some(Duration::from_millis(35)));
        let told = heads.told().expect("one has failed");
        assert_eq!((told.number, told.since, told.cause.as_str()), (1, began, "later"));
        heads.settle(std::iter::empty(), ms(36), || 0);
        assert!(heads.told().is_none() && heads.pause(ms(36)).is_none());
    }
}
