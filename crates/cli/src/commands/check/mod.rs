//! `touchline check FILE`: faults of a configuration, of the servers that it names, and of this machine.

mod advice;
mod machine;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use touchline_config::{ConfigOutcome, Severity, read_to_serve};
use touchline_server::{ConnectionTrial, PROBES, try_connections};

use crate::client::api::sources;
use crate::operator_arguments::CheckArguments;

/// Prints the findings. Fails if `touchline serve` would refuse the configuration, or if something that it names cannot
/// be used (`--connect`).
pub(crate) fn run(arguments: &CheckArguments) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let sources = sources(arguments.file.as_deref().or(arguments.config.as_deref()), &arguments.keys);
    let is_named = arguments.file.is_some() || arguments.config.is_some() || !arguments.keys.is_empty();
    if arguments.machine {
        write!(out, "{}", advice::report(&advice::advise(&machine::Machine::read())))?;
        if !is_named && !arguments.connect {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let reading = read_to_serve(&sources, &PROBES);
    if sources.file.is_none() && reading.written.is_empty() {
        bail!("no configuration: name the file, or set TOUCHLINE_CONFIG, or set a variable for each key");
    }
    write!(out, "{}", report(&reading))?;
    let Some(configuration) = &reading.configuration else { return Ok(ExitCode::FAILURE) };
    if !arguments.connect {
        return Ok(ExitCode::SUCCESS);
    }
    let trials = try_connections(&configuration.settings)?;
    write!(out, "{}", connections(&trials))?;
    Ok(if trials.iter().all(|trial| trial.outcome.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The report of the connection trials: a line for each, and a last line with their number.
fn connections(trials: &[ConnectionTrial]) -> String {
    let mut text = String::new();
    for ConnectionTrial { key, target, outcome } in trials {
        let _ = match outcome {
            Ok(said) => writeln!(text, "ok: {key}: {target}: {}", in_a_line(said)),
            Err(fault) => writeln!(text, "error: {key}: {target}: {}", in_a_line(fault)),
        };
    }
    let failed = trials.iter().filter(|trial| trial.outcome.is_err()).count();
    let _ = writeln!(text, "connections: {} tried, {failed} failed", trials.len());
    text
}

/// The text of another server without control characters, so that it stays on one line of a terminal.
pub(crate) fn in_a_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The report: one line for each finding, and a last line with the verdict.
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
    let [errors, warnings, notes] = [(counts[0], "error"), (counts[1], "warning"), (counts[2], "note")]
        .map(|(count, noun)| format!("{count} {noun}{}", if count == 1 { "" } else { "s" }));
    let _ = writeln!(text, "{verdict}: {errors}, {warnings}, {notes}");
    text
}
