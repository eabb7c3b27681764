//! Clients that all return at once and recover missed publications, from memory or, right after their server was
//! killed, from disk.

use std::time::Duration;

use anyhow::Result;

use crate::arguments::{Options, Recovery};
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{DURABLE, HISTORY, LabDatabase, ServerUnderTest};
use crate::workers::Workers;

const SIZE: usize = 128;
const TIMEOUT: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_secs(1);

/// One run on a server that keeps running.
pub(super) fn recovery(recovery: &Recovery, options: &Options, results: &mut Results) -> Result<()> {
    const CPU: Figure = Figure::new("recovery", "CPU per recovered publication", "µs").bound(1.0, 1.0);
    come_back(CPU, HISTORY, ServerUnderTest::start(options)?, recovery, results, Ok)
}

/// One run on a server with durable channels that is killed and started again.
pub(super) fn cold(recovery: &Recovery, options: &Options, results: &mut Results) -> Result<()> {
    const CPU: Figure =
        Figure::new("recovery right after a restart", "CPU per recovered publication", "µs").bound(3.0, 1.5);
    let server = ServerUnderTest::start_durable(options, &LabDatabase::new(), None)?;
    come_back(CPU, DURABLE, server, recovery, results, |server| server.kill()?.revive(options))
}

/// All clients connect, receive one publication, leave, miss some, and return to the server (or to its successor).
fn come_back(
    cpu: Figure,
    prefix: &str,
    server: ServerUnderTest,
    recovery: &Recovery,
    results: &mut Results,
    become_of: impl FnOnce(ServerUnderTest) -> Result<ServerUnderTest>,
) -> Result<()> {
    let mut workers = Workers::start(&server.plan(recovery.connections, prefix, 1, SIZE, false))?;
    let meter = Meter::start(server.pid)?;
    workers.open_all(500)?;
    let opening_us = meter.stop()?;
    let mut publisher = Publisher::new(server.api.clone(), prefix, 1, SIZE)?;
    workers.expect(1, TIMEOUT)?;
    publisher.publish(1, 0.0)?;
    let mut wrongs = workers.delivered()?.wrongs;
    wrongs.add(workers.close()?);
    std::thread::sleep(REST);
    publisher.publish(recovery.publications, 0.0)?;
    let server = become_of(server)?;
    let meter = Meter::start(server.pid)?;
    let returned = workers.open_all(recovery.connections)?;
    let us = meter.stop()?;
    wrongs.add(returned.wrongs);
    let due = (recovery.connections * recovery.publications) as u64;
    wrongs.lost += due.saturating_sub(returned.recovered);
    // They are live again: the next publication reaches all.
    publisher.reconnect()?;
    workers.expect(1, TIMEOUT)?;
    publisher.publish(1, 0.0)?;
    wrongs.add(workers.delivered()?.wrongs);
    let recovered = returned.recovered.max(1) as f64;
    results.add(Figure::new(cpu.scenario, "CPU per recovered publication, connecting included", "µs"), us / recovered);
    results.add(cpu, (us - opening_us) / recovered);
    results.add(Figure::new(cpu.scenario, "all back after", "s"), returned.seconds);
    results.add(Figure::exact(cpu.scenario), wrongs.total("server") as f64);
    Ok(())
}
