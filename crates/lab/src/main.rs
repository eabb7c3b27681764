//! The `touchline-lab` binary: it parses the arguments and runs one scenario.

use std::process::ExitCode;

use clap::Parser as _;
use touchline_lab::LabArguments;

fn main() -> ExitCode {
    let arguments = LabArguments::parse();
    // Each connection needs a file. Servers and workers that the lab starts inherit the limit.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    touchline_lab::run(arguments).unwrap_or_else(|error| {
        eprintln!("touchline-lab: {error:#}");
        ExitCode::FAILURE
    })
}
