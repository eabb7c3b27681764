//! `touchline report` and `touchline top`: the problems and the load of the nodes.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value as Json, json};

use crate::client::api::ApiClient;
use crate::operator_arguments::{ReportArguments, TopArguments};

/// Clears a terminal and moves the cursor to its first line (ECMA-48).
const CLEAR: &str = "\x1b[2J\x1b[H";
/// Time between two readings of `top`.
const STEP: Duration = Duration::from_secs(1);

/// Prints a report. The exit code: 0 = no problems, 1 = something needs attention, 2 = something is bad, 3 = no node
/// could be asked.
pub(crate) fn report(arguments: &ReportArguments) -> Result<ExitCode> {
    let overview = match ApiClient::from_arguments(&arguments.api).and_then(|api| ask(&api)) {
        Ok(overview) => overview,
        Err(error) => {
            eprintln!("touchline: {error:#}");
            return Ok(ExitCode::from(3));
        }
    };
    if arguments.json {
        writeln!(stdout(), "{overview}")?;
    } else {
        write!(stdout(), "{}", text(&overview, arguments.ascii))?;
    }
    Ok(match overview["verdict"]["severity"].as_str() {
        Some("ok") => ExitCode::SUCCESS,
        Some("look") => ExitCode::from(1),
        _ => ExitCode::from(2),
    })
}

/// Prints the report every second.
pub(crate) fn top(arguments: &TopArguments) -> Result<ExitCode> {
    let api = ApiClient::from_arguments(&arguments.api)?;
    let is_screen = stdout().is_terminal() && !arguments.once;
    let mut left = if arguments.once { 1 } else { arguments.count.unwrap_or(u64::MAX) };
    while left > 0 {
        let overview = ask(&api)?;
        let clear = if is_screen { CLEAR } else { "" };
        if arguments.json {
            writeln!(stdout(), "{overview}")?;
        } else {
            write!(stdout(), "{clear}{}", text(&overview, arguments.ascii))?;
        }
        stdout().flush()?;
        left -= 1;
        if left > 0 {
            std::thread::sleep(STEP);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(api: &ApiClient) -> Result<Json> {
    api.call("overview", &json!({})).context("failed to ask for the overview")
}

/// The overview as lines of text.
fn text(overview: &Json, is_ascii: bool) -> String {
    let mut out = String::new();
    let list = |name: &str| overview[name].as_array().cloned().unwrap_or_default();
    let (problems, nodes, missing) = (list("problems"), list("nodes"), list("missing_nodes"));
    let all = nodes.len() + missing.len();
    let connections = overview["verdict"]["connections"].as_u64().unwrap_or_default();
    let _ = writeln!(
        out,
        "Touchline · {} of {all} node{} · {connections} connection{}",
        nodes.len(),
        if all == 1 { "" } else { "s" },
        if connections == 1 { "" } else { "s" }
    );
    if problems.is_empty() {
        let _ = writeln!(out, "{} no problems", mark("ok", is_ascii));
    }
    for problem in &problems {
        let of = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        let node = if of("node").is_empty() { String::new() } else { format!("{}: ", of("node")) };
        let _ = writeln!(out, "{} {node}{} {}", mark(&of("severity"), is_ascii), of("words"), of("remedy"));
    }
    let head = ["NODE", "STATE", "CONNS", "DELIV/S", "PUB/S", "CPU %", "MEMORY", "WAITING", "P99 MS", "VERSION·CONFIG"];
    let rows = nodes.iter().map(row).collect::<Vec<_>>();
    write_table(&mut out, &head.map(str::to_owned), &rows);
    let bad: Vec<String> = list("dependencies")
        .iter()
        .filter(|one| one["state"] != "ok")
        .map(|one| format!("{} of {}", plain(&one["name"]), plain(&one["node"])))
        .collect();
    if !bad.is_empty() {
        let _ = writeln!(out, "FAILING  {}", bad.join(" · "));
    }
    for change in list("activity").iter().take(5) {
        let of = |name: &str| plain(&change[name]);
        let _ = writeln!(out, "CHANGED  {} {} {} {} {}", of("node"), of("who"), of("what"), of("target"), of("result"));
    }
    out
}

/// The mark before a line of this severity.
fn mark(severity: &str, is_ascii: bool) -> &'static str {
    match (severity, is_ascii) {
        ("ok", false) => "●",
        ("look", false) => "▲",
        (_, false) => "■",
        ("ok", true) => "*",
        ("look", true) => "!",
        (_, true) => "X",
    }
}

fn row(node: &Json) -> [String; 10] {
    let number = |name: &str| node[name].as_f64().unwrap_or_default();
    [
        plain(&node["name"]),
        plain(&node["state"]),
        plain(&node["connections"]),
        format!("{:.0}", number("deliveries_s")),
        format!("{:.0}", number("publications_s")),
        format!("{:.0}", number("cpu")),
        bytes(number("memory")),
        bytes(number("queued_bytes")),
        node["delivery_p99_ms"].as_f64().map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1}")),
        format!("{}·{}", plain(&node["version"]), node["config_generation"]),
    ]
}

/// The value as text without control characters, so that a terminal only shows it.
pub(super) fn plain(value: &Json) -> String {
    let text = match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut left = bytes;
    let unit = units.iter().find(|unit| {
        let fits = left < 1_024.0 || **unit == "TiB";
        if !fits {
            left /= 1_024.0;
        }
        fits
    });
    format!("{left:.0} {}", unit.unwrap_or(&"TiB"))
}

fn write_table(out: &mut String, head: &[String; 10], rows: &[[String; 10]]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in std::iter::once(head).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(index, (cell, width))| if index < 2 { format!("{cell:width$}") } else { format!("{cell:>width$}") })
            .collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_before_figures_and_names_obey_nobody() {
        let node = json!({
            "name": "one\u{1b}[2J", "state": "bad", "connections": 12, "deliveries_s": 3.4, "publications_s": 1.0,
            "cpu": 71.2, "memory": 1_073_741_824u64, "queued_bytes": 5_000, "version": "0.1.0", "config_generation": 2,
        });
        let problem = json!({"severity": "bad", "node": "one", "words": "It fails.", "remedy": "Mend it."});
        let overview = json!({
            "verdict": {"severity": "bad", "connections": 12}, "problems": [problem], "nodes": [node],
            "missing_nodes": ["two"], "dependencies": [{"name": "nats", "node": "one", "state": "bad"}], "activity": [],
        });
        let lines: Vec<String> = text(&overview, true).lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "Touchline · 1 of 2 nodes · 12 connections");
        assert_eq!(lines[1], "X one: It fails. Mend it.");
        assert!(lines[3].starts_with("one?[2J  bad") && lines[3].contains("1 GiB") && lines[3].contains("5 KiB"));
        assert_eq!(lines[4], "FAILING  nats of one");
    }
}
