//! Rows of an outbox become publications in the transaction that deletes them, if the node holds their partition.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use touchline_store::outbox::{
    ClaimedRows, HandledRows, OutboxOptions, OutboxReader, OutboxReport, RowHandler, RowOutcome, RowsHandled,
};
use touchline_store::{Append, RowAppends, RowsRefusal};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::{PATIENCE, until, until_eq};

use crate::stage::{Stage, on_postgres, publication, settings};

/// Rows that were passed to the handler, and the sender for their outcomes.
type HandedOver = (ClaimedRows, oneshot::Sender<Vec<RowOutcome>>);

/// A handler that passes the rows to the test, which decides on the outcomes.
struct ToTest {
    rows: Mutex<Sender<HandedOver>>,
    failures: Mutex<Vec<String>>,
}

impl RowHandler for ToTest {
    fn handle(&self, rows: ClaimedRows) -> RowsHandled<'_> {
        let (sender, outcomes) = oneshot::channel();
        let number = rows.rows.len();
        let _ = self.rows.lock().expect("no test thread panics while it holds the lock").send((rows, sender));
        Box::pin(async move {
            let outcomes = outcomes.await.unwrap_or_else(|_| vec![RowOutcome::Kept; number]);
            let is_any_kept = outcomes.contains(&RowOutcome::Kept);
            HandledRows { outcomes, pause: is_any_kept.then_some(Duration::from_millis(20)) }
        })
    }

    fn delay(&self, _: u32) -> Duration {
        Duration::from_millis(20)
    }

    fn report(&self, report: OutboxReport) {
        if let OutboxReport::Failing(_, why) = report {
            self.failures.lock().expect("no test thread panics while it holds the lock").push(why);
        }
    }
}

