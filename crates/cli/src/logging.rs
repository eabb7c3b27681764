//! Logs go to stderr, as text or as JSON lines. Levels have Centrifugo's names.

use std::io::IsTerminal as _;

use touchline_config::LogSettings;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};

/// The client of NATS logs every try to connect. What changes is told by `touchline_cluster`.
const NATS_CLIENT: &str = "async_nats";

/// Changes the level of a log that has started.
pub(crate) struct LogLevel(Handle<Targets, Registry>);

impl LogLevel {
    /// From now on the log has this level.
    pub(crate) fn set(&self, settings: &LogSettings) {
        if let Err(error) = self.0.reload(targets(settings)) {
            tracing::error!(%error, "the level of the log could not be changed");
        }
    }
}

/// What is logged, of which part of the program.
fn targets(settings: &LogSettings) -> Targets {
    let level = level(&settings.level);
    let targets = Targets::new().with_default(level);
    if level <= LevelFilter::INFO { targets.with_target(NATS_CLIENT, LevelFilter::OFF) } else { targets }
}

/// Starts logging. Once in a process's life.
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

/// Not `init` of `tracing_subscriber`: where tests are built too, a feature that their crates switch on makes it log
/// what libraries tell by the crate `log`, which the released program does not.
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
