//! The lab in the small: every scenario runs, nothing is lost, and the figures are there. Their size is not looked at here.

use std::process::Command;

use serde_json::Value;

/// Runs a scenario once and gives its figures by name.
fn figures(arguments: &[&str]) -> Vec<(String, f64)> {
    let binary = env!("CARGO_BIN_EXE_touchline");
    let output =
        Command::new(binary).arg("lab").args(arguments).args(["--runs", "1", "--json", "--quiet"]).output().expect("the binary runs");
    let lines: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    let lines = lines.as_array().expect("a list").iter();
    lines.map(|line| (line["name"].as_str().expect("a name").to_owned(), line["median"].as_f64().expect("a number"))).collect()
}

fn figure(figures: &[(String, f64)], name: &str) -> f64 {
    figures.iter().find(|(known, _)| known.contains(name)).unwrap_or_else(|| panic!("no {name} in {figures:?}")).1
}

#[test]
fn every_scenario_measures_and_loses_nothing() {
    let cases: [(&[&str], &[&str]); 10] = [
        (&["floor", "--preset", "burst", "--connections", "50", "--messages", "20", "--coalesce", "5"], &["CPU per delivery"]),
        (
            &["fanout", "--preset", "burst", "--connections", "100", "--messages", "20"],
            &["CPU per delivery / floor", "mean latency", "events a read"],
        ),
        (
            &["fanout", "--preset", "sparse", "--connections", "100", "--channels", "10", "--messages", "100", "--rate", "200"],
            &["CPU per delivery", "floor of as many sockets"],
        ),
        (&["idle", "--connections", "200", "--seconds", "1"], &["RSS per connection, fresh"]),
        (&["connect", "--connections", "200", "--concurrency", "20"], &["server CPU per connection", "p99 to open"]),
        (&["storm", "--connections", "200", "--concurrency", "100"], &["all open after"]),
        (&["recovery", "--connections", "50", "--publications", "10"], &["CPU per recovered publication, connecting included"]),
        (&["statistics", "--connections", "50", "--rows", "1000", "--seconds", "1"], &["rows written", "CPU per delivery without rows"]),
        (&["slow", "--concurrency", "5", "--one-in", "5", "--seconds", "1"], &["fast ones beside them", "slow ones", "fast ones remain"]),
        (&["ladder", "--steps", "50:5,100:20", "--messages", "2", "--rate", "10"], &["average time of one event to all"]),
    ];
    for (arguments, expected) in cases {
        let figures = figures(arguments);
        for name in expected {
            assert!(figure(&figures, name) > 0.0, "{arguments:?}: {name} is nothing");
        }
        for (name, value) in figures.iter().filter(|(name, _)| name.starts_with("lost") || name.starts_with("failed")) {
            assert!(*value == 0.0, "{arguments:?}: {name}: {value}");
        }
    }
    assert!(figure(&figures(&["publish", "--connections", "4", "--seconds", "1"]), "publishes") > 0.0);
}

#[test]
fn whoever_publishes_or_subscribes_does_so_over_tls_too() {
    let cases: [(&[&str], &str); 7] = [
        (&["floor", "--preset", "burst", "--connections", "50", "--messages", "20", "--coalesce", "5"], "CPU per delivery"),
        (&["fanout", "--preset", "burst", "--connections", "100", "--messages", "20", "--shards", "2"], "CPU per delivery / floor"),
        (&["connect", "--connections", "200", "--concurrency", "20"], "server CPU per connection"),
        (&["publish", "--connections", "4", "--seconds", "1"], "publishes"),
        (&["recovery", "--connections", "50", "--publications", "10"], "CPU per recovered publication, connecting included"),
        (&["noisy", "--connections", "50", "--seconds", "1"], "its commands that were taken"),
        (&["statistics", "--connections", "50", "--rows", "1000", "--seconds", "1"], "rows written"),
    ];
    for (arguments, name) in cases {
        let figures = figures(&[arguments, &["--way", "tls"]].concat());
        assert!(figure(&figures, name) > 0.0, "{arguments:?}: {name} is nothing");
        for (name, value) in figures.iter().filter(|(name, _)| name.starts_with("lost")) {
            assert!(*value == 0.0, "{arguments:?}: {name}: {value}");
        }
    }
}

#[test]
fn a_server_of_another_kind_can_be_measured_by_its_address() {
    let output = Command::new(env!("CARGO_BIN_EXE_touchline")).args(["lab", "storm", "--server", "127.0.0.1:1"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--pid"), "its process has to be named");
}
