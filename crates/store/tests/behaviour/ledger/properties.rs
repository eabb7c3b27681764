//! Random scripts of joins, leaves, kills, restarts, freezes and cuts. They run on the model alone, and on the model
//! and a database at once.

use super::desk::Desk;
use super::model::Model;
use super::real::Real;
use super::world::World;
use crate::stage::on_each;

const NODES: &[&str] = &["a", "b", "c"];

fn run(desks: Vec<&mut dyn Desk>, nodes: &'static [&'static str], seed: u64, steps: usize) {
    let mut world = World::new(desks, nodes, seed);
    (0..steps).for_each(|_| world.step());
    world.quiet();
    world.check();
}

/// Prints the seed of a script that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

#[test]
fn the_rules_hold_whatever_happens() {
    for seed in 0..400 {
        let _seed = Seed(seed);
        for (has_leases, nodes) in [(true, NODES), (false, &NODES[..1])] {
            run(vec![&mut Model::new(has_leases)], nodes, seed, 300);
        }
    }
}

#[test]
fn the_databases_do_what_the_rules_say() {
    // This test does not simulate a power failure.
    on_each("ledger", |url| {
        let mut real = Real::open(url);
        real.lane_max = 1_000_000;
        let nodes = if real.has_leases() { NODES } else { &NODES[..1] };
        for seed in 0..super::seeds(25) {
            let _seed = Seed(seed);
            real.empty();
            let mut model = Model::new(real.has_leases());
            run(vec![&mut model, &mut real], nodes, seed, 200);
        }
    });
}
