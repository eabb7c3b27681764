//! What can be typed. A bare `touchline` is `touchline serve --dev`; with a configuration it is `touchline serve`, as
//! people of Centrifugo type it.

use std::borrow::Cow;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use touchline_config::keys::{self, KEYS, ValueKind};
use touchline_config::redact;

use crate::api_arguments::{ApiArguments, CallArguments, duration};
use crate::built::BUILT;
use crate::operator_arguments::{
    CheckArguments, HealthArguments, PrintConfigArguments, ReportArguments, TopArguments, TraceArguments,
};

/// Touchline, a live-event server: a reporter posts an event, every fan sees it in milliseconds.
///
/// Without a command it serves the demo on this machine, as `touchline serve --dev`.
#[derive(Debug, Parser)]
#[command(name = "touchline", version = BUILT, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    command: Option<CliCommand>,
    /// Without a command: how to serve.
    #[command(flatten)]
    serve: ServeArguments,
}

/// Takes words such as `--http_server.internal_port 9000`, `--health.enabled` and `--log.level=debug` out: keys of the
/// configuration with their values, as Centrifugo takes them. One without a value is switched on. The word behind a key
/// that is ours and no switch is its value, whatever it begins with; behind others, one that begins with two hyphens is
/// a flag, and one with more, as PEM does, a value. Words that no text can be made of stay.
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
    /// Reads what was typed; what can't be read ends the process, as does a question for help.
    pub(crate) fn read() -> Self {
        let (words, keys) = take_keys(std::env::args_os());
        let mut arguments = Arguments::try_parse_from(words).unwrap_or_else(|error| {
            let text = error.to_string();
            match redact(&text) {
                Cow::Borrowed(_) => error.exit(),
                // A key that no flag took.
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
                    format!("--{}: keys of the configuration are for `serve`, `check` and `print-config`", keys[0].0);
                Arguments::command().error(clap::error::ErrorKind::UnknownArgument, text).exit()
            }
        }
        arguments
    }

    /// The command that was meant.
    pub(crate) fn meant(self) -> CliCommand {
        self.command.unwrap_or_else(|| {
            let is_written = self.serve.config.is_some() || !self.serve.keys.is_empty();
            let has_configuration = is_written || std::env::var_os(CONFIG_VARIABLE).is_some();
            let dev = self.serve.dev || !(has_configuration || self.serve.ephemeral);
            CliCommand::Serve(ServeArguments { dev, ..self.serve })
        })
    }
}

