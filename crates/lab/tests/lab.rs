//! Small runs of the lab: each scenario runs, nothing is lost, and the figures are there. The tests do not look at the
//! size of the figures.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// One figure of a scenario.
#[derive(Debug)]
struct Figure {
    name: String,
    value: f64,
    /// The bound that the figure must keep, if it has one.
    must: Option<f64>,
}

/// Runs a scenario once.
fn figures(arguments: &[&str]) -> Vec<Figure> {
    let binary = env!("CARGO_BIN_EXE_touchline-lab");
    let output = Command::new(binary)
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

/// The names of figures that count faults.
const WRONGS: &str = "lost, doubled, out of order, closed";

/// The scenarios: arguments, figures that are above zero, and the full names of all figures that count faults.
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
        &["storm", "--connections", "200", "--concurrency", "100"],
        &["all open after"],
        &["failed to open", "closed while others were opened"],
    ),
    (
        &["recovery", "--connections", "50", "--publications", "10"],
        &["CPU per recovered publication, connecting included"],
        &[WRONGS],
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
        &[
            "steps that do not fit this machine",
            "failed to open",
            "closed while others were opened",
            "connections without their match",
            WRONGS,
        ],
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
        // A figure that is new or has a new name must be added to the list.
        let unlisted: Vec<_> = figures
            .iter()
            .filter(|figure| figure.must == Some(0.0) && !faults.contains(&figure.name.as_str()))
            .collect();
        assert!(unlisted.is_empty(), "{arguments:?}: faults that the list does not have: {unlisted:?}");
    }
}

#[test]
fn a_rolling_restart_keeps_its_plan_and_loses_nothing() {
    let words = ["--connections", "300", "--channels", "10", "--rate", "50", "--seconds", "1", "--rest", "0"];
    let figures = figures(&[&["deploy"], &words[..]].concat());
    let of = |is_it: &dyn Fn(&str) -> bool| -> Vec<f64> {
        figures.iter().filter(|figure| is_it(&figure.name)).map(|figure| figure.value).collect()
    };
    let held = of(&|name| name == "clients of the node");
    assert!(held.len() == 3 && held.iter().all(|clients| *clients > 0.0), "{figures:?}");
    assert_eq!(of(&|name| name == "clients told to go (3001)"), held, "each client of a leaving node gets code 3001");
    for part in ["the node's plan: seconds", "all back after", "publications received"] {
        let found = of(&|name| name.ends_with(part));
        assert!(found.len() == 3 && found.iter().all(|value| *value > 0.0), "{part}: {figures:?}");
    }
    let faults: Vec<_> = figures.iter().filter(|figure| figure.must == Some(0.0)).collect();
    assert_eq!(faults.len(), 12, "each restart counts what is lost, doubled, away and cut off: {figures:?}");
    assert!(faults.iter().all(|figure| figure.value == 0.0), "{faults:?}");
}

#[test]
fn whoever_publishes_or_subscribes_does_so_over_tls_too() {
    let cases: [(&[&str], &str); 6] = [
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
    let output = Command::new(env!("CARGO_BIN_EXE_touchline-lab"))
        .args(["storm", "--server", "127.0.0.1:1"])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--pid"), "its process has to be named");
}

#[test]
fn the_floor_of_grpc_is_a_program_that_must_be_named_and_exist() {
    let output = Command::new(env!("CARGO_BIN_EXE_touchline-lab"))
        .args(["grpc", "--runs", "1", "--bare", "/no/such/program"])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"), "{output:?}");
}

/// Starts a run that lasts until it is ended. Returns the run and the id of its server's process.
fn a_long_run() -> (Child, u32) {
    let lab = Command::new(env!("CARGO_BIN_EXE_touchline-lab"))
        .args(["idle", "--connections", "20", "--seconds", "600", "--runs", "1", "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut server = None;
    wait("the server under test", || {
        server = children(lab.id()).into_iter().find(|child| command_line(*child).contains(" serve "));
        server.is_some()
    });
    (lab, server.unwrap_or_default())
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn command_line(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// The child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("there are processes").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |number: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        fields.split(' ').nth(1) == Some(&parent.to_string())
    };
    numbers.filter(is_child).collect()
}

fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

#[test]
fn a_part_that_ends_is_named_and_nothing_counts_as_measured() {
    let (lab, server) = a_long_run();
    signal(server, "KILL");
    let output = lab.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    // The server may still have been starting.
    assert!(
        said.contains("the server under test") && (said.contains("signal 9") || said.contains("SIGKILL")),
        "{said}"
    );
}

#[test]
fn what_the_lab_has_started_ends_with_it_however_it_ends() {
    for name in ["TERM", "KILL", "INT"] {
        let (mut lab, server) = a_long_run();
        let command = command_line(server);
        let file = command.split(' ').find(|word| word.ends_with(".json")).expect("it has a configuration").to_owned();
        let all = children(lab.id());
        signal(lab.id(), name);
        lab.wait().expect("it ends");
        wait(&format!("the end of {all:?}"), || {
            all.iter().all(|child| !command_line(*child).contains("touchline")) && !std::path::Path::new(&file).exists()
        });
    }
}

#[test]
fn numbers_that_nothing_can_be_measured_with_are_refused() {
    for words in [["--rate", "nan"], ["--rate", "1e-300"], ["--messages", "0"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_touchline-lab")).arg("fanout").args(words).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("expected"), "{words:?}: {output:?}");
    }
}
