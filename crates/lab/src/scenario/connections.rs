//! Opening connections, and idle connections.

use std::time::Duration;

use anyhow::Result;

use crate::arguments::{Idle, OpeningOptions, Options};
use crate::process::{Meter, resident_bytes, rest};
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::transport::ClientTransport;
use crate::workers::Workers;

const SIZE: usize = 128;
/// The time in which the server closes the connections that the clients have closed.
const REST: Duration = Duration::from_secs(3);

/// Opens connections with a token each: the server's CPU for each, until its subscription is established.
pub(super) fn connect(opening: &OpeningOptions, options: &Options, results: &mut Results) -> Result<()> {
    let connections = opening.connections.unwrap_or(10_000);
    let server = ServerUnderTest::start(options)?;
    let mut workers = Workers::start(&server.plan(connections, PLAIN, 1, SIZE, true))?;
    let meter = Meter::start(server.pid)?;
    let opened = workers.open_all(opening.concurrency.unwrap_or(500))?;
    let us = meter.stop()? / connections as f64;
    // The bounds are of connections that need no handshake of TLS.
    let is_bound = options.transport != ClientTransport::Tls;
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

/// Opens many connections at once on one process.
pub(super) fn storm(opening: &OpeningOptions, options: &Options, results: &mut Results) -> Result<()> {
    let connections = opening.connections.unwrap_or(16_000);
    let server = ServerUnderTest::start(options)?;
    let mut workers = Workers::start(&server.plan(connections, PLAIN, 1, SIZE, false))?;
    let opened = workers.open(opening.concurrency.unwrap_or(2_000))?;
    if let Some(failure) = &opened.first_failure {
        eprintln!("the first failure: {failure}");
    }
    let is_bound = options.transport != ClientTransport::Tls;
    results.add(Figure::new("storm", "failed to open", "").bound(0.0, 0.0), opened.failed as f64);
    let closed = Figure::new("storm", "closed while others were opened", "").bound(0.0, 0.0);
    results.add(closed, opened.wrongs.closed as f64);
    results.add(Figure::new("storm", "all open after", "s").bound(1.2, 0.8).only_if(is_bound), opened.seconds);
    results.add(
        Figure::new("storm", "p99 to open", "ms").bound(200.0, 200.0).only_if(is_bound),
        opened.times.quantile_ms(0.99),
    );
    results.add(Figure::new("storm", "p50 to open", "ms"), opened.times.quantile_ms(0.5));
    Ok(())
}

/// Memory and CPU of idle connections: fresh, and after all were closed and opened again.
pub(super) fn idle(idle: &Idle, options: &Options, results: &mut Results) -> Result<()> {
    let server = ServerUnderTest::start(options)?;
    let count = idle.connections as f64;
    // Threads, their stacks and one publish are there before the first client connects.
    let empty = resident_bytes(server.pid)?;
    let mut workers = Workers::start(&server.plan(idle.connections, PLAIN, 1, SIZE, false))?;
    workers.open_all(500)?;
    std::thread::sleep(REST);
    let fresh = (resident_bytes(server.pid)? - empty) / count;
    let meter = Meter::start(server.pid)?;
    rest(Duration::from_secs(idle.seconds))?;
    let us = meter.stop()? / count / idle.seconds as f64;
    let mut wrongs = workers.close()?;
    std::thread::sleep(REST);
    workers.open_all(500)?;
    std::thread::sleep(REST);
    let returned = (resident_bytes(server.pid)? - empty) / count;
    let (most_fresh, most_returned) = options.transport.idle_bounds();
    results.add(Figure::new("idle", "RSS per connection, fresh", "B").bound(most_fresh, 700.0), fresh);
    results
        .add(Figure::new("idle", "RSS per connection, all closed and back", "B").bound(most_returned, 700.0), returned);
    results.add(Figure::new("idle", "CPU per connection and second", "µs").bound(0.6, 0.3), us);
    wrongs.add(workers.close()?);
    results.add(Figure::exact("idle"), wrongs.total("server") as f64);
    Ok(())
}
