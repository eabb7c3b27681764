//! A node of a cluster is killed and started again, and all its clients return with recovery.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::exact;
use crate::arguments::{Options, Restart};
use crate::nats::Nats;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{HISTORY, ServerUnderTest};
use crate::workers::Workers;

const SCENARIO: &str = "a node restarts";
const SIZE: usize = 128;
const PATIENCE: Duration = Duration::from_secs(20);
/// The node is linked again.
const READY: Duration = Duration::from_secs(1);

/// One run of two nodes, of which one dies.
pub(super) fn restart(restart: &Restart, options: &Options, results: &mut Results) -> Result<()> {
    let nats = Nats::start()?;
    let mut subjects = ServerUnderTest::start_joined(options, &nats, 2)?;
    let (other, mortal) = (subjects.pop().context("two nodes")?, subjects.pop().context("two nodes")?);
    let mut fleet = Workers::start(&mortal.plan(restart.connections, HISTORY, 1, SIZE, false))?;
    fleet.open_all(500)?;
    let mut publisher = Publisher::new(other.api.clone(), HISTORY, 1, SIZE)?;
    fleet.expect(1, PATIENCE)?;
    publisher.publish(1, 0.0)?;
    let mut wrongs = fleet.delivered()?.wrongs;
    wrongs.add(fleet.close()?);
    let killed = mortal.kill()?;
    publisher.publish(restart.publications, 0.0)?;
    let began = Instant::now();
    let _revived = killed.revive(options)?;
    std::thread::sleep(READY);
    let returned = fleet.open(restart.connections)?;
    let seconds = began.elapsed().as_secs_f64();
    wrongs.add(returned.wrongs);
    wrongs.lost += ((restart.connections * restart.publications) as u64).saturating_sub(returned.recovered);
    fleet.expect(1, PATIENCE)?;
    publisher.publish(1, 0.0)?;
    wrongs.add(fleet.delivered()?.wrongs);
    if let Some(failure) = &returned.first_failure {
        eprintln!("the first failure: {failure}");
    }
    results.add(Figure::new(SCENARIO, "failed to return", "").bound(0.0, 0.0), returned.failed as f64);
    results
        .add(Figure::new(SCENARIO, "all back with what they missed, from its start", "s").bound(10.0, 10.0), seconds);
    results.add(exact(SCENARIO), wrongs.total("server") as f64);
    Ok(())
}