/// A consumer of the table `outbox` on a separate thread.
struct Reader {
    handed_over: Receiver<HandedOver>,
    handler: Arc<ToTest>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Reader {
    fn start(url: &str) -> Self {
        let table = |name: &str| name.parse().expect("it is a name");
        let reader = OutboxReader::new(OutboxOptions {
            name: "shop".to_owned(),
            dsn: url.to_owned(),
            notification_dsn: String::new(),
            tls: None,
            table: table("outbox"),
            dead_table: table("outbox_dead"),
            partitions: 1,
            select_limit: 10,
            // Short: it only makes the test faster.
            poll_interval: Duration::from_millis(20),
            notification_channel: String::new(),
            tries_lock: true,
        })
        .expect("the address is good");
        let (sender, handed_over) = channel();
        let handler = Arc::new(ToTest { rows: Mutex::new(sender), failures: Mutex::default() });
        let (stop, stopped) = watch::channel(false);
        let of_thread = Arc::clone(&handler);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it is made");
            runtime.block_on(reader.run(of_thread, stopped));
        });
        Reader { handed_over, handler, stop, thread: Some(thread) }
    }

    fn next(&self) -> HandedOver {
        self.handed_over.recv_timeout(PATIENCE).expect("rows come")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        while let Ok((rows, outcomes)) = self.handed_over.try_recv() {
            let _ = outcomes.send(vec![RowOutcome::Kept; rows.rows.len()]);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Inserts this number of rows into the table.
fn fill(postgres: &PostgresServer, rows: u32) {
    postgres.sql(&format!(
        "CREATE TABLE IF NOT EXISTS outbox (id bigserial PRIMARY KEY, method text NOT NULL, payload jsonb NOT NULL, \
         partition integer NOT NULL DEFAULT 0); \
         INSERT INTO outbox (method, payload) \
         SELECT 'publish', jsonb_build_object('n', n) FROM generate_series(1, {rows}) n"
    ));
}

fn append_of(stage: &Stage, rows: &ClaimedRows, make: impl Fn(u64) -> Append) -> Result<(), RowsRefusal> {
    let (sender, result) = channel();
    stage.store.append_rows(RowAppends {
        claim: rows.claim.clone(),
        rows: rows.rows.iter().map(|row| (row.id, make(row.id as u64))).collect(),
        done: Box::new(move |outcome| {
            let _ = sender.send(outcome);
        }),
    });
    result.recv_timeout(PATIENCE).expect("the request gets a reply")
}

#[test]
fn a_row_is_deleted_and_stored_together_and_once() {
    on_postgres("outbox-once", |url, postgres| {
        let stages = [Stage::open(&settings(url)), Stage::open(&settings(url))];
        fill(postgres, 5);
        let reader = Reader::start(url);
        let (rows, outcomes) = reader.next();
        assert_eq!(rows.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        for stage in [&stages[0], &stages[1], &stages[0]] {
            assert_eq!(append_of(stage, &rows, |n| publication("a", n)), Ok(()), "who comes later stores nothing");
        }
        assert_eq!(postgres.sql("SELECT count(*) FROM outbox"), "0");
        let texts: Vec<String> = stages[0].kept("a").into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, [1, 2, 3, 4, 5].map(|n| format!(r#"{{"data":{n}}}"#)));
        outcomes.send(vec![RowOutcome::Gone; 5]).expect("it is waited for");
    });
}

#[test]
fn a_claim_that_is_lost_or_of_another_database_takes_no_row() {
    on_postgres("outbox-fence", |url, postgres| {
        let stage = Stage::open(&settings(url));
        fill(postgres, 2);
        let reader = Reader::start(url);
        let (rows, outcomes) = reader.next();
        // A node that was frozen finds that its transaction has ended.
        let holder = postgres.sql(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND \
             ((classid::bigint << 32) | objid::bigint) = hashtext('centrifugo_partition_lock_shop0')",
        );
        postgres.sql(&format!("SELECT pg_terminate_backend({holder})"));
        until("the transaction is over", || {
            postgres.sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {holder}")) == "0"
        });
        assert_eq!(append_of(&stage, &rows, |n| publication("a", n)), Err(RowsRefusal::OtherDatabase));
        assert_eq!(postgres.sql("SELECT count(*) FROM outbox"), "2");
        drop(outcomes);
        // The rows arrive again under a new claim, which another database does not know.
        let (rows, outcomes) = reader.next();
        postgres.sql("CREATE DATABASE copy TEMPLATE template0");
        let copy =
            Stage::open(&settings(&format!("{}/copy", url.strip_suffix("/postgres").expect("it names a database"))));
        assert_eq!(append_of(&copy, &rows, |n| publication("a", n)), Err(RowsRefusal::OtherDatabase));
        assert_eq!(append_of(&stage, &rows, |n| publication("a", n)), Ok(()));
        outcomes.send(vec![RowOutcome::Gone; 2]).expect("it is waited for");
        let sqlite = std::env::temp_dir().join(format!("touchline-store-outbox-{}.db", std::process::id()));
        let file = Stage::open(&settings(&format!("sqlite:{}", sqlite.display())));
        assert!(!file.store.takes_rows());
        assert_eq!(append_of(&file, &rows, |n| publication("a", n)), Err(RowsRefusal::OtherDatabase));
        drop(file);
        let _ = std::fs::remove_file(sqlite);
    });
}

#[test]
fn rows_that_the_database_cannot_store_are_named_and_the_others_wait() {
    on_postgres("outbox-bad", |url, postgres| {
        let stage = Stage::open(&settings(url));
        fill(postgres, 4);
        let reader = Reader::start(url);
        let (rows, outcomes) = reader.next();
        // The second row contains a text with NUL.
        let make = |n| Append { key: if n == 2 { "a\0b".into() } else { "".into() }, ..publication("a", n) };
        assert_eq!(append_of(&stage, &rows, make), Err(RowsRefusal::Invalid(vec![2])));
        assert_eq!((postgres.sql("SELECT count(*) FROM outbox").as_str(), stage.kept("a").len()), ("4", 0));
        let why = || RowOutcome::Failed("can't be stored".to_owned());
        outcomes.send(vec![RowOutcome::Kept, why(), RowOutcome::Kept, RowOutcome::Kept]).expect("it waits");
        let (rows, outcomes) = reader.next();
        assert_eq!(rows.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(postgres.sql("SELECT id || ' ' || error FROM outbox_dead"), "2 can't be stored");
        assert_eq!(append_of(&stage, &rows, make), Ok(()));
        outcomes.send(vec![RowOutcome::Gone; 3]).expect("it is waited for");
        assert_eq!(stage.kept("a").len(), 3);
    });
}

#[test]
fn what_has_to_be_tried_again_comes_again_and_what_was_done_does_not() {
    on_postgres("outbox-again", |url, postgres| {
        fill(postgres, 4);
        let reader = Reader::start(url);
        let (_, outcomes) = reader.next();
        outcomes.send(vec![RowOutcome::Done, RowOutcome::Kept, RowOutcome::Kept, RowOutcome::Done]).expect("it waits");
        let (rows, outcomes) = reader.next();
        assert_eq!(rows.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [2, 3]);
        outcomes.send(vec![RowOutcome::Done, RowOutcome::Done]).expect("it is waited for");
        until_eq("0".to_owned(), || postgres.sql("SELECT count(*) FROM outbox"));
    });
}

#[test]
fn rows_that_are_kept_do_not_hide_those_behind_them() {
    on_postgres("outbox-ahead", |url, postgres| {
        // 25 rows must be tried again, including two that must be the last of their transactions. Other rows follow.
        fill(postgres, 25);
        postgres.sql("UPDATE outbox SET method = 'history_remove' WHERE id IN (3, 12)");
        fill(postgres, 12);
        let reader = Reader::start(url);
        let is_bad = |id: i64| id <= 25;
        let mut done = Vec::new();
        for _ in 0..20 {
            let (rows, outcomes) = reader.next();
            let ids: Vec<i64> = rows.rows.iter().map(|row| row.id).collect();
            assert!(ids.is_sorted() && ids[0] == 1, "what is kept comes first, in its order: {ids:?}");
            assert!(ids.len() <= 25 + 10, "{ids:?}");
            done.extend(ids.iter().copied().filter(|id| !is_bad(*id)));
            let outcome = |id: &i64| if is_bad(*id) { RowOutcome::Kept } else { RowOutcome::Done };
            outcomes.send(ids.iter().map(outcome).collect()).expect("it is waited for");
            if done.len() == 12 {
                break;
            }
        }
        assert_eq!(done, (26..=37).collect::<Vec<i64>>(), "each once, in its order");
        let (rows, outcomes) = reader.next();
        assert_eq!(rows.rows.len(), 25);
        outcomes.send(vec![RowOutcome::Done; 25]).expect("it is waited for");
        until_eq("0".to_owned(), || postgres.sql("SELECT count(*) FROM outbox"));
    });
}

/// The address of a database, written in ways that share no text except the port.
fn other_texts(url: &str, postgres: &PostgresServer) -> Vec<String> {
    let port = postgres.sql("SHOW port");
    assert!(url.contains(&port), "{url}");
    postgres.sql("CREATE ROLE shop LOGIN SUPERUSER");
    vec![
        format!("postgresql://shop@localhost:{port}/postgres?application_name=shop"),
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres"),
    ]
}

#[test]
fn a_database_is_known_by_itself_and_not_by_its_address() {
    on_postgres("outbox-same", |url, postgres| {
        let stage = Stage::open(&settings(url));
        for (number, text) in other_texts(url, postgres).iter().enumerate() {
            fill(postgres, 3);
            let reader = Reader::start(text);
            let (rows, outcomes) = reader.next();
            assert_eq!(append_of(&stage, &rows, |n| publication("a", n)), Ok(()), "{text}");
            assert_eq!(postgres.sql("SELECT count(*) FROM outbox"), "0", "{text}");
            assert_eq!(stage.kept("a").len(), 3 * (number + 1), "{text}");
            outcomes.send(vec![RowOutcome::Gone; 3]).expect("it is waited for");
        }
    });
}

/// A table in which the method and the payload may be NULL.
const LOOSE_TABLE: &str = "CREATE TABLE outbox (id bigserial PRIMARY KEY, method text, payload jsonb, \
     partition integer NOT NULL DEFAULT 0); \
     INSERT INTO outbox (method, payload) VALUES ('publish', '1'), (NULL, '2'), ('publish', NULL)";

#[test]
fn a_bad_row_stays_while_the_dead_table_cannot_take_it_and_goes_into_it_later() {
    on_postgres("outbox-dead", |url, postgres| {
        postgres.sql(LOOSE_TABLE);
        let reader = Reader::start(url);
        let why = || RowOutcome::Failed("bad".to_owned());
        let (rows, outcomes) = reader.next();
        let read: Vec<_> = rows.rows.iter().map(|row| (row.method.is_some(), row.payload.is_some())).collect();
        assert_eq!(read, [(true, true), (false, true), (true, false)]);
        postgres.sql("ALTER TABLE outbox_dead ADD CONSTRAINT full_now CHECK (false)");
        outcomes.send(vec![RowOutcome::Done, why(), why()]).expect("it is waited for");
        let (rows, outcomes) = reader.next();
        assert_eq!(rows.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [2, 3], "what was done is gone");
        let failures = reader.handler.failures.lock().expect("no test thread panics while it holds the lock").clone();
        assert!(failures.iter().any(|why| why.contains("can't be put aside")), "{failures:?}");
        postgres.sql("ALTER TABLE outbox_dead DROP CONSTRAINT full_now");
        outcomes.send(vec![why(), why()]).expect("it is waited for");
        until_eq("0".to_owned(), || postgres.sql("SELECT count(*) FROM outbox"));
        let dead = "SELECT string_agg(concat_ws(' ', id, method, payload), ',' ORDER BY id) FROM outbox_dead";
        assert_eq!(postgres.sql(dead), "2 2,3 publish");
    });
}

#[test]
fn nothing_is_handed_over_that_could_not_be_deleted() {
    on_postgres("outbox-right", |url, postgres| {
        fill(postgres, 1);
        postgres.sql("CREATE ROLE reader LOGIN; GRANT SELECT ON outbox TO reader");
        let reader = Reader::start(&url.replacen("postgres@", "reader@", 1));
        let told = |reader: &Reader| {
            let failures = reader.handler.failures.lock().expect("no test thread panics while it holds the lock");
            failures.iter().any(|why| why.contains("GRANT SELECT, DELETE"))
        };
        until("the reader reports the missing right", || told(&reader));
        assert!(reader.handed_over.try_recv().is_err());
        postgres.sql("GRANT DELETE ON outbox TO reader");
        let (_, outcomes) = reader.next();
        outcomes.send(vec![RowOutcome::Done]).expect("it is waited for");
    });
}

#[test]
fn what_may_not_be_repeated_later_is_the_last_of_its_transaction() {
    on_postgres("outbox-last", |url, postgres| {
        fill(postgres, 0);
        postgres.sql(
            "INSERT INTO outbox (method, payload) SELECT unnest(ARRAY['publish', 'broadcast', 'history_remove', \
             'publish', 'disconnect', 'unsubscribe', 'publish', 'publish']), '{}'",
        );
        let reader = Reader::start(url);
        for expected in [&[1, 2, 3][..], &[4, 5], &[6], &[7, 8]] {
            let (rows, outcomes) = reader.next();
            assert_eq!(rows.rows.iter().map(|row| row.id).collect::<Vec<_>>(), expected);
            let first = postgres.sql("SELECT min(id) FROM outbox");
            assert_eq!(first, expected[0].to_string(), "what is before it is committed");
            outcomes.send(vec![RowOutcome::Done; expected.len()]).expect("it is waited for");
        }
    });
}

#[test]
fn a_row_is_told_from_another_one_with_its_id() {
    on_postgres("outbox-incarnation", |url, postgres| {
        let mut known = std::collections::HashSet::new();
        fill(postgres, 0);
        for statement in ["SELECT 1", "TRUNCATE outbox RESTART IDENTITY", "DROP TABLE outbox"] {
            postgres.sql(statement);
            fill(postgres, 1);
            let reader = Reader::start(url);
            let (rows, outcomes) = reader.next();
            let first = rows.rows[0].clone();
            outcomes.send(vec![RowOutcome::Kept]).expect("it is waited for");
            let (rows, outcomes) = reader.next();
            assert_eq!((first.id, &first), (1, &rows.rows[0]), "it stays the same however often it is read");
            assert!(known.insert(first.incarnation), "after {statement}");
            outcomes.send(vec![RowOutcome::Done]).expect("it is waited for");
        }
    });
}
