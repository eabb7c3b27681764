//! An index of entries by name for one writer and any number of readers: open addressing with linear probing. A tag
//! byte for each slot rejects most other names without reading their entries. So a lookup touches two or three cache
//! lines: the tag, the slot and the entry.
//!
//! Readers take no lock and never wait. Memory that they may still read is freed later, by [`seize`] (Hyaline; Nikolaev
//! and Ravindran, 2019). With a general concurrent map and matching entries, a lookup took one and a half times as
//! long, and a name 245 bytes instead of 189.

#![expect(unsafe_code, reason = "readers share pointers with the writer: each block states why it is safe")]

use std::hash::BuildHasher;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU8};

use seize::{Collector, Guard};

use crate::entry::Entry;
use crate::hash_seed::FoldState;

/// The tag of a slot that was never used: a search ends here.
const FREE: u8 = 0;
/// The tag of a slot that is no longer used: a search continues.
const DEAD: u8 = 1;
/// The number of slots of an empty index.
const SMALLEST: usize = 16;
// The low bits of a hash choose the slot.
const _: () = assert!(SMALLEST.is_power_of_two());

/// The slots of one table size. The length is a power of two, and at least an eighth of the slots is free, so that
/// every search ends.
#[derive(Debug)]
struct Slots {
    tags: Box<[AtomicU8]>,
    /// Entries as raw pointers that this index owns. Null = the slot is empty.
    entries: Box<[AtomicPtr<()>]>,
}

impl Slots {
    fn new(length: usize) -> Self {
        Slots {
            tags: (0..length).map(|_| AtomicU8::new(FREE)).collect(),
            entries: (0..length).map(|_| AtomicPtr::new(null_mut())).collect(),
        }
    }

    /// The slots at which a name may be, in search order. The iterator is endless.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> {
        let mask = self.tags.len() - 1;
        (0..).map(move |step| (hash as usize).wrapping_add(step) & mask)
    }
}

/// The tag of a hash: bits that do not choose the slot, so that they distinguish most names.
fn tag(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(DEAD + 1)
}

/// The index as readers see it.
#[derive(Debug)]
pub(super) struct Index {
    hasher: FoldState,
    slots: AtomicPtr<Slots>,
    collector: Collector,
}

impl Index {
    /// Looks up a name. `None` = the name is not in the index.
    pub(super) fn read<T>(&self, name: &str, read: impl FnOnce(&Entry) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(name.as_bytes());
        let guard = self.collector.enter();
        // SAFETY: never null; slots that were replaced are retired, so they live as long as this guard.
        let slots = unsafe { &*guard.protect(&self.slots, Acquire) };
        for place in slots.places(hash) {
            let found = slots.tags[place].load(Acquire);
            if found == FREE {
                return None;
            }
            let raw = guard.protect(&slots.entries[place], Acquire);
            if found != tag(hash) || raw.is_null() {
                continue;
            }
            // SAFETY: the index owns the entry in a slot, and retires it when it is removed, so it lives as long as
            // this guard. Without the drop, nothing is freed that this function does not own.
            let entry = std::mem::ManuallyDrop::new(unsafe { Entry::from_raw(raw) });
            if entry.key_bytes() == name.as_bytes() {
                return Some(read(&entry));
            }
        }
        None
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // SAFETY: nothing else has the index any more, and the slots were made by `Box::into_raw`.
        let slots = unsafe { Box::from_raw(*self.slots.get_mut()) };
        for raw in slots.entries.iter().map(|entry| entry.load(Relaxed)).filter(|raw| !raw.is_null()) {
            // SAFETY: the index owns the entries in its slots, each once.
            drop(unsafe { Entry::from_raw(raw) });
        }
    }
}

/// The writer of an index. Each index has exactly one writer, which cannot be cloned.
#[derive(Debug)]
pub(super) struct IndexWriter {
    index: Arc<Index>,
    live: usize,
    /// The number of slots that are not free.
    used: usize,
}

impl IndexWriter {
    pub(super) fn new(hasher: FoldState) -> Self {
        let slots = AtomicPtr::new(Box::into_raw(Box::new(Slots::new(SMALLEST))));
        let index = Index { hasher, slots, collector: Collector::new() };
        IndexWriter { index: Arc::new(index), live: 0, used: 0 }
    }

    pub(super) fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The number of names in the index.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Inserts an entry, or replaces the entry of the same name.
    pub(super) fn put(&mut self, entry: Entry) {
        let hash = self.index.hasher.hash_one(entry.key_bytes());
        match self.find(hash, entry.key_bytes()) {
            Ok(place) => {
                let old = self.slots().entries[place].swap(entry.into_raw(), Release);
                self.retire(old);
            }
            Err(place) => {
                let slots = self.slots();
                let was_free = slots.tags[place].load(Relaxed) == FREE;
                // The entry first: a reader that sees the tag must find the entry.
                slots.entries[place].store(entry.into_raw(), Release);
                slots.tags[place].store(tag(hash), Release);
                self.live += 1;
                self.used += usize::from(was_free);
                if self.used > self.slots().tags.len() / 8 * 7 {
                    self.resize();
                }
            }
        }
    }

    /// Removes a name if it is in the index.
    pub(super) fn remove(&mut self, name: &str) {
        let hash = self.index.hasher.hash_one(name.as_bytes());
        let Ok(place) = self.find(hash, name.as_bytes()) else { return };
        let slots = self.slots();
        slots.tags[place].store(DEAD, Release);
        let old = slots.entries[place].swap(null_mut(), Release);
        self.live -= 1;
        self.retire(old);
        // Few names in many slots: the memory is freed.
        if self.live < self.slots().tags.len() / 8 && self.slots().tags.len() > SMALLEST {
            self.resize();
        }
    }

