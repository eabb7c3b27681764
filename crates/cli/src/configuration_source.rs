//! The configuration of a server that runs: its file, the environment and the flags, which a reload reads again.

use std::sync::{Mutex, PoisonError};

use touchline_config::{Finding, LogSettings, Severity, Sources};
use touchline_server::{PROBES, ReadSettings, SettingsSource};

use crate::logging::LogLevel;

/// What a reload reads.
pub(crate) struct ConfigurationSource {
    sources: Sources,
    level: LogLevel,
    /// What the configuration says of the log that was read last.
    log: Mutex<Option<LogSettings>>,
}

impl ConfigurationSource {
    /// Reads from these sources, and changes the level of this log.
    pub(crate) fn new(sources: Sources, level: LogLevel) -> Self {
        ConfigurationSource { sources, level, log: Mutex::default() }
    }
}

impl SettingsSource for ConfigurationSource {
    fn read(&self) -> Result<ReadSettings, Vec<String>> {
        // A server for development has secrets that no file has.
        let is_development = self.sources.development.is_some();
        let read = if is_development { touchline_config::read } else { touchline_config::read_to_serve };
        let reading = read(&self.sources, &PROBES);
        // The caller of the reload tells the errors.
        let (errors, others): (Vec<_>, Vec<_>) =
            reading.findings.into_iter().partition(|finding| finding.severity == Severity::Error);
        log_findings(&others);
        match reading.configuration {
            Some(configuration) => {
                *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(configuration.log);
                Ok(ReadSettings { settings: configuration.settings, written: reading.written })
            }
            None => Err(errors.iter().map(ToString::to_string).collect()),
        }
    }

    fn adopted(&self) {
        if let Some(log) = self.log.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.level.set(&log);
        }
    }
}

/// Logs what is to be said of a configuration.
pub(crate) fn log_findings(findings: &[Finding]) {
    for finding in findings {
        match finding.severity {
            Severity::Error => tracing::error!("{finding}"),
            Severity::Warning => tracing::warn!("{finding}"),
            Severity::Note => tracing::debug!("{finding}"),
        }
    }
}
