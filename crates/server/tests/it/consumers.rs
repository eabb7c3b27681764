//! Commands that come from a table of PostgreSQL, as subscribers and the application see them.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ConsumerType, NamedConsumer, Settings};

use super::bans::Scratch;
use super::postgres::Postgres;
use super::support::{TestServer, until};

/// A table as the guide makes it.
const TABLE: &str = "CREATE TABLE outbox (id bigserial PRIMARY KEY, method text NOT NULL, payload jsonb NOT NULL, \
     partition integer NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now())";

/// A database with the table, and the address of a user of it.
struct Shop {
    postgres: Postgres,
    dsn: String,
    _scratch: Scratch,
}

impl Shop {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let postgres = Postgres::start(&scratch.0);
        postgres.sql(TABLE);
        Shop { dsn: postgres.url(), postgres, _scratch: scratch }
    }

    fn insert(&self, method: &str, payload: &Value) {
        self.postgres.sql(&format!("INSERT INTO outbox (method, payload) VALUES ('{method}', '{payload}')"));
    }

    fn waiting(&self) -> String {
        self.postgres.sql("SELECT count(*) FROM outbox")
    }

    /// A node that reads the table.
    fn node(&self, change: impl FnOnce(&mut Settings)) -> TestServer {
        let mut consumer = NamedConsumer { name: "shop".to_owned(), ..NamedConsumer::default() };
        (consumer.options.enabled, consumer.options.source) = (true, ConsumerType::Postgresql);
        let outbox = &mut consumer.options.sources.postgresql;
        outbox.dsn = self.dsn.clone();
        outbox.outbox_table_name = "outbox".to_owned();
        outbox.partition_poll_interval = Duration::from_millis(20);
        TestServer::with(|settings| {
            settings.consumers.push(consumer);
            change(settings);
        })
    }
}

fn outbox(settings: &mut Settings) -> &mut touchline_server::OutboxSettings {
    &mut settings.consumers[0].options.sources.postgresql
}

fn count(server: &TestServer, outcome: &str) -> u64 {
    server.metric(&format!("touchline_consumer_commands_total{{consumer=\"shop\",outcome=\"{outcome}\"}}"))
}

#[test]
fn subscribers_are_told_of_rows_in_their_order_in_channels_of_each_kind() {
    let shop = Shop::new("consumers-live");
    let server = shop.node(|settings| {
        let mut durable = settings.channel.namespaces[0].clone();
        durable.name = "durable".to_owned();
        durable.options.durable = true;
        settings.channel.namespaces.push(durable);
        settings.store.primary.url = shop.dsn.clone();
    });
    until("the node is ready", || server.http("GET", "/readyz", "", "").0 == 200);
    for channel in ["plain", "history:a", "durable:a"] {
        let mut client = server.connected();
        let reply = client.ask(json!({"id": 2, "subscribe": {"channel": channel}}));
        assert!(reply["subscribe"].is_object(), "{reply}");
        let inserted = format!(
            "INSERT INTO outbox (method, payload) SELECT 'publish', \
             jsonb_build_object('channel', '{channel}', 'data', n) FROM generate_series(1, 500) n"
        );
        shop.postgres.sql(&inserted);
        for n in 1..=500 {
            assert_eq!(client.publication()["data"], n, "{channel}");
        }
    }
    until("the table is empty", || shop.waiting() == "0");
    assert_eq!(
        shop.postgres.sql("SELECT count(*) FROM touchline.idempotency"),
        "0",
        "rows stored exactly once need no key"
    );
    // What is no publication waits for what comes before it.
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:b"}}));
    shop.insert("publish", &json!({"channel": "history:b", "data": 1}));
    shop.insert("history_remove", &json!({"channel": "history:b"}));
    shop.insert("publish", &json!({"channel": "history:b", "data": 2}));
    assert_eq!([client.publication(), client.publication()].map(|of| of["data"].clone()), [1, 2]);
    let kept = server.api("history", json!({"channel": "history:b", "limit": 10}));
    assert_eq!(kept["result"]["publications"][0]["data"], 2, "{kept}");
    assert_eq!(count(&server, "processed"), 1_503);
}

#[test]
fn where_no_table_for_bad_rows_can_be_made_they_are_counted_and_go() {
    let mut shop = Shop::new("consumers-poor");
    shop.postgres.sql(
        "CREATE ROLE poor LOGIN; GRANT SELECT, INSERT, DELETE ON outbox TO poor; \
         REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    );
    shop.dsn = shop.dsn.replacen("postgres@", "poor@", 1);
    shop.insert("publish", &json!({"channel": "none:a", "data": 1}));
    shop.insert("publish", &json!({"channel": "history:a", "data": 1}));
    let server = shop.node(|_| {});
    until("the table is empty", || shop.waiting() == "0");
    assert_eq!((count(&server, "failed"), count(&server, "processed")), (1, 1));
    assert_eq!(shop.postgres.sql("SELECT to_regclass('outbox_dead') IS NULL"), "t");
}

/// Another program that holds the lock of the partition, with Centrifugo's key.
struct LockHolder(Child);

impl LockHolder {
    fn start(postgres: &Postgres) -> Self {
        let lock = "SELECT pg_advisory_lock(hashtext('centrifugo_partition_lock_shop0')); SELECT pg_sleep(600)";
        let mut command = Command::new("psql");
        let psql = command.args([&postgres.url(), "-qAt", "-c", lock]).stdout(Stdio::null()).stderr(Stdio::null());
        let holder = LockHolder(psql.spawn().expect("psql is there"));
        until("the lock is held", || {
            postgres.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") == "1"
        });
        holder
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_partition_that_centrifugo_reads_is_left_alone_until_it_is_free() {
    for tries_lock in [true, false] {
        let shop = Shop::new("consumers-lock");
        let holder = LockHolder::start(&shop.postgres);
        let server = shop.node(|settings| outbox(settings).use_try_lock = tries_lock);
        shop.insert("publish", &json!({"channel": "history:a", "data": 1}));
        until("the row is counted", || server.metric("touchline_consumer_waiting{consumer=\"shop\"}") == 1);
        assert_eq!((count(&server, "processed"), count(&server, "failed")), (0, 0));
        shop.postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
        until("the row is published", || count(&server, "processed") == 1);
        drop(holder);
    }
}

#[test]
fn a_node_that_stops_leaves_no_row_half_done() {
    let shop = Shop::new("consumers-stop");
    shop.postgres.sql(
        "INSERT INTO outbox (method, payload) SELECT 'publish', jsonb_build_object('channel', 'durable:a', 'data', n) \
         FROM generate_series(1, 5000) n",
    );
    let mut stored = 0;
    for _ in 0..3 {
        let mut server = shop.node(|settings| {
            let mut durable = settings.channel.namespaces[0].clone();
            (durable.name, durable.options.history_size) = ("durable".to_owned(), 10_000);
            durable.options.durable = true;
            settings.channel.namespaces.push(durable);
            settings.store.primary.url = shop.dsn.clone();
        });
        until("some are stored", || {
            let now = shop.postgres.sql("SELECT coalesce(to_regclass('touchline.publication')::text, '')");
            !now.is_empty() && shop.postgres.sql("SELECT count(*) FROM touchline.publication") != stored.to_string()
        });
        server.stop();
        stored = shop.postgres.sql("SELECT count(*) FROM touchline.publication").parse().unwrap_or_default();
        let waiting: i64 = shop.waiting().parse().unwrap_or_default();
        assert_eq!(stored + waiting, 5_000, "each row is a publication or waits");
    }
}