    fn slots(&self) -> &Slots {
        // SAFETY: never null, and only this writer replaces it, which needs `&mut self`.
        unsafe { &*self.index.slots.load(Relaxed) }
    }

    /// The slot of a name (`Ok`), or the first free slot for it (`Err`).
    fn find(&self, hash: u64, name: &[u8]) -> Result<usize, usize> {
        let slots = self.slots();
        let mut vacant = None;
        for place in slots.places(hash) {
            let found = slots.tags[place].load(Relaxed);
            if found == FREE {
                return Err(vacant.unwrap_or(place));
            }
            if found == DEAD {
                vacant = vacant.or(Some(place));
            } else if found == tag(hash) {
                // SAFETY: the index owns the entry, and only this writer removes it.
                let entry = std::mem::ManuallyDrop::new(unsafe { Entry::from_raw(slots.entries[place].load(Relaxed)) });
                if entry.key_bytes() == name {
                    return Ok(place);
                }
            }
        }
        // Not reached, because there is always a free slot.
        Err(0)
    }

    /// Moves all entries into a table that fits them: between a quarter and half of its slots are then used.
    fn resize(&mut self) {
        let new = Slots::new((self.live * 2).next_power_of_two().max(SMALLEST));
        let old = self.slots();
        for raw in old.entries.iter().map(|entry| entry.load(Relaxed)).filter(|raw| !raw.is_null()) {
            // SAFETY: the index owns the entry. It stays in the old slots for readers that still use them, and is
            // retired once, from the new slots.
            let entry = std::mem::ManuallyDrop::new(unsafe { Entry::from_raw(raw) });
            let hash = self.index.hasher.hash_one(entry.key_bytes());
            let free = new.places(hash).find(|place| new.tags[*place].load(Relaxed) == FREE);
            if let Some(place) = free {
                new.entries[place].store(raw, Relaxed);
                new.tags[place].store(tag(hash), Relaxed);
            }
        }
        self.used = self.live;
        let old = self.index.slots.swap(Box::into_raw(Box::new(new)), Release);
        // SAFETY: a reader that enters from now on cannot see the old slots, and they were made by `Box::into_raw`. A
        // reader of the old slots entered before, so entries that are retired later outlive its guard too.
        unsafe { self.index.collector.retire(old, |old, _| drop(Box::from_raw(old))) };
    }

    fn retire(&self, raw: *mut ()) {
        // SAFETY: the entry was just removed from its slot, and is retired once.
        unsafe { self.index.collector.retire(raw, |raw, _| drop(Entry::from_raw(raw))) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::Stamp;
    use crate::entry::NodeName;
    use crate::hash_seed::HashSeed;
    use crate::owners::OwnerId;

    fn entry(name: &str, stamp: u64) -> Entry {
        Entry::new(&NodeName::new("here"), OwnerId([0; 16]), Stamp(stamp), 0, name, b"meta")
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0..200u32, prop::bool::weighted(0.7)), 0..600)) {
            let mut writer = IndexWriter::new(HashSeed::repeatable(7).fold());
            let mut model = BTreeMap::new();
            for (stamp, (name, is_put)) in (0..).zip(steps) {
                let name = name.to_string();
                let before = writer.slots().tags.len();
                if is_put {
                    writer.put(entry(&name, stamp));
                    model.insert(name, stamp);
                } else {
                    writer.remove(&name);
                    model.remove(&name);
                }
                prop_assert_eq!(writer.len(), model.len());
                let slots = writer.slots();
                let may_move = is_put || model.len() < before / 8;
                prop_assert!(may_move || slots.tags.len() == before, "few removals move everything");
                prop_assert!(slots.tags.len() <= (8 * model.len() + 7).max(SMALLEST), "few names have few slots");
                let free = slots.tags.iter().filter(|tag| tag.load(Relaxed) == FREE).count();
                prop_assert!(free * 8 >= slots.tags.len(), "every search ends soon");
            }
            for name in (0..201).map(|name: u32| name.to_string()) {
                prop_assert_eq!(writer.index().read(&name, |e| e.stamp().0), model.get(&name).copied());
            }
            // All names are removed one after the other, and the remaining ones are always found.
            while let Some((name, _)) = model.pop_last() {
                writer.remove(&name);
                prop_assert!(writer.slots().tags.len() <= (8 * model.len() + 7).max(SMALLEST));
                for (name, stamp) in &model {
                    prop_assert_eq!(writer.index().read(name, |e| e.stamp().0), Some(*stamp));
                }
            }
        }
    }

    #[test]
    fn a_reader_always_finds_what_is_always_there() {
        let mut writer = IndexWriter::new(HashSeed::repeatable(7).fold());
        (0..100).for_each(|name| writer.put(entry(&format!("stays-{name}"), 0)));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers = [0, 1].map(|_| {
                let index = Arc::clone(writer.index());
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut last, mut rounds) = (0, 0);
                    while !is_over.load(Relaxed) || rounds < 100 {
                        rounds += 1;
                        for name in 0..100 {
                            let found =
                                index.read(&format!("stays-{name}"), |e| (e.key().to_owned(), e.meta().to_vec()));
                            assert_eq!(found, Some((format!("stays-{name}"), b"meta".to_vec())));
                        }
                        let stamp = index.read("stays-0", |e| e.stamp().0).expect("it stays");
                        assert!(stamp >= last, "what was replaced came back");
                        last = stamp;
                    }
                })
            });
            for round in 1..200 {
                (0..500).for_each(|name| writer.put(entry(&format!("goes-{name}"), 0)));
                writer.put(entry("stays-0", round));
                (0..500).for_each(|name| writer.remove(&format!("goes-{name}")));
            }
            is_over.store(true, Relaxed);
            readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
        });
        assert_eq!(writer.len(), 100);
    }
}
