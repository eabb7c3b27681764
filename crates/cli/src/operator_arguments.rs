//! The arguments of the commands that inspect a configuration, a machine or a server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::api_arguments::{ApiArguments, duration};

/// Arguments of `check`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArguments {
    /// Configuration file (.toml, .yaml or .json). Default: the file that TOUCHLINE_CONFIG names.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The same as FILE, for consistency with other commands.
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
    /// Also connect to the databases, NATS, backends and key set endpoints of the configuration, and print when
    /// certificates expire. It only requests key sets; it writes and sends nothing else.
    #[arg(long)]
    pub(crate) connect: bool,
    /// Also print the limits of this machine (open files, ports, memory, processors, clock), and the command that
    /// changes each. Needs no configuration.
    #[arg(long)]
    pub(crate) machine: bool,
    /// Configuration keys of the command line, as in `--http_server.port 8001`.
    #[arg(skip)]
    pub(crate) keys: Vec<(String, String)>,
}

/// Arguments of `print-config`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PrintConfigArguments {
    /// Configuration file (.toml, .yaml or .json). Default: the file that TOUCHLINE_CONFIG names.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The same as FILE, for consistency with other commands.
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
    /// Also print keys that are not set, with their defaults.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object with the `value` of each key and where it comes `from`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Configuration keys of the command line, as in `--http_server.port 8001`.
    #[arg(skip)]
    pub(crate) keys: Vec<(String, String)>,
}

/// Arguments of `health`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HealthArguments {
    /// Configuration file of the server. Default: the file that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Base URL of the port that serves the probes. Default: that of the configuration, on this machine.
    #[arg(long, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// Maximum time to wait for the answer.
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// Arguments of `report`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArguments {
    /// The server to ask.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
    /// Print the answer of the server as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print `*`, `!` and `X` instead of Unicode signs.
    #[arg(long)]
    pub(crate) ascii: bool,
}

/// Arguments of `top`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TopArguments {
    /// The server to ask.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
    /// Print once and exit.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print this many times and exit.
    #[arg(long, value_name = "NUMBER", conflicts_with = "once")]
    pub(crate) count: Option<u64>,
    /// Print each answer of the server as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print `*`, `!` and `X` instead of Unicode signs.
    #[arg(long)]
    pub(crate) ascii: bool,
}

/// Arguments of `trace`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["client", "user", "channel"]))]
pub(crate) struct TraceArguments {
    /// The server to ask.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
    /// Print the frames of the connection with this client id.
    #[arg(long, value_name = "ID")]
    pub(crate) client: Option<String>,
    /// Print the frames of all connections of this user.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Print the publications into this channel.
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Duration of the trace, 1 to 60 seconds.
    #[arg(long, default_value = "10", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
    /// Show payloads. For a client or a user the server must have `admin.trace_payloads`.
    #[arg(long)]
    pub(crate) payloads: bool,
    /// Print each frame as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
