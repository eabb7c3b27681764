//! `touchline trace`: the frames of one client or user, or the publications into a channel.

use std::io::{Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde_json::{Value as Json, json};
use touchline_engine::events::rfc3339;

use super::overview::plain;
use crate::client::api::ApiClient;
use crate::operator_arguments::TraceArguments;

/// Time between two requests to the server.
const STEP: Duration = Duration::from_millis(250);

/// Prints frames as they arrive, until the trace ends.
pub(crate) fn run(arguments: &TraceArguments) -> Result<ExitCode> {
    let api = ApiClient::from_arguments(&arguments.api)?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let question = json!({
        "id": format!("command-{}-{}", std::process::id(), began.as_nanos()),
        "client": arguments.client,
        "user": arguments.user,
        "channel": arguments.channel,
        "seconds": arguments.seconds,
        "payloads": arguments.payloads,
    });
    loop {
        let seen = api.call("trace", &question).context("failed to ask for the trace")?;
        let mut out = stdout().lock();
        for frame in seen["frames"].as_array().map(Vec::as_slice).unwrap_or_default() {
            if arguments.json { writeln!(out, "{frame}")? } else { writeln!(out, "{}", line(frame))? }
        }
        if let Some(left_out) = seen["left_out"].as_u64().filter(|left_out| *left_out > 0) {
            eprintln!("{left_out} frames were left out: too many frames arrived at once");
        }
        for node in seen["missing_nodes"].as_array().map(Vec::as_slice).unwrap_or_default() {
            eprintln!("node {} does not answer", plain(node));
        }
        out.flush()?;
        if seen["ended"] == true {
            return Ok(ExitCode::SUCCESS);
        }
        drop(out);
        std::thread::sleep(STEP);
    }
}

/// A frame as a line of text. Control characters in texts of a client are replaced.
fn line(frame: &Json) -> String {
    let at = rfc3339(frame["at_ms"].as_u64().unwrap_or_default());
    let direction = match frame["direction"].as_str() {
        Some("in") => "→",
        Some("out") => "←",
        _ => "·",
    };
    let of = |name: &str| plain(&frame[name]);
    let names = ["node", "client", "user", "kind", "channel"].map(of);
    let mut words: Vec<String> = vec![at, direction.to_owned()];
    words.extend(names.into_iter().filter(|word| !word.is_empty()));
    words.push(format!("{} B", frame["size"]));
    if frame["error"].is_u64() {
        words.push(format!("error {}", frame["error"]));
    }
    words.extend(Some(of("payload")).filter(|payload| !payload.is_empty()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_line_that_obeys_nobody() {
        let frame = json!({
            "at_ms": 1_700_000_000_000_u64, "node": "one", "direction": "out", "kind": "publication",
            "channel": "a\u{1b}[2J", "size": 7, "payload": "{\"a\":1}",
        });
        assert_eq!(line(&frame), "2023-11-14T22:13:20.000Z ← one publication a?[2J 7 B {\"a\":1}");
        assert_eq!(
            line(&json!({"kind": "reply", "size": 2, "error": 103})),
            "1970-01-01T00:00:00.000Z · reply 2 B error 103"
        );
    }
}
