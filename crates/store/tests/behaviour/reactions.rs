//! Totals of reactions: the last total of a contributor is kept, pages contain all, and unchanged channels are deleted.

use std::sync::mpsc::channel;

use touchline_store::{PrimaryOptions, ReactionPlace, ReactionRow, StoreRefusal};
use touchline_testkit::{PATIENCE, until};

use crate::stage::{Stage, now_ms, on_both, tells};

fn keep(stage: &Stage, rows: &[(&str, &str, &str, u64)]) -> Result<(), StoreRefusal> {
    let (sender, reply) = channel();
    let row = |(channel, contributor, state, changed_ms): &(&str, &str, &str, u64)| ReactionRow {
        channel: (*channel).into(),
        contributor: (*contributor).into(),
        state: state.as_bytes().to_vec().into(),
        changed_ms: *changed_ms,
    };
    stage.store.keep_reactions(rows.iter().map(row).collect(), tells(&sender));
    reply.recv_timeout(PATIENCE).expect("the request gets a reply")
}

fn read(stage: &Stage, after: ReactionPlace, limit: usize) -> Vec<(String, String, String)> {
    let (sender, reply) = channel();
    let sender = std::sync::Mutex::new(sender);
    let done = move |result| {
        let _ = sender.lock().expect("no thread panics with it").send(result);
    };
    stage.store.reactions(after, limit, Box::new(done));
    let rows = reply.recv_timeout(PATIENCE).expect("the request gets a reply").expect("the database answers");
    let texts = |row: ReactionRow| {
        (row.channel.into(), row.contributor.into(), String::from_utf8_lossy(&row.state).into_owned())
    };
    rows.into_iter().map(texts).collect()
}

#[test]
fn the_last_word_of_a_contributor_stays_and_quiet_channels_go() {
    on_both("reactions", |settings| {
        let now_ms = now_ms();
        let stage = Stage::open(&PrimaryOptions { reactions_expire_ms: 3_600_000, ..settings.clone() });
        let old_ms = now_ms - 4_000_000;
        assert_eq!(
            keep(&stage, &[("a", "n1/1", "1", now_ms), ("a", "n2/1", "2", old_ms), ("b", "n1/1", "3", old_ms)]),
            Ok(())
        );
        assert_eq!(keep(&stage, &[("a", "n1/1", "4", now_ms)]), Ok(()));
        until("the unchanged channel is deleted", || read(&stage, ("a".into(), "z".into()), 10).is_empty());
        let of = |contributor: &str, state: &str| ("a".to_owned(), contributor.to_owned(), state.to_owned());
        assert_eq!(read(&stage, ReactionPlace::default(), 1), [of("n1/1", "4")]);
        assert_eq!(
            read(&stage, ("a".into(), "n1/1".into()), 1),
            [of("n2/1", "2")],
            "an old row of a busy channel stays"
        );
        assert_eq!(read(&stage, ("a".into(), "n2/1".into()), 1), []);
    });
}
