//! A page of names in their order, built from names in no order. It keeps the first ones of those that it is offered.

use std::collections::BTreeMap;

use touchline_registry::Entry;

/// A page of names that is being filled.
#[derive(Debug)]
pub(super) struct NamePage {
    after: Box<str>,
    prefix: Box<str>,
    limit: usize,
    /// The first names: one more than the page holds, to show whether there are more.
    first: BTreeMap<Box<str>, Entry>,
}

impl NamePage {
    /// An empty page for names after `after` that begin with `prefix`.
    pub(super) fn new(after: Box<str>, prefix: Box<str>, limit: usize) -> Self {
        NamePage { after, prefix, limit, first: BTreeMap::new() }
    }

    /// Adds an entry if its name is among the first ones. If a name is offered twice, the later entry is kept.
    pub(super) fn offer(&mut self, entry: &Entry) {
        let key = entry.key();
        if key <= &*self.after || !key.starts_with(&*self.prefix) {
            return;
        }
        let is_full = self.first.len() > self.limit;
        if is_full && self.first.last_key_value().is_some_and(|(last, _)| key > &**last) {
            return;
        }
        self.first.insert(key.into(), entry.clone());
        if self.first.len() > self.limit + 1 {
            self.first.pop_last();
        }
    }

    /// The entries of the page so far.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.first.values().take(self.limit)
    }

    /// Returns the page, and whether there are names after it.
    pub(super) fn finish(mut self) -> (Vec<Entry>, bool) {
        let has_more = self.first.len() > self.limit;
        if has_more {
            self.first.pop_last();
        }
        (self.first.into_values().collect(), has_more)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use touchline_registry::{HashSeed, OwnerId, Replica, ReplicaSettings};

    use super::*;

    fn entries(names: &BTreeSet<String>) -> Vec<Entry> {
        let mut replica = Replica::new("here", 1, ReplicaSettings::default(), HashSeed::repeatable(7), 1_000);
        for (number, name) in (0..).zip(names) {
            let owner = OwnerId(u128::to_be_bytes(number));
            assert!(replica.register(owner, name, b"", false, 1_000).is_ok());
        }
        replica.names("", 0, usize::MAX).0
    }

    proptest! {
        /// Reads the pages of a list whose names change between pages: a name that stays appears once, in order.
        #[test]
        fn pages_by_last_name_tell_what_stays_once_and_in_order(
            stays in prop::collection::btree_set("[ab]{1,4}", 0..30),
            others in prop::collection::vec(prop::collection::btree_set("[ab]{1,4}", 0..20), 1..5),
            prefix in "[ab]{0,2}",
            limit in 1..8_usize,
        ) {
            let (mut told, mut after): (Vec<String>, Box<str>) = (Vec::new(), Box::default());
            for others in others.iter().cycle() {
                let mut offered = entries(&stays.union(others).cloned().collect());
                // The names are offered in another order, and some of them twice.
                offered.reverse();
                offered.extend(offered.clone().into_iter().step_by(3));
                let mut page = NamePage::new(after.clone(), prefix.as_str().into(), limit);
                offered.iter().for_each(|entry| page.offer(entry));
                let (names, has_more) = page.finish();
                prop_assert!(names.len() <= limit && (!has_more || names.len() == limit));
                told.extend(names.iter().map(|entry| entry.key().to_owned()));
                match names.last().filter(|_| has_more) {
                    Some(last) => after = last.key().into(),
                    None => break,
                }
            }
            prop_assert!(told.is_sorted_by(|a, b| a < b), "{:?}", told);
            let of_prefix = |name: &&String| name.starts_with(&prefix);
            let missed: Vec<&String> = stays.iter().filter(of_prefix).filter(|name| !told.contains(name)).collect();
            prop_assert!(missed.is_empty(), "{:?}", missed);
            prop_assert!(told.iter().all(|name| name.starts_with(&prefix)));
        }
    }
}
