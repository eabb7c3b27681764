//! The data for lookups: the owner of each name. Any thread may read it, without a lock and while it changes.

mod index;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::entry::Entry;
use crate::hash_seed::FoldState;
use index::{Index, IndexWriter};

/// A view of the names of a scope. Clones share the same names.
#[derive(Debug, Clone)]
pub struct View {
    names: Arc<Index>,
    counts: Arc<ScopeCounts>,
}

#[derive(Debug, Default)]
struct ScopeCounts {
    names: AtomicU64,
    members: AtomicU64,
    groups: AtomicU64,
}

impl View {
    /// The entry of a name's owner, as far as this node knows. `None` = the name is free.
    pub fn lookup(&self, name: &str) -> Option<Entry> {
        self.read(name, Entry::clone)
    }

    /// Like [`View::lookup`], without cloning the entry: `read` gets a reference. So threads with many lookups do not
    /// contend with each other.
    pub fn read<T>(&self, name: &str, read: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.names.read(name, read)
    }

    /// The number of names with an owner.
    pub fn names(&self) -> u64 {
        self.counts.names.load(Relaxed)
    }

    /// The number of memberships of all groups.
    pub fn members(&self) -> u64 {
        self.counts.members.load(Relaxed)
    }

    /// The number of groups with members.
    pub fn groups(&self) -> u64 {
        self.counts.groups.load(Relaxed)
    }
}

/// The writer of the data that views show.
#[derive(Debug)]
pub(crate) struct ViewWriter {
    names: IndexWriter,
    view: View,
}

impl ViewWriter {
    pub(crate) fn new(hasher: FoldState) -> Self {
        let names = IndexWriter::new(hasher);
        let view = View { names: Arc::clone(names.index()), counts: Arc::default() };
        ViewWriter { names, view }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Shows an entry as the owner of its name.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.names.put(entry);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    pub(crate) fn count(&self, members: usize, groups: usize) {
        let counts = &self.view.counts;
        counts.names.store(self.names.len() as u64, Relaxed);
        counts.members.store(members as u64, Relaxed);
        counts.groups.store(groups as u64, Relaxed);
    }
}
