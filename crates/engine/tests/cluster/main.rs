//! Channels with history on three nodes, with a stream that stores and republishes as JetStream does. Messages to nodes
//! are lost, links are cut, loads fail or come late, subscribers come, leave and return. Sometimes the stream is set
//! back to an earlier state with all links cut. A subscriber gets every publication that is not lost once and in order,
//! or is asked to subscribe again. Only a node that knows of a loss can report it. Until a node is linked again that
//! knows the last lost publication, other nodes may recover what they should not.
//!
//! `TOUCHLINE_SIM_SEEDS` sets how many such days there are (10,000 unless set), `TOUCHLINE_SIM_SEED` runs one of them.
//! The stream is set back on days with odd numbers. A seed decides everything; `TOUCHLINE_SIM_EVENTS` shows what
//! happens.

mod random;
mod stream;
#[path = "../../../registry/tests/simulation/trace.rs"]
mod trace;
mod world;

use crate::trace::Trace;
use crate::world::World;

/// Simulates a day. Returns the numbers of refused subscribes, broken subscriptions, failed loads, and runs that began
/// in time.
fn day(seed: u64, trace: Trace) -> ([u64; 4], Trace) {
    let mut world = World::new(seed, trace);
    for _ in 0..200 {
        world.disturb();
        let ms = world.random.below(30);
        world.pass(ms);
    }
    world.calm_down();
    world.note_end();
    let sum = |kind: usize| world.nodes.iter().map(|node| node.wrongs[kind]).sum();
    let seen = [sum(0), sum(1), sum(2), if world.has_forgotten { 0 } else { world.stream.run }];
    (seen, world.trace)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_seed_gives_the_same_events_in_every_process() {
    trace::compare("a_seed_gives_the_same_events_in_every_process", |seed, trace| day(seed, trace).1);
}

#[test]
fn every_subscriber_sees_every_publication_once_or_is_ignorant() {
    if let Some(seed) = number("TOUCHLINE_SIM_SEED") {
        day(seed, Trace::Off);
        return;
    }
    let seeds = number("TOUCHLINE_SIM_SEEDS").unwrap_or(10_000);
    let mut days_with = [0; 4];
    for seed in 0..seeds {
        let seen = std::panic::catch_unwind(|| day(seed, Trace::Off).0).unwrap_or_else(|panic| {
            eprintln!("the day with TOUCHLINE_SIM_SEED={seed} went wrong");
            std::panic::resume_unwind(panic)
        });
        days_with.iter_mut().zip(seen).for_each(|(days, count)| *days += u64::from(count > 0));
    }
    // If all days of a simulator are fine, it proves nothing.
    assert!(days_with.iter().all(|days| days * 50 >= seeds), "too few bad days: {days_with:?} of {seeds}");
}
