//! `touchline version`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;

/// The version, the target that the binary was built for, and the allocator of Rust's memory: what
/// `touchline --version` prints behind the name.
pub(crate) const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TOUCHLINE_BUILD"), ")");

/// Prints the version.
pub(crate) fn run() -> Result<ExitCode> {
    writeln!(std::io::stdout(), "touchline {BUILD}")?;
    Ok(ExitCode::SUCCESS)
}
