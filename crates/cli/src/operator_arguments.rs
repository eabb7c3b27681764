//! What can be typed for the commands that look at a configuration, a machine or a server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::api_arguments::{ApiArguments, duration};

/// Arguments of `check`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArguments {
    /// Configuration file (.toml, .yaml or .json); else the one that TOUCHLINE_CONFIG names.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The same, as other commands take it.
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
    /// Also connect to what the configuration names: databases, NATS, backends, sets of keys; and say until when
    /// certificates are valid. Nothing is written or sent, but a request of a set of keys.
    #[arg(long)]
    pub(crate) connect: bool,
    /// Also say what this machine limits (open files, ports, memory, processors, clock), and by which command that is
    /// changed. Needs no configuration.
    #[arg(long)]
    pub(crate) machine: bool,
    /// Keys of the configuration that were typed, as `--http_server.port 8001`.
    #[arg(skip)]
    pub(crate) keys: Vec<(String, String)>,
}

/// Arguments of `print-config`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PrintConfigArguments {
    /// Configuration file (.toml, .yaml or .json); else the one that TOUCHLINE_CONFIG names.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The same, as other commands take it.
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
    /// Also print the keys that are not set, with their defaults.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object: for each key its `value` and where it comes `from`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keys of the configuration that were typed, as `--http_server.port 8001`.
    #[arg(skip)]
    pub(crate) keys: Vec<(String, String)>,
}

/// Arguments of `health`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HealthArguments {
    /// Configuration file of the server; else the one that TOUCHLINE_CONFIG names.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Base URL of the port that has the probes; else that of the configuration, on this machine.
    #[arg(long, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// How long to wait.
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// Arguments of `report`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArguments {
    /// The server.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
    /// Print the answer of the server, one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print `*`, `!` and `X` instead of other signs.
    #[arg(long)]
    pub(crate) ascii: bool,
}

/// Arguments of `top`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TopArguments {
    /// The server.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
    /// Print once.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print so many times.
    #[arg(long, value_name = "NUMBER", conflicts_with = "once")]
    pub(crate) count: Option<u64>,
    /// Print the answers of the server, one line of JSON each.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print `*`, `!` and `X` instead of other signs.
    #[arg(long)]
    pub(crate) ascii: bool,
}

/// Arguments of `trace`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["client", "user", "channel"]))]
pub(crate) struct TraceArguments {
    /// The server.
    #[command(flatten)]
    pub(crate) api: ApiArguments,
    /// The frames of the connection with this client id.
    #[arg(long, value_name = "ID")]
    pub(crate) client: Option<String>,
    /// The frames of the connections of this user.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The publications into this channel.
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// How long, 1 to 60 seconds.
    #[arg(long, default_value = "10", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
    /// Show payloads; for a client or a user the server needs `admin.trace_payloads`.
    #[arg(long)]
    pub(crate) payloads: bool,
    /// Print the frames as lines of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
