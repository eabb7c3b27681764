//! Inbox messages are kept in order, and returned until they are discarded or expire.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

use bytes::Bytes;
use touchline_store::{InboxMessage, StoreEvent, StoreRefusal};
use touchline_testkit::{PATIENCE, until};

use crate::stage::{HOUR_MS, Stage, now_ms, on_both, tells};

fn message(name: &str, text: &str, ttl_ms: u64) -> InboxMessage {
    let message = Bytes::from(format!(r#"{{"data":"{text}"}}"#));
    InboxMessage { scope: "".into(), name: name.into(), message, expires_ms: now_ms() + ttl_ms, limit: 3 }
}

fn queue(stage: &Stage, message: InboxMessage) -> Result<u64, StoreRefusal> {
    let (sender, reply) = channel();
    stage.store.queue_message(message, tells(&sender));
    reply.recv_timeout(PATIENCE).expect("the request gets a reply")
}

fn of(stage: &Stage, wanted: &str, behind: u64, limit: usize) -> Vec<(u64, Bytes)> {
    stage.store.inbox_messages("".into(), wanted.into(), behind, limit);
    let events = stage.events.lock().expect("no test thread panics while it holds the lock");
    loop {
        if let StoreEvent::InboxMessages { name, messages, .. } = events.recv_timeout(PATIENCE).expect("an event comes")
            && &*name == wanted
        {
            return messages.expect("the inbox can be read");
        }
    }
}

fn ids(messages: &[(u64, Bytes)]) -> Vec<u64> {
    messages.iter().map(|(id, _)| *id).collect()
}

#[test]
fn messages_wait_in_order_until_they_are_discarded() {
    on_both("messages", |settings| {
        let mut sent = Vec::new();
        {
            let stage = Stage::open(settings);
            for text in ["one", "two", "three"] {
                sent.push(queue(&stage, message("bike", text, HOUR_MS)).expect("the inbox has room"));
            }
            queue(&stage, message("car", "else", HOUR_MS)).expect("the inbox has room");
            assert_eq!(queue(&stage, message("bike", "four", HOUR_MS)), Err(StoreRefusal::InboxFull));
            assert!(sent.is_sorted());
            let events = stage.events.lock().expect("no test thread panics while it holds the lock");
            let queued: Vec<Box<str>> = events
                .try_iter()
                .filter_map(|event| match event {
                    StoreEvent::MessageQueued { name, .. } => Some(name),
                    _ => None,
                })
                .collect();
            assert_eq!(queued, ["bike".into(), "bike".into(), "bike".into(), "car".into()], "each is reported");
            drop(events);
            stage.store.close();
        }
        let stage = Stage::open(settings);
        let messages = of(&stage, "bike", 0, 100);
        assert_eq!(ids(&messages), sent, "no message is lost by a restart");
        assert_eq!(messages[1].1, r#"{"data":"two"}"#);
        assert_eq!(ids(&of(&stage, "bike", sent[0], 1)), [sent[1]]);
        let (sender, reply) = channel();
        stage.store.discard_messages(vec![sent[0], sent[1]], tells(&sender));
        assert_eq!(reply.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(ids(&of(&stage, "bike", 0, 100)), [sent[2]]);
        stage.store.close();
    });
}

#[test]
fn a_message_expires() {
    on_both("expiry", |settings| {
        let stage = Stage::open(settings);
        queue(&stage, message("bike", "late", 1)).expect("the inbox has room");
        let kept = queue(&stage, message("bike", "in time", HOUR_MS)).expect("the inbox has room");
        crate::stage::pass_a_millisecond();
        assert_eq!(
            ids(&of(&stage, "bike", 0, 100)),
            [kept],
            "an expired message is not returned, even before its row is deleted"
        );
        until("it is deleted and counted", || stage.store.metrics().inbox_messages_expired.load(Relaxed) == 1);
        assert_eq!(stage.store.metrics().inbox_messages.load(Relaxed), 2);
        stage.store.close();
    });
}
