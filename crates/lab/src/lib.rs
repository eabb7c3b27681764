//! The lab: load generators, floors and self-checking scenarios. Every figure of `docs/performance.md` comes out of it.
//!
//! The *conductor* (this process) starts a fresh server, one or more *workers* (processes that hold the subscribers),
//! and beside them the *floor*: the same bytes to as many plain sockets, written in a bare loop. What a server costs is
//! the time that the kernel accounts to its process, divided by the work done, so it holds on a busy machine too. Every
//! subscriber checks that nothing is lost, doubled or out of order.

mod arguments;
mod certificate;
mod floor;
mod ledger;
mod nats;
mod postgres;
mod process;
mod publisher;
mod registry_node;
mod report;
mod scenario;
mod server_under_test;
mod socket;
mod token;
mod transport;
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
        arguments::LabCommand::FloorServer => floor::serve().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::RegistryNode => registry_node::run().map(|()| ExitCode::SUCCESS),
        arguments::LabCommand::Scenario(scenario) => scenario::run(&scenario, &arguments.options),
    }
}
