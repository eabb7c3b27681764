//! Commands from a table of PostgreSQL, as subscribers and the application see them.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ConsumerType, NamedConsumer, Settings};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::{until, until_eq};

use super::bans::Scratch;
use super::support::TestServer;

/// A table as the guide creates it.
const TABLE: &str = "CREATE TABLE outbox (id bigserial PRIMARY KEY, method text NOT NULL, payload jsonb NOT NULL, \
     partition integer NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now())";

/// A database with the table, and the URL of one of its users.
struct Shop {
    postgres: PostgresServer,
    dsn: String,
    _scratch: Scratch,
}

impl Shop {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let postgres = PostgresServer::start(&scratch.0);
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
        // Short: it only makes the test faster.
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
    // A command that is not a publication waits for the commands before it.
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:b"}}));
    shop.insert("publish", &json!({"channel": "history:b", "data": 1}));
    shop.insert("history_remove", &json!({"channel": "history:b"}));
    shop.insert("publish", &json!({"channel": "history:b", "data": 2}));
    assert_eq!([client.publication(), client.publication()].map(|of| of["data"].clone()), [1, 2]);
    let kept = server.api("history", json!({"channel": "history:b", "limit": 10}));
    assert_eq!(kept["result"]["publications"][0]["data"], 2, "{kept}");
    // Subscribers may receive a publication before its row is counted.
    until("every row is counted", || count(&server, "processed") >= 1_503);
    until_eq(1_503, || count(&server, "processed"));
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
    until_eq((1, 1), || (count(&server, "failed"), count(&server, "processed")));
    assert_eq!(shop.postgres.sql("SELECT to_regclass('outbox_dead') IS NULL"), "t");
}

/// Another program that holds the lock of the partition, under Centrifugo's key.
struct LockHolder(Child);

