//! Connections that come, and connections that only wait.

use std::time::Duration;

use anyhow::Result;

use super::exact;
use crate::arguments::{Idle, Opening, Options};
use crate::process::{Meter, resident_bytes};
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::transport::Transport;
use crate::workers::Workers;

const SIZE: usize = 128;
/// The server has closed what the clients have closed.
const REST: Duration = Duration::from_secs(3);

/// Opens connections with a token each; CPU of the server for each, until its subscription stands.
pub(super) fn connect(opening: &Opening, options: &Options, results: &mut Results) -> Result<()> {
    let connections = opening.connections.unwrap_or(10_000);
    let subject = ServerUnderTest::start(options)?;
    let mut fleet = Workers::start(&subject.plan(connections, PLAIN, 1, SIZE, true))?;
    let meter = Meter::start(subject.pid)?;
    let opened = fleet.open_all(opening.concurrency.unwrap_or(500))?;
    let us = meter.stop()? / connections as f64;
    // The bounds are of connections that need no handshake of TLS.
    let is_bound = options.way != Transport::Tls;
    results.add(
        Figure::new("connect and subscribe with a token", "server CPU per connection", "µs")
            .bound(45.0, 30.0)
            .only_if(is_bound),
        us,
    );
    results.add(
        Figure::new("connect and subscribe with a token", "connections", "/s"),
        connections as f64 / opened.seconds,
    );
    results.add(Figure::new("connect and subscribe with a token", "p50 to open", "ms"), opened.times.quantile_ms(0.5));
    results.add(Figure::new("connect and subscribe with a token", "p99 to open", "ms"), opened.times.quantile_ms(0.99));
    Ok(())
}

/// Many at once on one process.
pub(super) fn storm(opening: &Opening, options: &Options, results: &mut Results) -> Result<()> {
    let connections = opening.connections.unwrap_or(16_000);
    let subject = ServerUnderTest::start(options)?;
    let mut fleet = Workers::start(&subject.plan(connections, PLAIN, 1, SIZE, false))?;
    let opened = fleet.open(opening.concurrency.unwrap_or(2_000))?;
    if let Some(failure) = &opened.first_failure {
        eprintln!("the first failure: {failure}");
    }
    let is_bound = options.way != Transport::Tls;
    results.add(Figure::new("storm", "failed to open", "").bound(0.0, 0.0), opened.failed as f64);
    results.add(Figure::new("storm", "all open after", "s").bound(1.2, 0.8).only_if(is_bound), opened.seconds);
    results.add(
        Figure::new("storm", "p99 to open", "ms").bound(200.0, 200.0).only_if(is_bound),
        opened.times.quantile_ms(0.99),
    );
    results.add(Figure::new("storm", "p50 to open", "ms"), opened.times.quantile_ms(0.5));
    Ok(())
}

/// Memory and CPU of connections that wait, fresh and after all have left and come back.
pub(super) fn idle(idle: &Idle, options: &Options, results: &mut Results) -> Result<()> {
    let subject = ServerUnderTest::start(options)?;
    let count = idle.connections as f64;
    // Threads, their stacks and one publish are there before anybody comes.
    let empty = resident_bytes(subject.pid)?;
    let mut fleet = Workers::start(&subject.plan(idle.connections, PLAIN, 1, SIZE, false))?;
    fleet.open_all(500)?;
    std::thread::sleep(REST);
    let fresh = (resident_bytes(subject.pid)? - empty) / count;
    let meter = Meter::start(subject.pid)?;
    std::thread::sleep(Duration::from_secs(idle.seconds));
    let us = meter.stop()? / count / idle.seconds as f64;
    let mut wrongs = fleet.close()?;
    std::thread::sleep(REST);
    fleet.open_all(500)?;
    std::thread::sleep(REST);
    let returned = (resident_bytes(subject.pid)? - empty) / count;
    let (most_fresh, most_returned) = options.way.idle_bounds();
    results.add(Figure::new("idle", "RSS per connection, fresh", "B").bound(most_fresh, 700.0), fresh);
    results
        .add(Figure::new("idle", "RSS per connection, all closed and back", "B").bound(most_returned, 700.0), returned);
    results.add(Figure::new("idle", "CPU per connection and second", "µs").bound(0.6, 0.3), us);
    wrongs.add(fleet.close()?);
    results.add(exact("idle"), wrongs.total("server") as f64);
    Ok(())
}
