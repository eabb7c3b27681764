//! When users were connected last: the later time stays, and old times go.

use std::sync::mpsc::channel;

use touchline_store::{PrimaryOptions, SeenUser, StoreRefusal};

use crate::stage::{Stage, TIMEOUT, now_ms, on_both, tells};

fn note(stage: &Stage, rows: &[(&str, u64)]) -> Result<(), StoreRefusal> {
    let (sender, reply) = channel();
    let rows = rows.iter().map(|(user, seen_s)| SeenUser { user: (*user).into(), seen_s: *seen_s }).collect();
    stage.store.note_seen(rows, tells(&sender));
    reply.recv_timeout(TIMEOUT).expect("the request gets a reply")
}

fn read(stage: &Stage, users: &[&str], after_s: u64) -> Vec<(String, u64)> {
    let (sender, reply) = channel();
    let sender = std::sync::Mutex::new(sender);
    let done = move |result| {
        let _ = sender.lock().expect("no thread panics with it").send(result);
    };
    stage.store.seen(users.iter().map(|user| (*user).into()).collect(), after_s, Box::new(done));
    let seen = reply.recv_timeout(TIMEOUT).expect("the request gets a reply").expect("the database answers");
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
        let until = std::time::Instant::now() + TIMEOUT;
        while !read(&stage, &["old"], 0).is_empty() {
            assert!(std::time::Instant::now() < until, "it goes");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(read(&stage, &["bob"], 0).len(), 1);
    });
}
