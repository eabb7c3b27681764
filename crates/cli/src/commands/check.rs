//! `touchline check CONFIG`: what is wrong with a configuration.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use touchline_config::{ConfigOutcome, Severity, Sources, process_variables, read_to_serve};
use touchline_server::PROBES;

use crate::arguments::CheckArguments;
use crate::client::api::named;

/// Prints the findings; fails if `touchline serve` would because of the configuration itself. What depends on the
/// moment it does not try.
pub(crate) fn run(arguments: &CheckArguments) -> Result<ExitCode> {
    let file = named(arguments.file.as_deref().or(arguments.config.as_deref()));
    let file = file.context("which configuration? Name the file, or set TOUCHLINE_CONFIG")?;
    let sources = Sources { file: Some(file), variables: process_variables(), ..Sources::default() };
    let reading = read_to_serve(&sources, &PROBES);
    write!(std::io::stdout(), "{}", report(&reading))?;
    Ok(if reading.configuration.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line for each finding, and a last line with the verdict.
pub(crate) fn report(reading: &ConfigOutcome) -> String {
    let mut text = String::new();
    let mut counts = [0; 3];
    for finding in &reading.findings {
        let (index, word) = match finding.severity {
            Severity::Error => (0, "error"),
            Severity::Warning => (1, "warning"),
            Severity::Note => (2, "note"),
        };
        counts[index] += 1;
        let _ = writeln!(text, "{word}: {finding}");
    }
    let verdict = if reading.configuration.is_some() { "ok" } else { "not ok" };
    let _ = writeln!(text, "{verdict}: {} errors, {} warnings, {} notes", counts[0], counts[1], counts[2]);
    text
}
