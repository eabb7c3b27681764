//! Lists: pages, samples, counts, and their costs.

use serde_json::{Value, json};
use touchline_engine::directory::{DirectoryEffect, DirectoryRequest, Listing, ScopeId, Target};

use crate::world::{World, devices, json as shown, one_of_many, requester};

/// Executes a request. Returns its reply, its cost, and the number of its steps.
fn walk(world: &mut World, ask: DirectoryRequest) -> (String, u32, usize) {
    let (now_ms, node) = (world.now_ms, world.node("a"));
    assert!(ask.is_walk(), "{ask:?}");
    let mut walk = node.begin(requester(9), ask, Some(9), now_ms);
    let mut steps = 0;
    while let Some(begun) = walk {
        walk = node.step(begun, now_ms);
        steps += 1;
    }
    let mut answers = node
        .effects()
        .filter_map(|act| if let DirectoryEffect::Reply(9, Ok(answered)) = act { Some(answered) } else { None });
    let answered = answers.next().expect("an answer");
    let work = answered.work();
    (shown(answered), work, steps)
}

fn names(world: &mut World, prefix: &str, cursor: u32, limit: usize) -> Value {
    let listing = Listing { scope: ScopeId(0), prefix: prefix.into(), cursor, limit };
    serde_json::from_str(&walk(world, DirectoryRequest::Names(listing)).0).expect("JSON")
}

fn register(world: &mut World, name: &str, meta: &str) {
    let now_ms = world.now_ms;
    let ask = DirectoryRequest::Register {
        scope: ScopeId(0),
        name: name.into(),
        meta: meta.to_owned().into(),
        take_over: false,
    };
    world.node("a").execute(&requester(1), ask, None, now_ms);
}

/// Fills a group with `size` clients, each with metadata of `meta` bytes.
fn fill_group(world: &mut World, group: &str, size: u32, meta: usize) {
    let now_ms = world.now_ms;
    for number in 0..size {
        let meta = format!("\"{}\"", "x".repeat(meta.saturating_sub(2))).into();
        world.node("a").execute(
            &one_of_many(number),
            DirectoryRequest::Join { scope: ScopeId(0), group: group.into(), meta },
            None,
            now_ms,
        );
    }
    world.settle();
}

fn wide() -> World {
    World::with_options(&["a"], |options| {
        (options.client_entries_limit, options.members_limit) = (1_000_000, 600);
        (options.call_members_limit, options.client_calls_limit) = (5_000, 5_000);
    })
}

