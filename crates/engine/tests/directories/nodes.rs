//! Other nodes: they may be dead, stand still, leave, or have other options.

use serde_json::{Value, json};
use touchline_engine::directory::{
    ConflictPolicy, Directory, DirectoryEffect, DirectoryRequest, Requester, ScopeId, ScopeOptions,
};
use touchline_registry::{HashSeed, ReplicaTiming};

use crate::world::{START_MS, World, devices, one_of_many, owner, requester};

fn name(name: &str) -> Value {
    json!({"scope": "devices", "name": name})
}

#[test]
fn a_name_on_a_node_that_may_be_dead_goes_to_its_own_user_only() {
    let options = |conflict_policy| {
        let allow_register = vec!["{user}/*".into(), "*".into()];
        ScopeOptions { allow_register, conflict_policy, ..devices() }
    };
    for (is_suspected, user, is_backend, key, is_given) in [
        (true, "u1", false, "u1/phone", true),
        (false, "u1", false, "u1/phone", false),
        (true, "u2", false, "u1/phone", false),
        // A name that every user may register does not belong to one user.
        (true, "u1", false, "bike", false),
        (true, "", true, "bike", true),
        (false, "", true, "bike", false),
    ] {
        for conflict_policy in [ConflictPolicy::Newest, ConflictPolicy::Reject] {
            let mut world = World::cluster(&["a", "b"], options(conflict_policy));
            world.ask("b", 1, "register", &name(key));
            let now_ms = world.now_ms;
            world.node("a").suspect("b", is_suspected, now_ms);
            let requester = Requester { owner: owner(5), user: user.into(), is_backend };
            let ask =
                DirectoryRequest::Register { scope: ScopeId(0), name: key.into(), meta: "".into(), take_over: false };
            world.node("a").execute(&requester, ask, Some(5), now_ms);
            let lines = world.settle();
            if is_given {
                assert_eq!(
                    lines[0],
                    format!(r#"a answers 5: {{"name":"{key}","client":"c5","node":"a","version":"*.0"}}"#),
                    "{user}"
                );
            } else {
                assert_eq!(lines, ["a refuses 5: 4001 name taken"], "{is_suspected} {user} {key}");
            }
        }
    }
}

#[test]
fn entries_of_a_node_that_leaves_or_is_dead_are_gone_at_once() {
    for is_dead in [false, true] {
        let mut world = World::cluster(&["a", "b", "c"], devices());
        world.ask("b", 1, "register", &name("bike"));
        assert_eq!(world.node("a").peers(), 2);
        let nodes = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<_>>();
        assert!(world.node("a").is_settled(&nodes(&["b", "c"])) && world.node("a").is_settled(&[]));
        assert!(!world.node("a").is_settled(&nodes(&["b", "d"])), "nothing is known of that one");
        let mut ids: Vec<_> = world.node("a").peer_ids().map(ToString::to_string).collect();
        ids.sort();
        assert_eq!(ids, ["b", "c"]);
        let now_ms = world.now_ms;
        if is_dead {
            world.cut_off("b");
            for node in ["a", "c"] {
                world.node(node).gone("b", now_ms);
            }
        } else {
            world.node("b").goodbye();
        }
        assert_eq!(world.settle(), [""; 0]);
        assert_eq!((world.node("a").peers(), world.node("c").peers()), (1, 1));
        assert!(world.ask("a", 2, "register", &name("bike"))[0].starts_with("a answers"));
    }
}

#[test]
fn a_node_that_was_suspended_probes_its_connections_once_before_it_goes_on() {
    let mut world = World::cluster(&["a", "b"], devices());
    world.ask("a", 1, "register", &name("bike"));
    let now_ms = world.now_ms + 60_000;
    world.now_ms = now_ms;
    world.cut_off("b");
    world.node("a").wake(now_ms);
    assert_eq!(world.settle(), ["a looks at its connections"], "all scopes ask once");
    world.node("a").wake(now_ms + 60_000);
    assert_eq!(world.settle(), [""; 0], "it looks already");
    world.node("a").probed(now_ms + 60_000);
    assert_eq!(world.settle(), [""; 0]);
    world.node("a").wake(now_ms + 120_000);
    assert_eq!(world.settle(), ["a looks at its connections"], "another standstill");
}

#[test]
fn a_clock_that_was_set_is_no_standstill() {
    let mut world = World::cluster(&["a"], devices());
    world.now_ms += 3_600_000;
    world.node("a").clock_set(3_600_000);
    let now_ms = world.now_ms;
    world.node("a").wake(now_ms);
    assert_eq!(world.settle(), [""; 0]);
    world.now_ms += 3_600_000;
    let now_ms = world.now_ms;
    world.node("a").wake(now_ms);
    assert_eq!(world.settle(), ["a looks at its connections"]);
}

#[test]
fn no_node_is_late_before_this_one_takes_part() {
    // Without a message from the other node, it would be purged after six seconds.
    for joins in [false, true] {
        let mut world = World::cluster(&["a", "b"], devices());
        world.ask("b", 1, "register", &name("bike"));
        world.cut_off("b");
        for _ in 0..20 {
            world.pass(1_000);
            let now_ms = world.now_ms;
            if joins {
                world.node("a").joined(now_ms);
            }
        }
        assert_eq!(world.node("a").peers(), usize::from(joins));
    }
}

#[test]
fn other_options_of_a_node_are_noticed_once_for_each_scope() {
    let directory = |name: &str, birth: u64, name_max_length: usize| {
        Directory::<u32>::new(
            name,
            &[ScopeOptions { name_max_length, ..devices() }],
            &ReplicaTiming::default(),
            birth,
            HashSeed::repeatable(7),
            true,
            START_MS,
        )
    };
    let (mut node, mut other) = (("a", directory("a", 1, 10)), ("b", directory("b", 2, 11)));
    let mut told = Vec::new();
    for round in 0..20 {
        let now_ms = START_MS + round * 200;
        node.1.tick(now_ms);
        node.1.flush();
        for act in node.1.effects() {
            match act {
                DirectoryEffect::SendToScope { scope, message, .. } => other.1.receive(&scope, &message, now_ms),
                DirectoryEffect::OptionsDiffer { scope, node: than } => {
                    told.push(format!("{} has other options of {scope} than {than}", node.0))
                }
                act => panic!("{act:?}"),
            }
        }
        std::mem::swap(&mut node, &mut other);
    }
    told.sort();
    assert_eq!(told, ["a has other options of devices than b", "b has other options of devices than a"]);
}

#[test]
fn a_node_alone_says_nothing_to_others() {
    let mut world = World::alone(devices());
    let now_ms = world.now_ms;
    let node = world.node("a");
    node.execute(
        &requester(1),
        DirectoryRequest::Register { scope: ScopeId(0), name: "bike".into(), meta: "".into(), take_over: false },
        None,
        now_ms,
    );
    node.tick(now_ms);
    node.flush();
    node.wake(now_ms + 3_600_000);
    node.goodbye();
    assert_eq!(node.effects().count(), 0);
    // This holds no matter how much changes at once.
    for number in 0..2_000 {
        let ask = DirectoryRequest::Join {
            scope: ScopeId(1),
            group: "all".into(),
            meta: format!("\"{}\"", "x".repeat(200)).into(),
        };
        node.execute(&one_of_many(number), ask, None, now_ms);
    }
    node.flush();
    assert_eq!(node.effects().count(), 0);
    // A message for a scope that the node does not have is ignored.
    node.receive("nowhere", b"x", now_ms);
    node.receive("devices", b"x", now_ms);
    assert_eq!(node.effects().count(), 0);
    assert_eq!(node.metrics().map(|figures| figures.counters.malformed).collect::<Vec<_>>(), [1, 0, 0]);
}

#[test]
fn what_fits_into_a_message_is_told_to_the_byte() {
    let size = |client: u32, data: usize| {
        format!(
            r#"{{"from":{{"user":"u{client}","client":"01010101-0101-0101-0101-010101010101"}},"to":"bike","data":""}}"#
        )
        .len()
            + data
    };
    let mut world = World::cluster(&["a", "b"], devices());
    world.ask("b", 1, "register", &name("bike"));
    world.node("a").set_message_max(2_000);
    let room = 2_000 - 512 - size(2, 0);
    for (length, is_good) in [(room, true), (room + 1, false)] {
        for method in ["send", "call"] {
            let params = json!({"scope": "devices", "name": "bike", "data": "x".repeat(length)});
            assert_eq!(
                world.ask("a", 2, method, &params) == ["a refuses 2: 107 bad request"],
                !is_good,
                "{method} {length}"
            );
        }
    }
    // The size of a reply is checked separately.
    world.node("b").set_message_max(2_000);
    for (length, is_good) in [(2_000 - 512 - 2, true), (2_000 - 512 - 1, false)] {
        let call = world.ask("a", 2, "call", &json!({"scope": "devices", "name": "bike", "data": 1}));
        let number: u64 = call[1].split([':', ',']).nth(2).and_then(|number| number.parse().ok()).expect("a number");
        for key in ["data", "error"] {
            let reply = json!({"call": number, key: "x".repeat(length)});
            let lines = world.ask("b", 1, "reply", &reply);
            if key == "data" || !is_good {
                assert_eq!(lines == ["b refuses 1: 107 bad request"], !is_good, "{key} {length}");
            }
        }
    }
    // Without a cluster a node sends no messages.
    let mut world = World::alone(devices());
    world.ask("a", 1, "register", &name("bike"));
    world.node("a").set_message_max(1_000);
    assert_eq!(
        world.ask("a", 2, "send", &json!({"scope": "devices", "name": "bike", "data": "x".repeat(5_000)})).len(),
        2
    );
    assert_eq!(world.node("a").oversized_scopes().count(), 0);
}

#[test]
fn scopes_whose_entries_may_be_larger_than_a_message_are_named() {
    let mut world = World::cluster(&["a"], ScopeOptions { name_max_length: 100, meta_max_size: 5_000, ..devices() });
    assert_eq!(world.node("a").oversized_scopes().count(), 0, "nothing bounds a message yet");
    for (most, oversized) in [(5_612, vec![]), (5_611, vec!["devices"]), (4_862, vec!["devices", "robots"])] {
        world.node("a").set_message_max(most);
        assert_eq!(world.node("a").oversized_scopes().collect::<Vec<_>>(), oversized, "{most}");
    }
}

#[test]
fn times_are_those_of_the_configuration() {
    // By default a node that has not checked the clock for ten seconds was suspended.
    for (timeout_ms, was_away) in [(5_000, true), (60_000, false)] {
        let timing = ReplicaTiming { timeout_ms, ..ReplicaTiming::default() };
        let mut node = Directory::<u32>::new("a", &[devices()], &timing, 1, HashSeed::repeatable(7), true, START_MS);
        node.wake(START_MS + 10_000);
        assert_eq!(node.effects().any(|act| matches!(act, DirectoryEffect::Probe)), was_away, "{timeout_ms}");
    }
}
