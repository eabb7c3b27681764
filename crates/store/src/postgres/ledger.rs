//! The ledger in PostgreSQL: lives, keys, and the sweeper. The functions that it calls are in the schema.
//!
//! All transactions take their locks in one order. First the lock against forgetting, then the row of one life, then
//! keys in their order, and last the lock against new endpoints when events are put into the outbox. The sweeper never
//! waits for a key. So no two transactions deadlock.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify};
use touchline_engine::ledger::{EndpointWish, KeyChange, WishDescription, WishList};

use super::address::PostgresAddress;
use super::failure::PostgresError;
use super::ledger_link::{LedgerLink, LinkLoan};
use crate::ledger::types::{
    GoneClient, LedgerBatch, LedgerCause, LedgerError, LedgerLife, LedgerOptions, LedgerWrite, OutboxEvent, STEP_ROWS,
    SweepReport, ToldKey, key_of, kind_number, millis,
};

/// Begins a transaction in which no key is forgotten: "touchkey" as a number (`touchline.event_forget`).
const BEGIN_KEYS: &str = "BEGIN; SELECT pg_advisory_xact_lock_shared(8390053700628604281)";

/// Begins a transaction in which no endpoint is added: "touchend" as a number (`touchline.event_register`).
const BEGIN_WISHES: &str = "BEGIN; SELECT pg_advisory_xact_lock_shared(8390053700628213348)";

/// The ledger in a PostgreSQL database.
pub(crate) struct PostgresLedger {
    pub(super) address: PostgresAddress,
    pub(super) options: LedgerOptions,
    writer: Mutex<Option<LedgerLink>>,
    sweeper: Mutex<Option<LedgerLink>>,
    pub(super) lanes: Mutex<Option<LedgerLink>>,
    /// Notified when another node has put events into the outbox.
    pub(crate) bell: Arc<Notify>,
}

impl PostgresLedger {
    pub(crate) fn new(address: PostgresAddress, options: LedgerOptions) -> Self {
        PostgresLedger {
            address,
            options,
            writer: Mutex::default(),
            sweeper: Mutex::default(),
            lanes: Mutex::default(),
            bell: Arc::default(),
        }
    }

