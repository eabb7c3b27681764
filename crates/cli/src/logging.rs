//! Logs go to stderr, as text or as JSON lines. Levels have Centrifugo's names.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::LevelFilter;

use crate::config::LogSettings;

/// Starts logging. Once in a process's life.
pub(crate) fn start(settings: &LogSettings) {
    let level = level(&settings.level);
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    if settings.format == "json" {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).init();
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
