//! Simulated days of whole clusters: two to five nodes with the link as it is, and the channels, names, bans and
//! reports of the engine upon it, over a simulated NATS with JetStream and a simulated database. Links freeze, are cut
//! in one direction, are slow, lose messages or are refused. JetStream stands still, fills up, loses replies, lags,
//! republishes twice, loses a tail or everything. The database freezes, fills up, loses replies and notices. Nodes die
//! and others come.
//!
//! What must hold: an acknowledged publication is there once, at its position, for every subscriber, or the caller
//! knows that the result is unknown. Nothing waits longer than its limit. Every queue is bounded. A node notices in
//! time that NATS is blocked. When all is quiet, all nodes agree and all subscribers have everything.
//!
//! `touchline_testkit::seeds` has the variables that change the number of days. JetStream loses something acknowledged
//! on days with odd numbers.

mod fan;
mod faults;
pub(crate) mod nats;
mod node;
mod quiet;
mod reports;
mod store;
mod streams;
pub(crate) mod time;
mod truth;
mod world;

use touchline_testkit::seeds::{Trace, compare, seeds, simulate};

use self::nats::LinkFault;
use self::world::{ClusterDay, KINDS};

/// The number of days of a usual run, and with TOUCHLINE_LONG.
const DAYS: u64 = 150;
const LONG_DAYS: u64 = 100_000;

/// Runs a day. All tasks that can run do so before the day continues.
fn in_runtime<T>(day: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().event_interval(u32::MAX).build();
    runtime.expect("a runtime").block_on(day)
}

/// Simulates a day. Returns how often each kind of trouble happened.
fn day(seed: u64, trace: Trace) -> ([u64; KINDS.len()], Trace) {
    in_runtime(async {
        let mut world = ClusterDay::new(seed, trace);
        world.pass(3_000).await;
        for _ in 0..300 {
            world.disturb();
            let ms = world.random.below(120);
            world.pass(ms).await;
        }
        world.calm_down().await;
        (world.seen, world.trace)
    })
}

#[test]
fn a_seed_gives_the_same_day_in_every_process() {
    compare("tests::simulation::a_seed_gives_the_same_day_in_every_process", |seed, trace| day(seed, trace).1);
}

#[test]
fn a_cluster_keeps_its_promises_under_faults() {
    let is_long = std::env::var_os("TOUCHLINE_LONG").is_some();
    simulate(seeds(if is_long { LONG_DAYS } else { DAYS }), KINDS, |seed| day(seed, Trace::Off).0);
}

#[test]
fn a_stream_without_a_leader_holds_up_no_other() {
    in_runtime(async {
        let mut day = ClusterDay::new(2, Trace::Off);
        day.pass(3_000).await;
        day.nats.state().streams.unled = Some("spare");
        let refused = LinkFault { is_refused: true, ..LinkFault::default() };
        day.nats.state().set_fault(0, refused);
        day.pass(2_000).await;
        day.nats.state().set_fault(0, LinkFault::default());
        day.pass(3_000).await;
        day.publish(0, &"kept:one".into(), 10);
        day.pass(500).await;
        assert_eq!(day.stored.len(), 1, "a node whose link is back stores publications");
    });
}
