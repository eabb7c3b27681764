//! `touchline version`: prints the version, the target and the allocator.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use crate::built::BUILT;

/// Prints the version.
pub(crate) fn run() -> Result<ExitCode> {
    writeln!(std::io::stdout(), "touchline {BUILT}")?;
    Ok(ExitCode::SUCCESS)
}
