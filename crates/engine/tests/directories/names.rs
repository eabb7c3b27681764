//! Names: which client gets a name, which one loses it, and the messages about it.

use serde_json::{Value, json};
use touchline_engine::directory::{
    ConflictPolicy, DirectoryRequest, Registration, ScopeId, ScopeOptions, client_from_text, client_text,
};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use crate::world::{World, devices, owner};

fn name(name: &str) -> Value {
    json!({"scope": "devices", "name": name})
}

fn with(mut params: Value, key: &str, value: impl Into<Value>) -> Value {
    params[key] = value.into();
    params
}

#[test]
fn a_name_is_had_by_one_changed_by_it_and_given_up() {
    let mut world = World::alone(devices());
    let bike = name("bike");
    assert_eq!(
        world.ask("a", 1, "register", &with(bike.clone(), "meta", 5)),
        [r#"a answers 1: {"name":"bike","client":"c1","node":"a","meta":5,"version":"*.0"}"#]
    );
    assert_eq!(world.ask("a", 2, "register", &bike), ["a refuses 2: 4001 name taken"]);
    assert_eq!(world.ask("a", 2, "unregister", &bike), ["a refuses 2: 4002 not registered"]);
    assert_eq!(world.ask("a", 2, "update_meta", &with(bike.clone(), "meta", 6)), ["a refuses 2: 4002 not registered"]);
    assert_eq!(
        world.ask("a", 1, "register", &with(bike.clone(), "meta", 6)),
        [r#"a answers 1: {"name":"bike","client":"c1","node":"a","meta":6,"version":"*.1"}"#]
    );
    assert_eq!(
        world.ask("a", 1, "update_meta", &with(bike.clone(), "meta", Value::Null)),
        [r#"a answers 1: {"name":"bike","client":"c1","node":"a","version":"*.2"}"#]
    );
    assert_eq!(world.ask("a", 1, "unregister", &bike), ["a answers 1: {}"]);
    assert_eq!(world.ask("a", 1, "unregister", &bike), ["a refuses 1: 4002 not registered"]);
    assert_eq!(
        world.ask("a", 2, "register", &bike),
        [r#"a answers 2: {"name":"bike","client":"c2","node":"a","version":"*.0"}"#]
    );
    assert_eq!(world.close("a", 2), [""; 0]);
    assert!(world.ask("a", 1, "register", &bike)[0].starts_with("a answers 1"), "the connection that had it is gone");
}

#[test]
fn metadata_is_replaced_only_at_the_version_that_is_named() {
    let mut world = World::alone(devices());
    let Some(Ok(entry)) = ({
        world.ask("a", 1, "register", &with(name("bike"), "meta", 1));
        world.node("a").scopes().answer(&DirectoryRequest::Lookup { scope: ScopeId(0), name: "bike".into() })
    }) else {
        panic!("it is there")
    };
    let entry: Value = serde_json::from_slice(&entry).expect("JSON");
    let version = entry["version"].as_str().expect("a text");
    let (stamp, revision) = version.split_once('.').expect("two numbers");
    assert_eq!((stamp.parse::<u64>().map(|stamp| stamp >> 16), revision), (Ok(world.now_ms), "0"));
    let update =
        |version: &str, meta: i32| json!({"scope": "devices", "name": "bike", "version": version, "meta": meta});
    for odd in ["1", "x.0", ".", "1.x", "1.0.0"] {
        assert_eq!(world.ask("a", 1, "update_meta", &update(odd, 2)), ["a refuses 1: 107 bad request"], "{odd}");
    }
    for other in [format!("{stamp}.1"), "1.0".into()] {
        assert_eq!(
            world.ask("a", 1, "update_meta", &update(&other, 2)),
            ["a refuses 1: 4004 changed meanwhile"],
            "{other}"
        );
    }
    let updated = [r#"a answers 1: {"name":"bike","client":"c1","node":"a","meta":2,"version":"*.1"}"#];
    assert_eq!(world.ask("a", 1, "update_meta", &update(version, 2)), updated);
    assert_eq!(world.ask("a", 1, "update_meta", &update(version, 3)), ["a refuses 1: 4004 changed meanwhile"]);
}

#[test]
fn a_name_is_taken_over_where_the_scope_keeps_the_newest_and_its_loser_is_told() {
    let newest = json!({"scope": "devices", "name": "bike", "policy": "newest"});
    let won = |client: u32| {
        format!(r#"a answers {client}: {{"name":"bike","client":"c{client}","node":"a","version":"*.0"}}"#)
    };
    for disconnect_losers in [false, true] {
        let mut world = World::alone(ScopeOptions { disconnect_losers, ..devices() });
        for policy in ["", "oldest", "reject"] {
            assert_eq!(world.ask("a", 1, "register", &with(newest.clone(), "policy", policy)), [won(1)]);
            assert_eq!(
                world.ask("a", 2, "register", &with(newest.clone(), "policy", policy)),
                ["a refuses 2: 4001 name taken"]
            );
        }
        let lost =
            r#"a gives c1: {"lost":{"scope":"devices","name":"bike","reason":"taken_over","client":"c2","node":"a"}}"#;
        let dropped = disconnect_losers.then_some("a disconnects c1");
        let expected: Vec<String> = [lost].into_iter().chain(dropped).map(str::to_owned).chain([won(2)]).collect();
        assert_eq!(world.ask("a", 2, "register", &newest), expected);
        assert_eq!(
            world.ask("a", 1, "register", &with(newest.clone(), "policy", "latest")),
            ["a refuses 1: 107 bad request"]
        );
    }
    for conflict_policy in [ConflictPolicy::Oldest, ConflictPolicy::Reject] {
        let mut world = World::alone(ScopeOptions { conflict_policy, ..devices() });
        assert_eq!(world.ask("a", 1, "register", &newest), [won(1)]);
        assert_eq!(world.ask("a", 2, "register", &newest), ["a refuses 2: 4001 name taken"], "{conflict_policy:?}");
    }
}

#[test]
fn the_scopes_policy_says_which_owner_keeps_a_name_after_a_split() {
    for (conflict_policy, winner, loser) in [
        (ConflictPolicy::Newest, ("b", 2), ("a", 1)),
        (ConflictPolicy::Oldest, ("a", 1), ("b", 2)),
        (ConflictPolicy::Reject, ("a", 1), ("b", 2)),
    ] {
        let mut world = World::cluster(&["a", "b"], ScopeOptions { conflict_policy, ..devices() });
        let now_ms = world.now_ms;
        // Neither node knows the other's registration.
        for (at, client, later_ms) in [("a", 1, 0), ("b", 2, 5)] {
            let ask = DirectoryRequest::Register {
                scope: ScopeId(0),
                name: "bike".into(),
                meta: "".into(),
                take_over: false,
            };
            world.node(at).execute(&crate::world::requester(client), ask, None, now_ms + later_ms);
        }
        let ((home, kept), (away, lost)) = (winner, loser);
        let loss =
            format!(r#"{{"scope":"devices","name":"bike","reason":"conflict","client":"c{kept}","node":"{home}"}}"#);
        let word = format!(r#"{away} gives c{lost}: {{"lost":{loss}}}"#);
        assert_eq!(world.settle(), [word], "{conflict_policy:?}");
        let found = Ok(format!(r#"{{"name":"bike","client":"c{kept}","node":"{home}","version":"*.0"}}"#));
        for node in ["a", "b"] {
            let answer =
                world.node(node).scopes().answer(&DirectoryRequest::Lookup { scope: ScopeId(0), name: "bike".into() });
            assert_eq!(answer.expect("a lookup").map(|json| crate::world::shown(&json)), found, "at {node}");
        }
    }
}

#[test]
fn limits_of_names_metadata_and_entries_are_met_exactly() {
    let mut world =
        World::alone(ScopeOptions { name_max_length: 4, meta_max_size: 6, client_entries_limit: 2, ..devices() });
    let register = |name: &str, meta: &str| json!({"scope": "devices", "name": name, "meta": meta});
    for (name, meta, is_good) in
        [("abcd", "wxyz", true), ("abcde", "", false), ("", "", false), ("abc", "vwxyz", false)]
    {
        let lines = world.ask("a", 1, "register", &register(name, meta));
        let expected = if is_good { "a answers 1:" } else { "a refuses 1: 107 bad request" };
        assert!(lines.len() == 1 && lines[0].starts_with(expected), "{name} {meta}: {lines:?}");
    }
    assert_eq!(world.ask("a", 1, "join", &json!({"scope": "devices", "group": "all"})), ["a answers 1: {}"]);
    assert_eq!(world.ask("a", 1, "register", &register("next", "")), ["a refuses 1: 106 limit exceeded"]);
    assert_eq!(
        world.ask("a", 1, "join", &json!({"scope": "devices", "group": "more"})),
        ["a refuses 1: 106 limit exceeded"]
    );
    assert_eq!(
        world.ask("a", 1, "join", &json!({"scope": "devices", "group": "all", "meta": 1})),
        ["a answers 1: {}"],
        "it is there"
    );
    assert!(
        world.ask("a", 2, "register", &register("next", ""))[0].starts_with("a answers 2"),
        "another connection has its own"
    );
}

#[test]
fn a_lookup_is_answered_without_the_directory_and_nothing_else_is() {
    let mut world = World::alone(devices());
    world.ask("a", 1, "register", &with(name("bike"), "meta", 1));
    let scopes = world.node("a").scopes();
    let lookup = |scope: u16, name: &str| {
        let answer = scopes.answer(&DirectoryRequest::Lookup { scope: ScopeId(scope), name: name.into() });
        answer.expect("a lookup").map(|json| crate::world::shown(&json))
    };
    assert_eq!(lookup(0, "bike"), Ok(r#"{"name":"bike","client":"c1","node":"a","meta":1,"version":"*.0"}"#.into()));
    assert_eq!((lookup(0, "boat"), lookup(1, "bike")), (Err(Error::NOT_REGISTERED), Err(Error::NOT_REGISTERED)));
    assert_eq!(lookup(3, "bike"), Err(Error::NO_SUCH_SCOPE));
    assert!(scopes.answer(&DirectoryRequest::Count { scope: ScopeId(0) }).is_none());
    assert_eq!(
        (scopes.find("devices"), scopes.find("robots"), scopes.find("")),
        (Some(ScopeId(0)), Some(ScopeId(1)), None)
    );
    assert_eq!(scopes.options(ScopeId(1)).map(|options| &*options.name), Some("robots"));
    assert!(scopes.options(ScopeId(3)).is_none());
    drop(scopes);
    assert_eq!(
        world.order("a", 1, DirectoryRequest::Lookup { scope: ScopeId(0), name: "bike".into() }),
        [r#"a answers 1: {"name":"bike","client":"c1","node":"a","meta":1,"version":"*.0"}"#],
        "the directory gives the same answer"
    );
}

#[test]
fn every_request_to_a_scope_that_is_not_there_is_refused() {
    let mut world = World::alone(devices());
    let (scope, name, meta) = (ScopeId(9), Box::<str>::from("x"), bytes::Bytes::new());
    let asks = [
        DirectoryRequest::Register { scope, name: name.clone(), meta: meta.clone(), take_over: true },
        DirectoryRequest::RegisterAll(
            [Registration { scope, key: name.clone(), meta: meta.clone(), is_group: false }].into(),
        ),
        DirectoryRequest::Unregister { scope, name: name.clone() },
        DirectoryRequest::UpdateMeta { scope, name: name.clone(), meta: meta.clone(), expected: None },
        DirectoryRequest::Join { scope, group: name.clone(), meta },
        DirectoryRequest::Leave { scope, group: name.clone() },
        DirectoryRequest::Members { scope, group: name.clone() },
        DirectoryRequest::Member { scope, group: name, client: None },
        DirectoryRequest::Count { scope },
        DirectoryRequest::Changes { scope, position: None },
    ];
    for ask in asks {
        assert_eq!(world.order("a", 1, ask.clone()), ["a refuses 1: 4003 no such scope"], "{ask:?}");
    }
}

#[test]
fn a_token_gives_all_or_nothing_and_counts_each_entry_once() {
    let claim = |key: &str, is_group| Registration { scope: ScopeId(0), key: key.into(), meta: "1".into(), is_group };
    let mut world = World::alone(ScopeOptions { client_entries_limit: 2, meta_max_size: 1, ..devices() });
    let take = |world: &mut World, client: u32, claims: &[Registration]| {
        world.order("a", client, DirectoryRequest::RegisterAll(claims.into()))
    };
    // The same key as a name and as a group makes two entries; the same one twice makes one entry.
    assert_eq!(take(&mut world, 1, &[claim("k", false), claim("k", true), claim("k", false)]), ["a answers 1: {}"]);
    assert_eq!(take(&mut world, 1, &[claim("k", true), claim("k", false)]), ["a answers 1: {}"], "it has them");
    assert_eq!(take(&mut world, 1, &[claim("l", false)]), ["a refuses 1: 106 limit exceeded"]);
    assert_eq!(
        take(&mut world, 2, &[claim("x", false), claim("y", true), claim("z", true)]),
        ["a refuses 2: 106 limit exceeded"]
    );
    let long = Registration { meta: "22".into(), ..claim("y", true) };
    assert_eq!(take(&mut world, 2, &[claim("x", false), long]), ["a refuses 2: 107 bad request"]);
    let counted = |world: &mut World| world.ask("a", 9, "count", &json!({"scope": "devices"}));
    let one = [r#"a answers 9: {"names":1,"groups":1,"members":1,"nodes":[{"node":"a","entries":2}]}"#];
    assert_eq!(counted(&mut world), one, "nothing has come of what was refused");
    let lost = r#"a gives c1: {"lost":{"scope":"devices","name":"k","reason":"taken_over","client":"c2","node":"a"}}"#;
    assert_eq!(take(&mut world, 2, &[claim("k", false)]), [lost, "a answers 2: {}"]);
}

#[test]
fn client_ids_are_read_as_they_are_written() {
    let owner_of = |text: &str| client_from_text(text).map(|owner| owner.0);
    let id = OwnerId(std::array::from_fn(|index| (index as u8) * 17));
    assert_eq!(client_text(id), "00112233-4455-6677-8899-aabbccddeeff");
    assert_eq!(owner_of("00112233-4455-6677-8899-AABBCCDDEEFF"), Some(id.0));
    for odd in [
        "",
        "001122334455667788 99aabbccddeeff",
        "00112233445566778899aabbccddeeff",
        "00112233-4455-6677-8899-aabbccddeef",
        "g0112233-4455-6677-8899-aabbccddeeff",
        "0g112233-4455-6677-8899-aabbccddeeff",
        "00112233-4455-6677-8899-aabbccddeeff0",
        "00112233-4455-6677-8899aaabbccddeeff",
    ] {
        assert_eq!(owner_of(odd), None, "{odd:?}");
    }
    assert_eq!(client_from_text(&client_text(owner(3))), Some(owner(3)));
}
