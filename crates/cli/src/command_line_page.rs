//! Generates `docs/reference/command-line.md` from the arguments, and checks that the file in the repository is up to
//! date.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};

use crate::arguments::Arguments;

/// The variable that makes the test write the page instead of checking it.
const WRITE_DOCS: &str = "TOUCHLINE_WRITE_DOCS";
const PAGE: &str = "docs/reference/command-line.md";
/// The text of the page before the commands.
const PROSE: &str = "\
# Command line

*Generated from `crates/cli/src/arguments.rs`, `crates/cli/src/api_arguments.rs` and `crates/lab/src/arguments.rs`.*
*Edit those, then run `TOUCHLINE_WRITE_DOCS=1 cargo test --workspace up_to_date`.*

`touchline` without a command does the same as `touchline serve --dev`.
If `--config`, a configuration key among the options or the variable `TOUCHLINE_CONFIG` names a configuration, \
`touchline` does the same as `touchline serve`.
Every command has `--help` (`-h`), and `touchline --version` (`-V`) prints the version.
`serve` also accepts every key of [configuration.md](configuration.md) as an option, \
such as `--http_server.internal_port 9000`; a key without a value is set to `true`.
A command that fails prints the reason on standard error and exits with 1; a command with wrong arguments exits with 2.

## How a command reaches a server

`publish`, `api`, `match` and `watch` are clients: \
they take the port and the key of the server from a configuration, or a URL from the command line.
With `https://` or `wss://` they use TLS.
They trust the CA certificates of the system, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`, \
and in addition those in the PEM file of `--ca`.
If the server in the configuration uses TLS, they connect to its address.
If the server's certificate does not contain that address, give a URL with a host name that the certificate contains.
A call of the server API ends after `--timeout` at the latest, and no error message contains the key.
`watch` reconnects by itself, with growing pauses, \
if the server cannot be reached, is not ready or ends the connection for a while.
`watch` stops with an error if reconnecting would not help:

- The port does not use HTTP (or TLS, for `wss://`).
- The answer is 401, 403 or 404.
- The code of the disconnect says that the client must not reconnect.

```sh
touchline publish news:live '{\"headline\": \"Kick-off\"}' --api https://live.example.com --key \"$KEY\"
touchline watch news:live --url wss://localhost:8443/connection/websocket --ca authority.pem
```

## Any operation of the server API

`touchline api` knows every [operation](server-api.md) of the server.
`touchline api --list` lists them, \
and `touchline api history --help` shows the fields of an operation, its result, its errors and an example.

```sh
touchline api publish channel=news:live data='{\"headline\": \"Kick-off\"}'
touchline api history channel=news:live limit=10 --json
touchline api disconnect user=42
touchline api broadcast --data @request.json channels='[\"news\", \"sport\"]'
```

| argument | what is sent |
|---|---|
| `FIELD=VALUE` for a text field | the value as text: `user=42` is the text `\"42\"` |
| `FIELD=VALUE` for another field | the value, which must be JSON of the right kind: \
`limit=10` is a whole number, `data='\"text\"'` is text |
| `FIELD:=JSON` | the JSON, for any field: the server decides whether it accepts it |
| `--data JSON` | the unchanged object, also with fields that this version does not know; \
`@FILE` reads the object from a file, and `-` from standard input |

Without `--json` the result is printed with one line for each value, \
and texts with terminal control characters are quoted.
With `--json` the whole answer is printed unchanged, also an error.
An answer of more than 64 MB is an error.

| exit code | meaning | output |
|---|---|---|
| 0 | the server has answered with a result | standard output |
| 1 | the server has answered with an error, does not answer, or refuses the key | \
standard error: number, message, name and remedy |
| 2 | the operation or a field does not exist, or a value has the wrong kind: nothing was sent | \
standard error, with the nearest name |

With the script of `touchline completions` a shell completes operations and fields, too.
The shell calls the program with the variable `TOUCHLINE_COMPLETE`, so the completions match the installed version.
`--key` is visible in the list of processes; \
a configuration, `TOUCHLINE_HTTP_API_KEY` and `TOUCHLINE_HTTP_API_KEY_FILE` are not.

## The lab

