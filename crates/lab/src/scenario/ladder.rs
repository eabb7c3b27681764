//! More and more connections: N connections, C of them opened at a time, and the average time in which one event reaches everybody.

use std::time::Duration;

use anyhow::Result;

use crate::arguments::{Ladder, Options};
use crate::fleet::Fleet;
use crate::nats::Nats;
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
    let count = connections.div_ceil(PER_SERVER);
    let nats = if count > 1 { Some(Nats::start()?) } else { None };
    let subjects = match &nats {
        Some(nats) => Subject::start_joined(options, nats, count)?,
        None => vec![Subject::start(options)?],
    };
    let channels = ladder.channels as usize;
    let mut plan = subjects[0].plan(connections, PLAIN, channels, SIZE, false);
    plan.servers = subjects.iter().map(|subject| subject.address).collect();
    let mut fleet = Fleet::start(&plan)?;
    let opened = fleet.open(concurrency)?;
    let mut publisher = Publisher::new(subjects[0].api.clone(), PLAIN, channels, SIZE)?;
    std::thread::sleep(REST);
    let messages = ladder.messages.div_ceil(channels) * channels;
    fleet.expect(messages / channels, PATIENCE + Duration::from_secs_f64(messages as f64 / ladder.rate))?;
    let meters = subjects.iter().map(|subject| Meter::start(subject.pid)).collect::<Result<Vec<_>>>()?;
    publisher.publish(messages, ladder.rate)?;
    let delivered = fleet.delivered()?;
    let us = meters.into_iter().map(Meter::stop).sum::<Result<f64>>()? / delivered.count.max(1) as f64;
    // One name for each step: the table has as many lines as steps are asked for.
    let scenario: &'static str =
        Box::leak(format!("ladder {connections} / {concurrency}, nodes: {count}, channels: {channels}").into_boxed_str());
    results.add(Figure::new(scenario, "failed to open", ""), opened.failed as f64);
    results.add(Figure::new(scenario, "all open after", "s"), opened.seconds);
    results.add(Figure::new(scenario, "p99 to open", "ms"), opened.times.quantile_ms(0.99));
    results.add(Figure::new(scenario, "average time of one event to all", "ms"), delivered.times.mean_ms());
    results.add(Figure::new(scenario, "p99 of one event to all", "ms"), delivered.times.quantile_ms(0.99));
    results.add(Figure::new(scenario, "CPU per delivery", "µs"), us);
    results.add(super::exact(scenario), delivered.wrongs.total("server") as f64);
    Ok(())
}
