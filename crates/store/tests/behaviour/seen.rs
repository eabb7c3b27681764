//! Records of when users were last connected: the later time is kept, and old times are deleted.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use touchline_store::{PrimaryOptions, SeenForgotten, SeenUser, StoreRefusal};
use touchline_testkit::{PATIENCE, until};

use crate::stage::{Stage, now_ms, on_both, on_postgres, tells};

fn note(stage: &Stage, rows: &[(&str, u64)]) -> Result<(), StoreRefusal> {
    let (sender, reply) = channel();
    let rows = rows.iter().map(|(user, seen_s)| SeenUser { user: (*user).into(), seen_s: *seen_s }).collect();
    stage.store.note_seen(rows, tells(&sender));
    reply.recv_timeout(PATIENCE).expect("the request gets a reply")
}

fn read(stage: &Stage, users: &[&str], after_s: u64) -> Vec<(String, u64)> {
    let (sender, reply) = channel();
    let sender = std::sync::Mutex::new(sender);
    let done = move |result| {
        let _ = sender.lock().expect("no thread panics with it").send(result);
    };
    stage.store.seen(users.iter().map(|user| (*user).into()).collect(), after_s, Box::new(done));
    let seen = reply.recv_timeout(PATIENCE).expect("the request gets a reply").expect("the database answers");
    let mut seen: Vec<_> = seen.into_iter().map(|row| (row.user.to_string(), row.seen_s)).collect();
    seen.sort();
    seen
}

#[test]
fn the_later_time_stays_and_old_ones_go() {
    on_both("seen", |settings| {
        let now_s = now_ms() / 1_000;
        let stage = Stage::open(&PrimaryOptions { seen_expires_s: 3_600, ..settings.clone() });
        assert_eq!(note(&stage, &[("bob", now_s), ("ann", now_s - 9), ("old", now_s - 4_000)]), Ok(()));
        assert_eq!(note(&stage, &[("ann", now_s - 5), ("bob", now_s - 7)]), Ok(()));
        let all = ["ann", "bob", "eve", "ann"];
        assert_eq!(read(&stage, &all[1..], 0), [("ann".to_owned(), now_s - 5), ("bob".to_owned(), now_s)]);
        assert_eq!(read(&stage, &all[1..], now_s - 5), [("bob".to_owned(), now_s)]);
        until("the old user is deleted", || read(&stage, &["old"], 0).is_empty());
        assert_eq!(read(&stage, &["bob"], 0).len(), 1);
    });
}

fn forget(stage: &Stage, user: &str) -> SeenForgotten {
    let (sender, reply) = channel();
    stage.store.forget_seen(user.into(), tells(&sender));
    reply.recv_timeout(PATIENCE).expect("the request gets a reply").expect("the database answers")
}

#[test]
fn a_user_is_forgotten_behind_the_notes_before() {
    on_both("seen-forgotten", |settings| {
        let now_s = now_ms() / 1_000;
        let stage = Stage::open(&PrimaryOptions { seen_expires_s: 3_600, ..settings.clone() });
        // The test does not wait for the record, and the deletion still comes after it.
        let row = |user: &str| SeenUser { user: user.into(), seen_s: now_s };
        stage.store.note_seen(vec![row("ann"), row("bob")], Box::new(|_| ()));
        assert_eq!(forget(&stage, "ann"), SeenForgotten::Deleted);
        assert_eq!([forget(&stage, "ann"), forget(&stage, "a'nn")], [SeenForgotten::Unknown; 2]);
        assert_eq!(read(&stage, &["ann", "bob"], 0), [("bob".to_owned(), now_s)]);
    });
}

#[test]
fn a_row_that_another_node_writes_is_not_waited_for() {
    on_postgres("seen-busy", |url, postgres| {
        let stage = Stage::open(&PrimaryOptions { seen_expires_s: 3_600, ..crate::stage::settings(url) });
        assert_eq!(note(&stage, &[("ann", now_ms() / 1_000)]), Ok(()));
        // Another program locks the row until the test lets it continue.
        let psql = Command::new("psql").args([url, "-qAt"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut other = psql.expect("psql is there");
        let (mut input, output) = (other.stdin.take().expect("it is piped"), other.stdout.take().expect("it is piped"));
        writeln!(input, "BEGIN; UPDATE touchline.user_seen SET seen_s = seen_s + 1; SELECT 'locked';")
            .expect("it reads");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("it writes");
        assert_eq!(line, "locked\n");
        assert_eq!(forget(&stage, "ann"), SeenForgotten::Busy);
        drop(input);
        assert!(other.wait().expect("it ends").success());
        assert_eq!(forget(&stage, "ann"), SeenForgotten::Deleted);
        assert_eq!(postgres.sql("SELECT count(*) FROM touchline.user_seen"), "0");
    });
}
