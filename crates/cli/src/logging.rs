//! Logging to stderr, as text or as JSON lines. The levels have Centrifugo's names.

use std::io::IsTerminal as _;

use touchline_config::LogSettings;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};

/// The NATS client logs every attempt to connect. `touchline_cluster` logs the changes instead.
const NATS_CLIENT: &str = "async_nats";

/// A handle that changes the level of a running log.
pub(crate) struct LogLevel(Handle<Targets, Registry>);

impl LogLevel {
    /// Sets the level of the log from now on.
    pub(crate) fn set(&self, settings: &LogSettings) {
        if let Err(error) = self.0.reload(targets(settings)) {
            tracing::error!(%error, "the level of the log could not be changed");
        }
    }
}

/// The level for each part of the program.
fn targets(settings: &LogSettings) -> Targets {
    let level = level(&settings.level);
    let targets = Targets::new().with_default(level);
    if level <= LevelFilter::INFO { targets.with_target(NATS_CLIENT, LevelFilter::OFF) } else { targets }
}

/// Starts logging. A process may call it only once.
pub(crate) fn start(settings: &LogSettings) -> LogLevel {
    let (targets, handle) = reload::Layer::new(targets(settings));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(targets);
    if settings.format == "json" {
        install(registry.with(lines.json().flatten_event(true)));
    } else {
        install(registry.with(lines.with_ansi(std::io::stderr().is_terminal())));
    }
    LogLevel(handle)
}

/// Installs the subscriber without `init` of `tracing_subscriber`. In a build with tests, a feature of their crates
/// lets `init` also record messages of the crate `log`, which the released program does not.
fn install(subscriber: impl tracing::Subscriber + Send + Sync) {
    tracing::subscriber::set_global_default(subscriber).expect("logging starts once");
}

fn level(name: &str) -> LevelFilter {
    match name {
        "none" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => LevelFilter::INFO,
    }
}
