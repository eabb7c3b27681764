//! `touchline version`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;

/// Prints the version.
pub(crate) fn run() -> Result<ExitCode> {
    writeln!(std::io::stdout(), "touchline {}", touchline_server::VERSION)?;
    Ok(ExitCode::SUCCESS)
}
