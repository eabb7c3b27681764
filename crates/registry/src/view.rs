//! What lookups read: the owner that counts of each name. Any thread may read it, without a lock and while it changes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use papaya::Equivalent;

use crate::event::Entry;
use crate::record::Record;

/// A record as the key of its name.
#[derive(Debug, Clone)]
struct Named(Record);

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key_bytes().hash(state);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.key_bytes() == other.0.key_bytes()
    }
}

impl Eq for Named {}

#[derive(Hash)]
struct Name<'a>(&'a [u8]);

impl Equivalent<Named> for Name<'_> {
    fn equivalent(&self, key: &Named) -> bool {
        self.0 == key.0.key_bytes()
    }
}

/// A window on the names of a scope. Clones look at the same names.
#[derive(Debug, Clone, Default)]
pub struct View {
    names: Arc<papaya::HashMap<Named, Entry>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    names: AtomicU64,
    members: AtomicU64,
    groups: AtomicU64,
}

impl View {
    /// Who owns a name, as far as this node knows now.
    pub fn lookup(&self, name: &str) -> Option<Entry> {
        self.names.pin().get(&Name(name.as_bytes())).cloned()
    }

    /// Whether somebody owns a name.
    pub fn contains(&self, name: &str) -> bool {
        self.names.pin().contains_key(&Name(name.as_bytes()))
    }

    /// Names with an owner.
    pub fn names(&self) -> u64 {
        self.counts.names.load(Relaxed)
    }

    /// Memberships of all groups.
    pub fn members(&self) -> u64 {
        self.counts.members.load(Relaxed)
    }

    /// Groups with members.
    pub fn groups(&self) -> u64 {
        self.counts.groups.load(Relaxed)
    }

    pub(crate) fn put(&self, entry: Entry) {
        self.names.pin().insert(Named(entry.record.clone()), entry);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.names.pin().remove(&Name(name.as_bytes()));
    }

    pub(crate) fn count(&self, names: usize, members: usize, groups: usize) {
        self.counts.names.store(names as u64, Relaxed);
        self.counts.members.store(members as u64, Relaxed);
        self.counts.groups.store(groups as u64, Relaxed);
    }
}
