//! What a node holds, and what it has to write into the ledger next.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use indexmap::IndexMap;
use touchline_registry::{FoldState, HashSeed, spare_capacity};

use crate::events::StateKey;

/// The limits of a [`LedgerBook`].
#[derive(Debug, Clone, Copy)]
pub struct BookLimits {
    /// The greatest number of keys in a batch, and of notes in a batch.
    pub batch: usize,
    /// The greatest number of waiting notes and waiting key changes. If there are more of them, not counting what the
    /// node holds, the life ends. Outside a life, the oldest note is dropped instead.
    pub waiting: usize,
}

/// What has changed for a key at this node since the previous batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The channel or user that has changed.
    pub key: StateKey,
    /// Whether the node has held the key at some time since then.
    pub is_gained: bool,
    /// Whether the node holds the key now.
    pub is_held: bool,
}

/// Something that is reported as it is, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookNote<C, E> {
    /// A client has connected.
    Connected(Box<str>, Arc<C>),
    /// A client that was reported as connected is gone.
    Disconnected(Box<str>, Arc<C>, E),
    /// Anything else that has to be reported.
    Other(E),
}

/// The contents of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookBatch<C, E> {
    /// The number of the batch within its life, from 1. A batch that is sent again has the same number.
    pub number: u64,
    /// The changes of keys, each key once, in no order.
    pub keys: Vec<KeyChange>,
    /// The notes to report, in order.
    pub notes: Vec<BookNote<C, E>>,
}

#[derive(Debug, Clone, Copy)]
struct PendingChange {
    is_gained: bool,
    is_held: bool,
}

/// A life of the node in the ledger.
#[derive(Debug)]
struct Life<C, E> {
    /// The number of the last batch.
    number: u64,
    /// The batch whose result is not known; `None` = there is none.
    under_way: Option<Arc<BookBatch<C, E>>>,
    changes: IndexMap<StateKey, PendingChange, FoldState>,
}

/// What a node holds, and what it has to write into the ledger next. `C` describes a client, `E` what happened.
///
/// In a life, changes wait for their batch. Outside a life, only what the node holds is kept, and
/// [`BookLimits::waiting`] notes. So an unavailable database costs no more memory than that.
#[derive(Debug)]
pub struct LedgerBook<C, E> {
    limits: BookLimits,
    seed: HashSeed,
    keys: HashSet<StateKey, FoldState>,
    clients: HashMap<Box<str>, Arc<C>, FoldState>,
    notes: VecDeque<BookNote<C, E>>,
    life: Option<Life<C, E>>,
    dropped: u64,
}

impl<C, E: Clone> LedgerBook<C, E> {
    /// A book of a node that holds nothing and has not entered the ledger. `seed`: the seed for hashes of users and
    /// channels, which clients choose.
    pub fn new(limits: BookLimits, seed: HashSeed) -> Self {
        LedgerBook {
            limits,
            seed,
            keys: HashSet::with_hasher(seed.fold()),
            clients: HashMap::with_hasher(seed.fold()),
            notes: VecDeque::new(),
            life: None,
            dropped: 0,
        }
    }

    /// Notes that a channel got its first subscriber, or a user its first connection.
    pub fn hold(&mut self, key: StateKey) {
        if let Some(life) = &mut self.life {
            life.changes.insert(key.clone(), PendingChange { is_gained: true, is_held: true });
        }
        self.keys.insert(key);
        self.end_if_full();
    }

    /// Notes that a channel lost its last subscriber, or a user its last connection. Ignores a key that was not held.
    pub fn release(&mut self, key: &StateKey) {
        if !self.keys.remove(key) {
            return;
        }
        if let Some(capacity) = spare_capacity(self.keys.len(), self.keys.capacity()) {
            self.keys.shrink_to(capacity);
        }
        if let Some(life) = &mut self.life {
            let change = life.changes.entry(key.clone()).or_insert(PendingChange { is_gained: false, is_held: false });
            change.is_held = false;
        }
        self.end_if_full();
    }

    /// Notes that a client has connected.
    pub fn connect(&mut self, client: Box<str>, about: C) {
        let about = Arc::new(about);
        self.clients.insert(client.clone(), Arc::clone(&about));
        if self.life.is_some() {
            self.note(BookNote::Connected(client, about));
        }
    }

