//! From the written configuration (file, environment, flags) to the server's settings.
//!
//! [`low`] holds what was written and where; [`high`] says what it means; [`keys`] is the list of every key that we
//! know. Nothing stops at the first fault: a reading gathers all its findings.

mod checks;
mod coerce;
mod development;
mod doubts;
mod environment;
mod file;
mod files;
mod finding;
mod flags;
mod high;
mod json;
pub(crate) mod keys;
#[cfg(test)]
mod limits;
mod low;
mod nearest;
mod paths;
mod redact;
mod secrets;
#[cfg(test)]
mod tests;
mod unsafe_omissions;
mod unsupported;

use std::path::{Path, PathBuf};

use touchline_server::Settings;

pub(crate) use development::{DevelopmentSecrets, random_secret};
pub(crate) use finding::{Finding, Severity};
pub(crate) use flags::Flags;
pub(crate) use redact::redact;

/// All that a configuration is made of; later ones win.
#[derive(Default)]
pub(crate) struct Sources {
    /// A TOML or JSON file.
    pub(crate) file: Option<PathBuf>,
    /// The process's environment.
    pub(crate) variables: Vec<(String, String)>,
    /// What was typed.
    pub(crate) flags: Flags,
    /// Fill what is absent for a developer's machine.
    pub(crate) development: Option<DevelopmentSecrets>,
}

/// The process's environment, without variables that are not valid Unicode.
pub(crate) fn process_variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// What the process is to do.
#[derive(Debug, Clone)]
pub(crate) struct Configuration {
    /// For the server.
    pub(crate) settings: Settings,
    /// For the logger.
    pub(crate) log: LogSettings,
}

/// How the process logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSettings {
    /// `none`, `error`, `warn`, `info`, `debug` or `trace`.
    pub(crate) level: String,
    /// `text` or `json`.
    pub(crate) format: String,
}

/// The outcome of a reading: a configuration only if no finding is an error.
pub(crate) struct ConfigOutcome {
    /// The configuration, if it can be used.
    pub(crate) configuration: Option<Configuration>,
    /// All that is to be said about it, errors first.
    pub(crate) findings: Vec<Finding>,
}

/// Reads, merges, interprets and checks a configuration. Secrets may be missing: [`read_to_serve`] asks for them.
pub(crate) fn read(sources: &Sources) -> ConfigOutcome {
    read_and(sources, |_, _, _| {})
}

/// As [`read`], and refuses what a server must not run with.
pub(crate) fn read_to_serve(sources: &Sources) -> ConfigOutcome {
    read_and(sources, |file, settings, findings| {
        secrets::check(settings, findings);
        files::check(file, settings, findings);
        files::check_use(settings, findings);
    })
}

/// What else is to be checked: the file, if there is one, with whether it holds secrets; the settings.
type Check = fn(Option<(&Path, bool)>, &Settings, &mut Vec<Finding>);

fn read_and(sources: &Sources, check_more: Check) -> ConfigOutcome {
    let mut findings = Vec::new();
    let mut written = match &sources.file {
        Some(path) => file::read(path, &mut findings),
        None => low::ConfigNode::empty_table(low::Location::Defaults),
    };
    let has_secrets = files::has_secrets(&written);
    environment::apply(&sources.variables, &mut written, &mut findings);
    flags::apply(&sources.flags, &mut written);
    if let Some(secrets) = &sources.development {
        development::fill(secrets, &mut written);
    }
    let configuration = high::interpret(&written, &mut findings);
    if let Some(configuration) = &configuration {
        checks::check(&configuration.settings, &mut findings);
        unsafe_omissions::check(&written, &configuration.settings, &mut findings);
        check_more(sources.file.as_deref().map(|file| (file, has_secrets)), &configuration.settings, &mut findings);
    }
    for finding in findings.iter_mut().filter(|finding| finding.location.is_none()) {
        finding.location = written.location_of(&finding.text).filter(|location| *location != low::Location::Defaults);
    }
    findings.sort_by_key(|finding| finding.severity);
    let is_usable = findings.iter().all(|finding| finding.severity != Severity::Error);
    ConfigOutcome { configuration: configuration.filter(|_| is_usable), findings }
}

impl ConfigOutcome {
    /// The configuration and what was noted about it.
    ///
    /// # Errors
    /// All the errors in one text.
    pub(crate) fn into_result(self) -> anyhow::Result<(Configuration, Vec<Finding>)> {
        match self.configuration {
            Some(configuration) => Ok((configuration, self.findings)),
            None => {
                let errors: Vec<String> =
                    self.findings.iter().filter(|f| f.severity == Severity::Error).map(|f| format!("  {f}")).collect();
                anyhow::bail!("the configuration cannot be used:\n{}", errors.join("\n"))
            }
        }
    }
}
