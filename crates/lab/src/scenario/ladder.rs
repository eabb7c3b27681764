//! More and more connections: N connections, C of them opened at a time, and the average time in which one event reaches everybody.

use std::time::Duration;

use anyhow::Result;

use crate::arguments::{Ladder, Options};
use crate::fleet::Fleet;
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::subject::{PLAIN, Subject};

/// Connections of one server process: below the limit of 20,000 open files.
const PER_SERVER: usize = 18_000;
const SIZE: usize = 128;
const PATIENCE: Duration = Duration::from_secs(30);
const REST: Duration = Duration::from_secs(1);

/// All steps once.
pub(super) fn ladder(ladder: &Ladder, options: &Options, results: &mut Results) -> Result<()> {
    ladder.steps.iter().try_for_each(|step| climb(*step, ladder, options, results))
}

fn climb((connections, concurrency): (usize, usize), ladder: &Ladder, options: &Options, results: &mut Results) -> Result<()> {
    let subjects = (0..connections.div_ceil(PER_SERVER)).map(|_| Subject::start(options)).collect::<Result<Vec<_>>>()?;
    let mut plan = subjects[0].plan(connections, PLAIN, 1, SIZE, false);
    plan.servers = subjects.iter().map(|subject| subject.address).collect();
    let mut fleet = Fleet::start(&plan)?;
    let opened = fleet.open(concurrency)?;
    let publishers = subjects.iter().map(|subject| Publisher::new(subject.api.clone(), PLAIN, 1, SIZE));
    let mut publishers = publishers.collect::<Result<Vec<_>>>()?;
    std::thread::sleep(REST);
    fleet.expect(ladder.messages, PATIENCE + Duration::from_secs_f64(ladder.messages as f64 / ladder.rate))?;
    let meters = subjects.iter().map(|subject| Meter::start(subject.pid)).collect::<Result<Vec<_>>>()?;
    for _ in 0..ladder.messages {
        // The servers are no cluster: each event is posted to one after the other.
        publishers.iter_mut().try_for_each(|publisher| publisher.publish(1, 0.0))?;
        std::thread::sleep(Duration::from_secs_f64(1.0 / ladder.rate));
    }
    let delivered = fleet.delivered()?;
    let us = meters.into_iter().map(Meter::stop).sum::<Result<f64>>()? / delivered.count.max(1) as f64;
    // One name for each step: the table has as many lines as steps are asked for.
    let scenario: &'static str =
        Box::leak(format!("ladder {connections} / {concurrency}, server processes: {}", subjects.len()).into_boxed_str());
    results.add(Figure::new(scenario, "failed to open", ""), opened.failed as f64);
    results.add(Figure::new(scenario, "all open after", "s"), opened.seconds);
    results.add(Figure::new(scenario, "p99 to open", "ms"), opened.times.quantile_ms(0.99));
    results.add(Figure::new(scenario, "average time of one event to all", "ms"), delivered.times.mean_ms());
    results.add(Figure::new(scenario, "p99 of one event to all", "ms"), delivered.times.quantile_ms(0.99));
    results.add(Figure::new(scenario, "CPU per delivery", "µs"), us);
    results.add(super::exact(scenario), delivered.wrongs.total("server") as f64);
    Ok(())
}
