//! The arguments of the command line. `touchline` without a command is `touchline serve --dev`; with a configuration it
//! is `touchline serve`, as users of Centrifugo expect.

use std::borrow::Cow;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use touchline_config::keys::{self, KEYS, ValueKind};
use touchline_config::redact;

use crate::api_arguments::{ApiArguments, CallArguments, duration};
use crate::operator_arguments::{
    CheckArguments, HealthArguments, PrintConfigArguments, ReportArguments, TopArguments, TraceArguments,
};
use crate::{built::BUILT, mistakes::with_tip};

/// Touchline, a live-event server: a reporter posts an event, and every fan sees it within milliseconds.
///
/// Without a command it serves the demo on this machine, as `touchline serve --dev` does.
#[derive(Debug, Parser)]
#[command(name = "touchline", version = BUILT, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// The command to run. `None` = serve.
    #[command(subcommand)]
    command: Option<CliCommand>,
    /// The options of `serve`, if there is no command.
    #[command(flatten)]
    serve: ServeArguments,
}

/// Separates configuration keys from the other words, such as `--http_server.internal_port 9000`, `--health.enabled`
/// and `--log.level=debug`. A key without a value is set to `true`. The word after a known key that is not a boolean is
/// always its value. After other keys, a word that begins with exactly two hyphens is a flag, and any other word is a
/// value (PEM begins with more hyphens). Words that are not valid Unicode stay.
pub(crate) fn take_keys(words: impl Iterator<Item = OsString>) -> (Vec<OsString>, Vec<(String, String)>) {
    let (mut rest, mut keys) = (Vec::new(), Vec::new());
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let flag = word.to_str().and_then(|word| word.strip_prefix("--"));
        let (path, value) = flag
            .map_or(("", None), |flag| flag.split_once('=').map_or((flag, None), |(path, value)| (path, Some(value))));
        if !path.contains('.') {
            rest.push(word);
            continue;
        }
        let needs_value = keys::find(&KEYS, path).is_some_and(|key| key.kind != ValueKind::Boolean);
        let is_value = |next: &str| needs_value || !next.starts_with("--") || next.starts_with("---");
        let has_next = value.is_none() && words.peek().and_then(|next| next.to_str()).is_some_and(is_value);
        let next = if has_next { words.next().and_then(|next| next.into_string().ok()) } else { None };
        keys.push((path.to_owned(), value.map(str::to_owned).or(next).unwrap_or_else(|| "true".to_owned())));
    }
    (rest, keys)
}

impl Arguments {
    /// Parses the command line. A mistake, `--help` and `--version` print a text and end the process.
    pub(crate) fn read() -> Self {
        let (words, keys) = take_keys(std::env::args_os());
        let mut arguments = Arguments::try_parse_from(words).map_err(with_tip).unwrap_or_else(|error| {
            let text = error.to_string();
            match redact(&text) {
                Cow::Borrowed(_) => error.exit(),
                // The text contained a private key in PEM.
                Cow::Owned(text) => {
                    eprintln!("{text}");
                    std::process::exit(error.exit_code())
                }
            }
        });
        match &mut arguments.command {
            None => arguments.serve.keys = keys,
            Some(CliCommand::Serve(serve)) => serve.keys = keys,
            Some(CliCommand::Check(check)) => check.keys = keys,
            Some(CliCommand::PrintConfig(print)) => print.keys = keys,
            Some(_) if keys.is_empty() => {}
            Some(_) => {
                let text =
                    format!("--{}: only `serve`, `check` and `print-config` accept configuration keys", keys[0].0);
                Arguments::command().error(clap::error::ErrorKind::UnknownArgument, text).exit()
            }
        }
        arguments
    }

    /// The command to run; `serve` if none was given.
    pub(crate) fn meant(self) -> CliCommand {
        self.command.unwrap_or_else(|| {
            let is_written = self.serve.config.is_some() || !self.serve.keys.is_empty();
            let has_configuration = is_written || std::env::var_os(CONFIG_VARIABLE).is_some();
            let dev = self.serve.dev || !(has_configuration || self.serve.ephemeral);
            CliCommand::Serve(ServeArguments { dev, ..self.serve })
        })
    }
}

