//! `touchline print-config`: prints each key that is set, its value, and where the value comes from.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value as Json, json};
use touchline_config::keys::{KEYS, ValueKind};
use touchline_config::{ConfigOutcome, Severity, redact};
use touchline_server::PROBES;

use crate::client::api::sources;
use crate::operator_arguments::PrintConfigArguments;

/// The source of a key that is not set.
const DEFAULT: &str = "default";

/// Prints the keys. Fails if the configuration has errors, which are printed on standard error.
pub(crate) fn run(arguments: &PrintConfigArguments) -> Result<ExitCode> {
    let file = arguments.file.as_deref().or(arguments.config.as_deref());
    let reading = touchline_config::read(&sources(file, &arguments.keys), &PROBES);
    let rows = rows(&reading, arguments.all);
    write!(std::io::stdout(), "{}", if arguments.json { as_json(&rows) } else { as_text(&rows) })?;
    for finding in reading.findings.iter().filter(|finding| finding.severity == Severity::Error) {
        eprintln!("touchline: {finding}");
    }
    Ok(if reading.configuration.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A row of the output: a key, its value as JSON or as a word, and the source of the value.
struct PrintedRow {
    path: String,
    value: String,
    from: String,
}

/// The keys that are set, and with `has_defaults` also those that are not.
fn rows(reading: &ConfigOutcome, has_defaults: bool) -> Vec<PrintedRow> {
    let written = reading.written.iter().map(|key| PrintedRow {
        path: key.path.clone(),
        value: redact(key.shown()).into_owned(),
        from: key.location.to_string(),
    });
    let is_written = |path: &str| reading.written.iter().any(|key| key.path == path);
    let absent = KEYS.iter().filter(|key| has_defaults && !is_written(&key.path)).map(|key| PrintedRow {
        path: key.path.clone(),
        value: match key.kind {
            ValueKind::Boolean | ValueKind::Integer(..) => key.default.clone(),
            _ if key.default.starts_with(['[', '{']) => key.default.clone(),
            _ => Json::from(key.default.as_str()).to_string(),
        },
        from: DEFAULT.to_owned(),
    });
    let mut rows: Vec<PrintedRow> = written.chain(absent).collect();
    rows.sort_by(|one, other| one.path.cmp(&other.path));
    rows
}

/// One line for each key, with the source of the value as a comment.
fn as_text(rows: &[PrintedRow]) -> String {
    let mut text = String::new();
    for PrintedRow { path, value, from } in rows {
        let _ = writeln!(text, "{path} = {value}  # {from}");
    }
    text
}

fn as_json(rows: &[PrintedRow]) -> String {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Json::from(text));
    let keys: Map<String, Json> =
        rows.iter().map(|row| (row.path.clone(), json!({ "value": value(&row.value), "from": row.from }))).collect();
    format!("{}\n", serde_json::to_string_pretty(&keys).unwrap_or_default())
}
