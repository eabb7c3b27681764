//! Channels with history on three nodes, with a stream that stores and republishes as JetStream does. Messages to nodes
//! are lost, links are cut, loads fail or come late, subscribers come, leave and return. Sometimes the stream is set
//! back to an earlier state with all links cut. A subscriber gets every publication that is not lost once and in order,
//! or is asked to subscribe again. Only a node that knows of a loss can report it. Until a node is linked again that
//! knows the last lost publication, other nodes may recover what they should not.
//!
//! There are 10,000 days by default; `touchline_testkit::seeds` has the variables that change this. The stream is set
//! back on days with odd numbers.

mod stream;
mod world;

use touchline_testkit::seeds::{Trace, compare, seeds, simulate};

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

#[test]
fn a_seed_gives_the_same_events_in_every_process() {
    compare("a_seed_gives_the_same_events_in_every_process", |seed, trace| day(seed, trace).1);
}

#[test]
fn every_subscriber_sees_every_publication_once_or_is_ignorant() {
    let kinds = [("refused subscribes", 50), ("broken subscriptions", 50), ("failed loads", 50), ("new runs", 50)];
    simulate(seeds(10_000), kinds, |seed| day(seed, Trace::Off).0);
}
