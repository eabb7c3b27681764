//! The measured costs of the short paths, compared with the base.

use std::collections::BTreeMap;

use touchline_house::files::{report, root};

/// The largest allowed ratio of a path's cost to the base.
const ALLOWED: f64 = 1.03;
/// The most bytes by which an idle connection may exceed the base.
const ALLOWED_BYTES: f64 = 64.0;

/// The names of the measured paths.
const PATHS: [&str; 9] = [
    "binary_megabytes",
    "connect_with_subscribe",
    "delivery",
    "idle_connection_bytes",
    "idle_second",
    "memory_at_rest_megabytes",
    "publish",
    "recovered_publication",
    "registration",
];

/// A table that `./x cost` has written.
fn table(text: &str) -> BTreeMap<&str, f64> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once(" = ").expect("a name and a number");
        let value: f64 = value.parse().expect("a number");
        assert!(value.is_finite() && value > 0.0, "{line}: no cost");
        assert!(found.insert(name, value).is_none(), "{name} stands twice");
    }
    found
}

/// The costs that are above the allowed value, and the costs that only one of the two tables has.
fn dearer(base: &str, current: &str) -> Vec<String> {
    let (base, current) = (table(base), table(current));
    let mut broken: Vec<String> =
        current.keys().filter(|name| !base.contains_key(*name)).map(|name| format!("{name}: no base")).collect();
    for (name, then) in base {
        let limit = if name.ends_with("_bytes") { then + ALLOWED_BYTES } else { then * ALLOWED };
        match current.get(name) {
            None => broken.push(format!("{name}: not measured")),
            Some(now) if *now > limit => broken.push(format!("{name}: {now}, and the base {then} allows {limit:.0}")),
            Some(_) => {}
        }
    }
    broken
}

#[test]
fn no_short_path_costs_more_than_the_base_allows() {
    let read = |name: &str| std::fs::read_to_string(root().join("tests/cost").join(name)).expect("./x cost writes it");
    let (base, current) = (read("base.toml"), read("current.toml"));
    assert!(table(&base).into_keys().eq(PATHS), "tests/cost/base.toml has other rows than {PATHS:?}");
    report("dearer than tests/cost/base.toml allows", &dearer(&base, &current));
}

#[test]
fn a_dearer_path_is_told() {
    let base = "# a head\npublish = 1000\nidle_connection_bytes = 400\n";
    assert_eq!(dearer(base, "publish = 1030\nidle_connection_bytes = 464\n"), [""; 0]);
    assert_eq!(dearer(base, "publish = 1031\nidle_connection_bytes = 465\n").len(), 2);
    assert_eq!(dearer(base, "publish = 1\nother = 1\n"), ["other: no base", "idle_connection_bytes: not measured"]);
}