[`touchline-lab`](#touchline-lab) is a program of its own, which packages install next to `touchline`.
It starts the `touchline` of its folder, or the program of `--touchline`, and measures it.

## A server for tests

`touchline serve --ephemeral` starts a server for the tests of a program, which keeps everything in memory: \
[guides/testing.md](../guides/testing.md) has examples.
";

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let (path, expected) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE), page());
    if std::env::var_os(WRITE_DOCS).is_some() {
        return std::fs::write(&path, expected).expect("the page is writable");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    let line = 1 + found.lines().zip(expected.lines()).take_while(|(found, expected)| found == expected).count();
    assert!(
        found == expected,
        "{PAGE} is stale from line {line} on: run `{WRITE_DOCS}=1 cargo test --locked -p touchline up_to_date`, \
         look at the page and commit it"
    );
}

fn page() -> String {
    let command = Arguments::command();
    let mut text = format!("{PROSE}\n## Commands\n\n| command | what it does |\n|---|---|\n");
    for part in shown(&command) {
        let about = part.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "| [`touchline {0}`](#touchline-{0}) | {about} |", part.get_name());
    }
    shown(&command).for_each(|part| section(&mut text, part, "touchline ", 2));
    section(&mut text, &touchline_lab::LabArguments::command(), "", 2);
    text
}

/// The visible subcommands of a command.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|part| !part.is_hide_set())
}

/// Writes a heading, the description of a command, its arguments, and its subcommands.
fn section(text: &mut String, command: &Command, parent: &str, level: usize) {
    let name = format!("{parent}{}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(text, "\n{} `{name}`\n\n{}", "#".repeat(level), sentences(&about));
    let arguments: Vec<&Arg> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
    if !arguments.is_empty() {
        text.push_str("\n| argument | default | meaning |\n|---|---|---|\n");
        arguments.iter().for_each(|argument| row(text, argument));
    }
    if command.get_name() == "api" {
        // The page of the server API lists the operations.
        return operation_section(text, command, &name, level + 1);
    }
    shown(command).for_each(|part| section(text, part, &format!("{name} "), level + 1));
}

/// Writes the arguments that every operation has. The fields of an operation are in its own help.
fn operation_section(text: &mut String, command: &Command, parent: &str, level: usize) {
    let operation = shown(command).next().expect("there are operations");
    let _ = writeln!(text, "\n{} `{parent} OPERATION`\n\nCall one operation.", "#".repeat(level));
    text.push_str("\n| argument | default | meaning |\n|---|---|---|\n");
    operation.get_arguments().for_each(|argument| row(text, argument));
}

fn row(text: &mut String, argument: &Arg) {
    let takes_value = argument.get_action().takes_values();
    let names = argument.get_value_names().unwrap_or_default().join(" ");
    let mut written = match argument.get_long() {
        Some(long) if takes_value => format!("`--{long} {names}`"),
        Some(long) => format!("`--{long}`"),
        None => format!("`{names}`"),
    };
    if let Some(short) = argument.get_short() {
        let _ = write!(written, ", `-{short}`");
    }
    if argument.is_required_set() {
        written.push_str(", required");
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    let has_default = takes_value && !argument.is_hide_default_value_set();
    let default = if has_default { defaults.join(" ") } else { String::new() };
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = help.replace('\n', " ");
    let values = argument.get_possible_values();
    if takes_value && !values.is_empty() {
        let told: Vec<String> = values
            .iter()
            .map(|value| match value.get_help() {
                Some(help) => format!("`{}`: {}", value.get_name(), help.to_string().trim_end_matches('.')),
                None => format!("`{}`", value.get_name()),
            })
            .collect();
        meaning = format!("{}. Values: {}", meaning.trim_end_matches('.'), told.join("; "));
    }
    let _ = writeln!(text, "| {written} | {default} | {} |", meaning.replace('|', "\\|").trim());
}

/// The text with one sentence per line.
fn sentences(text: &str) -> String {
    let mut lines = String::new();
    for paragraph in text.split("\n\n") {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        for (index, word) in words.iter().enumerate() {
            lines.push_str(word);
            let ends = word.ends_with('.');
            let begins = words.get(index + 1).is_some_and(|next| next.starts_with(|c: char| !c.is_lowercase()));
            lines.push(if ends && begins { '\n' } else { ' ' });
        }
        lines = format!("{}\n\n", lines.trim_end());
    }
    let lines = lines.trim_end();
    // clap removes the last full stop.
    if lines.ends_with('.') { lines.to_owned() } else { format!("{lines}.") }
}
