//! Simulators with seeds: a seed decides everything that happens on a simulated day, in every process.
//!
//! - `TOUCHLINE_SIM_SEEDS` sets the number of days.
//! - `TOUCHLINE_SIM_SEED` runs only the day with this seed.
//! - `TOUCHLINE_SIM_EVENTS` prints the events as they happen, for the seed `TOUCHLINE_SIM_SEED` or for the first seeds.

use std::ops::Range;
use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const EVENTS: &str = "TOUCHLINE_SIM_EVENTS";
/// The number of days that are compared.
const COMPARED: u64 = 20;
/// The beginning of an event's line, because a test also prints other lines.
const HEAD: &str = "event: ";

/// A seeded generator: the same seed gives the same day.
#[derive(Debug)]
pub struct SeededRandom(fastrand::Rng);

impl SeededRandom {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        SeededRandom(fastrand::Rng::with_seed(seed))
    }

    /// A number of 64 bits.
    pub fn any(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number from 0 to `end` - 1. It is 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end.max(1))
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The seeds of a run: `default` days, unless a variable sets another number or one seed.
pub fn seeds(default: u64) -> Range<u64> {
    match number("TOUCHLINE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TOUCHLINE_SIM_SEEDS").unwrap_or(default),
    }
}

/// Runs the days of all seeds in as many threads as there are processors. A day returns how often each kind of trouble
/// happened. The function returns the number of days with each kind.
///
/// A simulator in which nothing goes wrong proves nothing: so each kind of trouble has a number, and at least one day
/// of this number must have this kind of trouble. 0 means that the kind may be missing.
pub fn simulate<const KINDS: usize>(
    seeds: Range<u64>,
    kinds: [(&str, u64); KINDS],
    day: impl Fn(u64) -> [u64; KINDS] + Sync + RefUnwindSafe,
) -> [u64; KINDS] {
    let next = AtomicU64::new(seeds.start);
    let days_with = [(); KINDS].map(|()| AtomicU64::new(0));
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let worker = || {
        while let seed = next.fetch_add(1, Relaxed)
            && seed < seeds.end
        {
            let seen = catch_unwind(|| day(seed)).unwrap_or_else(|panic| {
                next.store(seeds.end, Relaxed);
                eprintln!("repeat the day with: TOUCHLINE_SIM_SEED={seed} {} --exact {test}", program());
                resume_unwind(panic)
            });
            for (days, count) in days_with.iter().zip(seen) {
                days.fetch_add(u64::from(count > 0), Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    let count = seeds.end - seeds.start;
    let days_with = days_with.map(AtomicU64::into_inner);
    for (days, (kind, rarity)) in days_with.iter().zip(kinds) {
        assert!(rarity == 0 || count < rarity || days * rarity >= count, "too few days with {kind}: {days} of {count}");
    }
    days_with
}

/// The path of this test program.
fn program() -> String {
    std::env::current_exe().unwrap_or_default().display().to_string()
}

/// Where the events of a day are recorded.
#[derive(Debug)]
pub enum Trace {
    /// Nowhere, so that days that are not compared need not create texts.
    Off,
    /// In memory, to be compared.
    Kept(Vec<String>),
    /// On the standard output, for another process or for a reader.
    Printed,
}

impl Trace {
    /// Records an event. The text is created only if it is recorded.
    pub fn note(&mut self, event: impl FnOnce() -> String) {
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
pub fn compare(test: &str, day: impl Fn(u64, Trace) -> Trace) {
    let seeds = number("TOUCHLINE_SIM_SEED").map_or(0..COMPARED, |seed| seed..seed + 1);
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn every_seed_is_simulated_once() {
        let days = AtomicU64::new(0);
        let days_with = simulate(0..100, [("an odd number", 2), ("nothing", 0)], |seed| {
            days.fetch_add(1, Relaxed);
            [seed % 2, 0]
        });
        assert_eq!((days.into_inner(), days_with), (100, [50, 0]));
    }

    #[test]
    #[should_panic = "too few days with trouble: 1 of 100"]
    fn a_simulator_without_trouble_fails() {
        simulate(0..100, [("trouble", 50)], |seed| [u64::from(seed == 7)]);
    }
}
