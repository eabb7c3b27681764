//! The lab in the small: every scenario runs, nothing is lost, and the figures are there. Their size is not looked at
//! here.

use std::process::Command;

use serde_json::Value;

/// What a scenario has counted or measured.
#[derive(Debug)]
struct Figure {
    name: String,
    value: f64,
    /// The bound that it must keep, if it has one.
    must: Option<f64>,
}

/// Runs a scenario once.
fn figures(arguments: &[&str]) -> Vec<Figure> {
    let binary = env!("CARGO_BIN_EXE_touchline");
    let output = Command::new(binary)
        .arg("lab")
        .args(arguments)
        .args(["--runs", "1", "--json", "--quiet"])
        .output()
        .expect("the binary runs");
    let lines: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    let figure = |line: &Value| Figure {
        name: line["name"].as_str().expect("a name").to_owned(),
        value: line["median"].as_f64().expect("a number"),
        must: line["must"].as_f64(),
    };
    lines.as_array().expect("a list").iter().map(figure).collect()
}

/// What was lost, doubled, out of order or closed.
const WRONGS: &str = "lost, doubled, out of order, closed";

/// Scenarios: their arguments, figures that are above zero, and all figures that count faults, by their whole names.
const CASES: &[(&[&str], &[&str], &[&str])] = &[
    (
        &["floor", "--preset", "burst", "--connections", "50", "--messages", "20", "--coalesce", "5"],
        &["CPU per delivery"],
        &[],
    ),
    (
        &["fanout", "--preset", "burst", "--connections", "100", "--messages", "20"],
        &["CPU per delivery / floor", "mean latency", "events a read"],
        &[WRONGS],
    ),
    (
        &[
            "fanout",
            "--preset",
            "sparse",
            "--connections",
            "100",
            "--channels",
            "10",
            "--messages",
            "100",
            "--rate",
            "200",
        ],
        &["CPU per delivery", "floor of as many sockets"],
        &[WRONGS],
    ),
    (&["idle", "--connections", "200", "--seconds", "1"], &["RSS per connection, fresh"], &[WRONGS]),
    (&["connect", "--connections", "200", "--concurrency", "20"], &["server CPU per connection", "p99 to open"], &[]),
    (
        &["bans", "--connections", "100", "--rounds", "1", "--tokens", "12000", "--users", "500"],
        &["server CPU per connection without bans", "with bans / without"],
        &[WRONGS],
    ),
    (
        &[
            "who",
            "--nodes",
            "2",
            "--connections",
            "300",
            "--pages",
            "5",
            "--pages-per-second",
            "20",
            "--rounds",
            "1",
            "--messages",
            "20",
            "--rate",
            "20",
        ],
        &["page by users, median", "page by scan, p99", "fan-out beside pages / without"],
        &[WRONGS, "pages by users that lack some"],
    ),
    (&["storm", "--connections", "200", "--concurrency", "100"], &["all open after"], &["failed to open"]),
    (
        &["recovery", "--connections", "50", "--publications", "10"],
        &["CPU per recovered publication, connecting included"],
        &[WRONGS],
    ),
    (
        &["statistics", "--connections", "50", "--rows", "1000", "--seconds", "1"],
        &["rows written", "CPU per delivery without rows"],
        &["rows dropped", WRONGS],
    ),
    (
        &["hooks", "--quick"],
        &[
            "slow hook: CPU per delivery, actions charged",
            "slow hook: calls under way at once",
            "connect hook: CPU per connection / with",
            "publish hook: CPU per publication / without",
            "return, cache_scope = channel: calls",
            "return, no cache: all back",
            "outage: slowest delivery / ",
            "outage: actions that were refused",
        ],
        &["slow hook: actions refused", "failed to return", WRONGS],
    ),
    (
        &["slow", "--concurrency", "5", "--one-in", "5", "--seconds", "1"],
        &["fast ones beside them", "slow ones", "fast ones remain"],
        &[],
    ),
    (
        &["ladder", "--steps", "50,100:20", "--messages", "2", "--rate", "10", "--lasting", "1", "--matches", "4"],
        &[
            "average time of one event to all",
            "CPU of a connection / floor",
            "CPU per delivery / floor",
            "memory of the servers",
            "events received",
        ],
        &["steps that do not fit this machine", "failed to open", "connections without their match", WRONGS],
    ),
    (
        &["walkie", "--listeners", "20", "--seconds", "1"],
        &[
            "the server's part of mouth to ear: p99.9",
            "floor: p99.9",
            "p99 / floor",
            "server CPU per delivered frame",
            "frames sent",
            "frames received",
        ],
        &[WRONGS],
    ),
    (&["publish", "--connections", "4", "--seconds", "1"], &["publishes"], &[]),
];

