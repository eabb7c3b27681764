//! Logs go to stderr, as text or as JSON lines. Levels have Centrifugo's names.

use std::io::IsTerminal as _;

use touchline_config::LogSettings;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The client of NATS logs every try to connect. What changes is told by `touchline_cluster`.
const NATS_CLIENT: &str = "async_nats";

/// Starts logging. Once in a process's life.
pub(crate) fn start(settings: &LogSettings) {
    let level = level(&settings.level);
    let targets = Targets::new().with_default(level);
    let targets = if level <= LevelFilter::INFO { targets.with_target(NATS_CLIENT, LevelFilter::OFF) } else { targets };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(targets);
    if settings.format == "json" {
        registry.with(lines.json().flatten_event(true)).init();
    } else {
        registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init();
    }
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
