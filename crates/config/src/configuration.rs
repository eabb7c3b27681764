//! The whole configuration of a process.

use touchline_engine::setting::{Filled, Key, Misfit, SettingsTable, WrittenValue};

use crate::settings::{LogSettings, Settings};

/// The whole configuration of a process: the server's settings and those of the log.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// The settings of the server.
    pub settings: Settings,
    /// The settings of the log.
    pub log: LogSettings,
}

impl SettingsTable for Configuration {
    fn visit(&self, visit: &mut dyn FnMut(Key)) {
        self.settings.visit(visit);
        self.log.visit(&mut |key| visit(Key { path: format!("log.{}", key.path), ..key }));
    }

    fn set(&mut self, path: &str, written: &WrittenValue<'_>) -> Option<Result<Filled, Misfit>> {
        match path.strip_prefix("log.") {
            Some(name) => self.log.set(name, written),
            None => self.settings.set(path, written),
        }
    }
}