/// Names the configuration file where no flag does.
pub(crate) const CONFIG_VARIABLE: &str = "TOUCHLINE_CONFIG";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the server.
    Serve(ServeArguments),
    /// Say what is wrong with a configuration: what `serve` would refuse because of it, and what hardly means what it
    /// says.
    ///
    /// With --connect it also tries what the configuration names: databases, NATS, backends, certificates. With
    /// --machine it also says what this machine limits. It changes nothing.
    Check(CheckArguments),
    /// Print each key that is set, its value, and the file and line, variable or flag that it comes from.
    PrintConfig(PrintConfigArguments),
    /// Ask the server of a configuration whether it can serve. The exit status is 0 if it can: for health checks of
    /// containers.
    Health(HealthArguments),
    /// Print a small configuration with fresh secrets.
    Genconfig(GenconfigArguments),
    /// Print the JSON Schema of a configuration (draft 2020-12), with which an editor completes and checks its keys.
    Configschema,
    /// Print a token for a client: to connect, or with --channel to subscribe.
    Token(TokenArguments),
    /// Say step by step whether a client may do something: which rules are asked, and what each of them says.
    Explain(ExplainArguments),
    /// Publish JSON into a channel by the server API.
    Publish(PublishArguments),
    /// Call any operation of the server API.
    Api(CallArguments),
    /// Send events to an endpoint again that has answered 410; list, send again or delete events that could not be
    /// delivered.
    Events(EventsArguments),
    /// Say what is wrong with the nodes and how busy they are. Exits with 0 if nothing is wrong, with 1 if something
    /// needs a look, with 2 if it is bad, with 3 if nobody could be asked.
    Report(ReportArguments),
    /// Print the same every second.
    Top(TopArguments),
    /// Print what goes in and out for one client, user or channel, for a while.
    Trace(TraceArguments),
    /// Print the publications of a channel as they come, one JSON line each; reconnects and recovers.
    Watch(WatchArguments),
    /// Play a recorded match into a channel.
    Match(MatchArguments),
    /// Show the schema of a database, bring it up to date, or take its last change back.
    Migrate(MigrateArguments),
    /// Copy a SQLite database into a new file, while the server runs or not.
    Backup(BackupArguments),
    /// Put a copy of a SQLite database in its place. The server must not run; what was there is kept beside it.
    Restore(BackupArguments),
    /// Measure: load generators, floors, and scenarios that check themselves.
    Lab(touchline_lab::LabArguments),
    /// Print what makes a shell complete commands, options, operations of the server API and their fields.
    Completions(CompletionsArguments),
    /// Print the version, the target that the program was built for, and its allocator.
    Version,
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServeArguments {
    /// Configuration file (.toml, .yaml or .json); else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// For development: makes secrets, serves the demo, lets anonymous clients of this machine in.
    #[arg(long)]
    pub(crate) dev: bool,
    /// For tests of programs: keeps all in memory, makes a key and a token secret, listens on a free port of this
    /// machine, and ends with the process that has started it.
    #[arg(long, conflicts_with_all = ["dev", "no_match", "open_to_network"])]
    pub(crate) ephemeral: bool,
    /// With --ephemeral: when the server listens, write its addresses and secrets to this file, as JSON that only this
    /// account can read.
    #[arg(long, value_name = "FILE", requires = "ephemeral")]
    pub(crate) ready_file: Option<PathBuf>,
    /// With --dev: don't play the recorded match.
    #[arg(long)]
    pub(crate) no_match: bool,
    /// With --dev: let everybody in who reaches this machine, from other machines and phones too. Only the key
    /// publishes.
    #[arg(long)]
    pub(crate) open_to_network: bool,
    /// Port to listen on (http_server.port).
    #[arg(long, short, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// IP address to listen on (http_server.address).
    #[arg(long, short, value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
    /// none, error, warn, info, debug or trace (log.level).
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Event loops, one thread each (node.shards).
    #[arg(long, value_name = "COUNT")]
    pub(crate) shards: Option<u16>,
    /// Any key of the configuration, as `--http_server.internal_port 9000`: see [`take_keys`].
    #[arg(skip)]
    pub(crate) keys: Vec<(String, String)>,
}

/// Arguments of `genconfig`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GenconfigArguments {
    /// Add every other key, commented out, with its default and what it means.
    #[arg(long)]
    pub(crate) all: bool,
    /// Write it to this new file, which only this account can read, instead of printing it.
    #[arg(long, short)]
    pub(crate) output: Option<PathBuf>,
}

/// Arguments of `token`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TokenArguments {
    /// The user's id; empty for an anonymous one.
    #[arg(long, short, required_unless_present = "check", default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Instead of making one: say step by step whether a server would take this token. `-` reads it from standard
    /// input.
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["user", "claims"])]
    pub(crate) check: Option<String>,
    /// How long it is good; 0 is for ever.
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    pub(crate) exp: Duration,
    /// Make (or check) a subscription token for this channel.
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) channel: Option<String>,
    /// More claims, as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub(crate) claims: Option<String>,
    /// The secret to sign with; else the one of the configuration or the environment.
    #[arg(long, conflicts_with = "config")]
    pub(crate) secret: Option<String>,
    /// Configuration file with the secret; else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainArguments {
    /// Configuration file; else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The user of a client that has connected, however it has proved it; empty for an anonymous one.
    #[arg(long, short, conflicts_with = "token")]
    pub(crate) user: Option<String>,
    /// The connection token of the client: its user, caps and labels count.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The token by which the client subscribes to the channel.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) subscription_token: Option<String>,
    /// The client subscribes to the channel already.
    #[arg(long)]
    pub(crate) subscribed: bool,
    /// What the client does.
    #[arg(long)]
    pub(crate) action: ExplainAction,
    /// The channel.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) channel: String,
    /// The method of an RPC.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) method: String,
    /// The data of an RPC, JSON.
    #[arg(long, value_name = "JSON", default_value = "{}", hide_default_value = true)]
    pub(crate) data: String,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainAction {
    /// Connect.
    Connect,
    /// Subscribe to the channel.
    Subscribe,
    /// Publish into the channel.
    Publish,
    /// Read the history of the channel.
    History,
    /// Ask for the presence of the channel.
    Presence,
    /// Call the method.
    Rpc,
}

