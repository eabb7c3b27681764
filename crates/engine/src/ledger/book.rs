//! What a node holds, and what it has to write into the ledger next.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use indexmap::IndexMap;
use touchline_registry::{FoldState, HashSeed};

use crate::events::StateKey;

/// Bounds of a [`LedgerBook`].
#[derive(Debug, Clone, Copy)]
pub struct BookLimits {
    /// Keys in a batch, and notes in a batch.
    pub batch: usize,
    /// Notes that wait, and keys whose change waits. Beyond it, and all that the node holds, the life
    /// ends; outside a life, the oldest note is dropped.
    pub waiting: usize,
}

/// What has changed of a key at this node since the batch before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: StateKey,
    /// Whether the node has held it at some time since.
    pub is_gained: bool,
    /// Whether the node holds it now.
    pub is_held: bool,
}

/// Something that is told as it is, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookNote<C, E> {
    /// A client is connected.
    Connected(Box<str>, Arc<C>),
    /// A client that was told as connected is gone.
    Disconnected(Box<str>, Arc<C>, E),
    /// Anything else.
    Other(E),
}

/// What is written in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookBatch<C, E> {
    /// Number of the batch in its life, from 1 on. A batch that is sent again has the same number.
    pub number: u64,
    /// What has changed of keys, each key once, in no order.
    pub keys: Vec<KeyChange>,
    /// What is told as it is, in order.
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
    /// The batch whose result is not known.
    under_way: Option<Arc<BookBatch<C, E>>>,
    changes: IndexMap<StateKey, PendingChange, FoldState>,
}

/// What a node holds, and what it has to write into the ledger next. `C` describes a client, `E` what happened.
///
/// In a life, changes wait for their batch; outside, only what the node holds is kept: so a database that is away costs
/// no more than that, and [`BookLimits::waiting`] notes.
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
    /// A book of a node that holds nothing and has not entered the ledger. `seed`: of the hashes of users and channels,
    /// which clients choose.
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

    /// The first subscriber of a channel, or the first connection of a user, is there.
    pub fn hold(&mut self, key: StateKey) {
        if let Some(life) = &mut self.life {
            life.changes.insert(key.clone(), PendingChange { is_gained: true, is_held: true });
        }
        self.keys.insert(key);
        self.end_if_full();
    }

    /// The last one is gone. A key that was not held is passed over.
    pub fn release(&mut self, key: &StateKey) {
        if !self.keys.remove(key) {
            return;
        }
        if let Some(life) = &mut self.life {
            let change = life.changes.entry(key.clone()).or_insert(PendingChange { is_gained: false, is_held: false });
            change.is_held = false;
        }
        self.end_if_full();
    }

    /// A client is connected.
    pub fn connect(&mut self, client: Box<str>, about: C) {
        let about = Arc::new(about);
        self.clients.insert(client.clone(), Arc::clone(&about));
        if self.life.is_some() {
            self.note(BookNote::Connected(client, about));
        }
    }

    /// A client is gone; `how` says why. A client that is not known is passed over.
    pub fn disconnect(&mut self, client: &str, how: E) {
        let Some((client, about)) = self.clients.remove_entry(client) else { return };
        // Outside a life nobody was told of it, or others tell its end.
        if self.life.is_some() {
            self.note(BookNote::Disconnected(client, about, how));
        }
    }

    /// Anything else has happened. It waits also outside a life.
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

    /// A life with more to write than may wait, besides all that the node holds, ends: the next one begins with what is
    /// held then.
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

    /// Whether the node is in a life. If not, it has to enter the ledger.
    pub fn is_in(&self) -> bool {
        self.life.is_some()
    }

    /// A life has begun: all that the node holds is to be written.
    pub fn enter(&mut self) {
        let held = PendingChange { is_gained: true, is_held: true };
        let mut changes = IndexMap::with_hasher(self.seed.fold());
        changes.extend(self.keys.iter().map(|key| (key.clone(), held)));
        self.life = Some(Life { number: 0, under_way: None, changes });
        for (client, about) in &self.clients {
            self.notes.push_front(BookNote::Connected(client.clone(), Arc::clone(about)));
        }
    }

    /// The life is over. What it had not written is told otherwise: by those who take over what it has left, or by the
    /// next life.
    pub fn lapse(&mut self) {
        let Some(life) = self.life.take() else { return };
        let unknown = life.under_way.iter().flat_map(|batch| &batch.notes);
        let mut others: VecDeque<_> = unknown.filter_map(|note| note.other().map(BookNote::Other)).collect();
        others.extend(self.notes.drain(..).filter(|note| note.other().is_some()));
        self.notes = others;
    }

    /// What to write next: the batch whose result is not known, or what has come since. None = nothing, or the node is
    /// in no life.
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

    /// The batch that was under way is written.
    pub fn written(&mut self) {
        if let Some(life) = &mut self.life {
            life.under_way = None;
        }
    }

    /// Whether everything is written that the node knows.
    pub fn is_settled(&self) -> bool {
        let is_written = |life: &Life<C, E>| life.under_way.is_none() && life.changes.is_empty();
        self.notes.is_empty() && self.life.as_ref().is_some_and(is_written)
    }

    /// Lives that ended because too much waited, and notes that were dropped, since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Notes that wait.
    pub fn waiting(&self) -> usize {
        self.notes.len()
    }

    /// Keys, clients and notes that are in memory.
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