#[test]
fn every_scenario_measures_and_loses_nothing() {
    for (arguments, measured, faults) in CASES {
        let figures = figures(arguments);
        for part in *measured {
            let found = figures.iter().find(|figure| figure.name.contains(part));
            assert!(found.is_some_and(|figure| figure.value > 0.0), "{arguments:?}: {part}: {found:?}");
        }
        for name in *faults {
            let found: Vec<_> = figures.iter().filter(|figure| figure.name == *name).collect();
            assert!(!found.is_empty(), "{arguments:?}: nothing counts `{name}`: {figures:?}");
            assert!(
                found.iter().all(|figure| figure.value == 0.0 && figure.must == Some(0.0)),
                "{arguments:?}: {found:?}"
            );
        }
        // One that is new, or has another name, has to be written into the list.
        let unlisted: Vec<_> = figures
            .iter()
            .filter(|figure| figure.must == Some(0.0) && !faults.contains(&figure.name.as_str()))
            .collect();
        assert!(unlisted.is_empty(), "{arguments:?}: faults that the list does not have: {unlisted:?}");
    }
}

#[test]
fn whoever_publishes_or_subscribes_does_so_over_tls_too() {
    let cases: [(&[&str], &str); 7] = [
        (
            &["floor", "--preset", "burst", "--connections", "50", "--messages", "20", "--coalesce", "5"],
            "CPU per delivery",
        ),
        (
            &["fanout", "--preset", "burst", "--connections", "100", "--messages", "20", "--shards", "2"],
            "CPU per delivery / floor",
        ),
        (&["connect", "--connections", "200", "--concurrency", "20"], "server CPU per connection"),
        (&["publish", "--connections", "4", "--seconds", "1"], "publishes"),
        (
            &["recovery", "--connections", "50", "--publications", "10"],
            "CPU per recovered publication, connecting included",
        ),
        (&["noisy", "--connections", "50", "--seconds", "1"], "its commands that were taken"),
        (&["statistics", "--connections", "50", "--rows", "1000", "--seconds", "1"], "rows written"),
    ];
    for (arguments, name) in cases {
        let figures = figures(&[arguments, &["--way", "tls"]].concat());
        let found = figures.iter().find(|figure| figure.name.contains(name));
        assert!(found.is_some_and(|figure| figure.value > 0.0), "{arguments:?}: {name}: {found:?}");
        let wrong: Vec<_> = figures.iter().filter(|figure| figure.must == Some(0.0) && figure.value != 0.0).collect();
        assert!(wrong.is_empty(), "{arguments:?}: {wrong:?}");
    }
}

#[test]
fn a_server_of_another_kind_can_be_measured_by_its_address() {
    let output = Command::new(env!("CARGO_BIN_EXE_touchline"))
        .args(["lab", "storm", "--server", "127.0.0.1:1"])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--pid"), "its process has to be named");
}

#[test]
fn the_floor_of_grpc_is_a_program_that_must_be_named_and_exist() {
    let output = Command::new(env!("CARGO_BIN_EXE_touchline"))
        .args(["lab", "grpc", "--runs", "1", "--bare", "/no/such/program"])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"), "{output:?}");
}