/// The environment variable with the path of the configuration file, used if no flag names one.
pub(crate) const CONFIG_VARIABLE: &str = "TOUCHLINE_CONFIG";

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the server.
    Serve(ServeArguments),
    /// Check a configuration: report settings that `serve` would refuse, or that probably do not do what you intended.
    ///
    /// With --connect it also tests the databases, NATS, backends and certificates of the configuration. With --machine
    /// it also reports the limits of this machine. It changes nothing.
    Check(CheckArguments),
    /// Print each key that is set, its value, and where the value comes from: file and line, variable or flag.
    PrintConfig(PrintConfigArguments),
    /// Ask the server of a configuration whether it can serve, for health checks of containers. Exits with 0 if it can.
    Health(HealthArguments),
    /// Print a small configuration with fresh secrets.
    Genconfig(GenconfigArguments),
    /// Print the JSON Schema of a configuration (draft 2020-12), with which an editor completes and checks keys.
    Configschema,
    /// Print a token for a client: a connection token, or with --channel a subscription token.
    Token(TokenArguments),
    /// Explain step by step whether a client may do something: which rules apply, and what each rule decides.
    Explain(ExplainArguments),
    /// Publish JSON into a channel with the server API.
    Publish(PublishArguments),
    /// Call any operation of the server API.
    Api(CallArguments),
    /// Resume an event endpoint that has answered 410; list, send again or delete events that could not be delivered.
    Events(EventsArguments),
    /// Report the problems and the load of the nodes. Exits with 0 if there are no problems, with 1 if something needs
    /// attention, with 2 if something is bad, and with 3 if no node could be asked.
    Report(ReportArguments),
    /// Print the report every second.
    Top(TopArguments),
    /// Print for some seconds what one client or user sends and receives, or what is published into a channel.
    Trace(TraceArguments),
    /// Print the publications of a channel as they arrive, one JSON line each. Reconnects and recovers.
    Watch(WatchArguments),
    /// Play a recorded match into a channel.
    Match(MatchArguments),
    /// Show the schema changes of a database, apply them, or undo the last one.
    Migrate(MigrateArguments),
    /// Copy an SQLite database into a new file. The server may run during the copy.
    Backup(BackupArguments),
    /// Replace an SQLite database by a copy. The server must not run; the old database is kept beside the new one.
    Restore(BackupArguments),
    /// Return the space of deleted rows to the disk. For SQLite the server must not run; for PostgreSQL it may run,
    /// except with --full.
    Compact(CompactArguments),
    /// Name the program that replaces this command.
    #[command(hide = true)]
    Lab {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Print the script with which a shell completes commands, options, operations of the server API and their fields.
    Completions(CompletionsArguments),
    /// Print the version, the target that the program was built for, and its allocator.
    Version,
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServeArguments {
    /// Configuration file (.toml, .yaml or .json). Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// For development: create secrets, serve the demo, and accept anonymous clients of this machine.
    #[arg(long)]
    pub(crate) dev: bool,
    /// For tests of programs: keep everything in memory, create an API key and a token secret, listen on a free port of
    /// this machine, and stop when the process that started the server ends.
    #[arg(long, conflicts_with_all = ["dev", "no_match", "open_to_network"])]
    pub(crate) ephemeral: bool,
    /// With --ephemeral: when the server listens, write its addresses and secrets to this file as JSON. Only the
    /// account that runs the server can read the file.
    #[arg(long, value_name = "FILE", requires = "ephemeral")]
    pub(crate) ready_file: Option<PathBuf>,
    /// With --dev: do not play the recorded match.
    #[arg(long)]
    pub(crate) no_match: bool,
    /// With --dev: accept everybody who can reach this machine, also from other machines and phones. Publishing needs
    /// the API key.
    #[arg(long)]
    pub(crate) open_to_network: bool,
    /// Port to listen on (http_server.port).
    #[arg(long, short, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// IP address to listen on (http_server.address).
    #[arg(long, short, value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
    /// Level of the log: none, error, warn, info, debug or trace (log.level).
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Number of event loops, one thread each (node.shards).
    #[arg(long, value_name = "COUNT")]
    pub(crate) shards: Option<u16>,
    /// Configuration keys of the command line, as in `--http_server.internal_port 9000`: see [`take_keys`].
    #[arg(skip)]
    pub(crate) keys: Vec<(String, String)>,
}

/// Arguments of `genconfig`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GenconfigArguments {
    /// Add every other key as a comment, with its default and its meaning.
    #[arg(long)]
    pub(crate) all: bool,
    /// Write the configuration to this new file instead of printing it. Only the account that runs the command can read
    /// the file.
    #[arg(long, short)]
    pub(crate) output: Option<PathBuf>,
}

