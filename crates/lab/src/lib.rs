//! The lab: load generators, floors and self-checking scenarios. Every figure of `docs/performance.md` comes out of it.
//!
//! The *conductor* (this process) starts a fresh server, one or more *workers* (processes that hold the subscribers),
//! and beside them the *floor*: the same bytes to as many plain sockets, written in a bare loop. What a server costs is
//! the time that the kernel accounts to its process, divided by the work done, so it holds on a busy machine too. Every
//! subscriber checks that nothing is lost, doubled or out of order.
//!
//! It is not part of a node, and not a library for clients: its clients read as few bytes as a check needs.
//! `touchline lab` runs it; the binary passes its arguments here.
//!
//! ```no_run
//! use clap::Parser;
//! use touchline_lab::LabArguments;
//!
//! #[derive(Parser)]
//! struct Arguments {
//!     #[command(flatten)]
//!     lab: LabArguments,
//! }
//!
//! // Publications to many subscribers, beside the floor, once.
//! let arguments = Arguments::parse_from(["lab", "fanout", "--runs", "1"]);
//! let code = touchline_lab::run(arguments.lab)?;
//! println!("{code:?}");
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! # Where to begin
//!
//! 1. `arguments.rs`: every scenario, with what it measures.
//! 2. `scenario/fanout.rs`: one of them, from the start of a server to the figures.
//! 3. `worker/subscriber.rs`: one subscriber; `ledger.rs`: what it was due and what it got.
//! 4. `report.rs`: figures, their bounds, and the medians over the runs.
//!
//! # What never happens
//!
//! - Nothing here links `touchline-server`: the server under test is another process.
//! - No lost, doubled or disordered publication is hidden by a good figure: it breaks the bound of its scenario.
//! - No figure with a bound that is not kept ends with exit code 0.
//! - No figure is that of the best run: the median of all runs is printed.

mod acting;
mod arguments;
mod certificate;
mod chart;
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
mod postgres;
mod process;
mod publisher;
mod reaction_parts;
mod registry_node;
mod report;
mod rival;
mod scenario;
mod server_under_test;
mod socket;
mod speaker;
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

/// Runs what the arguments say: a scenario, or a part that a scenario has started. The exit code says whether every
/// bound was kept.
///
/// # Errors
/// When a server, a worker or a socket of the lab's own fails, so that nothing could be measured.
pub fn run(arguments: LabArguments) -> Result<ExitCode> {
    match arguments.part {
        arguments::LabCommand::Worker => worker::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::Guard => guard::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::FloorServer => floor::serve().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::HookBackend => hook_parts::serve().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::HookCaller => hook_parts::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::ReactionFloor => reaction_parts::serve_floor().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::ReactionCrowd => reaction_parts::run_crowd().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::RegistryNode => registry_node::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::WaitingThreads { count, delay } => {
            scenario::let_threads_wait(count, delay).map(|()| ExitCode::SUCCESS)
        }
        arguments::LabCommand::Scenario(scenario) => scenario::run(&scenario, &arguments.options),
    }
}
