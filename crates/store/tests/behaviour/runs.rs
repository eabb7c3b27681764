//! Runs: positions of publications that a database has lost differ from all positions of its present history.

use std::path::PathBuf;
use std::time::Duration;

use touchline_protocol::stream::{Epoch, Offset, Run, RunId, StreamPosition};
use touchline_store::{PrimaryOptions, StoredHistory};
use touchline_testkit::until;

use crate::stage::{HOUR_MS, Stage, behind, execute, offsets, on_both, publication, retention, settings};

/// The last offset of a run that belongs to the present history. `None` = the run is not known.
fn end(history: &StoredHistory, run: RunId) -> Option<u64> {
    let Run { number, .. } = history.runs.known.iter().find(|known| known.id == run)?;
    let next = history.runs.first.iter().find(|later| later.number > *number);
    Some(next.map_or(history.top.0, |next| next.first.0 - 1))
}

fn current(history: &StoredHistory) -> RunId {
    history.runs.known.last().expect("there is one").id
}

#[test]
fn a_restored_backup_marks_the_positions_that_are_lost() {
    let scratch = std::env::temp_dir().join(format!("touchline-store-runs-{}", std::process::id()));
    let path = |name: &str| -> PathBuf { scratch.join(name) };
    let open = || Stage::open(&settings(&format!("sqlite:{}", path("primary.db").display())));
    let stage = open();
    let appended: Vec<_> = (1..=5).map(|n| stage.append(publication("a", n)).expect("it is stored")).collect();
    let first = appended[0].epoch.run_id();
    let backup = rusqlite::Connection::open(path("primary.db")).expect("it opens");
    backup.execute("VACUUM INTO ?1", [path("copy.db").to_str().expect("it is text")]).expect("it is copied");
    drop(backup);
    (6..=10).for_each(|n| assert_eq!(stage.offset(publication("a", n)), n));
    stage.store.close();
    let second = open();
    assert_eq!(end(&second.load("a", 0, 100), first), Some(10), "all positions stay valid after a restart");
    let of_second = second.append(publication("a", 11)).expect("it is stored").epoch.run_id();
    assert_ne!(of_second, first);
    assert_eq!(end(&second.load("a", 0, 100), first), Some(10));
    second.store.close();
    for extension in ["db", "db-wal", "db-shm"] {
        let _ = std::fs::remove_file(path("primary").with_extension(extension));
    }
    std::fs::copy(path("copy.db"), path("primary.db")).expect("it is restored");
    let third = open();
    assert_eq!(third.offset(publication("a", 600)), 6, "its offsets are given once more");
    (7..=12).for_each(|n| assert_eq!(third.offset(publication("a", 100 * n)), n));
    let history = third.load("a", 0, 100);
    assert_eq!(end(&history, first), Some(5), "6 to 10 of the first run are lost");
    assert_eq!(end(&history, of_second), None, "and the whole second run");
    assert_eq!(end(&history, current(&history)), Some(12));
    third.store.close();
    std::fs::remove_dir_all(scratch).expect("it is ours");
}

#[test]
fn runs_are_forgotten_with_the_publications_that_they_gave() {
    let scratch = std::env::temp_dir().join(format!("touchline-store-many-runs-{}", std::process::id()));
    let of_file = settings(&format!("sqlite:{}", scratch.join("primary.db").display()));
    for n in 1..=20 {
        let stage = Stage::open(&of_file);
        assert_eq!(
            stage.offset(touchline_store::Append { retention: retention(4, HOUR_MS), ..publication("a", n) }),
            n
        );
        stage.store.close();
    }
    let stage = Stage::open(&of_file);
    let history = stage.load("a", 0, 4);
    assert_eq!(offsets(&stage.kept("a")), [17, 18, 19, 20]);
    assert!(history.runs.first.len() <= 6, "{:?}", history.runs.first);
    let known: Vec<RunId> = history.runs.known.iter().map(|run| run.id).collect();
    let ends: Vec<_> = known.iter().map(|run| end(&history, *run)).collect();
    assert_eq!(ends[15..], [Some(16), Some(17), Some(18), Some(19), Some(20), Some(20)], "exact for all that is kept");
    assert!(
        ends[..15].iter().all(|end| end.is_some_and(|end| end < 16)),
        "and behind the history for the others: {ends:?}"
    );
    stage.store.close();
    std::fs::remove_dir_all(scratch).expect("it is ours");
}

#[test]
fn a_row_of_a_later_version_is_refused_and_not_misread() {
    on_both("newer", |given| {
        let stage = Stage::open(given);
        stage.offset(publication("a", 1));
        assert_eq!(stage.kept("a").len(), 1, "a row of today's format is read");
        stage.store.close();
        execute(given, &["UPDATE touchline.publication SET format = 2"]);
        let stage = Stage::open(given);
        stage.store.load("a".into(), behind(0), 100, 1_000);
        let events = stage.events.lock().expect("no test thread panics while it holds the lock");
        loop {
            match events.recv_timeout(Duration::from_secs(30)).expect("an event comes") {
                touchline_store::StoreEvent::Loaded { history, .. } => break assert_eq!(history, None),
                _ => continue,
            }
        }
        drop(events);
        stage.store.close();
    });
}

