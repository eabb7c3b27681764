//! Records what happens on a simulated day, event by event. The same seed must give the same events on every run and in
//! every process. A failing day that cannot be repeated cannot be understood.
//!
//! `TOUCHLINE_SIM_EVENTS` prints the events as they happen, for the seed `TOUCHLINE_SIM_SEED` or for the first seeds.

use std::process::Command;

const EVENTS: &str = "TOUCHLINE_SIM_EVENTS";
/// The number of days that are compared.
const SEEDS: u64 = 20;
/// The beginning of an event's line, because a test also prints other lines.
const HEAD: &str = "event: ";

/// Where events are recorded.
pub(crate) enum Trace {
    /// Nowhere, so that days that are not compared need not create texts.
    Off,
    Kept(Vec<String>),
    Printed,
}

impl Trace {
    pub(crate) fn note(&mut self, event: impl FnOnce() -> String) {
        match self {
            Trace::Off => {}
            Trace::Kept(events) => events.push(one_line(&event())),
            Trace::Printed => println!("{HEAD}{}", one_line(&event())),
        }
    }
}

fn one_line(event: &str) -> String {
    event.replace(['\n', '\r'], " ")
}

/// Runs some days twice here and once in another process, and compares their events one by one. `test` is the name of
/// the calling test, which the other process runs alone.
pub(crate) fn compare(test: &str, day: impl Fn(u64, Trace) -> Trace) {
    let seeds = match std::env::var("TOUCHLINE_SIM_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS,
    };
    if std::env::var_os(EVENTS).is_some() {
        for seed in seeds {
            println!("\n{HEAD}the day with TOUCHLINE_SIM_SEED={seed} begins");
            day(seed, Trace::Printed);
        }
        return;
    }
    let run = || -> Vec<String> {
        let mut all = Vec::new();
        for seed in seeds.clone() {
            all.push(format!("the day with TOUCHLINE_SIM_SEED={seed} begins"));
            let Trace::Kept(events) = day(seed, Trace::Kept(Vec::new())) else { panic!("a day keeps its trace") };
            assert!(events.len() > 5, "a day without events proves nothing: {events:?}");
            all.extend(events);
        }
        all
    };
    let first = run();
    if let Some(difference) = first_difference(&first, &run()) {
        panic!("the second run in this process differs: {difference}");
    }
    let program = std::env::current_exe().expect("a test knows its program");
    let arguments = [test, "--exact", "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(arguments).env(EVENTS, "1").output().expect("the test runs again");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "the run in another process failed: {printed}");
    let other: Vec<String> = printed.lines().filter_map(|line| line.strip_prefix(HEAD)).map(str::to_owned).collect();
    if let Some(difference) = first_difference(&first, &other) {
        panic!("the run in another process differs: {difference}");
    }
}

/// The first event that differs between two runs, with its day.
fn first_difference(one: &[String], other: &[String]) -> Option<String> {
    let at = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at))?;
    let day = one[..at.min(one.len())].iter().rev().find(|event| event.contains("TOUCHLINE_SIM_SEED="));
    let shown = |events: &[String]| events.get(at).cloned().unwrap_or_else(|| "nothing more".to_owned());
    let day = day.map_or("before the first day", String::as_str);
    Some(format!("{day}; event {at} is\n  {}\nand\n  {}", shown(one), shown(other)))
}

#[test]
fn the_first_event_that_differs_is_named() {
    let events = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let one = events(&["the day with TOUCHLINE_SIM_SEED=3 begins", "a", "b"]);
    assert_eq!(first_difference(&one, &one), None);
    let told = |other: &[&str]| first_difference(&one, &events(other)).unwrap_or_default();
    let day = "the day with TOUCHLINE_SIM_SEED=3 begins";
    assert_eq!(told(&[day, "x", "b"]), format!("{day}; event 1 is\n  a\nand\n  x"));
    assert_eq!(told(&[day, "a"]), format!("{day}; event 2 is\n  b\nand\n  nothing more"));
    assert_eq!(told(&[day, "a", "b", "c"]), format!("{day}; event 3 is\n  nothing more\nand\n  c"));
}
