//! Nodes that share one PostgreSQL database: notifications between nodes, leases, and a node that was away.

use std::time::Duration;

use touchline_protocol::stream::Offset;
use touchline_store::{Append, PrimaryOptions, StoreEvent, StoreRefusal};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::{PATIENCE, until};

use crate::stage::{HOUR_MS, Stage, offsets, on_both, on_postgres, publication, retention, settings, with};

fn node(name: &str, url: &str) -> Stage {
    Stage::open(&PrimaryOptions { notifier: name.to_owned(), ..settings(url) })
}

/// Waits until a node reports that it may have missed something.
fn missed(stage: &Stage) {
    let events = stage.events.lock().expect("no test thread panics while it holds the lock");
    while !matches!(events.recv_timeout(PATIENCE).expect("an event comes"), StoreEvent::Missed) {}
}

#[test]
fn a_burst_beyond_the_size_can_still_be_read_by_nodes_that_are_told_of_it() {
    on_postgres("burst", |url, _| {
        let two = node("two", url);
        // The node has its lease before the burst.
        two.offset(publication("other", 1));
        let together = with(&settings(url), |store| store.commit_delay = Duration::from_millis(200));
        let one = Stage::open(&PrimaryOptions { notifier: "one".to_owned(), ..together });
        (1..=29).for_each(|n| one.store.append(Append { retention: retention(10, HOUR_MS), ..publication("a", n) }));
        assert_eq!(one.offset(Append { retention: retention(10, HOUR_MS), ..publication("a", 30) }), 30);
        let history = two.load("a", 2, 10);
        assert_eq!(
            (history.floor.0, history.kept.len()),
            (2, 28),
            "publications that its subscribers have not received"
        );
        until("it is deleted when every node has had the time to read it", || {
            one.offset(Append { retention: retention(10, HOUR_MS), ..publication("a", 0) });
            two.load("a", 2, 10).floor > Offset(2)
        });
        assert_eq!(two.load("a", 0, 10).kept.len(), 10, "a new subscriber gets what the channel keeps");
        one.remove("a");
        assert_eq!(two.load("a", 2, 10).kept.len(), 0, "what is removed is gone at once");
        one.store.close();
        two.store.close();
    });
}

#[test]
fn a_node_whose_lease_ran_out_catches_up_once_what_was_under_way_is_stored() {
    on_postgres("lapsed", |url, postgres| {
        let one = node("one", url);
        // The writer and the listener have both connected.
        missed(&one);
        missed(&one);
        assert_eq!(one.offset(publication("a", 1)), 1);
        postgres.sql("UPDATE touchline.lease SET expires = clock_timestamp() - interval '1 s'");
        // Another node's batch begins while the lease is lapsed, so it does not notify this node. It is committed after
        // the lease is live again.
        let batch = "BEGIN; SELECT pg_advisory_xact_lock_shared(8390891508474246766); \
            SELECT touchline.append('{a}', '{4102444800000}', '{\"2\"}', '{\"\"}', '{0}', '{\"\"}', \
                '{100}', \
            '{3600000}', '{3600000}', '{7}', 'two'); \
            DO $$ BEGIN \
              WHILE (SELECT beat FROM touchline.lease WHERE node = 'one') < 2 \
                LOOP PERFORM pg_sleep(0.05); END LOOP; \
            END $$; \
            SELECT pg_sleep(0.5); COMMIT";
        std::thread::scope(|scope| {
            scope.spawn(|| postgres.sql(batch));
            missed(&one);
            assert_eq!(one.load("a", 0, 100).top, Offset(2), "it is stored when the node reports `Missed`");
        });
        one.store.close();
    });
}

#[test]
fn a_node_that_stops_gives_its_lease_up() {
    on_postgres("stops", |url, postgres| {
        let one = node("one", url);
        let first = one.append(publication("a", 1)).expect("it is stored");
        one.store.close();
        assert_eq!(postgres.sql("SELECT count(*) FROM touchline.lease"), "0");
        let two = node("two", url);
        let second = two.append(publication("a", 2)).expect("it is stored");
        assert_ne!(
            second.epoch.run_id(),
            first.epoch.run_id(),
            "no node knows what happened to the database meanwhile"
        );
        two.store.close();
    });
}

fn is_begun_anew_after(name: &str, loss: &str) {
    on_postgres(name, |url, postgres: &PostgresServer| {
        let stage = node("one", url);
        let first = stage.append(publication("a", 1)).expect("it is stored");
        postgres.sql(loss);
        until("it goes on in a new run", || {
            stage.append(publication("b", 1)).is_ok_and(|appended| appended.epoch.run_id() != first.epoch.run_id())
        });
        until("and is healthy", || stage.store.metrics().is_healthy());
        assert_eq!(offsets(&stage.kept("b")), [1]);
        stage.store.close();
    });
}

#[test]
fn a_database_that_has_forgotten_its_runs_is_taken_up_again() {
    is_begun_anew_after("no-runs", "DELETE FROM touchline.run");
}

#[test]
fn a_database_that_was_emptied_is_taken_up_again() {
    let tables = ["channel", "publication", "run", "channel_run", "lease", "idempotency", "outbox"]
        .map(|table| format!("touchline.{table}"));
    is_begun_anew_after("emptied", &format!("TRUNCATE {}", tables.join(", ")));
}

#[test]
fn a_writer_that_has_ended_is_a_failure_and_not_a_full_queue() {
    on_both("ended", |settings| {
        let stage = Stage::open(settings);
        stage.store.append(Append { done: Box::new(|_| panic!("a defect of the callback")), ..publication("a", 1) });
        until("the node is not ready any more", || !stage.store.metrics().is_healthy());
        until("nothing is taken any more", || stage.append(publication("a", 2)) == Err(StoreRefusal::Failed));
        stage.store.close();
    });
}
