//! Messages that are kept for a name until its owner has acknowledged them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use touchline_engine::directory::{DirectoryRequest, ScopeId, ScopeOptions, Target};

use crate::world::{World, devices};

fn with_inbox() -> ScopeOptions {
    ScopeOptions { inbox_size: 3, inbox_ttl_max: Duration::from_secs(20), name_max_length: 4, ..devices() }
}

fn send(name: &str, store_for: u64) -> Value {
    json!({"scope": "devices", "name": name, "data": 5, "store_for": store_for})
}

/// Delivers the messages with these ids as the store loads them.
fn deliver(world: &mut World, node: &str, name: &str, ids: &[u64]) -> Vec<String> {
    let messages = ids.iter().map(|id| (*id, Bytes::from(format!(r#"{{"n":{id}}}"#)))).collect();
    let now_ms = world.now_ms;
    world.node(node).deliver_messages("devices", name, Some(messages), now_ms);
    world.settle()
}

fn given(client: u32, id: u64) -> String {
    format!(r#"a gives c{client}: {{"id":"{id}","n":{id}}}"#)
}

fn register(client: u32) -> Value {
    json!({"scope": "devices", "name": "bike", "policy": if client == 1 { "" } else { "newest" }})
}

#[test]
fn a_message_is_kept_for_as_long_as_it_says_and_as_the_scope_allows() {
    let mut world = World::alone(with_inbox());
    let message = format!(r#"{{"from":{{"user":"u2","client":"c2"}},"to":"bike","data":5,"time":{}}}"#, world.now_ms);
    for (store_for, kept_ms) in [(1, 1_000), (20, 20_000), (21, 20_000), (u64::MAX, 20_000)] {
        assert_eq!(
            world.ask("a", 2, "send", &send("bike", store_for)),
            [format!("a keeps {kept_ms} ms among 3 for bike in devices, asked by Some(2): {message}")]
        );
    }
    // Without a waiting requester there is no reply, and the message is kept nevertheless.
    let target = |key: &str, is_group| Target { scope: ScopeId(0), key: key.into(), is_group };
    let post = |target| DirectoryRequest::Send { target, data: "5".into(), store_for_ms: 1 };
    let now_ms = world.now_ms;
    world.node("a").execute(&crate::world::requester(2), post(target("bike", false)), None, now_ms);
    assert_eq!(world.settle(), [format!("a keeps 1 ms among 3 for bike in devices, asked by None: {message}")]);
    for odd in [target("bikes", false), target("all", true), target("a\n", false)] {
        assert_eq!(world.order("a", 2, post(odd.clone())), ["a refuses 2: 107 bad request"], "{odd:?}");
        world.node("a").execute(&crate::world::requester(2), post(odd), None, now_ms);
        assert_eq!(world.settle(), [""; 0]);
    }
    assert!(world.order("a", 2, post(target("four", false)))[0].starts_with("a keeps"), "as long as a name may be");
    let robots = Target { scope: ScopeId(1), ..target("bike", false) };
    assert_eq!(world.order("a", 2, post(robots)), ["a refuses 2: 108 not available"], "that scope keeps nothing");
}

#[test]
fn messages_are_delivered_to_the_owner_of_the_name_and_discarded_when_it_has_acknowledged_them() {
    let mut world = World::alone(with_inbox());
    let lines = world.ask("a", 1, "register", &register(1));
    assert_eq!(lines[0], "a fetches 100 behind 0 of bike in devices");
    assert_eq!(deliver(&mut world, "a", "bike", &[7, 8]), [given(1, 7), given(1, 8)]);
    assert_eq!(deliver(&mut world, "a", "boat", &[9]), [""; 0], "the name has no owner here");
    let acknowledge =
        |world: &mut World, client: u32, ids: &[&str]| world.ask("a", client, "inbox.ack", &json!({"ids": ids}));
    assert_eq!(acknowledge(&mut world, 2, &["7"]), ["a answers 2: {}"], "another client's are left alone");
    assert_eq!(acknowledge(&mut world, 1, &["7", "99"]), ["a throws [7] away, asked by Some(1)"]);
    world.node("a").discarded(&[7]);
    assert_eq!(world.settle(), [""; 0]);
    assert_eq!(acknowledge(&mut world, 1, &["7"]), ["a answers 1: {}"], "it is thrown away");
    assert_eq!(world.ask("a", 1, "inbox.ack", &json!({"id": "8"})), ["a throws [8] away, asked by Some(1)"]);
    // A message for the name: there may be more after the last one.
    world.node("a").message_queued("devices", "bike");
    assert_eq!(world.settle(), ["a fetches 99 behind 8 of bike in devices"]);
    for (scope, name) in [("robots", "bike"), ("none", "bike"), ("devices", "boat")] {
        world.node("a").message_queued(scope, name);
        assert_eq!(world.settle(), [""; 0], "{name} of {scope} has no owner here");
    }
}

#[test]
fn a_client_that_has_enough_is_given_more_when_it_has_acknowledged_half() {
    let mut world = World::alone(with_inbox());
    world.ask("a", 1, "register", &register(1));
    let ids: Vec<u64> = (1..=100).collect();
    assert_eq!(deliver(&mut world, "a", "bike", &ids).len(), 100);
    world.node("a").discarded(&ids[..49]);
    assert_eq!(world.settle(), [""; 0], "51 are too many");
    world.node("a").discarded(&ids[49..50]);
    assert_eq!(world.settle(), ["a fetches 50 behind 100 of bike in devices"]);
    assert_eq!(deliver(&mut world, "a", "bike", &[100, 101]), [given(1, 101)], "each once");
}

#[test]
fn a_store_that_cannot_answer_is_asked_again_after_a_second() {
    let mut world = World::alone(with_inbox());
    world.ask("a", 1, "register", &register(1));
    let now_ms = world.now_ms;
    world.node("a").deliver_messages("devices", "bike", None, now_ms);
    assert_eq!(world.node("a").next_deadline_ms(), Some(now_ms + 1_000));
    assert_eq!(world.pass(999), [""; 0]);
    assert_eq!(world.pass(1), ["a fetches 100 behind 0 of bike in devices"]);
    assert_eq!(world.node("a").next_deadline_ms(), None);
}

#[test]
fn messages_go_with_the_name() {
    let mut world = World::alone(with_inbox());
    world.ask("a", 1, "register", &register(1));
    deliver(&mut world, "a", "bike", &[7]);
    // The name is taken over. Its new owner gets all messages that are not acknowledged.
    let lines = world.ask("a", 2, "register", &register(2));
    assert!(lines.contains(&"a fetches 100 behind 0 of bike in devices".into()), "{lines:?}");
    assert_eq!(deliver(&mut world, "a", "bike", &[7]), [given(2, 7)]);
    assert_eq!(world.ask("a", 1, "inbox.ack", &json!({"id": "7"})), ["a answers 1: {}"], "it is not its own any more");
    assert_eq!(
        world.ask("a", 2, "update_meta", &json!({"scope": "devices", "name": "bike", "meta": 1})).len(),
        1,
        "nothing is fetched"
    );
    world.close("a", 2);
    assert_eq!(deliver(&mut world, "a", "bike", &[8]), [""; 0]);
    // A scope without an inbox loads nothing.
    assert_eq!(world.ask("a", 1, "register", &json!({"scope": "robots", "name": "bike"})).len(), 1);
    world.node("a").deliver_messages("nowhere", "bike", None, 0);
    assert_eq!(world.settle(), [""; 0]);
}

#[test]
fn messages_are_delivered_on_the_node_of_the_name_only() {
    let mut world = World::cluster(&["a", "b"], with_inbox());
    let lines = world.ask("b", 1, "register", &register(1));
    assert_eq!(
        lines.iter().filter(|line| line.contains("fetches")).collect::<Vec<_>>(),
        ["b fetches 100 behind 0 of bike in devices"]
    );
    world.node("a").message_queued("devices", "bike");
    assert_eq!(world.settle(), [""; 0], "it is on the other node");
    // The name moves to this node.
    let lines = world.ask("a", 2, "register", &register(2));
    assert!(lines.contains(&"a fetches 100 behind 0 of bike in devices".into()), "{lines:?}");
    assert_eq!(deliver(&mut world, "b", "bike", &[7]), [""; 0], "b has let go of it");
    assert_eq!(deliver(&mut world, "a", "bike", &[7]), [given(2, 7)]);
}
