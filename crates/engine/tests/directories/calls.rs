//! Calls of one client: replies, missing replies and deadlines.

use serde_json::{Value, json};
use touchline_engine::directory::{DirectoryEffect, DirectoryRequest, ScopeId, ScopeOptions, Target};

use crate::world::{START_MS, World, devices, owner, requester};

fn call(timeout_ms: u64) -> Value {
    json!({"scope": "devices", "name": "bike", "data": {"x": 1}, "timeout_ms": timeout_ms})
}

fn reply(call: u64) -> Value {
    json!({"call": call, "data": 7})
}

/// A single node where c1 owns the name of the bike.
fn alone(change: impl FnOnce(&mut ScopeOptions)) -> World {
    let mut options = devices();
    change(&mut options);
    let mut world = World::alone(options);
    world.ask("a", 1, "register", &json!({"scope": "devices", "name": "bike"}));
    world
}

/// Two nodes where c1, on node `b`, owns the name of the bike.
fn far() -> World {
    let mut world = World::cluster(&["a", "b", "c"], devices());
    world.ask("b", 1, "register", &json!({"scope": "devices", "name": "bike"}));
    world
}

fn asked(number: u64) -> String {
    format!(r#"a asks c1: {{"call":{number},"from":{{"user":"u2","client":"c2"}},"to":"bike","data":{{"x":1}}}}"#)
}

const CARRIED: &str = concat!(
    r#"a tells b: {"client":"c1","call":101,"timeout_ms":300,"#,
    r#""message":{"from":{"user":"u2","client":"c2"},"to":"bike","data":{"x":1}}}"#,
);
const ASKED_AT_B: &str = r#"b asks c1: {"call":201,"from":{"user":"u2","client":"c2"},"to":"bike","data":{"x":1}}"#;

#[test]
fn a_call_is_answered_once_by_the_client_that_was_called() {
    let mut world = alone(|_| {});
    assert_eq!(world.ask("a", 2, "call", &call(300)), [asked(101)]);
    assert_eq!(world.ask("a", 3, "reply", &reply(101)), ["a refuses 3: 4008 no such call"]);
    assert_eq!(world.ask("a", 1, "reply", &reply(102)), ["a refuses 1: 4008 no such call"]);
    assert_eq!(world.ask("a", 1, "reply", &reply(101)), [r#"a answers 2: {"data":7}"#, "a answers 1: {}"]);
    assert_eq!(world.ask("a", 1, "reply", &reply(101)), ["a refuses 1: 4008 no such call"]);
    assert_eq!(world.ask("a", 2, "call", &call(300)), [asked(102)]);
    let error = json!({"call": 102, "error": {"code": 9}});
    assert_eq!(world.ask("a", 1, "reply", &error), [r#"a answers 2: {"error":{"code":9}}"#, "a answers 1: {}"]);
    assert_eq!(
        world.ask("a", 2, "call", &json!({"scope": "devices", "name": "boat", "data": 1})),
        ["a refuses 2: 4002 not registered"]
    );
    // A backend does not act for a client.
    assert_eq!(
        world.ask("a", 0, "call", &call(300)),
        [r#"a asks c1: {"call":103,"from":{},"to":"bike","data":{"x":1}}"#]
    );
    assert_eq!(world.node("a").calls_waiting(), 1);
}

#[test]
fn a_call_without_a_waiting_requester_is_not_made() {
    let mut world = alone(|_| {});
    let target = Target { scope: ScopeId(0), key: "bike".into(), is_group: false };
    let now_ms = world.now_ms;
    world.node("a").execute(
        &requester(2),
        DirectoryRequest::Call { target, data: "1".into(), timeout_ms: 300 },
        None,
        now_ms,
    );
    assert_eq!((world.settle().len(), world.node("a").calls_waiting()), (0, 0));
}

#[test]
fn a_call_is_over_at_its_time_and_not_a_millisecond_before() {
    for (timeout_ms, over_after_ms) in
        [(300, 300), (0, 5_000), (9_999, 9_999), (10_000, 10_000), (10_001, 10_000), (u64::MAX, 10_000)]
    {
        let mut world = alone(|options| options.call_timeout_max = std::time::Duration::from_secs(10));
        let over_ms = world.now_ms + over_after_ms;
        assert_eq!(world.ask("a", 2, "call", &call(timeout_ms)), [asked(101)]);
        assert_eq!(world.node("a").next_deadline_ms(), Some(over_ms), "{timeout_ms}");
        assert_eq!(world.pass(over_after_ms - 1), [""; 0], "{timeout_ms}");
        assert_eq!(world.pass(1), ["a refuses 2: 4005 call timeout"], "{timeout_ms}");
        assert_eq!((world.node("a").next_deadline_ms(), world.node("a").calls_waiting()), (None, 0));
        assert_eq!(world.ask("a", 1, "reply", &reply(101)), ["a refuses 1: 4008 no such call"], "it comes too late");
        assert_eq!(world.pass(1_000), [""; 0]);
    }
}

#[test]
fn calls_of_one_moment_are_all_over_and_the_first_deadline_is_told() {
    let mut world = alone(|_| {});
    for (client, timeout_ms) in [(2, 300), (3, 200), (4, 200)] {
        world.ask("a", client, "call", &call(timeout_ms));
    }
    assert_eq!(world.node("a").next_deadline_ms(), Some(world.now_ms + 200));
    assert_eq!(world.pass(200), ["a refuses 3: 4005 call timeout", "a refuses 4: 4005 call timeout"]);
    assert_eq!(world.node("a").next_deadline_ms(), Some(world.now_ms + 100));
    // A call with a reply no longer has a deadline.
    world.ask("a", 1, "reply", &reply(101));
    assert_eq!(world.node("a").next_deadline_ms(), None);
}

#[test]
fn the_caller_of_a_client_that_goes_gets_an_error_at_once_and_a_caller_that_is_gone_gets_nothing() {
    let mut world = alone(|_| {});
    world.ask("a", 2, "call", &call(300));
    assert_eq!(world.close("a", 3), [""; 0], "another client goes");
    assert_eq!(world.close("a", 1), ["a refuses 2: 4006 callee gone"]);
    assert_eq!(world.node("a").calls_waiting(), 0);
    let mut world = alone(|_| {});
    world.ask("a", 2, "call", &call(300));
    world.ask("a", 3, "call", &call(300));
    assert_eq!(world.close("a", 2), [""; 0]);
    assert_eq!(world.node("a").calls_waiting(), 1);
    assert_eq!(world.ask("a", 1, "reply", &reply(101)), ["a refuses 1: 4008 no such call"]);
    assert_eq!(world.pass(400), ["a refuses 3: 4005 call timeout"]);
}

#[test]
fn so_many_calls_may_wait_and_no_more() {
    let ask = |world: &mut World, client: u32| world.ask("a", client, "call", &call(300)).remove(0);
    let refused = |client: u32| format!("a refuses {client}: 4007 too many calls");
    let mut world = alone(|options| (options.calls_limit, options.client_calls_limit) = (4, 2));
    assert_eq!([ask(&mut world, 2), ask(&mut world, 2), ask(&mut world, 2)], [asked(101), asked(102), refused(2)]);
    assert!(ask(&mut world, 0).starts_with("a asks c1"), "a backend has no limit of its own");
    assert!(ask(&mut world, 0).starts_with("a asks c1"));
    assert_eq!([ask(&mut world, 0), ask(&mut world, 3)], [refused(0), refused(3)], "the node has as many as it may");
    world.ask("a", 1, "reply", &reply(101));
    assert!(ask(&mut world, 2).starts_with("a asks c1"), "an answer makes room");
    assert_eq!(ask(&mut world, 2), refused(2));
    world.pass(300);
    assert_eq!(world.node("a").calls_waiting(), 0);
    assert!(ask(&mut world, 2).starts_with("a asks c1"), "so does time");
    // The limit for one connection does not apply to a backend.
    let mut world = alone(|options| options.client_calls_limit = 1);
    assert!((0..3).all(|_| ask(&mut world, 0).starts_with("a asks c1")));
}

#[test]
fn a_call_to_another_node_goes_there_and_its_answer_comes_back() {
    let mut world = far();
    assert_eq!(world.ask("a", 2, "call", &call(300)), [CARRIED, ASKED_AT_B]);
    assert_eq!(world.ask("a", 1, "reply", &reply(101)), ["a refuses 1: 4008 no such call"], "it was not called here");
    assert_eq!(
        world.ask("b", 1, "reply", &reply(201)),
        [r#"b tells a: {"call":101,"data":7}"#, "b answers 1: {}", r#"a answers 2: {"data":7}"#]
    );
    assert_eq!(world.ask("b", 1, "reply", &reply(201)), ["b refuses 1: 4008 no such call"]);
    world.ask("a", 2, "call", &call(300));
    assert_eq!(
        world.ask("b", 1, "reply", &json!({"call": 202, "error": "no"})),
        [r#"b tells a: {"call":102,"error":"no"}"#, "b answers 1: {}", r#"a answers 2: {"error":"no"}"#]
    );
    world.ask("a", 2, "call", &call(300));
    assert_eq!(world.close("b", 1), [r#"b tells a: {"call":103,"code":4006}"#, "a refuses 2: 4006 callee gone"]);
}

#[test]
fn a_call_to_another_node_is_over_in_time_on_both() {
    let mut world = far();
    world.ask("a", 2, "call", &call(300));
    assert_eq!(world.pass(299), [""; 0]);
    assert_eq!(world.pass(1), ["a refuses 2: 4005 call timeout", r#"b tells a: {"call":101,"code":4005}"#]);
    assert_eq!((world.node("a").calls_waiting(), world.node("b").calls_waiting()), (0, 0));
    // A node that sends no answer at all makes no difference to the caller.
    world.cut_off("b");
    assert_eq!(world.ask("a", 2, "call", &call(300)).len(), 1);
    assert_eq!(world.pass(300), ["a refuses 2: 4005 call timeout"]);
}

#[test]
fn a_caller_that_goes_ends_its_call_on_the_other_node() {
    let mut world = far();
    world.ask("a", 2, "call", &call(300));
    world.ask("a", 3, "call", &call(300));
    assert_eq!(world.close("a", 2), [r#"a tells b: {"gone":[101]}"#]);
    assert_eq!(world.ask("b", 1, "reply", &reply(201)), ["b refuses 1: 4008 no such call"]);
    assert_eq!(world.ask("b", 1, "reply", &reply(202)).len(), 3, "the other caller's goes on");
    assert_eq!((world.node("a").calls_waiting(), world.node("b").calls_waiting()), (0, 0));
}

#[test]
fn only_the_called_node_can_answer_and_only_the_callers_node_can_end_a_call() {
    let mut world = far();
    world.ask("a", 2, "call", &call(300));
    let (now_ms, mut lines) = (world.now_ms, Vec::new());
    for (node, from, message) in [
        ("a", "c", r#"{"call":101,"data":1}"#),
        ("a", "b", r#"{"call":102,"data":1}"#),
        ("b", "c", r#"{"gone":[101]}"#),
        ("b", "a", r#"{"gone":[102]}"#),
        ("b", "a", r#"{"call":201,"data":1}"#),
        ("a", "b", "no JSON"),
        ("a", "b", r#"{"client":"c1"}"#),
        ("a", "b", r#"{"client":"nobody","message":{}}"#),
    ] {
        world.node(node).receive_from_node(from, message.as_bytes(), now_ms);
        lines.extend(world.settle());
    }
    assert_eq!(lines, [r#"a gives : {"push":{"message":{"data":{}}}}"#], "a message for no client of the node");
    assert_eq!((world.node("a").calls_waiting(), world.node("b").calls_waiting()), (1, 1));
    // A code that this version does not know is still an error.
    world.node("a").receive_from_node("b", br#"{"call":101,"code":99999}"#, now_ms);
    assert_eq!(world.settle(), ["a refuses 2: 100 internal server error"]);
    world.ask("a", 2, "call", &call(300));
    world.node("a").receive_from_node("b", br#"{"call":102,"data":null,"error":1}"#, now_ms);
    assert_eq!(world.settle(), [r#"a answers 2: {"data":null}"#], "what is there counts before an error");
}

#[test]
fn calls_to_a_node_that_may_be_dead_are_refused_and_end_when_it_is() {
    let mut world = far();
    let now_ms = world.now_ms;
    let send = json!({"scope": "devices", "name": "bike", "data": 1});
    world.node("a").suspect("b", true, now_ms);
    assert_eq!(world.ask("a", 2, "call", &call(300)), ["a refuses 2: 4006 callee gone"]);
    assert_eq!(world.ask("a", 2, "send", &send), ["a refuses 2: 4006 callee gone"]);
    world.node("a").suspect("b", false, now_ms);
    assert_eq!(world.ask("a", 2, "call", &call(300)), [CARRIED, ASKED_AT_B]);
    // One call was made by the dead node, and one goes to another node.
    world.ask("a", 5, "register", &json!({"scope": "devices", "name": "boat"}));
    let boat = json!({"scope": "devices", "name": "boat", "data": 1});
    for node in ["b", "c"] {
        assert_eq!(world.ask(node, 6, "call", &boat).len(), 2);
    }
    assert_eq!(world.node("a").calls_waiting(), 3);
    world.cut_off("b");
    world.node("a").gone("b", now_ms);
    assert_eq!(world.settle(), ["a refuses 2: 4006 callee gone"]);
    assert_eq!(world.node("a").calls_waiting(), 1, "no call of the dead node waits");
    assert_eq!(world.ask("a", 5, "reply", &reply(102)), ["a refuses 5: 4008 no such call"]);
    assert_eq!(world.ask("a", 5, "reply", &reply(103)).len(), 3, "the third node waits");
    assert_eq!(
        world.ask("a", 2, "call", &call(300)),
        ["a refuses 2: 4002 not registered"],
        "its names are gone with it"
    );
}

#[test]
fn a_node_keeps_its_own_time_and_room_for_calls_of_others() {
    let mut world = World::with_options(&["a", "b"], |options| {
        (options.calls_limit, options.call_timeout_max) = (20_000, std::time::Duration::from_secs(70));
    });
    let (now_ms, client) = (world.now_ms, touchline_engine::directory::client_text(owner(1)));
    let mut called = 0;
    for number in 1..=20_001u64 {
        let message = format!(r#"{{"client":"{client}","call":{number},"timeout_ms":{},"message":{{}}}}"#, u64::MAX);
        world.node("b").receive_from_node("a", message.as_bytes(), now_ms);
        for act in world.node("b").effects() {
            match act {
                DirectoryEffect::Call(to, ..) => {
                    assert_eq!(to, owner(1));
                    called += 1;
                }
                DirectoryEffect::Node(to, message) => {
                    assert_eq!((&*to, number, &*message), ("a", 20_001, &br#"{"call":20001,"code":4007}"#[..]));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((called, world.node("b").calls_waiting()), (20_000, 20_000));
    // The longest timeout of all scopes applies.
    assert_eq!(world.node("b").next_deadline_ms(), Some(now_ms + 70_000));
}

#[test]
fn a_call_of_a_node_that_is_not_known_yet_is_answered_when_it_is() {
    let mut world = World::strangers(&["a", "b"], devices());
    let client = touchline_engine::directory::client_text(owner(1));
    let message = format!(r#"{{"client":"{client}","call":7,"timeout_ms":9000,"message":{{"x":1}}}}"#);
    world.node("a").receive_from_node("b", message.as_bytes(), START_MS);
    assert_eq!(world.pass(3_000), [r#"a asks c1: {"call":101,"x":1}"#]);
    assert_eq!(world.node("a").peers(), 1);
    assert_eq!(world.ask("a", 1, "reply", &reply(101))[0], r#"a tells b: {"call":7,"data":7}"#);
}

#[test]
fn a_large_answer_costs_its_caller_by_its_bytes() {
    let mut world = alone(|_| {});
    world.ask("a", 2, "call", &call(300));
    let (now_ms, data) = (world.now_ms, format!("\"{}\"", "x".repeat(8_192)));
    world.node("a").execute(
        &requester(1),
        DirectoryRequest::Reply { call: 101, outcome: Ok(data.into()) },
        None,
        now_ms,
    );
    let Some(DirectoryEffect::Reply(2, Ok(answered))) = world.node("a").effects().next() else { panic!("an answer") };
    assert_eq!(answered.work(), 2);
}

#[test]
fn a_call_ends_when_its_node_has_left_all_scopes() {
    let mut world = far();
    world.ask("a", 2, "call", &call(300));
    world.node("b").goodbye();
    let link =
        |act| if let DirectoryEffect::SendToScope { scope, message, .. } = act { Some((scope, message)) } else { None };
    let words: Vec<_> = world.node("b").effects().filter_map(link).collect();
    world.cut_off("b");
    let now_ms = world.now_ms;
    let told: Vec<_> = words
        .iter()
        .map(|(scope, message)| {
            world.node("a").receive(scope, message, now_ms);
            world.settle().join("")
        })
        .collect();
    assert_eq!(told, ["", "", "a refuses 2: 4006 callee gone"]);
}
