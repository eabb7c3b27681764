//! More and more connections: N connections, C of them opened at a time, and the average time in which one event
//! reaches all subscribers.

use anyhow::Result;

use super::bare::{Bare, REST, timeout};
use super::fanout::threads;
use crate::arguments::{Ladder, Options};
use crate::floor::Sending;
use crate::nats::Nats;
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::workers::Workers;

/// Connections of one server process: below the limit of 20,000 open files.
const PER_SERVER: usize = 18_000;
const SIZE: usize = 128;

/// All steps once.
pub(super) fn ladder(ladder: &Ladder, options: &Options, results: &mut Results) -> Result<()> {
    ladder.steps.iter().try_for_each(|step| climb(*step, ladder, options, results))
}

fn climb(
    (connections, concurrency): (usize, usize),
    ladder: &Ladder,
    options: &Options,
    results: &mut Results,
) -> Result<()> {
    let count = connections.div_ceil(PER_SERVER);
    let channels = ladder.channels as usize;
    let messages = ladder.messages.div_ceil(channels) * channels;
    let sending = Sending {
        prefix: PLAIN.to_owned(),
        channels,
        messages,
        rate: ladder.rate,
        coalesce: 1,
        size: SIZE,
        transport: options.transport,
    };
    let floor =
        Bare { processes: count, threads: threads(options), connections, opened_at_once: 500, sending }.run()?;
    let nats = if count > 1 { Some(Nats::start()?) } else { None };
    let servers = match &nats {
        Some(nats) => ServerUnderTest::start_joined(options, nats, count)?,
        None => vec![ServerUnderTest::start(options)?],
    };
    let mut plan = servers[0].plan(connections, PLAIN, channels, SIZE, false);
    plan.servers = servers.iter().map(|server| server.subscriber_address).collect();
    let mut workers = Workers::start(&plan)?;
    let opened = workers.open(concurrency)?;
    let mut publisher = Publisher::new(servers[0].api.clone(), PLAIN, channels, SIZE)?;
    std::thread::sleep(REST);
    workers.expect(messages / channels, timeout(messages, ladder.rate))?;
    let meters = servers.iter().map(|server| Meter::start(server.pid)).collect::<Result<Vec<_>>>()?;
    publisher.publish(messages, ladder.rate)?;
    let delivered = workers.delivered()?;
    let us = meters.into_iter().map(Meter::stop).sum::<Result<f64>>()? / delivered.count.max(1) as f64;
    // One name for each step: the table has one line for each requested step.
    let scenario: &'static str = Box::leak(
        format!("ladder {connections} / {concurrency}, nodes: {count}, channels: {channels}").into_boxed_str(),
    );
    let figure = |name, unit| Figure::new(scenario, name, unit);
    let (mean_ms, floor_ms) = (delivered.times.mean_ms(), floor.delivered.times.mean_ms());
    results.add(figure("failed to open", "").bound(0.0, 0.0), opened.failed as f64);
    results.add(figure("all open after", "s").bound(8.0, 4.0), opened.seconds);
    results.add(figure("p99 to open", "ms"), opened.times.quantile_ms(0.99));
    let (mean, ratio) = (figure("average time of one event to all", "ms"), figure("the same / floor", "×"));
    let is_one = channels == 1;
    results.add(if is_one { mean } else { mean.bound(10.0, 5.0) }, mean_ms);
    results.add(if is_one { ratio.bound(1.2, 1.0) } else { ratio }, mean_ms / floor_ms);
    results.add(figure("p99 of one event to all", "ms"), delivered.times.quantile_ms(0.99));
    results.add(figure("floor: average time of one event to all", "ms"), floor_ms);
    let cpu = figure("CPU per delivery", "µs");
    results.add(if is_one { cpu.bound(9.0, 7.0) } else { cpu }, us);
    results.add(figure("floor: CPU per delivery", "µs"), floor.us);
    results.add(
        Figure::exact(scenario),
        (delivered.wrongs.total("server") + floor.delivered.wrongs.total("floor")) as f64,
    );
    Ok(())
}
