//! The lab: load generators, floors and self-checking scenarios. It produces every figure of `docs/performance.md`.
//!
//! The *conductor* (this process) starts a new server and one or more *workers* (processes that hold the subscribers).
//! For comparison it also starts the *floor*: a bare loop that writes the same bytes to as many plain sockets. The cost
//! of a server is the CPU time that the kernel accounts to its process, divided by the work done, so it is valid on a
//! busy machine too. Every subscriber checks that no publication is lost, duplicated or out of order.
//!
//! The lab is neither part of a node nor a library for clients: its clients parse only the fields that a check needs.
//! The program `touchline-lab` runs it.
//!
//! ```no_run
//! use clap::Parser;
//! use touchline_lab::LabArguments;
//!
//! // Publications to many subscribers, and the floor, once.
//! let arguments = LabArguments::parse_from(["touchline-lab", "fanout", "--runs", "1"]);
//! let code = touchline_lab::run(arguments)?;
//! println!("{code:?}");
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! # Where to begin
//!
//! 1. `arguments.rs`: every scenario and what it measures.
//! 2. `scenario/fanout.rs`: one scenario, from the start of a server to the figures.
//! 3. `worker/subscriber.rs`: one subscriber. `ledger.rs`: the publications that it should get and those that it got.
//! 4. `report.rs`: figures, their bounds, and the medians over the runs.
//!
//! # What never happens
//!
//! - The lab never links `touchline-server`: the server under test is another process.
//! - A good figure never hides a lost, duplicated or reordered publication: each one breaks the bound of its scenario.
//! - The exit code is never 0 if a figure breaks its bound.
//! - The lab never prints the best run: it prints the median of all runs.

mod acting;
mod arguments;
mod certificate;
mod chart;
mod deploy_arguments;
mod dial;
mod floor;
mod guard;
mod hook_parts;
mod http_load;
mod joining;
mod ladder_arguments;
mod ledger;
mod machine;
mod nats;
mod numbers;
mod output_file;
mod part;
mod process;
mod publisher;
mod reaction_parts;
mod registry_node;
mod report;
mod rival;
mod roaming;
mod scenario;
mod server_under_test;
mod socket;
mod stat;
mod token;
mod transport;
mod web_arguments;
mod wire;
mod worker;
mod workers;

use std::process::ExitCode;

use anyhow::Result;

pub use arguments::LabArguments;

/// Runs a scenario, or a helper process of a scenario. The exit code says whether every bound was kept.
///
/// # Errors
/// When a server, a worker or a socket of the lab fails, so that nothing could be measured.
pub fn run(arguments: LabArguments) -> Result<ExitCode> {
    match arguments.part {
        arguments::LabCommand::Worker => worker::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::Guard => guard::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::FloorServer => floor::serve().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::HookBackend => hook_parts::serve().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::HookCaller => hook_parts::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::ReactionFloor => reaction_parts::serve_floor().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::ReactionCrowd => reaction_parts::run_crowd().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::RoamingClients => roaming::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::RegistryNode => registry_node::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::WaitingThreads { count, delay } => {
            scenario::let_threads_wait(count, delay).map(|()| ExitCode::SUCCESS)
        }
        arguments::LabCommand::Scenario(scenario) => scenario::run(&scenario, &arguments.options),
    }
}
