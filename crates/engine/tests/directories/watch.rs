//! What the watchers of a scope get, and when.

use serde_json::{Value, json};
use touchline_engine::directory::{DirectoryEffect, DirectoryRequest, ScopeId, ScopeOptions, WatchPosition};

use crate::world::{World, devices, requester};

/// The bytes that are counted for a change in addition to its key and metadata.
const AROUND: usize = 200;

fn watched(watch_log_size: usize) -> World {
    let options = ScopeOptions {
        allow_watch_for_client: true,
        watch_log_size,
        client_entries_limit: 100_000,
        meta_max_size: 1_000_000,
        ..devices()
    };
    World::alone(options)
}

/// Registers a name of two bytes. The metadata makes the change as large as requested.
fn register(world: &mut World, name: u8, size: usize) {
    let meta = format!("\"{}\"", "x".repeat(size - AROUND - 4));
    let now_ms = world.now_ms;
    let ask = DirectoryRequest::Register {
        scope: ScopeId(0),
        name: format!("{name:02x}").into(),
        meta: meta.into(),
        take_over: false,
    };
    world.node("a").execute(&requester(1), ask, None, now_ms);
}

/// What watchers get now: the offset, and the number of changes; `None` = only the offset.
fn told(world: &mut World) -> Vec<(u64, Option<usize>)> {
    let lines = world.settle();
    let told = lines.iter().map(|line| {
        let json = line.strip_prefix("a publishes in $registry:devices: ").expect("a push");
        let push: Value = serde_json::from_str(json).expect("JSON");
        (push["offset"].as_u64().expect("a number"), push["changes"].as_array().map(Vec::len))
    });
    told.collect()
}

fn changes(world: &mut World, offset: u64) -> Value {
    let params = json!({"scope": "devices", "epoch": epoch(world), "offset": offset});
    answer(world, &params)
}

fn epoch(world: &mut World) -> Value {
    answer(world, &json!({"scope": "devices"}))["epoch"].clone()
}

