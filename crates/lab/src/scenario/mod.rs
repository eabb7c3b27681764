//! The scenarios: each controls servers and workers, and adds figures to the results.

mod across;
mod bans;
mod bare;
mod bytes;
mod channels;
mod connections;
mod consumers;
mod deploy;
mod durable;
mod events;
mod fanout;
mod grpc;
mod hooks;
mod http;
mod ladder;
mod noisy;
mod publish;
mod reactions;
mod recovery;
mod registry;
mod slow;
mod syn;
mod waiting;

use std::process::ExitCode;

pub(crate) use waiting::let_threads_wait;

use anyhow::Result;

use crate::arguments::{Fanout, Idle, OpeningOptions, Options, Preset, PublishOptions, Recovery, Scenario};
use crate::report::Results;

/// Runs a scenario `runs` times and prints the results.
pub(crate) fn run(scenario: &Scenario, options: &Options) -> Result<ExitCode> {
    let mut results = Results::default();
    match scenario {
        Scenario::All => everything().iter().try_for_each(|one| repeat(one, options, &mut results))?,
        one => repeat(one, options, &mut results)?,
    }
    if let Scenario::Http(http) = scenario {
        http::draw(http, &results)?;
    }
    if let Scenario::Ladder(ladder) = scenario {
        ladder::draw(ladder, &results)?;
    }
    results.print(options.json)
}

fn everything() -> [Scenario; 8] {
    let fanout = |preset| {
        Scenario::Fanout(Fanout {
            preset,
            connections: None,
            channels: None,
            messages: None,
            rate: None,
            size: 128,
            coalesce: 1,
        })
    };
    let opening = OpeningOptions { connections: None, concurrency: None };
    [
        fanout(Preset::Steady),
        fanout(Preset::Burst),
        fanout(Preset::Sparse),
        Scenario::Connect(opening.clone()),
        Scenario::Storm(opening),
        Scenario::Publish(PublishOptions { connections: 16, seconds: 4 }),
        Scenario::Recovery(Recovery { connections: 5_000, publications: 50 }),
        Scenario::Idle(Idle { connections: 18_000, seconds: 50 }),
    ]
}

fn repeat(scenario: &Scenario, options: &Options, results: &mut Results) -> Result<()> {
    for run in 1..=options.runs {
        if !options.quiet {
            eprintln!("{}, run {run} of {}", name(scenario), options.runs);
        }
        match scenario {
            Scenario::All => {}
            Scenario::Floor(fanout) => fanout::floor(fanout, options, results)?,
            Scenario::Fanout(fanout) => fanout::fanout(fanout, options, results)?,
            Scenario::Idle(idle) => connections::idle(idle, options, results)?,
            Scenario::Connect(opening) => connections::connect(opening, options, results)?,
            Scenario::Bans(bans) => bans::bans(bans, options, results)?,
            Scenario::Storm(opening) => connections::storm(opening, options, results)?,
            Scenario::Publish(publish) => publish::publish(publish, options, results)?,
            Scenario::Grpc(grpc) => grpc::grpc(grpc, options, results)?,
            Scenario::Recovery(recovery) => recovery::recovery(recovery, options, results)?,
            Scenario::Durable(durable) => durable::durable(durable, options, results)?,
            Scenario::Consumers(arguments) => consumers::consumers(arguments, options, results)?,
            Scenario::Reopen(reopen) => durable::reopen(reopen, options, results)?,
            Scenario::Cold(recovery) => recovery::cold(recovery, options, results)?,
            Scenario::Bytes => bytes::bytes(options, results)?,
            Scenario::Noisy(noisy) => noisy::noisy(noisy, options, results)?,
            Scenario::Slow(slow) => slow::slow(slow, options, results)?,
            Scenario::Hooks(arguments) => hooks::hooks(arguments, options, results)?,
            Scenario::Events(arguments) => events::events(arguments, options, results)?,
            Scenario::Reactions(arguments) => reactions::reactions(arguments, options, results)?,
            Scenario::Http(arguments) => http::http(arguments, options, results)?,
            Scenario::Waiting(arguments) => waiting::waiting(arguments, options, results)?,
            Scenario::Deploy(arguments) => deploy::deploy(arguments, options, results)?,
            Scenario::Across(across) => across::across(across, options, results)?,
            Scenario::Channels(channels) => channels::channels(channels, options, results)?,
            Scenario::Ladder(ladder) => ladder::ladder(ladder, options, results)?,
            Scenario::Registry(registry) => registry::registry(registry, options, results)?,
        }
    }
    Ok(())
}

fn name(scenario: &Scenario) -> String {
    match scenario {
        Scenario::Fanout(fanout) => format!("fanout {:?}", fanout.preset).to_lowercase(),
        other => {
            let debug = format!("{other:?}").to_lowercase();
            debug.split(['(', ' ']).next().unwrap_or_default().to_owned()
        }
    }
}
