//! What a process is to do.

use touchline_engine::setting::{Filled, Key, Misfit, SettingsTable, WrittenValue};

use crate::settings::{LogSettings, Settings};

/// What the process is to do.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// For the server.
    pub settings: Settings,
    /// For the logger.
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
