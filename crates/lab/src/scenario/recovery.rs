//! Clients that return at once and recover what they missed.

use std::time::Duration;

use anyhow::Result;

use super::exact;
use crate::arguments::{Options, Recovery};
use crate::fleet::Fleet;
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::subject::{HISTORY, Subject};

const SCENARIO: &str = "recovery";
const SIZE: usize = 128;
const PATIENCE: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_secs(1);

/// One run: everybody comes, hears one publication, leaves, misses some, and returns.
pub(super) fn recovery(recovery: &Recovery, options: &Options, results: &mut Results) -> Result<()> {
    let subject = Subject::start(options)?;
    let mut fleet = Fleet::start(&subject.plan(recovery.connections, HISTORY, 1, SIZE, false))?;
    let meter = Meter::start(subject.pid)?;
    fleet.open_all(500)?;
    let opening_us = meter.stop()?;
    let mut publisher = Publisher::new(subject.api.clone(), HISTORY, 1, SIZE)?;
    fleet.expect(1, PATIENCE)?;
    publisher.publish(1, 0.0)?;
    let mut wrongs = fleet.delivered()?.wrongs;
    wrongs.add(fleet.close()?);
    std::thread::sleep(REST);
    publisher.publish(recovery.publications, 0.0)?;
    let meter = Meter::start(subject.pid)?;
    let returned = fleet.open_all(recovery.connections)?;
    let us = meter.stop()?;
    wrongs.add(returned.wrongs);
    let due = (recovery.connections * recovery.publications) as u64;
    wrongs.lost += due.saturating_sub(returned.recovered);
    // They are live again: the next publication is for everybody.
    fleet.expect(1, PATIENCE)?;
    publisher.publish(1, 0.0)?;
    wrongs.add(fleet.delivered()?.wrongs);
    let recovered = returned.recovered.max(1) as f64;
    results.add(Figure::new(SCENARIO, "CPU per recovered publication, connecting included", "µs"), us / recovered);
    results.add(Figure::new(SCENARIO, "CPU per recovered publication", "µs").bound(1.0, 1.0), (us - opening_us) / recovered);
    results.add(Figure::new(SCENARIO, "all back after", "s"), returned.seconds);
    results.add(exact(SCENARIO), wrongs.total("server") as f64);
    Ok(())
}
