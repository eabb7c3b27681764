//! The ledger in SQLite: lives, keys, and the sweeper. One process writes, on one connection. So no locks are needed,
//! and no lease must show that a life lasts. A life is over when the next one begins.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use touchline_engine::events::StateKey;
use touchline_engine::ledger::{EndpointWish, KeyChange, WishDescription, WishList};
use touchline_lock::Lock;

use super::connection::connect;
use crate::ledger::types::{
    GoneClient, LedgerBatch, LedgerCause, LedgerError, LedgerLife, LedgerOptions, LedgerWrite, OutboxEvent, STEP_ROWS,
    SweepReport, ToldKey, key_of, kind_number, millis,
};
use crate::panics::caught;

/// The ledger in a file that this process has locked.
#[derive(Clone)]
pub(crate) struct SqliteLedger {
    path: PathBuf,
    pub(super) options: LedgerOptions,
    connection: Arc<Lock<Option<Connection>>>,
}

impl SqliteLedger {
    pub(crate) fn new(path: PathBuf, options: LedgerOptions) -> Self {
        SqliteLedger { path, options, connection: Arc::default() }
    }

    /// Runs one transaction on a thread that may wait for the disk.
    pub(super) async fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SqliteLedger, &Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let ledger = self.clone();
        let transacted = tokio::task::spawn_blocking(move || {
            let mut place = ledger.connection.lock();
            // After a failure or a panic the connection is discarded.
            let taken = place.take();
            let transacted = caught(|| -> Result<(Connection, T), LedgerError> {
                let mut connection = match taken {
                    Some(connection) => connection,
                    None => connect(&ledger.path)?,
                };
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let done = work(&ledger, &transaction)?;
                transaction.commit()?;
                Ok((connection, done))
            });
            let (connection, done) = transacted.map_err(|_| LedgerError::Ended)??;
            *place = Some(connection);
            Ok(done)
        });
        transacted.await.map_err(|_| LedgerError::Ended)?
    }

    pub(super) fn now_ms(&self) -> i64 {
        (self.options.clock)() as i64
    }

    /// Registers the endpoints of this node. Other rows belong to an earlier configuration, because no other node has
    /// the file.
    fn register(&self, rows: &Transaction<'_>) -> rusqlite::Result<()> {
        // Without an earlier life, the endpoint has not missed any event.
        let has_life = "SELECT EXISTS (SELECT 1 FROM event_node)";
        let is_first = !rows.query_row(has_life, [], |row| row.get::<_, bool>(0))?;
        let name = "INSERT INTO event_endpoint (name, description, is_whole, seen_ms) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (name, description) DO UPDATE SET seen_ms = ?4";
        let mut name = rows.prepare_cached(name)?;
        for wish in &self.options.wishes {
            name.execute(params![wish.name, wish.description.text(), is_first, self.now_ms()])?;
        }
        for wish in wishes(rows)? {
            if !self.options.wishes.contains(&wish) {
                let forget = "DELETE FROM event_endpoint WHERE name = ?1 AND description = ?2";
                rows.execute(forget, params![wish.name, wish.description.text()])?;
            }
        }
        Ok(())
    }

    pub(crate) async fn enter(&self, cause: LedgerCause) -> Result<LedgerLife, LedgerError> {
        self.transact(|ledger, rows| ledger.register(rows)).await?;
        loop {
            if let Some(life) = self.transact(move |ledger, rows| ledger.enter_step(rows, cause)).await? {
                return Ok(life);
            }
        }
    }

    /// Takes some rows away from an earlier life. If nothing is left, begins a new life. Every life in the file belongs
    /// to this node, whatever its name was.
    fn enter_step(&self, rows: &Transaction<'_>, cause: LedgerCause) -> rusqlite::Result<Option<LedgerLife>> {
        let (now_ms, wait_ms) = (self.now_ms(), self.wait_ms(cause == LedgerCause::Restart));
        let earlier = "SELECT node, incarnation FROM event_node ORDER BY incarnation LIMIT 1";
        if let Some(life) = rows.query_row(earlier, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()? {
            self.take(rows, life, cause, wait_ms)?;
            return Ok(None);
        }
        let next = "UPDATE event_head SET incarnation = incarnation + 1 RETURNING incarnation";
        let incarnation: i64 = rows.query_row(next, [], |row| row.get(0))?;
        let begin = "INSERT INTO event_node (node, incarnation, batch) VALUES (?1, ?2, 0)";
        rows.execute(begin, params![self.options.node, incarnation])?;
        if cause == LedgerCause::Restart {
            // Keys that were about to be reported also get the time to return.
            let later = "UPDATE event_key SET due_ms = ?1 WHERE due_ms < ?1 AND generation % 2 = 1";
            rows.execute(later, [now_ms + wait_ms])?;
        }
        let wishes = WishList { version: 0, wishes: wishes(rows)? };
        Ok(Some(LedgerLife { incarnation: incarnation as u64, wishes }))
    }

    /// How long after its last holder left a key is reported, milliseconds.
    fn wait_ms(&self, is_start: bool) -> i64 {
        millis(self.options.delay) + if is_start { millis(self.options.grace) } else { 0 }
    }

    pub(crate) async fn write(&self, incarnation: u64, batch: &LedgerBatch) -> Result<LedgerWrite, LedgerError> {
        let batch = batch.clone();
        self.transact(move |ledger, rows| ledger.write_batch(rows, incarnation as i64, batch)).await
    }

    fn write_batch(&self, rows: &Transaction<'_>, life: i64, batch: LedgerBatch) -> rusqlite::Result<LedgerWrite> {
        let (me, number) = (&self.options.node, batch.number as i64);
        let own = "SELECT batch FROM event_node WHERE node = ?1 AND incarnation = ?2";
        let was = rows.query_row(own, params![me, life], |row| row.get::<_, i64>(0)).optional()?;
        match was {
            None => return Ok(LedgerWrite::Lapsed),
            Some(was) if was >= number => return Ok(LedgerWrite::Written),
            Some(_) => {}
        }
        rows.execute(
            "UPDATE event_node SET batch = ?3 WHERE node = ?1 AND incarnation = ?2",
            params![me, life, number],
        )?;
        let mut events = batch.events;
        for change in &batch.keys {
            self.hold(rows, life, change, &mut events)?;
        }
        let insert = "INSERT INTO event_client (node, incarnation, client, about) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT DO NOTHING";
        let mut insert = rows.prepare_cached(insert)?;
        for (client, about) in &batch.connected {
            insert.execute(params![me, life, client, about])?;
        }
        let mut delete =
            rows.prepare_cached("DELETE FROM event_client WHERE node = ?1 AND incarnation = ?2 AND client = ?3")?;
        for client in &batch.disconnected {
            delete.execute(params![me, life, client])?;
        }
        self.put(rows, &events)?;
        Ok(LedgerWrite::Written)
    }

    /// Does the same as `touchline.event_hold` in PostgreSQL, for one key.
    fn hold(
        &self,
        rows: &Transaction<'_>,
        life: i64,
        change: &KeyChange,
        events: &mut Vec<OutboxEvent>,
    ) -> rusqlite::Result<()> {
        let (me, now_ms) = (&self.options.node, self.now_ms());
        let (kind, name) = (kind_number(&change.key), change.key.name());
        if change.is_held && change.is_gained {
            let insert = "INSERT INTO event_holder (kind, key, node, incarnation) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO NOTHING";
            rows.prepare_cached(insert)?.execute(params![kind, name, me, life])?;
        }
        if change.is_gained {
            let make = "INSERT INTO event_key (kind, key, generation, due_ms) \
                 SELECT ?1, ?2, forgotten, ?3 FROM event_head WHERE true ON CONFLICT DO NOTHING";
            rows.prepare_cached(make)?.execute(params![kind, name, now_ms])?;
            let tell = "UPDATE event_key SET generation = generation + 1 \
                 WHERE kind = ?1 AND key = ?2 AND generation % 2 = 0 RETURNING generation";
            let told =
                rows.prepare_cached(tell)?.query_row(params![kind, name], |row| row.get::<_, i64>(0)).optional()?;
            if let Some(generation) = told {
                let (generation, time_ms) = (generation as u64, now_ms as u64);
                let told = ToldKey { key: change.key.clone(), generation, time_ms, empty: None };
                self.options.narrator.tell_key(&told, events);
            }
            let fill = "UPDATE event_key SET empty_since_ms = NULL, cause = NULL, due_ms = NULL \
                 WHERE kind = ?1 AND key = ?2 AND due_ms IS NOT NULL";
            rows.prepare_cached(fill)?.execute(params![kind, name])?;
        }
        if !change.is_held {
            let delete = "DELETE FROM event_holder WHERE kind = ?1 AND key = ?2 AND node = ?3 AND incarnation = ?4";
            rows.prepare_cached(delete)?.execute(params![kind, name, me, life])?;
            self.empty(rows, &change.key, LedgerCause::Left, self.wait_ms(false))?;
        }
        Ok(())
    }

    /// Marks a key as empty if no client holds it any more.
    fn empty(&self, rows: &Transaction<'_>, key: &StateKey, cause: LedgerCause, wait_ms: i64) -> rusqlite::Result<()> {
        let empty = "UPDATE event_key SET empty_since_ms = ?3, cause = ?4, due_ms = ?3 + ?5 \
             WHERE kind = ?1 AND key = ?2 AND generation % 2 = 1 \
             AND NOT EXISTS (SELECT 1 FROM event_holder WHERE kind = ?1 AND key = ?2)";
        let values = params![kind_number(key), key.name(), self.now_ms(), cause.number(), wait_ms];
        rows.prepare_cached(empty)?.execute(values).map(drop)
    }

    /// Takes clients and keys away from a life, and ends the life when nothing is left. Returns how many.
    fn take(
        &self,
        rows: &Transaction<'_>,
        (node, life): (String, i64),
        cause: LedgerCause,
        wait_ms: i64,
    ) -> rusqlite::Result<u64> {
        let clients = "DELETE FROM event_client WHERE node = ?1 AND incarnation = ?2 AND client IN \
             (SELECT client FROM event_client WHERE node = ?1 AND incarnation = ?2 ORDER BY client LIMIT ?3) \
             RETURNING client, about";
        let lost = rows
            .prepare_cached(clients)?
            .query_map(params![node, life, STEP_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(String, String)>>>()?;
        let held = "DELETE FROM event_holder WHERE node = ?1 AND incarnation = ?2 AND (kind, key) IN \
             (SELECT kind, key FROM event_holder WHERE node = ?1 AND incarnation = ?2 ORDER BY kind, key LIMIT ?3) \
             RETURNING kind, key";
        let dropped = rows
            .prepare_cached(held)?
            .query_map(params![node, life, STEP_ROWS], |row| Ok(key_of(row.get(0)?, row.get_ref(1)?.as_str()?)))?
            .collect::<rusqlite::Result<Vec<StateKey>>>()?;
        for key in &dropped {
            self.empty(rows, key, cause, wait_ms)?;
        }
        if lost.len().max(dropped.len()) < STEP_ROWS as usize {
            rows.execute("DELETE FROM event_node WHERE node = ?1 AND incarnation = ?2", params![node, life])?;
        }
        let taken = (lost.len() + dropped.len()) as u64;
        let (time_ms, incarnation, mut events) = (self.now_ms() as u64, life as u64, Vec::new());
        for (client, about) in lost {
            let lost = GoneClient { client, about, node: node.clone(), incarnation, time_ms, cause };
            self.options.narrator.tell_lost(&lost, &mut events);
        }
        self.put(rows, &events)?;
        Ok(taken)
    }

    /// Puts events into the outbox, for each endpoint that wants them. Their ids rise in their order.
    fn put(&self, rows: &Transaction<'_>, events: &[OutboxEvent]) -> rusqlite::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let list = WishList { version: 0, wishes: wishes(rows)? };
        let insert = "INSERT INTO event_outbox (endpoint, lane, made_ms, body) VALUES (?1, ?2, ?3, ?4)";
        let (mut insert, now_ms) = (rows.prepare_cached(insert)?, self.now_ms());
        for event in events {
            for (endpoint, lane) in list.lanes(event.route()) {
                insert.execute(params![endpoint, lane, now_ms, event.body])?;
            }
        }
        Ok(())
    }

    pub(crate) async fn sweep(&self) -> Result<SweepReport, LedgerError> {
        self.transact(|ledger, rows| {
            let told = ledger.tell_empty(rows)?;
            let forgotten = ledger.forget(rows)?;
            let has_more = told.max(forgotten) >= STEP_ROWS as u64;
            let due = "SELECT min(due_ms) FROM event_key WHERE due_ms IS NOT NULL AND generation % 2 = ?1";
            let mut next_ms = None;
            for odd in [1, 0] {
                let due_ms: Option<i64> = rows.prepare_cached(due)?.query_row([odd], |row| row.get(0))?;
                let wait_ms = due_ms.map(|due_ms| (due_ms - ledger.now_ms()).max(0) as u64);
                next_ms = next_ms.into_iter().chain(wait_ms).min();
            }
            Ok(SweepReport { taken: 0, told, forgotten, has_more, next_ms })
        })
        .await
    }

    /// Reports keys that no client has held for long enough.
    fn tell_empty(&self, rows: &Transaction<'_>) -> rusqlite::Result<u64> {
        let now_ms = self.now_ms();
        let tell = "UPDATE event_key SET generation = generation + 1, due_ms = ?1 + ?2 WHERE (kind, key) IN \
             (SELECT kind, key FROM event_key WHERE due_ms <= ?1 AND generation % 2 = 1 ORDER BY due_ms LIMIT ?3) \
             RETURNING kind, key, generation, empty_since_ms, cause";
        let told = rows
            .prepare_cached(tell)?
            .query_map(params![now_ms, millis(self.options.remember), STEP_ROWS], |row| {
                Ok(ToldKey {
                    key: key_of(row.get(0)?, row.get_ref(1)?.as_str()?),
                    generation: row.get(2)?,
                    time_ms: now_ms as u64,
                    empty: Some((row.get(3)?, LedgerCause::of_number(row.get(4)?))),
                })
            })?
            .collect::<rusqlite::Result<Vec<ToldKey>>>()?;
        let mut events = Vec::new();
        told.iter().for_each(|told| self.options.narrator.tell_key(told, &mut events));
        self.put(rows, &events)?;
        Ok(told.len() as u64)
    }

    /// Forgets keys that were reported as vacated or offline long ago.
    fn forget(&self, rows: &Transaction<'_>) -> rusqlite::Result<u64> {
        let forget = "DELETE FROM event_key WHERE (kind, key) IN \
             (SELECT kind, key FROM event_key WHERE due_ms <= ?1 AND generation % 2 = 0 ORDER BY due_ms LIMIT ?2) \
             RETURNING generation";
        let gone = rows
            .prepare_cached(forget)?
            .query_map(params![self.now_ms(), STEP_ROWS], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        if let Some(highest) = gone.iter().max() {
            rows.execute("UPDATE event_head SET forgotten = max(forgotten, ?1)", [highest])?;
        }
        Ok(gone.len() as u64)
    }
}

/// Reads the wishes of all endpoints.
pub(super) fn wishes(rows: &Transaction<'_>) -> rusqlite::Result<Vec<EndpointWish>> {
    let mut select = rows.prepare_cached("SELECT name, description FROM event_endpoint")?;
    let named = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let named = named.collect::<rusqlite::Result<Vec<(String, String)>>>()?;
    let read = |(name, text): (String, String)| {
        WishDescription::read(&text).map(|description| EndpointWish { name, description })
    };
    Ok(named.into_iter().filter_map(read).collect())
}
