//! The rules of the ledger as a small state machine.

use std::collections::{BTreeMap, BTreeSet};

use touchline_engine::events::StateKey;
use touchline_engine::ledger::KeyChange;
use touchline_store::ledger::{GoneClient, LedgerBatch, LedgerCause, LedgerWrite, Narrator, OutboxEvent, ToldKey};

use super::desk::{DELAY, Desk, GRACE, KEYS_MAX, LEASE, REMEMBER, Scribe, Told};

type Life = (String, u64);

#[derive(Debug, Default)]
struct KeyRow {
    generation: u64,
    empty: Option<(u64, LedgerCause)>,
    due_ms: Option<u64>,
}

/// The ledger in memory.
pub(crate) struct Model {
    now_ms: u64,
    has_leases: bool,
    incarnation: u64,
    forgotten: u64,
    /// The end of the lease and the number of the last batch, by life.
    lives: BTreeMap<Life, (u64, u64)>,
    holders: BTreeSet<(StateKey, Life)>,
    keys: BTreeMap<StateKey, KeyRow>,
    clients: BTreeMap<(Life, String), String>,
    told: Vec<OutboxEvent>,
}

impl Model {
    pub(crate) fn new(has_leases: bool) -> Self {
        Model {
            now_ms: 1_000_000,
            has_leases,
            incarnation: 0,
            forgotten: 0,
            lives: BTreeMap::new(),
            holders: BTreeSet::new(),
            keys: BTreeMap::new(),
            clients: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    fn until_ms(&self) -> u64 {
        self.now_ms + LEASE.as_millis() as u64
    }

    fn wait_ms(&self, is_start: bool) -> u64 {
        (DELAY + if is_start { GRACE } else { std::time::Duration::ZERO }).as_millis() as u64
    }

    fn is_live(&self, life: &Life) -> bool {
        self.lives.get(life).is_some_and(|(until_ms, _)| !self.has_leases || *until_ms > self.now_ms)
    }

    fn is_held(&self, key: &StateKey) -> bool {
        self.holders.iter().any(|(held, _)| held == key)
    }

    /// Rule 2: a life gains or releases a key.
    fn hold(&mut self, life: &Life, change: &KeyChange) {
        let KeyChange { key, is_gained, is_held } = change;
        if *is_gained {
            if *is_held {
                self.holders.insert((key.clone(), life.clone()));
            }
            let first = KeyRow { generation: self.forgotten, ..KeyRow::default() };
            let row = self.keys.entry(key.clone()).or_insert(first);
            (row.empty, row.due_ms) = (None, None);
            if row.generation.is_multiple_of(2) {
                row.generation += 1;
                let told = ToldKey { key: key.clone(), generation: row.generation, time_ms: self.now_ms, empty: None };
                Scribe.tell_key(&told, &mut self.told);
            }
        }
        if !is_held {
            self.holders.remove(&(key.clone(), life.clone()));
            self.empty(key, LedgerCause::Left, self.wait_ms(false));
        }
    }

    fn empty(&mut self, key: &StateKey, cause: LedgerCause, wait_ms: u64) {
        if self.is_held(key) {
            return;
        }
        if let Some(row) = self.keys.get_mut(key).filter(|row| row.generation % 2 == 1) {
            row.empty = Some((self.now_ms, cause));
            row.due_ms = Some(self.now_ms + wait_ms);
        }
    }

    /// Rules 4 to 6: takes what an ended life has left.
    fn take(&mut self, life: &Life, cause: LedgerCause, wait_ms: u64) {
        self.lives.remove(life);
        let lost: Vec<(Life, String)> = self.clients.keys().filter(|(of, _)| of == life).cloned().collect();
        for place in lost {
            let about = self.clients.remove(&place).expect("it is there");
            let (node, incarnation) = life.clone();
            let lost = GoneClient { client: place.1, about, node, incarnation, time_ms: self.now_ms, cause };
            Scribe.tell_lost(&lost, &mut self.told);
        }
        let held: Vec<StateKey> =
            self.holders.iter().filter(|(_, of)| of == life).map(|(key, _)| key.clone()).collect();
        for key in held {
            self.holders.remove(&(key.clone(), life.clone()));
            self.empty(&key, cause, wait_ms);
        }
    }
}

impl Desk for Model {
    fn start(&mut self, _: &str) {}

    fn kill(&mut self, _: &str) {}

    fn enter(&mut self, node: &str, cause: LedgerCause) -> u64 {
        let is_alone = !self.has_leases || !self.lives.keys().any(|life| life.0 != node && self.is_live(life));
        let wait_ms = self.wait_ms(is_alone && cause == LedgerCause::Restart);
        let earlier: Vec<Life> = self.lives.keys().filter(|life| !self.has_leases || life.0 == node).cloned().collect();
        for life in earlier {
            self.take(&life, cause, wait_ms);
        }
        if is_alone && cause == LedgerCause::Restart {
            let due_ms = self.now_ms + wait_ms;
            for row in self.keys.values_mut().filter(|row| row.generation % 2 == 1) {
                row.due_ms = row.due_ms.map(|old| old.max(due_ms));
            }
        }
        self.incarnation += 1;
        self.lives.insert((node.to_owned(), self.incarnation), (self.until_ms(), 0));
        self.incarnation
    }

    fn write(&mut self, node: &str, incarnation: u64, batch: &LedgerBatch) -> LedgerWrite {
        let life = (node.to_owned(), incarnation);
        if !self.is_live(&life) {
            return LedgerWrite::Lapsed;
        }
        let until_ms = self.until_ms();
        let row = self.lives.get_mut(&life).expect("it is live");
        row.0 = until_ms;
        if row.1 >= batch.number {
            return LedgerWrite::Written;
        }
        row.1 = batch.number;
        self.told.extend(batch.events.iter().cloned());
        batch.keys.iter().for_each(|change| self.hold(&life, change));
        for (client, about) in &batch.connected {
            self.clients.insert((life.clone(), client.clone()), about.clone());
        }
        for client in &batch.disconnected {
            self.clients.remove(&(life.clone(), client.clone()));
        }
        LedgerWrite::Written
    }

    /// Rules 3 and 4: one step of the sweeper.
    fn sweep(&mut self, _: &str) {
        if self.has_leases {
            let over: Vec<Life> = self.lives.keys().filter(|life| !self.is_live(life)).cloned().collect();
            over.iter().for_each(|life| self.take(life, LedgerCause::NodeDown, self.wait_ms(false)));
        }
        let is_due = |row: &KeyRow| row.due_ms.is_some_and(|due_ms| due_ms <= self.now_ms);
        let due: Vec<StateKey> = self.keys.iter().filter(|(_, row)| is_due(row)).map(|(key, _)| key.clone()).collect();
        for key in due {
            let row = self.keys.get_mut(&key).expect("it is there");
            if row.generation.is_multiple_of(2) {
                self.forgotten = self.forgotten.max(row.generation);
                self.keys.remove(&key);
                continue;
            }
            row.generation += 1;
            row.due_ms = Some(self.now_ms + REMEMBER.as_millis() as u64);
            let told = ToldKey { key: key.clone(), generation: row.generation, time_ms: self.now_ms, empty: row.empty };
            assert!(!self.is_held(&key), "nobody holds what is told as vacated");
            Scribe.tell_key(&told, &mut self.told);
        }
    }

    fn tidy(&mut self, _: &str) {
        let is_over = |row: &KeyRow| row.generation.is_multiple_of(2) && row.due_ms.is_some();
        let over = self.keys.iter().filter(|(_, row)| is_over(row));
        let mut over: Vec<(u64, StateKey)> = over.map(|(key, row)| (row.due_ms.unwrap_or(0), key.clone())).collect();
        over.sort();
        let surplus = over.len().saturating_sub(KEYS_MAX as usize);
        for (_, key) in &over[..surplus] {
            self.forgotten = self.keys.remove(key).map_or(0, |row| row.generation).max(self.forgotten);
        }
    }

    fn leave(&mut self, node: &str, incarnation: u64) {
        if self.has_leases
            && let Some(row) = self.lives.get_mut(&(node.to_owned(), incarnation))
        {
            row.0 = 0;
        }
    }

    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn told(&mut self) -> Vec<Told> {
        self.told.iter().map(|event| Scribe::read(&event.body)).collect()
    }

    fn has_leases(&self) -> bool {
        self.has_leases
    }
}