    /// Notes that a client is gone; `how` says why. Ignores an unknown client.
    pub fn disconnect(&mut self, client: &str, how: E) {
        let Some((client, about)) = self.clients.remove_entry(client) else { return };
        if let Some(capacity) = spare_capacity(self.clients.len(), self.clients.capacity()) {
            self.clients.shrink_to(capacity);
        }
        // Outside a life the client was not reported, or other nodes report its end.
        if self.life.is_some() {
            self.note(BookNote::Disconnected(client, about, how));
        }
    }

    /// Adds any other event. It also waits outside a life.
    pub fn tell(&mut self, what: E) {
        self.note(BookNote::Other(what));
    }

    fn note(&mut self, note: BookNote<C, E>) {
        self.notes.push_back(note);
        self.end_if_full();
        while self.life.is_none() && self.notes.len() > self.limits.waiting {
            self.notes.pop_front();
            self.dropped += 1;
        }
    }

    /// Ends a life that has more to write than may wait, not counting what the node holds. The next life begins with
    /// what the node holds then.
    fn end_if_full(&mut self) {
        let (keys, clients) = (self.keys.len() + self.limits.waiting, self.clients.len() + self.limits.waiting);
        let is_full = |life: &Life<C, E>| life.changes.len() > keys || self.notes.len() > clients;
        if self.life.as_ref().is_some_and(is_full) {
            self.dropped += 1;
            self.lapse();
        }
    }

    /// Whether the node holds a key.
    pub fn holds(&self, key: &StateKey) -> bool {
        self.keys.contains(key)
    }

    /// Whether the node is in a life. If not, it has to enter the ledger first.
    pub fn is_in(&self) -> bool {
        self.life.is_some()
    }

    /// Begins a life: everything that the node holds has to be written.
    pub fn enter(&mut self) {
        let held = PendingChange { is_gained: true, is_held: true };
        let mut changes = IndexMap::with_hasher(self.seed.fold());
        changes.extend(self.keys.iter().map(|key| (key.clone(), held)));
        self.life = Some(Life { number: 0, under_way: None, changes });
        for (client, about) in &self.clients {
            self.notes.push_front(BookNote::Connected(client.clone(), Arc::clone(about)));
        }
    }

    /// Ends the life. What it had not written is reported in another way: by the nodes that take over what it left
    /// behind, or by the next life.
    pub fn lapse(&mut self) {
        let Some(life) = self.life.take() else { return };
        let unknown = life.under_way.iter().flat_map(|batch| &batch.notes);
        let mut others: VecDeque<_> = unknown.filter_map(|note| note.other().map(BookNote::Other)).collect();
        others.extend(self.notes.drain(..).filter(|note| note.other().is_some()));
        self.notes = others;
    }

    /// The next batch to write: the one whose result is not known, or the changes since. `None` = there is nothing to
    /// write, or the node is not in a life.
    pub fn next_batch(&mut self) -> Option<Arc<BookBatch<C, E>>> {
        let limit = self.limits.batch;
        let life = self.life.as_mut()?;
        if life.under_way.is_none() && !(life.changes.is_empty() && self.notes.is_empty()) {
            let some = life.changes.len().min(limit);
            let keys = life.changes.drain(..some).map(|(key, PendingChange { is_gained, is_held })| KeyChange {
                key,
                is_gained,
                is_held,
            });
            life.number += 1;
            life.under_way = Some(Arc::new(BookBatch {
                number: life.number,
                keys: keys.collect(),
                notes: self.notes.drain(..self.notes.len().min(limit)).collect(),
            }));
        }
        life.under_way.clone()
    }

    /// Notes that the batch under way was written.
    pub fn written(&mut self) {
        if let Some(life) = &mut self.life {
            life.under_way = None;
        }
    }

    /// Whether everything that the node knows was written.
    pub fn is_settled(&self) -> bool {
        let is_written = |life: &Life<C, E>| life.under_way.is_none() && life.changes.is_empty();
        self.notes.is_empty() && self.life.as_ref().is_some_and(is_written)
    }

    /// The number of lives that ended because too much waited, and of dropped notes, since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// The number of notes that wait.
    pub fn waiting(&self) -> usize {
        self.notes.len()
    }

    /// The number of keys, clients and notes in memory.
    pub fn len(&self) -> usize {
        let waiting = self.life.as_ref().map_or(0, |life| life.changes.len());
        self.keys.len() + self.clients.len() + self.notes.len() + waiting
    }

    /// Whether the node holds nothing, and nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<C, E: Clone> BookNote<C, E> {
    fn other(&self) -> Option<E> {
        match self {
            BookNote::Other(what) => Some(what.clone()),
            BookNote::Connected(..) | BookNote::Disconnected(..) => None,
        }
    }
}
