//! History: publications in order, recovery, keys, versions, and removal.

use std::sync::mpsc::channel;
use std::time::Duration;

use touchline_protocol::stream::{Offset, StreamPosition};
use touchline_store::{Append, DatabaseUrl, StoreEvent, StoreRefusal};
use touchline_testkit::{PATIENCE, until};

use crate::stage::{
    HOUR_MS, Stage, behind, execute, now_ms, offsets, on_both, payload, publication, retention, tells, with,
};

#[test]
fn publications_are_numbered_in_order_and_read_back() {
    on_both("order", |settings| {
        let stage = Stage::open(settings);
        let first = stage.append(publication("a", 1)).expect("it is stored");
        assert_eq!(first.offset, Offset(1));
        assert_eq!(stage.append(publication("a", 2)), Ok(StreamPosition { offset: Offset(2), epoch: first.epoch }));
        assert_eq!(stage.offset(publication("b", 1)), 1, "each channel counts by itself");
        assert_eq!(stage.kept("a"), [(1, r#"{"data":1}"#.to_owned()), (2, r#"{"data":2}"#.to_owned())]);
        let behind = stage.load("a", 1, 1_000);
        assert_eq!((behind.epoch, behind.top.0, behind.floor.0, behind.kept.len()), (first.epoch, 2, 1, 1));
        let last = stage.load("a", 0, 1);
        assert_eq!((last.top.0, last.floor.0, last.kept.len()), (2, 1, 1), "no more than a channel keeps");
        stage.store.close();
        let again = Stage::open(settings);
        let third = again.append(publication("a", 3)).expect("it is stored");
        assert_eq!(third.offset.0, 3, "and goes on after a restart");
        assert!(third.epoch.has_same_channel_part(&first.epoch), "in another run");
        assert_eq!(offsets(&again.kept("a")), [1, 2, 3]);
        again.store.close();
    });
}

#[test]
fn many_publications_at_once_are_reported_in_order() {
    on_both("batch", |settings| {
        let stage = Stage::open(settings);
        (0..500).for_each(|n| stage.store.append(publication(if n % 2 == 0 { "even" } else { "odd" }, n)));
        let events = stage.events.lock().expect("no test thread panics while it holds the lock");
        let mut tops = [0, 0];
        while tops != [250, 250] {
            match events.recv_timeout(PATIENCE).expect("an event comes") {
                StoreEvent::Appended { channel, position, .. } => {
                    let top = &mut tops[usize::from(&*channel == "odd")];
                    assert_eq!(position.offset, Offset(*top + 1), "{channel}");
                    *top += 1;
                }
                StoreEvent::BatchReported | StoreEvent::Missed => {}
                other => panic!("{other:?}"),
            }
        }
        let last = events.recv_timeout(PATIENCE).expect("an event comes");
        assert!(matches!(last, StoreEvent::BatchReported), "`Settled` follows all results of the commit: {last:?}");
        stage.store.close();
    });
}

#[test]
fn a_key_returns_the_first_position_and_an_old_version_stores_nothing() {
    on_both("keys", |settings| {
        let stage = Stage::open(settings);
        let keyed = |channel: &str, key: &str| Append { key: key.into(), ..publication(channel, 1) };
        assert_eq!(stage.offset(keyed("a", "k")), 1);
        assert_eq!(stage.offset(keyed("a", "k")), 1);
        assert_eq!(stage.offset(keyed("a", "other")), 2);
        assert_eq!(stage.offset(keyed("b", "k")), 1, "a key is its channel's");
        stage.store.close();
        let stage = Stage::open(settings);
        assert_eq!(stage.offset(keyed("a", "k")), 1, "it outlives a restart");
        let version =
            |epoch: &str, version| Append { version, version_epoch: epoch.into(), ..publication("v", version) };
        let offsets: Vec<u64> = [("", 5), ("", 4), ("", 5), ("", 6), ("new", 1), ("new", 1), ("", 7)]
            .map(|(e, v)| stage.offset(version(e, v)))
            .into();
        assert_eq!(offsets, [1, 1, 1, 2, 3, 3, 4]);
        let events = stage.events.lock().expect("no test thread panics while it holds the lock");
        let new = events.try_iter().filter(|event| matches!(event, StoreEvent::Appended { .. })).count();
        assert_eq!(new, 4, "only new publications are reported");
        stage.store.close();
    });
}

#[test]
fn a_channel_keeps_no_more_than_it_should() {
    on_both("size", |settings| {
        let stage = Stage::open(settings);
        (1..=30).for_each(|n| {
            assert_eq!(stage.offset(Append { retention: retention(10, HOUR_MS), ..publication("a", n) }), n)
        });
        let history = stage.load("a", 0, 1_000);
        assert_eq!((history.top.0, history.floor.0, history.kept.len()), (30, 20, 10));
        // A smaller size applies from the next publication on, and a larger one does not restore anything.
        assert_eq!(stage.offset(Append { retention: retention(3, HOUR_MS), ..publication("a", 31) }), 31);
        assert_eq!(offsets(&stage.kept("a")), [29, 30, 31]);
        assert_eq!(stage.offset(Append { retention: retention(10, HOUR_MS), ..publication("a", 32) }), 32);
        assert_eq!(offsets(&stage.kept("a")), [29, 30, 31, 32]);
        stage.store.close();
    });
}

#[test]
fn what_is_old_goes_by_itself_and_the_position_goes_last() {
    on_both("age", |settings| {
        let stage = Stage::open(settings);
        let old = |n| Append { retention: retention(100, 1_500), ..publication("a", n) };
        let epoch = stage.append(old(1)).expect("it is stored").epoch;
        (2..=700).for_each(|n| stage.store.append(old(n)));
        until("what is old goes", || stage.kept("a").is_empty());
        let empty = stage.load("a", 0, 1_000);
        assert_eq!((empty.epoch, empty.top.0, empty.floor.0), (epoch, 700, 700), "the position stays for a while");
        until("the position goes", || stage.load("a", 0, 1_000).epoch != epoch);
        assert_eq!(stage.offset(old(1)), 1, "another life of the channel");
        stage.store.close();
    });
}

#[test]
fn what_is_old_behind_what_stays_stays_too() {
    on_both("clocks", |settings| {
        let stage = Stage::open(settings);
        // The clock moves back and forth, or the clocks of nodes differ.
        for (n, age_ms) in [(1, 2 * HOUR_MS), (2, 0), (3, 2 * HOUR_MS), (4, 0)] {
            assert_eq!(stage.offset(Append { time_ms: now_ms() - age_ms, ..publication("a", n) }), n);
        }
        until("what is old goes", || stage.load("a", 0, 100).floor > Offset(0));
        let history = stage.load("a", 0, 100);
        assert_eq!((history.floor.0, offsets(&stage.kept("a"))), (1, vec![2, 3, 4]), "a history has no holes");
        stage.store.close();
    });
}

#[test]
fn publications_before_a_gap_are_not_in_the_history() {
    on_both("hole", |settings| {
        let stage = Stage::open(settings);
        (1..=6).for_each(|n| assert_eq!(stage.offset(publication("a", n)), n));
        execute(settings, &["DELETE FROM touchline.publication WHERE \"offset\" = 3"]);
        assert_eq!((stage.load("a", 0, 100).floor.0, offsets(&stage.kept("a"))), (3, vec![4, 5, 6]));
        assert_eq!(stage.load("a", 4, 100).floor, Offset(4));
        execute(settings, &["DELETE FROM touchline.publication WHERE \"offset\" = 6"]);
        assert_eq!((stage.load("a", 0, 100).floor.0, stage.kept("a").len()), (6, 0));
        stage.store.close();
    });
}

#[test]
fn a_key_outlives_its_publication_and_keeps_its_channel() {
    on_both("keys-last", |settings| {
        let stage = Stage::open(settings);
        let brief = |channel: &str, key: &str| Append {
            key: key.into(),
            retention: retention(100, 1),
            ..publication(channel, 1)
        };
        let keyed = stage.append(brief("keyed", "k")).expect("it is stored");
        let epoch = stage.append(brief("other", "")).expect("it is stored").epoch;
        until("a channel without keys goes", || stage.load("other", 0, 10).epoch != epoch);
        assert!(stage.kept("keyed").is_empty());
        assert_eq!(stage.append(brief("keyed", "k")), Ok(keyed), "the first result, and nothing is published");
        stage.store.close();
    });
}

#[test]
fn a_channel_that_is_loaded_while_it_begins_is_reported_as_it_is() {
    on_both("begins", |settings| {
        let stage = Stage::open(&with(settings, |store| store.commit_size = 1));
        let names: Vec<String> = (0..100).map(|n| format!("a{n}")).collect();
        names.iter().for_each(|name| stage.store.load(name.as_str().into(), behind(0), 10, HOUR_MS));
        names.iter().for_each(|name| stage.store.append(publication(name, 1)));
        let events = stage.events.lock().expect("no test thread panics while it holds the lock");
        let mut loaded = 0;
        while loaded < names.len() {
            let StoreEvent::Loaded { channel, history, .. } = events.recv_timeout(PATIENCE).expect("an event comes")
            else {
                continue;
            };
            let history = history.unwrap_or_else(|| panic!("{channel} can be had"));
            assert_eq!((history.floor.0, history.kept.len() as u64), (0, history.top.0));
            loaded += 1;
        }
        stage.store.close();
    });
}

#[test]
fn what_is_removed_is_gone_and_the_position_stays() {
    on_both("remove", |settings| {
        let stage = Stage::open(settings);
        let epoch = stage.append(publication("a", 1)).expect("it is stored").epoch;
        (2..=5).for_each(|n| assert_eq!(stage.offset(publication("a", n)), n));
        stage.remove("a");
        stage.remove("unknown");
        let history = stage.load("a", 0, 1_000);
        assert_eq!((history.epoch, history.top.0, history.floor.0, history.kept.len()), (epoch, 5, 5, 0));
        assert_eq!(stage.offset(publication("a", 6)), 6);
        assert_eq!(offsets(&stage.kept("a")), [6]);
        stage.store.close();
    });
}

#[test]
fn a_channel_is_removed_among_publications_of_the_same_commit() {
    on_both("remove-among", |settings| {
        let together =
            // Short: it only makes the test faster.
            with(settings, |store| (store.commit_delay, store.commit_size) = (Duration::from_millis(200), 1_000));
        let stage = Stage::open(&together);
        assert_eq!(stage.offset(publication("a", 1)), 1);
        let (sender, appended) = channel();
        let (removes, removed) = channel();
        for n in 2..=5 {
            stage.store.append(Append { done: tells(&sender), ..publication("a", n) });
            if n == 4 {
                stage.store.remove("a".into(), tells(&removes));
            }
        }
        let offsets_of: Vec<_> = (0..4)
            .map(|_| {
                appended.recv_timeout(PATIENCE).expect("every append gets a result").map(|appended| appended.offset.0)
            })
            .collect();
        assert_eq!(offsets_of, [Ok(2), Ok(3), Ok(4), Ok(5)]);
        assert_eq!(removed.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(stage.offset(publication("a", 6)), 6, "the channel goes on");
        let history = stage.load("a", 0, 100);
        assert_eq!(
            (history.top.0, history.kept.len() as u64),
            (6, 6 - history.floor.0),
            "and what it keeps has no hole"
        );
        stage.store.close();
        let again = Stage::open(settings);
        assert_eq!(again.load("a", 0, 100).top, Offset(6));
        assert_eq!(again.offset(publication("a", 7)), 7, "also from what is on disk");
        again.store.close();
    });
}

#[test]
fn a_channel_that_is_only_loaded_has_an_epoch_that_lasts() {
    on_both("asked", |settings| {
        let stage = Stage::open(settings);
        let empty = stage.load("a", 0, 10);
        assert_eq!((empty.top.0, empty.floor.0, empty.kept.len()), (0, 0, 0));
        assert_eq!(empty.epoch.run_id(), empty.runs.known.last().expect("there is one").id);
        let first = StreamPosition { offset: Offset(1), epoch: empty.epoch };
        assert_eq!(stage.append(publication("a", 1)), Ok(first));
        stage.store.close();
    });
}

#[test]
fn any_text_comes_back_as_it_was() {
    on_both("text", |settings| {
        let stage = Stage::open(settings);
        let names = ["", "a'b\"c", "日本:чат😀", "x y%_\\"];
        for (n, name) in names.iter().enumerate() {
            let object = serde_json::json!({"data": format!("{name} \0 \\ € {n}")}).to_string();
            let payload = payload(&object);
            assert_eq!(stage.offset(Append { payload, key: (*name).into(), ..publication(name, 0) }), 1, "{name}");
            assert_eq!(stage.kept(name), [(1, object)]);
        }
        stage.store.close();
    });
}

#[test]
fn a_row_that_is_not_what_was_stored_is_refused_and_the_store_is_not_healthy() {
    let scratch = std::env::temp_dir().join(format!("touchline-store-row-{}", std::process::id()));
    for (name, damaged) in [
        ("bytes", &b"{\"data\":\"\xff\"}"[..]),
        ("brace", &b"{\"data\":1"[..]),
        ("list", &b"[1]"[..]),
        ("empty", &b""[..]),
        ("text", &b"{\"data\":\"\x01\"}"[..]),
    ] {
        let path = scratch.join(name).join("primary.db");
        let settings = crate::stage::settings(&format!("sqlite:{}", path.display()));
        let stage = Stage::open(&settings);
        ["a", "a", "b"].into_iter().for_each(|channel| assert!(stage.append(publication(channel, 1)).is_ok()));
        stage.store.close();
        let database = rusqlite::Connection::open(&path).expect("no other process has it open");
        database.execute("UPDATE publication SET data = ?1 WHERE offset = 2", [damaged]).expect("the row is there");
        drop(database);
        let stage = Stage::open(&settings);
        assert_eq!(stage.kept("b").len(), 1, "{name}: another channel is whole");
        assert!(stage.store.metrics().is_healthy(), "{name}: the row has not been read yet");
        assert_eq!(stage.try_load("a", 0, 10), None, "{name}");
        assert!(!stage.store.metrics().is_healthy(), "{name}");
        assert_eq!(stage.kept("b").len(), 1, "{name}: another channel can still be read");
        stage.store.close();
    }
    let _ = std::fs::remove_dir_all(&scratch);
}

#[test]
fn more_than_may_wait_is_refused_at_once() {
    on_both("full", |settings| {
        let narrow = with(settings, |store| (store.commit_queue, store.commit_size) = (10, 1));
        let stage = Stage::open(&narrow);
        let (sender, results_of_appends) = channel();
        for n in 0..300 {
            stage.store.append(Append { done: tells(&sender), ..publication("a", n) });
        }
        let results: Vec<_> =
            (0..300).map(|_| results_of_appends.recv_timeout(PATIENCE).expect("every request gets a result")).collect();
        let stored = results.iter().filter(|result| result.is_ok()).count();
        assert!(stored >= 10 && results.contains(&Err(StoreRefusal::QueueFull)), "{stored} were stored");
        assert_eq!(stage.load("a", 0, 1_000).top, Offset(stored as u64));
        stage.store.close();
    });
}

#[test]
fn the_debug_text_of_an_address_has_no_secret() {
    let url: DatabaseUrl = "postgres://me:secret@db/touchline".parse().expect("it is one");
    assert!(!format!("{url:?}").contains("secret"));
}

#[test]
fn what_is_made_in_sqlite_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = std::env::temp_dir().join(format!("touchline-store-modes-{}", std::process::id()));
    let directory = scratch.join("data");
    let path = directory.join("primary.db");
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it was made").permissions().mode() & 0o777;
    let settings = crate::stage::settings(&format!("sqlite:{}", path.display()));
    let stage = Stage::open(&settings);
    stage.offset(publication("a", 1));
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> =
        std::fs::read_dir(&directory).expect("it is there").map(|file| file.expect("it is there").path()).collect();
    assert_eq!(files.len(), 4, "the database, its log, its index and its lock: {files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{file:?}"));
    stage.store.close();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    Stage::open(&settings).store.close();
    assert_eq!(mode(&path), 0o644, "what was there keeps the rights of its owner");
    std::fs::remove_dir_all(scratch).expect("it is ours");
}
