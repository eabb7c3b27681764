//! A table with a bounded number of entries: of more, the one that was used the longest time ago is forgotten.
//!
//! By hand: `lru` and `quick_cache` do not drop entries that have become useless before the table is full.

use hashbrown::HashMap;
use touchline_registry::{FoldState, HashSeed};

/// The number that stands for no entry.
const NONE: u32 = u32::MAX;
/// Entries that have become useless and are dropped for each new one, the oldest first. More than one, so that a table
/// whose entries become useless shrinks.
const DROPPED: usize = 2;

/// Values by key, in the order of their last use.
#[derive(Debug)]
pub struct RecentTable<V> {
    entries_max: usize,
    by_key: HashMap<u128, u32, FoldState>,
    entries: Vec<RecentEntry<V>>,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct RecentEntry<V> {
    key: u128,
    value: V,
    newer: u32,
    older: u32,
}

impl<V: Default> RecentTable<V> {
    /// An empty table of at most `entries_max` entries, and at least one.
    pub fn new(entries_max: usize, seed: HashSeed) -> Self {
        let entries_max = entries_max.clamp(1, NONE as usize);
        let by_key = HashMap::with_hasher(seed.fold());
        RecentTable { entries_max, by_key, entries: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key. This is no use of it.
    pub fn get(&self, key: u128) -> Option<&V> {
        self.by_key.get(&key).map(|index| &self.entries[*index as usize].value)
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// The value of a key, the default one if the key is new; it is the newest from now on. `is_useless`: whether
    /// nothing is lost if a value is forgotten.
    pub fn use_or_insert(&mut self, key: u128, is_useless: impl Fn(&V) -> bool) -> &mut V {
        let index = match self.by_key.get(&key) {
            Some(index) => {
                let index = *index;
                self.unlink(index);
                index
            }
            None => {
                self.make_room(is_useless);
                let index = self.entries.len() as u32;
                self.entries.push(RecentEntry { key, value: V::default(), newer: NONE, older: NONE });
                self.by_key.insert(key, index);
                index
            }
        };
        self.link_newest(index);
        &mut self.entries[index as usize].value
    }

    fn make_room(&mut self, is_useless: impl Fn(&V) -> bool) {
        for _ in 0..DROPPED {
            if self.oldest != NONE && is_useless(&self.entries[self.oldest as usize].value) {
                self.drop_oldest();
            }
        }
        while self.entries.len() >= self.entries_max {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let index = self.oldest;
        self.unlink(index);
        let dropped = self.entries.swap_remove(index as usize);
        self.by_key.remove(&dropped.key);
        // The last entry has moved to the free place.
        if let Some(moved) = self.entries.get(index as usize) {
            let (key, newer, older) = (moved.key, moved.newer, moved.older);
            self.by_key.insert(key, index);
            self.set_older_of(newer, index);
            self.set_newer_of(older, index);
        }
    }

    fn unlink(&mut self, index: u32) {
        let RecentEntry { newer, older, .. } = self.entries[index as usize];
        self.set_older_of(newer, older);
        self.set_newer_of(older, newer);
    }

    fn link_newest(&mut self, index: u32) {
        let before = self.newest;
        let entry = &mut self.entries[index as usize];
        (entry.newer, entry.older) = (NONE, before);
        self.newest = index;
        self.set_newer_of(before, index);
    }

    /// Makes `older` the next older one of an entry; of none, it is the newest.
    fn set_older_of(&mut self, index: u32, older: u32) {
        match index {
            NONE => self.newest = older,
            index => self.entries[index as usize].older = older,
        }
    }

    /// Makes `newer` the next newer one of an entry; of none, it is the oldest.
    fn set_newer_of(&mut self, index: u32, newer: u32) {
        match index {
            NONE => self.oldest = newer,
            index => self.entries[index as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(entries_max: usize) -> RecentTable<u64> {
        RecentTable::new(entries_max, HashSeed::repeatable(7))
    }

    #[test]
    fn entries_that_have_become_useless_go_before_the_table_is_full() {
        let mut table = table(1_000);
        for key in 0..100 {
            *table.use_or_insert(key, |_| false) = 1;
        }
        for key in 100..200 {
            *table.use_or_insert(key, |_| true) = 1;
        }
        assert!(table.len() <= 2, "{}", table.len());
    }

    proptest! {
        /// Against a list in the order of use.
        #[test]
        fn it_holds_what_was_used_last(
            entries_max in 1_usize..20, uses in prop::collection::vec((0_u128..40, any::<bool>()), 0..400),
        ) {
            let mut table = table(entries_max);
            let mut known: Vec<(u128, u64)> = Vec::new();
            for (key, is_look) in uses {
                if is_look {
                    let expected = known.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
                    prop_assert_eq!(table.get(key), expected);
                    continue;
                }
                let value = table.use_or_insert(key, |_| false);
                *value += 1;
                let value = *value;
                let before = known.iter().position(|(known, _)| *known == key).map(|index| known.remove(index).1);
                prop_assert_eq!(value, before.unwrap_or_default() + 1);
                known.push((key, value));
                if known.len() > entries_max {
                    known.remove(0);
                }
                prop_assert_eq!(table.len(), known.len());
                prop_assert_eq!(table.by_key.len(), known.len());
            }
            let mut values: Vec<u64> = table.values().copied().collect();
            let mut expected: Vec<u64> = known.iter().map(|(_, value)| *value).collect();
            values.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(values, expected);
        }
    }
}