/// Arguments of `token`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TokenArguments {
    /// User id. Empty for an anonymous user.
    #[arg(long, short, required_unless_present = "check", default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Check this token instead of creating one: explain step by step whether a server would accept it. `-` reads it
    /// from standard input.
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["user", "claims"])]
    pub(crate) check: Option<String>,
    /// How long the token is valid; 0 is for ever.
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    pub(crate) exp: Duration,
    /// Create (or check) a subscription token for this channel.
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) channel: Option<String>,
    /// More claims, as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub(crate) claims: Option<String>,
    /// Secret that signs the token. Default: that of the configuration or the environment.
    #[arg(long, conflicts_with = "config")]
    pub(crate) secret: Option<String>,
    /// Configuration file with the secret. Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainArguments {
    /// Configuration file. Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// User id of a client that has connected in any way. Empty for an anonymous user.
    #[arg(long, short, conflicts_with = "token")]
    pub(crate) user: Option<String>,
    /// Connection token of the client. `explain` uses its user, `caps` and `labels`.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Subscription token of the client for the channel.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) subscription_token: Option<String>,
    /// The client already subscribes to the channel.
    #[arg(long)]
    pub(crate) subscribed: bool,
    /// What the client wants to do.
    #[arg(long)]
    pub(crate) action: ExplainAction,
    /// Channel of the action.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) channel: String,
    /// Method of the RPC.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) method: String,
    /// Data of the RPC, as JSON.
    #[arg(long, value_name = "JSON", default_value = "{}", hide_default_value = true)]
    pub(crate) data: String,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// An action of a client that `explain` judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainAction {
    /// Connect to the server.
    Connect,
    /// Subscribe to the channel.
    Subscribe,
    /// Publish into the channel.
    Publish,
    /// Read the history of the channel.
    History,
    /// Read the presence of the channel.
    Presence,
    /// Call the RPC method.
    Rpc,
}

/// Arguments of `publish`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PublishArguments {
    /// Channel to publish into.
    pub(crate) channel: String,
    /// Data of the publication, as JSON. `-` reads it from standard input.
    pub(crate) data: String,
    /// The server to call.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `events`.
#[derive(Debug, Clone, Args)]
pub(crate) struct EventsArguments {
    /// The subcommand of `events`.
    #[command(subcommand)]
    pub(crate) action: EventsAction,
}

/// The subcommands of `events`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum EventsAction {
    /// Resume sending events to an endpoint that has answered 410.
    Resume(ResumeArguments),
    /// Manage dead letters: events that durable endpoints did not accept.
    Dead {
        /// The subcommand of `events dead`.
        #[command(subcommand)]
        action: DeadAction,
    },
}

/// Arguments of `events resume`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ResumeArguments {
    /// Name of the endpoint, as in `events`.
    #[arg(value_name = "NAME")]
    pub(crate) endpoint: String,
    /// The server to call.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// The subcommands of `events dead`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DeadAction {
    /// Print dead letters, the oldest first, one JSON line each.
    List(DeadListArguments),
    /// Send dead letters again, after the events that wait for their endpoint.
    Retry(DeadChoiceArguments),
    /// Delete dead letters.
    Drop(DeadChoiceArguments),
}

