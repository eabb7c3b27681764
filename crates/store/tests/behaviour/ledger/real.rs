//! The ledger in a database, with a clock that a test moves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::runtime::Runtime;
use touchline_engine::ledger::{EndpointWish, WishDescription};
use touchline_store::ledger::{EventLedger, LedgerBatch, LedgerCause, LedgerOptions, LedgerWrite};
use touchline_store::{DatabaseUrl, Store};

use super::desk::{DELAY, Desk, GRACE, KEYS_MAX, LEASE, REMEMBER, Scribe, Told, WORD};
use crate::stage::settings;

const TABLES: [&str; 8] = [
    "event_node",
    "event_holder",
    "event_key",
    "event_client",
    "event_outbox",
    "event_lane",
    "event_dead",
    "event_endpoint",
];
const BEGIN_MS: u64 = 1_000_000;

/// A database and the nodes that use it.
pub(crate) struct Real {
    pub(crate) runtime: Runtime,
    url: String,
    nodes: HashMap<String, EventLedger>,
    clock: Arc<AtomicU64>,
    /// The connection that moves the clock of PostgreSQL.
    postgres: Option<tokio_postgres::Client>,
    /// The open store, which holds the lock of the file and has made the schema.
    store: Store,
    /// The maximum number of events in a lane.
    pub(crate) lane_max: u64,
}

/// The wish of an endpoint for these event types, in all namespaces.
pub(crate) fn wish(name: &str, types: &[&str], lanes: u32) -> EndpointWish {
    let types = types.iter().map(|word| (*word).to_owned()).collect();
    let description = WishDescription { types, namespaces: None, lanes, delay_ms: DELAY.as_millis() as u64 };
    EndpointWish { name: name.to_owned(), description }
}