fn answer(world: &mut World, params: &Value) -> Value {
    let lines = world.ask("a", 9, "changes", params);
    let json = lines.iter().find_map(|line| line.strip_prefix("a answers 9: ")).expect("an answer");
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn each_kind_of_change_is_told_with_all_that_concerns_it() {
    let mut world = World::cluster(&["a", "b"], ScopeOptions { allow_watch_for_client: true, ..devices() });
    let mut offset = 0;
    let mut expect = |lines: Vec<String>, changes: &[&str]| {
        for node in ["a", "b"] {
            let start = format!("{node} publishes in $registry:devices: ");
            let told: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(start.as_str())).collect();
            let epoch = if node == "a" { "64000" } else { "c8000" };
            let expected = format!(
                r#"{{"offset":{},"epoch":"{epoch}","changes":[{}]}}"#,
                offset + changes.len(),
                changes.join(",")
            );
            assert_eq!(told, [expected], "at {node}");
        }
        offset += changes.len();
    };
    let bike = |meta: u32| json!({"scope": "devices", "name": "bike", "meta": meta, "policy": "newest"});
    let group = |meta: u32| json!({"scope": "devices", "group": "all", "meta": meta});
    let lines = world.ask("a", 1, "register", &bike(1));
    expect(lines, &[r#"{"change":"registered","name":"bike","client":"c1","node":"a","meta":1,"reason":"normal"}"#]);
    let lines = world.ask("a", 1, "update_meta", &bike(2));
    expect(lines, &[r#"{"change":"updated","name":"bike","client":"c1","node":"a","meta":2,"reason":"normal"}"#]);
    let lines = world.ask("a", 1, "unregister", &bike(2));
    expect(lines, &[r#"{"change":"unregistered","name":"bike","client":"c1","node":"a","meta":2,"reason":"normal"}"#]);
    let lines = world.ask("a", 1, "join", &group(3));
    expect(lines, &[r#"{"change":"joined","group":"all","client":"c1","node":"a","meta":3,"reason":"normal"}"#]);
    let lines = world.ask("a", 1, "join", &group(4));
    expect(
        lines,
        &[r#"{"change":"member_updated","group":"all","client":"c1","node":"a","meta":4,"reason":"normal"}"#],
    );
    let lines = world.ask("a", 1, "leave", &group(4));
    expect(lines, &[r#"{"change":"left","group":"all","client":"c1","node":"a","meta":4,"reason":"normal"}"#]);
    world.ask("a", 1, "join", &json!({"scope": "robots", "group": "all"}));
    world.ask("a", 1, "join", &group(4));
    world.close("a", 1);
    let position = world.ask("a", 9, "changes", &json!({"scope": "devices"}));
    assert_eq!(position, [r#"a answers 9: {"offset":8,"epoch":"64000","changes":[]}"#], "another scope is another log");
}

#[test]
fn so_many_bytes_are_pushed_in_a_second_and_then_only_the_offset() {
    const PUSHED: usize = 128 * 1_024;
    let mut world = watched(16_000_000);
    register(&mut world, 1, PUSHED - 1_000);
    assert_eq!(told(&mut world), [(1, Some(1))]);
    world.pass(100);
    register(&mut world, 2, 1_000);
    assert_eq!(told(&mut world), [(2, Some(1))], "exactly as much as may be");
    register(&mut world, 3, 300);
    assert_eq!(told(&mut world), [(3, None)], "it is too much: the word that there is more");
    register(&mut world, 4, 300);
    assert_eq!(told(&mut world), [], "a hundred milliseconds pass between two such words");
    assert_eq!(world.node("a").next_deadline_ms(), Some(world.now_ms + 100));
    world.now_ms += 99;
    assert_eq!(told(&mut world), []);
    let now_ms = world.now_ms + 1;
    world.now_ms = now_ms;
    world.node("a").tick(now_ms);
    assert_eq!(told(&mut world), [(4, None)]);
    assert_eq!(world.node("a").next_deadline_ms(), None, "all is told");
    assert_eq!(told(&mut world), []);
    // The window began with the first push. A second later there is room again.
    world.now_ms += 799;
    world.node("a").tick(now_ms + 799);
    register(&mut world, 5, 300);
    assert_eq!(told(&mut world), [(5, None)]);
    world.now_ms += 1;
    register(&mut world, 6, 300);
    assert_eq!(told(&mut world), [(6, Some(1))]);
    world.now_ms += 1;
    register(&mut world, 7, PUSHED - 299);
    assert_eq!(told(&mut world), [], "a word that there is more was told a moment ago");
}

#[test]
fn the_log_keeps_so_many_bytes_and_a_watcher_behind_it_lists_again() {
    let mut world = watched(1_000);
    for name in 1..=4 {
        register(&mut world, name, 250);
    }
    let keys = |answer: &Value| {
        let changes = answer["changes"].as_array().into_iter().flatten();
        changes.map(|change| change["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&changes(&mut world, 0)), ["01", "02", "03", "04"], "as much as it may have");
    register(&mut world, 5, 250);
    let answer = changes(&mut world, 0);
    assert_eq!((&answer["list"], &answer["offset"], answer.get("changes")), (&json!(true), &json!(5), None));
    let answer = changes(&mut world, 1);
    assert_eq!(
        (keys(&answer), &answer["offset"], answer.get("more")),
        (vec!["02".into(), "03".into(), "04".into(), "05".into()], &json!(5), None)
    );
    assert_eq!(keys(&changes(&mut world, 5)), [""; 0]);
    assert_eq!(changes(&mut world, 6)["list"], true, "no watcher is so far");
    register(&mut world, 6, 1_001);
    assert_eq!(changes(&mut world, 5)["list"], true, "one that is larger than the log is not kept");
    assert_eq!(changes(&mut world, 6).get("list"), None);
}

#[test]
fn an_answer_has_so_many_changes_and_bytes_and_says_that_there_is_more() {
    let mut world = watched(16_000_000);
    (0..=255).for_each(|name| register(&mut world, name, 204));
    (0..=255).for_each(|name| register(&mut world, name, 205));
    let count = |answer: &Value| answer["changes"].as_array().map(Vec::len);
    let first = changes(&mut world, 0);
    // 65,536 bytes hold 320 changes of 204 and 205 bytes.
    assert_eq!((count(&first), &first["offset"], &first["more"]), (Some(320), &json!(320), &json!(true)));
    let second = changes(&mut world, 320);
    assert_eq!((count(&second), &second["offset"], second.get("more")), (Some(192), &json!(512), None));
    register(&mut world, 1, 40_000);
    register(&mut world, 1, 25_536);
    register(&mut world, 1, 25_537);
    assert_eq!(count(&changes(&mut world, 512)), Some(2), "exactly as many bytes as may be");
    let mut world = watched(16_000_000);
    register(&mut world, 1, 40_000);
    register(&mut world, 1, 25_537);
    assert_eq!(count(&changes(&mut world, 0)), Some(1), "a byte too many");
    register(&mut world, 1, 100_000);
    assert_eq!(count(&changes(&mut world, 2)), Some(1), "one is given, however large it is");
}

#[test]
fn an_answer_costs_what_it_holds() {
    let mut world = watched(16_000_000);
    (0..9).for_each(|name| register(&mut world, name, 8_192));
    world.settle();
    let now_ms = world.now_ms;
    let position = WatchPosition { epoch: "64000".into(), offset: 0 };
    // Eight changes have as many bytes as one reply may have.
    for (position, work) in [(Some(position), 1 + 65_536 / 4_096), (None, 0)] {
        world.node("a").execute(
            &requester(9),
            DirectoryRequest::Changes { scope: ScopeId(0), position },
            Some(9),
            now_ms,
        );
        let Some(DirectoryEffect::Reply(9, Ok(answered))) = world.node("a").effects().next() else {
            panic!("an answer")
        };
        assert_eq!(answered.work(), work);
    }
}

#[test]
fn a_clock_that_goes_back_holds_nothing_back() {
    let mut world = watched(16_000_000);
    register(&mut world, 1, 128 * 1_024);
    assert_eq!(told(&mut world), [(1, Some(1))]);
    world.now_ms -= 10;
    register(&mut world, 2, 300);
    assert_eq!(told(&mut world), [(2, Some(1))], "another second");
    register(&mut world, 3, 200_000);
    assert_eq!(told(&mut world), [(3, None)]);
    world.now_ms -= 10;
    register(&mut world, 4, 200_000);
    assert_eq!(told(&mut world), [(4, None)]);
}

#[test]
fn many_small_changes_are_pushed_like_a_large_one() {
    let mut world = watched(16_000_000);
    for (offset, size) in [(200, 250), (400, 251)] {
        (0..200).for_each(|name| register(&mut world, name, size));
        assert_eq!(told(&mut world), [(offset, Some(200))]);
    }
    register(&mut world, 1, 300);
    assert_eq!(told(&mut world), [(401, Some(1))]);
    // All changes happen at one moment, which has no more room than the rest of the second.
    register(&mut world, 2, 128 * 1_024 - 200 * (250 + 251) - 299);
    assert_eq!(told(&mut world), [(402, None)]);
}
