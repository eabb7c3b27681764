//! What can be typed for the commands that look at a configuration, a machine or a server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::api_arguments::duration;

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
