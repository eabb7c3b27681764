//! Letters to names: kept in order, given back until they are thrown away, and not for ever.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

use bytes::Bytes;
use touchline_store::{InboxMessage, StoreEvent, StoreRefusal};

use crate::stage::{HOUR_MS, PATIENCE, Stage, now_ms, on_both, tells};

fn letter(name: &str, text: &str, lives_ms: u64) -> InboxMessage {
    let message = Bytes::from(format!(r#"{{"data":"{text}"}}"#));
    InboxMessage { scope: "".into(), name: name.into(), message, expires_ms: now_ms() + lives_ms, limit: 3 }
}

fn post(stage: &Stage, letter: InboxMessage) -> Result<u64, StoreRefusal> {
    let (sender, answer) = channel();
    stage.store.queue_message(letter, tells(&sender));
    answer.recv_timeout(PATIENCE).expect("it is answered")
}

fn of(stage: &Stage, wanted: &str, behind: u64, limit: usize) -> Vec<(u64, Bytes)> {
    stage.store.inbox_messages("".into(), wanted.into(), behind, limit);
    let incoming = stage.incoming.lock().expect("nobody panics with it");
    loop {
        if let StoreEvent::InboxMessages { name, letters, .. } = incoming.recv_timeout(PATIENCE).expect("it comes")
            && &*name == wanted
        {
            return letters.expect("they can be had");
        }
    }
}

fn ids(letters: &[(u64, Bytes)]) -> Vec<u64> {
    letters.iter().map(|(id, _)| *id).collect()
}

#[test]
fn letters_wait_in_order_until_they_are_thrown_away() {
    on_both("letters", |settings| {
        let mut sent = Vec::new();
        {
            let stage = Stage::open(settings);
            for text in ["one", "two", "three"] {
                sent.push(post(&stage, letter("bike", text, HOUR_MS)).expect("there is room"));
            }
            post(&stage, letter("car", "else", HOUR_MS)).expect("there is room");
            assert_eq!(post(&stage, letter("bike", "four", HOUR_MS)), Err(StoreRefusal::InboxFull));
            assert!(sent.is_sorted());
            let incoming = stage.incoming.lock().expect("nobody panics with it");
            let called: Vec<Box<str>> = incoming
                .try_iter()
                .filter_map(|incoming| match incoming {
                    StoreEvent::MessageQueued { name, .. } => Some(name),
                    _ => None,
                })
                .collect();
            assert_eq!(called, ["bike".into(), "bike".into(), "bike".into(), "car".into()], "each is told of");
            drop(incoming);
            stage.store.close();
        }
        let stage = Stage::open(settings);
        let letters = of(&stage, "bike", 0, 100);
        assert_eq!(ids(&letters), sent, "a restart loses none");
        assert_eq!(letters[1].1, r#"{"data":"two"}"#);
        assert_eq!(ids(&of(&stage, "bike", sent[0], 1)), [sent[1]]);
        let (sender, answer) = channel();
        stage.store.discard_messages(vec![sent[0], sent[1]], tells(&sender));
        assert_eq!(answer.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(ids(&of(&stage, "bike", 0, 100)), [sent[2]]);
        stage.store.close();
    });
}

#[test]
fn nobody_comes_for_a_letter_in_time() {
    on_both("expiry", |settings| {
        let stage = Stage::open(settings);
        post(&stage, letter("bike", "late", 1)).expect("there is room");
        let kept = post(&stage, letter("bike", "in time", HOUR_MS)).expect("there is room");
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(ids(&of(&stage, "bike", 0, 100)), [kept], "it is not given out any more, wherever it is");
        stage.wait_until("it is thrown away and counted", |stage| {
            stage.store.metrics().inbox_messages_expired.load(Relaxed) == 1
        });
        assert_eq!(stage.store.metrics().inbox_messages.load(Relaxed), 2);
        stage.store.close();
    });
}
