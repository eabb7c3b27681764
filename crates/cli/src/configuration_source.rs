//! The configuration sources of a running server: its file, the environment and the flags. A reload reads them again.

use touchline_config::{Finding, LogSettings, Severity, Sources};
use touchline_lock::Lock;
use touchline_server::{PROBES, ReadSettings, SettingsSource};

use crate::logging::LogLevel;

/// The sources that a reload reads, and the log whose level it changes.
pub(crate) struct ConfigurationSource {
    sources: Sources,
    level: LogLevel,
    /// The log settings of the last reading, until the server adopts them.
    log: Lock<Option<LogSettings>>,
}

impl ConfigurationSource {
    /// A source that reads `sources` at each reload and changes the level of the log.
    pub(crate) fn new(sources: Sources, level: LogLevel) -> Self {
        ConfigurationSource { sources, level, log: Lock::default() }
    }
}

impl SettingsSource for ConfigurationSource {
    fn read(&self) -> Result<ReadSettings, Vec<String>> {
        // The secrets of a development server are not in a file, so the check for secrets is left out.
        let is_development = self.sources.development.is_some();
        let read = if is_development { touchline_config::read } else { touchline_config::read_to_serve };
        let reading = read(&self.sources, &PROBES);
        // The caller of the reload reports the errors.
        let (errors, others): (Vec<_>, Vec<_>) =
            reading.findings.into_iter().partition(|finding| finding.severity == Severity::Error);
        log_findings(&others);
        match reading.configuration {
            Some(configuration) => {
                *self.log.lock() = Some(configuration.log);
                Ok(ReadSettings { settings: configuration.settings, written: reading.written })
            }
            None => Err(errors.iter().map(ToString::to_string).collect()),
        }
    }

    fn adopted(&self) {
        if let Some(log) = self.log.lock().take() {
            self.level.set(&log);
        }
    }
}

/// Logs the findings of a configuration: notes at level debug.
pub(crate) fn log_findings(findings: &[Finding]) {
    for finding in findings {
        match finding.severity {
            Severity::Error => tracing::error!("{finding}"),
            Severity::Warning => tracing::warn!("{finding}"),
            Severity::Note => tracing::debug!("{finding}"),
        }
    }
}
