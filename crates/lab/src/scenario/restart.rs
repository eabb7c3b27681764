//! A node of a cluster is killed and started again, and all its clients return with recovery.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::arguments::{Options, Restart};
use crate::nats::Nats;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{HISTORY, ServerUnderTest};
use crate::workers::Workers;

const SCENARIO: &str = "a node restarts";
const SIZE: usize = 128;
const TIMEOUT: Duration = Duration::from_secs(20);
/// The time in which the node is connected to NATS again.
const READY: Duration = Duration::from_secs(1);

/// One run of two nodes, of which one dies.
pub(super) fn restart(restart: &Restart, options: &Options, results: &mut Results) -> Result<()> {
    let nats = Nats::start()?;
    let mut servers = ServerUnderTest::start_joined(options, &nats, 2)?;
    let (other, mortal) = (servers.pop().context("two nodes")?, servers.pop().context("two nodes")?);
    let mut workers = Workers::start(&mortal.plan(restart.connections, HISTORY, 1, SIZE, false))?;
    workers.open_all(500)?;
    let mut publisher = Publisher::new(other.api.clone(), HISTORY, 1, SIZE)?;
    workers.expect(1, TIMEOUT)?;
    publisher.publish(1, 0.0)?;
    let mut wrongs = workers.delivered()?.wrongs;
    wrongs.add(workers.close()?);
    let killed = mortal.kill()?;
    publisher.publish(restart.publications, 0.0)?;
    let began = Instant::now();
    let _revived = killed.revive(options)?;
    std::thread::sleep(READY);
    let returned = workers.open(restart.connections)?;
    let seconds = began.elapsed().as_secs_f64();
    wrongs.add(returned.wrongs);
    wrongs.lost += ((restart.connections * restart.publications) as u64).saturating_sub(returned.recovered);
    workers.expect(1, TIMEOUT)?;
    publisher.publish(1, 0.0)?;
    wrongs.add(workers.delivered()?.wrongs);
    if let Some(failure) = &returned.first_failure {
        eprintln!("the first failure: {failure}");
    }
    results.add(Figure::new(SCENARIO, "failed to return", "").bound(0.0, 0.0), returned.failed as f64);
    results
        .add(Figure::new(SCENARIO, "all back with what they missed, from its start", "s").bound(10.0, 10.0), seconds);
    results.add(Figure::exact(SCENARIO), wrongs.total("server") as f64);
    Ok(())
}
