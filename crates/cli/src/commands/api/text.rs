//! A result as readable text: one line for each value, with nested values indented below it. Pure.

use std::fmt::Write as _;

use serde_json::Value as Json;

/// Columns by which nested values are indented.
const INDENT: usize = 2;

/// The text of a result.
pub(super) fn of(result: &Json) -> String {
    let mut out = String::new();
    match leaf(result) {
        Some(_) if result.as_object().is_some_and(serde_json::Map::is_empty) => out.push_str("done\n"),
        Some(leaf) => out = format!("{leaf}\n"),
        None => write(result, 0, &mut out),
    }
    out
}

/// Writes the lines of an object or a list.
fn write(value: &Json, indent: usize, out: &mut String) {
    let mut line = |name: String, value: &Json| match leaf(value) {
        Some(leaf) => {
            let _ = writeln!(out, "{:indent$}{name} {leaf}", "");
        }
        None => {
            let _ = writeln!(out, "{:indent$}{name}", "");
            write(value, indent + INDENT, out);
        }
    };
    match value {
        Json::Object(members) => members.iter().for_each(|(name, value)| line(format!("{}:", plain(name)), value)),
        Json::Array(items) => items.iter().for_each(|item| line("-".to_owned(), item)),
        _ => {}
    }
}

/// The text of a value that fits on one line. `None` = the value has nested values.
fn leaf(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(plain(text)),
        Json::Object(members) if !members.is_empty() => None,
        Json::Array(items) if !items.is_empty() => None,
        other => Some(other.to_string()),
    }
}

/// The text unchanged, or in quotes if it could be mistaken for something else or contains control characters. Clients
/// choose texts, and must not control an operator's terminal.
fn plain(text: &str) -> String {
    let is_plain =
        !text.is_empty() && text.trim() == text && !text.contains(char::is_control) && !text.starts_with('"');
    if is_plain { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_a_line_for_each_value() {
        for (result, expected) in [
            (json!({}), "done\n"),
            (json!(7), "7\n"),
            (json!({"offset": 1, "epoch": "aXk3"}), "epoch: aXk3\noffset: 1\n"),
            (json!({"publications": []}), "publications: []\n"),
            (
                json!({"publications": [{"data": {"a": [1]}, "offset": 1}, "x"]}),
                "publications:\n  -\n    data:\n      a:\n        - 1\n    offset: 1\n  - x\n",
            ),
        ] {
            assert_eq!(of(&result), expected);
        }
    }

    #[test]
    fn no_text_of_a_client_reaches_the_terminal_as_a_command() {
        for text in ["\u{1b}[2J", "a\nb", "\u{9b}2J", "", " a", "\"a"] {
            let shown = of(&json!({ "a": text, text: 1 }));
            assert!(shown.lines().count() == 2 && shown.contains('"'), "{shown}");
            assert!(!shown.replace('\n', "").contains(char::is_control), "{shown:?}");
        }
    }
}