    async fn lend<'d>(&self, desk: &'d Mutex<Option<LedgerLink>>) -> Result<LinkLoan<'d>, PostgresError> {
        LinkLoan::of(desk, (&self.address, self.options.migrates), None).await
    }

    /// Lends the connection of the lanes, which receives notifications of events that other nodes write.
    pub(super) async fn lend_lanes(&self) -> Result<LinkLoan<'_>, PostgresError> {
        LinkLoan::of(&self.lanes, (&self.address, self.options.migrates), Some(&self.bell)).await
    }

    /// Registers the endpoints of this node.
    pub(super) async fn register(&self, link: &mut LedgerLink) -> Result<(), PostgresError> {
        let wishes = self.options.wishes.iter();
        let (names, descriptions): (Vec<&str>, Vec<String>) =
            wishes.map(|wish| (&*wish.name, wish.description.text())).unzip();
        link.query("SELECT touchline.event_register($1, $2)", &[&names, &descriptions]).await.map(drop)
    }

    /// Reads the wishes of all endpoints.
    pub(super) async fn wishes(link: &mut LedgerLink) -> Result<WishList, PostgresError> {
        let select = "SELECT head.wishes, wish.name, wish.description \
             FROM touchline.event_head head LEFT JOIN touchline.event_endpoint wish ON true";
        let rows = link.query(select, &[]).await?;
        let mut list = WishList::default();
        for row in &rows {
            list.version = row.get::<_, i64>(0) as u64;
            let (Some(name), Some(text)) = (row.get::<_, Option<String>>(1), row.get::<_, Option<&str>>(2)) else {
                continue;
            };
            // This version ignores a description that only a later version understands.
            let description = WishDescription::read(text);
            list.wishes.extend(description.map(|description| EndpointWish { name, description }));
        }
        Ok(list)
    }

    pub(crate) async fn enter(&self, cause: LedgerCause) -> Result<LedgerLife, LedgerError> {
        let mut loan = self.lend(&self.writer).await?;
        // This happens before the earlier life is reported, so that these endpoints get its events too.
        self.register(&mut loan.link).await?;
        let life = loop {
            if let Some(life) = self.enter_step(&mut loan.link, cause).await? {
                break life;
            }
        };
        loan.keep();
        Ok(life)
    }

    /// Takes some rows away from an earlier life of this node. If nothing is left, begins a new life.
    async fn enter_step(&self, link: &mut LedgerLink, cause: LedgerCause) -> Result<Option<LedgerLife>, PostgresError> {
        let me = &self.options.node;
        link.run(BEGIN_WISHES).await?;
        let others = "SELECT EXISTS (SELECT FROM touchline.event_node \
             WHERE node <> $1 AND lease_until_ms > (SELECT touchline.now_ms()))";
        let is_alone = !link.query(others, &[me]).await?.first().is_some_and(|row| row.get(0));
        let earlier = "SELECT incarnation FROM touchline.event_node WHERE node = $1 \
             ORDER BY incarnation LIMIT 1 FOR UPDATE";
        let is_start = is_alone && cause == LedgerCause::Restart;
        let wait_ms = self.wait_ms(is_start);
        if let Some(row) = link.query(earlier, &[me]).await?.first() {
            self.take(link, (me.clone(), row.get(0)), cause, wait_ms).await?;
            link.run("COMMIT").await?;
            return Ok(None);
        }
        let next = "UPDATE touchline.event_head SET incarnation = incarnation + 1 RETURNING incarnation";
        let incarnation: i64 = link.query(next, &[]).await?.first().map_or(0, |row| row.get(0));
        let wishes = Self::wishes(link).await?;
        let begin = "INSERT INTO touchline.event_node (node, incarnation, lease_until_ms, batch, knows, endpoints) \
             VALUES ($1, $2, touchline.now_ms() + $3, 0, $4, $5)";
        let own: Vec<&str> = self.options.wishes.iter().map(|wish| &*wish.name).collect();
        let life =
            [me as _, &incarnation as _, &millis(self.options.lease) as _, &(wishes.version as i64) as _, &own as _];
        link.count(begin, &life).await?;
        if is_start {
            // Keys that were about to be reported also get the time to return.
            let later = "UPDATE touchline.event_key SET due_ms = touchline.now_ms() + $1 \
                 WHERE due_ms < (SELECT touchline.now_ms()) + $1 AND generation % 2 = 1";
            link.count(later, &[&wait_ms]).await?;
        }
        link.run("COMMIT").await?;
        Ok(Some(LedgerLife { incarnation: incarnation as u64, wishes }))
    }

    /// How long after its last holder left a key is reported, milliseconds.
    fn wait_ms(&self, is_start: bool) -> i64 {
        millis(self.options.delay) + if is_start { millis(self.options.grace) } else { 0 }
    }

    pub(crate) async fn write(&self, incarnation: u64, batch: &LedgerBatch) -> Result<LedgerWrite, LedgerError> {
        let mut loan = self.lend(&self.writer).await?;
        let written = self.write_batch(&mut loan.link, incarnation as i64, batch).await?;
        loan.keep();
        Ok(written)
    }

    async fn write_batch(
        &self,
        link: &mut LedgerLink,
        life: i64,
        batch: &LedgerBatch,
    ) -> Result<LedgerWrite, PostgresError> {
        let me = &self.options.node;
        link.run(BEGIN_KEYS).await?;
        // The row stays locked until the commit, so no other node takes over the life meanwhile.
        let renew = "UPDATE touchline.event_node own \
             SET lease_until_ms = touchline.now_ms() + $3, batch = greatest(own.batch, $4), \
             knows = greatest(own.knows, $5) \
             FROM (SELECT batch AS was FROM touchline.event_node WHERE node = $1 AND incarnation = $2 FOR UPDATE) old \
             WHERE own.node = $1 AND own.incarnation = $2 AND own.lease_until_ms > (SELECT touchline.now_ms()) \
             RETURNING old.was";
        let number = batch.number as i64;
        let renewal = [me as _, &life as _, &millis(self.options.lease) as _, &number as _, &(batch.knows as i64) as _];
        let renewed = link.query(renew, &renewal).await?;
        let Some(row) = renewed.first() else {
            link.run("ROLLBACK").await?;
            return Ok(LedgerWrite::Lapsed);
        };
        if row.get::<_, i64>(0) < number {
            let mut events = batch.events.clone();
            self.hold(link, life, &batch.keys, &mut events).await?;
            let (clients, abouts): (Vec<&str>, Vec<&str>) =
                batch.connected.iter().map(|(client, about)| (&**client, &**about)).unzip();
            if !clients.is_empty() {
                let insert = "INSERT INTO touchline.event_client (node, incarnation, client, about) \
                     SELECT $1, $2, * FROM unnest($3::text[], $4::text[]) ON CONFLICT DO NOTHING";
                link.count(insert, &[me, &life, &clients, &abouts]).await?;
            }
            if !batch.disconnected.is_empty() {
                let delete = "DELETE FROM touchline.event_client \
                     WHERE node = $1 AND incarnation = $2 AND client = ANY ($3)";
                link.count(delete, &[me, &life, &batch.disconnected]).await?;
            }
            link.put(&events).await?;
        }
        link.run("COMMIT").await?;
        Ok(LedgerWrite::Written)
    }

    async fn hold(
        &self,
        link: &mut LedgerLink,
        life: i64,
        keys: &[KeyChange],
        events: &mut Vec<OutboxEvent>,
    ) -> Result<(), PostgresError> {
        if keys.is_empty() {
            return Ok(());
        }
        let kinds: Vec<i16> = keys.iter().map(|change| kind_number(&change.key)).collect();
        let names: Vec<&str> = keys.iter().map(|change| change.key.name()).collect();
        let gained: Vec<bool> = keys.iter().map(|change| change.is_gained).collect();
        let held: Vec<bool> = keys.iter().map(|change| change.is_held).collect();
        let hold = "SELECT kind, key, generation, touchline.now_ms() \
             FROM touchline.event_hold($1, $2, $3, $4, $5, $6, $7)";
        let delay_ms = millis(self.options.delay);
        let rows = link.query(hold, &[&self.options.node, &life, &kinds, &names, &gained, &held, &delay_ms]).await?;
        for row in rows {
            let told = ToldKey {
                key: key_of(row.get(0), row.get(1)),
                generation: row.get::<_, i64>(2) as u64,
                time_ms: row.get::<_, i64>(3) as u64,
                empty: None,
            };
            self.options.narrator.tell_key(&told, events);
        }
        Ok(())
    }

    /// Takes clients and keys away from a life whose row is locked, and ends the life when nothing is left. Returns how
    /// many.
    async fn take(
        &self,
        link: &mut LedgerLink,
        (node, life): (String, i64),
        cause: LedgerCause,
        wait_ms: i64,
    ) -> Result<u64, PostgresError> {
        // Nothing restores the lease, not even a clock that is set back.
        let end = "UPDATE touchline.event_node SET lease_until_ms = 0 WHERE node = $1 AND incarnation = $2";
        link.count(end, &[&node, &life]).await?;
        let clients = "DELETE FROM touchline.event_client WHERE node = $1 AND incarnation = $2 AND client IN \
             (SELECT client FROM touchline.event_client WHERE node = $1 AND incarnation = $2 ORDER BY client LIMIT $3) \
             RETURNING client, about, touchline.now_ms()";
        let lost = link.query(clients, &[&node, &life, &STEP_ROWS]).await?;
        let mut events = Vec::new();
        for row in &lost {
            let lost = GoneClient {
                client: row.get(0),
                about: row.get(1),
                node: node.clone(),
                incarnation: life as u64,
                time_ms: row.get::<_, i64>(2) as u64,
                cause,
            };
            self.options.narrator.tell_lost(&lost, &mut events);
        }
        let drop = "SELECT touchline.event_drop($1, $2, $3, $4, $5)";
        let dropped = link.query(drop, &[&node, &life, &STEP_ROWS, &cause.number(), &wait_ms]).await?;
        let dropped: i64 = dropped.first().map_or(0, |row| row.get(0));
        if (lost.len() as i64) < STEP_ROWS && dropped < STEP_ROWS {
            link.count("DELETE FROM touchline.event_node WHERE node = $1 AND incarnation = $2", &[&node, &life])
                .await?;
        }
        link.put(&events).await?;
        Ok(lost.len() as u64 + dropped as u64)
    }

    pub(crate) async fn sweep(&self) -> Result<SweepReport, LedgerError> {
        let mut loan = self.lend(&self.sweeper).await?;
        let link = &mut loan.link;
        let idle = link.query("SELECT touchline.event_idle()", &[]).await?;
        let idle_ms = idle.first().and_then(|row| row.get::<_, Option<i64>>(0));
        if idle_ms.is_none_or(|idle_ms| idle_ms > 0) {
            loan.keep();
            return Ok(SweepReport { next_ms: idle_ms.map(|ms| ms as u64), ..SweepReport::default() });
        }
        let taken = self.take_over(link).await?;
        let told = self.tell_empty(link).await?;
        let forgotten = link.query("SELECT touchline.event_forget($1)", &[&STEP_ROWS]).await?;
        let forgotten = forgotten.first().map_or(0, |row| row.get::<_, i64>(0)) as u64;
        loan.keep();
        let has_more = taken.is_some() || told.max(forgotten) >= STEP_ROWS as u64;
        // What another node is working on is checked again soon.
        Ok(SweepReport { taken: taken.unwrap_or_default(), told, forgotten, has_more, next_ms: Some(0) })
    }

    /// Takes some rows away from one life whose lease has ended. `None` = there is no such life that no other node
    /// works on.
    async fn take_over(&self, link: &mut LedgerLink) -> Result<Option<u64>, PostgresError> {
        link.run("BEGIN").await?;
        let over = "SELECT node, incarnation FROM touchline.event_node \
             WHERE lease_until_ms <= (SELECT touchline.now_ms()) \
             ORDER BY lease_until_ms LIMIT 1 FOR UPDATE SKIP LOCKED";
        let found = link.query(over, &[]).await?;
        let taken = match found.first() {
            Some(row) => {
                let life = (row.get(0), row.get(1));
                Some(self.take(link, life, LedgerCause::NodeDown, self.wait_ms(false)).await?)
            }
            None => None,
        };
        link.run("COMMIT").await?;
        Ok(taken)
    }

    /// Reports keys that no client has held for long enough.
    async fn tell_empty(&self, link: &mut LedgerLink) -> Result<u64, PostgresError> {
        link.run("BEGIN").await?;
        let sweep = "SELECT kind, key, generation, empty_since_ms, cause, touchline.now_ms() \
             FROM touchline.event_sweep($1, $2)";
        let rows = link.query(sweep, &[&STEP_ROWS, &millis(self.options.remember)]).await?;
        let mut events = Vec::new();
        for row in &rows {
            let told = ToldKey {
                key: key_of(row.get(0), row.get(1)),
                generation: row.get::<_, i64>(2) as u64,
                time_ms: row.get::<_, i64>(5) as u64,
                empty: Some((row.get::<_, i64>(3) as u64, LedgerCause::of_number(row.get(4)))),
            };
            self.options.narrator.tell_key(&told, &mut events);
        }
        link.put(&events).await?;
        link.run("COMMIT").await?;
        Ok(rows.len() as u64)
    }

    pub(crate) async fn leave(&self, incarnation: u64) -> Result<(), LedgerError> {
        let mut loan = self.lend(&self.writer).await?;
        // The next node that sweeps ends the life.
        let leave = "UPDATE touchline.event_node SET lease_until_ms = 0 WHERE node = $1 AND incarnation = $2";
        loan.link.count(leave, &[&self.options.node, &(incarnation as i64)]).await?;
        loan.keep();
        Ok(())
    }
}
