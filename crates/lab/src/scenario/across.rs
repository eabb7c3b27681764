//! The cost of a publication on nodes that it reaches through NATS, compared with one node alone.

use anyhow::Result;

use super::bare::{REST, timeout};
use crate::arguments::{Across, Options};
use crate::nats::Nats;
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::workers::Workers;

const SCENARIO: &str = "fan-out across nodes";
const NODES: usize = 3;
const SIZE: usize = 128;

/// One run of a node alone and of three nodes; the first of them is published on.
pub(super) fn across(across: &Across, options: &Options, results: &mut Results) -> Result<()> {
    let (alone, wrongs) = run(&[ServerUnderTest::start(options)?], across)?;
    let nats = Nats::start()?;
    let (joined, more_wrongs) = run(&ServerUnderTest::start_joined(options, &nats, NODES)?, across)?;
    let figure = |name, unit| Figure::new(SCENARIO, name, unit);
    results.add(figure("a node alone: CPU per delivery", "µs"), alone[0]);
    results.add(figure("where it is published: CPU per delivery", "µs"), joined[0]);
    let elsewhere = joined[1..].iter().sum::<f64>() / (NODES - 1) as f64;
    results.add(figure("on the other nodes: CPU per delivery", "µs"), elsewhere);
    results.add(figure("on the other nodes / alone", "×").bound(1.05, 1.0), elsewhere / alone[0]);
    results.add(Figure::exact(SCENARIO), (wrongs + more_wrongs) as f64);
    Ok(())
}

/// CPU per delivery on each node, and the number of wrong deliveries.
fn run(servers: &[ServerUnderTest], across: &Across) -> Result<(Vec<f64>, u64)> {
    let mut plan = servers[0].plan(across.connections * servers.len(), PLAIN, 1, SIZE, false);
    plan.servers = servers.iter().map(|server| server.subscriber_address).collect();
    let mut workers = Workers::start(&plan)?;
    workers.open_all(500)?;
    let mut publisher = Publisher::new(servers[0].api.clone(), PLAIN, 1, SIZE)?;
    std::thread::sleep(REST);
    workers.expect(across.messages, timeout(across.messages, across.rate))?;
    let meters = servers.iter().map(|server| Meter::start(server.pid)).collect::<Result<Vec<_>>>()?;
    publisher.publish(across.messages, across.rate)?;
    let delivered = workers.delivered()?;
    let each = delivered.count.max(1) as f64 / servers.len() as f64;
    let costs = meters.into_iter().map(|meter| meter.stop().map(|us| us / each)).collect::<Result<Vec<_>>>()?;
    Ok((costs, delivered.wrongs.total("server")))
}