/// Rows that version 0.1 writes. Later versions must be able to read them unchanged after their migrations.
const ROWS_1: [&str; 5] = [
    r#"INSERT INTO touchline.channel
         (id, name, epoch, top, oldest, version, version_epoch, ttl_ms, meta_ttl_ms, due_ms,
       run) VALUES (5, 'news', 7, 2, 1, 3, 'v', 3600000, 3600000, 9223372036854775807, 40)"#,
    r#"INSERT INTO touchline.channel_run (channel, run, first) VALUES (5, 40, 1)"#,
    r#"INSERT INTO touchline.publication (channel, "offset", time_ms, format, data)
       VALUES (5, 1, 4102444800000, 1, CAST('{"data":1}' AS DATA)),
         (5, 2, 4102444800000, 1, CAST('{"data":2,"new":[]}' AS DATA))"#,
    r#"INSERT INTO touchline.idempotency (channel, key, "offset", expires_ms) VALUES (5, 'k', 2, 4102444800000)"#,
    r#"INSERT INTO touchline.inbox_message (id, scope, name, message, expires_ms, format)
       VALUES (9, 's', 'n', '{"data":3}', 4102444800000, 1)"#,
];

#[test]
fn rows_of_the_first_version_are_read() {
    on_both("rows", |given| {
        Stage::open(given).store.close();
        let data = if matches!(given.url, touchline_store::DatabaseUrl::Sqlite(_)) { "BLOB" } else { "TEXT" };
        let rows = ROWS_1.map(|row| row.replace("AS DATA", &format!("AS {data}")));
        execute(given, &rows.each_ref().map(String::as_str));
        execute(given, &["UPDATE touchline.run SET number = 40, id = 1099511627775"]);
        let stage = Stage::open(given);
        let history = stage.load("news", 0, 100);
        assert!(history.epoch.has_same_channel_part(&Epoch::from_bits(7)), "in a run of its own: {:?}", history.epoch);
        assert_eq!((history.top.0, history.floor.0), (2, 0));
        assert_eq!(end(&history, RunId(1_099_511_627_775)), Some(2));
        let texts: Vec<_> =
            history.kept.iter().map(|kept| String::from_utf8_lossy(&kept.object).into_owned()).collect();
        assert_eq!(texts, [r#"{"data":1}"#, r#"{"data":2,"new":[]}"#], "with what is not known here");
        assert_eq!(stage.offset(touchline_store::Append { key: "k".into(), ..publication("news", 1) }), 2);
        stage.store.inbox_messages("s".into(), "n".into(), 0, 10);
        let events = stage.events.lock().expect("no test thread panics while it holds the lock");
        loop {
            match events.recv_timeout(Duration::from_secs(30)).expect("an event comes") {
                touchline_store::StoreEvent::InboxMessages { messages, .. } => {
                    break assert_eq!(messages, Some(vec![(9, r#"{"data":3}"#.into())]));
                }
                _ => continue,
            }
        }
        drop(events);
        stage.store.close();
    });
}

#[test]
fn nodes_on_one_postgresql_share_a_run_and_notify_each_other() {
    crate::stage::on_postgres("shared", |url, postgres| {
        let of = |node: &str| PrimaryOptions { notifier: node.to_owned(), ..settings(url) };
        let one = Stage::open(&of("one"));
        let first = one.append(publication("a", 1)).expect("it is stored");
        let two = Stage::open(&of("two"));
        assert_eq!(two.append(publication("a", 2)).expect("it is stored").epoch, first.epoch, "another node is there");
        until("the publication of the other node is reported", || {
            let events = one.events.lock().expect("no test thread panics while it holds the lock");
            let second = StreamPosition { offset: Offset(2), ..first };
            events.try_iter().any(
                |event| matches!(event, touchline_store::StoreEvent::Advanced { position, .. } if position == second),
            )
        });
        // The database is set back while nodes use it, as by a restore into the same tables. The nodes remember more
        // renewals of their leases than the database.
        postgres.sql(
            "DELETE FROM touchline.publication WHERE \"offset\" = 2; \
             UPDATE touchline.channel SET top = 1; \
             UPDATE touchline.lease SET beat = 0",
        );
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE pid <> pg_backend_pid() \
             AND application_name = 'touchline'",
        );
        until("a new run begins", || {
            one.append(publication("b", 1)).is_ok_and(|appended| appended.epoch.run_id() != first.epoch.run_id())
        });
        let again = one.append(publication("a", 20)).expect("it is stored");
        assert_eq!(again.offset, Offset(2));
        let history = one.load("a", 0, 100);
        assert_eq!((end(&history, first.epoch.run_id()), end(&history, again.epoch.run_id())), (Some(1), Some(2)));
        one.store.close();
        two.store.close();
    });
}

#[test]
fn optional_arguments_of_touchline_publish_may_be_null() {
    crate::stage::on_postgres("null", |url, postgres| {
        let retention = std::sync::Arc::new(|_: &str| Some(retention(10, HOUR_MS)));
        let stage = Stage::open(&PrimaryOptions { retention, ..settings(url) });
        for arguments in ["", ", NULL", ", NULL, NULL", ", 'key', NULL", ", '', '{\"a\": \"b\"}'"] {
            postgres.sql(&format!("SELECT touchline_publish('a', '1'{arguments})"));
        }
        until("all are published", || stage.kept("a").len() == 5);
        stage.store.close();
    });
}
