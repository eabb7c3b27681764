//! A reload as its callers see it.

use std::sync::Arc;

use touchline_config::{Settings, WrittenKey};

/// Carries a reload out, and blocks until it has ended.
pub(crate) type ReloadFn = Arc<dyn Fn() -> Result<Reloaded, ReloadRefusal> + Send + Sync>;

/// Settings that were read, and the keys that were written.
#[derive(Clone)]
pub struct ReadSettings {
    /// The settings.
    pub settings: Settings,
    /// The keys that were written, for what differs from the generation before.
    pub written: Vec<WrittenKey>,
}

/// What the settings of a server are read from, again and again.
pub trait SettingsSource: Send + Sync + 'static {
    /// Reads and checks the settings, as for a start.
    ///
    /// # Errors
    /// All faults, each in a line, without secrets.
    fn read(&self) -> Result<ReadSettings, Vec<String>>;

    /// The settings that were read last are those of the server from now on.
    fn adopted(&self) {}
}

/// A reload that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// The number of the generation that the node works with.
    pub generation: u64,
    /// The keys whose values differ from the generation before, in order.
    pub changed: Vec<String>,
}

/// Why a reload has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadRefusal {
    /// The program around the server does not say what settings are read from.
    #[error("this server has no configuration that could be read again")]
    NoSource,
    /// Another one has not ended.
    #[error("another reload is under way")]
    UnderWay,
    /// The configuration has faults.
    #[error("the configuration has faults, and nothing was changed: {}", .0.join("; "))]
    Faulty(Vec<String>),
    /// Keys differ that take a restart.
    #[error("these keys take a restart, and nothing was changed: {}", .0.join(", "))]
    TakesRestart(Vec<String>),
    /// The node stops.
    #[error("the server stops")]
    Stopping,
}
