//! The arguments of a call of the server API. The operations, their fields and their results come from the server's own
//! table.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde_json::{Map, Value as Json};
use touchline_server::{COMMON_ERRORS, FieldKind, OperationDescription, operations};

/// The arguments that say how to reach the server API.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApiArguments {
    /// Address of the server, http:// or https://. Default: the address in the configuration, or http://127.0.0.1:8000
    /// if there is none.
    #[arg(long, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// Key of the server API. Default: the key in --config or in TOUCHLINE_HTTP_API_KEY.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// File with CA certificates (PEM) that are trusted for https://, in addition to those of the system.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Configuration file of the server, with its port and its key. Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Maximum time of a call, from the lookup of the server's name to the end of its answer.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = patience)]
    pub(crate) timeout: Duration,
}

/// Arguments of `api`.
#[derive(Debug, Clone)]
pub(crate) struct CallArguments {
    /// The operation and its arguments. `None` = list all operations.
    pub(crate) call: Option<(&'static OperationDescription, OperationArguments)>,
}

/// The arguments of one operation.
#[derive(Debug, Clone, Args)]
pub(crate) struct OperationArguments {
    /// A field of the request. FIELD=VALUE: for a text field the value is the text itself, for other fields it is JSON.
    /// FIELD:=JSON: the value is JSON for any field.
    #[arg(value_name = "FIELD=VALUE")]
    pub(crate) fields: Vec<String>,
    /// The request as a JSON object. `@FILE` reads it from a file, `-` from standard input. Its fields are sent
    /// unchanged; fields given as FIELD=VALUE override them.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) data: Option<String>,
    /// Print the unchanged answer, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The server to call.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

impl Args for CallArguments {
    fn augment_args(command: Command) -> Command {
        let list = Arg::new("list").long("list").action(ArgAction::SetTrue).help("List the operations");
        let command = command.arg(list).args_conflicts_with_subcommands(true).arg_required_else_help(true);
        let command = command.disable_help_subcommand(true).subcommand_value_name("OPERATION");
        operations().fold(command.subcommand_help_heading("Operations"), |command, operation| {
            command.subcommand(command_of(operation))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        CallArguments::augment_args(command)
    }
}

impl FromArgMatches for CallArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some((name, matches)) = matches.subcommand() else { return Ok(CallArguments { call: None }) };
        let arguments = OperationArguments::from_arg_matches(matches)?;
        // The subcommands are the operations.
        let operation = operations().find(|operation| operation.name == name);
        Ok(CallArguments { call: operation.map(|operation| (operation, arguments)) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = CallArguments::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The command of an operation. Its help comes from the server's table.
fn command_of(operation: &'static OperationDescription) -> Command {
    let fields = ArgValueCompleter::new(move |typed: &OsStr| candidates(operation, typed));
    let command = OperationArguments::augment_args(Command::new(operation.name));
    // The docstring of the type does not describe an operation, so it is removed.
    let command = command.about(operation.summary).long_about(None).after_help(help(operation));
    command.mut_arg("fields", |argument| argument.add(fields))
}

/// The kind of value that a field takes, for help texts.
pub(crate) fn kind_text(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Text => "text",
        FieldKind::Integer => "a whole number",
        FieldKind::Number => "a number",
        FieldKind::Boolean => "true or false",
        FieldKind::List => "a list, as JSON",
        FieldKind::Object => "an object, as JSON",
        FieldKind::Json => "any JSON",
    }
}

fn help(operation: &OperationDescription) -> String {
    let mut text = String::from("Fields:\n");
    let fields = operation.fields();
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, kind) in &fields {
        let _ = writeln!(text, "  {name:<width$}  {}", kind_text(*kind));
    }
    if fields.is_empty() {
        text.push_str("  none\n");
    }
    let result = if operation.result.is_empty() { "empty" } else { operation.result };
    let _ = writeln!(text, "\nResult:\n  {result}\n\nErrors:");
    for error in COMMON_ERRORS.iter().chain(operation.errors) {
        let _ = writeln!(text, "  {:>4}  {}", error.code, error.message);
    }
    let repeated = if operation.is_idempotent { "may be repeated" } else { "must not be repeated without a check" };
    let _ = writeln!(text, "\nRuns on {}; {repeated}.", operation.scope.text());
    let _ = write!(text, "\nExample:\n  {}", example(operation));
    text
}

/// The example of an operation, as a command line.
pub(crate) fn example(operation: &OperationDescription) -> String {
    // A test of the server parses every example, so this does not fail.
    let request: Map<String, Json> = serde_json::from_str(operation.example).unwrap_or_default();
    let fields = operation.fields();
    let mut line = format!("touchline api {}", operation.name);
    for (name, value) in &request {
        let is_text = fields.contains(&(name.as_str(), FieldKind::Text));
        let typed = value.as_str().filter(|_| is_text).map_or_else(|| value.to_string(), str::to_owned);
        // Only text with a NUL cannot be quoted.
        let quoted = shlex::try_quote(&typed).unwrap_or_default();
        let _ = write!(line, " {name}={quoted}");
    }
    line
}

/// The completions of a field for a shell.
fn candidates(operation: &OperationDescription, typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let of_field = |(name, kind): (&'static str, FieldKind)| match typed.split_once('=') {
        None => vec![CompletionCandidate::new(format!("{name}=")).help(Some(kind_text(kind).into()))],
        Some((typed, _)) if typed == name && kind == FieldKind::Boolean => {
            ["true", "false"].map(|value| CompletionCandidate::new(format!("{name}={value}"))).into()
        }
        Some(_) => Vec::new(),
    };
    let all = operation.fields().into_iter().flat_map(of_field);
    all.filter(|candidate| candidate.get_value().to_string_lossy().starts_with(&*typed)).collect()
}

/// Parses a duration such as `30s`, `1h` or `7d`.
///
/// # Errors
/// When the text is not a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    touchline_engine::duration::parse(text).ok_or_else(|| "expected a duration such as 30s, 1h or 7d".to_owned())
}

/// Parses a timeout from 1 ms to 24 h. The bound keeps it addable to any time.
fn patience(text: &str) -> Result<Duration, String> {
    let within = |time: &Duration| (Duration::from_millis(1)..=Duration::from_hours(24)).contains(time);
    duration(text).ok().filter(within).ok_or_else(|| "expected a duration from 1ms to 24h, such as 10s".to_owned())
}
