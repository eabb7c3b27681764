//! Shared facts in a bucket of NATS: they are loaded, followed, cleaned up, and never misread.

mod nats;

use std::sync::mpsc::{Receiver, channel};
use std::time::SystemTime;

use async_nats::jetstream::{self, Context};
use touchline_cluster::{Cluster, ClusterEvent, JoinOptions};
use touchline_protocol::fact::{Fact, FactChange, FactKey, FactsEvent};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::{PATIENCE, until, until_eq};

use nats::{options, start};

/// More than are read one by one, and more than one fetch of a consumer returns.
const MANY: usize = 2_500;

fn join(nats: &NatsServer, node: &str) -> (Cluster, Receiver<ClusterEvent>) {
    start(JoinOptions { node: node.to_owned(), has_facts: true, streams: Vec::new(), ..options(nats, "facts") })
}

fn key(name: &str) -> FactKey {
    FactKey { kind: "user_block".into(), name: name.into() }
}

fn put(name: &str, expires_s: u64) -> FactChange {
    FactChange::Put(Fact { key: key(name), value: "{}".into(), expires_s })
}

/// Makes many changes at a time, and waits until all are stored.
fn change(cluster: &Cluster, changes: impl IntoIterator<Item = FactChange>) {
    let (sender, results) = channel();
    let mut count = 0;
    for change in changes {
        let sender = sender.clone();
        cluster.change_fact(change, Box::new(move |result| drop(sender.send(result))));
        count += 1;
    }
    (0..count).for_each(|_| results.recv_timeout(PATIENCE).expect("it is answered").expect("it is stored"));
}

/// The next event about facts, except those about the node's own changes.
fn next(events: &Receiver<ClusterEvent>) -> FactsEvent {
    loop {
        match events.recv_timeout(PATIENCE).expect("an event comes") {
            ClusterEvent::Facts(FactsEvent::Written { .. }) => {}
            ClusterEvent::Facts(event) => return event,
            _ => {}
        }
    }
}

/// The names of the next load, sorted.
fn loaded(events: &Receiver<ClusterEvent>) -> Vec<String> {
    loop {
        if let FactsEvent::Loaded { facts, .. } = next(events) {
            let mut names: Vec<String> = facts.iter().map(|fact| fact.key.name.to_string()).collect();
            names.sort();
            return names;
        }
    }
}

/// Waits for the report of a change. A load reports the change that creates the bucket.
fn reported(events: &Receiver<ClusterEvent>, wanted: &FactChange) {
    loop {
        let is_it = match next(events) {
            FactsEvent::Changed { changes, .. } => changes.contains(wanted),
            FactsEvent::Loaded { facts, .. } => facts.into_iter().any(|fact| FactChange::Put(fact) == *wanted),
            FactsEvent::Written { .. } | FactsEvent::CutOff | FactsEvent::Unsupported => false,
        };
        if is_it {
            return;
        }
    }
}

/// Sends a request to NATS directly, without the nodes.
fn ask<T>(nats: &NatsServer, question: impl AsyncFnOnce(Context) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(format!("127.0.0.1:{}", nats.port)).await.expect("NATS is there");
        question(jetstream::new(client)).await
    })
}

/// The stream of the bucket for the cluster `facts`.
const STREAM: &str = "KV_touchline_ZmFjdHM_facts";

#[test]
fn a_node_loads_all_facts_and_follows_those_that_come() {
    let nats = NatsServer::start(JETSTREAM);
    let (one, events_one) = join(&nats, "one");
    assert_eq!(loaded(&events_one), [""; 0], "there is no bucket, and so no fact");
    change(&one, (0..MANY).map(|number| put(&format!("user-{number:04}"), 0)));
    change(&one, [FactChange::Remove(key("user-0007")), FactChange::Remove(key("nobody"))]);
    let (two, events_two) = join(&nats, "two");
    let expected: Vec<String> =
        (0..MANY).filter(|number| *number != 7).map(|number| format!("user-{number:04}")).collect();
    assert_eq!(loaded(&events_two), expected);
    for wanted in [put("ann", 0), FactChange::Remove(key("ann")), put("ann", 4_102_444_800)] {
        change(&one, [wanted.clone()]);
        reported(&events_two, &wanted);
    }
    // A burst that one node makes and another one follows.
    change(&two, (0..MANY).map(|number| put(&format!("late-{number:04}"), 0)));
    reported(&events_one, &put(&format!("late-{:04}", MANY - 1), 0));
    one.leave();
    two.leave();
}

#[test]
fn what_does_not_hold_any_more_leaves_the_bucket() {
    let nats = NatsServer::start(JETSTREAM);
    let (one, events) = join(&nats, "one");
    loaded(&events);
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_secs();
    change(&one, [put("old", now_s - 4_000), put("young", now_s + 1_000), put("ageless", 0)]);
    let messages = || {
        ask(&nats, async |jetstream| {
            jetstream.get_stream(STREAM).await.map(|stream| stream.cached_info().state.messages)
        })
    };
    until_eq(2, || messages().expect("the stream exists"));
    let (two, events) = join(&nats, "two");
    assert_eq!(loaded(&events), ["ageless", "young"]);
    one.leave();
    two.leave();
}

#[test]
fn a_bucket_that_was_deleted_or_holds_what_cannot_be_read_is_noticed() {
    let nats = NatsServer::start(JETSTREAM);
    let (one, events) = join(&nats, "one");
    loaded(&events);
    change(&one, [put("ann", 0)]);
    reported(&events, &put("ann", 0));
    ask(&nats, async |jetstream| jetstream.delete_stream(STREAM).await.map(drop)).expect("it is deleted");
    assert_eq!(loaded(&events), [""; 0], "nothing is known any more");
    // The first change afterwards may find that out; the next one creates the bucket again.
    let (sender, results) = channel();
    until("the bucket exists again", || {
        let sender = sender.clone();
        one.change_fact(put("bob", 0), Box::new(move |result| drop(sender.send(result))));
        results.recv_timeout(PATIENCE).expect("it is answered").is_ok()
    });
    let later = async |jetstream: Context| {
        let subject = "$KV.touchline_ZmFjdHM_facts.user_block.ZXZl";
        jetstream.publish(subject, r#"{"format":2,"value":[]}"#.into()).await.expect("it is sent").await.map(drop)
    };
    ask(&nats, later).expect("it is stored");
    while !matches!(next(&events), FactsEvent::CutOff) {}
    let (two, events) = join(&nats, "two");
    assert_eq!(next(&events), FactsEvent::CutOff, "half of what is there is not taken for all of it");
    one.leave();
    two.leave();
}