#[test]
fn a_list_of_names_is_had_page_by_page() {
    let mut world = World::alone(devices());
    ["a1", "b1", "a2", "a3", "b2"].iter().for_each(|name| register(&mut world, name, "7"));
    let (first, ..) = walk(
        &mut world,
        DirectoryRequest::Names(Listing { scope: ScopeId(0), prefix: "a".into(), cursor: 0, limit: 2 }),
    );
    let entry = |name: &str| format!(r#"{{"name":"{name}","client":"c1","node":"a","meta":7,"version":"*.0"}}"#);
    assert_eq!(first, format!(r#"{{"names":[{},{}],"cursor":3}}"#, entry("a1"), entry("a2")));
    let (second, ..) = walk(
        &mut world,
        DirectoryRequest::Names(Listing { scope: ScopeId(0), prefix: "a".into(), cursor: 3, limit: 2 }),
    );
    assert_eq!(second, format!(r#"{{"names":[{}]}}"#, entry("a3")));
    assert_eq!(
        world.ask("a", 9, "names", &json!({"scope": "devices", "prefix": "b", "limit": 1}))[0],
        format!(r#"a answers 9: {{"names":[{}],"cursor":2}}"#, entry("b1"))
    );
    let groups = json!({"scope": "devices", "prefix": "g"});
    for (client, group) in [(1, "g1"), (2, "g1"), (1, "h1"), (1, "g2")] {
        world.ask("a", client, "join", &json!({"scope": "devices", "group": group}));
    }
    assert_eq!(
        world.ask("a", 9, "groups", &groups),
        [r#"a answers 9: {"groups":[{"group":"g1","count":2},{"group":"g2","count":1}]}"#]
    );
    let mut first = groups.clone();
    first["limit"] = json!(1);
    assert_eq!(
        world.ask("a", 9, "groups", &first),
        [r#"a answers 9: {"groups":[{"group":"g1","count":2}],"cursor":1}"#]
    );
    first["cursor"] = json!(1);
    assert_eq!(world.ask("a", 9, "groups", &first), [r#"a answers 9: {"groups":[{"group":"g2","count":1}]}"#]);
}

#[test]
fn members_are_had_page_by_page_with_their_exact_number() {
    let mut world = World::alone(devices());
    let group =
        |limit: usize, cursor: u32| json!({"scope": "devices", "group": "all", "limit": limit, "cursor": cursor});
    for client in 1..=3 {
        world.ask("a", client, "join", &json!({"scope": "devices", "group": "all", "meta": client}));
    }
    let member = |client: u32| format!(r#"{{"client":"c{client}","node":"a","meta":{client}}}"#);
    let [one, two, three] = [member(1), member(2), member(3)];
    assert_eq!(
        world.ask("a", 9, "members", &group(2, 0)),
        [format!(r#"a answers 9: {{"members":[{one},{two}],"count":3,"cursor":2}}"#)]
    );
    assert_eq!(
        world.ask("a", 9, "members", &group(2, 2)),
        [format!(r#"a answers 9: {{"members":[{three}],"count":3}}"#)]
    );
    let whole = world.ask("a", 9, "members", &group(3, 0)).remove(0);
    assert!(whole.ends_with(r#"],"count":3}"#) && whole.matches("meta").count() == 3, "{whole}");
    let mut small = World::with_options(&["a"], |options| options.members_limit = 2);
    for client in 1..=2 {
        small.ask("a", client, "join", &json!({"scope": "devices", "group": "all"}));
    }
    let all = small.ask("a", 9, "members", &group(0, 0)).remove(0);
    assert!(all.ends_with(r#"],"count":2}"#) && all.matches("client").count() == 2, "{all}");
    small.ask("a", 3, "join", &json!({"scope": "devices", "group": "all"}));
    let sample = small.ask("a", 9, "members", &group(0, 0)).remove(0);
    assert!(sample.ends_with(r#"],"count":3,"sample":true}"#) && sample.matches("client").count() == 2, "{sample}");
}

#[test]
fn counts_tell_how_the_entries_spread_over_the_nodes() {
    let mut world = World::cluster(&["a", "b"], devices());
    world.ask("a", 1, "register", &json!({"scope": "devices", "name": "bike"}));
    for (node, client, group) in [("b", 2, "g"), ("b", 3, "g"), ("b", 3, "h")] {
        world.ask(node, client, "join", &json!({"scope": "devices", "group": group}));
    }
    let counts = |own: &str, others: &str| format!(r#"{{"names":1,"groups":2,"members":3,"nodes":[{own},{others}]}}"#);
    let (a, b) = (r#"{"node":"a","entries":1}"#, r#"{"node":"b","entries":3}"#);
    assert_eq!(world.ask("a", 9, "count", &json!({"scope": "devices"})), [format!("a answers 9: {}", counts(a, b))]);
    assert_eq!(world.ask("b", 9, "count", &json!({"scope": "devices"})), [format!("b answers 9: {}", counts(b, a))]);
    let figures: Vec<_> =
        world.node("a").metrics().map(|figures| (figures.scope.to_string(), figures.names, figures.members)).collect();
    assert_eq!(figures, [("devices".into(), 1, 3), ("robots".into(), 0, 0), ("$presence".into(), 0, 0)]);
    assert!(world.node("a").metrics().all(|figures| figures.counters.snapshots_installed >= 1));
    assert_eq!(
        world.node("a").scope_names().map(|name| &**name).collect::<Vec<_>>(),
        ["devices", "robots", "$presence"]
    );
}

#[test]
fn a_list_with_few_results_visits_so_much_and_continues_with_another_page() {
    let mut world = wide();
    (0..16 * 1_024 + 1).for_each(|number| register(&mut world, &format!("n{number}"), ""));
    let last = format!("n{}", 16 * 1_024);
    let listing =
        |cursor| DirectoryRequest::Names(Listing { scope: ScopeId(0), prefix: last.clone().into(), cursor, limit: 10 });
    let (page, work, steps) = walk(&mut world, listing(0));
    assert_eq!((&*page, work, steps), (r#"{"names":[],"cursor":16384}"#, 16_384 / 8, 16));
    let (page, work, steps) = walk(&mut world, listing(16_384));
    assert!(page.starts_with(&format!(r#"{{"names":[{{"name":"{last}""#)) && page.ends_with("}]}"), "{page}");
    assert_eq!((work, steps), (0, 1));
    // A full page ends at once, wherever it ends.
    let listing = Listing { scope: ScopeId(0), prefix: "n".into(), cursor: 0, limit: 1_024 };
    let (page, work, steps) = walk(&mut world, DirectoryRequest::Names(listing));
    let page: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!((page["names"].as_array().map(Vec::len), &page["cursor"], steps), (Some(1_024), &json!(1_024), 1));
    // Entries that are shown, slots that were visited, and bytes: 120 per entry in addition to its name.
    let bytes: usize = (0..1_024).map(|number| 120 + format!("n{number}").len()).sum();
    assert_eq!(work as usize, (1_024 + 1_024) / 8 + bytes / 4_096);
    let mut all = 0;
    let mut cursor = 0;
    loop {
        let page = names(&mut world, "n", cursor, 1_000);
        all += page["names"].as_array().map_or(0, Vec::len);
        cursor = page["cursor"].as_u64().unwrap_or(0) as u32;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(all, 16 * 1_024 + 1);
}

#[test]
fn names_are_had_in_their_order_from_either_node() {
    let mut world = World::cluster(&["a", "b"], devices());
    for (node, client, name) in [("a", 1, "b1"), ("b", 2, "a2"), ("a", 1, "c"), ("b", 2, "b3"), ("a", 1, "b2")] {
        world.ask(node, client, "register", &json!({"scope": "devices", "name": name}));
    }
    let mut page = |node: &str, prefix: &str, after: &str| {
        let ask = json!({"scope": "devices", "prefix": prefix, "after": after, "limit": 2});
        let told = world.ask(node, 9, "names", &ask).remove(0);
        let told: Value = serde_json::from_str(told.split_once(": ").expect("an answer").1).expect("JSON");
        let names = told["names"].as_array().expect("names").iter();
        (names.map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>(), told)
    };
    let (names, first) = page("a", "", "");
    assert_eq!((names, &first["last"]), (vec!["a2".into(), "b1".into()], &json!("b1")));
    assert!(first["cursor"].is_null(), "{first}");
    let (names, second) = page("b", "", "b1");
    assert_eq!((names, &second["last"]), (vec!["b2".into(), "b3".into()], &json!("b3")));
    let (names, third) = page("a", "", "b3");
    assert_eq!((names, &third["last"]), (vec!["c".into()], &Value::Null));
    let (names, of_b) = page("b", "b", "b1");
    assert_eq!((names, &of_b["last"]), (vec!["b2".into(), "b3".into()], &Value::Null), "that was all with b");
    assert_eq!(page("b", "", "z").0, Vec::<String>::new());
    let both = json!({"scope": "devices", "after": "a", "cursor": 1});
    assert_eq!(world.ask("a", 9, "names", &both), ["a refuses 9: 107 bad request"]);
}

#[test]
fn a_page_of_names_in_order_costs_a_look_at_each_name() {
    let mut world = wide();
    (0..2_000).for_each(|number| register(&mut world, &format!("n{number:04}"), ""));
    let listing = Listing { scope: ScopeId(0), prefix: "n".into(), cursor: 0, limit: 10 };
    let (page, work, steps) = walk(&mut world, DirectoryRequest::NamesAfter { after: "n1500".into(), listing });
    let page: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!((&page["names"][0]["name"], &page["last"]), (&json!("n1501"), &json!("n1510")));
    assert_eq!((work, steps), (2_000 / 8, 4));
}

#[test]
fn groups_and_pages_of_members_are_listed_in_steps_too() {
    let mut world = wide();
    let now_ms = world.now_ms;
    for number in 0..1_100 {
        let group = format!("g{number}").into();
        world.node("a").execute(
            &requester(1),
            DirectoryRequest::Join { scope: ScopeId(0), group, meta: "".into() },
            None,
            now_ms,
        );
    }
    world.settle();
    let listing = |prefix: &str| Listing { scope: ScopeId(0), prefix: prefix.into(), cursor: 0, limit: 2 };
    let (page, work, steps) = walk(&mut world, DirectoryRequest::Groups(listing("g1099")));
    assert_eq!((&*page, work, steps), (r#"{"groups":[{"group":"g1099","count":1}]}"#, 1_025 / 8, 2));
    // Members of one group after a thousand members of others.
    (2..=4).for_each(|client| drop(world.ask("a", client, "join", &json!({"scope": "devices", "group": "few"}))));
    let (page, work, steps) =
        walk(&mut world, DirectoryRequest::MemberPage { group: "few".into(), listing: listing("") });
    let page: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(
        (page["members"].as_array().map(Vec::len), &page["count"], &page["cursor"]),
        (Some(2), &json!(3), &json!(1_102))
    );
    assert_eq!((work, steps), ((1_102 + 2) / 8, 2));
}

#[test]
fn a_walk_takes_a_step_for_each_five_hundred_and_twelve_members() {
    for (size, steps) in [(512, 1), (513, 2)] {
        let mut world = wide();
        fill_group(&mut world, "all", size, 10);
        let (target, scope) = (Target { scope: ScopeId(0), key: "all".into(), is_group: true }, ScopeId(0));
        let members = DirectoryRequest::Members { scope, group: "all".into() };
        let (list, work, taken) = walk(&mut world, members);
        assert_eq!((list.matches("client").count(), taken), (size as usize, steps));
        assert_eq!(work as usize, size as usize / 8 + size as usize * (120 + "all".len() + 10) / 4_096);
        let send = DirectoryRequest::Send { target: target.clone(), data: "1".into(), store_for_ms: 0 };
        assert_eq!(walk(&mut world, send), (format!(r#"{{"sent":{size}}}"#), size, steps));
        let now_ms = world.now_ms;
        let call = DirectoryRequest::Call { target, data: "1".into(), timeout_ms: 300 };
        let (mut begun, mut taken) = (world.node("a").begin(requester(9), call, Some(9), now_ms), 0);
        while let Some(walk) = begun {
            begun = world.node("a").step(walk, now_ms);
            taken += 1;
        }
        assert_eq!((world.node("a").effects().count(), taken), (size as usize, steps));
        world.pass(300);
        let info =
            touchline_protocol::ClientInfo { user: "u".into(), client: "c".into(), conn_info: None, chan_info: None };
        let info = std::sync::Arc::new(info);
        for number in 0..size {
            let enter = DirectoryRequest::Enter {
                channel: "room".into(),
                info: info.clone(),
                is_shown: true,
                is_announced: false,
            };
            world.node("a").execute(&one_of_many(number), enter, None, now_ms);
        }
        let (list, _, taken) = walk(&mut world, DirectoryRequest::Presence { channel: "room".into(), limit: 5_000 });
        assert_eq!((list.matches("user").count(), taken), (size as usize, steps));
    }
}

#[test]
fn a_sample_ends_where_it_is_full() {
    let mut world = wide();
    fill_group(&mut world, "all", 700, 2);
    let (list, work, steps) = walk(&mut world, DirectoryRequest::Members { scope: ScopeId(0), group: "all".into() });
    assert_eq!((list.matches("client").count(), steps), (600, 2), "the scope shows so many");
    assert!(list.ends_with(r#"],"count":700,"sample":true}"#));
    assert_eq!(work as usize, 600 / 8 + 600 * (120 + "all".len() + 2) / 4_096);
}

#[test]
fn what_touches_many_entries_is_a_walk_and_nothing_else_is() {
    let target = |is_group| Target { scope: ScopeId(0), key: "x".into(), is_group };
    let send =
        |is_group, store_for_ms| DirectoryRequest::Send { target: target(is_group), data: "1".into(), store_for_ms };
    let call = |is_group| DirectoryRequest::Call { target: target(is_group), data: "1".into(), timeout_ms: 1 };
    assert_eq!([send(true, 0), send(false, 0), send(true, 1)].map(|ask| ask.is_walk()), [true, false, false]);
    assert_eq!([call(true), call(false), DirectoryRequest::Close].map(|ask| ask.is_walk()), [true, false, false]);
    // A request that is not a walk gets its reply at once.
    let mut world = World::alone(devices());
    let now_ms = world.now_ms;
    assert!(
        world.node("a").begin(requester(9), DirectoryRequest::Count { scope: ScopeId(0) }, Some(9), now_ms).is_none()
    );
    assert_eq!(
        world.settle(),
        [r#"a answers 9: {"names":0,"groups":0,"members":0,"nodes":[{"node":"a","entries":0}]}"#]
    );
    world.ask("a", 1, "join", &json!({"scope": "devices", "group": "x"}));
    // A name is not a group, even if a group has the same name.
    for ask in [send(false, 0), call(false)] {
        assert!(world.node("a").begin(requester(9), ask, Some(9), now_ms).is_none());
        assert_eq!(world.settle(), ["a refuses 9: 4002 not registered"]);
    }
    let walk = world.node("a").begin(requester(9), send(true, 0), Some(9), now_ms).expect("a walk");
    assert!(walk.is_send());
}

#[test]
fn a_page_has_no_more_than_its_limit_in_however_many_steps_it_is_made() {
    let mut world = wide();
    let now_ms = world.now_ms;
    for number in 0..1_104 {
        // One entry at the beginning, and three that only the second step finds.
        let is_wanted = number == 0 || number > 1_100;
        let key = format!("{}{number}", if is_wanted { "x" } else { "n" });
        register(&mut world, &key, "");
        let join =
            |scope, group: &str| DirectoryRequest::Join { scope: ScopeId(scope), group: group.into(), meta: "".into() };
        world.node("a").execute(&one_of_many(number), join(0, &key), None, now_ms);
        world.node("a").execute(&one_of_many(number), join(1, if is_wanted { "few" } else { "rest" }), None, now_ms);
    }
    world.settle();
    let listing = |scope, prefix: &str| Listing { scope: ScopeId(scope), prefix: prefix.into(), cursor: 0, limit: 2 };
    let (page, work, steps) = walk(&mut world, DirectoryRequest::Groups(listing(0, "x")));
    assert_eq!(page, r#"{"groups":[{"group":"x0","count":1},{"group":"x1101","count":1}],"cursor":1102}"#);
    assert_eq!((work, steps), ((1_102 + 2) / 8, 2));
    let (page, ..) = walk(&mut world, DirectoryRequest::Names(listing(0, "x")));
    assert!(page.matches(r#""name":"#).count() == 2 && page.ends_with(r#""cursor":1102}"#), "{page}");
    let (page, ..) = walk(&mut world, DirectoryRequest::MemberPage { group: "few".into(), listing: listing(1, "") });
    assert!(page.matches("client").count() == 2 && page.ends_with(r#""count":4,"cursor":1102}"#), "{page}");
}
