//! Clients that return at once and recover what they missed, from memory or, right after their server was killed, from
//! disk.

use std::time::Duration;

use anyhow::Result;

use super::exact;
use crate::arguments::{Options, Recovery};
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{DURABLE, Database, HISTORY, ServerUnderTest};
use crate::workers::Workers;

const SIZE: usize = 128;
const PATIENCE: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_secs(1);

/// One run on a server that goes on.
pub(super) fn recovery(recovery: &Recovery, options: &Options, results: &mut Results) -> Result<()> {
    const CPU: Figure = Figure::new("recovery", "CPU per recovered publication", "µs").bound(1.0, 1.0);
    come_back(CPU, HISTORY, ServerUnderTest::start(options)?, recovery, results, Ok)
}

/// One run on a server with durable channels that dies, and is started again.
pub(super) fn cold(recovery: &Recovery, options: &Options, results: &mut Results) -> Result<()> {
    const CPU: Figure =
        Figure::new("recovery right after a restart", "CPU per recovered publication", "µs").bound(3.0, 1.5);
    let subject = ServerUnderTest::start_durable(options, &Database::new(), None)?;
    come_back(CPU, DURABLE, subject, recovery, results, |subject| subject.kill()?.revive(options))
}

/// Everybody comes, hears one publication, leaves, misses some, and returns to what has become of the server.
fn come_back(
    cpu: Figure,
    prefix: &str,
    subject: ServerUnderTest,
    recovery: &Recovery,
    results: &mut Results,
    become_of: impl FnOnce(ServerUnderTest) -> Result<ServerUnderTest>,
) -> Result<()> {
    let mut fleet = Workers::start(&subject.plan(recovery.connections, prefix, 1, SIZE, false))?;
    let meter = Meter::start(subject.pid)?;
    fleet.open_all(500)?;
    let opening_us = meter.stop()?;
    let mut publisher = Publisher::new(subject.api.clone(), prefix, 1, SIZE)?;
    fleet.expect(1, PATIENCE)?;
    publisher.publish(1, 0.0)?;
    let mut wrongs = fleet.delivered()?.wrongs;
    wrongs.add(fleet.close()?);
    std::thread::sleep(REST);
    publisher.publish(recovery.publications, 0.0)?;
    let subject = become_of(subject)?;
    let meter = Meter::start(subject.pid)?;
    let returned = fleet.open_all(recovery.connections)?;
    let us = meter.stop()?;
    wrongs.add(returned.wrongs);
    let due = (recovery.connections * recovery.publications) as u64;
    wrongs.lost += due.saturating_sub(returned.recovered);
    // They are live again: the next publication is for everybody.
    publisher.reconnect()?;
    fleet.expect(1, PATIENCE)?;
    publisher.publish(1, 0.0)?;
    wrongs.add(fleet.delivered()?.wrongs);
    let recovered = returned.recovered.max(1) as f64;
    results.add(Figure::new(cpu.scenario, "CPU per recovered publication, connecting included", "µs"), us / recovered);
    results.add(cpu, (us - opening_us) / recovered);
    results.add(Figure::new(cpu.scenario, "all back after", "s"), returned.seconds);
    results.add(exact(cpu.scenario), wrongs.total("server") as f64);
    Ok(())
}
