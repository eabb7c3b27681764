//! Groups: their members, and messages and calls to all of them.

use serde_json::{Value, json};
use touchline_engine::directory::{DirectoryEffect, DirectoryRequest, ScopeId, Target};

use crate::world::{World, devices, one_of_many, requester};

fn all() -> Value {
    json!({"scope": "devices", "group": "all"})
}

fn to_all(data: u32, timeout_ms: u64) -> Value {
    json!({"scope": "devices", "group": "all", "data": data, "timeout_ms": timeout_ms})
}

/// Two nodes whose clients are all in the group: c1 and c2 on `a`, c3 and c4 on `b`.
fn two_nodes() -> World {
    let mut world = World::cluster(&["a", "b"], devices());
    for (node, client) in [("a", 1), ("a", 2), ("b", 3), ("b", 4)] {
        assert_eq!(world.ask(node, client, "join", &all()), [format!("{node} answers {client}: {{}}")]);
    }
    world
}

#[test]
fn a_member_joins_changes_and_leaves() {
    let mut world = World::alone(devices());
    let members = |world: &mut World| world.ask("a", 9, "members", &all()).remove(0);
    assert_eq!(world.ask("a", 1, "leave", &all()), ["a refuses 1: 4002 not registered"]);
    assert_eq!(members(&mut world), r#"a answers 9: {"members":[],"count":0}"#);
    assert_eq!(
        world.ask("a", 1, "join", &json!({"scope": "devices", "group": "all", "meta": {"n": 1}})),
        ["a answers 1: {}"]
    );
    assert_eq!(
        members(&mut world),
        r#"a answers 9: {"members":[{"client":"c1","node":"a","meta":{"n":1}}],"count":1}"#
    );
    assert_eq!(world.ask("a", 1, "join", &all()), ["a answers 1: {}"]);
    assert_eq!(members(&mut world), r#"a answers 9: {"members":[{"client":"c1","node":"a"}],"count":1}"#);
    assert_eq!(world.ask("a", 1, "member", &all()), [r#"a answers 1: {"client":"c1","node":"a"}"#]);
    assert_eq!(world.ask("a", 0, "member", &all()), ["a refuses 0: 107 bad request"], "a backend is no client");
    assert_eq!(world.ask("a", 1, "leave", &all()), ["a answers 1: {}"]);
    assert_eq!(world.ask("a", 1, "member", &all()), ["a refuses 1: 4002 not registered"]);
    assert_eq!(members(&mut world), r#"a answers 9: {"members":[],"count":0}"#);
}

#[test]
fn a_message_reaches_each_member_once_wherever_it_lives() {
    let mut world = two_nodes();
    let message = r#"{"from":{"user":"u9","client":"c9"},"to":"all","data":5}"#;
    assert_eq!(
        world.ask("a", 9, "send", &to_all(5, 0)),
        [
            format!(r#"a gives c2 c1: {{"push":{{"message":{{"data":{message}}}}}}}"#),
            format!(r#"a tells b: {{"client":"c4","clients":["c3"],"message":{message}}}"#),
            r#"a answers 9: {"sent":4}"#.into(),
            format!(r#"b gives c4 c3: {{"push":{{"message":{{"data":{message}}}}}}}"#),
        ]
    );
    assert_eq!(
        world.ask("a", 9, "send", &json!({"scope": "devices", "group": "none", "data": 5})),
        ["a refuses 9: 4002 not registered"]
    );
    let one = json!({"scope": "devices", "name": "bike", "data": 5});
    assert_eq!(world.ask("a", 9, "send", &one), ["a refuses 9: 4002 not registered"]);
    world.ask("a", 1, "register", &json!({"scope": "devices", "name": "bike"}));
    let message = r#"{"from":{},"to":"bike","data":5}"#;
    assert_eq!(
        world.ask("a", 0, "send", &one),
        [format!("a gives c1: {message}"), r#"a answers 0: {"sent":1}"#.into()]
    );
    assert_eq!(
        world.ask("b", 0, "send", &one),
        [
            format!(r#"b tells a: {{"client":"c1","message":{message}}}"#),
            r#"b answers 0: {"sent":1}"#.into(),
            format!(r#"a gives c1: {{"push":{{"message":{{"data":{message}}}}}}}"#),
        ]
    );
}

#[test]
fn a_call_of_a_group_is_answered_when_the_last_member_has() {
    let mut world = two_nodes();
    let message = r#""from":{"user":"u9","client":"c9"},"to":"all","data":5}"#;
    assert_eq!(
        world.ask("a", 9, "multi_call", &to_all(5, 300)),
        [
            format!(r#"a asks c2: {{"call":102,{message}"#),
            format!(r#"a asks c1: {{"call":103,{message}"#),
            format!(
                r#"a tells b: {{"client":"c4","clients":["c3"],"call":104,"timeout_ms":300,"message":{{{message}}}"#
            ),
            format!(r#"b asks c4: {{"call":201,{message}"#),
            format!(r#"b asks c3: {{"call":202,{message}"#),
        ]
    );
    assert_eq!((world.node("a").calls_waiting(), world.node("b").calls_waiting()), (4, 2));
    assert_eq!(world.ask("a", 2, "reply", &json!({"call": 102, "data": 2})), ["a answers 2: {}"]);
    assert_eq!(
        world.ask("a", 2, "reply", &json!({"call": 102, "data": 2})),
        ["a refuses 2: 4008 no such call"],
        "once"
    );
    assert_eq!(
        world.ask("b", 3, "reply", &json!({"call": 202, "error": "no"})),
        [r#"b tells a: {"call":105,"error":"no"}"#, "b answers 3: {}"]
    );
    assert_eq!(world.ask("a", 1, "reply", &json!({"call": 103, "data": 1})), ["a answers 1: {}"]);
    let replies =
        r#"{"client":"c2","data":2},{"client":"c3","error":"no"},{"client":"c1","data":1},{"client":"c4","data":4}"#;
    assert_eq!(
        world.ask("b", 4, "reply", &json!({"call": 201, "data": 4})),
        [
            r#"b tells a: {"call":104,"data":4}"#.into(),
            "b answers 4: {}".into(),
            format!(r#"a answers 9: {{"replies":[{replies}],"silent":[]}}"#)
        ]
    );
    assert_eq!((world.node("a").calls_waiting(), world.node("a").next_deadline_ms()), (0, None));
}

#[test]
fn silent_and_gone_members_are_named_in_the_reply_to_a_call_of_a_group() {
    let mut world = two_nodes();
    world.ask("a", 9, "multi_call", &to_all(5, 300));
    world.ask("a", 1, "reply", &json!({"call": 103, "data": 1}));
    assert_eq!(world.close("a", 2), [""; 0], "the others may answer yet");
    assert_eq!(world.close("b", 4), [r#"b tells a: {"call":104,"code":4006}"#]);
    assert_eq!(world.pass(299), [""; 0]);
    let gone = |client: &str| {
        format!(r#"{{"client":"{client}","error":{{"code":4006,"message":"callee gone","temporary":true}}}}"#)
    };
    let late = r#"{"client":"c3","error":{"code":4005,"message":"call timeout","temporary":true}}"#;
    assert_eq!(
        world.pass(1),
        [
            format!(
                r#"a answers 9: {{"replies":[{{"client":"c1","data":1}}],"silent":[{},{},{late}]}}"#,
                gone("c2"),
                gone("c4")
            ),
            r#"b tells a: {"call":105,"code":4005}"#.into(),
        ]
    );
    assert_eq!(world.node("a").calls_waiting() + world.node("b").calls_waiting(), 0);
}

#[test]
fn a_call_of_a_group_ends_with_its_caller_and_with_its_last_node() {
    let mut world = World::cluster(&["a", "b"], devices());
    world.ask("b", 3, "join", &all());
    world.ask("a", 1, "join", &all());
    world.ask("a", 9, "multi_call", &to_all(5, 300));
    assert_eq!(world.node("a").calls_waiting(), 2);
    assert_eq!(world.close("a", 9), [r#"a tells b: {"gone":[103]}"#]);
    assert_eq!((world.node("a").calls_waiting(), world.node("b").calls_waiting()), (0, 0));
    assert_eq!(world.ask("a", 1, "reply", &json!({"call": 102, "data": 1})), ["a refuses 1: 4008 no such call"]);
    world.ask("a", 9, "multi_call", &to_all(5, 300));
    world.ask("a", 1, "reply", &json!({"call": 105, "data": 1}));
    let now_ms = world.now_ms;
    world.cut_off("b");
    world.node("a").gone("b", now_ms);
    let gone = r#"{"client":"c3","error":{"code":4006,"message":"callee gone","temporary":true}}"#;
    assert_eq!(
        world.settle(),
        [format!(r#"a answers 9: {{"replies":[{{"client":"c1","data":1}}],"silent":[{gone}]}}"#)]
    );
}

#[test]
fn a_call_of_a_group_counts_by_its_members() {
    let mut world = World::with_options(&["a"], |options| {
        (options.calls_limit, options.client_calls_limit, options.call_members_limit) = (5, 4, 3);
    });
    let ask = |world: &mut World, client: u32| world.ask("a", client, "call", &to_all(5, 300)).len();
    let refused = |world: &mut World, client: u32| {
        world.ask("a", client, "call", &to_all(5, 300)) == [format!("a refuses {client}: 4007 too many calls")]
    };
    (1..=3).for_each(|client| drop(world.ask("a", client, "join", &all())));
    assert_eq!(ask(&mut world, 9), 3, "as many members as one call may reach");
    assert!(refused(&mut world, 9), "six would be more than it may have");
    assert!(refused(&mut world, 8), "six would be more than the node may have");
    world.ask("a", 1, "leave", &all());
    assert!(refused(&mut world, 9), "five are more than four of its own");
    assert_eq!(ask(&mut world, 8), 2, "five are not too many for the node");
    world.pass(300);
    world.ask("a", 3, "leave", &all());
    world.ask("a", 9, "multi_call", &to_all(5, 300));
    (0..3).for_each(|_| assert_eq!(ask(&mut world, 9), 1));
    assert!(refused(&mut world, 9), "four wait");
    world.pass(300);
    [1, 3, 4].into_iter().for_each(|client| drop(world.ask("a", client, "join", &all())));
    assert!(refused(&mut world, 0), "four members are more than one call may reach");
    // A limit of zero members applies to groups only: one name can still be called.
    let mut world = World::with_options(&["a"], |options| options.call_members_limit = 0);
    world.ask("a", 1, "register", &json!({"scope": "devices", "name": "bike"}));
    assert_eq!(world.ask("a", 9, "call", &json!({"scope": "devices", "name": "bike", "data": 1})).len(), 1);
}

#[test]
fn a_member_that_goes_while_a_group_is_gathered_is_not_called() {
    let mut world = World::alone(devices());
    (1..=2).for_each(|client| drop(world.ask("a", client, "join", &all())));
    let target = Target { scope: ScopeId(0), key: "all".into(), is_group: true };
    let call = DirectoryRequest::Call { target, data: "1".into(), timeout_ms: 300 };
    let now_ms = world.now_ms;
    for (goes, expected) in [(vec![2], 1), (vec![1], 0)] {
        let walk = world.node("a").begin(requester(9), call.clone(), Some(9), now_ms).expect("a walk");
        goes.iter().for_each(|client| drop(world.close("a", *client)));
        assert!(!walk.is_send());
        assert!(world.node("a").step(walk, now_ms).is_none());
        let lines = world.settle();
        if expected == 0 {
            assert_eq!(lines, ["a refuses 9: 4002 not registered"], "no member is left");
        } else {
            assert_eq!((lines.len(), world.node("a").calls_waiting()), (1, 1));
            world.pass(300);
        }
    }
}

/// Joins clients of one node to the group without checking each reply.
fn fill_group(world: &mut World, node: &str, size: u32) {
    let now_ms = world.now_ms;
    for number in 0..size {
        world.node(node).execute(
            &one_of_many(number + 1),
            DirectoryRequest::Join { scope: ScopeId(0), group: "all".into(), meta: "".into() },
            None,
            now_ms,
        );
    }
    world.settle();
}

/// For each message to another node: the number of its clients, and the number of its first call.
fn messages(world: &mut World, ask: DirectoryRequest) -> Vec<(usize, u64)> {
    let now_ms = world.now_ms;
    world.node("a").execute(&requester(9), ask, Some(9), now_ms);
    let mut told = Vec::new();
    for act in world.node("a").effects() {
        if let DirectoryEffect::Node(to, message) = act {
            assert_eq!(&*to, "b");
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            let others = message["clients"].as_array().map_or(0, Vec::len);
            told.push((1 + others, message["call"].as_u64().or(message["gone"][0].as_u64()).unwrap_or(0)));
        }
    }
    told
}

#[test]
fn messages_between_nodes_are_for_as_many_clients_as_fit() {
    const CROWD: u32 = 1_025;
    let target = || Target { scope: ScopeId(0), key: "all".into(), is_group: true };
    let send = || DirectoryRequest::Send { target: target(), data: "1".into(), store_for_ms: 0 };
    let call = || DirectoryRequest::Call { target: target(), data: "1".into(), timeout_ms: 300 };
    let mut world = World::with_options(&["a", "b"], |options| {
        (options.call_members_limit, options.client_calls_limit) = (2_000, 5_000);
    });
    fill_group(&mut world, "b", CROWD);
    assert_eq!(messages(&mut world, send()), [(1_024, 0), (1, 0)], "at most so many");
    assert_eq!(messages(&mut world, call()), [(1_024, 102), (1, 1_126)], "numbers in a row");
    // The caller disconnects. Its calls are ended in messages with at most this many clients too.
    let now_ms = world.now_ms;
    world.node("a").execute(&requester(9), DirectoryRequest::Close, None, now_ms);
    let gone = world.node("a").effects().map(|act| match act {
        DirectoryEffect::Node(_, message) => {
            serde_json::from_slice::<Value>(&message).expect("JSON")["gone"].as_array().map_or(0, Vec::len)
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(gone.collect::<Vec<_>>(), [1_024, 1]);
    // The message has 59 bytes, 512 are added, and each client takes 39.
    let message = r#"{"from":{"user":"u9","client":"09090909-0909-0909-0909-090909090909"},"to":"all","data":1}"#.len();
    for (room, first) in [
        (512 + message + 39 * 10, 10),
        (512 + message + 39 * 10 - 1, 9),
        (512 + message + 39 * 1_024, 1_024),
        (512 + message, 1),
    ] {
        world.node("a").set_message_max(room);
        for ask in [send(), call()] {
            let told = messages(&mut world, ask);
            assert_eq!(
                (told[0].0, told.iter().map(|(clients, _)| clients).sum::<usize>()),
                (first, CROWD as usize),
                "{room}"
            );
            world.node("a").execute(&requester(9), DirectoryRequest::Close, None, now_ms);
            world.node("a").effects().for_each(drop);
        }
    }
    world.node("a").set_message_max(512 + message - 1);
    assert_eq!(messages(&mut world, send()), []);
}