impl LockHolder {
    fn start(postgres: &PostgresServer) -> Self {
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
        until_eq((0, 0), || (count(&server, "processed"), count(&server, "failed")));
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

/// A node whose durable channels are in a separate database, which can be away while the outbox is there.
fn node_with_other_primary(shop: &Shop, primary: &PostgresServer) -> TestServer {
    shop.node(|settings| {
        outbox(settings).partition_select_limit = 10;
        add_durable_channels(settings, &primary.url());
    })
}

/// Adds durable channels in a database, as the namespace `durable`.
pub(crate) fn add_durable_channels(settings: &mut Settings, url: &str) {
    let mut durable = settings.channel.namespaces[0].clone();
    durable.name = "durable".to_owned();
    durable.options.durable = true;
    settings.channel.namespaces.push(durable);
    settings.store.primary.url = url.to_owned();
}

/// The data of the publications in a channel's history.
pub(crate) fn kept(server: &TestServer, channel: &str) -> Vec<Value> {
    let history = server.api("history", json!({"channel": channel, "limit": 1_000}));
    let publications = history["result"]["publications"].as_array().cloned().unwrap_or_default();
    publications.iter().map(|publication| publication["data"].clone()).collect()
}

#[test]
fn a_channel_that_fails_holds_up_no_other_one_and_keeps_its_order() {
    let (shop, scratch) = (Shop::new("consumers-past"), Scratch::new("consumers-past-primary"));
    let primary = PostgresServer::start(&scratch.0);
    let server = node_with_other_primary(&shop, &primary);
    shop.insert("publish", &json!({"channel": "durable:a", "data": 0}));
    until("the first is published", || kept(&server, "durable:a") == [0]);
    primary.kill();
    // The failing channel has more rows than one transaction takes. One of them is not a publication.
    for n in 1..=25 {
        shop.insert("publish", &json!({"channel": "durable:a", "data": n}));
        if n == 5 {
            shop.insert("unsubscribe", &json!({"channel": "durable:a", "user": "1"}));
        }
    }
    shop.insert("publish", &json!({"channel": "history:b", "data": 1}));
    shop.insert("history_remove", &json!({"channel": "history:b"}));
    shop.insert("disconnect", &json!({"user": "1"}));
    shop.insert("broadcast", &json!({"channels": ["history:b", "durable:a"], "data": 2}));
    shop.insert("publish", &json!({"channel": "history:b", "data": 3}));
    shop.insert("publish", &json!({"channel": "history:c", "data": 4}));
    until("what is behind is carried out", || kept(&server, "history:c") == [4]);
    assert_eq!(kept(&server, "history:b"), Vec::<Value>::new(), "a broadcast waits in all of its channels");
    assert_eq!(shop.waiting(), "28");
    until("touchline_consumer_retrying >= 1", || server.metric("touchline_consumer_retrying{consumer=\"shop\"}") >= 1);
    until("it is stuck", || server.metric("touchline_consumer_stuck{consumer=\"shop\"}") == 1);
    // Later commands are still carried out.
    shop.insert("publish", &json!({"channel": "history:c", "data": 5}));
    until("it continues", || kept(&server, "history:c").len() == 2);
    primary.again();
    until("the table is empty", || shop.waiting() == "0");
    let expected: Vec<Value> = (0..=25).chain([2]).map(Value::from).collect();
    assert_eq!(kept(&server, "durable:a"), expected, "in their order, each once");
    assert_eq!(kept(&server, "history:b"), [2, 3]);
    until("it gets on", || server.http("GET", "/readyz", "", "") == (200, "{}".to_owned()));
    until_eq(0, || server.metric("touchline_consumer_retrying{consumer=\"shop\"}"));
}

#[test]
fn rows_that_can_never_be_carried_out_delay_nobody_and_are_kept_aside() {
    let shop = Shop::new("consumers-malformed");
    shop.postgres
        .sql("ALTER TABLE outbox ALTER payload TYPE text, ALTER payload DROP NOT NULL, ALTER method DROP NOT NULL");
    let good = |n: u32| {
        shop.insert("publish", &json!({"channel": "history:a", "data": n}));
    };
    good(1);
    shop.postgres.sql(
        r#"INSERT INTO outbox (method, payload) VALUES
        ('publish', 'junk'), ('publish', ''), ('publish', '[1]'), (NULL, '{}'), ('publish', NULL),
        ('publish', '{"channel": "history:a"}'), ('publish', '{"channel": "", "data": 1}'),
        ('publish', '{"channel": "none:a", "data": 1}'), ('history_remove', '{"channel": 7}'),
        ('publish', '{"channel": "history:a\u0000", "data": 1, "idempotency_key": "a\u0000b"}'),
        ('publish', '{"channel": "history:a", "data": "' || repeat('x', 11 * 1024 * 1024) || '"}'),
        ('no_method', '{}');
        INSERT INTO outbox (method, payload, partition) VALUES ('publish', '{"channel": "history:a", "data": 9}', 7)"#,
    );
    good(2);
    let server = shop.node(|settings| outbox(settings).use_try_lock = true);
    until("the good ones are published", || kept(&server, "history:a").last() == Some(&json!(2)));
    until("one is left, which nobody reads", || shop.waiting() == "1");
    assert_eq!(kept(&server, "history:a")[0], 1);
    until_eq((0, 0), || (count(&server, "passed_over"), count(&server, "retried")));
    let dead = shop.postgres.sql("SELECT count(*) FROM outbox_dead");
    until_eq(("12", 12), || (dead.as_str(), count(&server, "failed")));
    assert_eq!(shop.postgres.sql("SELECT count(*) FROM outbox_dead WHERE error = ''"), "0");
    until("the other partition is counted", || server.metric("touchline_consumer_unread{consumer=\"shop\"}") == 1);
}

/// A certificate of a server at 127.0.0.1 with its key, as files that PostgreSQL reads, and the options that use them.
fn tls_options(scratch: &Scratch) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::create_dir_all(&scratch.0).expect("the directory is ours");
    let [certificate, key] = ["server.crt", "server.key"].map(|name| scratch.0.join(name));
    std::fs::write(&certificate, made.cert.pem()).expect("the directory is ours");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the directory is ours");
    // PostgreSQL requires that its own user owns the key. If tests do not run as root, their user owns it and runs
    // PostgreSQL too.
    let _ = Command::new("chown").arg("postgres").arg(&key).stderr(Stdio::null()).status();
    let closed = Command::new("chmod").arg("600").arg(&key).status();
    assert!(closed.is_ok_and(|status| status.success()));
    let options = format!("-c ssl=on -c ssl_cert_file={} -c ssl_key_file={}", certificate.display(), key.display());
    (options, made.cert.pem())
}

#[test]
fn over_tls_rows_are_read_from_a_server_that_is_known_alone() {
    let scratch = Scratch::new("consumers-tls");
    let (options, authority) = tls_options(&scratch);
    let postgres = PostgresServer::start_with(&scratch.0, &[], &options);
    postgres.sql(TABLE);
    let dsn = format!("{}?sslmode=verify-full", postgres.url());
    let shop = Shop { dsn, postgres, _scratch: scratch };
    shop.insert("publish", &json!({"channel": "history:a", "data": 1}));
    let stuck = |server: &TestServer| server.metric("touchline_consumer_stuck{consumer=\"shop\"}") == 1;
    let stranger = shop.node(|_| {});
    until("the certificate is refused", || stuck(&stranger));
    let wrong_name = shop.node(|settings| {
        let tls = &mut outbox(settings).tls;
        (tls.enabled, tls.server_ca_pem, tls.server_name) = (true, authority.clone(), "elsewhere".to_owned());
    });
    until("the name is refused", || stuck(&wrong_name));
    assert_eq!(shop.waiting(), "1");
    let server = shop.node(|settings| {
        let tls = &mut outbox(settings).tls;
        (tls.enabled, tls.server_ca_pem) = (true, authority);
    });
    until("the row is published", || kept(&server, "history:a") == [1]);
    let encrypted = "SELECT count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE ssl AND application_name = 'touchline'";
    assert_eq!(shop.postgres.sql(encrypted), "t");
}