impl Real {
    pub(crate) fn open(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = Store::open(&settings(url), |_| ()).expect("the database opens");
        let postgres = url.starts_with("postgres").then(|| {
            let client = runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it runs");
                tokio::spawn(connection);
                client
            });
            let clock = format!(
                "CREATE TABLE IF NOT EXISTS public.test_clock (ms bigint); DELETE FROM public.test_clock; \
                 INSERT INTO public.test_clock VALUES ({BEGIN_MS}); \
                 CREATE OR REPLACE FUNCTION touchline.now_ms() RETURNS bigint LANGUAGE sql AS \
                 'SELECT ms FROM public.test_clock'"
            );
            runtime.block_on(client.batch_execute(&clock)).expect("the clock is ours");
            client
        });
        let clock = Arc::new(AtomicU64::new(BEGIN_MS));
        let mut real =
            Real { runtime, url: url.to_owned(), nodes: HashMap::new(), clock, postgres, store, lane_max: 15 };
        real.empty();
        real
    }

    /// Empties the ledger, and resets the clock.
    pub(crate) fn empty(&mut self) {
        self.nodes.clear();
        self.clock.store(BEGIN_MS, Relaxed);
        let deletes = TABLES.map(|table| format!("DELETE FROM touchline.{table};")).concat();
        self.execute(&format!(
            "{deletes} UPDATE touchline.event_head SET forgotten = 0, incarnation = 0; \
             UPDATE public.test_clock SET ms = {BEGIN_MS};"
        ));
    }

    /// Runs statements that are written for PostgreSQL.
    pub(crate) fn execute(&self, sql: &str) {
        match &self.postgres {
            Some(client) => self.runtime.block_on(client.batch_execute(sql)).expect("it is written"),
            None => {
                let DatabaseUrl::Sqlite(path) = self.url.parse().expect("the address is good") else { return };
                let sql = sql.split(';').filter(|part| !part.contains("test_clock")).collect::<Vec<_>>().join(";");
                let connection = rusqlite::Connection::open(path).expect("it opens");
                connection.busy_timeout(Duration::from_secs(10)).expect("it is set");
                connection.execute_batch(&sql.replace("touchline.", "")).expect("it is written");
            }
        }
    }

    /// Moves the clock while other threads use the database.
    pub(crate) fn advance_shared(&self, ms: u64) {
        let now_ms = self.clock.fetch_add(ms, Relaxed) + ms;
        if self.postgres.is_some() {
            self.execute(&format!("UPDATE public.test_clock SET ms = {now_ms}"));
        }
    }

    /// A process of a node.
    pub(crate) fn ledger(&self, node: &str) -> EventLedger {
        self.ledger_of(node, vec![wish("e", &[WORD], 4)])
    }

    /// A process of a node with these endpoints.
    pub(crate) fn ledger_of(&self, node: &str, wishes: Vec<EndpointWish>) -> EventLedger {
        let clock = Arc::clone(&self.clock);
        EventLedger::new(LedgerOptions {
            url: self.url.parse().expect("the address is good"),
            tls_ca: String::new(),
            timeout: Duration::from_secs(60),
            migrates: false,
            node: node.to_owned(),
            lease: LEASE,
            delay: DELAY,
            grace: GRACE,
            remember: REMEMBER,
            keys_max: KEYS_MAX,
            wishes,
            lane_max: self.lane_max,
            dead_max: 5,
            dead_ttl: Duration::from_secs(100),
            narrator: Arc::new(Scribe),
            clock: Arc::new(move || clock.load(Relaxed)),
        })
        .expect("the address is good")
    }

    pub(crate) fn of(&self, node: &str) -> &EventLedger {
        self.nodes.get(node).expect("the node was started")
    }

    /// The bodies of all events in the outbox.
    pub(crate) fn outbox(&self) -> Vec<String> {
        self.texts("SELECT body FROM event_outbox ORDER BY id")
    }

    /// The text column that a query returns.
    pub(crate) fn texts(&self, select: &str) -> Vec<String> {
        match (&self.postgres, self.url.parse()) {
            (Some(client), _) => {
                let select = select.replace("event_", "touchline.event_");
                let rows = self.runtime.block_on(client.query(&select, &[])).expect("it is read");
                rows.iter().map(|row| row.get(0)).collect()
            }
            (None, Ok(DatabaseUrl::Sqlite(path))) => {
                let connection = rusqlite::Connection::open(path).expect("it opens");
                let mut select = connection.prepare(select).expect("it is good");
                let rows = select.query_map([], |row| row.get(0)).expect("it is read");
                rows.collect::<rusqlite::Result<_>>().expect("it is read")
            }
            _ => panic!("{} is neither", self.url),
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.store.close();
    }
}

impl Desk for Real {
    fn start(&mut self, node: &str) {
        self.nodes.insert(node.to_owned(), self.ledger(node));
    }

    fn kill(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    fn enter(&mut self, node: &str, cause: LedgerCause) -> u64 {
        self.runtime.block_on(self.of(node).enter(cause)).expect("the database works").incarnation
    }

    fn write(&mut self, node: &str, incarnation: u64, batch: &LedgerBatch) -> LedgerWrite {
        self.runtime.block_on(self.of(node).write(incarnation, batch)).expect("the database works")
    }

    fn sweep(&mut self, node: &str) {
        while self.runtime.block_on(self.of(node).sweep()).expect("the database works").has_more {}
    }

    fn tidy(&mut self, node: &str) {
        while self.runtime.block_on(self.of(node).tidy()).expect("the database works").has_more {}
    }

    fn leave(&mut self, node: &str, incarnation: u64) {
        self.runtime.block_on(self.of(node).leave(incarnation)).expect("the database works");
    }

    fn advance(&mut self, ms: u64) {
        self.advance_shared(ms);
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    fn told(&mut self) -> Vec<Told> {
        self.outbox().iter().map(|body| Scribe::read(body)).collect()
    }

    fn has_leases(&self) -> bool {
        self.postgres.is_some()
    }
}
