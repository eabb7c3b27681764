//! `touchline configschema`: the JSON Schema of a configuration, for editors.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;

/// Prints the JSON Schema.
pub(crate) fn run() -> Result<ExitCode> {
    writeln!(std::io::stdout(), "{:#}", touchline_config::json_schema())?;
    Ok(ExitCode::SUCCESS)
}
