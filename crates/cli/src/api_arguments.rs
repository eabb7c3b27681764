//! What can be typed for a call of the server API. The operations, and what each of them takes and gives, come from the
//! server's own table.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde_json::{Map, Value as Json};
use touchline_server::{COMMON_ERRORS, FieldKind, OperationDescription, operations};

/// How to reach the server API.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApiArguments {
    /// The server, http:// or https://; else where the configuration says that it listens, which is
    /// http://127.0.0.1:8000 if it says nothing.
    #[arg(long, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// Key of the server API; else the one of --config or TOUCHLINE_HTTP_API_KEY.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Certificates of authorities, PEM, that are trusted for https:// beside those of this system.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Configuration file of the server, with its port and its key; else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How long a call may take in all, from the search for the server to the end of its answer.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = patience)]
    pub(crate) timeout: Duration,
}

/// Arguments of `api`.
#[derive(Debug, Clone)]
pub(crate) struct CallArguments {
    /// The operation and what is typed behind it. None = all operations are to be listed.
    pub(crate) call: Option<(&'static OperationDescription, OperationArguments)>,
}

/// What is typed behind an operation.
#[derive(Debug, Clone, Args)]
pub(crate) struct OperationArguments {
    /// A field of the request. FIELD=VALUE: the value is text as it stands where the field takes text, and JSON
    /// elsewhere. FIELD:=JSON: JSON in any field.
    #[arg(value_name = "FIELD=VALUE")]
    pub(crate) fields: Vec<String>,
    /// The request as a JSON object; `@FILE` reads it from a file, `-` from standard input. Its fields are sent as they
    /// are; those that are typed beside it win.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) data: Option<String>,
    /// Print the answer as it is, JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to.
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
        // Its subcommands are the operations.
        let operation = operations().find(|operation| operation.name == name);
        Ok(CallArguments { call: operation.map(|operation| (operation, arguments)) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = CallArguments::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The command of an operation, whose help says what the server's table says.
fn command_of(operation: &'static OperationDescription) -> Command {
    let fields = ArgValueCompleter::new(move |typed: &OsStr| candidates(operation, typed));
    let command = OperationArguments::augment_args(Command::new(operation.name));
    // The documentation of the type is that of no operation.
    let command = command.about(operation.summary).long_about(None).after_help(help(operation));
    command.mut_arg("fields", |argument| argument.add(fields))
}

/// What a field takes, in a sentence.
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
    let repeated = if operation.is_idempotent { "may be repeated" } else { "is not to be repeated blindly" };
    let _ = writeln!(text, "\nRuns on {}; {repeated}.", operation.scope.text());
    let _ = write!(text, "\nExample:\n  {}", example(operation));
    text
}

/// The example of an operation, as it is typed.
pub(crate) fn example(operation: &OperationDescription) -> String {
    // A test of the server reads every example.
    let request: Map<String, Json> = serde_json::from_str(operation.example).unwrap_or_default();
    let fields = operation.fields();
    let mut line = format!("touchline api {}", operation.name);
    for (name, value) in &request {
        let is_text = fields.contains(&(name.as_str(), FieldKind::Text));
        let typed = value.as_str().filter(|_| is_text).map_or_else(|| value.to_string(), str::to_owned);
        // Only a NUL cannot be quoted.
        let quoted = shlex::try_quote(&typed).unwrap_or_default();
        let _ = write!(line, " {name}={quoted}");
    }
    line
}

/// What a shell may complete a field to.
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

/// Reads a duration.
///
/// # Errors
/// When the text is none.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    touchline_engine::duration::parse(text).ok_or_else(|| "expected a duration such as 30s, 1h or 7d".to_owned())
}

/// A time for something to happen in: above zero, and at most a day, so that it can be added to any time.
fn patience(text: &str) -> Result<Duration, String> {
    let within = |time: &Duration| (Duration::from_millis(1)..=Duration::from_hours(24)).contains(time);
    duration(text).ok().filter(within).ok_or_else(|| "expected a duration from 1ms to 24h, such as 10s".to_owned())
}
