//! Shared facts are kept until they are removed or expire, and every node follows them.

use std::sync::mpsc::channel;

use touchline_protocol::fact::{Fact, FactChange, FactKey, FactsEvent};
use touchline_store::{DatabaseUrl, FactListing, PrimaryOptions, Store, StoreEvent, StoreRefusal};
use touchline_testkit::{PATIENCE, until};

use crate::stage::{Stage, execute, now_ms, on_both, on_postgres, settings, tells};

fn node(name: &str, settings: &PrimaryOptions) -> Stage {
    Stage::open(&PrimaryOptions { notifier: name.to_owned(), has_facts: true, ..settings.clone() })
}

fn key(name: &str) -> FactKey {
    FactKey { kind: "user_block".into(), name: name.into() }
}

fn fact(name: &str, expires_s: u64) -> Fact {
    Fact { key: key(name), value: "{}".into(), expires_s }
}

fn put(name: &str) -> FactChange {
    FactChange::Put(fact(name, 0))
}

fn try_change(stage: &Stage, change: FactChange) -> Result<(), StoreRefusal> {
    let (sender, reply) = channel();
    stage.store.change_fact(change, tells(&sender));
    reply.recv_timeout(PATIENCE).expect("the request gets a reply")
}

fn change(stage: &Stage, change: FactChange) {
    assert_eq!(try_change(stage, change), Ok(()));
}

/// The next event about facts, except those about the node's own changes.
fn next(stage: &Stage) -> FactsEvent {
    let events = stage.events.lock().expect("no test thread panics while it holds the lock");
    loop {
        match events.recv_timeout(PATIENCE).expect("an event comes") {
            StoreEvent::Facts(FactsEvent::Written { .. }) => {}
            StoreEvent::Facts(event) => return event,
            _ => {}
        }
    }
}

/// The names of a load, sorted.
fn loaded(stage: &Stage) -> Vec<String> {
    match next(stage) {
        FactsEvent::Loaded { facts, .. } => {
            let mut names: Vec<String> = facts.iter().map(|fact| fact.key.name.to_string()).collect();
            names.sort();
            names
        }
        other => panic!("a load, not {other:?}"),
    }
}

/// Waits until a node follows the changes of others. It loads the facts when it opens the store, and when it listens.
fn following(stage: &Stage) {
    assert_eq!((loaded(stage).len(), loaded(stage).len()), (0, 0));
}

/// The next `count` reported changes.
fn changes(stage: &Stage, count: usize) -> Vec<FactChange> {
    let mut all = Vec::new();
    while all.len() < count {
        match next(stage) {
            FactsEvent::Changed { changes, .. } => all.extend(changes),
            other => panic!("changes, not {other:?}"),
        }
    }
    all
}

