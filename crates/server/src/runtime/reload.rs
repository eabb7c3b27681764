//! The result of a reload, and the source of its settings, for callers of a reload.

use std::sync::Arc;

use touchline_config::{Settings, WrittenKey};

/// Carries out a reload, and blocks until it has ended.
pub(crate) type ReloadFn = Arc<dyn Fn() -> Result<Reloaded, ReloadRefusal> + Send + Sync>;

/// Settings that a source has read, and the configuration keys that were written.
#[derive(Clone)]
pub struct ReadSettings {
    /// The settings, checked as for a start.
    pub settings: Settings,
    /// The configuration keys that were written. The server compares them with those of the generation before.
    pub written: Vec<WrittenKey>,
}

/// A source of a server's settings, from which every reload reads them.
pub trait SettingsSource: Send + Sync + 'static {
    /// Reads and checks the settings, as for a start. A panic in a reload ends the process.
    ///
    /// # Errors
    /// All faults, one line each, without secrets.
    fn read(&self) -> Result<ReadSettings, Vec<String>>;

    /// Called when the server has begun to work with the settings that were read last.
    fn adopted(&self) {}
}

/// The result of a reload that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// The number of the generation with which the node now works.
    pub generation: u64,
    /// The configuration keys whose values differ from the generation before, sorted.
    pub changed: Vec<String>,
}

/// Why a reload has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadRefusal {
    /// The embedding program does not say where settings are read from.
    #[error("this server has no configuration that could be read again")]
    NoSource,
    /// Another reload is still under way.
    #[error("another reload is under way")]
    UnderWay,
    /// The configuration has these faults.
    #[error("the configuration has faults, and nothing was changed: {}", .0.join("; "))]
    Faulty(Vec<String>),
    /// These configuration keys differ, and need a restart.
    #[error("these keys need a restart, and nothing was changed: {}", .0.join(", "))]
    TakesRestart(Vec<String>),
    /// The node is stopping.
    #[error("the server stops")]
    Stopping,
}