/// Arguments of `publish`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PublishArguments {
    /// The channel.
    pub(crate) channel: String,
    /// The publication, JSON; `-` reads it from standard input.
    pub(crate) data: String,
    /// Where to.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `events`.
#[derive(Debug, Clone, Args)]
pub(crate) struct EventsArguments {
    /// What about.
    #[command(subcommand)]
    pub(crate) action: EventsAction,
}

/// What `events` is about.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum EventsAction {
    /// Send events again to an endpoint that has answered 410.
    Resume(ResumeArguments),
    /// Events that durable endpoints did not accept.
    Dead {
        /// What to do with them.
        #[command(subcommand)]
        action: DeadAction,
    },
}

/// Arguments of `events resume`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ResumeArguments {
    /// The name of the endpoint.
    #[arg(value_name = "NAME")]
    pub(crate) endpoint: String,
    /// Where to.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// What `events dead` does.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DeadAction {
    /// Print them, the oldest first, one JSON line each.
    List(DeadListArguments),
    /// Send some again, behind what waits for their endpoint.
    Retry(DeadChoiceArguments),
    /// Delete some.
    Drop(DeadChoiceArguments),
}

/// Arguments of `events dead list`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeadListArguments {
    /// Only those of this endpoint.
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// Letters to print, 1000 at most.
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
    /// Where the page begins, as the page before has said.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub(crate) cursor: u64,
    /// Where to.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `events dead retry` and `events dead drop`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeadChoiceArguments {
    /// The letters, by their `id`.
    #[arg(value_name = "ID", required_unless_present = "endpoint", conflicts_with = "endpoint")]
    pub(crate) ids: Vec<u64>,
    /// Instead: the 1000 oldest of this endpoint.
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// Where to.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `watch`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WatchArguments {
    /// The channel.
    pub(crate) channel: String,
    /// The server's WebSocket endpoint, ws:// or wss://; else that of the configuration, which is
    /// ws://127.0.0.1:8000/connection/websocket if it says nothing.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Certificates of authorities, PEM, that are trusted for wss:// beside those of this system.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Configuration file of the server, with its port; else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Connection token (see `touchline token`).
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Subscription token.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) subscription_token: Option<String>,
    /// End after this many publications.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Arguments of `match`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MatchArguments {
    /// The recording; without it, the one of the demo.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// How many times faster than it was.
    #[arg(long, default_value_t = 30.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// The channel to play into. Its history is removed first.
    #[arg(long, default_value = "match:live")]
    pub(crate) channel: String,
    /// Begin again when it is over.
    #[arg(long = "loop")]
    pub(crate) again: bool,
    /// Where to.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

/// Arguments of `migrate`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MigrateArguments {
    /// What to do.
    #[arg(value_enum)]
    pub(crate) action: MigrateAction,
    /// Which database.
    #[arg(long, value_enum, default_value_t = DatabaseChoice::Primary)]
    pub(crate) database: DatabaseChoice,
    /// With `down`: delete the data of that change. Without it, `down` only says what would go.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Configuration file (.toml, .yaml or .json); else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `backup` and `restore`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BackupArguments {
    /// The copy.
    #[arg(value_name = "COPY")]
    pub(crate) copy: PathBuf,
    /// Which database.
    #[arg(long, value_enum, default_value_t = DatabaseChoice::Primary)]
    pub(crate) database: DatabaseChoice,
    /// Configuration file (.toml, .yaml or .json); else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell that can complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// `source <(touchline completions bash)`, from ~/.bashrc.
    Bash,
    /// `source <(touchline completions zsh)`, from ~/.zshrc behind `compinit`.
    Zsh,
    /// `touchline completions fish | source`, from ~/.config/fish/config.fish.
    Fish,
}

/// What `migrate` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MigrateAction {
    /// Say which changes are made and which are not.
    Status,
    /// Make all that are not.
    Up,
    /// Take the last one back, with all that it holds.
    Down,
}

/// A database of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatabaseChoice {
    /// What must not be lost.
    Primary,
    /// What is big, and may be lost.
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