#[test]
fn facts_survive_a_restart_and_each_change_is_reported_before_it_is_acknowledged() {
    on_both("facts", |settings| {
        let stage = node("one", settings);
        assert_eq!(loaded(&stage), [""; 0]);
        for name in ["ann", "bob", "e\"v\u{e9}"] {
            change(&stage, put(name));
        }
        change(&stage, FactChange::Remove(key("bob")));
        change(&stage, FactChange::Remove(key("nobody")));
        change(&stage, FactChange::Put(Fact { value: r#"{"again":1}"#.into(), ..fact("ann", 5_000_000_000) }));
        let (sender, reply) = channel();
        stage.store.change_fact(put("told"), tells(&sender));
        let events = stage.events.lock().expect("no test thread panics while it holds the lock");
        let is_told = |event: &StoreEvent| match event {
            StoreEvent::Facts(FactsEvent::Written { change, .. }) => &*change.key().name == "told",
            _ => false,
        };
        while !is_told(&events.recv_timeout(PATIENCE).expect("it is reported")) {}
        assert_eq!(reply.recv_timeout(PATIENCE), Ok(Ok(())));
        drop(events);
        stage.store.close();
        let stage = node("one", settings);
        let FactsEvent::Loaded { facts, .. } = next(&stage) else { panic!("a load comes first") };
        let mut facts = facts;
        facts.sort_by(|one, other| one.key.cmp(&other.key));
        let ann = Fact { value: r#"{"again":1}"#.into(), ..fact("ann", 5_000_000_000) };
        assert_eq!(facts, [ann, fact("e\"v\u{e9}", 0), fact("told", 0)]);
        stage.store.close();
    });
}

#[test]
fn facts_that_have_expired_are_deleted() {
    on_both("stale-facts", |settings| {
        let stage = node("one", settings);
        loaded(&stage);
        let now_s = now_ms() / 1_000;
        change(&stage, FactChange::Put(fact("old", now_s - 100)));
        change(&stage, FactChange::Put(fact("young", now_s + 100)));
        change(&stage, put("ageless"));
        stage.store.close();
        // The row is deleted a while later, because each opening trims.
        let is_gone = || {
            let stage = node("one", settings);
            let names = loaded(&stage);
            stage.store.close();
            names == ["ageless", "young"]
        };
        until("the expired row is deleted", is_gone);
    });
}

#[test]
fn every_node_follows_the_changes_of_the_others_in_their_order() {
    on_postgres("shared-facts", |url, _| {
        let (one, two) = (node("one", &settings(url)), node("two", &settings(url)));
        following(&one);
        following(&two);
        let mut expected = Vec::new();
        for number in 0..50 {
            let put = put(&format!("user-{number}"));
            change(&one, put.clone());
            expected.push(put);
        }
        assert_eq!(changes(&two, 50), expected);
        change(&two, FactChange::Remove(key("user-7")));
        change(&two, put("user-7"));
        change(&two, FactChange::Remove(key("user-8")));
        // A change that was overwritten before it was read may not be reported.
        let mut last = Vec::new();
        while last.last() != Some(&FactChange::Remove(key("user-8"))) {
            last.extend(changes(&two, 1));
        }
        let of_seven = last.iter().rfind(|change| *change.key() == key("user-7"));
        assert_eq!(of_seven, Some(&put("user-7")));
        one.store.close();
        two.store.close();
    });
}

#[test]
fn a_node_that_was_away_loads_everything() {
    on_postgres("facts-away", |url, postgres| {
        let (one, two) = (node("one", &settings(url)), node("two", &settings(url)));
        following(&one);
        following(&two);
        change(&one, put("ann"));
        assert_eq!(changes(&one, 1), changes(&two, 1));
        two.store.close();
        postgres.kill();
        assert_eq!(next(&one), FactsEvent::CutOff);
        postgres.again();
        loop {
            // The node may be notified again that it is cut off.
            if let FactsEvent::Loaded { facts, .. } = next(&one) {
                assert_eq!(facts, [fact("ann", 0)]);
                break;
            }
        }
        // These removals have left no rows, so a node that has not seen them cannot follow.
        until("it writes again", || try_change(&one, FactChange::Remove(key("ann"))).is_ok());
        while !matches!(next(&one), FactsEvent::Changed { .. }) {}
        postgres.sql("UPDATE touchline.fact_head SET revision = revision + 10, forgotten = revision + 5");
        assert_eq!(loaded(&one), [""; 0]);
        one.store.close();
    });
}

#[test]
fn facts_of_a_later_format_are_not_misread() {
    on_both("later-facts", |settings| {
        let stage = node("one", settings);
        loaded(&stage);
        change(&stage, put("ann"));
        stage.store.close();
        execute(settings, &["UPDATE touchline.fact SET format = 2"]);
        let options = PrimaryOptions { notifier: "one".to_owned(), has_facts: true, ..settings.clone() };
        let (sender, events) = channel();
        let sender = std::sync::Mutex::new(sender);
        let sink = move |event| drop(sender.lock().expect("no test thread panics").send(event));
        match Store::open(&options, sink) {
            Err(error) => assert!(error.to_string().contains("format 2"), "{error}"),
            // PostgreSQL is asked only after the store is open.
            Ok(store) => {
                let first = std::iter::from_fn(|| events.recv_timeout(PATIENCE).ok())
                    .find(|event| matches!(event, StoreEvent::Facts(_)));
                assert!(matches!(first, Some(StoreEvent::Facts(FactsEvent::CutOff))), "{first:?}");
                store.close();
            }
        }
    });
}

/// A node that keeps its facts elsewhere can warn that there are facts in this file.
#[test]
fn facts_that_are_left_in_a_file_are_counted() {
    on_both("left-facts", |settings| {
        assert_eq!(settings.url.facts_in_file(), 0, "nothing is there yet");
        let stage = node("one", settings);
        change(&stage, put("ann"));
        let expected = u64::from(matches!(settings.url, DatabaseUrl::Sqlite(_)));
        assert_eq!(settings.url.facts_in_file(), expected, "while it is open");
        stage.store.close();
        assert_eq!(settings.url.facts_in_file(), expected);
    });
}

#[test]
fn facts_are_listed_page_by_page() {
    on_both("facts-pages", |settings| {
        let stage = node("one", settings);
        let revoked = |name: &str| FactKey { kind: "token_revoke".into(), name: name.into() };
        let other = Fact { key: revoked("t1"), value: "{}".into(), expires_s: 0 };
        change(&stage, FactChange::Put(other.clone()));
        for name in ["b", "a", "ä", "c"] {
            change(&stage, put(name));
        }
        change(&stage, FactChange::Remove(key("c")));
        change(&stage, FactChange::Put(fact("late", now_ms() / 1_000 + 1_000)));
        let list = |kind: Option<&str>, after: FactKey, limit: usize, now_s: u64| {
            let (sender, reply) = channel();
            let listing = FactListing { kind: kind.map(Into::into), after, limit, now_s };
            stage.store.facts(listing, Box::new(move |result| assert!(sender.send(result).is_ok())));
            let facts = reply.recv_timeout(PATIENCE).expect("a reply").expect("they can be read");
            facts.iter().map(|fact| fact.key.name.to_string()).collect::<Vec<_>>()
        };
        let first = || FactKey { kind: "".into(), name: "".into() };
        let later_s = now_ms() / 1_000 + 2_000;
        assert_eq!(list(None, first(), 10, later_s), ["t1", "a", "b", "ä"]);
        assert_eq!(list(None, first(), 2, later_s), ["t1", "a"]);
        assert_eq!(list(None, key("a"), 10, later_s), ["b", "ä"]);
        assert_eq!(list(Some("user_block"), first(), 2, later_s), ["a", "b"]);
        assert_eq!(list(Some("user_block"), key("b"), 2, later_s), ["ä"]);
        assert_eq!(list(Some("token_revoke"), first(), 10, later_s), ["t1"]);
        assert_eq!(list(Some("user_block"), first(), 10, 1), ["a", "b", "late", "ä"]);
        stage.store.close();
    });
}