/// Arguments of `events dead list`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeadListArguments {
    /// Print only the dead letters of this endpoint.
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// Maximum number of dead letters to print, at most 1000.
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
    /// Cursor of the page, as the previous page printed it.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub(crate) cursor: u64,
    /// The server to call.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `events dead retry` and `events dead drop`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeadChoiceArguments {
    /// The `id` of each dead letter.
    #[arg(value_name = "ID", required_unless_present = "endpoint", conflicts_with = "endpoint")]
    pub(crate) ids: Vec<u64>,
    /// Instead of ids: the 1000 oldest dead letters of this endpoint.
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// The server to call.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `watch`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WatchArguments {
    /// Channel to watch.
    pub(crate) channel: String,
    /// WebSocket endpoint of the server, ws:// or wss://. Default: that of the configuration, or
    /// ws://127.0.0.1:8000/connection/websocket if there is none.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// File with CA certificates (PEM) that are trusted for wss://, in addition to those of the system.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Configuration file of the server, with its port. Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Connection token (`touchline token` prints one).
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Subscription token for the channel.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) subscription_token: Option<String>,
    /// Stop after this many publications.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Arguments of `match`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MatchArguments {
    /// File with the recording. Default: the recording of the demo.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// Speed of the replay, as a multiple of the original speed.
    #[arg(long, default_value_t = 30.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Channel to play into. Its history is removed first.
    #[arg(long, default_value = "match:live")]
    pub(crate) channel: String,
    /// Start again when the match is over.
    #[arg(long = "loop")]
    pub(crate) again: bool,
    /// The server to call.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `migrate`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MigrateArguments {
    /// What to do with the schema.
    #[arg(value_enum)]
    pub(crate) action: MigrateAction,
    /// Database of the configuration.
    #[arg(long, value_enum, default_value_t = DatabaseChoice::Primary)]
    pub(crate) database: DatabaseChoice,
    /// With `down`: undo the change and delete its data. Without --yes, `down` only prints what would be deleted.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Configuration file (.toml, .yaml or .json). Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `backup` and `restore`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BackupArguments {
    /// File of the copy.
    #[arg(value_name = "COPY")]
    pub(crate) copy: PathBuf,
    /// Database of the configuration.
    #[arg(long, value_enum, default_value_t = DatabaseChoice::Primary)]
    pub(crate) database: DatabaseChoice,
    /// Configuration file (.toml, .yaml or .json). Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `compact`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompactArguments {
    /// Database of the configuration. Default: all databases that the server opens.
    #[arg(long, value_enum)]
    pub(crate) database: Option<DatabaseChoice>,
    /// For PostgreSQL: rewrite the tables, so that all their free space is returned. Each table is locked meanwhile,
    /// and the command is refused while nodes are connected. An SQLite file is always rewritten.
    #[arg(long)]
    pub(crate) full: bool,
    /// Configuration file (.toml, .yaml or .json). Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell that the script is for.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell that supports completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// `source <(touchline completions bash)`, from ~/.bashrc.
    Bash,
    /// `source <(touchline completions zsh)`, from ~/.zshrc after `compinit`.
    Zsh,
    /// `touchline completions fish | source`, from ~/.config/fish/config.fish.
    Fish,
}

/// The actions of `migrate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MigrateAction {
    /// Print which changes are applied and which are not.
    Status,
    /// Apply all changes that are not applied.
    Up,
    /// Undo the last change and delete its data.
    Down,
}

/// A database of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatabaseChoice {
    /// The primary database, for data that must not be lost.
    Primary,
    /// The database of statistics, which may be lost.
    Stats,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if (0.01..=100_000.0).contains(&speed) {
        Ok(speed)
    } else {
        Err("expected a number from 0.01 to 100000".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_bare_touchline_serves_for_development_unless_it_has_a_configuration() {
        for (line, expected) in [
            ("touchline", true),
            ("touchline --port 9000", true),
            ("touchline --config x.toml", false),
            ("touchline --config x.toml --dev", true),
            ("touchline --ephemeral", false),
            ("touchline serve", false),
            ("touchline serve --dev", true),
        ] {
            let arguments = Arguments::try_parse_from(line.split(' ')).expect("the line is good");
            let command = arguments.meant();
            assert!(
                matches!(command, CliCommand::Serve(ServeArguments { dev, .. }) if dev == expected),
                "{line}: {command:?}"
            );
        }
    }

    #[test]
    fn keys_of_the_configuration_are_taken_out_of_the_words() {
        let line = "centrifugo serve --health.enabled --http_server.port 8000 -c x.toml --log.level=debug \
                    --engine.type memory --port 1";
        let (words, keys) = take_keys(line.split(' ').map(OsString::from));
        assert_eq!(words, ["centrifugo", "serve", "-c", "x.toml", "--port", "1"]);
        let expected = [
            ("health.enabled", "true"),
            ("http_server.port", "8000"),
            ("log.level", "debug"),
            ("engine.type", "memory"),
        ];
        assert_eq!(keys, expected.map(|(path, value)| (path.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_value_may_begin_with_hyphens() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----";
        for (words, expected) in [
            (["--http_server.tls.key_pem", pem], ("http_server.tls.key_pem", pem)),
            (["--some.other_key", pem], ("some.other_key", pem)),
            (["--client.token.hmac_secret_key", "--secret"], ("client.token.hmac_secret_key", "--secret")),
            (["--health.enabled", "--dev"], ("health.enabled", "true")),
        ] {
            let (_, keys) = take_keys(words.iter().map(OsString::from));
            assert_eq!(keys, [(expected.0.to_owned(), expected.1.to_owned())]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "token --user u --exp soon",
            "token",
            "match --speed 0",
            "match --speed nan",
            "serve --port 70000",
            "serve --address localhost",
            "publish news",
            "fly",
            "serve --ephemeral --dev",
            "serve --ready-file ready.json",
            "api",
            "api publsh",
            "api --list publish",
            "completions tcsh",
        ] {
            let words = std::iter::once("touchline").chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_err(), "{line}");
        }
    }
}
