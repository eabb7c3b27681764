//! An item that a database cannot store fails only for its sender. Everything else in its batch is written, in order,
//! and the database is healthy.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use touchline_protocol::stream::StreamPosition;
use touchline_store::{Append, ChannelDescription, InboxMessage, PrimaryOptions, StoreRefusal};
use touchline_testkit::PATIENCE;

use crate::stage::{HOUR_MS, Stage, behind, now_ms, offsets, on_both, publication, retention, tells, with};

/// A number that SQLite cannot store, and a text that PostgreSQL cannot store.
const BAD_TIME: u64 = u64::MAX;
const BAD_TEXT: &str = "a\0b";

/// Settings with which everything that arrives within this time becomes one batch.
fn in_one_batch(settings: &PrimaryOptions) -> PrimaryOptions {
    // Short: it only makes the test faster.
    with(settings, |store| (store.commit_delay, store.commit_size) = (Duration::from_millis(200), 1_000))
}

fn inbox_message(name: &str, expires_ms: u64) -> InboxMessage {
    InboxMessage {
        scope: "".into(),
        name: name.into(),
        message: br#"{"data":1}"#.as_slice().into(),
        expires_ms,
        limit: 100,
    }
}

fn results<T>(receiver: &Receiver<Result<T, StoreRefusal>>, count: usize) -> Vec<Result<T, StoreRefusal>> {
    (0..count).map(|_| receiver.recv_timeout(PATIENCE).expect("every request gets a result")).collect()
}

fn assert_no_failures(stage: &Stage) {
    let metrics = stage.store.metrics();
    assert!(metrics.is_healthy(), "the database works");
    assert_eq!(metrics.failures.load(Relaxed), 0, "no commit failed");
}

#[test]
fn a_bad_publication_fails_alone() {
    on_both("bad-publication", |settings| {
        let stage = Stage::open(&in_one_batch(settings));
        let (sender, all) = channel();
        for n in 0..40 {
            let done = tells(&sender);
            // Bad items come first, in the middle and last, and two of them are adjacent. One is in a channel with good
            // ones, and one is alone in its channel.
            let append = match n {
                0 | 17 | 18 => Append { key: BAD_TEXT.into(), time_ms: BAD_TIME, done, ..publication("even", n) },
                39 => Append { key: BAD_TEXT.into(), time_ms: BAD_TIME, done, ..publication("alone", n) },
                n => Append { done, ..publication(if n % 2 == 0 { "even" } else { "odd" }, n) },
            };
            stage.store.append(append);
        }
        let results_of_batch = results(&all, 40);
        let refused: Vec<_> = (0..40).filter(|n| results_of_batch[*n].is_err()).collect();
        assert_eq!(refused, [0, 17, 18, 39]);
        assert!(refused.iter().all(|n| results_of_batch[*n] == Err(StoreRefusal::Invalid)));
        let offsets_of = |channel: usize| -> Vec<u64> {
            results_of_batch
                .iter()
                .enumerate()
                .filter(|(n, _)| n % 2 == channel)
                .filter_map(|(_, o)| o.ok())
                .map(|StreamPosition { offset, .. }| offset.0)
                .collect()
        };
        assert_eq!(offsets_of(0), (1..=18).collect::<Vec<_>>(), "in order and without a gap");
        assert_eq!(offsets_of(1), (1..=18).collect::<Vec<_>>());
        assert_eq!(offsets(&stage.kept("even")), (1..=18).collect::<Vec<_>>(), "and so it is kept");
        assert_no_failures(&stage);
        assert_eq!(stage.offset(publication("even", 1)), 19, "and so it goes on");
        stage.store.close();
    });
}

#[test]
fn a_bad_message_and_a_bad_description_fail_alone() {
    on_both("bad-message", |settings| {
        let stage = Stage::open(&in_one_batch(settings));
        let (message_sender, message_results) = channel();
        let (description_sender, description_results) = channel();
        let (publication_sender, publication_results) = channel();
        stage.store.append(Append { done: tells(&publication_sender), ..publication("a", 1) });
        for n in 0..6 {
            let (name, expires_ms) = if n == 3 { (BAD_TEXT, BAD_TIME) } else { ("bike", now_ms() + HOUR_MS) };
            stage.store.queue_message(inbox_message(name, expires_ms), tells(&message_sender));
        }
        stage.store.describe(
            ChannelDescription { channel: "a".into(), title: "one".into(), ..ChannelDescription::default() },
            tells(&description_sender),
        );
        stage.store.append(Append { done: tells(&publication_sender), ..publication("a", 2) });
        let results_of_batch = results(&message_results, 6);
        assert_eq!(results_of_batch.iter().position(Result::is_err), Some(3));
        assert_eq!(
            (results_of_batch[3], results_of_batch.iter().filter(|o| o.is_err()).count()),
            (Err(StoreRefusal::Invalid), 1)
        );
        assert_eq!(results(&description_results, 1), [Ok(())]);
        assert!(results(&publication_results, 2).iter().all(Result::is_ok));
        assert_no_failures(&stage);
        stage.store.close();
    });
}

#[test]
fn a_batch_of_bad_items_only_is_refused_and_nothing_else_happens() {
    on_both("bad-only", |settings| {
        let stage = Stage::open(&in_one_batch(settings));
        let (sender, all) = channel();
        for n in 0..20 {
            stage.store.append(Append {
                key: BAD_TEXT.into(),
                time_ms: BAD_TIME,
                done: tells(&sender),
                ..publication("a", n)
            });
        }
        assert_eq!(results(&all, 20), [Err(StoreRefusal::Invalid); 20]);
        assert_no_failures(&stage);
        assert_eq!(stage.offset(publication("a", 1)), 1);
        stage.store.close();
    });
}

#[test]
fn times_without_end_are_kept_as_long_as_can_be() {
    on_both("for-ever", |settings| {
        let stage = Stage::open(settings);
        assert_eq!(stage.offset(Append { retention: retention(100, u64::MAX), ..publication("a", 1) }), 1);
        stage.store.load("b".into(), behind(0), 10, u64::MAX);
        assert_eq!(stage.offset(Append { retention: retention(100, u64::MAX), ..publication("a", 2) }), 2);
        assert_eq!(offsets(&stage.kept("a")), [1, 2]);
        assert_no_failures(&stage);
        stage.store.close();
    });
}
