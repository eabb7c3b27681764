//! A table with a limited number of entries, each of which becomes useless at a certain time. If there are too many,
//! the one that becomes useless first is forgotten.
//!
//! It is written by hand because caches (`lru`, `quick_cache`, `moka`) forget by use, or after the same time for all
//! entries.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use touchline_registry::{FoldState, HashSeed, spare_capacity};

/// How many useless entries are dropped with each change. It is more than one, so that a table shrinks when its entries
/// become useless.
const DROPPED: usize = 2;

/// Values by key, each with the time from which on it can be forgotten without a loss.
#[derive(Debug)]
pub struct DueTable<V> {
    entries_max: usize,
    by_key: HashMap<u128, (u64, V), FoldState>,
    /// The same keys, ordered by their times.
    by_due: BTreeSet<(u64, u128)>,
}

impl<V: Default> DueTable<V> {
    /// An empty table for at most `entries_max` entries, and at least one.
    pub fn new(entries_max: usize, seed: HashSeed) -> Self {
        DueTable { entries_max: entries_max.max(1), by_key: HashMap::with_hasher(seed.fold()), by_due: BTreeSet::new() }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The value of a key; `None` = the key is not in the table.
    pub fn get(&self, key: u128) -> Option<&V> {
        self.by_key.get(&key).map(|(_, value)| value)
    }

    /// The values of all keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.by_key.values().map(|(_, value)| value)
    }

    /// Changes the value of a key; a new key begins with the default value. `change` also returns the time from which
    /// on the value is useless. A value that is useless already is not kept.
    pub fn change<T>(&mut self, key: u128, now: u64, change: impl FnOnce(&mut V) -> (T, u64)) -> T {
        self.drop_useless(now);
        let Some((due, value)) = self.by_key.get_mut(&key) else {
            let mut value = V::default();
            let (outcome, due) = change(&mut value);
            if due > now {
                self.make_room();
                self.by_key.insert(key, (due, value));
                self.by_due.insert((due, key));
            }
            return outcome;
        };
        let (outcome, new_due) = change(value);
        let old_due = std::mem::replace(due, new_due);
        if new_due <= now {
            self.forget(key);
        }
        if new_due != old_due || new_due <= now {
            self.by_due.remove(&(old_due, key));
            if new_due > now {
                self.by_due.insert((new_due, key));
            }
        }
        outcome
    }

    fn drop_useless(&mut self, now: u64) {
        for _ in 0..DROPPED {
            if self.by_due.first().is_some_and(|(due, _)| *due <= now) {
                self.drop_first();
            }
        }
    }

    fn make_room(&mut self) {
        while self.len() >= self.entries_max {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some((_, key)) = self.by_due.pop_first() {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: u128) {
        self.by_key.remove(&key);
        if let Some(capacity) = spare_capacity(self.by_key.len(), self.by_key.capacity()) {
            self.by_key.shrink_to(capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_that_have_become_useless_go_before_the_table_is_full() {
        let mut table = DueTable::<u64>::new(1_000, HashSeed::repeatable(7));
        (0..100).for_each(|key| table.change(key, 0, |_| ((), 1)));
        assert_eq!(table.len(), 100);
        (100..150).for_each(|key| table.change(key, 1, |_| ((), 2)));
        assert_eq!(table.len(), 50);
    }

    proptest! {
        /// Compares the table with a list: only useful entries are kept, and if there are too many, those useful the
        /// longest.
        #[test]
        fn it_holds_what_is_of_use_the_longest(
            entries_max in 1_usize..20,
            steps in prop::collection::vec((0_u128..40, 0_u64..60, 0_u64..3), 0..400),
        ) {
            let mut table = DueTable::<u64>::new(entries_max, HashSeed::repeatable(7));
            let mut known: Vec<(u64, u128, u64)> = Vec::new();
            let mut now = 0;
            for (key, lasts, passes) in steps {
                now += passes;
                let due = now + lasts;
                let value = table.change(key, now, |value| {
                    *value += 1;
                    (*value, due)
                });
                known.sort_unstable();
                for _ in 0..DROPPED {
                    if known.first().is_some_and(|(due, ..)| *due <= now) {
                        known.remove(0);
                    }
                }
                let before = known.iter().position(|(_, known, _)| *known == key).map(|index| known.remove(index).2);
                prop_assert_eq!(value, before.unwrap_or_default() + 1);
                if due > now {
                    if before.is_none() && known.len() >= entries_max {
                        known.remove(0);
                    }
                    known.push((due, key, value));
                }
                prop_assert_eq!(table.len(), known.len());
                prop_assert_eq!(table.by_due.len(), known.len());
                for (_, key, value) in &known {
                    prop_assert_eq!(table.get(*key), Some(value));
                }
            }
        }
    }
}
